/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde activity show --by module|line: whose work devices executed. */
#include "activity/show/show.h"

#include <string.h>

#include "base/text/number_words.h"
#include "base/text/printable.h"
#include "formats/json_value.h"

#define NOT_ASKED                                                                                  \
	"These files do not contain which module or line launched what: collect with "             \
	"'dyno npu-monitor --npu-monitor-start --attribute --export-type Jsonl ...' (a DB has no " \
	"place for it).\n"

static void add_text(struct buf *out, const char *text)
{
	text_add_printable(out, text, strlen(text));
}

/* "transformer.h.*.mlp takes 41.3 % of the device's time: 12 x 1.31 ms." */
static void add_answer(const struct owner_groups *g, struct buf *out)
{
	const struct owner_group *first = g->n ? &g->list[0] : NULL;

	if (first && !first->is_nobody) {
		add_text(out, first->name);
		buf_addf(out, " takes %.1f %% of the devices' time: ",
			 percent_of(first->total_ns, g->total_ns));
		if (first->count > 1)
			buf_addf(out, "%llu x ", (unsigned long long)first->count);
		words_time(out, first->total_ns / (first->count ? first->count : 1));
		if (first->backward_ns)
			buf_addf(out, ", of it %.1f %% backward",
				 percent_of(first->backward_ns, first->total_ns));
		buf_add_str(out, ".\n");
	}
	buf_addf(out, "%.1f %% of the devices' time is attributed.\n",
		 percent_of(g->total_ns - g->nobody_ns, g->total_ns));
}

static void add_group(const struct owner_group *o, uint64_t all, struct buf *out)
{
	buf_addf(out, "  %5.1f%%  %12.3f %12.3f %12.3f %10llu  ", percent_of(o->total_ns, all),
		 (double)o->total_ns / 1e6, (double)o->forward_ns / 1e6,
		 (double)o->backward_ns / 1e6, (unsigned long long)o->calls);
	add_text(out, o->name);
	if (*o->module_class && strcmp(o->module_class, o->name)) {
		buf_add_str(out, "  ");
		add_text(out, o->module_class);
	}
	if (o->count > 1) {
		buf_addf(out, "  %llu x ", (unsigned long long)o->count);
		words_time(out, o->total_ns / o->count);
	}
	buf_add_char(out, '\n');
}

void activity_owners_text(const struct activity_sum *s, const struct show_by *by, unsigned top,
			  struct buf *out)
{
	struct owner_groups g = {0};

	if (!s->owners.asked) {
		buf_add_str(out, NOT_ASKED);
		return;
	}
	owner_groups_build(&g, &s->owners, by->by, by->depth);
	add_answer(&g, out);
	buf_addf(out, "\n   share      total ms   forward ms  backward ms      calls  %s\n",
		 owners_by_names[by->by]);
	for (size_t i = 0; i < g.n; i++)
		if (i < top || g.list[i].is_nobody)
			add_group(&g.list[i], g.total_ns, out);
	if (g.n > top)
		buf_addf(out, "  and %zu more: --top=%zu shows all\n", g.n - top, g.n);
	owner_groups_release(&g);
}

static json_t *group_json(const struct owner_group *o, uint64_t all)
{
	return json_pack("{s:o, s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:f}", "name",
			 text_value(o->name, strlen(o->name)), "class",
			 text_value(o->module_class, strlen(o->module_class)), "attributed",
			 !o->is_nobody, "count", (json_int_t)o->count, "calls",
			 (json_int_t)o->calls, "total_ns", (json_int_t)o->total_ns, "forward_ns",
			 (json_int_t)o->forward_ns, "backward_ns", (json_int_t)o->backward_ns,
			 "share", all ? (double)o->total_ns / (double)all : 0.0);
}

json_t *activity_owners_json(const struct activity_sum *s, const struct show_by *by, unsigned top)
{
	struct owner_groups g = {0};
	json_t *list = json_array();

	owner_groups_build(&g, &s->owners, by->by, by->depth);
	for (size_t i = 0; i < g.n; i++)
		if (i < top || g.list[i].is_nobody)
			json_array_append_new(list, group_json(&g.list[i], g.total_ns));
	json_t *o = json_pack(
		"{s:s, s:b, s:I, s:f, s:o}", "by", owners_by_names[by->by], "asked",
		s->owners.asked, "total_ns", (json_int_t)g.total_ns, "attributed_share",
		g.total_ns ? (double)(g.total_ns - g.nobody_ns) / (double)g.total_ns : 0.0,
		"groups", list);
	owner_groups_release(&g);
	return o;
}
