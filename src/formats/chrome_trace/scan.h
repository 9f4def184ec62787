/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Reads a Chrome trace of anybody without keeping it: the text of each event, one after the other, and
 * the members beside `traceEvents`. Both forms, an array of events and an object; a file whose writer was
 * killed ends where it ends. Bytes come from anywhere: what is no such file is refused.
 */
#ifndef SONDE_FORMATS_CHROME_TRACE_SCAN_H
#define SONDE_FORMATS_CHROME_TRACE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CHROME_SCAN_EVENT_BYTES (1u << 20) /* longer events and members are passed over */

struct chrome_scan_sink {
	/* Not 0 ends the scan, which returns it. Texts are not ended by NUL. */
	int (*event)(void *arg, uint64_t offset, const char *text, size_t len);
	int (*member)(void *arg, const char *key, size_t key_len, const char *text, size_t len);
	void *arg;
};

struct chrome_scan_result {
	uint64_t events, skipped;
	int cut; /* the file ends within an event or before its end */
};

/* From where the descriptor stands, to its end. */
int chrome_scan(int fd, const struct chrome_scan_sink *sink, struct chrome_scan_result *out,
		struct err *err);

#endif
