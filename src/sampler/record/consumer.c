/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Python stacks and counters as a consumer of the recorder: `sonde record`. It adds records of its
 * own. Stacks are sampled by a thread (sampling.c), since a round takes as long as the memory of
 * all processes does to read; what it has found waits for the recorder's next round.
 */
#include "recorder/consumer.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/proc.h"
#include "formats/json_value.h"
#include "recorder/flight/step_count.h"
#include "recorder/session.h"
#include "sampler/counters/counters.h"
#include "sampler/record/samples.h"
#include "sampler/record/sampling.h"

#define LOG_AREA "sampler"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define DRIVER_MS 2000
#define MAX_PROCESSES 256 /* whose processor time and memory are counters */
#define PROCESSES_NS (500 * MS) /* between looks which there are */

struct state {
	struct control_page *page;
	const char *dir;
	bool terminal;
	uint64_t begun_ns;
	struct step_count count;
	struct sampling *sampling; /* NULL: no stacks */
	struct counters *counters;
	struct sampling_process processes[MAX_PROCESSES];
	unsigned nprocesses;
	uint64_t processes_ns;
	bool root_named; /* its command is recorded */
	struct buf *batch; /* while a round lasts */
	uint64_t lost_counters;
	bool begun;
	bool memory, kernels; /* there are some, so that commands can answer about them */
	bool said, said_running; /* the last words, while processes went on */
};

/* --- life --- */

static void start_counters(struct state *s)
{
	const struct session_record *r = &s->page->record;
	struct counters_options o = {
		.npu = true,
		.gpu = true,
		.host = true,
		.cpu = true,
		.processes = true,
		.power = true,
		.period_ms = r->counters_ms,
		.npu_timeout_ms = DRIVER_MS,
		.gpu_timeout_ms = DRIVER_MS,
	};
	struct err err = {0};

	if (r->counters_ms && counters_start(&o, &s->counters, &err) < 0)
		log_warn("there are no counters: %s", err.text);
}

static int open_sampler(const struct recorder_session *session, struct consumer *out,
			struct err *err)
{
	struct state *s = xcalloc(1, sizeof(*s));

	(void)err;
	s->page = session->page;
	s->dir = session->dir;
	s->terminal = session->terminal;
	s->begun_ns = clock_mono_ns();
	out->state = out->listener = s;
	out->checkpoint = s->page->record.on ? &samples_checkpoint : NULL;
	return 0;
}

static void close_sampler(void *state)
{
	struct state *s = state;

	sampling_stop(s->sampling);
	counters_stop(s->counters);
	step_count_release(&s->count);
	free(s);
}

/* --- what the job does --- */

static bool is_device_work(const struct rec *r)
{
	const struct rec_activity *a = (const struct rec_activity *)r;

	return r->type == REC_ACTIVITY && a->place == ACTIVITY_ON_DEVICE &&
	       a->kind != ACTIVITY_MARKER && a->kind != ACTIVITY_MEMORY;
}

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct state *s = arg;

	(void)tid;
	(void)step_count_record(&s->count, proc, r);
	s->memory |= r->type == REC_ALLOC;
	s->kernels |= is_device_work(r);
}

static bool is_in_steps(const struct state *s)
{
	const struct session_record *r = &s->page->record;
	uint64_t step = s->count.step ? s->count.step : 1;

	return !r->last_step || (step + 1 >= r->first_step && step <= r->last_step);
}

/* Not before the launched process can be there: the recorder is started first. */
static void begin_sampling(struct state *s)
{
	const struct session_record *r = &s->page->record;

	if (r->stacks_us)
		s->sampling = sampling_start((pid_t)s->page->root_pid, r->stacks_us);
	start_counters(s);
}

/* Those that are sampled, and the launched one, whatever it runs. */
static void choose_processes(struct state *s, uint64_t now_ns)
{
	pid_t pids[MAX_PROCESSES], root = (pid_t)s->page->root_pid;
	unsigned n;

	if (!s->counters || now_ns < s->processes_ns || !proc_is_ours())
		return;
	s->processes_ns = now_ns + PROCESSES_NS;
	n = sampling_processes(s->sampling, s->processes, MAX_PROCESSES - 1);
	n = n < MAX_PROCESSES - 1 ? n : MAX_PROCESSES - 1;
	s->nprocesses = n;
	for (unsigned i = 0; i < n; i++) {
		pids[i] = s->processes[i].pid;
		root = pids[i] == root ? 0 : root;
	}
	if (root) {
		s->processes[n] = (struct sampling_process){root, (uint32_t)root};
		pids[n] = root;
		s->nprocesses++;
	}
	counters_processes(s->counters, pids, s->nprocesses);
}

