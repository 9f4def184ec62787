/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/track/process_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "wire/control_page.h"

#define STATUS_BYTES 8192
#define GROUP_BYTES 8192
#define SMAPS_BYTES (64u << 10)
#define ARENA_ALIGN (64ull << 20) /* of glibc's further arenas on machines of 64 bits */
#define MAX_GUARD (1ull << 20) /* below a thread's stack */
#define GROUP_ROOT "/sys/fs/cgroup"
#define NO_LIMIT (1ull << 60) /* version 1 has a huge number there */

/* The text of a small file below a directory, with NUL behind it. */
static int read_small(int dir, const char *name, char *out, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;
	size_t len = 0;
	ssize_t n = 0;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	while (len < size - 1 && (n = read(fd, out + len, size - 1 - len)) > 0)
		len += (size_t)n;
	int r = n < 0 ? -errno : 0;
	close(fd);
	out[len] = '\0';
	return r;
}

/* --- status --- */

/* The value of a line "Name:   123 kB" in bytes; false: it has none. */
static bool find_kib(const char *text, const char *name, uint64_t *out)
{
	const char *at = strstr(text, name);
	char *end;

	while (at && at > text && at[-1] != '\n') /* what the process calls itself */
		at = strstr(at + 1, name);
	if (!at)
		return false;
	at += strlen(name);
	uint64_t v = strtoull(at, &end, 10);
	if (end == at || v > UINT64_MAX >> 10)
		return false;
	*out = v << 10;
	return true;
}

bool process_memory_parse(const char *status, struct rec_usage *out)
{
	*out = (struct rec_usage){
		.pss_bytes = USAGE_UNKNOWN,
		.heap_bytes = USAGE_UNKNOWN,
		.stack_bytes = USAGE_UNKNOWN,
		.copied_bytes = USAGE_UNKNOWN,
		.sonde_bytes = USAGE_UNKNOWN,
		.group_bytes = USAGE_UNKNOWN,
		.group_limit_bytes = USAGE_UNKNOWN,
	};
	if (!find_kib(status, "VmRSS:", &out->rss_bytes)) /* a zombie has none */
		return false;
	if (!find_kib(status, "RssAnon:", &out->anon_bytes))
		out->anon_bytes = USAGE_UNKNOWN; /* kernels before 4.5 */
	if (!find_kib(status, "RssFile:", &out->file_bytes))
		out->file_bytes = USAGE_UNKNOWN;
	if (!find_kib(status, "RssShmem:", &out->shared_bytes))
		out->shared_bytes = USAGE_UNKNOWN;
	if (!find_kib(status, "VmSwap:", &out->swap_bytes))
		out->swap_bytes = 0;
	if (!find_kib(status, "VmHWM:", &out->peak_rss_bytes))
		out->peak_rss_bytes = out->rss_bytes;
	return true;
}

int process_memory_read(int dir, struct rec_usage *out)
{
	char text[STATUS_BYTES];
	int r = read_small(dir, "status", text, sizeof(text));

	return r < 0 ? r : process_memory_parse(text, out) ? 0 : -ESRCH;
}

/* --- smaps --- */

/* What is known of a mapping when the next one begins. */
static void close_mapping(struct smaps *s)
{
	if (s->is_file)
		s->copied += s->anon;
	else if (s->is_heap || s->is_arena)
		s->heap += s->anon;
	else if (s->is_stack)
		s->stacks += s->anon;
	s->guard_end = s->is_guard ? s->to : 0;
}

static bool ends_with(const char *text, size_t len, const char *tail)
{
	size_t n = strlen(tail);

	return len >= n && !memcmp(text + len - n, tail, n);
}

/* "from-to perms offset dev inode   path" */
static bool begin_mapping(struct smaps *s, const char *line)
{
	unsigned long long from, to, inode;
	char perms[5];
	int path = 0;

	if (sscanf(line, "%llx-%llx %4s %*x %*x:%*x %llu %n", &from, &to, perms, &inode, &path) !=
		    4 ||
	    !path || to < from)
		return false;
	size_t len = strcspn(line + path, "\n");
	bool none = !strncmp(perms, "---", 3), anonymous = !inode && line[path] != '/';
	bool follows = from == s->to;

	/* An arena has its unused rest behind it, up to the next multiple. */
	bool arena = !s->is_file && !s->is_heap && !(s->from % ARENA_ALIGN) && follows && none &&
		     !(to % ARENA_ALIGN);
	s->is_arena |= arena;
	close_mapping(s);
	s->is_heap = !strncmp(line + path, "[heap]", 6);
	s->is_guard = none && anonymous && to - from <= MAX_GUARD;
	s->is_stack = !strncmp(line + path, "[stack]", 7) ||
		      (anonymous && !s->is_heap && perms[1] == 'w' && s->guard_end == from &&
		       from % ARENA_ALIGN);
	s->is_ring = ends_with(line + path, len, SESSION_RING_SUFFIX);
	s->is_file = !anonymous;
	s->is_arena = false;
	s->from = from;
	s->to = to;
	s->anon = 0;
	return true;
}

