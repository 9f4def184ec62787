/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The recording of a trace (events.sonde): what `sonde record` would have written of this process in
 * these steps, so that every command that reads its recordings reads a trace, too. It is written when
 * the trace is over, out of what the trace holds, and has what trace.json has; work of steps before,
 * which devices did in these steps, is in it as well.
 *
 *	what is held                    records
 *	the window                      REC_MONITOR: START, LOST, GROUPS, STOP
 *	steps                           REC_MONITOR STEP, REC_SYSTEM
 *	activities, marks               REC_ACTIVITY; a range is two, as its source reports it
 *	memory that hooks have seen     REC_ALLOC, REC_FREE
 *	calls of Python                 REC_FRAME, REC_SAMPLE: the stack of a thread each time it changes
 *	counters of the host            REC_COUNTER
 */
#include "activity/trace/record_writer.h"
#include "activity/trace/trace.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/text/printable.h"
#include "wire/control_page.h"
#include "wire/record_activity.h"
#include "wire/record_driver.h"
#include "wire/record_samples.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MAX_FRAMES (1u << 20)
#define OF_RECORD (1ull << 63) /* of the id of a range that is none of the source's */

/* What happens at one moment, in the order in which it is written then. */
enum event {
	EVENT_CALL_ENDS, /* the innermost, which began last, first */
	EVENT_STEP,
	EVENT_RANGE_BEGINS,
	EVENT_ACTIVITY, /* that is complete; an instant */
	EVENT_RANGE_ENDS,
	EVENT_MEMORY,
	EVENT_COUNTER,
	EVENT_CALL_BEGINS,
};

struct entry {
	uint64_t ns; /* of the wall clock */
	uint32_t event, index;
};

/* The calls of a thread that go on, the outermost first. */
struct open_stack {
	struct stack_call {
		uint32_t call, frame;
	} * list;
	size_t n, cap;
};

struct writing {
	const struct trace_state *t;
	struct record_writer to;
	struct entry *entries;
	size_t n, cap;
	uint64_t end_ns; /* of the last of them: later the process was only waited for */
	struct trace_counter *counters;
	size_t ncounters, cap_counters;
	struct hmap names; /* of texts: what they are in records */
	struct hmap frames; /* of a caller and a text */
	uint32_t nframes;
	struct hmap stacks; /* of threads */
};

static uint64_t mono_of(const struct writing *o, uint64_t wall_ns)
{
	return wall_ns - (uint64_t)o->t->w->wall_minus_mono_ns;
}

static struct request_text cut_text(const char *text, size_t most)
{
	size_t n = strlen(text);

	return (struct request_text){text, n < most ? n : most};
}

/* What stands for a text of the trace, which has each only once. 0: it is empty. */
static uint64_t name_of(struct writing *o, const char *text, uint64_t ns)
{
	uint64_t known = *text ? hmap_get(&o->names, (uintptr_t)text) : 0;

	if (known != HMAP_NONE)
		return known;
	struct request_text all = cut_text(text, REC_MAX_NAME), none = {"", 0};
	struct rec_name r = {.head = {.type = REC_NAME, .time_ns = mono_of(o, ns)},
			     .hash = o->names.count + 1,
			     .len = (uint16_t)all.len};

	if (strlen(text) > all.len)
		r.head.flags = REC_F_TEXT_CUT;
	hmap_put(&o->names, (uintptr_t)text, r.hash);
	record_put_text(&o->to, RECORD_PROC, o->t->w->pid, &r, sizeof(r), all, none);
	return r.hash;
}

/* --- the window --- */

static void put_monitor(struct writing *o, enum rec_monitor_kind kind, uint64_t ns, uint64_t value,
			struct request_text text)
{
	struct rec_monitor r = {
		.head = {.type = REC_MONITOR, .time_ns = mono_of(o, ns)},
		.window = 1,
		.value = value,
		.rank = o->t->w->rank,
		.kind = (uint8_t)kind,
		.len = (uint16_t)text.len,
	};
	const struct request_text none = {"", 0};

	record_put_text(&o->to, RECORD_PROC, o->t->w->pid, &r, sizeof(r), text, none);
}

