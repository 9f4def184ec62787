/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What `sonde top` says: a short answer, tables, JSON. */
#ifndef SONDE_CLI_TOP_TEXT_H
#define SONDE_CLI_TOP_TEXT_H

#include "cli/top_model.h"

enum top_by { TOP_BY_BOTH, TOP_BY_KERNEL, TOP_BY_RANK };

struct top_look {
	enum top_by by;
	unsigned lines; /* of the table of kernels */
	unsigned width; /* 0: lines are not cut */
	bool colours;
};

/* Sentences, a line each: how busy, what takes most, who is slow, what has become slower, what is
 * missing. What matters is first. */
void top_text_answer(const struct top_model *m, const struct ctl *c, const struct top_look *look,
		     struct buf *out);
/* Why there is nothing to show. */
void top_text_nothing(const struct top_model *m, struct buf *out);
void top_text_tables(const struct top_model *m, const struct ctl *c, const struct top_look *look,
		     struct buf *out);
/* One object. */
json_t *top_text_json(const struct top_model *m, const struct ctl *c,
		      const struct ctl_answer *answers, const struct top_look *look);

#endif
