/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The request of npu-monitor that is being carried out, so that it can go on in another session:
 * its recorder was killed, or the program has begun to record memory. How often that is tried is
 * limited: what killed a recorder may be waiting for the next one.
 */
#include "guest/monitor/monitor_impl.h"

#include "guest/collect/collect.h"

#include <string.h>

#define TRIES 4
#define PAUSE_NS (1000 * MS_NS) /* before the second, four of them before the third, nine … */
#define CALM_NS (600000 * MS_NS) /* after so long, whatever it was is over */

struct kept {
	char text[REQUEST_MAX_BYTES];
	size_t len;
};

static struct {
	struct kept request, change;
	uint64_t tries, tried_ns;
	uint64_t since_ns; /* when it was requested */
} kept;

static void keep_text(struct kept *k, const char *text, size_t len)
{
	k->len = len <= sizeof(k->text) ? len : 0;
	memcpy(k->text, text, k->len);
}

uint64_t renew_first(const char *text, size_t len)
{
	keep_text(&kept.request, text, len);
	kept.change.len = 0;
	kept.tries = 0;
	kept.since_ns = guest_now();
	uint64_t window = window_open(text, len, 0);
	(void)collect_lost_with_recorder(); /* of windows before this one */
	return window;
}

void renew_change(uint64_t window, const char *text, size_t len)
{
	keep_text(&kept.change, text, len);
	window_change(window, text, len);
}

uint64_t renew_again(void)
{
	uint64_t window = kept.request.len
				  ? window_open(kept.request.text, kept.request.len, kept.since_ns)
				  : 0;

	if (window && kept.change.len)
		window_change(window, kept.change.text, kept.change.len);
	return window;
}

/* Pauses of 0, 1, 4, 9 seconds; ten calm minutes, and the count begins anew. */
enum renewal renew_when(uint64_t now_ns)
{
	if (!collect_is_monitors())
		return RENEW_NEVER;
	if (kept.tries && now_ns > kept.tried_ns + CALM_NS)
		kept.tries = 0;
	if (kept.tries == TRIES)
		return RENEW_NEVER;
	if (kept.tries && now_ns < kept.tried_ns + kept.tries * kept.tries * PAUSE_NS)
		return RENEW_LATER;
	kept.tries++;
	kept.tried_ns = now_ns;
	return RENEW_NOW;
}

/* For the job's stderr, and for who sent the request. */
void renew_give_up(void)
{
	const char *why =
		collect_is_monitors()
			? "npu-monitor has ended: its recorder was killed, again and again"
			: "npu-monitor has ended: the recorder of this job's recording "
			  "was killed; 'sonde mem recover' finishes its files";

	print_notice(why, NULL, NULL, NULL);
	const struct kept *last = kept.change.len ? &kept.change : &kept.request;
	send_answer(last->text, last->len, false, why);
}

void renew_report_lost(uint64_t window, bool goes_on)
{
	char number[24];
	struct text t = {number, number + sizeof(number)};
	uint64_t lost = collect_lost_with_recorder();

	text_number(&t, (int64_t)lost);
	if (lost)
		collect_monitor(MONITOR_LOST, window, lost, environment.rank, NULL, 0);
	print_notice("the recorder of this process was killed: ",
		     goes_on ? "npu-monitor goes on with another one; " : "", number,
		     " activities are lost");
}
