/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What `sonde stack` holds in memory after 10^7 events: the real command on a program whose threads
 * change from one deep stack to another, writing files in turn so that the disk does not fill.
 * Fails above 20 MB. Beside it how large the same events are as text, which is what a sampler that
 * keeps them until the end would hold at least.
 */
#include <dirent.h>
#include <inttypes.h>

#include "stack_child.h"

#define BUDGET_MB 20.0

struct run {
	char dir[64];
	pid_t sonde;
	uint64_t file_bytes; /* after which it begins a new one */
	double event_bytes; /* on average; 0 until a whole file was seen */
	double patience_s;
	double first_mb, last_mb, peak_mb;
};

static double status_mb(pid_t pid, const char *key)
{
	char path[64], line[256];
	double kb = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "r");
	while (f && !kb && fgets(line, sizeof(line), f))
		if (strncmp(line, key, strlen(key)) == 0)
			kb = strtod(line + strlen(key), NULL);
	if (f)
		fclose(f);
	return kb / 1024;
}

static void start(struct run *r, pid_t target)
{
	const char *build = getenv("SONDE_BUILD");
	char sonde[4096], pid[16], out[96], size[32];

	snprintf(sonde, sizeof(sonde), "%s/bin/sonde", build ? build : "build");
	snprintf(pid, sizeof(pid), "%d", (int)target);
	snprintf(out, sizeof(out), "%s/trace.json", r->dir);
	snprintf(size, sizeof(size), "%" PRIu64, r->file_bytes);
	r->sonde = fork();
	if (r->sonde == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!freopen("/dev/null", "w", stderr))
			_exit(126);
		execl(sonde, sonde, "stack", "-p", pid, "-i", "0.0005", "--all-threads",
		      "--rotate-size", size, "--keep", "1", "-o", out, (char *)NULL);
		_exit(127);
	}
	if (r->sonde < 0)
		stack_die("cannot start sonde");
}

/* Lines of a whole file: one event each, but for a few at its ends. */
static void weigh(struct run *r, unsigned number)
{
	static char block[1 << 16];
	char path[128];
	uint64_t lines = 0, bytes = 0;
	size_t n;

	snprintf(path, sizeof(path), "%s/trace.%u.json", r->dir, number);
	FILE *f = fopen(path, "r");
	while (f && (n = fread(block, 1, sizeof(block), f)) > 0) {
		bytes += n;
		for (char *at = block; (at = memchr(at, '\n', (size_t)(block + n - at))); at++)
			lines++;
	}
	if (f)
		fclose(f);
	if (lines > 100)
		r->event_bytes = (double)bytes / (double)lines;
}

/* How many files were finished: the highest number of those that are still there. */
static unsigned finished(const struct run *r)
{
	DIR *d = opendir(r->dir);
	unsigned number, most = 0;

	for (struct dirent *e; d && (e = readdir(d));)
		if (sscanf(e->d_name, "trace.%u.json", &number) == 1 && number > most)
			most = number;
	if (d)
		closedir(d);
	return most;
}

static double events_so_far(struct run *r)
{
	unsigned n = finished(r);

	if (n && r->event_bytes == 0)
		weigh(r, n);
	return r->event_bytes > 0 ? (double)n * (double)r->file_bytes / r->event_bytes : 0;
}

static double watch(struct run *r, double goal)
{
	double end = stack_now_s() + r->patience_s, events = 0;

	while (events < goal && stack_now_s() < end) {
		stack_sleep_s(0.05);
		events = events_so_far(r);
		if (kill(r->sonde, 0) < 0 || waitpid(r->sonde, NULL, WNOHANG) == r->sonde)
			stack_die("the command has ended");
		if (events >= goal / 10 && r->first_mb == 0)
			r->first_mb = status_mb(r->sonde, "VmRSS:");
	}
	r->last_mb = status_mb(r->sonde, "VmRSS:");
	r->peak_mb = status_mb(r->sonde, "VmHWM:");
	kill(r->sonde, SIGINT);
	waitpid(r->sonde, NULL, 0);
	return events;
}

int main(void)
{
	const char *words[] = {"8", "40", NULL};
	struct stack_python python = stack_python_newest();
	struct stack_child child;
	double goal = stack_quick() ? 2e5 : 1e7;
	struct run r = {.dir = "/tmp/stack_memory_XXXXXX",
			.file_bytes = stack_quick() ? 1 << 20 : 32 << 20,
			.patience_s = stack_quick() ? 10 : 240};
	char command[128];

	if (!mkdtemp(r.dir))
		stack_die(r.dir);
	stack_child_start(&child, &python, "restless.py", words);
	stack_child_ready(&child);
	start(&r, child.pid);
	double events = watch(&r, goal);
	stack_child_end(&child);
	snprintf(command, sizeof(command), "rm -rf '%s'", r.dir);
	if (system(command) != 0)
		fprintf(stderr, "stack_memory: cannot remove %s\n", r.dir);
	printf("stack_memory: RSS %.1f MB after %.1e events, %.1f MB after %.1e, at most %.1f MB "
	       "(must be below %.0f); as text they are %.0f MB: ratio %.0f\n",
	       r.first_mb, goal / 10, r.last_mb, events, r.peak_mb, BUDGET_MB,
	       events * r.event_bytes / 1e6, events * r.event_bytes / 1e6 / r.last_mb);
	if (events < goal)
		printf("stack_memory: no more events in %.0f s\n", r.patience_s);
	return r.peak_mb >= BUDGET_MB && !stack_quick();
}
