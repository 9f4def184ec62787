/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "poller.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "link.h"

#define REPLY_TRIES 5 /* of 10 ms */

struct board *board_map(void)
{
	void *p = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED,
		       client_shared_fd(), 0);
	return p == MAP_FAILED ? NULL : p;
}

static void board_write(struct board *b, const char *text, size_t len)
{
	atomic_fetch_add(&b->version, 1);
	memcpy(b->text, text, len);
	b->len = (uint32_t)len;
	atomic_fetch_add(&b->version, 1);
}

bool board_read(struct board *b, uint32_t *seen, char *out, size_t *out_len)
{
	uint32_t before = atomic_load(&b->version);
	if (before == *seen || before % 2)
		return false;
	*out_len = b->len < CONFIG_TEXT_MAX ? b->len : 0;
	memcpy(out, b->text, *out_len);
	if (atomic_load(&b->version) != before)
		return false; /* at the next step */
	*seen = before;
	return true;
}

/* 2 s at first; when there have been some steps, as long as one of them. */
static int period_ms(const struct client_options *o, struct board *b)
{
	if (o->poll_ms)
		return o->poll_ms;
	if (atomic_load(&b->step) <= 11)
		return 2000;
	int ms = (int)atomic_load(&b->step_ms);
	return ms < 1000 ? 1000 : ms > 50000 ? 50000 : ms;
}

/*
 * Registers, and does not wait for the answer. So the first poll finds that answer, and every later
 * one the answer to the request before it: a config arrives one period late.
 */
static int register_process(struct link *l, int rank)
{
	if (!link_server_there(l)) {
		say("no daemon at %s; it must be up before training starts",
		    l->server.sun.sun_path);
		return -ENOENT;
	}
	int r = link_context(l, rank);
	if (r) {
		say("not registered: %s", strerror(-r));
		return r;
	}
	link_trace_status(l, WIRE_IDLE, -1, -1, -1);
	link_monitor_status(l, WIRE_IDLE);
	say("registered");
	return 0;
}

static void poll_once(struct link *l, struct board *b)
{
	char text[CONFIG_TEXT_MAX];
	if (!link_server_there(l) || link_request(l, 3))
		return;
	ssize_t n = link_receive(l, REPLY_TRIES, text, sizeof(text));
	if (n == -EPERM)
		say("an answer from a stranger is in the way; nothing more will be read");
	/* the answer to the registration is told by its length alone */
	if (n <= 0 || n == 4)
		return;
	say("got a config of %d bytes", (int)n);
	board_write(b, text, (size_t)n);
}

static int poller_main(const struct client_options *o, struct board *b)
{
	struct link l;
	prctl(PR_SET_NAME, "DynMonitorProc");
	if (link_open(&l, o))
		return 1;
	int r = register_process(&l, o->rank);
	while (!r && !stop_asked()) {
		poll_once(&l, b);
		nap_ms(period_ms(o, b));
	}
	if (!r) {
		link_trace_status(&l, WIRE_UNINITIALIZED, -1, -1, -1);
		link_monitor_status(&l, WIRE_UNINITIALIZED);
	}
	link_close(&l);
	return r ? 1 : 0;
}

pid_t poller_start(const struct client_options *o, struct board *b)
{
	pid_t rank = getpid();
	pid_t pid = fork();
	if (pid)
		return pid;
	/* the real one would go on asking for a dead rank; nothing of ours is left behind */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != rank)
		_exit(1);
	_exit(poller_main(o, b));
}
