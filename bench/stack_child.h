/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The Python interpreters of this machine, and programs of tests/targets/python that run in them.
 *
 * Interpreters are taken from $SONDE_PYTHONS (paths with colons between), ~/.pyenv/versions, PATH
 * and where tools/fetch_pythons puts newer ones; one of each minor version. A child ends with the
 * benchmark.
 */
#ifndef SONDE_BENCH_STACK_CHILD_H
#define SONDE_BENCH_STACK_CHILD_H

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unwind/python/layout.h"

#define STACK_PYTHONS (PYTHON_NEWEST - PYTHON_OLDEST + 1)

struct stack_python {
	char path[512];
	int minor, micro; /* of 3.minor.micro */
};

struct stack_child {
	pid_t pid;
	int in; /* its standard input */
	FILE *out; /* its standard output */
};

static inline void stack_die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

static inline uint64_t stack_now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline double stack_now_s(void)
{
	return (double)stack_now_ns(CLOCK_MONOTONIC) * 1e-9;
}

/* Of this process, all threads. */
static inline double stack_cpu_s(void)
{
	return (double)stack_now_ns(CLOCK_PROCESS_CPUTIME_ID) * 1e-9;
}

static inline void stack_sleep_until(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = ns % 1000000000u};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static inline void stack_sleep_s(double s)
{
	stack_sleep_until(stack_now_ns(CLOCK_MONOTONIC) + (uint64_t)(s * 1e9));
}

static inline bool stack_quick(void)
{
	return getenv("BENCH_QUICK") != NULL;
}

/* --- interpreters --- */

/* Not a script that starts another one, as pyenv's shims do. */
static inline bool stack_is_program(const char *path)
{
	char magic[4] = "";
	FILE *f = fopen(path, "r");

	if (!f)
		return false;
	bool good = fread(magic, 1, 4, f) == 4 && memcmp(magic, "\177ELF", 4) == 0;
	fclose(f);
	return good;
}

/* Asks the interpreter; a newer patch release takes the place of an older one. */
static inline void stack_python_try(struct stack_python *list, const char *path)
{
	struct stack_python p = {0};
	char command[1024];

	if (!stack_is_program(path) || strlen(path) >= sizeof(p.path) || strchr(path, '\''))
		return;
	snprintf(command, sizeof(command),
		 "'%s' -c 'import sys; print(*sys.version_info[:3])' 2>/dev/null", path);
	FILE *f = popen(command, "r");
	int major = 0, n = f ? fscanf(f, "%d %d %d", &major, &p.minor, &p.micro) : 0;
	if (f)
		pclose(f);
	if (n != 3 || major != 3 || p.minor < PYTHON_OLDEST || p.minor > PYTHON_NEWEST)
		return;
	struct stack_python *slot = &list[p.minor - PYTHON_OLDEST];
	snprintf(p.path, sizeof(p.path), "%s", path);
	if (!slot->path[0] || slot->micro < p.micro)
		*slot = p;
}

/* Every path that fits. */
static inline void stack_pythons_glob(struct stack_python *list, const char *folder,
				      const char *pattern)
{
	char path[1024];
	glob_t found;

	snprintf(path, sizeof(path), "%s/%s", folder ? folder : "", pattern);
	if (glob(path, GLOB_BRACE, NULL, &found) != 0)
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		stack_python_try(list, found.gl_pathv[i]);
	globfree(&found);
}

/* Finds one interpreter per minor version; says which are not there. Returns how many there are. */
static inline unsigned stack_pythons(struct stack_python list[STACK_PYTHONS])
{
	const char *const names = "python3.{[0-9],[0-9][0-9]}";
	char words[8192], *rest = words;
	unsigned n = 0;

	memset(list, 0, STACK_PYTHONS * sizeof(*list));
	snprintf(words, sizeof(words), "%s",
		 getenv("SONDE_PYTHONS") ? getenv("SONDE_PYTHONS") : "");
	for (char *word; (word = strsep(&rest, ":"));)
		stack_python_try(list, word);
	stack_pythons_glob(list, getenv("HOME"),
			   ".pyenv/versions/3.*/bin/python3.{[0-9],[0-9][0-9]}");
	stack_pythons_glob(list, "build/pythons/root/usr/bin", names);
	snprintf(rest = words, sizeof(words), "%s", getenv("PATH") ? getenv("PATH") : "");
	for (char *word; (word = strsep(&rest, ":"));)
		stack_pythons_glob(list, word, names);
	for (int i = 0; i < STACK_PYTHONS; i++) {
		if (list[i].path[0])
			list[n++] = list[i];
		else
			printf("%s: no Python 3.%d here\n", program_invocation_short_name,
			       i + PYTHON_OLDEST);
	}
	return n;
}

/* The newest one. */
static inline struct stack_python stack_python_newest(void)
{
	struct stack_python list[STACK_PYTHONS];
	unsigned n = stack_pythons(list);

	if (!n) {
		printf("%s: no Python here, nothing to measure\n", program_invocation_short_name);
		exit(0);
	}
	return list[n - 1];
}

/* --- children --- */

#define STACK_SCRIPTS "tests/targets/python"

/* The next line of its output; false at the end of it. */
static inline bool stack_child_line(struct stack_child *c, char *line, int size)
{
	if (!fgets(line, size, c->out))
		return false;
	line[strcspn(line, "\n")] = '\0';
	return true;
}

/* Runs a script with these words, ended by NULL. */
static inline void stack_child_start(struct stack_child *c, const struct stack_python *python,
				     const char *script, const char *const *words)
{
	const char *argv[16] = {python->path, "-B"};
	char path[256];
	int in[2], out[2], n = 2;

	snprintf(path, sizeof(path), STACK_SCRIPTS "/%s", script);
	if (access(path, R_OK) < 0 || pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		stack_die(path);
	argv[n++] = path;
	while (*words && n < 15)
		argv[n++] = *words++;
	c->pid = fork();
	if (c->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		execv(python->path, (char **)(uintptr_t)argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	c->in = in[1];
	c->out = fdopen(out[0], "r");
	if (c->pid < 0 || !c->out)
		stack_die("cannot start Python");
}

static inline void stack_child_ready(struct stack_child *c)
{
	char line[256];

	do {
		if (!stack_child_line(c, line, sizeof(line)))
			stack_die("the Python program has ended");
	} while (strncmp(line, "ready", 5) != 0);
}

static inline void stack_child_end(struct stack_child *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->in);
	fclose(c->out);
}

/* --- numbers --- */

static inline int stack_compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts them. part: 0.5 is the median. */
static inline double stack_quantile(double *values, size_t n, double part)
{
	if (!n)
		return 0;
	qsort(values, n, sizeof(*values), stack_compare_doubles);
	return values[(size_t)(part * (double)(n - 1) + 0.5)];
}

#endif
