/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How many datagrams may wait in a socket is what net.unix.max_dgram_qlen says at the moment the
 * socket is made: 10 on many machines. Of 64 ranks that ask at the same moment most would then be
 * told to try again, and today's clients do so after 10, 20, 40 ms and more. So the number is
 * raised for the microseconds in which a socket of ours is made, and put back. It is that of the
 * network namespace; the worst that is left behind, by a daemon that is killed just then, is the
 * larger number, and that is what machines with systemd have all the time.
 */
#ifndef SONDE_DAEMON_FABRIC_QUEUE_H
#define SONDE_DAEMON_FABRIC_QUEUE_H

#define FABRIC_QUEUE_WANTED 512

/* A datagram socket (SOCK_NONBLOCK, SOCK_CLOEXEC) in which many may wait, if that may be had: if
 * not, it is logged, once. Negative errno. */
int fabric_queue_socket(void);

#endif
