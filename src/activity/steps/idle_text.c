/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Why the devices of a job idle: its ranks put together, in words, as tables and as JSON. */
#include "activity/steps/idle_text.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "base/text/number_words.h"
#include "formats/json_value.h"
#include "unwind/symbols/demangle.h"

#define MAX_SHOWN 5 /* reasons that are said; the table has more */
#define LEAST_POINTS 0.05 /* that are worth a sentence */
#define TEXT_SHOWN 160
#define SHORT_GAP_NS 100000 /* gaps between launches, not events of their own */

/* --- all ranks together --- */

struct idle_sum {
	const struct idle_reason *like;
	uint64_t ns, times, longest_ns;
	size_t *ranks; /* places in the job's list */
	size_t nranks, cap;
	size_t most; /* the one of them with the most of it */
	uint64_t most_ns;
};

struct idle_job {
	struct idle_sum *sums; /* by time; what is not known is none of them */
	size_t nsums, cap;
	struct hmap index;
	size_t nranks; /* that count */
	size_t looked, no_python;
	uint64_t time_ns, idle_ns; /* of all their devices, in whole steps */
	uint64_t python_ns, unknown_ns, left_out;
};

static bool does_count(const struct split_job *j, const struct split_rank *r)
{
	bool any = false;

	for (size_t i = 0; i < j->nrows; i++) {
		if (j->rows[i].judged && j->rows[i].rank == r)
			return true;
		any |= j->rows[i].judged;
	}
	return !any && r->ndevices;
}

static void add_reason(struct idle_job *s, const struct idle_reason *r, size_t rank)
{
	const uint64_t key[] = {(uint64_t)r->why, XXH3_64bits(r->what, strlen(r->what)),
				XXH3_64bits(r->where, strlen(r->where))};
	uint64_t hash = XXH3_64bits(key, sizeof(key)), at = hmap_get(&s->index, hash);

	if (at == HMAP_NONE) {
		at = s->nsums;
		*XPUSH(s->sums, s->nsums, s->cap) = (struct idle_sum){.like = r};
		hmap_put(&s->index, hash, at);
	}
	struct idle_sum *sum = &s->sums[at];
	sum->ns += r->ns;
	sum->times += r->times;
	if (r->longest_ns > sum->longest_ns)
		sum->longest_ns = r->longest_ns;
	*XPUSH(sum->ranks, sum->nranks, sum->cap) = rank;
	if (r->ns > sum->most_ns) {
		sum->most_ns = r->ns;
		sum->most = rank;
	}
}

static void add_rank(struct idle_job *s, const struct split_rank *r, size_t at)
{
	uint64_t idle_ns = 0;

	for (size_t i = 0; i < r->ndevices; i++) {
		s->time_ns += r->devices[i].all.step_ns;
		idle_ns += r->devices[i].all.part_ns[SPLIT_IDLE];
	}
	s->nranks++;
	s->idle_ns += idle_ns;
	s->looked += r->idle.looked;
	s->no_python += !r->idle.python;
	s->python_ns += r->idle.python_ns;
	s->left_out += r->idle.left_out;
	if (!r->idle.looked)
		s->unknown_ns += idle_ns;
	for (size_t i = 0; i < r->idle.nreasons; i++) {
		const struct idle_reason *reason = &r->idle.reasons[i];

		if (reason->why == IDLE_UNKNOWN)
			s->unknown_ns += reason->ns;
		else
			add_reason(s, reason, at);
	}
}

static int by_time(const void *a, const void *b)
{
	const struct idle_sum *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns > y->ns ? -1 : 1;
	if (x->like->why != y->like->why)
		return x->like->why < y->like->why ? -1 : 1;
	int what = strcmp(x->like->what, y->like->what);
	return what ? what : strcmp(x->like->where, y->like->where);
}

static struct idle_job sum_job(const struct split_job *j)
{
	struct idle_job s = {0};

	for (size_t i = 0; i < j->nranks; i++)
		if (does_count(j, j->ranks[i]))
			add_rank(&s, j->ranks[i], i);
	if (s.nsums)
		qsort(s.sums, s.nsums, sizeof(*s.sums), by_time);
	return s;
}

static void release_job(struct idle_job *s)
{
	for (size_t i = 0; i < s->nsums; i++)
		free(s->sums[i].ranks);
	free(s->sums);
	hmap_release(&s->index);
}

/* --- words --- */

