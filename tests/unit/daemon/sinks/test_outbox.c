/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/sinks/outbox.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/containers/buf.h"
#include "test.h"

struct receiver {
	struct outbox *outbox;
	_Atomic bool waits; /* as for an answer that does not come */
	_Atomic int entered, ended;
	int result;
	struct buf got;
};

static int deliver(void *arg, const struct outbox_item *items, struct err *err)
{
	struct receiver *r = arg;

	r->entered++;
	if (r->waits) {
		struct pollfd end = {outbox_end_fd(r->outbox), POLLIN, 0};

		poll(&end, 1, -1);
		return err_set(err, -ECANCELED, "no more time");
	}
	for (; items; items = items->next)
		buf_add(&r->got, items->data, items->bytes);
	return r->result < 0 ? err_set(err, r->result, "refused") : 0;
}

static void end(void *arg)
{
	((struct receiver *)arg)->ended = 1;
}

static _Atomic uint64_t delivered, dropped;

static void start(struct receiver *r, unsigned max_items)
{
	struct outbox_options o = {.name = "a test",
				   .max_items = max_items,
				   .delivered = &delivered,
				   .dropped = &dropped,
				   .deliver = deliver,
				   .end = end,
				   .arg = r};
	struct err err;

	CHECK(outbox_new(&o, &r->outbox, &err) == 0);
}

static void finish(struct receiver *r)
{
	outbox_free(r->outbox);
	CHECK(background_wait(NULL, 10000) == 0);
}

TEST(sink_outbox, everything_in_order_before_the_end)
{
	struct receiver r = {0};

	start(&r, 1000);
	for (int i = 0; i < 600; i++)
		outbox_put(r.outbox, "abc", 3);
	finish(&r);
	CHECK(r.ended && r.got.len == 1800 && !memcmp(r.got.data, "abcabc", 6));
	CHECK_INT(delivered, 600);
	CHECK_INT(dropped, 0);
	buf_release(&r.got);
}

TEST(sink_outbox, a_silent_receiver_costs_a_bounded_queue)
{
	struct receiver r = {.waits = true};

	start(&r, 5);
	outbox_put(r.outbox, "x", 1);
	while (!r.entered)
		usleep(1000);
	for (int i = 0; i < 100; i++)
		outbox_put(r.outbox, "x", 1);
	CHECK_INT(dropped, 95);
	uint64_t began = clock_mono_ns();
	outbox_free(r.outbox); /* waits for nobody */
	CHECK(clock_mono_ns() - began < 500000000);
	CHECK(background_wait(NULL, 10000) == 0 && r.ended); /* gives up after a second */
	CHECK_INT(delivered + dropped, 101);
}

TEST(sink_outbox, bytes_are_bounded_too)
{
	size_t bytes = OUTBOX_BYTES / 2 + 1;
	char *big = calloc(1, bytes);
	struct receiver r = {.waits = true};

	CHECK(big);
	start(&r, 100);
	outbox_put(r.outbox, big, 1);
	while (!r.entered)
		usleep(1000);
	outbox_put(r.outbox, big, bytes);
	CHECK_INT(dropped, 0);
	outbox_put(r.outbox, big, bytes);
	CHECK_INT(dropped, 1);
	outbox_put(r.outbox, big, 1);
	CHECK_INT(dropped, 1);
	finish(&r);
	free(big);
}

TEST(sink_outbox, what_is_refused_for_good_is_not_tried_again)
{
	struct receiver r = {.result = -EBADMSG};

	start(&r, 100);
	outbox_put(r.outbox, "x", 1);
	finish(&r);
	CHECK_INT(r.entered, 1);
	CHECK_INT(dropped, 1);
	buf_release(&r.got);
}
