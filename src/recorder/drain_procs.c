/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The processes of a session, from the first sight of their arena to their end. */
#define LOG_AREA "recorder"
#include "recorder/drain.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "recorder/drain_impl.h"
#include "recorder/ends/end_times.h"

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

struct drain *drain_new(const char *dir, uint32_t first_number)
{
	struct drain *d = xcalloc(1, sizeof(*d));

	d->dir = xstrdup(dir);
	d->next_number = first_number;
	return d;
}

void drain_expect_below(struct drain *d)
{
	d->sees_all = true;
}

void drain_watch_ends(struct drain *d)
{
	d->ends = end_times_new();
}

void drain_free(struct drain *d)
{
	if (!d)
		return;
	end_times_free(d->ends);
	for (size_t i = 0; i < d->narenas; i++)
		arena_close(d->arenas[i]);
	hmap_release(&d->drained);
	hmap_release(&d->ignored);
	free(d->arenas);
	free(d->entries);
	free(d->spare);
	free(d->runs);
	free(d->run_begin);
	free(d->known);
	hmap_release(&d->known_at);
	free(d->fds);
	buf_release(&d->raw);
	free(d->dir);
	free(d);
}

static bool is_attached(const struct drain *d, const char *name)
{
	for (size_t i = 0; i < d->narenas; i++)
		if (!strcmp(d->arenas[i]->name, name))
			return true;
	return false;
}

static bool same_process(const struct arena *a, const struct arena *b)
{
	return a->proc.pid == b->proc.pid && a->pid_ns == b->pid_ns;
}

/*
 * A process that called exec() left the arena of its former image: that one gets no more, and is
 * read to its end before the new one begins. Times may be of different clocks: who still has the
 * arena mapped goes on.
 */
static void end_former_images(struct drain *d, struct arena *newest)
{
	for (size_t i = 0; i < d->narenas; i++) {
		struct arena *a = d->arenas[i];
		if (a == newest || !same_process(a, newest) || a->image_ns >= newest->image_ns ||
		    arena_is_mapped(a) > 0)
			continue;
		a->proc.dead = true;
		if (!newest->former || a->image_ns > newest->former->image_ns)
			newest->former = a;
	}
}

static const struct frame_proc *find_known(const struct drain *d, const struct arena *a)
{
	for (size_t i = d->nknown; i > 0; i--) {
		const struct frame_proc *p = &d->known[i - 1];
		if (p->pid == a->proc.pid && p->pid_ns == a->pid_ns && p->image_ns == a->image_ns)
			return p;
	}
	return NULL;
}

/* --- arenas that were read to their end, and may still be there --- */

static uint64_t key_of_name(const char *name)
{
	return XXH64(name, strlen(name), 0);
}

/* An image of a process, as a recording knows it. */
static uint64_t key_of_image(uint32_t pid, uint64_t pid_ns, uint64_t image_ns)
{
	const uint64_t id[] = {pid, pid_ns, image_ns};

	return XXH64(id, sizeof(id), 0);
}

/* The file alone will not do: when it is removed, the next one may get its number. */
static uint64_t key_of_file(const struct arena *a)
{
	const uint64_t id[] = {a->dev, a->ino, a->proc.pid, a->pid_ns, a->image_ns};

	return XXH64(id, sizeof(id), 0);
}

static bool is_drained(const struct drain *d, const struct arena *a)
{
	uint64_t image = key_of_image(a->proc.pid, a->pid_ns, a->image_ns);

	return hmap_get(&d->drained, key_of_file(a)) != HMAP_NONE ||
	       hmap_get(&d->drained, image) != HMAP_NONE;
}

/* Closes it for good. A file that cannot be removed must not be taken for a new one. */
static void retire_arena(struct drain *d, struct arena *a, bool remove)
{
	struct err err = {0};
	int r = remove ? arena_remove(d->dir, a->name, &err) : 0;

	hmap_put(&d->drained, key_of_file(a), 1);
	if (r < 0 || !remove)
		hmap_put(&d->ignored, key_of_name(a->name), 1);
	if (r < 0)
		log_warn("%s; all that it held has been read: remove it yourself", err.text);
	arena_close(a);
}

