/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory as a consumer of the recorder: dumps, diagnosis, report, samples of device memory. */
#define LOG_AREA "recorder"
#include "recorder/consumer.h"

#include "recorder/session.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text/number_words.h"
#include "base/text/printable.h"
#include "formats/json_value.h"
#include "memory/options/asked.h"
#include "memory/outputs/outputs.h"
#include "memory/track/device_memory.h"
#include "memory/track/job_memory.h"
#include "memory/track/track.h"
#include "wire/control_page.h"
#include "wire/ring.h"

#include <libgen.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TAG "[msmemscope] "
#define FLUSH_NS 200000000ull

/*
 * The report of the analyses when a job ends: always into a file beside the recording, and once to
 * the job's user: to our terminal, or to the stderr of the job's first process, which copies it
 * there itself (control_page.report_ready).
 *
 * Processes may live on after the first one. What is found wrong only then goes into the file, and
 * to a terminal.
 */
struct report {
	const char *dir; /* of the recording */
	struct control_page *page;
	const struct mem_config *cfg;
	bool terminal; /* is our stderr one? */
	bool done; /* at the end of the first process */
	bool alarmed; /* it said that something is wrong */
	bool slow; /* a line that says how far we are stands on the terminal */
	uint64_t slow_ns, slow_bytes; /* when the first one came, and what was done then */
	bool closed; /* the last line was printed, with these: */
	bool running;
	uint64_t events;
	struct buf finding; /* of `sonde record`: what is wrong, in one line, or nothing */
};

struct state {
	struct mem_config cfg;
	struct outputs outputs;
	struct device_memory *devices;
	struct job_memory *host;
	struct control_page *page;
	uint32_t sampled_exit; /* page->exit_asked that was answered with a sample */
	struct report report;
	uint64_t flushed_ns;
};

/* --- the configuration --- */

/* A job without a launcher: the file it was given, or the defaults, and then it starts silent. */
static int config_without_launcher(const char *dir, struct mem_config *cfg, struct err *err)
{
	const char *given = getenv(SESSION_CONFIG_ENV);
	const char *compat = getenv(MEM_COMPAT_ENV);
	char *copy = xstrdup(dir);
	int r = 0;

	if (!given || given[0] != '/' || mem_config_read(given, cfg, NULL) < 0) {
		r = mem_config_init(cfg, err);
		cfg->mode = MEM_DEFERRED;
		if (compat && mem_compat_find(compat) >= 0)
			cfg->compat = (enum row_compat)mem_compat_find(compat);
	}
	snprintf(cfg->output_dir, sizeof(cfg->output_dir), "%s", dirname(copy));
	free(copy);
	return r;
}

static int load_config(const char *dir, struct mem_config *cfg, struct err *err)
{
	char *path = xasprintf("%s/" SESSION_CONFIG, dir);
	int r;

	if (access(path, F_OK) == 0) {
		r = mem_config_read(path, cfg, err);
	} else {
		r = config_without_launcher(dir, cfg, err);
		if (r == 0)
			r = mem_config_write(cfg, path, err);
	}
	free(path);
	return r;
}

static int open_memory(const struct recorder_session *session, struct consumer *out,
		       struct err *err)
{
	struct state *s = xcalloc(1, sizeof(*s));
	int r = load_config(session->dir, &s->cfg, err);

	if (r < 0) {
		free(s);
		return r;
	}
	log_set_level(s->cfg.log_level);
	mem_config_publish(&s->cfg, session->page);
	struct outputs_where where = {
		.output_dir = s->cfg.output_dir,
		.recording_dir = session->dir,
		.flags = DUMPS_AS_CONFIGURED | DUMPS_SPARE_ROOM,
		.aside = true,
		.silent = s->cfg.format == MEM_NONE && !s->cfg.report_asked &&
			  !session->page->record.on,
		.by_job = !s->cfg.effective,
	};
	outputs_open(&s->outputs, &where, writer_find(mem_format_name(s->cfg.format)),
		     s->cfg.compat);
	s->devices = device_memory_new(session->dir, session->page);
	s->host = job_memory_new();
	s->page = session->page;
	s->report = (struct report){
		.dir = session->dir,
		.page = session->page,
		.cfg = &s->cfg,
		.terminal = session->terminal,
	};
	out->state = s;
	out->max_bytes = (uint64_t)s->cfg.max_kib << 10;
	out->keep_ns = session->page->record.last_s * 1000000000ull;
	out->checkpoint = &track_checkpoint;
	out->stream = outputs_stream(&s->outputs);
	out->listener = s->outputs.track;
	return 0;
}

