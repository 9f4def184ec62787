/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the activity files of this folder share: names of files, words for numbers. */
#ifndef SONDE_ACTIVITY_FILES_COMMON_H
#define SONDE_ACTIVITY_FILES_COMMON_H

#include "activity/files/activity.h"
#include "base/containers/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define ACTIVITY_FILE_PREFIX "msmonitor_"
/* In a DB the ids of marks lie above those of launches. */
#define ACTIVITY_MARK_OFFSET 4000000000ull
#define ACTIVITY_NO_DATA 4294967295ll /* columns that nobody knows the value of */

/* Every data type in the order of its number; false behind the last one. */
bool activity_data_type_at(unsigned i, uint16_t *out_type, const char **out_name);
bool activity_data_type_find(const char *name, uint16_t *out);

/* Kinds of copies, "HtoD" …; "UNKNOWN". */
const char *activity_copy_kind(uint8_t flag);
bool activity_copy_kind_find(const char *name, uint8_t *out);

bool activity_is_api(uint8_t kind);
bool activity_is_instant(const struct activity *a); /* a mark without an extent */
uint64_t activity_ns(const struct activity *a); /* 0 if it ends before it begins */

/* The tool's hash of texts: two 32-bit polynomials of the (signed) characters, factors 29 and 131.
 */
uint64_t activity_hash(const char *s);

/* hostUid: hash of the hardware addresses; and the name of the host. */
uint64_t activity_host_uid(void);
void activity_host_name(struct buf *out);

/*
 * A new file "<dir>/msmonitor_<pid>_<YYYYmmddHHMMSSmmm, local time>_<rank>.<suffix>", 0640, in a
 * directory that is made if need be. Its time is now, but later than *last_ms by 1 ms at least.
 * Gives a descriptor, or a negative errno; out_path is the caller's.
 */
int activity_file_new(const char *dir, const struct activity_origin *who, const char *suffix,
		      uint64_t *last_ms, char **out_path, struct err *err);

#endif
