/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Threads for work that may hang: drivers, receivers of metrics, files on a network. Nobody joins
 * them, so a reload never waits for one that is on its way out; only the end of the process gives
 * all of them together a moment.
 */
#ifndef SONDE_BASE_BACKGROUND_H
#define SONDE_BASE_BACKGROUND_H

/* Starts a thread that takes no signals. `name` is for messages and outlives it. */
int background_run(const char *name, void (*fn)(void *arg), void *arg);

/* Waits until all of this name have ended (NULL: all), at most so many milliseconds; gives how many
 * have not, and logs their names. The process then leaves without destructors of libraries in which
 * they may hang. */
unsigned background_wait(const char *name, unsigned ms);

#endif