static int attach_arena(struct drain *d, const char *name)
{
	struct arena *a = arena_open(d->dir, name);

	if (!a)
		return 0; /* not complete yet, or not an arena: tried again next time */
	/* Where neither /proc nor the file says that it lives. */
	if (d->sees_all && a->proc.uncertain && a->pid_ns && a->pidfd == -ESRCH)
		a->proc.dead = true;
	if (is_drained(d, a)) {
		retire_arena(d, a, true);
		return 0;
	}
	const struct frame_proc *known = find_known(d, a);
	if (known) {
		a->proc.number = known->proc;
		a->announced = true;
	}
	d->arenas = xgrow(d->arenas, &d->cap_arenas, d->narenas + 1, sizeof(*d->arenas));
	d->arenas[d->narenas++] = a;
	a->watched = d->next_watched++;
	end_times_watch(d->ends, a->proc.dead ? -1 : a->pidfd, a->watched);
	end_former_images(d, a);
	return 1;
}

/* Numbers the process and reports it; after exec() not before its former image ended. */
static void announce_process(struct drain *d, struct arena *a,
			     void (*fn)(void *arg, const struct frame_proc *p), void *arg)
{
	a->proc.number = d->next_number++;
	a->announced = true;
	struct frame_proc p = {
		.proc = a->proc.number,
		.pid = a->proc.pid,
		.ppid = a->head->ppid,
		.shown_pid = a->proc.shown_pid,
		.image_ns = a->image_ns,
		.pid_ns = a->pid_ns,
		.time_ns = clock_mono_ns(),
	};
	memcpy(p.exe, a->head->exe, sizeof(p.exe) - 1);
	memcpy(p.cmdline, a->head->cmdline, sizeof(p.cmdline));
	memcpy(p.visible_devices, a->head->visible_devices, sizeof(p.visible_devices) - 1);
	fn(arg, &p);
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(*(char *const *)a, *(char *const *)b);
}

/* The arenas in the directory that are not attached, sorted; free each and the list. */
static int list_new(struct drain *d, char ***out, size_t *out_n, struct err *err)
{
	DIR *dir = opendir(d->dir);
	size_t n = 0, cap = 0;
	char **names = NULL;

	if (!dir)
		return err_sys(err, -errno, "cannot list '%s'", d->dir);
	for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
		if ((e->d_type != DT_REG && e->d_type != DT_UNKNOWN) || !arena_is_name(e->d_name) ||
		    is_attached(d, e->d_name) ||
		    hmap_get(&d->ignored, key_of_name(e->d_name)) != HMAP_NONE)
			continue;
		names = xgrow(names, &cap, n + 1, sizeof(*names));
		names[n++] = xstrdup(e->d_name);
	}
	closedir(dir);
	if (n)
		qsort(names, n, sizeof(*names), by_name);
	*out = names;
	*out_n = n;
	return 0;
}

int drain_scan(struct drain *d, void (*fn)(void *arg, const struct frame_proc *p), void *arg,
	       struct err *err)
{
	char **names;
	size_t n;
	int found = 0;

	int r = list_new(d, &names, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		found += attach_arena(d, names[i]);
		free(names[i]);
	}
	free(names);
	for (size_t i = 0; i < d->narenas; i++)
		if (!d->arenas[i]->announced && !d->arenas[i]->former)
			announce_process(d, d->arenas[i], fn, arg);
	return found;
}

/* Not attached, although its process has ended. True: it had begun, and cannot be read. */
static bool sweep_arena(struct drain *d, const char *name)
{
	struct err err = {0};

	if (!arena_is_abandoned(d->dir, name))
		return false;
	bool unmade = arena_is_unmade(d->dir, name);
	if (!unmade)
		log_warn("the buffer '%s/%s' cannot be read: its events are lost", d->dir, name);
	else if (arena_remove(d->dir, name, &err) == 0)
		return false;
	else
		log_warn("%s", err.text);
	hmap_put(&d->ignored, key_of_name(name), 1);
	return !unmade;
}