static void close_memory(void *state)
{
	struct state *s = state;

	device_memory_free(s->devices);
	job_memory_free(s->host);
	outputs_close(&s->outputs);
	buf_release(&s->report.finding);
	free(s);
}

/* --- while the job runs --- */

/* Samples of memory are part of the recording like everything else. */
static bool poll_samples(void *state, bool had_events, struct buf *batch)
{
	struct state *s = state;
	uint32_t asked = atomic_load(&s->page->exit_asked);
	/* Once: the launched process waits until this is answered. */
	bool at_exit = asked != atomic_load(&s->page->exit_done) && asked != s->sampled_exit;

	s->sampled_exit = at_exit ? asked : s->sampled_exit;
	bool device = device_memory_poll(s->devices, s->outputs.track, had_events, batch);
	bool host = job_memory_poll(s->host, s->outputs.track, at_exit, batch);
	return device || host;
}

static void settle_samples(void *state, const struct dead_process *p)
{
	struct state *s = state;

	device_memory_settle(s->devices, s->outputs.track);
	job_memory_ended(s->host, p);
}

struct usage_slots {
	struct session_usage *slots;
	size_t n;
};

static void publish_usage(void *arg, const struct track_usage *u)
{
	struct usage_slots *to = arg;

	if (to->n == SESSION_USAGES)
		return;
	struct session_usage *slot = &to->slots[to->n++];
	atomic_store(&slot->key, 0);
	atomic_store(&slot->used_bytes, u->used);
	atomic_store(&slot->peak_bytes, u->peak);
	atomic_store(&slot->peak_heap_bytes, u->peak_total);
	atomic_store(&slot->key, SESSION_USAGE_KEY(u->pid, u->device, u->pool));
}

static void flush_outputs(void *state)
{
	struct state *s = state;
	struct usage_slots to = {.slots = s->page->usages};

	outputs_flush(&s->outputs, true);
	track_usages(s->outputs.track, publish_usage, &to);
	while (to.n < SESSION_USAGES)
		atomic_store(&to.slots[to.n++].key, 0);
}

static void flush_if_due(void *state, uint64_t now_ns)
{
	struct state *s = state;

	if (now_ns - s->flushed_ns >= FLUSH_NS) {
		s->flushed_ns = now_ns;
		outputs_flush(&s->outputs, false);
	}
}

static bool is_amending(void *state)
{
	return diagnose_is_amending(((struct state *)state)->outputs.diagnose);
}

static void add_losses(void *state, struct consumer_losses *total)
{
	struct state *s = state;
	struct err why = {0};
	uint64_t lost = dumps_lost(s->outputs.dumps, &why);

	if (lost)
		log_warn("%llu rows could not be written: %s", (unsigned long long)lost, why.text);
	if (lost && why.code)
		total->error = -why.code;
	total->rows += lost;
	total->unamended += diagnose_unamended(s->outputs.diagnose);
}

/* --- the report --- */

static void report_print(const struct report *r, const char *text, size_t len)
{
	if (r->terminal)
		session_print(text, len);
}

static bool report_save(const struct report *r, struct buf *text)
{
	char *path = xasprintf("%s/" SESSION_REPORT, r->dir);
	struct err err = {0};
	/* The job may be reading the former one. */
	int result = fs_write_atomic(path, text, 0600, &err);

	if (result < 0)
		log_err("%s", err.text);
	free(path);
	return result == 0;
}

#define RECORD_TAG "sonde record: "
#define WITHOUT_STACK "without a call stack" /* what analyses say */
#define FINDING_BYTES ((size_t)560)

