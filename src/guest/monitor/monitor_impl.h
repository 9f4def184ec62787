/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Inside this folder: the parts of the monitor, and which thread may be where.
 *
 *	the job's threads        monitor_wake(); steps: trace_step(), control_step(). They compare
 *	                         numbers and write a record; they take no lock
 *	threads with Python      monitor_execute() and the like, with the control's lock
 *	our thread (thread.c)    polls the daemon (daemon_link.c); executes requests
 *	                         (control.c, trace.c) and runs what is due, with the control's lock
 *	the vendor's threads     fill buffers; a full one is walked (src/device), which calls
 *	                         collect_activity(); pending_launches.c counts launches there
 *
 * Locks are fork-safe (guest/runtime/fork_safe_lock.h) and taken in this order:
 *
 *	control    what is running; held while a source is switched, for seconds at worst
 *	link       the socket; held for one exchange with the daemon, 100 ms at worst
 *	inside     of source.c: a thread of ours is in the vendor's library
 *
 * Nothing here runs in a hook.
 */
#ifndef SONDE_GUEST_MONITOR_MONITOR_IMPL_H
#define SONDE_GUEST_MONITOR_MONITOR_IMPL_H

#include "device/activity.h"
#include "guest/monitor/monitor.h"
#include "guest/runtime/fork_safe_lock.h"
#include "guest/runtime/guest.h"
#include "guest/runtime/text.h"
#include "wire/fabric.h"
#include "wire/request.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define MS_NS 1000000ull

/* --- environment.c: messages for people, and the environment --- */

/*
 * Up to four pieces in one line of stderr, which begins with [msmonitor]; NULL ends them. Not if
 * that is another file than it was when we came, nor if somebody would have to wait.
 */
void print_notice(const char *a, const char *b, const char *c, const char *d);
/* What of the environment counts, taken when the library is loaded. */
struct environment {
	bool wanted; /* MSMONITOR_USE_DAEMON */
	bool rank_given; /* by the program, not by the environment */
	int32_t rank;
	char home[256], socket_dir[256], daemon[256];
};
extern struct environment environment;
/* A process that was forked may have given itself a rank: by a thread of the job. */
void environment_read_rank(void);
/* Where sessions are; "": nowhere. Of the user that this process belongs to now. `other`: where
 * somebody else has taken that place. */
const char *environment_work_dir(bool other);

/* --- daemon_socket.c: our end of the fabric. All with the link's lock taken but for the last two.
 * --- */

struct place {
	struct sockaddr_un addr;
	socklen_t len;
	bool trusted; /* whoever is there; else root and this user alone */
};

struct message {
	const char *type; /* "": no message that can be read */
	const char *payload;
	size_t len;
	uint32_t uid; /* of who sent it */
};

/* 0: it is there, 1: it is a new one, or a negative errno. */
int socket_open(const char *prefix);
void socket_close(void);
/* From now on this is the only one that is sent to and heard. */
int socket_connect(const struct place *to);
int socket_send(const char *type, const void *payload, size_t len);
/* The next message, if one is there; false: none, or there is no socket. */
bool socket_take(struct message *out);
bool socket_is_ours(void);
bool socket_wait(uint64_t until_ns);

/* --- daemon_link.c: the daemon --- */

/*
 * Polls for a request; `free`: one can be taken. Bytes of it, 0: there is none, or a
 * negative errno: there is no daemon that answers.
 */
int link_poll(bool free, char *out, size_t cap);
void link_send_status(const char *type, const struct fabric_status *s);
void link_send(const char *type, const void *payload, size_t len);
/* Until the daemon has something for us (true), or so long. */
bool link_wait(uint32_t ms);
/* Where data go, as SONDE_DAEMON has it; "" before anybody has answered. */
const char *link_data_address(void);
void link_close(uint32_t wait_ms);
/* Another kind of client: the framework itself asks, by the Python module. */
void link_be_framework(void);
int link_register(int32_t device);

/* --- thread.c --- */

/* For who sent the request, by its REQUEST_TRACE_ID: the daemon passes it on. */
void send_capabilities(bool recorded); /* recorded: the monitor is that of `sonde record` */
void send_answer(const char *request, size_t len, bool done, const char *words);
/* False: a framework asks, and it reports about traces, which are its own. */
bool thread_polls(void);

/* --- control.c: requests, and what follows from them --- */

/* All with the control's lock taken. */
void control_lock(void);
bool control_try_lock(uint32_t wait_ms);
void control_unlock(void);
/* why: of one that is carried out, the outcome, or "". */
int control_execute(const char *text, size_t len, char *why, size_t cap);
/* What is due by now; gives when to come again. */
uint64_t control_run_due(uint64_t now_ns);
bool control_is_running(void);
bool control_can_take(void);
/* Of the monitor, and of traces where they are ours: what a framework has reported about its own
 * stays. */
void control_send_status(void);
void control_set_groups(const char *json, size_t len);
/* By the job's own thread: this step begins. */
void control_step(uint64_t step);
/* The process ends: what has been recorded goes where it belongs. */
void control_exit(void);
/* The program begins to record memory: windows come along (guest_begin_in()). */
extern const struct guest_mover control_mover;

