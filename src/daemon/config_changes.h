/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Two configurations of the daemon compared, option by option: what differs, and whether that can
 * be changed while the daemon runs.
 */
#ifndef SONDE_DAEMON_CONFIG_CHANGES_H
#define SONDE_DAEMON_CONFIG_CHANGES_H

#include "base/containers/buf.h"
#include "daemon/daemon.h"

enum reload_part {
	RELOAD_FIXED = 1 << 0, /* needs a restart */
	RELOAD_METRICS = 1 << 1, /* sources and sinks */
	RELOAD_LOG = 1 << 2,
	RELOAD_JOBS = 1 << 3, /* how their reports are judged */
	RELOAD_ACCESS = 1 << 4, /* who may do what */
};

/* The parts that differ, as a mask; adds the names of the fixed options that do to out_fixed. */
unsigned reload_compare(const struct daemon_config *now, const struct daemon_config *next,
			struct buf *out_fixed);

/* Copies the options of these parts from `next`; texts stay those of `next`. */
void reload_apply(struct daemon_config *now, const struct daemon_config *next, unsigned parts);

#endif
