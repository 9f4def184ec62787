/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside of the fabric: what fabric.c does with datagrams, daemon/fabric/sockets.c with the places
 * where they arrive. */
#ifndef SONDE_DAEMON_FABRIC_FABRIC_IMPL_H
#define SONDE_DAEMON_FABRIC_FABRIC_IMPL_H

#include "base/containers/buf.h"
#include "daemon/fabric/drops.h"
#include "daemon/fabric/endpoint.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/rate_limit.h"
#include "daemon/fabric/reply.h"
#include "daemon/jobs/jobs.h"

#define FABRIC_PLACES 5

/* An endpoint that there should be. */
struct fabric_place {
	struct fabric *fabric;
	const char *name, *kind; /* "home-data", "home" */
	char *where; /* the abstract name, or the path */
	bool is_path;
	mode_t mode; /* of the path */
	struct fabric_endpoint socket;
	struct event *readable; /* NULL: it could not be had so far */
	bool standing_back;
	bool told_lost;
	unsigned free_looks; /* how often in a row nobody had it */
	uint64_t received;
};

struct fabric {
	struct daemon *daemon;
	fabric_data_fn data;
	void *data_arg;
	struct fabric_place places[FABRIC_PLACES];
	unsigned nplaces;
	/* The end of standing back: all others were served, or it is time. */
	struct event *others_served, *time_is_up;
	struct event *retake; /* of endpoints that another had, or that were removed */
	struct fabric_watch *watch; /* of files that are removed */
	struct fabric_limit limit;
	struct fabric_replies *replies;
	struct fabric_drops drops;
	struct buf text; /* of a config */
	char *datagram; /* FABRIC_MAX_BYTES, aligned as malloc() does */
};

/* --- fabric.c --- */

/* Takes what has arrived; arg is the place. */
void fabric_on_readable(evutil_socket_t fd, short what, void *arg);

/* --- daemon/fabric/sockets.c --- */

/* Opens all that can be had, and sees to it that they stay. */
void fabric_places_open(struct fabric *f);
void fabric_places_close(struct fabric *f);
/* A guest is gone that was reached by one of the places, at this address: the file of its socket is
 * removed, if it lies beside ours. */
void fabric_places_tidy(void *arg, uid_t uid, const struct jobs_address *at);

#endif
