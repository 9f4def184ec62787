/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The event stream: what a recording says, frame by frame, as calls. The live recorder feeds the
 * frames it has just written, `show`, `export` and `recover` feed those of a file; for a listener
 * there is no difference.
 */
#ifndef SONDE_RECORDER_STREAM_H
#define SONDE_RECORDER_STREAM_H

#include "base/err.h"
#include "wire/record.h"
#include "wire/recording.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Any of them may be NULL. Texts and records are borrowed for the call. */
struct stream_ops {
	void (*version)(void *arg, uint32_t version); /* of a file, before its frames */
	void (*session)(void *arg, const char *json, size_t len);
	void (*proc)(void *arg, const struct frame_proc *p);
	void (*stack)(void *arg, uint32_t proc, uint32_t id, const uint64_t *pc, uint32_t depth);
	void (*record)(void *arg, uint32_t proc, uint32_t tid, const struct rec *r);
	void (*cursor)(void *arg, const struct batch_cursor *c);
	void (*count)(void *arg, const struct batch_count *c);
	/* A batch begins (NULL); then each count that it has, before what it counts comes. */
	void (*batch)(void *arg, const struct batch_count *c);
	void (*proc_end)(void *arg, const struct frame_proc_end *e);
	void (*cut)(void *arg, const struct frame_cut *c);
	void (*end)(void *arg);
	/* Bytes of a file between two frames are damaged: what they said is missing. */
	void (*damage)(void *arg, uint64_t bytes);
};

/* What a recording lacks of a process, as its counts and its end say. Zero-initialise. */
struct stream_losses {
	uint64_t records; /* that it has produced, as far as is known */
	uint64_t missing; /* of them: not in the recording */
	uint64_t events; /* that it could not keep */
	uint64_t stacks, damaged;
};
void stream_losses_count(struct stream_losses *l, const struct batch_count *c);
/* Does it count records that were there already? */
static inline bool stream_is_repeated(const struct stream_losses *l, const struct batch_count *c)
{
	return c->in_batch && c->records - c->in_batch < l->records;
}
/* Completes the end of the process; all 0 if the recording has none. */
void stream_losses_end(const struct stream_losses *l, struct frame_proc_end *e);

/* Checks one frame and makes the calls. -EINVAL: malformed; what came before it was passed on. */
int stream_frame(const struct stream_ops *ops, void *arg, uint32_t type, const char *payload,
		 size_t bytes, struct err *err);

/* Who hears a file, and who else does: each frame goes to all of them in turn. */
struct stream_listener {
	const struct stream_ops *ops;
	void *arg;
	const struct stream_listener *next; /* NULL: nobody else */
};

int stream_file_to(const char *path, const struct stream_listener *to, bool *out_torn,
		   struct err *err);

/* All frames of a file. *out_torn (may be NULL) says whether it ends in the middle of a frame. */
int stream_file(const char *path, const struct stream_ops *ops, void *arg, bool *out_torn,
		struct err *err);

#endif
