/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What recorded blocks account for, and how processes ended, for people and for programs. */
#include <stdlib.h>
#include <sys/wait.h>

#include "formats/json_value.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/processes/processes.h"

#define NOISE_BYTES (8ull << 20) /* a runtime's own, of which no library sees anything */
#define MAX_SHARE 5 /* uncovered: one part of so many is much */
#define GROWTH_BYTES (4ull << 20)
#define MAX_SHOWN 3
#define MAX_ENDS 5

bool process_is_covered(const struct process_facts *p)
{
	const struct process_sample *s = &p->highest;
	uint64_t whole = s->usage.anon_bytes == USAGE_UNKNOWN
				 ? s->usage.rss_bytes
				 : s->usage.anon_bytes + s->usage.swap_bytes;

	return s->not_covered <= NOISE_BYTES || s->not_covered <= whole / MAX_SHARE;
}

uint64_t process_uncovered_growth(const struct process_facts *p)
{
	uint64_t grew = p->has_step && p->highest.not_covered > p->first_step.not_covered
				? p->highest.not_covered - p->first_step.not_covered
				: 0;

	return grew >= GROWTH_BYTES ? grew : 0;
}

uint64_t process_uncovered_peak(const struct process_facts *p)
{
	uint64_t known = p->max_blocks + p->max_others + p->inherited;
	uint64_t rest = p->max_rss > known ? p->max_rss - known : 0;

	return rest > NOISE_BYTES && rest > p->max_rss / MAX_SHARE ? rest : 0;
}

bool process_is_sampled(const struct process_facts *p)
{
	return p->samples && !p->replaced;
}

enum coverage processes_coverage(const struct processes *ps)
{
	bool sampled = false;

	if (!ps->host)
		return COVERAGE_NONE;
	for (size_t i = 0; i < ps->n; i++) {
		const struct process_facts *p = &ps->list[i];

		sampled |= process_is_sampled(p);
		if (process_is_sampled(p) &&
		    (!process_is_covered(p) || process_uncovered_growth(p) ||
		     process_uncovered_peak(p)))
			return COVERAGE_PARTIAL;
	}
	return sampled ? COVERAGE_GOOD : COVERAGE_UNKNOWN;
}

const struct process_facts *processes_uncovered(const struct processes *ps)
{
	for (size_t i = 0; ps->host && i < ps->n; i++) {
		const struct process_facts *p = &ps->list[i];

		if (process_is_sampled(p) &&
		    (!process_is_covered(p) || process_uncovered_growth(p)))
			return p;
	}
	return NULL;
}

uint64_t process_not_in_peak(const struct process_facts *p)
{
	uint64_t peak = process_uncovered_peak(p);

	if (!process_is_sampled(p) || process_is_covered(p) || p->highest.not_covered < peak)
		return peak;
	return p->highest.not_covered;
}

/* --- text --- */

static void describe_part(struct buf *out, const char *what, uint64_t bytes)
{
	if (bytes != USAGE_UNKNOWN && bytes >= 1u << 20)
		add_text(out, ", {} {}", TEXT(what), BYTES(bytes));
}

static void describe_how_to_cover(const struct process_facts *p, struct buf *out)
{
	const struct process_sample *s = &p->highest;

	if (p->has_details && s->usage.heap_bytes != USAGE_UNKNOWN && s->usage.heap_bytes) {
		uint64_t heap =
			s->usage.heap_bytes < s->not_covered ? s->usage.heap_bytes : s->not_covered;
		add_text(out,
			 " Up to {} of that may be memory that glibc's heap keeps for later "
			 "(malloc_trim() gives it back).",
			 BYTES(heap));
	}
	if (words_is_python(p->command))
		add_text(out, " Record with --python-objects to see Python's own objects; mappings "
			      "that the C library makes itself cannot be recorded.");
	else
		add_text(out, " The rest comes from system calls that no library can see, or from "
			      "before recording began (--collect-mode=immediate).");
}

/* Between two samples a process may have had more: the kernel knows how much, and nobody what. */
static void describe_peak(const struct process_facts *p, struct buf *out)
{
	uint64_t rest = process_uncovered_peak(p);

	if (p->max_rss < p->highest.usage.rss_bytes + (1u << 20))
		return;
	add_text(out,
		 " Between samples it had up to {} (the kernel's peak); recorded blocks came to {} "
		 "at "
		 "most",
		 BYTES(p->max_rss), BYTES(p->max_blocks));
	if (rest && process_is_covered(p))
		add_text(out,
			 ", so {} of that peak are not covered, or files that it had mapped then",
			 BYTES(rest));
	add_text(out, ".");
}

