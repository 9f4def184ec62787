/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What `sonde top` says, for programs. */
#include "cli/top/text.h"

#include "base/clock.h"

#include <stdlib.h>

static json_t *number_or_null(double v)
{
	return v > 0 ? json_real(v) : json_null();
}

static json_t *known_part(bool known, double part)
{
	return known ? json_real(part) : json_null();
}

static json_t *kernel_json(const struct top_model *m, const struct top_line *l)
{
	double ratio;
	json_t *change = top_line_change(l, &ratio) ? json_real(ratio) : json_null();
	json_t *share = l->on_device && m->total_ns > 0 ? json_real(l->total_ns / m->total_ns)
							: json_null();
	json_t *time_share =
		l->on_device && m->time_ns > 0 ? json_real(top_line_share(m, l)) : json_null();

	return json_pack(
		"{s:s,s:s,s:o,s:o,s:I,s:f,s:f,s:o,s:o,s:i}", "kind", l->kind, "name", l->name,
		"share", share, "time_share", time_share, "calls", (json_int_t)l->calls, "total_ns",
		l->total_ns, "mean_ns", l->calls > 0 ? l->total_ns / l->calls : 0, "p99_ns",
		number_or_null(l->p99_ns), "change", change, "processes", (int)l->processes);
}

static void put_losses(const double *losses, json_t *o)
{
	for (unsigned i = 0; i < TOPLIST_LOSSES; i++)
		json_object_set_new(o, toplist_loss_names[i], json_real(losses[i]));
}

static json_t *rank_json(const struct ctl *c, const struct top_process *p)
{
	json_t *o = json_pack(
		"{s:o,s:I,s:s,s:I,s:o,s:o,s:o,s:o,s:f,s:o,s:I,s:I,s:f,s:f,s:b}", "rank",
		p->rank >= 0 ? json_integer(p->rank) : json_null(), "pid", (json_int_t)p->pid,
		"host", c->hosts.v[p->host].label, "device", (json_int_t)p->device, "busy",
		known_part(p->has_kernel || p->has_comm || p->has_copy, p->busy), "kernels",
		known_part(p->has_kernel, p->kernel), "communication",
		known_part(p->has_comm, p->comm), "copies", known_part(p->has_copy, p->copy),
		"told_late", p->reported_late, "step_ns", number_or_null(p->step_ns), "from",
		(json_int_t)p->from_ns, "to", (json_int_t)p->to_ns, "interval_s", p->interval_s,
		"age_s", p->age_s, "late", p->late);

	put_losses(p->losses, o);
	return o;
}

static json_t *slowest_json(const struct top_model *m)
{
	if (m->slowest.by == TOPLIST_SLOW_NONE)
		return json_null();
	const struct top_process *p = &m->processes[m->slowest.at];
	return json_pack(
		"{s:I,s:I,s:s,s:f,s:o}", "rank", (json_int_t)p->rank, "pid", (json_int_t)p->pid,
		"by", m->slowest.by == TOPLIST_SLOW_STEPS ? "steps" : "waiting", "ratio",
		m->slowest.ratio, "behind_ns", number_or_null((double)m->slowest.behind_ns));
}

static json_t *hosts_json(const struct ctl *c, const struct client_answer *answers)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->hosts.n; i++) {
		json_t *row = ctl_answer_json(c, i, &answers[i]);

		json_object_del(row, "reply");
		json_array_append_new(list, row);
	}
	return list;
}

json_t *top_text_json(const struct top_model *m, const struct ctl *c,
		      const struct client_answer *answers, const struct top_display *d)
{
	struct top_display plain = {.view = d->view};
	json_t *lines = json_array(), *processes = json_array();
	struct buf words = {0};
	size_t n, *order = top_view_kernels(d->view, m, &n);

	for (size_t i = 0; i < n && i < d->lines; i++)
		json_array_append_new(lines, kernel_json(m, &m->lines[order[i]]));
	free(order);
	order = top_view_ranks(d->view, m, c, &n);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(processes, rank_json(c, &m->processes[order[i]]));
	free(order);
	top_text_answer(m, c, &plain, &words);
	json_t *o = json_pack("{s:I,s:s,s:o,s:o,s:o,s:O,s:O,s:o,s:i,s:i,s:i}", "time_ns",
			      (json_int_t)clock_real_ns(), "answer", buf_str(&words), "kernels",
			      lines, "ranks", processes, "slowest", slowest_json(m), "regressions",
			      m->regressions, "waits", m->waits, "hosts", hosts_json(c, answers),
			      "known", (int)m->known, "running", (int)m->running, "paused",
			      (int)m->paused);
	put_losses(m->losses, o);
	buf_release(&words);
	return o;
}
