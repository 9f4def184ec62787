/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Rows out of whatever a user may name: a recording (events.sonde or its directory), a dump (csv
 * or db), a directory with dumps below it (msmemscope_<pid>_<time>_ascend, or one of its
 * device_<N>). Shows progress.
 */
#ifndef SONDE_MEMORY_INPUT_INPUT_H
#define SONDE_MEMORY_INPUT_INPUT_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/processes/loss.h"
#include "memory/analysis/processes/processes.h"
#include "memory/options/asked.h"

struct stream_listener;
struct watch_sample;

/* The processes that a question is about: those of a pid or of a rank; none given: all. */
struct input_choice {
	uint32_t pid; /* 0: any */
	bool by_rank;
	int32_t rank;
	/* of that rank, by input_choose() */
	uint32_t *pids;
	size_t n, cap;
};
/* Finds who is meant; an error says who there is. */
int input_choose(const char *path, struct input_choice *choice, struct err *err);
bool input_is_chosen(const struct input_choice *choice, uint32_t pid); /* choice may be NULL */
void input_choice_reset(struct input_choice *choice); /* to choose from another recording */
void input_choice_release(struct input_choice *choice);

struct input_sink {
	/* Each is optional. */
	const struct input_choice *choice; /* what comes is about these processes alone */
	struct loss *loss; /* is filled in */
	struct mem_asked *asked; /* is filled in */
	/* Is filled in, too; held() says what a process has of host memory, at a sample of it. */
	struct processes *processes;
	bool (*held)(void *arg, uint32_t pid, struct process_blocks *out);
	void (*process)(void *arg, uint32_t pid, const char *command);
	void (*row)(void *arg, const struct row *row);
	void (*watch)(void *arg, uint32_t pid, const struct watch_sample *s);
	void (*lost)(void *arg, uint32_t pid, uint64_t events, uint64_t stacks, uint64_t damaged);
	void (*lost_more)(void *arg); /* how many more are missing, if any, is unknown */
	/* Calls of functions in a recording, and by how many threads; comes at its end. */
	void (*calls)(void *arg, uint64_t calls, uint64_t threads);
	void (*note)(void *arg, const char *text); /* a sentence that the reader should know */
	/*
	 * Rows of a dump went back in time: asked once at its end. If so, restart() is called and
	 * all rows come again, sorted.
	 */
	bool (*unordered)(void *arg);
	void (*restart)(void *arg);
	/* Attributes that row() looks at, a bit per enum attr_key; 0: all. Others may come, too. */
	uint64_t attrs;
	/* A dump that was read to its end. */
	void (*file)(void *arg, const char *path, bool is_dump);
	void *arg;
	const struct stream_listener *beside; /* who else hears the frames, of a recording */
};

/* The host of a recording (not of dumps, which do not say it); false: it is not known. */
bool input_find_host(const char *path, struct buf *out);

int input_read(const char *path, const struct input_sink *sink, struct err *err);

/*
 * Feeds an analysis that make() gives (again, when the rows have to come a second time) and leaves
 * it in *out; what the reader should know goes to notes, one sentence per line.
 */
struct input_analysis {
	struct analysis *(*make)(void *options);
	void *options;
	struct processes *processes; /* is filled in; the caller's, as long as the analysis lives */
	const struct input_choice *choice; /* NULL: all processes */
	struct loss *loss; /* is filled in */
};
int input_analyse(const char *path, const struct input_analysis *what, struct analysis **out,
		  struct buf *notes, struct err *err);

/* Files, zero-initialised; each path is owned by the list. */
struct input_paths {
	char **list;
	size_t n, cap;
};
void input_paths_add(struct input_paths *paths, const char *path);
void input_paths_release(struct input_paths *paths);

/* The dump files below a directory in the order of names; -ENOENT if there is none. */
int input_dumps(const char *dir, struct input_paths *out, struct err *err);

#endif
