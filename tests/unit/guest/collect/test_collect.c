/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What each report of a hook becomes in the ring. */
#include "guest/collect/collect.h"

#include "guest/runtime/guest.h"
#include "jobs.h"

static const struct collect_block block = {.addr = 0x1000,
					   .size_bytes = 64,
					   .device = 3,
					   .pool = POOL_HAL,
					   .kind = ALLOC_CREATE,
					   .page = PAGE_HUGE,
					   .module = 7};

/* Runs a job to its end and reads what it wrote. */
static void run(uint32_t want, void (*fn)(void))
{
	job_session(want, 64, 0);
	job_wait(job_start(fn));
	while (job_look())
		;
	CHECK_INT(job_ends[0].damaged, 0);
	CHECK_INT(job_ends[0].lost_events, 0);
}

/* The text of record i up to a NUL, and what is behind it. */
static void check_text(size_t i, const char *first, const char *second)
{
	size_t len;
	const struct rec *r = job_record(i);
	const char *text = rec_text(r, &len), *end = (const char *)r + r->size;

	CHECK(rec_check(r, r->size));
	CHECK_INT(len, strlen(first) + (second ? strlen(second) + 1 : 0));
	CHECK(!memcmp(text, first, strlen(first)));
	if (second)
		CHECK(!memcmp(text + strlen(first) + 1, second, strlen(second)));
	for (const char *p = text + len; p < end; p++)
		CHECK_INT(*p, 0);
}

static void blocks_job(void)
{
	struct collect_block other = block;

	collect_alloc(&block, NULL);
	collect_free(&block, NULL);
	struct collect_pending p = collect_free_begin(&block);
	CHECK(p.time_ns && p.held);
	CHECK_INT(atomic_load(&guest_self.cur[0].ring->pending_ns), p.time_ns);
	collect_free_end(p, &block, true, NULL);
	CHECK_INT(atomic_load(&guest_self.cur[0].ring->pending_ns), 0);
	p = collect_free_begin(&block);
	collect_free_end(p, &block, false, NULL); /* it failed: nothing happened */
	CHECK_INT(atomic_load(&guest_self.cur[0].ring->pending_ns), 0);
	other.pool = POOL_HOST; /* not asked for */
	collect_alloc(&other, NULL);
	collect_free(&other, NULL);
	collect_heap(POOL_PTA, 1, HEAP_ADD, 0x2000, 4096);
	collect_oom(2, ALLOC_PLAIN, 99, 5, NULL);
}

TEST(collect, blocks)
{
	run(WANT_ALLOC, blocks_job);
	CHECK_INT(job_nevents, 5);
	const struct rec_alloc *a = JOB_ALLOC(0);
	CHECK_INT(a->head.type, REC_ALLOC);
	CHECK_INT(a->head.flags, 0);
	CHECK_INT(a->addr, 0x1000);
	CHECK_INT(a->size_bytes, 64);
	CHECK_INT(a->device, 3);
	CHECK_INT(a->pool, POOL_HAL);
	CHECK_INT(a->kind, ALLOC_CREATE);
	CHECK_INT(a->page, PAGE_HUGE);
	CHECK_INT(a->module, 7);
	const struct rec_free *f = (const struct rec_free *)job_record(1);
	CHECK_INT(f->head.type, REC_FREE);
	CHECK_INT(f->addr, 0x1000);
	CHECK_INT(f->device, 3);
	CHECK_INT(job_record(2)->type, REC_FREE);
	const struct rec_heap *h = (const struct rec_heap *)job_record(3);
	CHECK_INT(h->head.type, REC_HEAP);
	CHECK(h->addr == 0x2000 && h->bytes == 4096 && h->mode == HEAP_ADD && h->pool == POOL_PTA);
	const struct rec_oom *o = (const struct rec_oom *)job_record(4);
	CHECK_INT(o->head.type, REC_OOM);
	CHECK(o->size_bytes == 99 && o->flag == 5 && o->device == 2);
	job_cleanup();
}

static void host_job(void)
{
	struct collect_block b = block;

	b.pool = POOL_HOST;
	collect_alloc(&b, NULL);
	collect_free(&b, NULL);
}

TEST(collect, host_memory_if_asked_for)
{
	run(WANT_ALLOC | WANT_HOST, host_job);
	CHECK_INT(job_nevents, 2);
	CHECK_INT(JOB_ALLOC(0)->pool, POOL_HOST);
	job_cleanup();
}

