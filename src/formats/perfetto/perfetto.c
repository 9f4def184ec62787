/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/perfetto/perfetto.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "formats/protobuf.h"

#define FLUSH_BYTES (256u << 10)
#define TEXT_BYTES 4096 /* of a name or a text; the rest is cut off */
#define NAMES_MAX (1u << 16) /* of a track; then they are forgotten and begin anew */

/* Fields of the messages, as Perfetto numbers them. */
enum { TRACE_PACKET = 1 };
enum packet_field {
	PACKET_CLOCK_SNAPSHOT = 6,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE = 10,
	PACKET_TRACK_EVENT = 11,
	PACKET_INTERNED = 12,
	PACKET_SEQUENCE_FLAGS = 13,
	PACKET_CLOCK = 58,
	PACKET_DEFAULTS = 59,
	PACKET_TRACK = 60,
};
enum { SEQUENCE_CLEARED = 1 };
enum { CLOCK_REALTIME_ID = 1, CLOCK_BOOTTIME_ID = 6, CLOCK_OWN_ID = 64 };
enum event_field {
	EVENT_ANNOTATION = 4,
	EVENT_TYPE = 9,
	EVENT_NAME_IID = 10,
	EVENT_COUNTER = 30,
	EVENT_DOUBLE_COUNTER = 44,
	EVENT_FLOW = 47,
};
enum event_type { TYPE_BEGIN = 1, TYPE_END = 2, TYPE_INSTANT = 3, TYPE_COUNTER = 4 };
enum interned_field { INTERNED_NAMES = 2, INTERNED_KEYS = 3, INTERNED_TEXTS = 29 };

struct track {
	bool begun; /* its clock and its defaults are written */
	uint64_t last_ns; /* time of its newest event */
	struct hmap names, keys, texts; /* address to number */
	uint64_t next_iid;
};

struct perfetto_trace {
	int fd;
	gzFile gz;
	char *path;
	int failed; /* errno; reported at the end */
	struct buf out, packet, event, inner, interned, part;
	struct track *tracks; /* the first is not used */
	size_t n, cap;
	uint64_t bytes;
	bool has_realtime; /* somewhere it says that the viewer's clock is the wall clock */
};

int perfetto_trace_new(const char *path, bool gzip, struct perfetto_trace **out, struct err *err)
{
	int fd = fs_open_output(path, O_CREAT | O_TRUNC, 0644, err);
	struct perfetto_trace *t;

	if (fd < 0)
		return fd;
	t = xcalloc(1, sizeof(*t));
	t->fd = fd;
	t->path = xstrdup(path);
	if (gzip) {
		t->gz = gzdopen(fd, "wb1");
		BUG_ON(!t->gz);
	}
	t->tracks = xgrow(t->tracks, &t->cap, 1, sizeof(*t->tracks));
	t->n = 1;
	*out = t;
	return 0;
}

static void flush_out(struct perfetto_trace *t)
{
	if (!t->failed && t->out.len) {
		if (t->gz)
			t->failed =
				gzwrite(t->gz, t->out.data, (unsigned)t->out.len) <= 0 ? EIO : 0;
		else
			t->failed = -fs_write_all(t->fd, t->out.data, t->out.len, FS_HERE, NULL);
	}
	t->bytes += t->out.len;
	buf_clear(&t->out);
}

int perfetto_trace_close(struct perfetto_trace *t, struct err *err)
{
	int r;

	flush_out(t);
	r = t->gz ? gzclose(t->gz) != Z_OK : close(t->fd) < 0;
	if (r && !t->failed)
		t->failed = EIO;
	r = t->failed ? err_sys(err, -t->failed, "cannot write '%s'", t->path) : 0;
	for (size_t i = 1; i < t->n; i++) {
		hmap_release(&t->tracks[i].names);
		hmap_release(&t->tracks[i].keys);
		hmap_release(&t->tracks[i].texts);
	}
	free(t->tracks);
	buf_release(&t->out);
	buf_release(&t->packet);
	buf_release(&t->event);
	buf_release(&t->inner);
	buf_release(&t->interned);
	buf_release(&t->part);
	free(t->path);
	free(t);
	return r;
}

uint64_t perfetto_trace_bytes(const struct perfetto_trace *t)
{
	return t->bytes + t->out.len;
}

static void add_text(struct buf *to, unsigned field, const char *text)
{
	struct buf scratch = {0};
	size_t len = strnlen(text, TEXT_BYTES);
	const char *clean = text_clean(text, &len, &scratch);

	protobuf_add_bytes(to, field, clean, len);
	buf_release(&scratch);
}

