/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The texts that a process has reported for its hashes: each once, valid UTF-8, so that equal texts
 * have equal pointers. A process may put a number into every name: when there is no more room,
 * holders of texts are asked to let go of them, and those that were not reported or used for long
 * go. The guest sends a text again that it has not used for long (guest/collect/activity.c).
 */
#ifndef SONDE_ACTIVITY_WINDOWS_NAMES_H
#define SONDE_ACTIVITY_WINDOWS_NAMES_H

#include "base/containers/buf.h"
#include "base/containers/hmap.h"

#include <stdbool.h>
#include <stdint.h>

#define NAMES_MAX 131072u
#define NAMES_MAX_BYTES (64u << 20)

#define NAME_STAYS UINT64_MAX

struct name {
	struct name *same; /* another text with the same key */
	uint64_t used; /* when it was last added or used, counted in names added; NAME_STAYS */
	uint32_t id; /* small; free again when the name is forgotten */
	uint32_t len;
	char text[];
};

/* Zero-initialise and release. */
struct texts {
	struct hmap by_hash; /* as the process has it -> struct name */
	struct hmap by_text; /* of our own -> struct name */
	struct name *empty, *other, *unknown, *domain; /* "", "…other", "?", "default": stay */
	uint32_t *free_ids;
	size_t nfree, free_cap;
	uint32_t next_id;
	uint64_t adds; /* names that the process has reported */
	uint64_t forgot; /* the same, at the last texts_forget() */
	size_t bytes;
	uint64_t refused; /* for which there was no room */
	struct buf scratch;
};

/* False: there is no room for it. Then texts_forget() makes some, or the caller counts it in
 * `refused`. */
bool texts_add(struct texts *n, uint64_t hash, const char *text, size_t len);
/* Whether it is worth the work: it may be that all are used all the time. */
bool texts_may_forget(const struct texts *n);
/* Forgets what was not reported or used while as many as half of them were reported. */
void texts_forget(struct texts *n);

/* Never NULL: "" for 0; "?" for what was never reported, "…other" if something has been refused. */
struct name *texts_find(struct texts *n, uint64_t hash);
/* A name by its text; one that is there counts as used. */
struct name *texts_put(struct texts *n, const char *text, size_t len);

void texts_release(struct texts *n);

#endif
