/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Texts for a stranger: names of hosts, users, paths and arguments are taken out of everything that a
 * report says. What a text is decides what may stay of it.
 */
#ifndef SONDE_REPORT_REDACT_H
#define SONDE_REPORT_REDACT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/containers/buf.h"

enum redact_kind {
	REDACT_WORDS, /* sentences of ours, with names of the job in them */
	REDACT_FUNCTION, /* of a framework, or a place as answers name it */
	REDACT_OWN_FUNCTION, /* of the user's own code */
	REDACT_FILE, /* a path or a module */
	REDACT_OWN_FILE,
	REDACT_MODULE, /* of a model: a path of attributes */
	REDACT_OWNER, /* PTA@weight@… */
	REDACT_COMMAND, /* with its arguments */
	REDACT_HOST,
	REDACT_KERNEL,
};

struct redact;

struct redact *redact_new(bool keep_own);
void redact_free(struct redact *r); /* r may be NULL */

/* Learns a name of that kind, so that it is also found inside of sentences. */
void redact_learn(struct redact *r, enum redact_kind kind, const char *text, size_t len);
/* Adds what may be said of the text. */
void redact_text(struct redact *r, enum redact_kind kind, const char *text, size_t len,
		 struct buf *out);

#endif
