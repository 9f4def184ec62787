/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A source read by a thread of its own, with a driver that fails, hangs or is not there. */
#include "daemon/metrics/metrics_impl.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/background.h"
#include "daemon/daemon.h"
#include "test.h"

static _Atomic int open_result, rounds, pauses;
static _Atomic bool hangs;
static _Atomic int closed;

static int fake_open(void **out, const struct metrics_options *o, struct err *err)
{
	(void)o;
	*out = &rounds;
	return open_result < 0 ? err_set(err, open_result, "no such thing") : 0;
}

static int fake_read(void *self, sample_fn fn, void *arg, struct err *err)
{
	struct metric m = {.name = "uptime", .type = METRIC_INT, .i = ++rounds};
	struct sample s = {.source = "fake", .device = 3, .metrics = &m, .n = 1};

	(void)self;
	while (hangs)
		usleep(1000);
	fn(arg, &s);
	return rounds == 2 ? err_set(err, -EIO, "the second one fails") : 0;
}

static int fake_pause(void *self, bool paused)
{
	(void)self;
	pauses += paused ? 1 : 100;
	return 0;
}

static void fake_close(void *self)
{
	(void)self;
	closed++;
}

static const struct metrics_source fake = {.name = "fake",
					   .open = fake_open,
					   .read = fake_read,
					   .pause = fake_pause,
					   .close = fake_close};

static struct event_base *base;
static int64_t seen;

static void on_sample(void *arg, const struct sample *s)
{
	(void)arg;
	CHECK_INT(s->device, 3);
	CHECK_STR(s->metrics[0].name, "uptime");
	seen = s->metrics[0].i;
	event_base_loopbreak(base);
}

static struct reader *start(void)
{
	struct reader_options o = {.source = &fake, .interval_s = 1000, .fn = on_sample};
	struct reader *r;
	struct err err;

	base = event_base_new();
	event_base_priority_init(base, DAEMON_PRIORITIES);
	CHECK(reader_new(base, &o, &r, &err) == 0);
	return r;
}

static void wait_state(struct reader *r, enum reader_state state)
{
	for (int i = 0; i < 5000 && reader_info(r).state != state; i++)
		usleep(1000);
	CHECK_STR(reader_state_text(reader_info(r).state), reader_state_text(state));
}

TEST(metrics_reader, samples_come_to_the_loop)
{
	struct reader *r = start();

	event_base_dispatch(base);
	CHECK_INT(seen, 1);
	/* a change of the counters is made at once, with a round */
	CHECK(reader_pause(r, true));
	event_base_dispatch(base);
	CHECK_INT(seen, 2);
	CHECK_INT(pauses, 1);
	CHECK(reader_pause(r, false));
	event_base_dispatch(base);
	CHECK_INT(pauses, 101);
	struct reader_info i = reader_info(r);
	CHECK_INT(i.failures, 1);
	CHECK_STR(i.why, "the second one fails");
	reader_free(r);
	CHECK_INT(background_wait(NULL, 10000), 0);
	CHECK_INT(closed, 1);
	event_base_free(base);
}

TEST(metrics_reader, no_hardware)
{
	open_result = -ENOENT;
	struct reader *r = start();
	wait_state(r, READER_ABSENT);
	CHECK(!reader_pause(r, true));
	reader_free(r);
	open_result = -EACCES;
	event_base_free(base);
	r = start();
	wait_state(r, READER_FAILED);
	CHECK_STR(reader_info(r).why, "no such thing");
	reader_free(r);
	CHECK_INT(background_wait(NULL, 10000), 0);
	CHECK_INT(closed, 0);
	event_base_free(base);
}

TEST(metrics_reader, a_driver_that_hangs_holds_up_nobody)
{
	hangs = true;
	struct reader *r = start();
	wait_state(r, READER_WORKS);
	for (int i = 0; i < 5000 && reader_info(r).round_s <= 0; i++)
		usleep(1000);
	CHECK(reader_info(r).round_s > 0);
	CHECK_INT(event_base_loop(base, EVLOOP_NONBLOCK), 0);
	reader_free(r); /* comes back, though the thread does not */
	CHECK_INT(closed, 0);
	hangs = false;
	for (int i = 0; i < 5000 && !closed; i++)
		usleep(1000);
	CHECK_INT(closed, 1); /* it comes back in the end, and tidies up behind itself */
	event_base_free(base);
}