unsigned drain_sweep(struct drain *d)
{
	char **names;
	size_t n;
	unsigned unreadable = 0;

	if (list_new(d, &names, &n, NULL) < 0)
		return 0;
	for (size_t i = 0; i < n; i++) {
		unreadable += sweep_arena(d, names[i]);
		free(names[i]);
	}
	free(names);
	return unreadable;
}

/* One poll() for all of them; without a pidfd (old kernels) each is asked by itself. */
static void find_dead(struct drain *d)
{
	uint64_t now = clock_mono_ns();

	d->fds = xgrow(d->fds, &d->cap_fds, d->narenas, sizeof(*d->fds));
	for (size_t i = 0; i < d->narenas; i++) {
		const struct arena *a = d->arenas[i];
		/* poll() passes over negative descriptors. */
		d->fds[i] = (struct pollfd){a->proc.dead ? -1 : a->pidfd, POLLIN, 0};
	}
	int n = poll(d->fds, d->narenas, 0);
	for (size_t i = 0; i < d->narenas; i++) {
		struct arena *a = d->arenas[i];
		bool left = atomic_load(&a->head->left);
		if (left || (a->pidfd >= 0 ? n > 0 && d->fds[i].revents : !arena_process_lives(a)))
			a->proc.dead = true;
		if (left || !a->proc.dead) /* one that has left waits for us */
			a->alive_ns = now;
		d->left |= left;
	}
}

bool drain_has_left(const struct drain *d)
{
	return d->left;
}

unsigned drain_check_alive(struct drain *d, bool all_dead)
{
	unsigned alive = 0;

	if (!all_dead && d->narenas)
		find_dead(d);
	for (size_t i = 0; i < d->narenas; i++) {
		d->arenas[i]->proc.dead |= all_dead;
		alive += !d->arenas[i]->proc.dead;
	}
	return alive;
}

uint32_t drain_living_pid(const struct drain *d)
{
	for (size_t i = 0; i < d->narenas; i++)
		if (!d->arenas[i]->proc.dead && !d->arenas[i]->proc.uncertain)
			return d->arenas[i]->proc.pid;
	return 0;
}

struct drain_proc *drain_next_dead(struct drain *d)
{
	for (size_t i = 0; i < d->narenas; i++) {
		struct arena *a = d->arenas[i];
		if (a->proc.dead && arena_is_due(a) && !a->proc.finished && arena_is_empty(a))
			return &a->proc;
	}
	return NULL;
}

bool drain_has_dead(const struct drain *d)
{
	for (size_t i = 0; i < d->narenas; i++)
		if (d->arenas[i]->proc.dead)
			return true;
	return false;
}

uint64_t drain_unread(struct drain *d)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < d->narenas; i++)
		bytes += arena_unread(d->arenas[i]);
	return bytes;
}

bool drain_check_images(struct drain *d)
{
	bool any = false;

	for (size_t i = 0; i < d->narenas; i++) {
		struct arena *a = d->arenas[i];
		if (a->proc.dead || arena_seems_mapped(a) != 0)
			continue;
		a->proc.dead = any = true;
	}
	return any;
}

/* The image that replaced this one, NULL if it was the last. */
static struct arena *find_successor(const struct drain *d, const struct arena *a)
{
	for (size_t i = 0; i < d->narenas; i++)
		if (d->arenas[i]->former == a)
			return d->arenas[i];
	return NULL;
}

struct dead_process drain_dead_process(struct drain *d, const struct drain_proc *p)
{
	const struct arena *a =
		(const struct arena *)((const char *)p - offsetof(struct arena, proc));
	uint32_t rank = atomic_load(&a->head->rank_plus_1);