void smaps_line(struct smaps *s, const char *line)
{
	uint64_t bytes;

	if (line[0] >= 'A' && line[0] <= 'Z') {
		if (find_kib(line, "Anonymous:", &bytes))
			s->anon = bytes;
		else if (find_kib(line, "Pss:", &bytes))
			s->pss += bytes;
		else if (s->is_ring && find_kib(line, "Rss:", &bytes))
			s->rings += bytes;
		return;
	}
	begin_mapping(s, line);
}

void smaps_end(struct smaps *s, struct rec_usage *out)
{
	close_mapping(s);
	out->pss_bytes = s->pss;
	out->heap_bytes = s->heap;
	out->stack_bytes = s->stacks;
	out->copied_bytes = s->copied;
	out->sonde_bytes = s->rings;
}

int process_memory_read_detail(int dir, struct rec_usage *out)
{
	int fd = openat(dir, "smaps", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct smaps s = {0};
	char *line = NULL;
	size_t size = 0;
	int r = 0;

	if (fd < 0)
		return -errno;
	FILE *f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	setvbuf(f, NULL, _IOFBF, SMAPS_BYTES);
	errno = 0;
	while (getline(&line, &size, f) > 0)
		smaps_line(&s, line);
	if (ferror(f))
		r = errno ? -errno : -EIO;
	if (r == 0)
		smaps_end(&s, out);
	free(line);
	fclose(f);
	return r;
}

/* --- control groups --- */

static bool read_group_file(const char *path, const char *name, char *out, size_t size)
{
	char file[600];

	return snprintf(file, sizeof(file), "%s/%s", path, name) < (int)sizeof(file) &&
	       read_small(AT_FDCWD, file, out, size) == 0;
}

static uint64_t read_group_number(const char *path, const char *name)
{
	char text[64], *end;

	if (!read_group_file(path, name, text, sizeof(text)))
		return USAGE_UNKNOWN;
	uint64_t v = strtoull(text, &end, 10);
	return end == text || v >= NO_LIMIT ? USAGE_UNKNOWN : v;
}

static bool has_limit(const struct memory_group *g)
{
	return read_group_number(g->path, g->old ? "memory.limit_in_bytes" : "memory.max") !=
	       USAGE_UNKNOWN;
}

/* Whether `word` is one of the words between commas; "" is the only one of an empty list. */
static bool has_word(const char *list, size_t len, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = list, *end = list + len;; at++) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		size_t part = (size_t)((comma ? comma : end) - at);

		if (part == n && !memcmp(at, word, n))
			return true;
		if (!comma)
			return false;
		at = comma;
	}
}

/* "/a/../b" is seen from a namespace that does not hold the group. */
static bool leads_up(const char *path)
{
	for (const char *at = path; (at = strstr(at, "/..")); at += 3)
		if (!at[3] || at[3] == '/')
			return true;
	return false;
}

bool memory_group_parse(const char *cgroup, const char *controller, char *out, size_t size)
{
	const char *line = cgroup, *end;

	for (; (end = strchr(line, '\n')); line = end + 1) { /* one without is cut */
		const char *list = memchr(line, ':', (size_t)(end - line));
		const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;

		if (!path || !has_word(list + 1, (size_t)(path - list - 1), controller))
			continue;
		if (!*controller && (list - line != 1 || *line != '0'))
			continue;
		size_t len = (size_t)(end - ++path);
		if (*path != '/' || len >= size)
			return false;
		memcpy(out, path, len);
		out[len] = '\0';
		return !leads_up(out);
	}
	return false;
}

/* The closest group with a limit, from the one of the process up. */
static bool find_limited_group(struct memory_group *g, const char *root, const char *inside)
{
	size_t top = strlen(root);

	if (snprintf(g->path, sizeof(g->path), "%s%s", root, inside) >= (int)sizeof(g->path))
		return false;
	for (;;) {
		if (has_limit(g))
			return true;
		char *slash = strrchr(g->path + top, '/');
		if (!slash)
			return false;
		*slash = '\0';
	}
}

void memory_group_find(int dir, struct memory_group *out)
{
	char text[GROUP_BYTES], inside[400];

	if (read_small(dir, "cgroup", text, sizeof(text)) < 0)
		goto none;
	*out = (struct memory_group){.old = true};
	if (memory_group_parse(text, "memory", inside, sizeof(inside)) &&
	    find_limited_group(out, GROUP_ROOT "/memory", inside))
		return;
	*out = (struct memory_group){.old = false};
	if (memory_group_parse(text, "", inside, sizeof(inside)) &&
	    find_limited_group(out, GROUP_ROOT, inside))
		return;
none:
	*out = (struct memory_group){0};
}

void memory_group_read(const struct memory_group *g, struct memory_group_state *out)
{
	char text[GROUP_BYTES];

	*out = (struct memory_group_state){USAGE_UNKNOWN, USAGE_UNKNOWN, 0};
	if (!g->path[0])
		return;
	out->bytes =
		read_group_number(g->path, g->old ? "memory.usage_in_bytes" : "memory.current");
	out->limit_bytes =
		read_group_number(g->path, g->old ? "memory.limit_in_bytes" : "memory.max");
	if (!read_group_file(g->path, g->old ? "memory.oom_control" : "memory.events", text,
			     sizeof(text)))
		return;
	const char *kills = strstr(text, "oom_kill ");
	out->kills = kills ? strtoull(kills + strlen("oom_kill "), NULL, 10) : 0;
}
