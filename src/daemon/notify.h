/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a service manager wants to hear and hands over: readiness and a heartbeat by a datagram
 * socket ($NOTIFY_SOCKET, $WATCHDOG_USEC), listening sockets by inheritance ($LISTEN_FDS). Without
 * a manager all of it does nothing.
 */
#ifndef SONDE_DAEMON_NOTIFY_H
#define SONDE_DAEMON_NOTIFY_H

#include <stdint.h>

#define NOTIFY_MAX_FDS 16

/* Sockets that were open before the program began, by the name that the manager gave them: each is
 * a stream socket that listens, and is made non-blocking and close-on-exec. */
struct notify_sockets {
	int rpc[NOTIFY_MAX_FDS]; /* "rpc", and those without a name that says something */
	int nrpc;
	int http[NOTIFY_MAX_FDS]; /* "http" */
	int nhttp;
};

/* Takes the variables out of the environment, so that no child believes they are meant for it. To
 * be called once, before there is a second thread or process. */
void notify_init(struct notify_sockets *out);

/* Sends lines such as "READY=1\nSTATUS=…"; what goes wrong is nobody's failure. */
__attribute__((format(printf, 1, 2))) void notify_send(const char *fmt, ...);

/* How often "WATCHDOG=1" is due, in microseconds (half of what the manager waits); 0: never. */
uint64_t notify_watchdog_us(void);

#endif
