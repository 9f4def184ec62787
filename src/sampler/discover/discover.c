/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/discover/discover.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/proc.h"
#include "sampler/discover/finder.h"

#define CMDLINE_BYTES 4096
#define MAPS_BYTES (2u << 20) /* a process with more mappings than that is not searched */
#define LIBRARY "/libpython"
#define CHILDREN_BYTES (1u << 20)
#define MAX_DEPTH 256

/* --- the list that is found --- */

static void pid_list_add(struct pid_list *l, pid_t pid)
{
	l->v = xgrow(l->v, &l->cap, l->n + 1, sizeof(*l->v));
	l->v[l->n++] = pid;
}

void pid_list_release(struct pid_list *l)
{
	free(l->v);
	*l = (struct pid_list){0};
}

void finder_add(struct finder *f, const struct discovered *d)
{
	struct discovery *out = f->out;

	if (d->pid <= 0 || d->pid == f->own)
		return;
	uint64_t at = hmap_get(&f->seen, (uint64_t)d->pid);
	if (at != HMAP_NONE) {
		if (out->list[at].device < 0) {
			out->list[at].device = d->device;
			out->list[at].device_mb = d->device_mb;
		}
		return;
	}
	hmap_put(&f->seen, (uint64_t)d->pid, out->n);
	out->list = xgrow(out->list, &f->cap, out->n + 1, sizeof(*out->list));
	out->list[out->n++] = *d;
}

void finder_add_pid(struct finder *f, pid_t pid)
{
	finder_add(f, &(struct discovered){pid, -1, UINT64_MAX, false});
}

void finder_describe(struct finder *f, const char *fmt, ...)
{
	char *words = f->out->found_by;
	size_t len = strlen(words), cap = sizeof(f->out->found_by);
	va_list ap;

	if (len && len + 2 < cap)
		len += (size_t)snprintf(words + len, cap - len, ", ");
	va_start(ap, fmt);
	vsnprintf(words + len, cap - len, fmt, ap);
	va_end(ap);
}

const struct pid_list *finder_all(struct finder *f)
{
	DIR *proc = f->have_all ? NULL : opendir("/proc");
	struct dirent *e;

	f->have_all = true;
	while (proc && (e = readdir(proc)))
		if (isdigit((unsigned char)e->d_name[0]))
			pid_list_add(&f->all, (pid_t)strtol(e->d_name, NULL, 10));
	if (proc)
		closedir(proc);
	return &f->all;
}

/*
 * --- names, and what looks like Python ---
 *
 * Which processes a name means, and which look like Python. Every process of a node is checked, so
 * the questions are cheap ones first, and kernel threads (without a command line) drop out at once.
 */

/* The last part of the program's path, "" if that may not be read. Deleted ones have words behind
 * it, which do no harm. */
static void read_program(pid_t pid, char *out, size_t cap)
{
	char path[64], link[4096];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(path, link, sizeof(link) - 1);
	link[n < 0 ? 0 : n] = '\0';
	const char *slash = strrchr(link, '/');
	snprintf(out, cap, "%s", slash ? slash + 1 : link);
}

/* Words one after the other with a blank between them, as people type them. */
static size_t read_words(pid_t pid, char *out, size_t cap)
{
	ssize_t n = proc_read(pid, "cmdline", out, cap);

	for (ssize_t i = 0; i < n; i++)
		if (!out[i])
			out[i] = ' ';
	return n < 0 ? 0 : (size_t)n;
}

static bool process_is_named(pid_t pid, const char *part)
{
	char text[CMDLINE_BYTES];

	if (!*part || !read_words(pid, text, sizeof(text)))
		return false;
	if (strstr(text, part))
		return true;
	if (proc_read(pid, "comm", text, sizeof(text)) > 0 && strstr(text, part))
		return true;
	read_program(pid, text, sizeof(text));
	return strstr(text, part);
}

/* Read piece by piece, of which each begins with the end of the one before. */
static bool maps_python(pid_t pid)
{
	char path[64], text[8192];
	size_t kept = 0, all = 0;
	bool found = false;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && !found && all < MAPS_BYTES &&
	       (n = read(fd, text + kept, sizeof(text) - kept)) > 0) {
		size_t len = kept + (size_t)n;

		all += (size_t)n;
		found = memmem(text, len, LIBRARY, strlen(LIBRARY)) != NULL;
		kept = len < strlen(LIBRARY) ? len : strlen(LIBRARY);
		memmove(text, text + len - kept, kept);
	}
	if (fd >= 0)
		close(fd);
	return found;
}