/* As of `sonde record`: guest/monitor/resident.c. */
static void begin_window(struct writing *o)
{
	const struct trace_state *t = o->t;
	struct buf text = {0};
	const char *comma = "";

	buf_add_str(&text, "NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false\nREPORT_INTERVAL_S=60\n"
			   "DURATION=0\nNPU_MONITOR_LOG_FILE=\nNPU_MONITOR_EXPORT_TYPE=DB\n"
			   "SONDE_RECORD=true\nMSPTI_ACTIVITY_KIND=");
	for (uint32_t kind = 1; kind < ACTIVITY_KIND_END; kind++)
		if (activity_kind_name(kind)) {
			buf_addf(&text, "%s%s", comma, activity_kind_name(kind));
			comma = ",";
		}
	buf_add_char(&text, '\n');
	put_monitor(o, MONITOR_START, t->from_ns, mono_of(o, t->from_ns),
		    (struct request_text){text.data, text.len});
	buf_release(&text);
}

static void put_groups(struct writing *o, const char *text)
{
	struct request_text piece;

	do {
		piece = cut_text(text, REC_MAX_TEXT);
		text += piece.len;
		put_monitor(o, MONITOR_GROUPS, o->end_ns, 0, piece);
	} while (piece.len == REC_MAX_TEXT);
}

/* The window of a process that was killed has no end. */
static void end_window(struct writing *o)
{
	const struct request_text none = {"", 0};
	const struct window *w = o->t->w;

	if (w->lost)
		put_monitor(o, MONITOR_LOST, o->end_ns, w->lost, none);
	if (w->groups)
		put_groups(o, w->groups);
	if (!w->killed)
		put_monitor(o, MONITOR_STOP, o->end_ns, 0, none);
}

static void put_step(struct writing *o, const struct trace_bound *b)
{
	struct rec_system r = {
		.head = {.type = REC_SYSTEM, .time_ns = mono_of(o, b->ns)},
		.value = b->number - 1,
		.device = DEV_NONE,
		.kind = SYSTEM_STEP,
	};

	put_monitor(o, MONITOR_STEP, b->ns, b->number - 1, (struct request_text){"", 0});
	if (b->number)
		record_put(&o->to, RECORD_PROC, o->t->w->pid, &r, sizeof(r));
}

/* --- activities --- */

static const struct activity *activity_at(const struct trace_state *t, uint32_t i)
{
	return i < t->nheld ? &t->held[i] : &t->marks[i - t->nheld];
}

static bool is_range(const struct activity *a)
{
	return a->kind == ACTIVITY_MARKER && !activity_is_instant(a);
}

/* What ends a range that began with this flag. */
static uint8_t end_flag(uint8_t flag)
{
	return flag == ACTIVITY_MARK_START_DEVICE ? ACTIVITY_MARK_END_DEVICE : ACTIVITY_MARK_END;
}

static void put_activity(struct writing *o, const struct entry *e)
{
	const struct activity *a = activity_at(o->t, e->index);
	bool host = a->place == ACTIVITY_ON_HOST, range = is_range(a);
	bool of_record = e->index >= o->t->nheld;
	struct rec_activity r = {
		.head = {.type = REC_ACTIVITY, .time_ns = mono_of(o, e->ns)},
		.start_ns = mono_of(o, range ? e->ns : a->start_ns),
		.end_ns = mono_of(o, range ? e->ns : a->end_ns),
		.correlation = a->correlation | (of_record ? OF_RECORD : 0),
		.name = name_of(o, a->name, e->ns),
		.detail = name_of(o, a->detail, e->ns),
		.more = a->kind == ACTIVITY_COMMUNICATION ? name_of(o, a->more, e->ns) : a->number,
		.amount = a->amount,
		.where = {host ? a->pid : a->device, host ? a->tid : a->stream},
		.kind = a->kind,
		.flag = e->event == EVENT_RANGE_ENDS ? end_flag(a->flag) : a->flag,
		.place = a->place,
		.async = a->async,
		.data_type = a->data_type,
	};

	record_put(&o->to, RECORD_PROC, o->t->w->pid, &r, sizeof(r));
}

/* Memory that hooks report comes as records of its own; what the source says of it is the same. */
static bool has_source_memory(const struct trace_state *t)
{
	return t->memory.n && !t->memory.list[0].pool;
}

static bool is_recorded(const struct trace_state *t, const struct activity *a, uint32_t i)
{
	if (!trace_wanted(t, a))
		return false;
	if (i >= t->nheld)
		return trace_needs_mark(t, a);
	if (a->kind == ACTIVITY_MEMORY && !has_source_memory(t))
		return false;
	return trace_belongs(t, a) != TRACE_OUT;
}

