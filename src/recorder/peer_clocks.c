/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * `sonde record` on several hosts: how far our clock is from that of another one, by round trips to its
 * daemon at the start, each minute and at the end. `sonde ctl clocks` makes them and keeps them in
 * clocks.json beside the recording, where `sonde timeline` finds them. It is a program of its own, since
 * a network may hang; without an answer the collectives of the job have to do.
 */
#define LOG_AREA "recorder"
#include "base/background.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/subprocess.h"
#include "base/text/printable.h"
#include "formats/clock_file.h"
#include "recorder/consumer.h"
#include "recorder/session.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "/proc/self/exe"
#define THREAD_NAME "clocks of other hosts"
#define EVERY_NS (60 * 1000000000ull)
#define CONFIG_BYTES (1u << 20)
#define MEASURE_MS 6000 /* and at the end of the job, if there were answers before: */
#define LAST_MS 1500
#define LEAVE_MS 200 /* for a thread that is about to end */

struct peer_clocks {
	struct control_page *page;
	const char *dir;
	bool terminal, said;
	char *hosts, *certs, *file; /* as `sonde ctl` takes them; hosts NULL: nobody is asked */
	uint64_t next_ns;
	pthread_mutex_t lock; /* what follows is its own and the thread's */
	bool running;
	unsigned measured;
	char why[160]; /* the last time was in vain; "" */
};

static char *text_in(const json_t *root, const char *key)
{
	const char *text = json_string_value(json_object_get(root, key));

	return text && *text ? xstrdup(text) : NULL;
}

static int open_clocks(const struct recorder_session *session, struct consumer *out,
		       struct err *err)
{
	struct peer_clocks *p = xcalloc(1, sizeof(*p));
	char *path = xasprintf("%s/" SESSION_CONFIG, session->dir);
	struct buf text = {0};
	json_t *root = NULL;

	(void)err;
	p->page = session->page;
	p->dir = session->dir;
	p->terminal = session->terminal;
	pthread_mutex_init(&p->lock, NULL);
	if (p->page->record.on && fs_read_file(path, CONFIG_BYTES, &text, NULL) == 0)
		root = json_loadb(buf_str(&text), text.len, 0, NULL);
	p->hosts = text_in(root, "clockHosts");
	p->certs = text_in(root, "clockCerts");
	p->file = xasprintf("%s/" CLOCK_FILE_NAME, session->dir);
	json_decref(root);
	buf_release(&text);
	free(path);
	out->state = p;
	return 0;
}

/* A thread that hangs goes on with it. */
static void close_clocks(void *state)
{
	struct peer_clocks *p = state;

	if (background_wait(THREAD_NAME, LEAVE_MS))
		return;
	pthread_mutex_destroy(&p->lock);
	free(p->hosts);
	free(p->certs);
	free(p->file);
	free(p);
}

/* Whoever asks is one of the hosts, too: as a round trip that takes no time, by the recording's clock. */
static int add_own_clock(const struct peer_clocks *p, struct err *err)
{
	int64_t now_ns = (int64_t)clock_mono_ns();
	char host[256] = "";
	struct clock_trips trips = {0};

	gethostname(host, sizeof(host) - 1);
	if (!*host)
		return err_set(err, -EINVAL, "this host has no name");
	clock_trips_add(&trips,
			&(struct clock_trip){.by = clock_file_own_name(),
					     .host = host,
					     .label = "here",
					     .asked_ns = now_ns,
					     .answered_ns = now_ns,
					     .time_ns = now_ns + p->page->wall_minus_mono_ns});
	int r = clock_file_add(p->file, &trips, err);
	clock_trips_release(&trips);
	return r;
}

/* Has anybody answered since? */
static bool has_trip_since(const struct peer_clocks *p, uint64_t ns)
{
	struct clock_trips trips = {0};
	bool found = false;

	if (clock_file_read(p->file, &trips, NULL) == 0)
		for (size_t i = 0; i < trips.n; i++)
			found |= (uint64_t)trips.list[i].asked_ns >= ns;
	clock_trips_release(&trips);
	return found;
}