static void unwanted_job(void)
{
	collect_alloc(&block, NULL);
	collect_free(&block, NULL);
	struct collect_pending p = collect_free_begin(&block);
	collect_free_end(p, &block, true, NULL);
	collect_op(OP_ATEN_START, "a", NULL, NULL);
	collect_op(OP_KERNEL_START, "a", NULL, NULL);
	collect_access(&block, ACCESS_READ, "a", NULL);
	collect_kernel(KERNEL_LAUNCH, 0, 1, 0, 0, 0);
	collect_oom(0, 0, 1, 1, NULL);
	CHECK(!collect_launch_enter());
	CHECK(!collect_wants(UINT32_MAX & ~(uint32_t)WANT_DEFERRED) && collect_tracing());
	collect_mark(MARK_INSTANT, 0, "always", NULL);
}

TEST(collect, only_what_is_wanted)
{
	run(0, unwanted_job);
	CHECK_INT(job_nevents, 1);
	check_text(0, "always", NULL);
	job_cleanup();
}

static char longest[2000];

static void texts_job(void)
{
	memset(longest, 'x', sizeof(longest) - 1);
	collect_mark(MARK_RANGE_START, 9, "hello", "domain");
	collect_mark(MARK_INSTANT, 0, NULL, NULL);
	collect_mark(MARK_INSTANT, 0, "", "d");
	collect_mark(MARK_INSTANT, 0, longest, "domain"); /* no room for the domain */
	collect_mark(MARK_INSTANT, 0, longest + sizeof(longest) - 1 - REC_MAX_TEXT, NULL);
	collect_mark(MARK_INSTANT, 0, "m", longest);
	collect_op(OP_ATB_START, "op", "k:v", NULL);
	collect_access(&block, ACCESS_WRITE, "op", "dtype:f,shape:[1,2]");
	collect_label(LABEL_PUSH, 5, 0, "owner");
	collect_name(77, "kernel\0name", 11);
	collect_name(78, longest, sizeof(longest));
}

TEST(collect, texts)
{
	run(WANT_OP | WANT_ACCESS, texts_job);
	memset(longest, 'x', REC_MAX_TEXT);
	longest[REC_MAX_TEXT] = 0;
	CHECK_INT(job_nevents, 11);
	check_text(0, "hello", "domain");
	CHECK_INT(((const struct rec_mark *)job_record(0))->range, 9);
	CHECK_INT(((const struct rec_mark *)job_record(0))->device, DEV_NONE);
	check_text(1, "", NULL);
	check_text(2, "", "d");
	check_text(3, longest, NULL);
	CHECK_INT(job_record(3)->flags, REC_F_TEXT_CUT);
	check_text(4, longest, NULL);
	CHECK_INT(job_record(4)->flags, 0);
	longest[REC_MAX_TEXT - 2] = 0;
	check_text(5, "m", longest);
	check_text(6, "op", "k:v");
	check_text(7, "op", "dtype:f,shape:[1,2]");
	check_text(8, "owner", NULL);
	CHECK_INT(((const struct rec_label *)job_record(8))->level, 5);
	check_text(9, "kernel", "name");
	memset(longest, 'x', REC_MAX_TEXT);
	check_text(10, longest, NULL);
	job_cleanup();
}

/* A hook inside a hook is deeper in the stack. */
static __attribute__((noinline)) bool enter_deeper(void)
{
	volatile char frame[256] = {0};
	bool outermost = collect_launch_enter();

	return outermost || frame[0];
}

static void launch_job(void)
{
	CHECK(collect_launch_enter());
	CHECK(guest_self.launch_ns);
	CHECK(!enter_deeper()); /* acl calls rt: one launch */
	CHECK(collect_launch_enter()); /* the first was left by longjmp() */
	uint64_t entered = guest_self.launch_ns;
	collect_kernel(KERNEL_LAUNCH, 0, 0xabc, 1, 2, 3);
	collect_launch_leave();
	CHECK_INT(guest_self.launch_ns, 0);
	collect_kernel(KERNEL_EXECUTE_END, entered, 0xabc, 1, 2, 3);
	CHECK_INT(collect_range_id(), 1);
	CHECK_INT(collect_range_id(), 2);
	collect_step();
	collect_step();
	collect_system(SYSTEM_ACL_INIT, 5);
}