/* One does it, several do. */
static const char *const words[IDLE_WHYS][2] = {
	[IDLE_UNKNOWN] = {"is not known", "are not known"},
	[IDLE_DATA] = {"waits for its data loader", "wait for their data loaders"},
	[IDLE_CHECKPOINT] = {"saves or loads a checkpoint", "save or load checkpoints"},
	[IDLE_COLLECTOR] = {"collects garbage", "collect garbage"},
	[IDLE_ALLOCATION] = {"has the driver allocate or free memory",
			     "have the driver allocate or free memory"},
	[IDLE_COMPILER] = {"compiles kernels", "compile kernels"},
	[IDLE_RANKS] = {"is in a call for a collective", "are in calls for collectives"},
	[IDLE_SYNC] = {"waits for the device to finish", "wait for the device to finish"},
	[IDLE_LOCK] = {"waits for a lock, a queue or a thread",
		       "wait for a lock, a queue or a thread"},
	[IDLE_PYTHON] = {"runs Python", "run Python"},
	[IDLE_CALL] = {"is in other calls", "are in other calls"},
};

/* "rank 2", "ranks 0 to 2 and 5", "all 4 ranks"; processes without a rank by their pids. */
static void add_ranks(const struct split_job *j, const size_t *list, size_t n, size_t all,
		      struct buf *out)
{
	bool numbered = true;
	size_t shown = 0;

	if (n > 1 && n == all) {
		if (n == 2)
			buf_add_str(out, "both ranks");
		else
			buf_addf(out, "all %zu ranks", n);
		return;
	}
	for (size_t i = 0; i < n; i++)
		numbered &= j->ranks[list[i]]->rank >= 0;
	buf_addf(out, numbered ? "rank%s " : "process%s ", n == 1 ? "" : numbered ? "s" : "es");
	for (size_t i = 0, last; i < n; i = last + 1) {
		const struct split_rank *r = j->ranks[list[i]];

		for (last = i; numbered && last + 1 < n &&
			       j->ranks[list[last + 1]]->rank == j->ranks[list[last]]->rank + 1;)
			last++;
		if (shown++ == 8) {
			buf_addf(out, " and %zu more", n - i);
			return;
		}
		buf_add_str(out, !i ? "" : last + 1 == n ? " and " : ", ");
		buf_addf(out, "%u", numbered ? (unsigned)r->rank : r->pid);
		if (last > i)
			buf_addf(out, last > i + 1 ? " to %d" : " and %d",
				 j->ranks[list[last]]->rank);
	}
}

/* ": __next__ (torch/utils/data/dataloader.py:628), from train (train.py:18)" */
static void add_place(const struct idle_reason *r, struct buf *out)
{
	bool own = r->why == IDLE_PYTHON && *r->where;

	if (own) { /* the program's function first, then what it is in */
		buf_add_str(out, ": ");
		demangle_add_name(out, r->where, TEXT_SHOWN);
		if (*r->what) {
			buf_add_str(out, " > ");
			demangle_add_name(out, r->what, TEXT_SHOWN);
		}
		return;
	}
	if (*r->what) {
		buf_add_str(out, ": ");
		demangle_add_name(out, r->what, TEXT_SHOWN);
	}
	if (*r->where) {
		buf_add_str(out, *r->what ? ", from " : ": ");
		demangle_add_name(out, r->where, TEXT_SHOWN);
	}
}

/* "rank 1 (22.4 of them) and 2 others", if one has twice as much as it would if all had the same. */
static void add_who(const struct split_job *j, const struct idle_job *s, const struct idle_sum *sum,
		    struct buf *out)
{
	if (sum->nranks < 2 || sum->most_ns * sum->nranks < sum->ns * 2) {
		add_ranks(j, sum->ranks, sum->nranks, s->nranks, out);
		return;
	}
	add_ranks(j, &sum->most, 1, s->nranks, out);
	buf_addf(out, " (%.1f of them) and %zu other%s", percent_of(sum->most_ns, s->time_ns),
		 sum->nranks - 1, sum->nranks == 2 ? "" : "s");
}

