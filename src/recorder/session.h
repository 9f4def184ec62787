/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The control page of a recording from our side: launchers make it and start the recorder, the
 * recorder fills it in, everybody else looks at it.
 */
#ifndef SONDE_RECORDER_SESSION_H
#define SONDE_RECORDER_SESSION_H

#include "base/err.h"
#include "memory/options/config.h"
#include "wire/control_page.h"

#include <stdbool.h>

/*
 * For a launcher that is about to become the job: makes the page in `dir`, starts a recorder for
 * it and waits until it is ready. The recorder is nobody's child and shares nothing with the job.
 */
int session_start(const char *dir, const struct mem_config *cfg, struct err *err);

/* Maps the page of `dir`; with `make` it is created if it is missing. */
int session_map(const char *dir, bool make, struct control_page **out, struct err *err);
void session_unmap(struct control_page *page);

/* Copies what guests need to know out of the configuration. */
void session_configure(struct control_page *page, const struct mem_config *cfg);

/*
 * Takes the session for one process: the recorder holds it as long as it lives, `recover` while it
 * works. Returns a descriptor that holds it, or -EBUSY. While the session is SESSION_NEW somebody
 * was just called to serve it, and a recorder that is about to leave is waited for.
 */
int session_lock(const char *dir, const struct control_page *page, unsigned wait_ms,
		 struct err *err);

/* Is a recorder at work on it? */
bool session_is_live(const char *dir, const struct control_page *page);

#endif
