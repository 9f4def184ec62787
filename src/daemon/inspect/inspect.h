/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Questions that take looking into a process' memory or files, or asking other hosts: they are answered
 * by our own program, run as the user whose process it is, or who asks, and by nobody with more rights.
 *
 *	getMemory	sonde mem live --json PID	goes on while somebody asks
 *	takeSnapshot	sonde snap --json -p PIDS	once; getSnapshot has its answer
 *	makeReport	sonde report -o - PATHS		once; getReport says when it is there
 *	getHosts	sonde ctl watch --ranks --json	goes on while somebody asks
 *	orderHosts	sonde ctl nputrace --json …	once; getOrder has its answer
 *
 * What comes back is text that this user may have made up: its size and depth are bounded, and it is
 * only passed on. With --user the daemon starts no programs, and without root it can answer for its
 * own user alone.
 */
#ifndef SONDE_DAEMON_INSPECT_INSPECT_H
#define SONDE_DAEMON_INSPECT_INSPECT_H

#include <event2/buffer.h>
#include <jansson.h>

#include "daemon/access.h"
#include "daemon/daemon.h"

struct inspect;

struct inspect *inspect_new(struct daemon *d);
void inspect_free(struct inspect *i); /* ends what runs; i may be NULL */

/* Functions of the RPC; i may be NULL. */
json_t *inspect_memory(struct inspect *i, const struct access_grant *who, const json_t *request);
json_t *inspect_take_snapshot(struct inspect *i, const struct access_grant *who,
			      const json_t *request);
json_t *inspect_get_snapshot(struct inspect *i, const struct access_grant *who,
			     const json_t *request);
/* Of the files of a trace: as the user whose trace it is. */
json_t *inspect_make_report(struct inspect *i, const struct access_grant *who,
			    const json_t *request);
json_t *inspect_get_report(struct inspect *i, const struct access_grant *who,
			   const json_t *request);
/* The page of this number, for the one who may see it; NULL: there is none. It is megabytes:
 * replies refer to its bytes, which stay for as long as one of them does. */
struct evbuffer *inspect_report_page(struct inspect *i, const struct access_grant *who,
				     uint64_t number);
/* Other hosts, asked as the user who asks here and with the certificate that they name. */
json_t *inspect_hosts(struct inspect *i, const struct access_grant *who, const json_t *request);
/* A trace or the monitor on other hosts, in the same way. */
json_t *inspect_order_hosts(struct inspect *i, const struct access_grant *who,
			    const json_t *request);
json_t *inspect_get_order(struct inspect *i, const struct access_grant *who, const json_t *request);

#endif
