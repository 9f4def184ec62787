/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "diagnose"
#include "memory/outputs/amender.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/subprocess.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COPIES 4
#define LARGE_BYTES (4u << 20)

/* What comes of a file. That of a copy lies in memory that we share with it. */
struct outcome {
	uint64_t rows;
	int result;
	struct err err;
};

struct copy {
	pid_t pid;
	char *path;
	struct outcome *outcome;
};

struct amender {
	enum row_compat compat;
	bool aside;
	struct copy copies[COPIES];
	size_t n;
	uint64_t failed;
};

struct amender *amender_new(enum row_compat compat, bool aside)
{
	struct amender *a = xcalloc(1, sizeof(*a));

	a->compat = compat;
	a->aside = aside;
	return a;
}

/* By us alone: a copy may have been made while another thread was in the middle of a log line. */
static void log_outcome(struct amender *a, const char *path, const struct outcome *o)
{
	if (o->result < 0) {
		a->failed++;
		log_err("%s", o->err.text);
	} else {
		log_info("%llu rows of %s amended", (unsigned long long)o->rows, path);
	}
}

static void end_copy(struct amender *a, size_t i, int status)
{
	struct copy *c = &a->copies[i];

	if (!WIFEXITED(status) || WEXITSTATUS(status))
		c->outcome->result = err_set(&c->outcome->err, -EINTR,
					     "'%s' is not amended: it was interrupted", c->path);
	log_outcome(a, c->path, c->outcome);
	munmap(c->outcome, sizeof(*c->outcome));
	free(c->path);
	*c = a->copies[--a->n];
}

static bool reap_copies(struct amender *a, int flags)
{
	for (size_t i = a->n; i > 0; i--) {
		int status = -1;
		pid_t r = waitpid(a->copies[i - 1].pid, &status, flags);
		if (r > 0 || (r < 0 && errno != EINTR))
			end_copy(a, i - 1, status);
	}
	return a->n > 0;
}

bool amender_busy(struct amender *a)
{
	return a->n && reap_copies(a, WNOHANG);
}

static uint64_t file_size(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

void amender_progress(const struct amender *a, uint64_t *out_done, uint64_t *out_all)
{
	*out_done = *out_all = 0;
	for (size_t i = 0; i < a->n; i++) {
		char *new = dump_amend_name(a->copies[i].path, a->copies[i].pid);

		uint64_t done = file_size(new);
		*out_all +=
			done ? file_size(a->copies[i].path) : 0; /* else rows are written over */
		*out_done += done;
		free(new);
	}
	if (*out_done > *out_all) /* it is longer than the old one */
		*out_done = *out_all;
}

void amender_free(struct amender *a)
{
	if (!a)
		return;
	while (a->n)
		reap_copies(a, 0);
	free(a);
}

uint64_t amender_failed(const struct amender *a)
{
	return a->failed;
}

/* False: there is no room for another copy. */
static bool give_to_copy(struct amender *a, const char *path, amend_lookup find, void *arg)
{
	if (a->n == COPIES && reap_copies(a, WNOHANG) && a->n == COPIES)
		return false;
	struct outcome *o =
		mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (o == MAP_FAILED)
		return false;
	pid_t pid = fork_copy();
	if (pid == 0) {
		o->result = dump_amend(path, a->compat, find, arg, &o->rows, &o->err);
		_exit(0);
	}
	if (pid < 0) {
		munmap(o, sizeof(*o));
		return false;
	}
	a->copies[a->n++] = (struct copy){pid, xstrdup(path), o};
	return true;
}

void amender_file(struct amender *a, const char *path, amend_lookup find, void *arg)
{
	struct outcome o = {0};

	if (a->aside && file_size(path) >= LARGE_BYTES && give_to_copy(a, path, find, arg))
		return;
	o.result = dump_amend(path, a->compat, find, arg, &o.rows, &o.err);
	log_outcome(a, path, &o);
}