static void add_packet(struct perfetto_trace *t)
{
	protobuf_add_part(&t->out, TRACE_PACKET, &t->packet);
	if (t->out.len > FLUSH_BYTES)
		flush_out(t);
}

/* --- tracks --- */

uint32_t perfetto_add_track(struct perfetto_trace *t, const struct perfetto_track *track)
{
	enum { UUID = 1, NAME = 2, PARENT = 5, COUNTER = 8, ORDERING = 11, ORDER = 12, MERGE = 15 };
	enum { COUNTER_UNIT = 3, UNIT_BYTES = 3, ORDERING_EXPLICIT = 3, MERGE_NONE = 2 };
	uint32_t number = (uint32_t)t->n;
	struct buf *d = &t->event;

	t->tracks = xgrow(t->tracks, &t->cap, t->n + 1, sizeof(*t->tracks));
	t->tracks[t->n++] = (struct track){0};
	protobuf_add_number(d, UUID, number);
	add_text(d, NAME, track->name);
	protobuf_add_number(d, PARENT, track->parent);
	if (track->kind == PERFETTO_COUNTER_BYTES)
		protobuf_add_number(&t->part, COUNTER_UNIT, UNIT_BYTES);
	if (track->kind != PERFETTO_PLAIN)
		protobuf_add_part(d, COUNTER, &t->part);
	protobuf_add_number(d, ORDERING, ORDERING_EXPLICIT);
	protobuf_add_number(d, ORDER, (uint64_t)(int64_t)track->order);
	protobuf_add_number(d, MERGE, MERGE_NONE);
	protobuf_add_number(&t->packet, PACKET_SEQUENCE, number);
	protobuf_add_part(&t->packet, PACKET_TRACK, d);
	add_packet(t);
	return number;
}

static void add_clock(struct perfetto_trace *t, uint64_t id, uint64_t time_ns, bool incremental)
{
	protobuf_add_number(&t->inner, 1, id);
	protobuf_add_number(&t->inner, 2, time_ns);
	protobuf_add_number(&t->inner, 3, incremental);
	protobuf_add_part(&t->event, 1, &t->inner);
}

/* The clock of the track, and what need not be said in its events. Times are those of the wall clock,
 * which the viewer takes for its own. */
static void begin_track(struct perfetto_trace *t, uint32_t number, uint64_t time_ns)
{
	struct track *track = &t->tracks[number];

	add_clock(t, CLOCK_BOOTTIME_ID, time_ns, false);
	if (!t->has_realtime)
		add_clock(t, CLOCK_REALTIME_ID, time_ns, false);
	t->has_realtime = true;
	add_clock(t, CLOCK_OWN_ID, time_ns, true);
	protobuf_add_number(&t->event, 2, CLOCK_BOOTTIME_ID);
	protobuf_add_number(&t->packet, PACKET_SEQUENCE, number);
	protobuf_add_number(&t->packet, PACKET_SEQUENCE_FLAGS, SEQUENCE_CLEARED);
	protobuf_add_part(&t->packet, PACKET_CLOCK_SNAPSHOT, &t->event);
	protobuf_add_number(&t->inner, 11, number);
	protobuf_add_part(&t->event, 11, &t->inner);
	protobuf_add_number(&t->event, 58, CLOCK_OWN_ID);
	protobuf_add_part(&t->packet, PACKET_DEFAULTS, &t->event);
	add_packet(t);
	hmap_release(&track->names);
	hmap_release(&track->keys);
	hmap_release(&track->texts);
	track->names = track->keys = track->texts = (struct hmap){0};
	track->next_iid = 1;
	track->begun = true;
	track->last_ns = time_ns;
}

/* The number of a text, which is sent with the next packet if it is new. */
static uint64_t intern_text(struct perfetto_trace *t, struct track *track, struct hmap *m,
			    enum interned_field field, const char *text)
{
	enum { IID = 1, TEXT = 2 };
	uint64_t found = hmap_get(m, (uintptr_t)text);

	if (found != HMAP_NONE)
		return found;
	protobuf_add_number(&t->part, IID, track->next_iid);
	add_text(&t->part, TEXT, text);
	protobuf_add_part(&t->interned, field, &t->part);
	hmap_put(m, (uintptr_t)text, track->next_iid);
	return track->next_iid++;
}

/* --- events --- */

static struct track *track_at(struct perfetto_trace *t, uint32_t number, uint64_t time_ns)
{
	struct track *track = &t->tracks[number];