/* The first paragraph; the file has all of it. */
static void keep_finding(struct report *r, const char *text)
{
	const char *end = strstr(text, "\n\n");
	size_t n = end ? (size_t)(end - text) : strlen(text);

	while (n && text[n - 1] == '\n')
		n--;
	buf_clear(&r->finding);
	buf_add(&r->finding, text, n);
	for (size_t i = 0; i < n; i++)
		if (r->finding.data[i] == '\n')
			r->finding.data[i] = ' ';
}

/* As many words of it as are read in ten seconds, and fit into the control page. */
static void add_finding(struct report *r, struct buf *text)
{
	const char *finding = buf_str(&r->finding);
	size_t n = r->finding.len;

	if (!n)
		return;
	if (n > FINDING_BYTES) {
		n = FINDING_BYTES;
		while (n && finding[n] != ' ')
			n--;
	}
	buf_add_str(text, RECORD_TAG);
	buf_add(text, finding, n);
	buf_add_str(text, n < r->finding.len ? " …\n" : "\n");
	if (strstr(finding, WITHOUT_STACK))
		buf_add_str(text, RECORD_TAG "--call-stack=python,c also names lines of C and "
					     "C++.\n");
}

static void report_findings(struct report *r, struct diagnose *d)
{
	bool on_terminal = r->terminal && r->cfg->report != MEM_REPORT_OFF;
	bool alarms = diagnose_alarms(d);
	bool is_news = !r->done || (alarms && !r->alarmed);
	bool shown = is_news && (r->cfg->report_asked || alarms || on_terminal);
	struct buf text = {0};

	diagnose_text(d, false, &text);
	bool saved = text.len && report_save(r, &text);
	if (r->page->record.on) {
		keep_finding(r, alarms ? buf_str(&text) : "");
	} else if (shown && saved && r->page->report_fd) {
		atomic_store(&r->page->report_ready, 1);
	} else if (shown && on_terminal) {
		buf_clear(&text);
		diagnose_text(d, true, &text);
		report_print(r, text.data, text.len);
	}
	r->done = true;
	r->alarmed |= alarms;
	buf_release(&text);
}

/* Processes without a buffer, and why there was none, if that can be seen. */
static void add_unrecorded(const struct report *r, unsigned long long n, struct buf *text)
{
	const uint64_t need = ARENA_OFF_MORE_INDEX + (uint64_t)ARENA_FIRST_SEGS * ARENA_SEG_SIZE;
	struct statvfs fs;

	buf_addf(text, "; %llu process%s could not be recorded at all", n, n == 1 ? "" : "es");
	if (statvfs(r->dir, &fs) < 0 || (uint64_t)fs.f_bavail * fs.f_frsize >= need)
		return;
	buf_add_str(text, ", since the disk is full (");
	words_bytes(text, (uint64_t)fs.f_bavail * fs.f_frsize);
	buf_add_str(text, " are left, a buffer begins with ");
	words_bytes(text, need);
	buf_add_char(text, ')');
}

/* `sonde record`, of a job without a device: the others tell what they have. */
static void describe_no_memory(const struct report *r, struct buf *text)
{
	if (atomic_load(&r->page->want) & WANT_ALLOC)
		buf_add_str(text, "sonde record: no memory of a device was recorded: the job has "
				  "used none. For memory of the host: sonde record --device=cpu\n");
	if (text->len)
		session_add_line(r->page, r->terminal, text, false);
	buf_release(text);
}

/* `sonde record`: the same for programs. */
static void answer_memory(const struct report *r, const struct consumer_report *now, uint64_t lost,
			  uint64_t unrecorded)
{
	const struct buf *finding = &r->finding;

	if (!r->page->record.on)
		return;
	json_t *o = json_object();
	put_text(o, "recording", r->dir);
	put_bool(o, "running", now->running);
	put_number(o, "events", now->events);
	put_number(o, "lost_events", lost);
	put_number(o, "unrecorded_processes", unrecorded);
	put_text(o, "write_error", now->error ? strerror(now->error) : NULL);
	json_object_set_new(o, "finding",
			    finding->len ? text_value(finding->data, finding->len) : json_null());
	session_answer(r->dir, o);
}

