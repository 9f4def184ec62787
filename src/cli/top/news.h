/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * When `sonde top` has something new to show. Processes report one after the other, each for its
 * own interval; a table of which half is of the interval before says wrong things about ranks. So
 * it is shown when all of them have reported anew, or when the others do not come.
 */
#ifndef SONDE_CLI_TOP_NEWS_H
#define SONDE_CLI_TOP_NEWS_H

#include "cli/top/model.h"

struct top_news {
	struct top_host_news {
		int64_t since_ns; /* wall clock of the host when it was first asked; 0: not told */
		int64_t shown_ns; /* end of the newest interval that was shown */
	} * hosts;
	uint64_t some_ns; /* monotonic: some have reported anew since then; 0: none has */
};

void top_news_begin(struct top_news *n, const struct ctl *c);
void top_news_release(struct top_news *n);

/* The answers to a look. */
void top_news_look(struct top_news *n, const struct ctl *c, const struct ctl_answer *answers);

/*
 * Whether there is something to show. `begun`: intervals that have begun since the command did, and
 * no others. patience_ns: how long the last of them are waited for.
 */
bool top_news_is(struct top_news *n, const struct top_model *m, bool begun, uint64_t patience_ns);
void top_news_shown(struct top_news *n, const struct top_model *m);

#endif
