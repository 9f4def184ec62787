/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The pictures of memory as a part of the model: "memory" in it, and arrays that begin with a prefix. */
#ifndef SONDE_REPORT_MEMORY_MEMORY_H
#define SONDE_REPORT_MEMORY_MEMORY_H

#include "report/memory/pictures.h"
#include "report/tree.h"

struct memory_input {
	const char *prefix; /* of its arrays: "m0." */
	const char *title; /* what people call it */
};

/* A new object. Counts the end afterwards, so the text of the peak has to be there before. */
json_t *memory_json(struct pictures *p, struct tree *t, const struct memory_input *in);

#endif
