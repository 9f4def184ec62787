/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Python objects of another process: the few that are asked for. Names of threads, and what a
 * variable holds, as a short text. Every byte is doubted: depth, length and number of reads are
 * bounded, cycles end.
 */
#ifndef SONDE_UNWIND_REMOTE_OBJECTS_OBJECTS_H
#define SONDE_UNWIND_REMOTE_OBJECTS_OBJECTS_H

#include "base/containers/buf.h"
#include "unwind/remote/find/find.h"

/* Calls fn for every entry of threading._active of an interpreter: ident and name. 0, or a negative
 * errno if the module is not there or cannot be read. */
typedef void (*thread_name_fn)(void *arg, uint64_t thread_id, const char *name);
int remote_thread_names(struct remote *r, const struct python_place *place, uint64_t interp,
			thread_name_fn fn, void *arg);

/* Adds a text like repr()'s, at most about `limit` bytes: None, numbers, str, bytes, containers
 * with some of their items; tensors and arrays of which the shape can be read; else <module.Class
 * at 0x…>. */
void remote_repr(struct remote *r, const struct python_place *place, uint64_t object, size_t limit,
		 struct buf *out);

/* Calls fn for every local variable of a frame that has a value, arguments first. */
typedef void (*local_fn)(void *arg, const char *name, bool is_argument, uint64_t object);
int remote_locals(struct remote *r, const struct python_place *place, uint64_t frame, uint64_t code,
		  local_fn fn, void *arg);

/* How many words the local variables of a function take in its frame, from layout.frame.locals on;
 * bounded. Who wants to know whether any of them was set compares these words. */
int remote_locals_words(struct remote *r, const struct python_place *place, uint64_t code);

/* The module __main__ of the interpreter of a thread; -ENOENT. */
int remote_main_module(struct remote *r, const struct python_place *place, uint64_t tstate,
		       uint64_t *out);

/* A number that changes when one of the first some hundred attributes of the object (variables, of
 * a module) is set to something else. 0 if it has none, or they cannot be read. */
uint64_t remote_attributes_stamp(struct remote *r, const struct python_place *place,
				 uint64_t object);

/*
 * What a process itself knows of its place in a job, which /proc does not: the environment as it is
 * now (os.environ), the default group of torch.distributed, and who started it. What is not there,
 * or cannot be read, is unknown: RANK_ENV_UNKNOWN, false, no bytes.
 */
#define REMOTE_JOB_TARGET 64

struct remote_job {
	bool environ_known; /* it was read to its end */
	/* Of it what wire/rank_env.h names, as in /proc/PID/environ; the caller releases it. */
	struct buf environ;
	int32_t rank, world_size; /* of the process group */
	bool child; /* multiprocessing has started it, */
	char target[REMOTE_JOB_TARGET]; /* to run the function of this name; "": no function */
	bool loader; /* it is a worker of a DataLoader of PyTorch */
	int32_t spawn_index; /* which of those that torch.multiprocessing.spawn has started */
};
int remote_job(struct remote *r, const struct python_place *place, struct remote_job *out);

#endif
