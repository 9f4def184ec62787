/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The faults a memory tool is there to find. Each has its own function, so that stacks name it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "acl/acl.h"
#include "rank.h"

#define NOINLINE __attribute__((noinline))
#define FAULT_BYTES (768u << 10)
#define IDLE_OPERATORS 3200
#define OVERRUN 64
#define OOM_CHUNKS 24

static int due(const struct rank *r, enum train_fault f)
{
	if (r->index != 0 || !(r->opt->faults & f))
		return 0;
	return f == FAULT_LEAK ? r->step >= r->opt->fault_step : r->step == r->opt->fault_step;
}

static void touch(struct rank *r, const struct tensor *t)
{
	op_run(r, &(struct op){.name = "aten.mul_.Scalar", .in = {t}, .out = {t}});
}

static void say(const struct rank *r, const char *what)
{
	if (!r->opt->quiet)
		printf("fault step %d %s\n", r->step, what);
	fflush(stdout);
}

static NOINLINE void leak_one_buffer(struct rank *r)
{
	struct tensor t = tensor_new(r, r->opt->leak_bytes);
	if (t.ptr)
		touch(r, &t);
	say(r, "leak");
}

static NOINLINE void allocate_too_early(struct rank *r)
{
	r->early = tensor_new(r, FAULT_BYTES);
	say(r, "early");
}

static NOINLINE void use_early_buffer(struct rank *r)
{
	touch(r, &r->early);
	tensor_free(r, &r->early);
}

static NOINLINE void use_buffer_once(struct rank *r)
{
	r->late = tensor_new(r, FAULT_BYTES);
	touch(r, &r->late);
	say(r, "late");
}

static NOINLINE void free_too_late(struct rank *r)
{
	tensor_free(r, &r->late);
}

static NOINLINE void leave_buffer_idle(struct rank *r)
{
	struct tensor idle = tensor_new(r, FAULT_BYTES);
	struct tensor busy = tensor_new(r, 4096);
	touch(r, &idle);
	for (int i = 0; i < IDLE_OPERATORS; i++)
		touch(r, &busy);
	touch(r, &idle);
	tensor_free(r, &busy);
	tensor_free(r, &idle);
	say(r, "idle");
}

static NOINLINE void scale_out_of_bounds(struct rank *r, struct tensor *t, size_t room)
{
	struct tensor whole = {t->ptr,
			       room}; /* padding is nobody's: begin where the neighbour does */
	op_run(r, &(struct op){.name = "aten.mul_.Scalar",
			       .in = {&whole},
			       .out = {&whole},
			       .overrun = OVERRUN});
}

/* Two blocks side by side are found by asking until the allocator gives some. */
static NOINLINE void corrupt_neighbour(struct rank *r)
{
	enum { TRIES = 64 };
	struct tensor t[TRIES];
	int hit = -1;
	int victim = -1;
	int n = 0;
	for (; n < TRIES && hit < 0; n++) {
		t[n] = tensor_new(r, 8192);
		if (!t[n].ptr)
			break;
		for (int i = 0; i < n && hit < 0; i++) {
			char *a = t[i].ptr;
			char *b = t[n].ptr;
			if (a + tensor_room(r, &t[i]) == b)
				hit = i, victim = n;
			else if (b + tensor_room(r, &t[n]) == a)
				hit = n, victim = i;
		}
	}
	if (hit >= 0) {
		touch(r, &t[victim]);
		scale_out_of_bounds(r, &t[hit], tensor_room(r, &t[hit]));
		uint64_t word = 0;
		(void)aclrtSynchronizeStream(r->stream);
		(void)aclrtMemcpy(&word, sizeof(word), t[victim].ptr, sizeof(word),
				  ACL_MEMCPY_DEVICE_TO_HOST);
		r->hash ^= word;
		say(r, word == 0xeeeeeeeeeeeeeeeeull ? "oob neighbour overwritten"
						     : "oob neighbour intact");
	}
	for (int i = 0; i < n; i++)
		tensor_free(r, &t[i]);
}

static NOINLINE void allocate_until_oom(struct rank *r)
{
	struct tensor t[OOM_CHUNKS] = {{0}};
	size_t free_bytes;
	size_t total = 0;
	int failed = 0;
	(void)aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total);
	for (int i = 0; i < OOM_CHUNKS && !failed; i++) {
		uint64_t before = r->allocations;
		t[i] = tensor_new(r, total / 16);
		failed = r->allocations == before;
		r->allocations = before; /* how many fit depends on who else is there */
	}
	for (int i = 0; i < OOM_CHUNKS; i++)
		tensor_free(r, &t[i]);
	if (r->pool)
		sim_pool_trim(r->pool);
	say(r, failed ? "oom allocation failed" : "oom allocation succeeded");
}

static NOINLINE void crash_now(struct rank *r)
{
	volatile int *volatile nowhere = NULL; /* else the store is optimised away */
	say(r, "crash");
	switch (r->opt->crash) {
	case CRASH_SEGV:
		*nowhere = 1;
		break;
	case CRASH_ABORT:
		abort();
	case CRASH_KILL:
		kill(getpid(), SIGKILL);
		break;
	case CRASH_EXIT:
		_exit(3);
	}
}

void fault_step_begin(struct rank *r)
{
	if (due(r, FAULT_EARLY))
		allocate_too_early(r);
	if (due(r, FAULT_LATE))
		use_buffer_once(r);
}

void fault_after_forward(struct rank *r)
{
	if (due(r, FAULT_LEAK))
		leak_one_buffer(r);
	if (due(r, FAULT_CRASH))
		crash_now(r);
}

void fault_after_backward(struct rank *r)
{
	if (due(r, FAULT_IDLE))
		leave_buffer_idle(r);
	if (due(r, FAULT_OOB))
		corrupt_neighbour(r);
	if (due(r, FAULT_OOM))
		allocate_until_oom(r);
}

void fault_step_end(struct rank *r)
{
	if (due(r, FAULT_EARLY))
		use_early_buffer(r);
	if (due(r, FAULT_LATE))
		free_too_late(r);
}
