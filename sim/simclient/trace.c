/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void trace_clear(struct trace *t)
{
	t->n = 0;
}

void trace_step(struct trace *t, int step, uint64_t start_ns, uint64_t end_ns)
{
	if (t->n == TRACE_STEPS)
		return;
	t->steps[t->n].step = step;
	t->steps[t->n].start_ns = start_ns;
	t->steps[t->n++].end_ns = end_ns;
}

static void event(FILE *f, const char *cat, const char *name, int tid, uint64_t start_ns,
		  uint64_t ns, int step)
{
	fprintf(f,
		",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,"
		"\"ts\":%" PRIu64 ".%03d,\"dur\":%" PRIu64 ".%03d,\"args\":{\"step\":%d}}",
		cat, name, (int)getpid(), tid, start_ns / 1000, (int)(start_ns % 1000), ns / 1000,
		(int)(ns % 1000), step);
}

/* Three kernels in every step: two thirds of it, launched ahead. */
static void print_step(FILE *f, const struct trace *t, int i, bool marks)
{
	static const char *const kernels[] = {"MatMul", "Add", "allReduce"};
	uint64_t start = t->steps[i].start_ns, ns = t->steps[i].end_ns - start;
	int step = t->steps[i].step;
	char name[64];
	if (marks) {
		snprintf(name, sizeof(name), "ProfilerStep#%d", step);
		event(f, "step", name, 1, start, ns, step);
	}
	for (unsigned k = 0; k < 3; k++) {
		event(f, "runtime", "launch", 1, start + ns / 16 * k, ns / 32, step);
		event(f, "kernel", kernels[k], 2, start + ns / 4 * (k + 1), ns * 2 / 9, step);
	}
}

static void print(FILE *f, const struct trace *t, bool marks, const char *trace_id)
{
	fprintf(f, "{\"displayTimeUnit\":\"ms\",\"trace_id\":\"%s\",\"traceEvents\":[\n",
		trace_id ? trace_id : "");
	fprintf(f,
		"{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,\"ts\":0,"
		"\"args\":{\"name\":\"simclient\"}}",
		(int)getpid());
	for (int i = 0; i < t->n; i++)
		print_step(f, t, i, marks);
	fprintf(f, "\n]}\n");
}

int trace_write(const struct trace *t, const char *path, bool marks, const char *trace_id)
{
	char part[PATH_MAX];
	if (snprintf(part, sizeof(part), "%s.part", path) >= (int)sizeof(part))
		return -ENAMETOOLONG;
	FILE *f = fopen(part, "we");
	if (!f)
		return -errno;
	print(f, t, marks, trace_id);
	bool bad = ferror(f);
	if (fclose(f) || bad || rename(part, path)) {
		int r = errno ? -errno : -EIO;
		unlink(part);
		return r;
	}
	return 0;
}

int trace_mkdirs(const char *path)
{
	char p[PATH_MAX];
	if (snprintf(p, sizeof(p), "%s", path) >= (int)sizeof(p))
		return -ENAMETOOLONG;
	for (char *s = p + 1; *s; s++) {
		if (*s != '/')
			continue;
		*s = '\0';
		if (mkdir(p, 0750) && errno != EEXIST)
			return -errno;
		*s = '/';
	}
	return mkdir(p, 0750) && errno != EEXIST ? -errno : 0;
}
