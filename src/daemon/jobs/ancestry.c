/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who a process is and who its ancestors are, as /proc says. What it says itself decides which
 * orders it gets, so it is believed only as far as it is true; its numbers are those of its own pid
 * namespace, and the kernel knows a process by one number in each that it is in.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/jobs_impl.h"

#define NAMESPACES_MAX 32 /* that the kernel nests */
#define ANCESTORS_MAX 24 /* libkineto names ten */

struct names {
	int32_t numbers[NAMESPACES_MAX];
	unsigned n;
	pid_t parent;
};

static void read_numbers(char *text, struct names *out)
{
	char *at;

	for (char *word = strtok_r(text, " \t\n", &at); word && out->n < NAMESPACES_MAX;
	     word = strtok_r(NULL, " \t\n", &at))
		out->numbers[out->n++] = (int32_t)atoi(word);
}

/* False: it is gone, or may not be looked at. */
static bool read_names(pid_t pid, struct names *out)
{
	char path[64], line[256];

	*out = (struct names){0};
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	while (!out->n && fgets(line, sizeof(line), f))
		if (!strncmp(line, "PPid:", 5))
			out->parent = (pid_t)atoi(line + 5);
		else if (!strncmp(line, "NSpid:", 6))
			read_numbers(line + 6, out);
	fclose(f);
	return out->n > 0;
}

static bool is_among(const struct names *names, int32_t pid)
{
	for (unsigned i = 0; i < names->n; i++)
		if (names->numbers[i] == pid)
			return true;
	return false;
}

bool jobs_is_called(pid_t sender, int32_t pid)
{
	struct names names;

	return sender == pid || (read_names(sender, &names) && is_among(&names, pid));
}

unsigned jobs_true_ancestors(pid_t sender, const int32_t *pids, unsigned n, int32_t *out)
{
	bool good[FABRIC_MAX_PIDS] = {true};
	unsigned left = n - 1, kept = 0;
	struct names names;

	for (unsigned depth = 0; left && depth < ANCESTORS_MAX; depth++) {
		if (sender <= 0 || !read_names(sender, &names))
			break;
		for (unsigned i = 1; i < n; i++)
			if (!good[i] && is_among(&names, pids[i])) {
				good[i] = true;
				left--;
			}
		sender = names.parent;
	}
	for (unsigned i = 0; i < n; i++)
		if (good[i])
			out[kept++] = pids[i];
	return kept;
}
