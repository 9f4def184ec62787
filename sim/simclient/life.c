/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What every process of simclient does: speak, sleep, stop.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

static volatile sig_atomic_t asked;
static int own_rank;
static bool is_quiet;

void say_init(int rank, bool quiet)
{
	own_rank = rank;
	is_quiet = quiet;
}

void say(const char *fmt, ...)
{
	char line[1024];
	if (is_quiet)
		return;
	int n = snprintf(line, sizeof(line), "rank %d pid %d: ", own_rank, (int)getpid());
	va_list ap;
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	/* one write, so that lines of many ranks stay whole; a reader that is gone is no matter */
	if (write(STDOUT_FILENO, line, (size_t)n) < 0)
		is_quiet = true;
}

static void on_signal(int sig)
{
	(void)sig;
	asked = 1;
}

void stop_init(void)
{
	struct sigaction sa = {.sa_handler = on_signal};
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

bool stop_asked(void)
{
	return asked;
}

void nap_ms(int64_t ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	sigset_t none;
	sigemptyset(&none);
	if (ms <= 0 || asked)
		return;
	/* signals wake the thread that steps */
	ppoll(NULL, 0, &ts, gettid() == getpid() ? &none : NULL);
}

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;
	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t now_real_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}