/* Whoever is refused memory wants to know why, and need not know that there is a command for it. */
static void add_refusals(const struct report *r, uint64_t n, struct buf *text)
{
	buf_addf(text, "%sMemory was refused ", r->page->record.on ? RECORD_TAG : TAG "Warn: ");
	if (n == 1)
		buf_add_str(text, "once");
	else
		buf_addf(text, "%llu times", (unsigned long long)n);
	buf_addf(text, "; this says why: sonde mem oom %s\n", r->dir);
}

/* What the last line of a recorded job is made of. */
struct closing {
	struct mem_asked asked;
	uint64_t lost, stacks, rows; /* events; of events that are there; rows of dumps */
	unsigned long long unrecorded; /* processes */
	unsigned outsiders; /* that use a device, and were not seen to come */
	struct err why; /* rows are lost */
	bool empty;
};

static void add_counts(const struct report *r, const struct consumer_report *now,
		       const struct closing *c, struct buf *text)
{
	buf_addf(text, "%s%llu event%s recorded%s, ",
		 r->page->record.on ? RECORD_TAG : TAG "Info: ", (unsigned long long)now->events,
		 now->events == 1 ? "" : "s", now->running ? " so far" : "");
	if (c->lost && now->error)
		buf_addf(text, "%llu lost (the recording could not be written: %s)",
			 (unsigned long long)c->lost, strerror(now->error));
	else if (c->lost)
		buf_addf(text, "%llu lost", (unsigned long long)c->lost);
	else
		buf_add_str(text, "none lost");
	if (c->stacks)
		buf_addf(text,
			 "; %llu of them without their call stacks, for which there was no room",
			 (unsigned long long)c->stacks);
	if (c->unrecorded)
		add_unrecorded(r, c->unrecorded, text);
	if (c->outsiders)
		buf_addf(text, "; %u more process%s of the job used a device and %s not recorded",
			 c->outsiders, c->outsiders == 1 ? "" : "es",
			 c->outsiders == 1 ? "was" : "were");
	if (now->running)
		buf_add_str(text, "; processes of the job go on and are recorded");
	if (c->rows)
		buf_addf(text, "; the dumps lack %llu rows: %s", (unsigned long long)c->rows,
			 c->why.text);
	if (now->writing)
		buf_add_str(text, "; still writing the files");
}

static void add_next_command(struct report *r, const struct consumer_report *now, struct closing *c,
			     struct buf *text)
{
	if (r->page->record.on) {
		buf_add_str(text, ".\n");
		add_finding(r, text); /* the other consumers go on */
	} else if (c->empty && !now->running && c->unrecorded) {
		buf_addf(text, ", in %s\n", r->dir);
	} else if (c->empty && !now->running) {
		mem_asked_add(&c->asked, r->cfg, false);
		buf_addf(text, ", in %s. ", r->dir);
		mem_asked_why_empty(&c->asked, text);
		buf_add_char(text, '\n');
	} else {
		buf_addf(text, "; read them with: sonde mem show %s\n", r->dir);
	}
}

/* The last line of a recorded job: how much there is, where, and what to do with it. */
static void report_close(struct report *r, const struct consumer_report *now,
			 const struct outputs *o)
{
	struct closing c = {.asked = o->asked,
			    .lost = diagnose_events_lost(o->diagnose),
			    .stacks = diagnose_stacks_lost(o->diagnose),
			    .unrecorded = atomic_load(&r->page->unrecorded),
			    .outsiders = atomic_load(&r->page->outsiders)};
	struct buf text = {0};

	c.rows = dumps_lost(o->dumps, &c.why);
	bool none = o->silent ? now->events <= o->gpus : !o->rows;
	c.empty = !now->events || ((c.asked.gpu.known || c.asked.driver_unseen) && none);
	if (r->closed && now->events == r->events && now->running == r->running)
		return;
	memset(r->page->closing, 0, sizeof(r->page->closing));
	r->closed = true;
	r->events = now->events;
	r->running = now->running;
	if (now->removed) {
		buf_addf(&text,
			 TAG "Warn: %s was deleted while the job ran: nothing is left of its "
			     "recording\n",
			 r->dir);
		session_add_line(r->page, r->terminal, &text, true);
		buf_release(&text);
		return;
	}
	answer_memory(r, now, c.lost, c.unrecorded);
	if (r->page->record.on && !now->events && !now->running && !c.lost && !c.rows &&
	    !c.unrecorded) {
		describe_no_memory(r, &text);
		return;
	}
	add_counts(r, now, &c, &text);
	add_next_command(r, now, &c, &text);
	if (o->refusals)
		add_refusals(r, o->refusals, &text);
	session_add_line(r->page, r->terminal, &text, c.lost || c.stacks || c.rows || c.unrecorded);
	buf_release(&text);
}