/* The window of `sonde record`: 0, or a negative errno if there is no source for it now. */
int control_start_resident(const char *text, size_t len);
void control_change_resident(const char *text, size_t len);
void control_end_resident(void);

/* --- resident.c: what `sonde record` wants of every process --- */

/* Does it want anything of this one? Cheap. */
bool resident_is_wanted(void);
/* Starts or ends its window; gives when to come again. With the control's lock. */
uint64_t resident_run_due(uint64_t now_ns);

/* --- source.c --- */

#define SOURCE_NONE                                                                                \
	"there is neither libmspti.so nor libcupti here: start the job by 'sonde monitor --mspti " \
	"…/libmspti.so -- …' on an NPU; on a GPU it must have used CUDA"
/* The library that reports activities in this process; NULL: there is none. */
const struct activity_source *source_find(void);
void source_prepare(void);
/* As of the source; while one is under way a fork waits for it, for a moment. */
int source_start(const struct activity_source *s, uint32_t kinds);
int source_change(const struct activity_source *s, uint32_t kinds);
void source_flush(const struct activity_source *s);
void source_stop(const struct activity_source *s);
/* Sees to it that a forked child finds the vendor's library as it would without us. */
void source_watch_forks(void);

/* --- trace.c: nputrace; with the control's lock taken but for trace_step() --- */

int trace_execute(const char *text, size_t len, char *why, size_t cap);
uint64_t trace_run_due(uint64_t now_ns);
/* Somebody does not want to wait for its last step: one that has begun ends here and is written,
 * another one is dropped. Words for the outcome. */
void trace_stop(char *what, size_t cap);
bool trace_is_on(void);
void trace_end(uint32_t wait_ms);
/* If the recorder knows of it: it ends now, and who sent the request learns why. */
void trace_cut(const char *why, uint32_t wait_ms);
struct fabric_status trace_status(void);
/* By the job's own thread: this step begins. */
void trace_step(uint64_t step);
/* Pauses of Python's collector that the trace wants, in ms; < 0: it wants none. Any thread. */
double trace_gc_ms(void);

/* --- gc.c: Python's collector --- */

void gc_wanted_changed(void);
bool gc_is_subscribed(void); /* somebody reports its pauses */

/* --- attribute.c: whose work devices execute --- */

/* With the control's lock, before the source is switched on. */
void attribute_switch(const struct activity_source *s, bool on);

/* Has it begun? One that only waits for its step can be replaced. */
bool trace_has_begun(void);

/* --- pending_launches.c: launches of the traced steps that have not run yet --- */

void pending_begin(void); /* watches from here on; nothing counts yet */
void pending_from_now(void);
void pending_until_now(void);
uint64_t pending_launches(void); /* 0 as well where it cannot be known */
void pending_end(void);

/* --- renew.c: a request whose recorder was killed --- */

/* As window_open() and window_change(), for npu-monitor. */
uint64_t renew_first(const char *text, size_t len);
void renew_change(uint64_t window, const char *text, size_t len);
/* Another window with the same request, in the session that is there now; 0: there can be none. */
uint64_t renew_again(void);
/* The recorder has gone: is another one to be tried? */
enum renewal { RENEW_NOW, RENEW_LATER, RENEW_NEVER };
enum renewal renew_when(uint64_t now_ns);
void renew_give_up(void); /* says so */
/* Says what it cost. */
void renew_report_lost(uint64_t window, bool goes_on);

/* --- steps.c --- */

/* The step that the job is in, as far as it reports; -1: it has reported none. */
int64_t steps_now(void);

/* --- window.c: what the recorder gets --- */

/* A recording for this process, and the number of the next window; 0: there can be none. */
/* since_ns: when it began, if it goes on from a session that was left; 0: it begins. */
uint64_t window_open(const char *text, size_t len, uint64_t since_ns);
/* After that, for who sent the request. */
const char *window_why_not(void);
/* The same before one is needed. 0, or a negative errno and words. */
int window_check_place(char *why, size_t cap);
void window_change(uint64_t window, const char *text, size_t len);
void window_step(uint64_t window, uint64_t step);
/* It ends now, before its last step has. */
void window_end(uint64_t window);
/* A key of its request that is not carried out, and why. */
void window_note(uint64_t window, const char *key, const char *words);
#define WINDOW_WAIT_MS 10000 /* by our thread */
#define WINDOW_WAIT_EXIT_MS 3000 /* by a thread that ends the job */
/* Everything has been reported: the recorder writes it, which is waited for at most so long. */
bool window_close(uint64_t window, uint64_t lost, uint32_t wait_ms);
/* The process goes on in another session: what only we know about this window. */
void window_leave(uint64_t window, uint64_t lost);
/* Can files be made below this path, seen from the job's directory? Makes it. 0, or a negative
 * errno and words. */
int window_check_dir(const struct request_text *dir, char *why, size_t cap);

#endif
