/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What `sonde top` says: a short answer, tables, JSON. */
#ifndef SONDE_CLI_TOP_TEXT_H
#define SONDE_CLI_TOP_TEXT_H

#include "cli/ctl/ctl.h"
#include "cli/top/view.h"

struct top_display {
	struct top_view *view;
	unsigned lines; /* of the table of kernels */
	unsigned width; /* of the terminal; 0: there is none, and lines are as long as they are */
	unsigned rows; /* that there is room for in all; 0: for everything */
	bool colours;
};

/* Sentences, a line each: how busy, what takes most, who is slow, what has become slower, what is
 * missing. What matters is first. */
void top_text_answer(const struct top_model *m, const struct ctl *c, const struct top_display *d,
		     struct buf *out);
/* Why there is nothing to show. */
void top_text_nothing(const struct top_model *m, const struct ctl *c, struct buf *out);
/* As many lines of each as there is room for behind what is in `out`; keeps the view within bounds. */
void top_text_tables(const struct top_model *m, const struct ctl *c, const struct top_display *d,
		     struct buf *out);
/* "1.23 ms", three digits and a unit; "9.7 %". */
const char *top_duration(double ns, char out[16]);
const char *top_percent(double ratio, char out[16]);
/* One object. */
json_t *top_text_json(const struct top_model *m, const struct ctl *c,
		      const struct client_answer *answers, const struct top_display *d);

#endif
