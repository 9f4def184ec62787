/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/windows/marks.h"

#include "base/mem.h"

#include <stdlib.h>

#define INSTANTS (ACTIVITY_MARK_INSTANT | ACTIVITY_MARK_INSTANT_DEVICE)
#define STARTS (ACTIVITY_MARK_START | ACTIVITY_MARK_START_DEVICE)
#define ENDS (ACTIVITY_MARK_END | ACTIVITY_MARK_END_DEVICE)
#define WITH_DEVICE (ACTIVITY_MARK_INSTANT_DEVICE | ACTIVITY_MARK_START_DEVICE)

/* One side of a mark: the host's or the device's. */
struct mark_part {
	uint64_t start_ns, end_ns;
	uint32_t where[2];
	bool started, ended, reported;
};

struct mark {
	struct mark *older, *newer; /* or the next unused one */
	uint64_t id;
	const char *name, *domain; /* of the host's beginning */
	struct mark_part part[2]; /* by enum activity_place */
	uint8_t flag; /* of the host's beginning; 0: it has not come */
	bool keep;
};

bool mark_opens(const struct activity *raw)
{
	return raw->place == ACTIVITY_ON_HOST && raw->flag & (INSTANTS | STARTS);
}

/* --- the open ones, in order of age --- */

static void unlink_mark(struct marks *m, struct mark *k)
{
	*(k->older ? &k->older->newer : &m->oldest) = k->newer;
	*(k->newer ? &k->newer->older : &m->newest) = k->older;
}

static void remove_mark(struct marks *m, struct mark *k)
{
	unlink_mark(m, k);
	hmap_remove(&m->open, k->id);
	k->newer = m->unused;
	m->unused = k;
}

static struct mark *add_mark(struct marks *m, uint64_t id)
{
	if (m->open.count >= MARKS_OPEN_MAX) {
		m->dropped++;
		remove_mark(m, m->oldest);
	}
	struct mark *k = m->unused;
	if (k)
		m->unused = k->newer;
	else
		k = xmalloc(sizeof(*k));
	*k = (struct mark){.id = id, .older = m->newest};
	*(m->newest ? &m->newest->newer : &m->oldest) = k;
	m->newest = k;
	hmap_put_ptr(&m->open, id, k);
	return k;
}

/* --- */

static void report_part(const struct mark *k, uint8_t place, marks_fn *fn, void *arg)
{
	const struct mark_part *p = &k->part[place];
	bool host = place == ACTIVITY_ON_HOST;
	struct activity a = {
		.kind = ACTIVITY_MARKER,
		.place = place,
		.flag = k->flag,
		.correlation = k->id,
		.name = k->name,
		.detail = k->domain,
		.more = "",
		.start_ns = p->start_ns,
		.end_ns = p->end_ns > p->start_ns ? p->end_ns : p->start_ns,
		.pid = host ? p->where[0] : 0,
		.tid = host ? p->where[1] : 0,
		.device = host ? ACTIVITY_NOWHERE : p->where[0],
		.stream = host ? ACTIVITY_NOWHERE : p->where[1],
	};

	if (k->keep)
		fn(arg, &a);
}

/* Tells what is complete by now; true: nothing more can come. */
static bool report_mark(struct mark *k, marks_fn *fn, void *arg)
{
	if (!k->flag)
		return false; /* it has no name yet, and nobody knows if it is wanted */
	for (uint8_t place = 0; place < 2; place++) {
		struct mark_part *p = &k->part[place];
		if (!p->started || !p->ended || p->reported)
			continue;
		p->reported = true;
		report_part(k, place, fn, arg);
	}
	return k->part[ACTIVITY_ON_HOST].reported &&
	       (k->part[ACTIVITY_ON_DEVICE].reported || !(k->flag & WITH_DEVICE));
}

static void note_moment(struct mark *k, const struct activity *raw, bool keep)
{
	struct mark_part *p = &k->part[raw->place];

	if (raw->flag & (INSTANTS | STARTS)) {
		bool host = raw->place == ACTIVITY_ON_HOST;

		p->start_ns = raw->start_ns;
		p->where[0] = host ? raw->pid : raw->device;
		p->where[1] = host ? raw->tid : raw->stream;
		p->started = true;
		if (host) {
			k->flag = raw->flag;
			k->keep = keep;
			k->name = raw->name;
			k->domain = raw->detail;
		}
	}
	if (raw->flag & (INSTANTS | ENDS)) {
		p->end_ns = raw->start_ns;
		p->ended = true;
	}
}

void marks_add(struct marks *m, const struct activity *raw, bool keep, marks_fn *fn, void *arg)
{
	uint8_t flag = raw->flag;

	/* exactly one bit of those that there are */
	if (!flag || flag & (flag - 1) || flag > ACTIVITY_MARK_END_DEVICE ||
	    raw->place > ACTIVITY_ON_DEVICE) {
		m->malformed++;
		return;
	}
	struct mark *k = hmap_get_ptr(&m->open, raw->correlation);
	/* Another one with an id that has been used before. */
	if (k && flag & (INSTANTS | STARTS) && k->part[raw->place].started) {
		m->dropped++;
		remove_mark(m, k);
		k = NULL;
	}
	if (!k && flag == ACTIVITY_MARK_INSTANT && raw->place == ACTIVITY_ON_HOST) {
		struct mark instant = {.id = raw->correlation};
		note_moment(&instant, raw, keep);
		report_mark(&instant, fn, arg);
		return;
	}
	if (!k)
		k = add_mark(m, raw->correlation);
	note_moment(k, raw, keep);
	if (report_mark(k, fn, arg))
		remove_mark(m, k);
}

void marks_texts(const struct marks *m, void (*fn)(void *arg, const char *text), void *arg)
{
	for (const struct mark *k = m->oldest; k; k = k->newer) {
		if (!k->flag)
			continue;
		fn(arg, k->name);
		fn(arg, k->domain);
	}
}

void marks_clear(struct marks *m)
{
	while (m->oldest) {
		m->dropped++;
		remove_mark(m, m->oldest);
	}
}

void marks_release(struct marks *m)
{
	marks_clear(m);
	while (m->unused) {
		struct mark *k = m->unused;
		m->unused = k->newer;
		free(k);
	}
	hmap_release(&m->open);
	m->oldest = m->newest = NULL;
}