static void tick_sampler(void *state, uint64_t now_ns)
{
	struct state *s = state;
	struct session_record *r = &s->page->record;

	if (!r->on || !s->begun_ns)
		return;
	if (!s->begun) {
		s->begun = true;
		begin_sampling(s);
	}
	if (r->duration_ms && now_ns - s->begun_ns >= r->duration_ms * MS)
		atomic_store(&r->over, 1);
	sampling_want(s->sampling, !atomic_load(&r->over) && is_in_steps(s));
	choose_processes(s, now_ns);
}

/* --- records --- */

/* A number as the process sees it; 0: it is not known any more. */
static uint32_t own_pid(const struct state *s, pid_t pid)
{
	for (unsigned i = 0; i < s->nprocesses; i++)
		if (s->processes[i].pid == pid)
			return s->processes[i].own_pid;
	return 0;
}

/* Nobody samples a program that does not run Python: what it is called is not known yet. */
static void record_root_name(struct state *s, const struct counter *c)
{
	char text[REC_MAX_TEXT];
	struct buf command = {0};
	ssize_t n;

	if (s->root_named || (uint32_t)c->pid != s->page->root_pid)
		return;
	s->root_named = true;
	n = proc_read(c->pid, "cmdline", text, sizeof(text));
	if (n > 0)
		proc_add_printable(&command, text, (size_t)n);
	if (command.len)
		samples_put_name(s->batch, c->time_ns, (uint32_t)c->pid, buf_str(&command));
	buf_release(&command);
}

static void put_counter(struct state *s, const struct counter *c, unsigned i)
{
	static const char zeros[8];
	const char *key = c->values[i].key;
	size_t name = strlen(c->name) + 1, len = name + strlen(key);
	struct rec_counter r = {
		.head = {.type = REC_COUNTER,
			 .size = rec_size(sizeof(r), len),
			 .time_ns = c->time_ns},
		.value = c->values[i].value,
		.pid = c->track == COUNTER_PROCESS ? own_pid(s, c->pid) : 0,
		.card = c->card,
		.track = (uint8_t)c->track,
		.len = (uint16_t)len,
	};

	buf_add(s->batch, &r, sizeof(r));
	buf_add(s->batch, c->name, name);
	buf_add(s->batch, key, len - name);
	buf_add(s->batch, zeros, r.head.size - sizeof(r) - len);
}

static void on_counter(void *arg, const struct counter *c)
{
	struct state *s = arg;

	if (!is_in_steps(s) || atomic_load(&s->page->record.over))
		return;
	if (c->track == COUNTER_PROCESS && !own_pid(s, c->pid))
		return;
	if (c->track == COUNTER_PROCESS)
		record_root_name(s, c);
	for (unsigned i = 0; i < c->n; i++)
		put_counter(s, c, i);
}

static bool poll_samples(void *state, bool had_events, struct buf *batch)
{
	struct batch_item head = {.kind = BATCH_RUN, .proc = PROC_NONE};
	struct state *s = state;
	size_t at = batch->len;

	(void)had_events;
	if (!s->sampling && !s->counters)
		return false;
	buf_add(batch, &head, sizeof(head));
	s->batch = batch;
	if (s->counters)
		s->lost_counters += counters_take(s->counters, on_counter, s);
	sampling_take(s->sampling, batch);
	head.bytes = (uint32_t)(batch->len - at);
	if (head.bytes == sizeof(head)) {
		batch->len = at;
		return false;
	}
	memcpy(batch->data + at, &head, sizeof(head));
	return true;
}

/* --- the last words --- */