TEST(collect, launches_and_steps)
{
	run(WANT_KERNEL, launch_job);
	CHECK_INT(job_nevents, 5);
	const struct rec_kernel *k = (const struct rec_kernel *)job_record(0);
	const struct rec_kernel *e = (const struct rec_kernel *)job_record(1);
	CHECK(k->name_hash == 0xabc && k->device == 1 && k->stream == 2 && k->task == 3);
	CHECK_INT(k->head.time_ns, e->head.time_ns);
	CHECK_INT(e->kind, KERNEL_EXECUTE_END);
	for (uint64_t i = 0; i < 2; i++) {
		const struct rec_system *s = (const struct rec_system *)job_record(2 + i);
		CHECK_INT(s->kind, SYSTEM_STEP);
		CHECK_INT(s->value, i + 1);
	}
	job_cleanup();
}

static void detected_job(void)
{
	CHECK(collect_detected_step(STEP_FORWARD, "Net", true));
	CHECK(collect_detected_step(STEP_FORWARD, "Net", false));
	CHECK(collect_detected_step(STEP_OPTIMIZER, "SGD", true));
	CHECK(!collect_steps_reported());
	CHECK_INT(collect_steps(), 3);
	collect_step();
	CHECK(collect_steps_reported());
	CHECK(!collect_detected_step(STEP_OPTIMIZER, "SGD", false));
	CHECK_INT(collect_steps(), 4);
}

TEST(collect, detected_steps)
{
	static const uint64_t values[] = {1, 2, 1, 1};
	size_t n = 0, names = 0;

	run(WANT_ALLOC, detected_job);
	for (size_t i = 0; i < job_nevents; i++) {
		const struct rec_system *s = (const struct rec_system *)job_record(i);

		if (s->head.type != REC_SYSTEM)
			continue;
		names += s->kind == SYSTEM_STEP_NAME;
		if (s->kind == SYSTEM_STEP_NAME)
			continue;
		CHECK_INT(s->kind, n == 3 ? SYSTEM_STEP : SYSTEM_DETECTED_STEP);
		CHECK_INT(s->source, n == 3   ? STEP_REPORTED
				     : n == 2 ? STEP_OPTIMIZER
					      : STEP_FORWARD);
		CHECK_INT(s->value, values[n++]);
	}
	CHECK(n == 4 && names == 2);
	job_cleanup();
}

static void deferred_job(void)
{
	collect_alloc(&block, NULL); /* followed */
	collect_mark(MARK_INSTANT, 0, "not yet", NULL);
	CHECK(!collect_tracing() && !collect_wants(WANT_ALLOC));
	struct collect_pending p = collect_free_begin(&block);
	CHECK(p.time_ns && !p.held);
	collect_free_end(p, &block, true, NULL);
	collect_set_tracing(false); /* it is not: nothing */
	collect_set_tracing(true);
	collect_set_tracing(true);
	collect_alloc(&block, NULL);
	collect_mark(MARK_INSTANT, 0, "now", NULL);
	collect_set_tracing(false);
	collect_free(&block, NULL);
	collect_step();
}

TEST(collect, shadow_and_tracing)
{
	static const uint8_t types[] = {REC_ALLOC, REC_FREE,   REC_SYSTEM, REC_ALLOC,
					REC_MARK,  REC_SYSTEM, REC_FREE};
	static const uint8_t flags[] = {1, 1, 0, 0, 0, 0, 1};

	run(WANT_ALLOC | WANT_DEFERRED, deferred_job);
	CHECK_INT(job_nevents, 7);
	for (size_t i = 0; i < 7; i++) {
		CHECK_INT(job_record(i)->type, types[i]);
		CHECK_INT(job_record(i)->flags, flags[i]);
	}
	CHECK_INT(((const struct rec_system *)job_record(2))->kind, SYSTEM_START_TRACE);
	CHECK_INT(((const struct rec_system *)job_record(5))->kind, SYSTEM_STOP_TRACE);
	job_cleanup();
}

static void errno_job(void)
{
	errno = EDOM;
	collect_alloc(&block, NULL); /* the first event of process and thread */
	CHECK_INT(errno, EDOM);
	for (int i = 0; i < 5000; i++) /* … and new segments */
		collect_free(&block, NULL);
	CHECK_INT(errno, EDOM);
	collect_op(OP_ATEN_START, "x", NULL, NULL);
	CHECK_INT(errno, EDOM);
}

TEST(collect, errno_is_kept)
{
	run(WANT_ALLOC, errno_job);
	CHECK_INT(job_nevents, 5001);
	job_cleanup();
}
