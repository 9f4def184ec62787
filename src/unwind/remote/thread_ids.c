/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which thread of the system is it? From 3.11 on the interpreter knows; before, the C library's own
 * structure at pthread_self() holds the id, at an offset that is found by looking for the process'
 * own id in that of the main thread. Both are ids of the process' pid namespace, which may not be
 * ours.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unwind/remote/process_state.h"
#include "wire/proc_stat.h"

#define PTHREAD_BYTES 2048
#ifdef __x86_64__
#	define GLIBC_TID 720
#else
#	define GLIBC_TID 208
#endif

static int small_file(const char *path, char *out, size_t cap)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, out, cap - 1);

	if (fd >= 0)
		close(fd);
	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

/* The innermost id in the NSpid line of a status file; 0 if there is none. */
static pid_t innermost_id(const char *path, bool *out_several)
{
	char text[4096];
	char *line;

	*out_several = false;
	if (small_file(path, text, sizeof(text)) < 0 || !(line = strstr(text, "\nNSpid:")))
		return 0;
	line += strlen("\nNSpid:");
	line[strcspn(line, "\n")] = '\0';
	pid_t id = 0;
	unsigned n = 0;
	for (char *at = line, *end;; at = end, n++) {
		long v = strtol(at, &end, 10);

		if (end == at)
			break;
		id = (pid_t)v;
	}
	*out_several = n > 1;
	return id;
}

void tids_init(struct python_process *p)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)p->pid);
	p->inside->inner_pid = innermost_id(path, &p->inside->other_namespace);
	if (!p->inside->inner_pid)
		p->inside->inner_pid = p->pid;
	p->inside->tid_offset = PYTHON_NONE;
}

static uint32_t read_first(struct python_process *p, uint64_t address, uint8_t *out)
{
	uint32_t n = PTHREAD_BYTES;

	/* The structure lies at the end of a mapping: what follows it may not be there. */
	while (n >= 256 && remote_read(&p->remote, address, out, n) < 0)
		n /= 2;
	return n >= 256 ? n : 0;
}

/* Other threads have other ids at the same place. The first process of a container is process 1: a
 * number that stands in many places. */
static bool others_differ(struct python_process *p, uint32_t at)
{
	const struct python_inside *in = p->inside;
	int32_t id;

	for (unsigned i = 0; i + 1 < in->nslots; i++)
		if (remote_read(&p->remote, in->slots[i]->walk.thread_id + at, &id, sizeof(id)) ==
			    0 &&
		    (id <= 0 || id == in->inner_pid))
			return false;
	return true;
}

static bool is_offset(struct python_process *p, const uint8_t *bytes, uint32_t n, uint32_t at)
{
	int32_t id;

	if (at + sizeof(id) > n)
		return false;
	memcpy(&id, bytes + at, sizeof(id));
	return id == p->inside->inner_pid && others_differ(p, at);
}

/* Looks for the process' id in the structure of its first thread, the last in the list; where glibc
 * has it first. */
static void find_offset(struct python_process *p)
{
	struct python_inside *in = p->inside;
	uint8_t bytes[PTHREAD_BYTES];

	if (!in->nslots || in->tid_offset_tried)
		return;
	in->tid_offset_tried = true;
	uint32_t n = read_first(p, in->slots[in->nslots - 1]->walk.thread_id, bytes);
	uint32_t at = GLIBC_TID;

	if (!is_offset(p, bytes, n, at))
		for (at = 0; at < n && !is_offset(p, bytes, n, at);)
			at += sizeof(int32_t);
	if (at < n)
		in->tid_offset = at;
}

static pid_t inner_tid(struct python_process *p, const struct thread_slot *s)
{
	int32_t id;

	if (p->place.layout.tstate.native_thread_id != PYTHON_NONE)
		return s->walk.native_id <= INT32_MAX ? (pid_t)s->walk.native_id : 0;
	find_offset(p);
	if (p->inside->tid_offset == PYTHON_NONE ||
	    remote_read(&p->remote, s->walk.thread_id + p->inside->tid_offset, &id, sizeof(id)) < 0)
		return 0;
	return id > 0 ? id : 0;
}

/* The thread that calls itself `inner` in its own namespace, as we see it. */
static pid_t outer_tid(struct python_process *p, pid_t inner)
{
	char path[300];
	pid_t found = 0;

	if (inner == p->inside->inner_pid)
		return p->pid;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)p->pid);
	if (!p->inside->other_namespace) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)p->pid, (int)inner);
		return access(path, F_OK) == 0 ? inner : 0;
	}
	DIR *dir = opendir(path);
	for (struct dirent *d; dir && !found && (d = readdir(dir));) {
		bool several;

		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)p->pid, d->d_name);
		if (d->d_name[0] != '.' && innermost_id(path, &several) == inner)
			found = (pid_t)atoi(d->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

void tids_find(struct python_process *p, struct thread_slot *s)
{
	s->out.inner_tid = inner_tid(p, s);
	s->out.tid = s->out.inner_tid ? outer_tid(p, s->out.inner_tid) : 0;
	if (s->out.inner_tid)
		s->out.main = s->out.inner_tid == p->inside->inner_pid;
	else
		s->out.main = s == p->inside->slots[p->inside->nslots - 1];
}

bool tids_stat(struct python_process *p, struct thread_slot *s, char *out, size_t cap)
{
	char path[64];

	if (s->stat_fd < 0) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)p->pid, (int)s->out.tid);
		s->stat_fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	ssize_t n = s->stat_fd < 0 ? -1 : pread(s->stat_fd, out, cap - 1, 0);
	if (n <= 0)
		return false;
	out[n] = '\0';
	return true;
}

void tids_state(struct python_process *p, struct thread_slot *s)
{
	char text[PROC_STAT_BYTES];
	struct proc_stat stat;

	s->out.state = THREAD_UNKNOWN;
	if (s->out.tid && tids_stat(p, s, text, sizeof(text)) &&
	    proc_stat_parse(text, strlen(text), &stat))
		s->out.state = stat.state == 'R' ? THREAD_RUNNING : THREAD_IDLE;
}