static void describe_reason(const struct split_job *j, const struct idle_job *s,
			    const struct idle_sum *sum, struct buf *out)
{
	const struct idle_reason *r = sum->like;

	buf_addf(out, "%.1f points: ", percent_of(sum->ns, s->time_ns));
	add_who(j, s, sum, out);
	buf_addf(out, " %s", words[r->why][sum->nranks > 1]);
	add_place(r, out);
	if (sum->ns / sum->times < SHORT_GAP_NS) {
		buf_add_str(out, "; ");
		words_of(out, sum->times, "gap");
		buf_add_str(out, " of ");
		words_time(out, sum->ns / sum->times);
		buf_add_str(out, " on average");
	}
	buf_add_str(out, ".\n");
}

static void add_without_python(const struct split_job *j, const struct idle_job *s, struct buf *out)
{
	size_t *list = xcalloc(j->nranks + 1, sizeof(*list)), n = 0;

	for (size_t i = 0; i < j->nranks; i++)
		if (does_count(j, j->ranks[i]) && !j->ranks[i]->idle.python)
			list[n++] = i;
	buf_add_str(out, "No Python is known of ");
	add_ranks(j, list, n, s->nranks, out);
	buf_add_str(
		out,
		": record stacks, too (`sonde record`), trace with --with-stack, or add a trace of "
		"`sonde stack`.\n");
	free(list);
}

static void describe_coverage(const struct split_job *j, const struct idle_job *s, struct buf *out)
{
	if (s->no_python < s->nranks)
		buf_addf(out, "Python is known for %.1f %% of the idle time; ",
			 percent_of(s->python_ns, s->idle_ns));
	else
		buf_add_str(out, "Of the idle time ");
	buf_addf(out, "%.1f %% has no explanation.\n", percent_of(s->unknown_ns, s->idle_ns));
	if (s->no_python)
		add_without_python(j, s, out);
	if (s->left_out) {
		words_of(out, s->left_out, "slice");
		buf_add_str(out,
			    " of the hosts had no room: take a part with --steps or --from.\n");
	}
}

void split_idle_describe(const struct split_job *j, struct buf *out)
{
	struct idle_job s = sum_job(j);

	if (s.looked && s.idle_ns) {
		buf_addf(out, "The devices idle %.1f %% of the time%s\n",
			 percent_of(s.idle_ns, s.time_ns), s.nsums ? ". Meanwhile:" : ".");
		for (size_t i = 0; i < s.nsums && i < MAX_SHOWN; i++)
			if (!i || percent_of(s.sums[i].ns, s.time_ns) >= LEAST_POINTS)
				describe_reason(j, &s, &s.sums[i], out);
		describe_coverage(j, &s, out);
	}
	release_job(&s);
}

/* --- the slowest rank --- */

static uint64_t per_step(const struct split_rank *r, const struct idle_reason *like)
{
	for (size_t i = 0; i < r->idle.nreasons; i++)
		if (idle_reason_is_same(&r->idle.reasons[i], like))
			return r->whole_steps ? r->idle.reasons[i].ns / r->whole_steps : 0;
	return 0;
}

static uint64_t mean_of_others(const struct split_job *j, const struct split_rank *but,
			       const struct idle_reason *like)
{
	uint64_t sum = 0, n = 0;

	for (size_t i = 0; i < j->nranks; i++)
		if (j->ranks[i] != but && does_count(j, j->ranks[i])) {
			sum += per_step(j->ranks[i], like);
			n++;
		}
	return n ? sum / n : 0;
}

const struct idle_reason *split_idle_slowest(const struct split_job *j, uint64_t *out_ns,
					     uint64_t *out_others_ns)
{
	const struct split_slowest *s = &j->slowest;
	const struct idle_reason *found = NULL;
	uint64_t most = 0;

	if (s->verdict < SPLIT_SLOW_STEPS || s->why != SPLIT_IDLE)
		return NULL;
	const struct split_rank *r = j->rows[s->row].rank;
	for (size_t i = 0; i < r->idle.nreasons; i++) {
		const struct idle_reason *reason = &r->idle.reasons[i];
		uint64_t own = per_step(r, reason), others = mean_of_others(j, r, reason);

		if (own <= others || own - others <= most || reason->why == IDLE_UNKNOWN)
			continue;
		most = own - others;
		found = reason;
		*out_ns = own;
		*out_others_ns = others;
	}
	return found;
}

void split_idle_describe_slowest(const struct split_job *j, struct buf *out)
{
	uint64_t own, others;
	const struct idle_reason *r = split_idle_slowest(j, &own, &others);

	if (!r)
		return;
	buf_add_str(out, "For ");
	words_time(out, own);
	buf_add_str(out, " of that (the others ");
	words_time(out, others);
	buf_addf(out, ") it %s", words[r->why][0]);
	add_place(r, out);
	buf_add_str(out, ".\n");
}

