/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which lines of a model are shown, and in which order: what a filter lets through, sorted, as many
 * as there is room for, from where somebody has scrolled to. And the keys that change that.
 */
#ifndef SONDE_CLI_TOP_VIEW_H
#define SONDE_CLI_TOP_VIEW_H

#include "cli/ctl/ctl.h"
#include "cli/screen_keys.h"
#include "client/top/model.h"

#define TOP_FILTER_MAX SCREEN_FILTER_MAX

enum top_by { TOP_BY_BOTH, TOP_BY_KERNEL, TOP_BY_RANK };
enum top_table { TOP_KERNELS, TOP_RANKS, TOP_TABLES };
extern const char *const top_sorts[], *const top_rank_sorts[]; /* ended by NULL: for options */

struct top_view {
	unsigned by; /* enum top_by */
	unsigned sort[TOP_TABLES]; /* index of top_sorts, top_rank_sorts */
	bool inverted[TOP_TABLES];
	size_t first[TOP_TABLES]; /* line that is shown first; drawing keeps it within bounds */
	size_t room[TOP_TABLES]; /* lines that were last shown; 0: not */
	struct screen_filter filter;
	enum top_table focus; /* which one keys are for, if both are shown */
	bool paused, help;
};

/* Indices of the lines that are shown, all of them, in order. The caller frees it. */
size_t *top_view_kernels(const struct top_view *v, const struct top_model *m, size_t *out_n);
size_t *top_view_ranks(const struct top_view *v, const struct top_model *m, const struct ctl *c,
		       size_t *out_n);

/* Takes a key (cli/screen.h). False: the user wants to end. */
bool top_view_key(struct top_view *v, int key);
/* A line about what is not as usual, for a screen; nothing if all is. */
void top_view_describe(const struct top_view *v, struct buf *out);
/* What the keys do, line by line. */
void top_view_help(struct buf *out);

#endif