/* --- memory --- */

static void put_memory(struct writing *o, const struct trace_block *b)
{
	struct rec_alloc alloc = {
		.head = {.type = REC_ALLOC, .time_ns = mono_of(o, b->ns)},
		.addr = b->addr,
		.size_bytes = b->bytes,
		.device = b->device,
		.pool = b->pool,
		.kind = b->kind,
		.module = MODULE_NONE,
	};
	struct rec_free freed = {
		.head = {.type = REC_FREE, .time_ns = mono_of(o, b->ns)},
		.addr = b->addr,
		.device = b->device,
		.pool = b->pool,
		.kind = b->kind,
	};

	if (b->freed)
		record_put(&o->to, RECORD_PROC, b->tid, &freed, sizeof(freed));
	else
		record_put(&o->to, RECORD_PROC, b->tid, &alloc, sizeof(alloc));
}

/* --- counters --- */

static void add_counter(void *arg, const struct trace_counter *c)
{
	struct writing *o = arg;

	*XPUSH(o->counters, o->ncounters, o->cap_counters) = *c;
}

static void put_counter(struct writing *o, const struct trace_counter *c)
{
	struct request_text name = {c->recorded, strlen(c->recorded) + 1};
	struct request_text key = cut_text(c->key, REC_MAX_TEXT);
	struct rec_counter r = {
		.head = {.type = REC_COUNTER, .time_ns = mono_of(o, c->ns)},
		.value = c->value / c->scale,
		.pid = c->own ? o->t->w->pid : 0,
		.card = -1,
		.track = c->own ? COUNTER_OF_PROCESS : COUNTER_OF_HOST,
		.len = (uint16_t)(name.len + key.len),
	};

	record_put_text(&o->to, PROC_NONE, 0, &r, sizeof(r), name, key);
}

/* --- calls of Python --- */

/* "file(line): name"; else all of it is the name. */
static struct request_text split_place(const char *text, struct request_text *file, int32_t *line)
{
	const char *end = strstr(text, "): "), *from = end;

	*file = (struct request_text){"", 0};
	*line = 0;
	while (from && from > text && from[-1] >= '0' && from[-1] <= '9')
		from--;
	if (!from || from == end || from - text < 2 || from[-1] != '(')
		return cut_text(text, REC_MAX_TEXT / 2 - 1);
	*line = (int32_t)strtol(from, NULL, 10);
	*file = (struct request_text){text, (size_t)(from - 1 - text)};
	if (file->len > REC_MAX_TEXT / 2 - 2)
		file->len = REC_MAX_TEXT / 2 - 2;
	return cut_text(end + 3, REC_MAX_TEXT / 2 - 1);
}

/* The caller itself if there is no room for more of them. */
static uint32_t frame_of(struct writing *o, uint32_t caller, const char *text, uint64_t ns)
{
	const uint64_t key[2] = {caller, (uintptr_t)text};
	uint64_t hash = XXH3_64bits(key, sizeof(key)), known = hmap_get(&o->frames, hash);
	struct request_text file, name;
	struct rec_frame r = {.head = {.type = REC_FRAME, .time_ns = mono_of(o, ns)},
			      .caller = caller};
	struct buf place = {0};

	if (known != HMAP_NONE)
		return (uint32_t)known;
	if (o->nframes >= MAX_FRAMES)
		return caller;
	r.id = ++o->nframes;
	hmap_put(&o->frames, hash, r.id);
	name = split_place(text, &file, &r.line);
	buf_add_char(&place, '\0');
	buf_add(&place, file.at, file.len);
	r.len = (uint16_t)(name.len + place.len);
	record_put_text(&o->to, PROC_NONE, 0, &r, sizeof(r), name,
			(struct request_text){place.data, place.len});
	buf_release(&place);
	return r.id;
}

static struct open_stack *stack_of(struct writing *o, uint32_t tid)
{
	struct open_stack *s = hmap_get_ptr(&o->stacks, tid);

	if (!s) {
		s = xcalloc(1, sizeof(*s));
		hmap_put_ptr(&o->stacks, tid, s);
	}
	return s;
}

