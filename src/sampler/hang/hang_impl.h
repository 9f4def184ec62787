/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What is remembered of each process between two rounds. */
#ifndef SONDE_SAMPLER_HANG_HANG_IMPL_H
#define SONDE_SAMPLER_HANG_HANG_IMPL_H

#include "base/containers/hmap.h"
#include "sampler/hang/hang.h"
#include "sampler/snapshot/call_site.h"

struct still_one {
	uint64_t serial; /* of the target */
	pid_t pid;
	int rank;
	bool counts; /* target_is_rank() */
	uint64_t round; /* the last one in which it was there */
	uint64_t frames, locals; /* stamps */
	bool locals_known;
	uint64_t state; /* still_state() */
	bool state_known;
	uint64_t run_ns; /* still_run_ns() */
	uint64_t main_module; /* 0: not found */
	bool main_looked;
	uint64_t since_ns, since_ticks; /* when it moved last, and its CPU time then */
	uint64_t ticks;
	unsigned looks, running; /* rounds since it moved, and in how many of them it ran */
	bool has_place, has_inner;
	struct stack_frame place, inner;
	struct hmap words_of; /* code object -> words of its variables */
};

struct still {
	struct still_one *list;
	unsigned n;
	size_t cap;
	uint64_t round, round_ns; /* the last one, and when */
};

/* sampler/hang/state.c: a number for what the thread may have changed beside its variables, */
uint64_t still_state(struct still_one *one, struct python_process *p,
		     const struct python_thread *t);
/* and how long it has run: if not at all, somebody else has. UINT64_MAX if that is not known. */
uint64_t still_run_ns(pid_t pid, pid_t tid);

bool still_is(const struct still_one *one, uint64_t ns, uint64_t now_ns);

#endif
