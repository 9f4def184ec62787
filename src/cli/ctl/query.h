/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A question with one short answer for each host: status, version, pause, resume. */
#ifndef SONDE_CLI_CTL_QUERY_H
#define SONDE_CLI_CTL_QUERY_H

#include "base/text/table.h"
#include "cli/ctl/ctl.h"

struct ctl_query {
	json_t *(*request)(const void *options);
	bool wrapped; /* one host's answer is printed as "response = …", else as it is */
	/* For many hosts: titles between HOST and NOTE, ended by NULL, and the cells below them. */
	const char *const *titles;
	void (*cells)(const json_t *reply, struct table *t);
	/* Adds plain words for one host; NULL: none. */
	void (*words)(const struct ctl *c, const json_t *reply, struct buf *out);
	/* Whether it did something; NULL: it was only a question. */
	bool (*effect)(const json_t *reply);
};

/* The whole command. `options` begins with a struct ctl_common. Gives the exit status. */
int ctl_query_command(const struct ctl_query *q, const struct command *cmd, void *options, int argc,
		      char **argv);

#endif
