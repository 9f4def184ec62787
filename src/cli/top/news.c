/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/top/news.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"

void top_news_begin(struct top_news *n, const struct ctl *c)
{
	*n = (struct top_news){.hosts = xcalloc(c->hosts.n + 1, sizeof(*n->hosts))};
}

void top_news_release(struct top_news *n)
{
	free(n->hosts);
	*n = (struct top_news){0};
}

void top_news_look(struct top_news *n, const struct ctl *c, const struct ctl_answer *answers)
{
	for (size_t i = 0; i < c->hosts.n; i++)
		if (answers[i].reply && !n->hosts[i].since_ns)
			n->hosts[i].since_ns =
				json_integer_value(json_object_get(answers[i].reply, "now"));
}

static bool is_new(const struct top_news *n, const struct top_process *p, bool begun)
{
	const struct top_host_news *h = &n->hosts[p->host];

	return begun ? p->from_ns >= h->since_ns : p->to_ns > h->shown_ns;
}

bool top_news_is(struct top_news *n, const struct top_model *m, bool begun, uint64_t patience_ns)
{
	size_t fresh = 0, anew = 0;
	uint64_t now = clock_mono_ns();

	for (size_t i = 0; i < m->nprocesses; i++) {
		const struct top_process *p = &m->processes[i];

		fresh += !p->late;
		anew += !p->late && is_new(n, p, begun);
	}
	if (!anew)
		return false;
	if (!n->some_ns)
		n->some_ns = now;
	return (anew == fresh && fresh >= m->running) || now - n->some_ns > patience_ns;
}

void top_news_shown(struct top_news *n, const struct top_model *m)
{
	n->some_ns = 0;
	for (size_t i = 0; i < m->nprocesses; i++) {
		const struct top_process *p = &m->processes[i];
		struct top_host_news *h = &n->hosts[p->host];

		if (!p->late && p->to_ns > h->shown_ns)
			h->shown_ns = p->to_ns;
	}
}
