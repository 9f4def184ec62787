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
static bool is_its_own(const struct arena_head *h, const struct map_line *m, pid_t pid)
{
	return h->magic == ARENA_MAGIC && h->version == ARENA_VERSION && h->address == m->start &&
	       h->pid == pid_of_its_own(pid);
}

int64_t job_steps_read(pid_t pid)
{
	struct buf maps = {0};
	struct remote r;
	struct map_line m;
	char path[32];
	int64_t steps = -1;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	if (fs_read_file(path, MAPS_CAP, &maps, NULL) < 0) {
		buf_release(&maps);
		return -1;
	}
	remote_init(&r, pid);
	const char *at = maps.data, *end = maps.data + maps.len;
	while (maps.len && maps_next(&at, end, &m)) {
		struct arena_head h;

		if (!is_arena(&m) || remote_read(&r, m.start, &h, sizeof(h)) < 0 ||
		    !is_its_own(&h, &m, pid))
			continue;
		uint64_t n = atomic_load(&h.steps);
		if (n && n <= INT64_MAX && (int64_t)n > steps) /* after a move there are two */
			steps = (int64_t)n;
	}
	buf_release(&maps);
	return steps;
}
