/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Where hosts come from: names on the command line, a file, a Slurm job, pods of Kubernetes. */
#ifndef SONDE_CLIENT_SCHEDULERS_H
#define SONDE_CLIENT_SCHEDULERS_H

#include "base/err.h"
#include "client/hosts.h"

/* What was asked for; what is NULL was not. If nothing was, it is localhost. */
struct ctl_find {
	const char *hostname;
	const char *hosts_file; /* "-": standard input */
	const char *slurm_job;
	const char *k8s_selector, *k8s_namespace;
	unsigned port; /* of hosts that name none */
	unsigned timeout_s; /* for each program asked */
};

/* Adds all of them; fails if there is none in the end. */
int ctl_find_hosts(const struct ctl_find *f, struct ctl_hosts *out, struct err *err);

#endif
