/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * --gc-detect-threshold: pauses of Python's collector. Python's side (src/python/_monitor/gc.c)
 * listens while a trace wants them; a pause is reported when it is over, as a range of the host, in
 * the way of a source's marks. A recording of memory knows nothing of those.
 */
#include "guest/monitor/monitor_impl.h"

#include "guest/collect/collect.h"

#define GC_NAME "gc"
#define GC_DOMAIN "python"
#define GC_IDS (1ull << 52) /* no mark of a source has such an id */

static void (*_Atomic listener)(void);
static _Atomic uint32_t listening_pid; /* the process in which somebody listens */

double monitor_gc_ms(void)
{
	return trace_gc_ms();
}

void monitor_on_gc(void (*fn)(void))
{
	atomic_store(&listener, fn);
}

void monitor_gc_subscribe(bool on)
{
	atomic_store(&listening_pid, on ? (uint32_t)getpid() : 0);
}

bool gc_is_subscribed(void)
{
	return atomic_load(&listening_pid) == (uint32_t)getpid();
}

void gc_wanted_changed(void)
{
	void (*fn)(void) = atomic_load(&listener);

	if (fn)
		fn();
}

static void emit_mark(uint64_t id, uint8_t flag, uint64_t ns)
{
	struct collect_activity a = {
		.start_ns = ns,
		.end_ns = ns,
		.correlation = id,
		.name = flag == ACTIVITY_MARK_START ? GC_NAME : NULL,
		.detail = flag == ACTIVITY_MARK_START ? GC_DOMAIN : NULL,
		.where = {(uint32_t)getpid(), (uint32_t)syscall(SYS_gettid)},
		.kind = ACTIVITY_MARKER,
		.flag = flag,
		.place = ACTIVITY_ON_HOST,
	};

	collect_activity(&a);
}

/* A range needs two marks with the same id; both are written when the pause is over, with their
 * own times. */
void monitor_gc_pause(uint64_t start_ns, uint64_t end_ns)
{
	static _Atomic uint64_t ids;
	uint64_t id = GC_IDS | atomic_fetch_add(&ids, 1);

	emit_mark(id, ACTIVITY_MARK_START, start_ns);
	emit_mark(id, ACTIVITY_MARK_END, end_ns);
}
