/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The leaks as text: what was left at the end. */
#include <stdlib.h>

#include "base/mem.h"
#include "memory/analysis/leaks/leaks_report.h"
#include "memory/analysis/processes/programs.h"

/* Equal for call sites that read the same. */
static uint64_t looks_of(const struct leaks_view *g, const struct leak_site *s)
{
	uint64_t h = report_stack_hash(stacks_get(leaks_stacks(g->l), s->stack));

	if (!s->stack && !s->before)
		h += s->size * 4 + s->mapping * 2u + s->is_parent + 1;
	return (h ^ (uint64_t)s->pool->number << 1 ^ s->pinned) * 0x9e3779b97f4a7c15u;
}

/* What is to be listed, the largest first; call stacks that differ further out are one. */
static struct leak_left *list_left(const struct leaks_view *g, const struct leak_rest *rest,
				   bool driver, size_t *out_n)
{
	struct leak_left *list = xcalloc(rest->n + 1, sizeof(*list));
	struct hmap seen = {0};
	size_t n = 0;

	for (size_t i = 0; i < rest->n; i++) {
		const struct leak_left *left = &rest->list[i];

		if (!leak_is_listed(left, driver))
			continue;
		uint64_t looks = looks_of(g, left->site), at = hmap_get(&seen, looks);
		if (at == HMAP_NONE) {
			hmap_put(&seen, looks, n);
			list[n++] = *left;
		} else {
			list[at].blocks += left->blocks;
			list[at].bytes += left->bytes;
		}
	}
	SORT(list, n, leak_left_order);
	hmap_release(&seen);
	*out_n = n;
	return list;
}

static void print_left_of(const struct leaks_view *g, const struct leak_rest *rest, bool driver)
{
	size_t n, top = g->report.style->top;
	struct leak_left *list = list_left(g, rest, driver, &n);

	for (size_t i = 0; i < n && i < top; i++) {
		const struct leak_site *s = list[i].site;

		leaks_print_site(g, s);
		print(g, "{}\n", HELD(list[i].bytes, list[i].blocks));
		leaks_print_frames(g, s, 6, s->is_parent ? 0 : s->size);
	}
	free(list);
	if (n > top && top)
		print(g, "  Process {}: and {}\n", NUMBER(rest->process->pid),
		      COUNT_OF(n - top, "more place"));
}

/* Without steps there is nothing better to say than what was left. */
void leaks_print_left(const struct leaks_view *g, bool any_steps)
{
	bool none = !any_steps;
	size_t n = 0, top = g->report.style->top;
	struct programs all = {0};

	if (!g->l->dumped) /* allocations were not asked for: what is left of them is not listed */
		return;
	for (size_t i = 0; i < g->a->nrests; i++) {
		const struct leak_rest *rest = &g->a->rests[i];

		if (leak_has_steps(rest)) /* nor is the shim a helper that became this process */
			programs_add(&all, rest, rest->process->pid, HELPER_BYTES);
		if (leak_has_steps(rest) || !rest->blocks)
			continue;
		/* The largest come first; where all left little, that one is listed. */
		bool listed = rest->bytes >= HELPER_BYTES || (!n && none);
		programs_add(&all, rest, rest->process->pid, listed ? HELPER_BYTES : 0);
		if (!listed)
			continue;
		if (n++ >= top)
			continue;
		if (n == 1)
			report_title(&g->report,
				     none ? "Left at the end"
					  : "Left at the end by processes without steps");
		if (none)
			print_left_of(g, rest, false);
		else
			print(g, "  Process {}: {}\n", NUMBER(rest->process->pid),
			      HELD(rest->bytes, rest->blocks));
	}
	if (n > top && top)
		print(g, "  and {} more processes\n", NUMBER(n - top));
	if (all.small && top)
		print(g, "{}{} helper process{} that left less than {}\n",
		      TEXT(n ? "  and " : "\nNot listed: "), NUMBER(all.small),
		      TEXT(all.small == 1 ? "" : "es"), BYTES(HELPER_BYTES));
	programs_release(&all);
}

void leaks_print_driver_left(const struct leaks_view *g)
{
	bool any = false, console = g->report.style->console;

	if (!g->l->dumped && !console)
		return;
	for (size_t i = 0; i < g->a->nrests; i++) {
		const struct leak_rest *rest = &g->a->rests[i];

		if (!rest->driver.blocks && (console || !rest->carved.blocks))
			continue;
		if (!any)
			report_title(&g->report, rest->running
							 ? "Not given back to the driver so far:"
							 : "Not given back to the driver at exit:");
		any = true;
		print(g, "  Process {} {}", NUMBER(rest->process->pid),
		      TEXT(rest->running ? "still holds " : "kept "));
		if (rest->driver.blocks)
			print(g, "{}", HELD(rest->driver.bytes, rest->driver.blocks));
		if (rest->driver.blocks && rest->carved.blocks)
			print(g, ", and ");
		if (rest->carved.blocks)
			print(g, "{} that pools have cut their blocks from",
			      HELD(rest->carved.bytes, rest->carved.blocks));
		print(g, ".\n");
		if (leak_has_steps(rest) || console) /* else they are in the list above */
			print_left_of(g, rest, true);
	}
}
