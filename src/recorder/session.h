/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The control page of a recording from our side: launchers make it, the recorder fills it in,
 * everybody else reads it.
 */
#ifndef SONDE_RECORDER_SESSION_H
#define SONDE_RECORDER_SESSION_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "wire/control_page.h"

#include <jansson.h>
#include <stdbool.h>

/* Maps the page of `dir`; with `make` it is created if it is missing. */
int session_map(const char *dir, bool make, struct control_page **out, struct err *err);
void session_unmap(struct control_page *page);
/* A copy of it, for who only reads: whatever becomes of the file, it stays. */
int session_read(const char *dir, struct control_page *out, struct err *err);

/* Notes once the difference between the clocks, by which readers make times of day. */
void session_set_clock(struct control_page *page);

/*
 * Takes the session for one process: the recorder holds it as long as it lives, `recover` while it
 * works. Returns a descriptor that holds it, or -EBUSY. While the session is SESSION_NEW somebody
 * was just called to serve it, and a recorder that is about to leave is waited for.
 */
int session_lock(const char *dir, const struct control_page *page, unsigned wait_ms,
		 struct err *err);

/* To our stderr, if that is a terminal; not if it takes nothing, as after Ctrl-S. */
void session_print(const char *text, size_t len);
/*
 * A line for the end of the job: to the terminal; elsewhere the job's first process writes it behind
 * those before, if such lines were asked for, or if it is about something that is missing.
 */
void session_add_line(struct control_page *page, bool terminal, const struct buf *text,
		      bool missing);

/* The same for programs, in SESSION_ANSWER: these keys join those that are there. Takes `keys`. */
void session_answer(const char *dir, json_t *keys);

/* Is a recorder at work on it? */
bool session_is_live(const char *dir, const struct control_page *page);

/*
 * monitor_session.c: a session that the monitor inside a job made for itself. A resident monitor
 * runs for weeks, so no recording is kept, only what its windows write. The directory goes when the
 * job has ended.
 */
bool is_monitor_session(const char *dir);
void monitor_session_remove(const char *dir);
/* What killed recorders have left beside this one, of processes that need it no more. */
void monitor_session_sweep(const char *dir);

#endif