/* All were too short to be sampled, but they said their peaks when they ended: the highest. */
static void describe_unsampled(const struct processes *ps, struct buf *out)
{
	const struct process_facts *p = NULL;
	struct buf who = {0};

	for (size_t i = 0; i < ps->n; i++)
		if (ps->list[i].max_rss > (p ? p->max_rss : 0))
			p = &ps->list[i];
	if (!p)
		return;
	processes_describe(ps, p->pid, &who);
	who.data[0] = 'P'; /* it begins a sentence */
	add_text(
		out,
		"{} had up to {} in memory (RSS, the kernel's peak); recorded blocks came to {} at "
		"most.\n",
		TEXT(buf_str(&who)), BYTES(p->max_rss), BYTES(p->max_blocks));
	buf_release(&who);
}

static void describe_process(const struct processes *ps, const struct process_facts *p,
			     struct buf *out)
{
	const struct process_sample *s = &p->highest;
	const struct rec_usage *u = &s->usage;
	uint64_t grew = process_uncovered_growth(p);

	add_text(out, "Of {} that ", BYTES(u->rss_bytes));
	processes_describe(ps, p->pid, out);
	add_text(out, " had in memory (RSS) at its highest sample, recorded blocks account for {}",
		 BYTES(s->blocks_bytes));
	if (s->blocks_bytes > u->rss_bytes)
		add_text(out, " (not all of it was ever touched)");
	describe_part(out, "files", u->file_bytes);
	describe_part(out, "data of libraries", u->copied_bytes);
	describe_part(out, "stacks", u->stack_bytes);
	describe_part(out, "swapped out", u->swap_bytes ? u->swap_bytes : USAGE_UNKNOWN);
	describe_part(out, "what its parent had", p->inherited ? p->inherited : USAGE_UNKNOWN);
	if (process_is_covered(p) && !grew) {
		add_text(out, ".");
		describe_peak(p, out);
		return;
	}
	add_text(out, "; {} {} not covered", BYTES(s->not_covered), TEXT("are"));
	if (grew)
		add_text(out, ", {} more than after the first step", BYTES(grew));
	add_text(out, ".");
	describe_peak(p, out);
	describe_how_to_cover(p, out);
}

static int less_covered_first(const void *pa, const void *pb)
{
	const struct process_facts *a = *(struct process_facts *const *)pa;
	const struct process_facts *b = *(struct process_facts *const *)pb;

	return ORDER(b->highest.not_covered, a->highest.not_covered)
		       ?: ORDER(b->highest.usage.rss_bytes, a->highest.usage.rss_bytes)
		       ?: ORDER(a, b);
}

void processes_coverage_text(const struct processes *ps, struct buf *out)
{
	const struct process_facts **list = NULL;
	size_t n = 0, cap = 0;

	if (processes_coverage(ps) == COVERAGE_UNKNOWN)
		add_text(out,
			 ps->recording
				 ? "How much of the host memory the recorded blocks account for is "
				   "unknown: no process lived long enough to be looked at, or the "
				   "recording is of an older version.\n"
				 : "How much of the host memory the recorded blocks account for is "
				   "unknown: a dump does not say it, a recording does.\n");
	if (processes_coverage(ps) == COVERAGE_UNKNOWN)
		describe_unsampled(ps, out);
	if (processes_coverage(ps) < COVERAGE_GOOD)
		return;
	for (size_t i = 0; i < ps->n; i++)
		if (process_is_sampled(&ps->list[i]))
			LIST_ADD(list, n, cap, &ps->list[i]);
	SORT(list, n, less_covered_first);
	for (size_t i = 0; i < n && i < MAX_SHOWN; i++) {
		describe_process(ps, list[i], out);
		add_text(out, "\n");
	}
	if (n > MAX_SHOWN)
		add_text(out, "{} more {} in the JSON.\n", NUMBER(n - MAX_SHOWN),
			 TEXT(n - MAX_SHOWN == 1 ? "process is" : "processes are"));
	free(list);
}

