/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * simclient: processes that talk to a node daemon exactly as frameworks do, with their timing and
 * their oddities, and train nothing.
 *
 *   launcher (--ranks N)
 *     rank 0 … N-1                      steps; starts and ends traces; runs the monitor
 *       DynMonitorProc (rank 0, --npu)  the one process of the node that asks for configs
 *
 * A rank of the NPU kind learns of configs through a page that all ranks of a launch share. A rank
 * of the libkineto kind asks by itself, from a thread.
 */
#ifndef SIM_CLIENT_H
#define SIM_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

enum client_kind {
	CLIENT_NPU, /* torch_npu with IPCMonitor */
	CLIENT_NPU_OLD, /* the same before November 2025 */
	CLIENT_KINETO, /* PyTorch's libkineto */
};

/* Where the daemon is. */
struct place {
	enum { PLACE_HOME, PLACE_SOCKET, PLACE_DIR, PLACE_ABSTRACT } kind;
	const char *path; /* of the socket, of the directory, or of a home instead of one's own */
};

struct client_options {
	enum client_kind kind;
	struct place place;
	int ranks; /* 0: no launcher, this process is the only rank */
	int rank;
	int steps; /* 0: until stopped */
	int step_ms;
	int poll_ms; /* 0: as the real client */
	int status_ms;
	int warmup_ms; /* libkineto, before a trace by duration */
	bool quiet;
};

/* 0, or the exit status of the program, plus 1. */
int options_parse(int argc, char **argv, struct client_options *o);

/* A rank, until its last step or until it is told to stop. The exit status. */
int npu_run(const struct client_options *o);
int kineto_run(const struct client_options *o);

/* A page that the ranks of a launch share, by descriptor; inherited by name in the environment. */
#define CLIENT_SHARED_ENV "SIMCLIENT_SHARED"
int client_shared_fd(void);

/* One line of what this process does; "rank 0 pid 42: …". */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void say_init(int rank, bool quiet);

/* SIGTERM and SIGINT ask to stop. They are delivered only while a nap is taken, so none is missed.
 */
void stop_init(void);
bool stop_asked(void);
/* Sleeps; less if asked to stop. */
void nap_ms(int64_t ms);

uint64_t now_ns(void); /* since boot */
uint64_t now_real_ns(void); /* since the epoch */

#endif