/* Returns how many there are. */
static uint64_t add_stacks(const struct state *s, struct buf *text)
{
	struct sampling_result got;

	if (!s->sampling)
		return 0;
	sampling_result(s->sampling, &got);
	if (got.samples)
		buf_addf(text, "sonde record: %llu samples of the stacks of %u Python process%s.\n",
			 (unsigned long long)got.samples, got.processes,
			 got.processes == 1 ? "" : "es");
	if (got.refused)
		buf_addf(text, "sonde record: %u Python process%s could not be read: %s\n",
			 got.refused, got.refused == 1 ? "" : "es", got.why);
	if (got.dropped)
		buf_addf(text, "sonde record: %llu samples of stacks were lost.\n",
			 (unsigned long long)got.dropped);
	return got.samples;
}

/* A flight recorder takes it for a hang if steps end (flight.c). */
static bool looks_for_hangs(const struct state *s)
{
	return s->page->record.hang_s && s->count.step > STEPS_OF_A_JOB;
}

#define MOST_COMMANDS 6

/* Commands that this recording can answer; the first shows it as a page. Returns how many. */
static size_t list_commands(const struct state *s, const char *out[MOST_COMMANDS])
{
	size_t n = 0;

	out[n++] = "sonde report";
	out[n++] = "sonde timeline";
	if (s->memory) {
		out[n++] = "sonde mem leaks";
		out[n++] = "sonde mem peak";
	}
	if (s->kernels) {
		out[n++] = "sonde activity summary";
		out[n++] = "sonde timeline --explain";
	}
	return n;
}

static void add_advice(const struct state *s, struct buf *text)
{
	const char *commands[MOST_COMMANDS];
	size_t n = list_commands(s, commands);

	buf_addf(text, "sonde record: to see it as a page: %s %s\n", commands[0], s->dir);
	buf_add_str(text, "sonde record: other commands for this directory: ");
	for (size_t i = 1; i < n; i++)
		buf_addf(text, "%s%s", i > 1 ? ", " : "", commands[i]);
	buf_add_char(text, '\n');
}

/* The same for programs; "next": commands, of which each is one. */
static void answer_samples(const struct state *s)
{
	const char *commands[MOST_COMMANDS];
	size_t n = list_commands(s, commands);
	struct sampling_result got = {0};
	json_t *list = json_array(), *o = json_object();

	if (s->sampling)
		sampling_result(s->sampling, &got);
	for (size_t i = 0; i < n; i++) {
		char *command = xasprintf("%s %s", commands[i], s->dir);

		json_array_append_new(list, text_value(command, strlen(command)));
		free(command);
	}
	put_number(o, "stack_samples", got.samples);
	put_number(o, "sampled_processes", got.processes);
	put_number(o, "unreadable_processes", got.refused);
	put_number(o, "lost_stack_samples", got.dropped);
	if (s->page->record.hang_s)
		put_bool(o, "hangs_recognised", looks_for_hangs(s));
	json_object_set_new(o, "next", list);
	session_answer(s->dir, o);
}

static void report_samples(void *state, const struct consumer_report *now)
{
	struct state *s = state;
	struct buf text = {0};

	if (!s->page->record.on || now->removed || (s->said && s->said_running == now->running))
		return;
	s->said = true;
	s->said_running = now->running;
	uint64_t samples = add_stacks(s, &text);
	if (s->page->record.hang_s && !looks_for_hangs(s))
		buf_add_str(&text, "sonde record: a hang would not have been noticed: the job "
				   "announced no steps, by which --last recognises one. By Python "
				   "stacks: sonde snap --hang 30\n");
	if (now->events || samples || now->running)
		add_advice(s, &text);
	else if (s->counters)
		buf_addf(&text,
			 "sonde record: nothing but counters (processors, memory) is in the "
			 "recording: "
			 "sonde timeline %s\n",
			 s->dir);
	else
		buf_addf(&text, "sonde record: nothing of the program was recorded into %s\n",
			 s->dir);
	answer_samples(s);
	session_add_line(s->page, s->terminal, &text, false);
	buf_release(&text);
}

static const struct stream_ops listener = {.record = on_record};

const struct consumer_ops sampler_consumer = {
	.name = "sampler",
	.stream = &listener,
	.open = open_sampler,
	.close = close_sampler,
	.tick = tick_sampler,
	.poll = poll_samples,
	.report = report_samples,
};
