/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The monitor inside a job: libsonde_monitor.so. It asks the daemon for requests as libkineto does
 * and carries them out: activities on and off, reports, traces of steps. A thread of its own does
 * all that; it runs from the moment that the job uses a device or reports a step, if
 * MSMONITOR_USE_DAEMON is set. The Python modules call the same functions instead.
 */
#ifndef SONDE_GUEST_MONITOR_MONITOR_H
#define SONDE_GUEST_MONITOR_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MONITOR_EXPORTED(name) __asm__("sonde_" #name)

#pragma GCC visibility push(default)

/* Starts the thread, if it is wanted and does not run. Cheap afterwards. */
void monitor_wake(void) MONITOR_EXPORTED(monitor_wake);

/* --- for the Python modules: the same without a thread that asks --- */

/* The framework asks for itself: the thread does not. "ctxt", and status Idle for both. 0 or a
 * negative errno: there is no daemon. */
int monitor_register(int32_t device) MONITOR_EXPORTED(monitor_register);
/* Asks once. Bytes of the request, not terminated; 0: none; negative errno. */
int monitor_poll(char *out, size_t cap) MONITOR_EXPORTED(monitor_poll);
/* What the framework's profiler does: enum fabric_state, steps. */
void monitor_send_trace_status(int32_t state, int32_t current, int32_t start, int32_t stop)
	MONITOR_EXPORTED(monitor_send_trace_status);
/* Says good-bye (both Uninitialized), stops what runs. */
void monitor_end(void) MONITOR_EXPORTED(monitor_end);

/* Carries out a request of npu-monitor. 0; a negative errno and, in why, words. */
int monitor_execute(const char *text, size_t len, char *why, size_t cap)
	MONITOR_EXPORTED(monitor_execute);
bool monitor_is_running(void) MONITOR_EXPORTED(monitor_is_running);
/* What is known about the groups of the job, as JSON; goes into the files of the next windows. */
void monitor_set_groups(const char *json, size_t len) MONITOR_EXPORTED(monitor_set_groups);
/* -1: not known. Else as RANK, RANK_ID of the environment, if nobody says otherwise. */
void monitor_set_rank(int32_t rank) MONITOR_EXPORTED(monitor_set_rank);
/* The names of the libraries that can report activities here: "MSPTI", "CUPTI"; "" if there is
 * none.
 */
const char *monitor_source(void) MONITOR_EXPORTED(monitor_source);

/*
 * Python's collector, for the extension that can listen to it. Pauses of at least so many ms are
 * wanted; < 0: none. Cheap.
 */
double monitor_gc_ms(void) MONITOR_EXPORTED(monitor_gc_ms);
/* Called by our thread when that has changed; NULL: nobody. */
void monitor_on_gc(void (*fn)(void)) MONITOR_EXPORTED(monitor_on_gc);
void monitor_gc_subscribe(bool on) MONITOR_EXPORTED(monitor_gc_subscribe);
/* One of them, by the thread that it held up; CLOCK_REALTIME. */
void monitor_gc_pause(uint64_t start_ns, uint64_t end_ns) MONITOR_EXPORTED(monitor_gc_pause);

/*
 * --attribute, for the extension that follows the modules of models. Is it wanted? Cheap.
 */
bool monitor_attributes(void) MONITOR_EXPORTED(monitor_attributes);
/* Called by our thread, or one that carries out a request, when that has changed; NULL: nobody. */
void monitor_on_attribute(void (*fn)(void)) MONITOR_EXPORTED(monitor_on_attribute);

#pragma GCC visibility pop

#endif