/* kept: how many calls, the outermost first, go on. */
static void put_sample(struct writing *o, const struct open_stack *s, uint32_t tid, uint64_t ns,
		       size_t kept)
{
	struct rec_sample r = {
		.head = {.type = REC_SAMPLE, .time_ns = mono_of(o, ns)},
		.pid = o->t->w->pid,
		.tid = tid,
		.frame = s->n ? s->list[s->n - 1].frame : 0,
		.flags = (uint32_t)kept << SAMPLE_KEPT_SHIFT,
	};

	record_put(&o->to, PROC_NONE, 0, &r, sizeof(r));
}

static void begin_call(struct writing *o, const struct entry *e)
{
	const struct trace_call *c = &o->t->calls.list[e->index];
	struct open_stack *s = stack_of(o, c->tid);
	uint32_t caller = s->n ? s->list[s->n - 1].frame : 0;

	*XPUSH(s->list, s->n, s->cap) =
		(struct stack_call){e->index, frame_of(o, caller, c->text, e->ns)};
	put_sample(o, s, c->tid, e->ns, s->n - 1);
}

/* Spans that the program has named may end in any order. */
static void end_call(struct writing *o, const struct entry *e)
{
	const struct trace_call *calls = o->t->calls.list;
	uint32_t tid = calls[e->index].tid;
	struct open_stack *s = stack_of(o, tid);
	size_t at = s->n;

	while (at && s->list[at - 1].call != e->index)
		at--;
	if (!at--)
		return;
	memmove(s->list + at, s->list + at + 1, (s->n - at - 1) * sizeof(*s->list));
	s->n--;
	for (size_t i = at; i < s->n; i++)
		s->list[i].frame = frame_of(o, i ? s->list[i - 1].frame : 0,
					    calls[s->list[i].call].text, e->ns);
	put_sample(o, s, tid, e->ns, at);
}

static void put_sampled(struct writing *o, uint32_t tid, const char *text)
{
	struct request_text name = cut_text(text, REC_MAX_TEXT), none = {"", 0};
	const struct window *w = o->t->w;
	struct rec_sampled r = {
		.head = {.type = REC_SAMPLED, .time_ns = mono_of(o, o->t->from_ns)},
		.pid = w->pid,
		.tid = tid,
		.rank = w->rank,
		.len = (uint16_t)name.len,
		.role = w->rank >= 0 && !tid ? SAMPLED_RANK : SAMPLED_UNKNOWN,
	};

	record_put_text(&o->to, PROC_NONE, 0, &r, sizeof(r), name, none);
}

/* --- who --- */

static void put_process(struct writing *o)
{
	const struct frame_proc *p = &o->t->process;
	struct rec_process r = {
		.head = {.type = REC_PROCESS, .time_ns = mono_of(o, o->t->from_ns)},
		.rank = o->t->w->rank,
	};
	struct buf command = {0};
	uint64_t tid, name;

	record_put(&o->to, RECORD_PROC, o->t->w->pid, &r, sizeof(r));
	proc_add_printable(&command, p->cmdline, strnlen(p->cmdline, sizeof(p->cmdline)));
	put_sampled(o, 0, buf_str(&command));
	for (size_t at = 0; hmap_next(&o->t->calls.names, &at, &tid, &name);)
		put_sampled(o, (uint32_t)tid, (const char *)(uintptr_t)name);
	buf_release(&command);
}

static void write_head(struct writing *o)
{
	const struct trace_state *t = o->t;
	struct frame_proc p = t->process;
	char host[256] = "";
	struct buf shown = {0};

	gethostname(host, sizeof(host) - 1);
	text_add_printable(&shown, host, strlen(host));
	json_t *root = json_pack("{s:I,s:I,s:s,s:s,s:i}", "wallMinusMono",
				 (json_int_t)t->w->wall_minus_mono_ns, "rootPid",
				 (json_int_t)t->w->pid, "host", buf_str(&shown), "version",
				 SONDE_VERSION, "tool", RECORDING_TOOL_TRACE);
	char *text = json_dumps(root, JSON_SORT_KEYS);

	if (text)
		record_frame(&o->to, FRAME_SESSION, text, strlen(text));
	p.proc = RECORD_PROC;
	p.pid = t->w->pid;
	p.time_ns = mono_of(o, t->from_ns);
	record_frame(&o->to, FRAME_PROC, &p, sizeof(p));
	put_process(o);
	begin_window(o);
	free(text);
	json_decref(root);
	buf_release(&shown);
}

