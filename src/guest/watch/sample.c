/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Looks at watched blocks: which of them a thread can reach, and what it tells of them. */
#include "guest/watch/watch.h"

#include "guest/watch/slots.h"

#include <string.h>

#define HELD 8u

/* A look that waits for the name of its kernel. */
struct held {
	uint64_t checksum, content;
	uint32_t id, error;
	uint8_t slot, content_errno;
};

static __thread struct {
	uint8_t n;
	struct held list[HELD];
} kept __attribute__((tls_model("initial-exec")));

_Static_assert(WATCH_SLOTS <= 256, "slot is a byte");

static void put_sample(struct slot *slot, const struct watched *s, const struct watch_edge *e,
		       const struct watch_look *look)
{
	uint32_t seq = watch_slot_next(slot, s->id);
	size_t nop = strnlen(e->op, SESSION_NAME_BYTES - 1);
	size_t nname = strnlen(s->name, SESSION_NAME_BYTES - 1);
	uint16_t len = (uint16_t)(nop + 1 + nname);
	uint16_t size = rec_size(sizeof(struct rec_watch), len);
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_watch *r = seq ? guest_reserve(size) : NULL;

	if (!r)
		watch_look_drop(look);
	if (r) {
		memset(r, 0, size);
		r->head = (struct rec){REC_WATCH, 0, size, 0, ns};
		r->addr = s->addr;
		r->size_bytes = s->bytes;
		r->checksum = look->checksum;
		r->content = look->content;
		r->watch = s->id;
		r->seq = seq;
		r->call = e->call;
		r->watched_call = s->watched_call;
		r->output = s->output;
		r->error = look->error;
		r->device = s->device;
		r->len = len;
		r->after = e->after;
		r->content_errno = look->content_errno;
		r->last = atomic_load(&slot->left) == 0;
		memcpy(r->text, e->op, nop);
		memcpy(r->text + nop + 1, s->name, nname);
		guest_publish(size);
	}
	guest_unhold(held);
}

/* Whose memory can be looked at right now. */
struct reach {
	bool device, host;
	uint16_t number; /* of the device */
};

static bool is_in_reach(const struct watched *v, const struct reach *in)
{
	if (v->device == DEV_HOST)
		return in->host;
	return in->device && (v->device == in->number || v->device == DEV_NONE);
}

/* The look at one slot; false: nothing to tell. */
static bool look_at(struct slot *s, const struct reach *in, struct watched *out_watched,
		    struct watch_look *out)
{
	struct watched *w = out_watched;

	if (!watch_slot_copy(s, w, WATCHED_WORDS) || !is_in_reach(w, in) || !watch_slot_use(s) ||
	    !watch_slot_enter(s, w->id))
		return false;
	struct watch_block block = {w->addr, w->bytes, &s->id, w->id, w->device == DEV_HOST};
	watch_look(&block, watch_settings().content, out);
	watch_slot_leave(s);
	if (atomic_load(&s->id) != w->id) { /* freed meanwhile */
		watch_look_drop(out);
		return false;
	}
	if (w->device == DEV_NONE)
		w->device = in->number;
	return true;
}

/* Is there something to look at, and is all work done that could change it? */
static bool find_reach(uint16_t device, bool host, struct reach *out)
{
	struct reach in = {device < WATCH_DEVICES, host, device}, found = {.number = device};

	if (!atomic_load(&watch_slots_live) || watch_is_over())
		return false;
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		struct watched v;
		if (!watch_slot_copy(&watch_slots[i], &v, WATCHED_HEAD) || !is_in_reach(&v, &in))
			continue;
		*(v.device == DEV_HOST ? &found.host : &found.device) = true;
	}
	found.device = found.device && watch_device->wait() == 0;
	*out = found;
	return found.device || found.host;
}

void watch_sample(const struct watch_edge *e, bool host)
{
	struct watch_look look;
	struct watched v;
	struct reach in;

	if (!find_reach(e->device, host, &in))
		return;
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		if (!look_at(&watch_slots[i], &in, &v, &look))
			continue;
		put_sample(&watch_slots[i], &v, e, &look);
		if (look.error)
			watch_slot_drop(&watch_slots[i], v.id); /* not again at every edge */
	}
}

/* --- looks that are told later --- */

/* Those of a launch that was left in the middle. */
static void drop_held(void)
{
	for (uint8_t i = 0; i < kept.n; i++) {
		struct watch_look look = {.content = kept.list[i].content};

		watch_look_drop(&look);
	}
	kept.n = 0;
}

void watch_hold(uint16_t device)
{
	struct watch_look look;
	struct watched v;
	struct reach in;

	drop_held();
	if (!find_reach(device, false, &in))
		return;
	for (uint32_t i = 0; i < WATCH_SLOTS && kept.n < HELD; i++) {
		if (!look_at(&watch_slots[i], &in, &v, &look))
			continue;
		kept.list[kept.n++] = (struct held){
			.checksum = look.checksum,
			.content = look.content,
			.id = v.id,
			.error = look.error,
			.slot = (uint8_t)i,
			.content_errno = look.content_errno,
		};
	}
}

void watch_tell_held(const struct watch_edge *e)
{
	for (uint8_t i = 0; i < kept.n; i++) {
		const struct held *h = &kept.list[i];
		struct slot *s = &watch_slots[h->slot];
		struct watched v;
		struct watch_look look = {h->checksum, h->content, h->error, h->content_errno};
		if (!watch_slot_copy(s, &v, WATCHED_WORDS) || v.id != h->id) {
			watch_look_drop(&look);
			continue;
		}
		if (v.device == DEV_NONE)
			v.device = e->device;
		put_sample(s, &v, e, &look);
		if (h->error)
			watch_slot_drop(s, h->id);
	}
	kept.n = 0;
}

void watch_forget_held(void)
{
	kept.n = 0;
}