static void measure_once(struct peer_clocks *p, unsigned timeout_ms)
{
	static const char failed[] = "'" PROGRAM "' failed: sonde ctl clocks: ";
	uint64_t began_ns = clock_mono_ns();
	const char *argv[] = {
		PROGRAM,      "ctl",	"clocks", "--timeout", "3",
		"--hostname", p->hosts, "-o",	  p->file,     p->certs ? "--certs-dir" : NULL,
		p->certs,     NULL};
	const struct run_options o = {.timeout_ms = timeout_ms, .max_bytes = 1u << 20};
	struct buf printed = {0};
	struct err err = {0};
	int r = run_program(argv, &o, &printed, &err);

	/* of several hosts it fails for one */
	if (has_trip_since(p, began_ns))
		r = add_own_clock(p, &err);
	else if (r == 0)
		r = err_set(&err, -EPROTO, "it answers without a time");
	const char *why = r == 0 ? "" : err.text;
	if (!strncmp(why, failed, sizeof(failed) - 1))
		why += sizeof(failed) - 1;
	pthread_mutex_lock(&p->lock);
	p->measured += r == 0;
	snprintf(p->why, sizeof(p->why), "%.159s", why);
	p->running = false;
	pthread_mutex_unlock(&p->lock);
	buf_release(&printed);
}

static void measure_beside(void *arg)
{
	measure_once(arg, MEASURE_MS);
}

/* False: the one before has not ended. */
static bool begin_to_measure(struct peer_clocks *p)
{
	pthread_mutex_lock(&p->lock);
	bool begins = !p->running;
	p->running = true;
	pthread_mutex_unlock(&p->lock);
	return begins;
}

static void tick_clocks(void *state, uint64_t now_ns)
{
	struct peer_clocks *p = state;

	if (!p->hosts || now_ns < p->next_ns || !begin_to_measure(p))
		return;
	p->next_ns = now_ns + EVERY_NS;
	if (background_run(THREAD_NAME, measure_beside, p) == 0)
		return;
	pthread_mutex_lock(&p->lock);
	p->running = false;
	pthread_mutex_unlock(&p->lock);
}

/* The job waits for us: where nobody has answered so far, nobody is asked. */
static void measure_last(struct peer_clocks *p)
{
	const struct timespec moment = {0, 10000000};
	bool begins = begin_to_measure(p);

	for (unsigned i = 0; i < LAST_MS / 10 && !begins; i++) {
		nanosleep(&moment, NULL);
		begins = begin_to_measure(p);
	}
	if (begins && p->measured)
		measure_once(p, LAST_MS);
}

static void answer_clocks(const struct peer_clocks *p, unsigned measured, const char *why)
{
	session_answer(p->dir, json_pack("{s:{s:s,s:i,s:s?}}", "clocks", "hosts", p->hosts,
					 "measured", (int)measured, "why", *why ? why : NULL));
}

static void report_clocks(void *state, const struct consumer_report *now)
{
	struct peer_clocks *p = state;
	struct buf text = {0}, why = {0};

	if (!p->hosts || now->removed || now->running || p->said)
		return;
	p->said = true;
	measure_last(p);
	pthread_mutex_lock(&p->lock);
	unsigned measured = p->measured;
	text_add_printable(&why, p->why, strlen(p->why));
	pthread_mutex_unlock(&p->lock);
	answer_clocks(p, measured, buf_str(&why));
	if (measured)
		buf_addf(&text,
			 "sonde record: the clock of this host was compared with that of %s %u "
			 "time%s.\n",
			 p->hosts, measured, measured == 1 ? "" : "s");
	else
		buf_addf(&text,
			 "sonde record: the clock of this host could not be compared with that of "
			 "%s (%s): on one timeline only the collectives of the job say how far "
			 "clocks are apart.\n",
			 p->hosts, why.len ? buf_str(&why) : "no daemon has answered yet");
	session_add_line(p->page, p->terminal, &text, false);
	buf_release(&text);
	buf_release(&why);
}

static const struct stream_ops listener = {0}; /* no record is about it */

const struct consumer_ops clocks_consumer = {
	.name = "clocks",
	.stream = &listener,
	.open = open_clocks,
	.close = close_clocks,
	.tick = tick_clocks,
	.report = report_clocks,
};
