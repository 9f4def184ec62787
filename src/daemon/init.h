/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The duties of process 1, for a container whose only program is the daemon: the kernel gives it
 * every orphan to wait for, and delivers only signals that it handles.
 */
#ifndef SONDE_DAEMON_INIT_H
#define SONDE_DAEMON_INIT_H

/*
 * Does nothing unless this is process 1. Then it goes on in a child only: the caller's process
 * passes signals on to the child, waits for whatever ends, and ends with the child, with its
 * status. To be called before there are threads.
 */
void init_if_first(void);

#endif