static bool process_looks_like_python(pid_t pid)
{
	char text[CMDLINE_BYTES];

	read_program(pid, text, sizeof(text));
	if (!strncmp(text, "python", 6))
		return true;
	if (!*text && !read_words(pid, text, sizeof(text)))
		return false; /* a thread of the kernel */
	if (proc_read(pid, "comm", text, sizeof(text)) > 0 && strstr(text, "python"))
		return true;
	return maps_python(pid);
}

/*
 * --- descendants ---
 *
 * Descendants. The kernel lists the children of each thread (/proc/PID/task/TID/children, where it
 * was built so): cheap for a small tree on a large node. Where that would mean more files than the
 * node has processes, everybody is asked for the parent instead.
 */

struct walk {
	struct pid_list found; /* roots first, then what was found, in order */
	struct hmap seen;
	size_t files_left; /* that may be read */
	char *text;
};

static void walk_add(struct walk *w, pid_t pid)
{
	if (pid <= 0 || hmap_get(&w->seen, (uint64_t)pid) != HMAP_NONE)
		return;
	hmap_put(&w->seen, (uint64_t)pid, 1);
	pid_list_add(&w->found, pid);
}

/* How many processes there are on the node: the kernel counts them as links of /proc. */
static size_t count_processes(void)
{
	struct stat s;

	return stat("/proc", &s) == 0 && s.st_nlink > 16 ? (size_t)s.st_nlink : 16;
}

static bool kernel_lists_children(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	return access(path, R_OK) == 0;
}

/* Adds the children of one process; false if that takes too many files. */
static bool walk_one(struct walk *w, pid_t pid)
{
	char path[64], name[64];
	struct dirent *e;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	while (threads && w->files_left && (e = readdir(threads))) {
		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		w->files_left--;
		snprintf(name, sizeof(name), "task/%.20s/children", e->d_name);
		if (proc_read(pid, name, w->text, CHILDREN_BYTES) <= 0)
			continue;
		char *at = w->text, *next;
		for (long child; (child = strtol(at, &next, 10)) > 0 && next > at; at = next)
			walk_add(w, (pid_t)child);
	}
	if (threads)
		closedir(threads);
	return w->files_left > 0;
}

static bool by_children(struct finder *f, struct walk *w)
{
	bool done = kernel_lists_children();

	for (size_t i = 0; done && i < w->found.n; i++)
		done = walk_one(w, w->found.v[i]);
	for (size_t i = 0; done && i < w->found.n; i++)
		finder_add_pid(f, w->found.v[i]);
	return done;
}

/* Whether a chain of parents leads to one of the roots. */
static bool descends_from(const struct hmap *parents, const struct hmap *roots, pid_t pid)
{
	for (int depth = 0; depth < MAX_DEPTH; depth++) {
		uint64_t up = hmap_get(parents, (uint64_t)pid);

		if (up == HMAP_NONE || up == 0)
			return false;
		if (hmap_get(roots, up) != HMAP_NONE)
			return true;
		pid = (pid_t)up;
	}
	return false;
}

static void by_parents(struct finder *f, const struct hmap *roots)
{
	const struct pid_list *all = finder_all(f);
	struct hmap parents = {0};
	struct proc_stat s;

	for (size_t i = 0; i < all->n; i++)
		if (proc_stat_read(all->v[i], &s) == 0)
			hmap_put(&parents, (uint64_t)all->v[i], (uint64_t)s.parent);
	for (size_t i = 0; i < all->n; i++)
		if (descends_from(&parents, roots, all->v[i]))
			finder_add_pid(f, all->v[i]);
	hmap_release(&parents);
}

static void find_descendants(struct finder *f, const struct pid_list *roots)
{
	struct walk w = {.files_left = count_processes(), .text = xmalloc(CHILDREN_BYTES)};
	struct hmap root_set = {0};

	for (size_t i = 0; i < roots->n; i++) {
		walk_add(&w, roots->v[i]);
		hmap_put(&root_set, (uint64_t)roots->v[i], 1);
	}
	if (!by_children(f, &w))
		by_parents(f, &root_set);
	hmap_release(&root_set);
	hmap_release(&w.seen);
	pid_list_release(&w.found);
	free(w.text);
}

