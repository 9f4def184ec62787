/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/remote/job_steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/proc.h"
#include "unwind/remote/find/process.h"
#include "unwind/remote/memory.h"
#include "wire/control_page.h"
#include "wire/ring.h"

#define MAPS_CAP (64u << 20)
#define LOOK_FIRST_NS 500000000ull /* between two searches; more and more while there is none */
#define LOOK_LAST_NS 16000000000ull

static bool is_arena(const struct map_line *m)
{
	size_t n = strlen(SESSION_RING_SUFFIX);

	return m->readable && !m->offset && m->path_len > n &&
	       !memcmp(m->path + m->path_len - n, SESSION_RING_SUFFIX, n);
}

/* What it calls itself: the last number of NSpid. Without such a line, what we call it. */
static uint32_t pid_of_its_own(pid_t pid)
{
	char text[4096], *line, *end, *last;

	if (proc_read(pid, "status", text, sizeof(text)) < 0 || !(line = strstr(text, "\nNSpid:")))
		return (uint32_t)pid;
	line += strlen("\nNSpid:");
	end = line + strcspn(line, "\n");
	*end = '\0';
	last = strrchr(line, '\t');
	return (uint32_t)strtoul(last ? last : line, NULL, 10);
}

/* A child that fork made has the arena of its parent until it has one of its own. */
static bool is_its_own(const struct arena_head *h, uint64_t address, uint32_t own_pid)
{
	return h->magic == ARENA_MAGIC && h->version == ARENA_VERSION && h->address == address &&
	       h->pid == own_pid;
}

/* After a move there are two: the older one has been left, and counts no further. */
static bool is_better(const struct arena_head *h, uint64_t steps, bool any, uint64_t most)
{
	return !any || steps > most || (steps == most && !atomic_load(&h->left));
}

static void find_arena(struct job_steps *s, struct remote *r, pid_t pid)
{
	struct buf maps = {0};
	struct map_line m;
	char path[32];
	uint64_t most = 0;

	s->address = 0;
	s->own_pid = pid_of_its_own(pid);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	bool readable = fs_read_file(path, MAPS_CAP, &maps, NULL) == 0 && maps.len;
	const char *at = maps.data, *end = readable ? at + maps.len : at;
	while (readable && maps_next(&at, end, &m)) {
		struct arena_head h;

		if (!is_arena(&m) || remote_read(r, m.start, &h, sizeof(h)) < 0 ||
		    !is_its_own(&h, m.start, s->own_pid))
			continue;
		uint64_t n = atomic_load(&h.steps);
		if (!is_better(&h, n, s->address, most))
			continue;
		s->address = m.start;
		most = n;
	}
	buf_release(&maps);
}

/* False: it is not there any more, or will be counted elsewhere. *out: -1 without a count. */
static bool read_count(const struct job_steps *s, struct remote *r, int64_t *out)
{
	struct arena_head h;

	*out = -1;
	if (!s->address || remote_read(r, s->address, &h, sizeof(h)) < 0 ||
	    !is_its_own(&h, s->address, s->own_pid))
		return false;
	uint64_t n = atomic_load(&h.steps);
	if (n && n <= INT64_MAX)
		*out = (int64_t)n;
	return !atomic_load(&h.left);
}

int64_t job_steps_follow(struct job_steps *s, pid_t pid, uint64_t now_ns)
{
	struct remote r;
	int64_t steps;

	remote_init(&r, pid);
	if (read_count(s, &r, &steps) || now_ns < s->look_ns)
		return steps;
	find_arena(s, &r, pid);
	bool counts = read_count(s, &r, &steps);
	uint64_t wait_ns = counts || !s->wait_ns ? LOOK_FIRST_NS : s->wait_ns * 2;
	s->wait_ns = wait_ns < LOOK_LAST_NS ? wait_ns : LOOK_LAST_NS;
	s->look_ns = now_ns + s->wait_ns;
	return steps;
}

int64_t job_steps_read(pid_t pid)
{
	struct job_steps once = {0};

	return job_steps_follow(&once, pid, 0);
}
