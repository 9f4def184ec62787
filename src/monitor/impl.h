/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside this folder. */
#ifndef SONDE_MONITOR_IMPL_H
#define SONDE_MONITOR_IMPL_H

#include "device/activity.h"
#include "guest/guest.h"
#include "monitor/monitor.h"
#include "wire/fabric.h"
#include "wire/order.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MS_NS 1000000ull

/*
 * One at a time, across threads that may take a while. A forked child takes over what a thread of
 * its parent held at that moment. Not for paths that the job waits on.
 */
struct turn {
	_Atomic uint64_t owner; /* process and thread; 0: nobody */
};
void turn_take(struct turn *t);
bool turn_try(struct turn *t, uint32_t wait_ms);
void turn_give(struct turn *t);

/* --- text.c: texts in fixed buffers, and what is said to people --- */

struct text {
	char *at, *end; /* at NULL: it did not fit */
};
void text_add(struct text *t, const char *s, size_t n);
void text_str(struct text *t, const char *s);
void text_number(struct text *t, int64_t v);
/* Up to four pieces in one line of stderr, which begins with [msmonitor]; NULL ends them. */
void say(const char *a, const char *b, const char *c, const char *d);
/* What of the environment counts, taken when the library is loaded. */
struct surroundings {
	bool wanted; /* MSMONITOR_USE_DAEMON */
	bool rank_given; /* by the program, not by the environment */
	int32_t rank;
	char home[256], socket_dir[256], daemon[256], work_dir[512];
};
extern struct surroundings surroundings;
/* A process that was forked may have given itself a rank: by a thread of the job. */
void surroundings_look_again(void);

/* --- link.c: the daemon --- */

/*
 * Asks for an order; `free` tells that one can be taken. Bytes of it, 0: there is none, or a
 * negative errno: there is no daemon that answers.
 */
int link_ask(bool free, char *out, size_t cap);
void link_tell(const char *type, const struct fabric_status *s);
void link_send(const char *type, const void *payload, size_t len);
/* Until the daemon has something for us (true), or so long. */
bool link_wait(uint32_t ms);
/* Where data go, as SONDE_DAEMON has it; "" before anybody has answered. */
const char *link_data_address(void);
void link_close(void);
/* Another kind of client: the framework itself asks, by the Python module. */
void link_be_framework(void);
int link_register(int32_t device);

/* --- control.c: orders, and what follows from them --- */

/* All with the control's turn taken. */
void control_take(void);
bool control_try(uint32_t wait_ms);
void control_give(void);
int control_order(const char *text, size_t len, char *why, size_t cap);
/* What is due by now; gives when to come again. */
uint64_t control_look(uint64_t now_ns);
bool control_is_running(void);
bool control_can_take(void);
void control_stop(void);
void control_tell_status(void);
void control_set_groups(const char *json, size_t len);
/* By the job's own thread: this step begins. */
void control_step(uint64_t step);
/* The process ends: what has been recorded goes where it belongs. */
void control_exit(void);

/* --- source.c --- */

/* The library that tells activities in this process; NULL: there is none. */
const struct activity_source *source_find(void);

/* --- trace.c: nputrace; with the control's turn taken but for trace_step() --- */

int trace_order(const char *text, size_t len, char *why, size_t cap);
uint64_t trace_look(uint64_t now_ns);
bool trace_is_on(void);
void trace_end(void);
struct fabric_status trace_status(void);
/* By the job's own thread: this step begins. */
void trace_step(uint64_t step);
/* Pauses of Python's collector that the trace wants, in ms; < 0: it wants none. Any thread. */
double trace_gc_ms(void);

/* --- gc.c: Python's collector --- */

void gc_wanted_changed(void);
bool gc_is_heard(void); /* somebody tells its pauses */

/* --- steps.c --- */

/* The step that the job is in, as far as it tells; -1: it has told none. */
int64_t steps_now(void);

/* --- window.c: what the recorder is told --- */

/* A recording for this process, and the number of the next window; 0: there can be none. */
uint64_t window_open(const char *text, size_t len);
void window_change(uint64_t window, const char *text, size_t len);
void window_step(uint64_t window, uint64_t step);
/* A key of its order that is not carried out, and why. */
void window_note(uint64_t window, const char *key, const char *words);
/* Everything has been told: the recorder writes it, which is waited for a moment. */
void window_close(uint64_t window, uint64_t lost);
/* Can files be made below this path? Makes it. 0 or a negative errno. */
int window_check_dir(const struct order_text *dir);

#endif
