/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The options of the node daemon: ours, and every one that dynolog programs of today take. Of those
 * some have no effect here, which the log says, and some are not supported, which is an error.
 */
#ifndef SONDE_CLI_DAEMON_DAEMON_OPTIONS_H
#define SONDE_CLI_DAEMON_DAEMON_OPTIONS_H

#include <stdbool.h>

#include "base/text/args.h"
#include "daemon/daemon.h"

#define DAEMON_FOREIGN_OPTIONS 32

struct daemon_options {
	struct daemon_config config;
	char *binds; /* the text that config.binds points into */
	const char *otel_endpoint;
	bool use_otel;
	/* The values of options that are known by name only: the hidden rows of the table. */
	const char *foreign[DAEMON_FOREIGN_OPTIONS];
	bool foreign_flags[4], refused_flags[4];
};

extern const struct opt daemon_option_table[];

void daemon_options_init(struct daemon_options *o); /* the defaults */
void daemon_options_release(struct daemon_options *o);

/* What the table alone cannot see: options that are not supported, or that need each other. */
int daemon_options_check(struct daemon_options *o, struct err *err);

/* Logs which of the given options have no effect, and why. */
void daemon_options_log(const struct daemon_options *o);

/* Whether both readings say the same. */
bool daemon_options_same(const struct daemon_options *a, const struct daemon_options *b);

#endif
