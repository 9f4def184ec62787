/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Descendants. The kernel tells the children of each thread (/proc/PID/task/TID/children, where it
 * was built so): cheap for a small tree on a large node. Where that would mean more files than the
 * node has processes, everybody is asked for the parent instead.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "sampler/discover/discover_impl.h"
#include "sampler/discover/proc.h"

#define CHILDREN_BYTES (1u << 20)
#define MAX_DEPTH 256

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

static bool children_are_told(void)
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
	bool done = children_are_told();

	for (size_t i = 0; done && i < w->found.n; i++)
		done = walk_one(w, w->found.v[i]);
	for (size_t i = 0; done && i < w->found.n; i++)
		finder_add_pid(f, w->found.v[i]);
	return done;
}

/* Whether a chain of parents leads to one of the roots. */
static bool descends(const struct hmap *parents, const struct hmap *roots, pid_t pid)
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
		if (descends(&parents, roots, all->v[i]))
			finder_add_pid(f, all->v[i]);
	hmap_release(&parents);
}

void find_descendants(struct finder *f, const struct pid_list *roots)
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
