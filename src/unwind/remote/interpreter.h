/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The few words of the runtime and of each interpreter that say which threads there are, who has
 * the GIL and whether the garbage collector runs. They are read along with the first thread.
 *
 *	to 3.11    one GIL, in _PyRuntime; who has it: gilstate.tstate_current
 *	from 3.12  interp.gil points to it: interpreters may share one or have their own; locked and
 *	           last_holder say who has it. None in a free-threaded interpreter
 *
 * The words lie up to 100 KiB apart in PyInterpreterState; those near each other are one span
 * (interp_area), so that four spans are enough for all versions.
 */
#ifndef SONDE_UNWIND_REMOTE_INTERPRETER_H
#define SONDE_UNWIND_REMOTE_INTERPRETER_H

#include <stdbool.h>

#include "unwind/remote/find/find.h"

#define INTERP_FIELDS 6
#define INTERP_AREAS 4
#define INTERP_AREA_BYTES 512
#define INTERP_SPANS (INTERP_AREAS + 2) /* with the runtime's and the GIL's */
#define INTERP_GIL_BYTES 32
#define MAX_INTERPS 256

/* Fields that lie near each other are one span. */
struct interp_area {
	uint32_t at, n;
};

struct remote_interp {
	uint64_t addr;
	uint64_t next, threads_head;
	int64_t id;
	uint64_t gil; /* its address; 0 if there is none */
	uint64_t gil_holder; /* thread state; 0 if nobody has it */
	uint64_t code_generation;
	bool collecting;
	uint64_t seen; /* round */
	uint64_t named_ns; /* when the names of its threads were read */
	/* the copies */
	uint8_t bytes[INTERP_AREAS][INTERP_AREA_BYTES];
	uint8_t gil_bytes[INTERP_GIL_BYTES];
};

struct remote_runtime {
	struct interp_area area; /* of _PyRuntime */
	struct interp_area areas[INTERP_AREAS]; /* of an interpreter */
	unsigned nareas;
	uint8_t bytes[2048];
	uint64_t head; /* first interpreter */
	struct remote_interp **interps;
	unsigned n;
	size_t cap;
};

void runtime_init(struct remote_runtime *r, const struct python_place *place);
void runtime_release(struct remote_runtime *r);

/* The spans that bring the words of the interpreter (NULL: of none), and of the runtime if `all`.
 */
unsigned runtime_spans(struct remote_runtime *r, const struct python_place *place,
		       struct remote_interp *i, bool all, struct remote_span *out);
/* Makes sense of the copies. -EAGAIN if there is no interpreter. */
int runtime_read(struct remote_runtime *r, const struct python_place *place);
/* False if the GIL is not where it was: its words must be read before interp_holder() is asked. */
bool interp_read(struct remote_interp *i, const struct remote_runtime *r,
		 const struct python_place *place);
void interp_holder(struct remote_interp *i, const struct remote_runtime *r,
		   const struct python_place *place);

/* The slot of the interpreter at this address, made if there is none. NULL: too many. */
struct remote_interp *runtime_interp(struct remote_runtime *r, uint64_t addr);
/* Forgets those that were not seen in this round. */
void runtime_prune(struct remote_runtime *r, uint64_t round);

#endif
