/* SPDX-License-Identifier: MulanPSL-2.0 */
/* HTTP POST to one place, for the thread of an outbox. */
#ifndef SONDE_DAEMON_SINKS_POST_H
#define SONDE_DAEMON_SINKS_POST_H

#include <stddef.h>

#include "base/containers/buf.h"
#include "base/err.h"

struct post;

struct post_options {
	const char *endpoint; /* http[s]://host[:port][/path] */
	const char *path; /* added to that of the endpoint, if it is not there yet */
	const char *headers; /* "name=value,name=value"; or NULL */
	const char *ca, *cert,
		*key; /* files for https; NULL or "": the system's CAs, no certificate */
	unsigned timeout_ms;
};

int post_new(const struct post_options *o, struct post **out, struct err *err);
void post_free(struct post *p);

/* -EAGAIN: the receiver asks for a later try, or cannot be reached. Any other failure is final.
 * end_fd: readable when the thread is to end. */
int post_send(struct post *p, const struct buf *body, int end_fd, struct err *err);

#endif
