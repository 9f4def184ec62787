/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Texts for a stranger: names of hosts, users, paths and arguments are taken out of everything that a
 * report says, and names of the user's own get others. What a text is decides what stays of it; in
 * sentences of ours every name that was learned before is replaced, and everything that looks like a
 * path or a file. The same name has the same replacement in all of a report.
 */
#ifndef SONDE_REPORT_REDACT_REDACT_H
#define SONDE_REPORT_REDACT_REDACT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/containers/buf.h"

enum redact_kind {
	REDACT_WORDS, /* sentences of ours, with names of the job in them */
	REDACT_FUNCTION, /* of a framework: stays */
	REDACT_FILE, /* of a framework: the last part of its path stays */
	REDACT_OWN_FUNCTION,
	REDACT_OWN_FILE,
	REDACT_MODULE, /* of a model: a path of attributes; numbers stay */
	REDACT_OWNER, /* PTA@weight@…: what is known stays, labels of the user's do not */
	REDACT_COMMAND, /* with its arguments */
	REDACT_HOST, /* or user */
	REDACT_PATH,
	REDACT_KERNEL, /* those of vendors and frameworks stay */
	REDACT_KINDS,
};

struct redact;

/* keep_own: names of own functions, modules, labels and kernels stay, and the last part of own files. */
struct redact *redact_new(bool keep_own);
void redact_free(struct redact *r); /* r may be NULL */

/* Learns a name of that kind, so that it is found inside of sentences; r may be NULL. */
void redact_learn(struct redact *r, enum redact_kind kind, const char *text, size_t len);
/* The name of this host, of this user, and the words of a path. */
void redact_learn_surroundings(struct redact *r);
/* Adds what may be said of the text. */
void redact_text(struct redact *r, enum redact_kind kind, const char *text, size_t len,
		 struct buf *out);

#endif
