/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Lists of hosts as people write them: "a,b:1778", "node[01-16,20]", "r[1-2]n[1-4]:1778",
 * "10.0.0.1", "fe80::1", "[fe80::1]:1778", "unix:/run/sonde/control.sock"; files of such lists; and
 * the pods of `kubectl get pods -o json`. A host that is named twice is in the list once.
 */
#ifndef SONDE_CLIENT_HOSTS_H
#define SONDE_CLIENT_HOSTS_H

#include <stddef.h>

#include "base/containers/hmap.h"
#include "base/err.h"

#define HOST_LIST_MAX 65536u
#define HOST_UNIX "unix:" /* begins the path of a socket on this machine */

struct host_entry {
	char *name; /* what is connected to */
	char *label; /* what users see: with the port, if it is not the usual one */
	unsigned port;
};

/* Zero-initialise and release. */
struct host_list {
	struct host_entry *v;
	size_t n, cap;
	unsigned usual_port;
	size_t written; /* those named, with the ones named twice */
	struct hmap seen; /* hash of name and port to index */
};

/* Adds the hosts of a comma list; `port` is for those that name none. */
int host_list_add(struct host_list *h, const char *text, unsigned port, struct err *err);

/* Adds the hosts of a file: a list on each line, `#` begins a comment, and words such as slots=8
 * behind the list are passed over. */
int host_list_add_lines(struct host_list *h, const char *text, size_t len, unsigned port,
			struct err *err);

/* Adds the running pods of a kubectl answer: their address, or that of their node. */
int host_list_add_pods(struct host_list *h, const char *json, size_t len, unsigned port,
		       struct err *err);

void host_list_release(struct host_list *h);

/* --- host_sources.c --- */

/* Where hosts come from: names on the command line, a file, a Slurm job, pods of Kubernetes. */

/* What was asked for; what is NULL was not. If nothing was, it is localhost. */
struct host_source {
	const char *hostname;
	const char *hosts_file; /* "-": standard input */
	const char *slurm_job;
	const char *k8s_selector, *k8s_namespace;
	unsigned port; /* of hosts that name none */
	unsigned timeout_s; /* for each program asked */
};

/* Adds all of them; fails if there is none in the end. */
int host_list_find(const struct host_source *f, struct host_list *out, struct err *err);

#endif
