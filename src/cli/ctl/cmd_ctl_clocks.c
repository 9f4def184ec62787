/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde ctl clocks: how far the clocks of hosts are apart, and how exactly that is known. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/ctl/clocks.h"
#include "client/clocks.h"
#include "client/profiler_config.h"
#include "formats/clock_file.h"

#define EVERY_NS 60000000000ull /* between two measurements of a long one */
#define CALLS_KEPT 256u /* of a measurement that nobody has asked for */

struct clocks_options {
	struct ctl_common common;
	const char *output;
	unsigned duration_s;
	unsigned rounds;
};

/* What is known of a host's clock: how far it is ahead of ours. */
struct host_clock {
	bool known;
	struct clock_line line; /* ends with the last answer */
	int64_t ahead_ns; /* then */
	int64_t trip_ns; /* the shortest */
};

/* --- measuring --- */

static void measure_host(const struct clock_trips *t, const char *label, struct host_clock *out)
{
	struct clock_span *spans = xcalloc(t->n + 1, sizeof(*spans));
	int64_t ours = clock_real_ns() - (int64_t)clock_mono_ns(), from = INT64_MAX, to = 0;
	size_t n = 0;

	out->trip_ns = INT64_MAX;
	for (size_t i = 0; i < t->n; i++) {
		const struct clock_trip *k = &t->list[i];
		int64_t took = k->answered_ns - k->asked_ns;

		if (strcmp(k->label, label) != 0)
			continue;
		spans[n++] = (struct clock_span){k->time_ns, k->time_ns - k->answered_ns - ours,
						 k->time_ns - k->asked_ns - ours};
		from = k->time_ns < from ? k->time_ns : from;
		to = k->time_ns > to ? k->time_ns : to;
		out->trip_ns = took < out->trip_ns ? took : out->trip_ns;
	}
	/* within one measurement no clock drifts so far that it could be seen */
	if (n && to - from < (int64_t)(EVERY_NS / 10))
		from = to;
	out->known = clock_fit(spans, n, from, to, &out->line);
	if (out->known)
		out->ahead_ns = clock_line_at(&out->line, to);
	free(spans);
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static int add_to_file(const char *path, struct clock_trips *t, size_t *kept, struct err *err)
{
	const struct clock_trips newer = {.list = t->list + *kept, .n = t->n - *kept};
	int r = path ? clock_file_add(path, &newer, err) : 0;

	*kept = t->n;
	return r;
}

/* At the beginning, each minute, and at the end. */
static int measure_clocks(struct ctl *c, const struct clocks_options *o, struct clock_trips *t,
			  struct client_answer *last, struct err *err)
{
	uint64_t end = clock_mono_ns() + (uint64_t)o->duration_s * 1000000000u, next;
	size_t kept = 0;
	int r = clocks_ask(&c->group, o->rounds, t, last, err);

	c->group.progress = NULL;
	if (r == 0)
		r = add_to_file(o->output, t, &kept, err);
	while (r == 0 && (next = clock_mono_ns()) < end) {
		sleep_until(next + EVERY_NS < end ? next + EVERY_NS : end);
		r = clocks_ask(&c->group, o->rounds, t, last, err);
		if (r == 0)
			r = add_to_file(o->output, t, &kept, err);
	}
	return r;
}

/* --- printing --- */

static double to_ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static int print_table(struct ctl *c, const struct host_clock *clocks,
		       const struct client_answer *answers)
{
	static const char *const titles[] = {"HOST",	       ">AHEAD MS", ">± MS", ">DRIFT PPM",
					     ">ROUND TRIP MS", "NOTE",	    NULL};
	struct table t = {.titles = titles};
	struct buf text = {0};

	for (size_t i = 0; i < c->hosts.n; i++) {
		const struct host_clock *h = &clocks[i];

		table_text(&t, c->hosts.v[i].label);
		for (unsigned k = 0; !h->known && k < 4; k++)
			table_text(&t, "-");
		if (h->known) {
			table_textf(&t, "%+.3f", to_ms(h->ahead_ns));
			table_textf(&t, "%.3f", to_ms(h->line.bound_ns));
			if (h->line.to_ns > h->line.from_ns)
				table_textf(&t, "%+.2f", h->line.drift * 1e6);
			else
				table_text(&t, "-");
			table_textf(&t, "%.3f", to_ms(h->trip_ns));
		}
		table_text(&t, h->known && h->line.bent_ns    ? "it was set meanwhile, or does not "
								"run evenly"
			       : h->known || answers[i].reply ? ""
							      : answers[i].err.text);
	}
	table_print(&t, 0, &text);
	int status = command_print(c->cmd, &text);
	table_release(&t);
	buf_release(&text);
	return status;
}

/* "The clocks of 3 hosts differ by up to 3.021 ms (node3 ahead of node1), known to ± 0.1 ms." */
static void print_sentence(struct ctl *c, const struct host_clock *clocks)
{
	size_t low = SIZE_MAX, high = SIZE_MAX, n = 0;

	for (size_t i = 0; i < c->hosts.n; i++) {
		if (!clocks[i].known)
			continue;
		n++;
		if (low == SIZE_MAX || clocks[i].ahead_ns < clocks[low].ahead_ns)
			low = i;
		if (high == SIZE_MAX || clocks[i].ahead_ns >= clocks[high].ahead_ns)
			high = i;
	}
	if (n < 2)
		return;
	int64_t apart = clocks[high].ahead_ns - clocks[low].ahead_ns;
	int64_t bound = clocks[high].line.bound_ns + clocks[low].line.bound_ns;
	if (apart <= bound)
		ctl_notice(c,
			   "the clocks of %zu hosts agree as far as can be seen: %.3f ms apart at "
			   "most",
			   n, to_ms(apart + bound));
	else
		ctl_notice(
			c,
			"the clocks of %zu hosts differ by up to %.3f ms ± %.3f ms (%s is ahead of "
			"%s)",
			n, to_ms(apart), to_ms(bound), c->hosts.v[high].label,
			c->hosts.v[low].label);
}

static void add_clock_json(const void *arg, size_t host, json_t *row)
{
	const struct host_clock *h = &((const struct host_clock *)arg)[host];

	if (!h->known) {
		json_object_set_new(row, "ahead_ms", json_null());
		return;
	}
	json_object_set_new(row, "ahead_ms", json_real(to_ms(h->ahead_ns)));
	json_object_set_new(row, "bound_ms", json_real(to_ms(h->line.bound_ns)));
	json_object_set_new(row, "drift_ppm",
			    h->line.to_ns > h->line.from_ns ? json_real(h->line.drift * 1e6)
							    : json_null());
	json_object_set_new(row, "round_trip_ms", json_real(to_ms(h->trip_ns)));
	json_object_set_new(row, "uneven", json_boolean(h->line.bent_ns > 0));
}

static int run_clocks(struct ctl *c, void *options)
{
	const struct clocks_options *o = options;
	struct client_answer *last = client_answers_new(&c->group);
	struct host_clock *clocks = xcalloc(c->hosts.n, sizeof(*clocks));
	struct clock_trips trips = {0};
	struct err err = {0};
	int status;

	if (measure_clocks(c, o, &trips, last, &err) < 0) {
		status = ctl_fail(c, &err, EXIT_FAILED);
	} else {
		for (size_t i = 0; i < c->hosts.n; i++)
			measure_host(&trips, c->hosts.v[i].label, &clocks[i]);
		status = c->common->json ? ctl_print_json(c, last, add_clock_json, clocks)
					 : print_table(c, clocks, last);
		if (!c->common->json)
			print_sentence(c, clocks);
		if (o->output)
			ctl_notice(c,
				   "wrote '%s': give it to `sonde timeline` with the recordings of "
				   "these hosts",
				   o->output);
		if (status == EXIT_DONE)
			status = ctl_failures(c, last);
	}
	clock_trips_release(&trips);
	client_answers_free(&c->group, last);
	free(clocks);
	return status;
}

/* --- beside traces --- */

void ctl_clocks_path(const char *log_file, struct buf *out)
{
	size_t n = strlen(log_file);

	if (n > 5 && !strcmp(log_file + n - 5, ".json")) {
		gputrace_log_of_host(log_file, "clocks", out);
		return;
	}
	while (n > 1 && log_file[n - 1] == '/')
		n--;
	buf_add(out, log_file, n);
	buf_add_str(out, "." CLOCK_FILE_NAME);
}

void ctl_clocks_keep(struct ctl *c, const char *log_file)
{
	void (*progress)(void *arg, size_t done, size_t total) = c->group.progress;
	size_t hosts = c->hosts.n;
	struct client_answer *last;
	struct clock_trips trips = {0};
	struct buf path = {0};
	struct err err = {0};
	unsigned rounds = hosts < CALLS_KEPT ? (unsigned)(CALLS_KEPT / hosts) : 1;

	if (hosts < 2 || !log_file || log_file[0] != '/')
		return;
	last = client_answers_new(&c->group);
	c->group.progress = NULL;
	ctl_clocks_path(log_file, &path);
	int r = clocks_ask(&c->group, rounds < CLOCKS_ROUNDS ? rounds : CLOCKS_ROUNDS, &trips, last,
			   &err);
	if (r == 0 && trips.n)
		r = clock_file_add(buf_str(&path), &trips, &err);
	if (r < 0)
		ctl_notice(c,
			   "the clocks of the hosts are not kept beside the trace (%s); `%s clocks "
			   "-o FILE` writes them",
			   err.text, ctl_name(c));
	c->group.progress = progress;
	clock_trips_release(&trips);
	client_answers_free(&c->group, last);
	buf_release(&path);
}

/* --- the command --- */

static const struct clocks_options defaults = {.common = CTL_COMMON_DEFAULTS,
					       .rounds = CLOCKS_ROUNDS};
static const struct ctl_steps steps = {&defaults, sizeof(defaults), NULL, false, run_clocks};

#define AT(member) offsetof(struct clocks_options, member)
static const struct opt options[] = {
	OPTION_TEXT("output", "FILE", AT(output), NULL,
		    "Add what was measured to this file, for `sonde timeline`: a name that ends "
		    "with clocks.json, in the directory of the recordings.",
		    .letters = "o", .group = "Clocks"),
	OPTION_UINT("duration", "SECONDS", AT(duration_s), 0, 31536000, "0",
		    "Measure now, each minute, and when this time is over, as long as the hosts "
		    "record: then their drift is known, too."),
	OPTION_UINT("rounds", "N", AT(rounds), 1, 1000, "8",
		    "Round trips to each host in a measurement; the shortest says most."),
	CTL_COMMON_ROWS,
};

static const struct args_example examples[] = {
	{"of two hosts", "sonde ctl clocks --hostname node1,node2"},
	{"beside recordings of a minute",
	 "sonde ctl clocks --slurm-job 4711 --duration 60 -o /data/job/clocks.json"},
	{NULL, NULL},
};

const struct command cmd_ctl_clocks = CTL_COMMAND(
	"clocks", ctl_command_usage, options, examples, &steps,
	.summary = "how far the clocks of hosts are apart",
	.description =
		"Asks the daemons of the hosts for their time, some times, and prints how many "
		"milliseconds each clock is ahead of the one of this machine (negative: "
		"behind), and the bound of that: half of the shortest round trip. With "
		"several hosts, nputrace and gputrace measure this by themselves and write "
		"it beside the trace.");
