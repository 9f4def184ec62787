/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How many datagrams may wait in a socket is what net.unix.max_dgram_qlen says at the moment the
 * socket is made: 10 on many machines. Of 64 ranks that ask at the same moment most would then be
 * told to try again, and today's clients do so after 10, 20, 40 ms and more. So the number is
 * raised while our sockets are made, and put back.
 */
#ifndef SONDE_DAEMON_FABRIC_QUEUE_H
#define SONDE_DAEMON_FABRIC_QUEUE_H

#define FABRIC_QUEUE_WANTED 512

/* What was there, for fabric_queue_restore(); 0: nothing was changed. It is logged if it should
 * have been and may not be. */
unsigned fabric_queue_raise(void);
void fabric_queue_restore(unsigned previous);

#endif
