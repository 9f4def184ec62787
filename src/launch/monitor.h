/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The environment of a job that can be monitored: our library, and MSPTI where there is one. */
#ifndef SONDE_LAUNCH_MONITOR_H
#define SONDE_LAUNCH_MONITOR_H

#include <stdbool.h>

#include "base/err.h"

#define MONITOR_LIBRARY "libsonde_monitor.so"
#define MONITOR_MSPTI "libmspti.so"

/* One variable for the job. */
struct monitor_setting {
	const char *name;
	char *value;
};

/* Zero-initialise and release. */
struct monitor_environment {
	struct monitor_setting settings[8];
	unsigned n;
	bool no_mspti; /* none was named or found, nor is one preloaded already */
};

/* mspti: the library to preload, "none", or NULL to look for it. What the environment has already
 * stays, but for LD_PRELOAD, which is extended. daemon: the job's frameworks are to ask one. */
int launch_monitor_environment(const char *mspti, bool daemon, struct monitor_environment *out,
			       struct err *err);
/* --attribute is to cost the job little. */
void launch_prepare_attribute(struct monitor_environment *out);
/* Sets it in this process. */
int monitor_environment_apply(const struct monitor_environment *e, struct err *err);
void monitor_environment_release(struct monitor_environment *e);

/* Whether a daemon is there already; the job finds one that comes later, too. */
bool launch_has_daemon(void);
/* Anything that speaks for an NVIDIA GPU: then nobody misses MSPTI. */
bool launch_has_cuda(void);

#endif
