/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/processes/dropped.h"

#include <stdlib.h>

#include "formats/json_value.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/memory_words.h"

#define MAX_PEAKS 3

void dropped_release(struct dropped *d)
{
	free(d->peaks);
	*d = (struct dropped){0};
}

static uint64_t minus_or_zero(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* "Step 3", "steps 3 to 5", with the first letter said by the caller. */
static void describe_steps(uint64_t first, uint64_t last, struct buf *out)
{
	if (first == last)
		add_text(out, "tep {}", NUMBER(first));
	else
		add_text(out, "teps {} to {}", NUMBER(first), NUMBER(last));
}

static void describe_kept(const struct dropped *d, struct buf *out)
{
	uint64_t ns = minus_or_zero(d->newest_ns, d->cut.until_ns);

	add_text(out, " This answer covers ");
	if (d->last_step > d->cut.last_step) {
		add_text(out, "s");
		describe_steps(d->cut.last_step + 1, d->last_step, out);
		add_text(out, " ({})", DURATION(ns));
	} else {
		add_text(out, "the {} after that", DURATION(ns));
	}
	add_text(out, "; blocks that were allocated before and not freed until then are included.");
}

/* Of a device, the driver's memory; of the host, all of it. Pools are cut from these. */
static void describe_peaks(const struct dropped *d, struct buf *out)
{
	unsigned said = 0;

	for (size_t i = 0; i < d->npeaks && said < MAX_PEAKS; i++) {
		const struct dropped_peak *p = &d->peaks[i];
		if (!blocks_is_driver(p->type))
			continue;
		said++;
		add_text(out, "Before that, process {} held up to {} of ", NUMBER(p->pid),
			 BYTES(p->bytes));
		words_device(out, p->device, false);
		add_text(out, ", more than at any time since.\n");
	}
}

void dropped_text(const struct dropped *d, struct buf *out)
{
	const struct frame_cut *c = &d->cut;
	uint64_t ns = minus_or_zero(c->until_ns, c->from_ns);

	if (!d->yes)
		return;
	if (c->last_step) {
		add_text(out, "S");
		describe_steps(c->first_step ? c->first_step : 1, c->last_step, out);
		add_text(out, " ({}) {} dropped to keep ", DURATION(ns),
			 TEXT(c->last_step == c->first_step ? "was" : "were"));
	} else if (c->from_ns) {
		add_text(out, "The first {} were dropped to keep ", DURATION(ns));
	} else {
		add_text(out, "The oldest part was dropped to keep ");
	}
	if (c->limit_bytes)
		add_text(out, "the recording below {}.", BYTES(c->limit_bytes));
	else
		add_text(out, "only the newest part of the recording.");
	describe_kept(d, out);
	if (c->ended)
		add_text(out, " {} {} that had ended by then {} left out.", COUNT(c->ended),
			 TEXT(c->ended == 1 ? "process" : "processes"),
			 TEXT(c->ended == 1 ? "is" : "are"));
	if (c->limit_bytes && d->recording_bytes > c->limit_bytes)
		add_text(out,
			 " The recording has {}, more than its limit: what is alive takes much of "
			 "it, "
			 "or it "
			 "grew faster than its oldest part could be dropped.",
			 BYTES(d->recording_bytes));
	add_text(out, "\n");
	describe_peaks(d, out);
}

static json_t *peak_json(const struct dropped_peak *p)
{
	json_t *o = json_object();
	char device[16];

	put_number(o, "pid", p->pid);
	put_text(o, "device", blocks_device_name(p->device, device));
	put_text(o, "pool", words_pool(p->type));
	put_number(o, "bytes", p->bytes);
	put_number(o, "time_ns", p->time_ns);
	return o;
}

json_t *dropped_json(const struct dropped *d)
{
	const struct frame_cut *c = &d->cut;
	json_t *o, *peaks;

	if (!d->yes)
		return json_null();
	o = json_object();
	peaks = json_array();
	put_known(o, "limit_bytes", c->limit_bytes != 0, c->limit_bytes);
	put_number(o, "recording_bytes", d->recording_bytes);
	put_number(o, "times", c->cuts);
	put_known(o, "from_ns", c->from_ns != 0, c->from_ns);
	put_number(o, "until_ns", c->until_ns);
	put_known(o, "first_step", c->last_step != 0, c->first_step);
	put_known(o, "last_step", c->last_step != 0, c->last_step);
	put_number(o, "events", c->events);
	put_number(o, "ended_processes", c->ended);
	put_known(o, "kept_first_step", c->last_step != 0, c->last_step + 1);
	put_known(o, "kept_last_step", d->last_step > c->last_step, d->last_step);
	for (size_t i = 0; i < d->npeaks; i++)
		json_array_append_new(peaks, peak_json(&d->peaks[i]));
	json_object_set_new(o, "earlier_peaks", peaks);
	return o;
}