/* --- tables --- */

void split_idle_table(const struct split_job *j, unsigned top, struct buf *out)
{
	struct idle_job s = sum_job(j);
	size_t n = s.nsums < top ? s.nsums : top;

	if (s.looked && s.nsums) {
		buf_add_str(out,
			    "\nWhat the hosts did while devices had nothing to do (all ranks; "
			    "share: of the idle time)\n   share    total ms   times     mean ms  "
			    "longest ms ranks  reason\n");
		for (size_t i = 0; i < n; i++) {
			const struct idle_sum *sum = &s.sums[i];

			buf_addf(out, "%6.1f %% %11.3f %7llu %11.3f %11.3f %5zu  %s",
				 percent_of(sum->ns, s.idle_ns), (double)sum->ns / 1e6,
				 (unsigned long long)sum->times,
				 (double)sum->ns / 1e6 / (double)sum->times,
				 (double)sum->longest_ns / 1e6, sum->nranks,
				 idle_why_name(sum->like->why));
			add_place(sum->like, out);
			buf_add_char(out, '\n');
		}
		if (n < s.nsums)
			buf_addf(out, "... and %zu more\n", s.nsums - n);
		if (s.unknown_ns)
			buf_addf(out, "%6.1f %% %11.3f %46s  unknown\n",
				 percent_of(s.unknown_ns, s.idle_ns), (double)s.unknown_ns / 1e6,
				 "");
	}
	release_job(&s);
}

/* --- JSON --- */

static json_t *rank_numbers(const struct split_job *j, const struct idle_sum *sum)
{
	json_t *list = json_array();

	for (size_t i = 0; i < sum->nranks; i++) {
		const struct split_rank *r = j->ranks[sum->ranks[i]];

		json_array_append_new(list, r->rank >= 0 ? json_integer(r->rank) : json_null());
	}
	return list;
}

static void put_share(json_t *o, const char *key, uint64_t part, uint64_t whole)
{
	json_object_set_new(o, key, json_real(percent_of(part, whole) / 100));
}

static json_t *sums_json(const struct split_job *j, const struct idle_job *s)
{
	json_t *list = json_array();

	for (size_t i = 0; i < s->nsums; i++) {
		const struct idle_sum *sum = &s->sums[i];
		json_t *o = json_object();

		put_text(o, "why", idle_why_name(sum->like->why));
		put_text(o, "what", sum->like->what);
		put_text(o, "where", sum->like->where);
		put_number(o, "ns", sum->ns);
		put_share(o, "share", sum->ns, s->time_ns);
		put_number(o, "times", sum->times);
		put_number(o, "longest_ns", sum->longest_ns);
		json_object_set_new(o, "ranks", rank_numbers(j, sum));
		const struct split_rank *most = j->ranks[sum->most];
		put_known(o, "most_rank", most->rank >= 0, (uint64_t)(uint32_t)most->rank);
		put_number(o, "most_ns", sum->most_ns);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *slowest_json(const struct split_job *j)
{
	uint64_t own = 0, others = 0;
	const struct idle_reason *r = split_idle_slowest(j, &own, &others);
	json_t *o;

	if (!r)
		return json_null();
	o = json_object();
	put_text(o, "why", idle_why_name(r->why));
	put_text(o, "what", r->what);
	put_text(o, "where", r->where);
	put_number(o, "ns", own);
	put_number(o, "others_ns", others);
	return o;
}

json_t *split_idle_job_json(const struct split_job *j)
{
	struct idle_job s = sum_job(j);
	json_t *o = json_null();

	if (s.looked) {
		o = json_object();
		put_number(o, "time_ns", s.time_ns);
		put_number(o, "ns", s.idle_ns);
		put_share(o, "share", s.idle_ns, s.time_ns);
		put_share(o, "python_share", s.python_ns, s.idle_ns);
		put_share(o, "unknown_share", s.unknown_ns, s.idle_ns);
		put_number(o, "ranks", s.nranks);
		put_number(o, "ranks_without_python", s.no_python);
		put_number(o, "left_out", s.left_out);
		json_object_set_new(o, "reasons", sums_json(j, &s));
		json_object_set_new(o, "slowest", slowest_json(j));
	}
	release_job(&s);
	return o;
}
