/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Tells when a file may have gone from a directory, so that nobody has to look again and again.
 */
#ifndef SONDE_DAEMON_FABRIC_WATCH_H
#define SONDE_DAEMON_FABRIC_WATCH_H

#include <event2/event.h>
#include <stdbool.h>

struct fabric_watch;

/* fn is called when something was removed from, or moved into or out of, a watched directory. */
struct fabric_watch *fabric_watch_new(struct event_base *base, void (*fn)(void *arg), void *arg);
void fabric_watch_free(struct fabric_watch *w);

/* Watches the directory that holds the file; fine if it is watched already. False: it cannot be. */
bool fabric_watch_file(struct fabric_watch *w, const char *path);

#endif
