/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which processes a name means, and which look like Python. Every process of a node is asked, so
 * the questions are cheap ones first, and kernel threads (without a command line) drop out at once.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sampler/discover/discover_impl.h"
#include "sampler/discover/proc.h"

#define CMDLINE_BYTES 4096
#define MAPS_BYTES (2u << 20) /* a process with more mappings than that is not looked through */
#define LIBRARY "/libpython"

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

bool process_is_named(pid_t pid, const char *part)
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

bool process_looks_like_python(pid_t pid)
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
