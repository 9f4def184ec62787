/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Waits until processes have carried out a request: their files are there, their monitor is on or
 * off. Libraries of ours reply, and their recorder tells where files are. The profilers of
 * frameworks report states, PyTorch's own only whether it is busy: what they do follows from that.
 */
#ifndef SONDE_CLIENT_WAIT_H
#define SONDE_CLIENT_WAIT_H

#include "client/profiler_request.h"

enum wait_for { WAIT_FILES, WAIT_MONITOR_ON, WAIT_MONITOR_OVER, WAIT_MONITOR_OFF };

enum wait_state {
	WAIT_GOES_ON,
	WAIT_DONE, /* words: where the files are, as far as it is known */
	WAIT_LEFT_OUT, /* it was not meant */
	WAIT_FAILED, /* words: why */
	WAIT_STATES
};
extern const char *const wait_state_names[WAIT_STATES];

struct wait_process {
	int64_t pid;
	enum wait_state state;
	char *words; /* owned; NULL: none */
	bool is_guest; /* it replies */
	bool was_active; /* it has been seen at work */
	uint64_t idle_ns; /* since then it has fetched the request and does nothing; 0: not so */
};

struct wait_host {
	struct wait_process *processes;
	size_t n;
	json_int_t ended_before; /* traces of frameworks, before the request */
};

struct wait {
	/* set by the caller */
	enum wait_for what;
	unsigned timeout_s;
	uint64_t duration_ms; /* of a trace by time; 0: by steps */
	/* Adds where a process of PyTorch's own profiler writes; NULL: there is no such file. */
	void (*file)(const void *options, const struct host_entry *host, int64_t pid,
		     struct buf *out);
	/* the rest zeroed */
	struct wait_host *hosts;
	int64_t begun_ns; /* wall clock */
};

/* Before the request is sent, what there is then; and afterwards, until everybody is done or the
 * time is over. They fail if no host could be asked. */
int wait_begin(struct wait *w, struct client_group *g, const struct profiler_request *q,
	       struct err *err);
int wait_run(struct wait *w, struct client_group *g, const struct profiler_request *q,
	     const struct profiler_results *r, struct err *err);
void wait_release(struct wait *w, const struct client_group *g);

/* How many processes of all hosts are in this state. */
size_t wait_count(const struct wait *w, const struct client_group *g, enum wait_state state);

/* One look at a process. rows: of listProcesses; replies: of getAnswers, NULL: none. */
void wait_judge(struct wait_process *p, const struct wait *w, enum profiler_kind kind,
		const json_t *rows, const json_t *replies, json_int_t ended_before,
		uint64_t now_ns);

#endif