/* The line that says how far we are goes away for what comes next. */
static void wipe_slow(struct report *r)
{
	static const char wipe[] = "\r\033[K";

	if (r->slow)
		report_print(r, wipe, sizeof(wipe) - 1);
	r->slow = false;
}

static void report_memory(void *state, const struct consumer_report *now)
{
	struct state *s = state;

	wipe_slow(&s->report);
	if (!s->outputs.silent && !now->removed)
		report_findings(&s->report, s->outputs.diagnose);
	report_close(&s->report, now, &s->outputs);
}

/* How far it is, and once that can be guessed, how long it will take. */
static void add_share(struct report *r, uint64_t done, uint64_t all, struct buf *text)
{
	uint64_t now_ns = clock_mono_ns();

	buf_addf(text, ": %u %% done", (unsigned)(100 * done / all));
	if (!r->slow_ns || done < r->slow_bytes) {
		r->slow_ns = now_ns;
		r->slow_bytes = done;
	}
	if (done == r->slow_bytes)
		return;
	double rest_s = (double)(now_ns - r->slow_ns) / 1e9 * (double)(all - done) /
			(double)(done - r->slow_bytes);
	buf_addf(text, ", about %.0f s left", rest_s + 0.5);
}

static void show_slow(void *state, uint64_t read_bytes, uint64_t all_bytes)
{
	struct state *s = state;
	uint64_t done = read_bytes, all = all_bytes;
	struct buf text = {0};

	buf_add_str(&text, "\r\033[K" TAG "Info: the job has ended; still writing the files");
	if (done == all)
		diagnose_amended(s->outputs.diagnose, &done, &all);
	if (done < all)
		add_share(&s->report, done, all, &text);
	report_print(&s->report, text.data, text.len);
	s->report.slow = true;
	buf_release(&text);
}

static int rewrite_dumps(const char *recording, const struct buf *session, const char *below,
			 struct buf *report_text, struct err *err)
{
	struct buf refused = {0}, shown = {0}, notes = {0};
	struct mem_config cfg;

	mem_config_init(&cfg, NULL);
	if (session->len)
		mem_config_parse(session->data, session->len, &cfg, NULL);
	if (cfg.format == MEM_NONE)
		return 0;
	struct outputs_export options = {
		.format = mem_format_name(cfg.format),
		.output_dir = session->len ? cfg.output_dir : below,
		.compat = cfg.compat,
		.as_recorded = true,
		.below = below,
		.out_refused = &refused,
		.out_notes = &notes,
	};
	int r = outputs_export(recording, &options, err);
	if (r == 0)
		buf_addf(report_text, "The dumps in '%s' have been written anew.\n%s", below,
			 buf_str(&notes));
	if (r == 0 && refused.len) {
		text_add_printable(&shown, refused.data, refused.len);
		buf_addf(report_text,
			 "The recording says that dumps belong to '%s'. That is outside of '%s', "
			 "where they are now: --output-path=%s writes them there.\n",
			 buf_str(&shown), below, buf_str(&shown));
	}
	buf_release(&refused);
	buf_release(&shown);
	buf_release(&notes);
	return r;
}

const struct consumer_ops memory_consumer = {
	.name = "memory",
	.stream = &track_stream,
	.open = open_memory,
	.close = close_memory,
	.tick = flush_if_due,
	.poll = poll_samples,
	.settle = settle_samples,
	.flush = flush_outputs,
	.is_amending = is_amending,
	.add_losses = add_losses,
	.report = report_memory,
	.show_slow = show_slow,
	.rewrite = rewrite_dumps,
};