	return (struct dead_process){
		.proc = p->number,
		.pid = p->pid,
		.shown_pid = p->shown_pid,
		.pidfd = a->pidfd,
		.replaced = find_successor(d, a) || atomic_load(&a->head->left),
		.rank = rank && rank <= INT32_MAX ? (int32_t)(rank - 1) : -1,
		.peak_rss_bytes = (uint64_t)atomic_load(&a->head->peak_rss_kib) << 10,
	};
}

void drain_end_frame(struct drain *d, struct drain_proc *p, struct frame_proc_end *out)
{
	struct arena *a = (struct arena *)((char *)p - offsetof(struct arena, proc));
	struct arena_losses losses = arena_losses(a);
	const struct arena *next = find_successor(d, a);

	/*
	 * One that called exec() ended where its next image began. Where nobody watched, the end is
	 * noticed late: what it held would count beside what came after it. Then it is the last
	 * moment at which it lived for sure; readers know that events may be younger.
	 */
	uint64_t end_ns = next ? next->image_ns : 0;
	if (!next && !atomic_load(&a->head->left))
		end_ns = end_times_get(d->ends, a->pidfd, a->watched);
	*out = (struct frame_proc_end){
		.proc = p->number,
		.records = (uint32_t)a->records,
		.time_ns = next || end_ns > a->alive_ns ? end_ns : a->alive_ns,
		.lost_events = losses.events + arena_dropped(a),
		.lost_stacks = losses.stacks,
		.damaged = losses.damaged + arena_unreachable(a),
	};
}

void drain_finish(struct drain *d, struct drain_proc *p, bool remove)
{
	for (size_t i = 0; i < d->narenas; i++) {
		struct arena *a = d->arenas[i];
		if (&a->proc != p)
			continue;
		d->arenas[i] = d->arenas[--d->narenas];
		struct arena *next = find_successor(d, a);
		if (next)
			next->former = a->former;
		end_times_forget(d->ends, a->watched);
		retire_arena(d, a, remove);
		return;
	}
}

void drain_know(struct drain *d, const struct frame_proc *p)
{
	uint64_t at = hmap_get(&d->known_at, p->proc);

	if (at == HMAP_NONE) {
		at = d->nknown++;
		d->known = xgrow(d->known, &d->cap_known, d->nknown, sizeof(*d->known));
		hmap_put(&d->known_at, p->proc, at);
	}
	d->known[at] = *p;
	if (p->proc >= d->next_number)
		d->next_number = p->proc + 1;
}

bool drain_knows(const struct drain *d, uint32_t number)
{
	return hmap_get(&d->known_at, number) != HMAP_NONE;
}

void drain_forget(struct drain *d, uint32_t number)
{
	uint64_t at = hmap_remove(&d->known_at, number);

	if (at == HMAP_NONE)
		return;
	const struct frame_proc *p = &d->known[at];
	hmap_put(&d->drained, key_of_image(p->pid, p->pid_ns, p->image_ns), 1);
	d->known[at] = d->known[--d->nknown];
	if (at < d->nknown)
		hmap_put(&d->known_at, d->known[at].proc, at);
}

void drain_set_counts(struct drain *d, const struct hmap *counts)
{
	for (size_t i = 0; i < d->narenas; i++) {
		struct arena *a = d->arenas[i];
		uint64_t records = a->announced ? hmap_get(counts, a->proc.number) : HMAP_NONE;
		if (records != HMAP_NONE)
			a->records = records;
	}
}

void drain_skip_dropped(struct drain *d)
{
	for (size_t i = 0; i < d->narenas; i++)
		arena_skip_dropped(d->arenas[i]);
}

void drain_set_cursor(struct drain *d, const struct batch_cursor *c)
{
	/* One that waits for its former image has no number yet, and was never read. */
	for (size_t i = 0; i < d->narenas; i++)
		if (d->arenas[i]->announced && d->arenas[i]->proc.number == c->head.proc)
			arena_seek(d->arenas[i], c->ring, c->seq, c->offset, c->head.tid);
}
