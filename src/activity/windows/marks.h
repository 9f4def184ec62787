/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Marks as their source reports them are moments: a range is two on the host and, if a stream
 * passes it too, two on the device, all with one id; only the first has a name. They come in no
 * order that could be trusted. Here they become ranges and instants of the host and of the device,
 * each reported once it is complete. What stays incomplete goes, the oldest first, when there are
 * too many.
 */
#ifndef SONDE_ACTIVITY_WINDOWS_MARKS_H
#define SONDE_ACTIVITY_WINDOWS_MARKS_H

#include "activity/files/activity.h"
#include "base/containers/hmap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MARKS_OPEN_MAX 65536u

struct mark;

/* Zero-initialise and release. */
struct marks {
	struct hmap open; /* id -> struct mark */
	struct mark *oldest, *newest, *unused;
	uint64_t dropped; /* that did not become complete */
	uint64_t malformed; /* with a flag that is none */
};

typedef void marks_fn(void *arg, const struct activity *a);

/* Does this one open a range, or stand for itself, on the host: has it the name? */
bool mark_opens(const struct activity *raw);

/*
 * One record; both its times are the moment. `keep`, of one that opens: whether it and all that
 * belongs to it is to be reported.
 */
void marks_add(struct marks *m, const struct activity *raw, bool keep, marks_fn *fn, void *arg);

/* Every text that is held. */
void marks_texts(const struct marks *m, void (*fn)(void *arg, const char *text), void *arg);

/* All that is open is dropped, and counted. */
void marks_clear(struct marks *m);
void marks_release(struct marks *m);

#endif
