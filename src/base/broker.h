/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Files that a process without rights needs all the same: another process, its broker, opens them
 * and sends the descriptor. The broker was started while there were rights, keeps the few that it
 * needs, and decides by the path alone. Both ends of the connection are here; who becomes a broker,
 * with which rights, is in daemon/sandbox.
 *
 *	process                                      broker
 *	   | {number, path}              ----------->   may this path be opened?
 *	   |                             <-----------   {the same number, 0 or errno},
 *	   |                                            and the descriptor
 */
#ifndef SONDE_BASE_BROKER_H
#define SONDE_BASE_BROKER_H

#include <stdbool.h>

/* Opens for reading, close-on-exec and without waiting for anything. What is refused to us, the
 * broker is asked for, if there is one. A descriptor or a negative errno. From any thread. */
int broker_open(const char *path);

/* From here on there is one, at the other end of this socket. `sees_more`: /proc hides processes
 * from us, so what is not there for us may be there for it. */
void broker_use(int fd, bool sees_more);

/* Whether it answers. False also where there is none. */
bool broker_lives(void);

/* The broker's side: answers until the other end is closed. `open` gives a descriptor or a negative
 * errno for a path that is not to be trusted. */
void broker_serve(int fd, int (*open_for)(void *arg, const char *path), void *arg);

#endif