/* --- in order of time --- */

static void add_entry(struct writing *o, uint64_t ns, enum event event, size_t index)
{
	*XPUSH(o->entries, o->n, o->cap) = (struct entry){ns, event, (uint32_t)index};
}

static int by_moment(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->ns != y->ns)
		return x->ns < y->ns ? -1 : 1;
	if (x->event != y->event)
		return x->event < y->event ? -1 : 1;
	int order = (x->index > y->index) - (x->index < y->index);
	return x->event == EVENT_CALL_ENDS ? -order : order;
}

static int by_nesting(const void *a, const void *b)
{
	const struct trace_call *x = a, *y = b;

	if (x->start_ns != y->start_ns)
		return x->start_ns < y->start_ns ? -1 : 1;
	return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

static void list_activities(struct writing *o)
{
	const struct trace_state *t = o->t;

	for (size_t i = 0; i < t->nheld + t->nmarks; i++) {
		const struct activity *a = activity_at(t, (uint32_t)i);

		if (!is_recorded(t, a, (uint32_t)i))
			continue;
		if (is_range(a)) {
			add_entry(o, a->start_ns, EVENT_RANGE_BEGINS, i);
			add_entry(o, a->end_ns, EVENT_RANGE_ENDS, i);
		} else {
			add_entry(o, a->end_ns, EVENT_ACTIVITY, i);
		}
	}
}

/* A call without an extent would be none. */
static void list_calls(struct writing *o, struct trace_calls *c)
{
	if (c->n)
		qsort(c->list, c->n, sizeof(*c->list), by_nesting);
	for (size_t i = 0; i < c->n; i++)
		if (c->list[i].end_ns > c->list[i].start_ns) {
			add_entry(o, c->list[i].start_ns, EVENT_CALL_BEGINS, i);
			add_entry(o, c->list[i].end_ns, EVENT_CALL_ENDS, i);
		}
}

static void list_entries(struct writing *o, struct trace_state *t)
{
	list_activities(o);
	list_calls(o, &t->calls);
	for (size_t i = 0; t->w->trace.steps && i < t->nbounds; i++)
		add_entry(o, t->bounds[i].ns, EVENT_STEP, i);
	for (size_t i = 0; i < t->memory.n; i++)
		if (t->memory.list[i].pool && t->memory.list[i].known)
			add_entry(o, t->memory.list[i].ns, EVENT_MEMORY, i);
	trace_host_each(t, add_counter, o);
	for (size_t i = 0; i < o->ncounters; i++)
		add_entry(o, o->counters[i].ns, EVENT_COUNTER, i);
	if (o->n)
		qsort(o->entries, o->n, sizeof(*o->entries), by_moment);
	o->end_ns = o->n ? o->entries[o->n - 1].ns : t->from_ns;
}

static void put_entry(struct writing *o, const struct entry *e)
{
	switch ((enum event)e->event) {
	case EVENT_CALL_ENDS:
		end_call(o, e);
		break;
	case EVENT_CALL_BEGINS:
		begin_call(o, e);
		break;
	case EVENT_STEP:
		put_step(o, &o->t->bounds[e->index]);
		break;
	case EVENT_MEMORY:
		put_memory(o, &o->t->memory.list[e->index]);
		break;
	case EVENT_COUNTER:
		put_counter(o, &o->counters[e->index]);
		break;
	default:
		put_activity(o, e);
		break;
	}
}

static void release_writing(struct writing *o)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&o->stacks, &at, &key, &value);) {
		struct open_stack *s = (void *)(uintptr_t)value;

		free(s->list);
		free(s);
	}
	hmap_release(&o->stacks);
	hmap_release(&o->frames);
	hmap_release(&o->names);
	free(o->entries);
	free(o->counters);
}

int trace_recording_write(struct trace_state *t, const char *dir, struct err *err)
{
	struct writing o = {.t = t};
	char *path = xasprintf("%s/" SESSION_RECORDING, dir);
	int r = record_writer_open(&o.to, path, t->left_out, err);

	free(path);
	if (r < 0)
		return r;
	list_entries(&o, t);
	write_head(&o);
	for (size_t i = 0; i < o.n && o.to.result == 0; i++)
		put_entry(&o, &o.entries[i]);
	end_window(&o);
	release_writing(&o);
	return record_writer_close(&o.to, mono_of(&o, o.end_ns));
}