/* --- the rules --- */

static void find_named(struct finder *f)
{
	const struct discover_rules *r = f->rules;

	for (unsigned i = 0; i < r->npids; i++)
		finder_add(f, &(struct discovered){r->pids[i], -1, UINT64_MAX, true});
	if (r->npids)
		finder_describe(f, r->npids == 1 ? "%u pid" : "%u pids", r->npids);
}

static void find_parents(struct finder *f)
{
	const struct discover_rules *r = f->rules;
	struct pid_list roots = {0};

	for (unsigned i = 0; i < r->nparents; i++) {
		finder_add_pid(f, r->parents[i]);
		pid_list_add(&roots, r->parents[i]);
	}
	if (roots.n == 1)
		finder_describe(f, "process %d and its children", (int)r->parents[0]);
	else if (roots.n)
		finder_describe(f, "%zu processes and their children", roots.n);
	if (roots.n)
		find_descendants(f, &roots);
	pid_list_release(&roots);
}

/* What multiprocessing has started says so on its command line, and nothing of the program. What
 * it has forked has the name of its parent. */
static bool is_multiprocessing(pid_t pid)
{
	char text[CMDLINE_BYTES];

	return read_words(pid, text, sizeof(text)) &&
	       (strstr(text, " --multiprocessing-fork") || strstr(text, " from multiprocessing."));
}

/* Processes that those of a name have started with multiprocessing are meant, too. */
static void find_spawned(struct finder *f, const struct pid_list *named)
{
	struct discovery below = {0};
	struct finder family = {.rules = f->rules, .out = &below, .own = f->own};

	if (named->n)
		find_descendants(&family, named);
	for (unsigned i = 0; i < below.n; i++)
		if (is_multiprocessing(below.list[i].pid))
			finder_add_pid(f, below.list[i].pid);
	hmap_release(&family.seen);
	pid_list_release(&family.all);
	discovery_release(&below);
}

static void find_by_name(struct finder *f)
{
	struct pid_list named = {0};

	for (unsigned i = 0; i < f->rules->nnames; i++) {
		const struct pid_list *all = finder_all(f);

		for (size_t k = 0; k < all->n; k++)
			if (process_is_named(all->v[k], f->rules->names[i])) {
				finder_add_pid(f, all->v[k]);
				pid_list_add(&named, all->v[k]);
			}
		finder_describe(f, "name '%s'", f->rules->names[i]);
	}
	find_spawned(f, &named);
	pid_list_release(&named);
}

static void find_cgroups(struct finder *f)
{
	for (unsigned i = 0; i < f->rules->ncgroups; i++) {
		find_cgroup(f, f->rules->cgroups[i]);
		finder_describe(f, "cgroup '%s'", f->rules->cgroups[i]);
	}
}

static void find_python(struct finder *f)
{
	if (!f->rules->all_python)
		return;
	const struct pid_list *all = finder_all(f);
	for (size_t i = 0; i < all->n; i++)
		if (hmap_get(&f->seen, (uint64_t)all->v[i]) == HMAP_NONE &&
		    process_looks_like_python(all->v[i]))
			finder_add_pid(f, all->v[i]);
	finder_describe(f, "every Python process");
}

static void find_children(struct finder *f)
{
	struct pid_list roots = {0};

	if (!f->rules->children)
		return;
	for (unsigned i = 0; i < f->out->n; i++)
		pid_list_add(&roots, f->out->list[i].pid);
	if (roots.n)
		find_descendants(f, &roots);
	finder_describe(f, "their children");
	pid_list_release(&roots);
}

int discover(const struct discover_rules *rules, struct discovery *out, struct err *err)
{
	struct discovery found = {0};
	struct finder f = {.rules = rules, .out = &found, .own = getpid()};

	find_named(&f);
	find_parents(&f);
	find_by_name(&f);
	find_cgroups(&f);
	find_python(&f);
	int r = find_on_devices(&f, err);
	if (r == 0)
		find_children(&f);
	hmap_release(&f.seen);
	pid_list_release(&f.all);
	if (r < 0)
		discovery_release(&found);
	else
		*out = found;
	return r;
}

void discovery_release(struct discovery *d)
{
	free(d->list);
	*d = (struct discovery){0};
}
