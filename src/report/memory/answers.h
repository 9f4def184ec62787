/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * All questions about the memory of an input at once: one reading feeds every analysis that `sonde mem`
 * has, and the pictures. What they say is what the commands say, since it is the same code.
 */
#ifndef SONDE_REPORT_MEMORY_ANSWERS_H
#define SONDE_REPORT_MEMORY_ANSWERS_H

#include "memory/input/input.h"
#include "report/memory/pictures.h"
#include "report/pack.h"

#define ANSWERS_MOST 8

struct answers {
	struct analysis *all; /* that is fed; it has the others */
	struct pictures *pictures;
	struct processes processes;
	struct loss loss;
	struct buf notes; /* sentences, one per line */
	struct buf path; /* what was read */
};

/* `choice` may be NULL; pictures: nothing else is asked. -ENOENT: no recording and no dump is there. Release in any case. */
struct answers_options {
	struct input_choice *choice;
	unsigned wait_s; /* for a recorder that is still finishing its files */
	bool pictures;
};
int answers_read(const char *path, const struct answers_options *o, struct answers *out,
		 struct err *err);
/* What the job was called with; empty: it is not known. */
const char *answers_command(const struct answers *a);
/* Names that must not stand in what they say; before anything is put into the pack. */
void answers_learn(struct answers *a, struct redact *r);
/* A new list: {id, command, found, answer, text, json}; and what the reader should know first. */
json_t *answers_json(struct answers *a, struct pack *pack);
json_t *answers_notes(struct answers *a, struct pack *pack);
void answers_release(struct answers *a);

#endif