static void describe_end(const struct processes *ps, const struct process_facts *p, struct buf *out)
{
	struct buf who = {0};

	processes_describe(ps, p->pid, &who);
	who.data[0] = 'P'; /* it begins a sentence */
	buf_add(out, who.data, who.len);
	if (p->group_killed)
		add_text(
			out,
			" was killed by the kernel (SIGKILL) because its control group had no more "
			"memory");
	else
		add_text(out, " was killed by SIG{}", TEXT(process_signal(p)));
	if (p->group_killed && p->group_limit && p->group_limit != USAGE_UNKNOWN)
		add_text(out, ": its limit is {}", BYTES(p->group_limit));
	add_text(out, ".\n");
	buf_release(&who);
}

void processes_ends_text(const struct processes *ps, struct buf *out)
{
	size_t n = 0;

	for (size_t i = 0; i < ps->n; i++)
		if (process_signal(&ps->list[i]) && n++ < MAX_ENDS)
			describe_end(ps, &ps->list[i], out);
	if (n > MAX_ENDS)
		add_text(out, "{} more processes were killed.\n", NUMBER(n - MAX_ENDS));
}

/* --- JSON --- */

static void put_bytes_of(json_t *o, const char *key, uint64_t v)
{
	put_known(o, key, v != USAGE_UNKNOWN, v);
}

static json_t *sample_json(const struct process_sample *s)
{
	const struct rec_usage *u = &s->usage;
	json_t *o = json_object();

	put_number(o, "time_ns", s->time_ns);
	put_number(o, "rss_bytes", u->rss_bytes);
	put_bytes_of(o, "pss_bytes", u->pss_bytes);
	put_number(o, "blocks_bytes", s->blocks_bytes);
	put_bytes_of(o, "file_bytes", u->file_bytes);
	put_bytes_of(o, "shared_bytes", u->shared_bytes);
	put_bytes_of(o, "stack_bytes", u->stack_bytes);
	put_bytes_of(o, "heap_bytes", u->heap_bytes);
	put_bytes_of(o, "copied_bytes", u->copied_bytes);
	put_bytes_of(o, "sonde_bytes", u->sonde_bytes);
	put_number(o, "swap_bytes", u->swap_bytes);
	put_number(o, "not_covered_bytes", s->not_covered);
	return o;
}

static json_t *memory_json(const struct process_facts *p)
{
	json_t *o;

	if (!p->samples)
		return json_null();
	o = json_object();
	put_number(o, "samples", p->samples);
	put_number(o, "max_rss_bytes", p->max_rss);
	put_number(o, "inherited_bytes", p->inherited);
	put_number(o, "uncovered_growth_bytes", process_uncovered_growth(p));
	json_object_set_new(o, "highest", sample_json(&p->highest));
	json_object_set_new(o, "last", sample_json(&p->last));
	return o;
}

static json_t *process_json(const struct process_facts *p)
{
	static const char *const states[] = {[PROCESS_UNKNOWN] = "unknown",
					     [PROCESS_RUNNING] = "running",
					     [PROCESS_GONE] = "ended"};
	const char *signal = process_signal(p);
	json_t *o = json_object();
	struct buf name = {0};

	if (signal)
		buf_addf(&name, "SIG%s", signal);
	put_number(o, "pid", p->pid);
	put_text(o, "command", p->command);
	put_known(o, "parent", p->ppid != 0, p->ppid);
	put_text(o, "role", !p->ppid ? "main" : p->forked ? "worker" : "child");
	put_known(o, "rank", p->rank >= 0, (uint64_t)p->rank);
	put_text(o, "state", signal ? "killed" : states[p->state]);
	put_text(o, "signal", signal ? buf_str(&name) : NULL);
	put_known(o, "exit_status", p->has_status && WIFEXITED(p->status),
		  p->has_status ? (uint64_t)WEXITSTATUS(p->status) : 0);
	put_bool(o, "killed_by_group", p->group_killed);
	put_known(o, "peak_rss_bytes", p->max_rss != 0, p->max_rss);
	put_number(o, "peak_blocks_bytes", p->max_blocks);
	json_object_set_new(o, "memory", memory_json(p));
	buf_release(&name);
	return o;
}

void processes_json(const struct processes *ps, json_t *answer)
{
	static const char *const words[] = {[COVERAGE_UNKNOWN] = "unknown",
					    [COVERAGE_GOOD] = "good",
					    [COVERAGE_PARTIAL] = "partial"};
	json_t *list = json_array();

	for (size_t i = 0; i < ps->n; i++)
		json_array_append_new(list, process_json(&ps->list[i]));
	put_text(answer, "coverage", words[processes_coverage(ps)]);
	json_object_set_new(answer, "job", list);
	json_object_set_new(answer, "dropped", dropped_json(&ps->dropped));
}
