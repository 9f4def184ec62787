/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The time that threads of a Chrome trace spent in each stack: events that begin and end (`sonde stack`),
 * and those with a duration (others). They come in any order, so they are sorted first.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include "base/fs.h"
#include "base/mem.h"
#include "formats/chrome_trace/scan.h"
#include "memory/analysis/common/analysis.h"
#include "report/profiles.h"

#define MOST_EVENTS (20u << 20)
#define MOST_DEPTH 512u
#define MOST_PLAIN (2ull << 30) /* bytes of a trace that was compressed */

struct event {
	int64_t ts_ns, dur_ns; /* of an end: 0 */
	uint32_t thread, name; /* numbers */
	uint32_t seq;
	char ph;
};

struct chrome_read {
	struct stacks_read *s;
	struct event *list;
	size_t n, cap;
	char **names;
	size_t nnames, cap_names;
	struct hmap name_of, thread_of;
	struct hmap process_of; /* pid to the number of its name */
	struct thread {
		int64_t pid, tid;
		char *name;
	} * threads;
	size_t nthreads, cap_threads;
};

static uint32_t number_of_name(struct chrome_read *c, const char *name)
{
	uint64_t hash = XXH3_64bits(name, strlen(name)), at = hmap_get(&c->name_of, hash);

	if (at == HMAP_NONE) {
		at = c->nnames;
		*XPUSH(c->names, c->nnames, c->cap_names) = xstrdup(name);
		hmap_put(&c->name_of, hash, at);
	}
	return (uint32_t)at;
}

static uint32_t number_of_thread(struct chrome_read *c, int64_t pid, int64_t tid)
{
	const int64_t key[] = {pid, tid};
	uint64_t hash = XXH3_64bits(key, sizeof(key)), at = hmap_get(&c->thread_of, hash);

	if (at == HMAP_NONE) {
		at = c->nthreads;
		*XPUSH(c->threads, c->nthreads, c->cap_threads) = (struct thread){pid, tid, NULL};
		hmap_put(&c->thread_of, hash, at);
	}
	return (uint32_t)at;
}

static int64_t ns_of(const json_t *v)
{
	double us = json_number_value(v);

	return isfinite(us) && fabs(us) < 9e12 ? (int64_t)llround(us * 1000) : 0;
}

static void note_name(struct chrome_read *c, const json_t *e, uint32_t thread)
{
	const char *what = json_string_value(json_object_get(e, "name"));
	const char *name = json_string_value(json_object_get(json_object_get(e, "args"), "name"));

	if (!what || !name)
		return;
	if (!strcmp(what, "thread_name")) {
		free(c->threads[thread].name);
		c->threads[thread].name = xstrdup(name);
	} else if (!strcmp(what, "process_name")) {
		hmap_put(&c->process_of, (uint64_t)c->threads[thread].pid, number_of_name(c, name));
	}
}

static int take_event(void *arg, uint64_t offset, const char *text, size_t len)
{
	struct chrome_read *c = arg;
	json_t *e = json_loadb(text, len, 0, NULL);
	const char *ph = json_string_value(json_object_get(e, "ph"));
	const char *name = json_string_value(json_object_get(e, "name"));

	(void)offset;
	if (!ph || c->n >= MOST_EVENTS) {
		c->s->bad++;
	} else if (strchr("BEXM", *ph) && *ph) {
		uint32_t thread = number_of_thread(c, json_integer_value(json_object_get(e, "pid")),
						   json_integer_value(json_object_get(e, "tid")));
		if (*ph == 'M')
			note_name(c, e, thread);
		else
			*XPUSH(c->list, c->n, c->cap) =
				(struct event){ns_of(json_object_get(e, "ts")),
					       *ph == 'X' ? ns_of(json_object_get(e, "dur")) : 0,
					       thread,
					       number_of_name(c, name ? name : "?"),
					       (uint32_t)c->n,
					       *ph};
	}
	json_decref(e);
	return 0;
}

static int by_thread_and_time(const void *pa, const void *pb)
{
	const struct event *a = pa, *b = pb;

	return ORDER(a->thread, b->thread) ?: ORDER(a->ts_ns, b->ts_ns)
		       ?: ORDER(b->dur_ns, a->dur_ns) ?: ORDER(a->seq, b->seq);
}

static uint32_t root_of(struct chrome_read *c, const struct thread *t)
{
	struct profile_frame f = {.file = ""};
	char *process = xasprintf("process %lld", (long long)t->pid);
	char *thread = xasprintf("thread %lld%s%s", (long long)t->tid, t->name ? " " : "",
				 t->name ? t->name : "");
	uint64_t at = hmap_get(&c->process_of, (uint64_t)t->pid);
	uint32_t node;

	f.name = at == HMAP_NONE ? process : c->names[at];
	node = tree_node(c->s->tree, TREE_ROOT, TREE_WORDS, &f);
	f.name = thread;
	node = tree_node(c->s->tree, node, TREE_WORDS, &f);
	free(process);
	free(thread);
	return node;
}