	BUG_ON(!number || number >= t->n);
	if (!track->begun || track->next_iid > NAMES_MAX)
		begin_track(t, number, time_ns > track->last_ns ? time_ns : track->last_ns);
	return track;
}

/* The packet around the event that was put together. */
static void add_event(struct perfetto_trace *t, uint32_t number, uint64_t time_ns)
{
	struct track *track = &t->tracks[number];

	if (time_ns >= track->last_ns) {
		uint64_t delta = time_ns - track->last_ns;

		protobuf_add_varint(&t->packet, PACKET_TIMESTAMP << 3);
		protobuf_add_varint(&t->packet, delta);
		track->last_ns = time_ns;
	} else {
		protobuf_add_number(&t->packet, PACKET_TIMESTAMP, time_ns);
		protobuf_add_number(&t->packet, PACKET_CLOCK, CLOCK_BOOTTIME_ID);
	}
	protobuf_add_number(&t->packet, PACKET_SEQUENCE, number);
	if (t->interned.len)
		protobuf_add_part(&t->packet, PACKET_INTERNED, &t->interned);
	protobuf_add_part(&t->packet, PACKET_TRACK_EVENT, &t->event);
	add_packet(t);
}

static void add_arg(struct perfetto_trace *t, struct track *track, const struct chrome_arg *a,
		    bool plain)
{
	enum { NAME_IID = 1, INT = 4, DOUBLE = 5, TEXT = 6, TEXT_IID = 17 };

	if (a->type == CHROME_FLOAT && !isfinite(a->f))
		return;
	protobuf_add_number(&t->inner, NAME_IID,
			    intern_text(t, track, &track->keys, INTERNED_KEYS, a->key));
	if (a->type == CHROME_TEXT && plain) {
		add_text(&t->inner, TEXT, a->text);
	} else if (a->type == CHROME_TEXT) {
		protobuf_add_number(&t->inner, TEXT_IID,
				    intern_text(t, track, &track->texts, INTERNED_TEXTS, a->text));
	} else if (a->type == CHROME_FLOAT) {
		protobuf_add_double(&t->inner, DOUBLE, a->f);
	} else {
		protobuf_add_varint(&t->inner, INT << 3);
		protobuf_add_varint(&t->inner, (uint64_t)a->i);
	}
	protobuf_add_part(&t->event, EVENT_ANNOTATION, &t->inner);
}

static void add_named(struct perfetto_trace *t, const struct perfetto_event *e,
		      enum event_type type)
{
	struct track *track = track_at(t, e->track, e->time_ns);

	protobuf_add_number(&t->event, EVENT_TYPE, type);
	protobuf_add_number(&t->event, EVENT_NAME_IID,
			    intern_text(t, track, &track->names, INTERNED_NAMES, e->name));
	for (unsigned i = 0; i < e->nargs; i++)
		add_arg(t, track, &e->args[i], e->plain_texts);
	if (e->flow)
		protobuf_add_fixed64(&t->event, EVENT_FLOW, e->flow);
	add_event(t, e->track, e->time_ns);
}

void perfetto_begin(struct perfetto_trace *t, const struct perfetto_event *e)
{
	add_named(t, e, TYPE_BEGIN);
}

void perfetto_instant(struct perfetto_trace *t, const struct perfetto_event *e)
{
	add_named(t, e, TYPE_INSTANT);
}

void perfetto_end(struct perfetto_trace *t, uint32_t track, uint64_t time_ns)
{
	track_at(t, track, time_ns);
	protobuf_add_number(&t->event, EVENT_TYPE, TYPE_END);
	add_event(t, track, time_ns);
}

void perfetto_counter(struct perfetto_trace *t, uint32_t track, uint64_t time_ns, int64_t value)
{
	track_at(t, track, time_ns);
	protobuf_add_number(&t->event, EVENT_TYPE, TYPE_COUNTER);
	protobuf_add_varint(&t->event, EVENT_COUNTER << 3);
	protobuf_add_varint(&t->event, (uint64_t)value);
	add_event(t, track, time_ns);
}

void perfetto_counter_double(struct perfetto_trace *t, uint32_t track, uint64_t time_ns,
			     double value)
{
	if (!isfinite(value))
		return;
	track_at(t, track, time_ns);
	protobuf_add_number(&t->event, EVENT_TYPE, TYPE_COUNTER);
	protobuf_add_double(&t->event, EVENT_DOUBLE_COUNTER, value);
	add_event(t, track, time_ns);
}
