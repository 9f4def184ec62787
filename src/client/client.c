/* SPDX-License-Identifier: MulanPSL-2.0 */
/* All calls of a run: as many at a time as there may be files, the next as soon as one is done. */
#include "client/client.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/client_impl.h"

#define OTHER_FILES 64 /* that the process has open for other things */
#define FEWEST 16
/* A handshake costs us milliseconds of work, and the daemon waits seconds for it: more at a time
 * would only be late. */
#define MOST_TLS 256

/* How many connections there may be, after raising the limit as far as it goes. */
static size_t most_connections(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return FEWEST;
	if (files.rlim_cur < files.rlim_max) {
		struct rlimit more = {files.rlim_max, files.rlim_max};

		if (setrlimit(RLIMIT_NOFILE, &more) == 0)
			files = more;
	}
	return files.rlim_cur > OTHER_FILES + FEWEST ? (size_t)files.rlim_cur - OTHER_FILES
						     : FEWEST;
}

void client_attempt_done(struct client_attempt *a)
{
	struct client_run *run = a->run;
	struct client_call *call = a->call;

	if (call->reply)
		call->err.code = 0; /* an address before this one may have failed */
	call->seconds = (double)(clock_mono_ns() - a->start_ns) / 1e9;
	run->attempts[call - run->calls] = NULL;
	run->active--;
	client_attempt_free(a);
	if (run->options->done)
		run->options->done(run->options->arg, call);
}

/* A call may be done at once: that must not begin the next one from within. */
static void begin_calls(struct client_run *run)
{
	while (run->next < run->n && run->active < run->max_active)
		client_attempt_start(run, run->next++);
}

static void on_named(void *arg, size_t id, struct addrinfo *found, int error)
{
	struct client_run *run = arg;

	if (run->attempts[id])
		client_attempt_named(run->attempts[id], found, error);
	else if (found)
		freeaddrinfo(found); /* too late */
}

static int open_run(struct client_run *run, struct err *err)
{
	size_t most = most_connections();

	if (run->options->tls && most > MOST_TLS)
		most = MOST_TLS;
	run->max_active = run->options->max_in_flight;
	if (!run->max_active || run->max_active > most)
		run->max_active = most;
	run->base = event_base_new();
	if (run->base)
		run->names = client_names_new(run->base, on_named, run);
	if (!run->names)
		return err_set(err, -ENOMEM, "cannot make an event loop");
	run->attempts = xcalloc(run->n + 1, sizeof(*run->attempts));
	return 0;
}

int client_run(struct client_call *calls, size_t n, const struct client_options *o, struct err *err)
{
	struct client_run run = {.options = o, .calls = calls, .n = n};
	struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
	int r = open_run(&run, err);

	sigaction(SIGPIPE, &ignore, &before); /* OpenSSL writes as if it could not come */
	for (size_t i = 0; i < n; i++) {
		calls[i].reply = NULL;
		calls[i].reply_bytes = 0;
		calls[i].err.code = 0;
	}
	while (r == 0 && (run.active || run.next < n)) {
		begin_calls(&run);
		if (run.active && event_base_loop(run.base, EVLOOP_ONCE) < 0)
			r = err_set(err, -EIO, "the event loop failed");
	}
	for (size_t i = 0; r < 0 && run.attempts && i < n; i++)
		if (run.attempts[i])
			client_attempt_free(run.attempts[i]);
	client_names_free(run.names);
	if (run.base)
		event_base_free(run.base);
	free(run.attempts);
	sigaction(SIGPIPE, &before, NULL);
	return r;
}

void client_call_release(struct client_call *call)
{
	free(call->reply);
	call->reply = NULL;
	call->reply_bytes = 0;
}