/* Open frames of a thread. */
struct open {
	uint32_t node[MOST_DEPTH + 1];
	int64_t end_ns[MOST_DEPTH + 1]; /* INT64_MAX: until an event ends it */
	unsigned depth;
	int64_t last_ns;
};

static void count_time(struct stacks_read *s, struct open *o, int64_t until)
{
	if (o->depth && until > o->last_ns)
		stacks_read_add(s, o->node[o->depth], (uint64_t)(until - o->last_ns));
	if (until > o->last_ns)
		o->last_ns = until;
}

static void end_until(struct stacks_read *s, struct open *o, int64_t now)
{
	while (o->depth && o->end_ns[o->depth] <= now) {
		count_time(s, o, o->end_ns[o->depth]);
		o->depth--;
	}
}

static void add_thread(struct chrome_read *c, const struct event *list, size_t n)
{
	struct open *o = xcalloc(1, sizeof(*o));

	o->node[0] = root_of(c, &c->threads[list[0].thread]);
	o->last_ns = list[0].ts_ns;
	for (size_t i = 0; i < n; i++) {
		const struct event *e = &list[i];

		end_until(c->s, o, e->ts_ns);
		count_time(c->s, o, e->ts_ns);
		if (e->ph == 'E') {
			o->depth -= o->depth != 0;
		} else if (o->depth < MOST_DEPTH) {
			const char *name = c->names[e->name];
			uint32_t node =
				stacks_read_node(c->s, o->node[o->depth], name, strlen(name));

			o->depth++;
			o->node[o->depth] = node;
			o->end_ns[o->depth] = e->ph == 'X' ? e->ts_ns + e->dur_ns : INT64_MAX;
		}
	}
	end_until(c->s, o, INT64_MAX - 1);
	free(o);
}

static int scan_plain(int fd, struct chrome_read *c, struct err *err)
{
	struct chrome_scan_sink sink = {.event = take_event, .arg = c};
	struct chrome_scan_result result = {0};
	int r = chrome_scan(fd, &sink, &result, err);

	c->s->bad += result.skipped;
	return r;
}

/* The text of a compressed trace, in memory; another one as it is. Takes fd. */
static int decompress_trace(int fd, struct err *err)
{
	unsigned char magic[2] = {0};
	struct buf piece = {0};
	uint64_t all = 0;
	int n = 0;

	if (fs_read_at(fd, magic, 2, 0) != 2 || magic[0] != 0x1f || magic[1] != 0x8b)
		return fd;
	int to = memfd_create("trace", MFD_CLOEXEC);
	gzFile gz = gzdopen(fd, "rb");
	while (to >= 0 && gz && (n = gzread(gz, buf_room(&piece, 1 << 18), 1 << 18)) > 0) {
		all += (uint64_t)n;
		if (all > MOST_PLAIN ||
		    fs_write_all(to, piece.data, (size_t)n, FS_HERE, NULL) < 0) {
			close(to);
			to = err_set(err, -EFBIG, "it is too large to be unpacked");
		}
	}
	if (to == -1)
		to = err_sys(err, -errno, "cannot make room to unpack it");
	if (gz)
		gzclose(gz);
	else
		close(fd);
	buf_release(&piece);
	if (to >= 0)
		lseek(to, 0, SEEK_SET);
	return to;
}

int profile_read_chrome(struct stacks_read *s, const char *path, struct err *err)
{
	struct chrome_read c = {.s = s};
	int fd = fs_open(path, O_RDONLY, 0, err), r;

	if (fd < 0)
		return fd;
	s->unit = "ns";
	fd = decompress_trace(fd, err);
	r = fd < 0 ? fd : scan_plain(fd, &c, err);
	if (fd >= 0)
		close(fd);
	SORT(c.list, c.n, by_thread_and_time);
	for (size_t i = 0, end; i < c.n; i = end) {
		for (end = i; end < c.n && c.list[end].thread == c.list[i].thread;)
			end++;
		add_thread(&c, c.list + i, end - i);
	}
	for (size_t i = 0; i < c.nnames; i++)
		free(c.names[i]);
	for (size_t i = 0; i < c.nthreads; i++)
		free(c.threads[i].name);
	free(c.names);
	free(c.threads);
	free(c.list);
	hmap_release(&c.name_of);
	hmap_release(&c.thread_of);
	hmap_release(&c.process_of);
	if (r == 0 && !s->total)
		r = err_set(err, -EBADMSG, "there are no stacks in this trace");
	return r;
}
