/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What only the Python package and the monitor call: never from a hook, so some of it may take its
 * time.
 *
 *	msmemscope.start()   collect_begin(): the session that the environment names, or a new one;
 *	                     out of the monitor's session, if the process is in that
 *	npu-monitor          collect_begin_monitor(): the session that the process is in, else one
 *	                     of the monitor's own; another one, if its recorder was killed
 *
 *	the process is in    start() leads to                  npu-monitor leads to
 *	nothing              a recording                       the monitor's session
 *	a recording          the same                          the same, its recorder called back
 *	the monitor's        a recording (guest_move())        the same, or a new one (guest_move())
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"
#include "guest/runtime/env.h"
#include "guest/runtime/guest.h"
#include "guest/watch/watch.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Where a recording should have been, if that is not where the process is. */
static const char *missed = "";

bool collect_begin(const char *output_dir)
{
	guest_begin_in(output_dir);
	missed = guest_monitor_pid() ? guest_next_session() : "";
	if (guest_mode() < GUEST_SHADOW || guest_monitor_pid())
		return false;
	if (!guest_is_launched())
		guest_report_here();
	return true;
}

static uint64_t lost_with_recorder;

bool collect_begin_monitor(const char *dir)
{
	struct control_page *page;
	struct arena_head *arena;
	bool there = true;

	guest_begin_monitor(dir);
	if (guest_mode() < GUEST_SHADOW)
		return false;
	page = guest.page;
	arena = guest.arena;
	if (!guest_monitor_pid()) {
		there = guest_revive();
	} else if (guest_recorder_is_gone()) {
		there = dir && guest_move(dir, true);
		if (there) /* the former ones are still there to be read */
			lost_with_recorder += activities_unwritten(page, arena);
	}
	return there;
}

uint64_t collect_lost_with_recorder(void)
{
	uint64_t n = lost_with_recorder;

	lost_with_recorder = 0;
	return n;
}

bool collect_must_wait(void)
{
	return guest_monitor_pid() && guest_moved_too_often();
}

void collect_release_formers(void)
{
	guest_release_formers();
}

bool collect_recorder_is_gone(void)
{
	return guest_recorder_is_gone();
}

bool collect_is_monitors(void)
{
	return guest_monitor_pid() != 0;
}

void collect_on_move(const struct guest_mover *m)
{
	guest_on_move(m);
}

void collect_bring_steps(void)
{
	guest_bring_steps();
}

void collect_set_ptrace_access(bool on)
{
	if (on)
		guest_grant_ptrace_access();
	else
		guest_revoke_ptrace_access();
}

bool collect_has_python(void)
{
	return guest_has_python();
}

bool collect_is_launched(void)
{
	return guest_is_launched();
}

bool collect_has_joined(void)
{
	return guest_has_joined();
}

const char *collect_session_dir(void)
{
	return missed[0] ? missed : guest_session_dir();
}

bool collect_settings(struct rec_settings *out)
{
	if (!guest_has_joined())
		return false;
	*out = guest.page->settings;
	return true;
}

const struct session_record *collect_record(void)
{
	const struct control_page *page = guest_page_of_session();

	return page && page->magic == SESSION_MAGIC && page->record.on ? &page->record : NULL;
}

/* The recorder may write meanwhile: the key is there before and after, or nothing is known now. */
bool collect_usage(uint16_t device, uint8_t pool, struct collect_usage *out)
{
	uint64_t key = SESSION_USAGE_KEY(getpid(), device, pool);

	if (!guest_has_joined())
		return false;
	for (unsigned i = 0; i < SESSION_USAGES; i++) {
		const struct session_usage *u = &guest.page->usages[i];

		if (atomic_load(&u->key) != key)
			continue;
		out->used_bytes = atomic_load(&u->used_bytes);
		out->peak_bytes = atomic_load(&u->peak_bytes);
		out->peak_heap_bytes = atomic_load(&u->peak_heap_bytes);
		return atomic_load(&u->key) == key;
	}
	return false;
}

uint32_t collect_want(void)
{
	return atomic_load(&guest.want);
}

void collect_configure(const struct rec_settings *s, uint32_t want, const char *output_dir)
{
	struct rec_settings all = *s;

	/* Blocks that the program named are watched whatever else is wanted. */
	if (collect_watch_any())
		want |= WATCH_WANTS;
	if (collect_watch_host())
		all.watch |= SETTINGS_WATCH | SETTINGS_WATCH_HOST;
	if (guest_mode() >= GUEST_SHADOW)
		guest_configure(&all, want, output_dir);
}

void collect_hide_file(const void *name)
{
	guest_hide_file((uint64_t)(uintptr_t)name);
}

bool collect_flush(uint32_t timeout_ms)
{
	return guest_flush(timeout_ms);
}

void collect_snapshot(const struct rec_snapshot *r, const char *name, const void *caller)
{
	struct two_texts t = texts(name, NULL);

	if (guest_mode() < GUEST_SHADOW)
		return;
	struct put p = put_begin(REC_SNAPSHOT, rec_size(sizeof(*r), t.na), caller);
	struct rec_snapshot *out = p.rec;
	if (out) {
		memcpy((char *)out + sizeof(out->head), (const char *)r + sizeof(r->head),
		       sizeof(*r) - sizeof(r->head));
		out->len = (uint16_t)t.na;
		texts_put(&out->head, out->text, &t);
	}
	put_end(&p);
}

uint32_t collect_traces(void)
{
	return guest_wants(WANT_TRACE) ? guest_epoch_now() : 0;
}

uint32_t collect_code(const void *code)
{
	if (guest_mode() < GUEST_SHADOW)
		return 0;
	int saved = errno;
	uint32_t id = guest_python_code((uint64_t)(uintptr_t)code);
	errno = saved;
	return id;
}

void collect_call(uint8_t kind, uint64_t name, uint32_t place)
{
	if (guest_mode() != GUEST_RECORD)
		return;
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_call *r = guest_reserve(sizeof(*r));
	if (likely(r)) {
		*r = (struct rec_call){
			.head = {REC_CALL, 0, sizeof(*r), 0, ns},
			.name = name,
			.place = place,
			.kind = kind,
		};
		guest_publish(sizeof(*r));
	}
	guest_unhold(held);
}

const char *collect_first_class(void)
{
	return guest_python_class();
}

bool collect_find_own(uint64_t lo, uint64_t hi, uint64_t *out_lo, uint64_t *out_hi)
{
	return guest_find_own(lo, hi, out_lo, out_hi);
}

void collect_detach(void)
{
	guest_detach();
}

void collect_note_unseen_heap(void)
{
	guest_note_unseen_heap();
}

/* --- a process that limits its system calls --- */

#define SEAL_FNS 4

static _Atomic(collect_seal_fn) on_seal[SEAL_FNS];

void collect_on_seal(collect_seal_fn fn)
{
	for (int i = 0; i < SEAL_FNS; i++) {
		collect_seal_fn none = NULL;

		if (atomic_compare_exchange_strong(&on_seal[i], &none, fn) || none == fn)
			return;
	}
}

bool collect_seal(bool all_threads, bool no_clock)
{
	for (int i = 0; i < SEAL_FNS && !guest_is_sealed(); i++) {
		collect_seal_fn fn = atomic_load(&on_seal[i]);

		if (fn)
			fn();
	}
	return guest_seal(all_threads, no_clock);
}

void collect_unseal(void)
{
	guest_unseal();
}

bool collect_is_sealed(void)
{
	return guest_is_sealed();
}
