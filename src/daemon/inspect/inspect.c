/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "inspect"

#include "daemon/inspect/inspect.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/containers/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text/json_depth.h"
#include "base/text/printable.h"
#include "daemon/inspect/inspect_impl.h"
#include "daemon/jobs/jobs.h"
#include "daemon/loop.h"
#include "wire/rpc.h"

#define MAX_RUNS 8 /* at once, of all users together */
#define MAX_OF_USER 3 /* whose processes are looked into */
#define MAX_KEPT 32 /* answers */
#define MAX_KEPT_OF_USER 8 /* the oldest makes room for another */
#define TEXT_MAX (1u << 20) /* of one answer */
#define PIECE 65536
#define BYTES_PER_S TEXT_MAX /* more than that is no answer of ours */
#define SWEEP_S 2
#define IDLE_NS 15000000000ull /* a memory that nobody has asked for so long is not followed */
#define RETRY_NS 10000000000ull
#define KEEP_NS 300000000000ull /* an answer */
#define SNAP_NS 60000000000ull /* that a snapshot may take */
#define MAX_PIDS 64
#define NOT_HERE                                                                                   \
	"failed: the daemon runs with --user and starts no programs: ask with 'sonde mem live' "   \
	"or "                                                                                      \
	"'sonde snap' on the node"

enum kind { MEMORY, SNAPSHOT };

struct run {
	struct inspect *owner;
	enum kind kind;
	uint64_t id;
	uid_t uid;
	bool commands; /* the command lines in it may be shown to who started it */
	const char *by; /* of a memory, a literal */
	pid_t process; /* that it is about; of a snapshot the first of them */
	pid_t pid; /* of the program; 0: it has ended */
	int fd;
	struct event *readable;
	struct buf text; /* what has come; of a memory, behind its last whole line */
	struct buf line; /* the last whole answer: read, it can be fifty times as large */
	uint64_t bytes; /* that have come */
	char why[256]; /* it failed: in words */
	uint64_t started_ns, asked_ns;
	struct run *next;
};

struct inspect {
	struct daemon *d;
	struct run *runs; /* newest first */
	struct event *sweep; /* pending while there are some */
	uint64_t ids;
};

/* --- its end --- */

static void end_run(struct run *r)
{
	if (r->readable)
		event_free(r->readable);
	if (r->fd >= 0)
		close(r->fd);
	r->readable = NULL;
	r->fd = -1;
	if (r->pid > 0) {
		kill(r->pid, SIGKILL);
		if (waitpid(r->pid, NULL, WNOHANG) != 0)
			r->pid = 0; /* else the sweep comes back for it */
	}
}

static void free_run(struct run *r)
{
	end_run(r);
	if (r->pid > 0) /* it was killed; who sleeps in a file system is not waited for */
		waitpid(r->pid, NULL, WNOHANG);
	buf_release(&r->text);
	buf_release(&r->line);
	free(r);
}

/* --- what it prints --- */

/* An object as our program makes it, whoever has made it up. */
static json_t *read_answer(const char *text, size_t len)
{
	json_t *o = json_depth(text, len) > RPC_DEPTH_MAX ? NULL : json_loadb(text, len, 0, NULL);

	if (o && !json_is_object(o)) {
		json_decref(o);
		o = NULL;
	}
	return o;
}

/* It is read when somebody asks: one that prints without end costs nothing. */
static void take_answer(struct run *r, const char *text, size_t len)
{
	const char *object = len && *text != '{' ? memmem(text, len, "\n{", 2) : NULL;
	struct buf words = {0};

	if (object) { /* behind a warning */
		len -= (size_t)(object + 1 - text);
		text = object + 1;
	}
	if (len && *text == '{') {
		buf_clear(&r->line);
		buf_add(&r->line, text, len);
		*r->why = '\0';
	} else if (len) { /* what it says instead: the last line counts */
		text_add_shortened(&words, text, len, sizeof(r->why) - 8);
		snprintf(r->why, sizeof(r->why), "%s", buf_str(&words));
		buf_release(&words);
	}
}

/* A memory is a line for each answer, a snapshot all of the text. */
static void take_lines(struct run *r)
{
	char *end;

	while (r->kind == MEMORY && r->text.len &&
	       (end = memchr(r->text.data, '\n', r->text.len))) {
		size_t len = (size_t)(end - r->text.data);

		take_answer(r, r->text.data, len);
		r->text.len -= len + 1;
		memmove(r->text.data, end + 1, r->text.len);
	}
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct run *r = arg;
	ssize_t n = read(fd, buf_room(&r->text, PIECE), PIECE);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		uint64_t s = (clock_mono_ns() - r->started_ns) / 1000000000u;

		r->text.len += (size_t)n;
		r->bytes += (uint64_t)n;
		take_lines(r);
		if (r->text.len <= TEXT_MAX && r->bytes <= (s + 4) * BYTES_PER_S)
			return;
		snprintf(r->why, sizeof(r->why), "the answer is longer than %u KiB",
			 TEXT_MAX >> 10);
	} else {
		take_answer(r, r->text.len ? r->text.data : "", r->text.len);
	}
	buf_clear(&r->text);
	end_run(r);
}

/* --- starting --- */

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct inspect *i = arg;
	uint64_t now = clock_mono_ns();

	(void)fd, (void)what;
	for (struct run **at = &i->runs, *r; (r = *at);) {
		uint64_t idle = now - r->asked_ns;
		bool late = r->kind == SNAPSHOT && r->fd >= 0 && now - r->started_ns > SNAP_NS;

		if (late)
			snprintf(r->why, sizeof(r->why), "it took longer than a minute");
		if (late || r->fd < 0 || (r->kind == MEMORY && idle > IDLE_NS))
			end_run(r);
		if (r->fd < 0 && !r->pid && idle > (r->kind == MEMORY ? IDLE_NS : KEEP_NS)) {
			*at = r->next;
			free_run(r);
		} else {
			at = &r->next;
		}
	}
	if (i->runs)
		event_add(i->sweep, &(struct timeval){.tv_sec = SWEEP_S});
}

static void forget_oldest_of(struct inspect *i, uid_t uid)
{
	struct run **oldest = NULL, *r;
	unsigned kept = 0;

	for (struct run **at = &i->runs; *at; at = &(*at)->next) { /* newest first */
		if ((*at)->uid != uid)
			continue;
		kept++;
		if ((*at)->fd < 0 && !(*at)->pid)
			oldest = at;
	}
	if (!oldest || kept < MAX_KEPT_OF_USER)
		return;
	r = *oldest;
	*oldest = r->next;
	free_run(r);
}

static bool make_room(struct inspect *i, uid_t uid)
{
	unsigned running = 0, of_user = 0, kept = 0;

	for (const struct run *r = i->runs; r; r = r->next) {
		running += r->pid > 0;
		of_user += r->pid > 0 && r->uid == uid;
	}
	if (running >= MAX_RUNS || of_user >= MAX_OF_USER)
		return false;
	forget_oldest_of(i, uid);
	for (const struct run *r = i->runs; r; r = r->next)
		kept++;
	return kept < MAX_KEPT;
}

static struct run *start_run(struct inspect *i, enum kind kind, const struct jobs_owner *o,
			     const struct inspect_start *s, struct err *err)
{
	struct run *r = xcalloc(1, sizeof(*r));

	*r = (struct run){.owner = i,
			  .kind = kind,
			  .id = ++i->ids,
			  .uid = o->uid,
			  .commands = o->command_line,
			  .process = o->host_pid,
			  .fd = -1,
			  .started_ns = clock_mono_ns(),
			  .asked_ns = clock_mono_ns()};
	if (inspect_start(s, &r->pid, &r->fd, err) < 0) {
		free(r);
		return NULL;
	}
	log_debug("process %d of user %u is looked into", (int)o->host_pid, (unsigned)o->uid);
	r->readable = loop_event_new(i->d->base, r->fd, EV_READ | EV_PERSIST,
				     DAEMON_PRIORITY_METRICS, on_readable, r);
	event_add(r->readable, NULL);
	r->next = i->runs;
	i->runs = r;
	event_add(i->sweep, &(struct timeval){.tv_sec = SWEEP_S});
	return r;
}

struct inspect *inspect_new(struct daemon *d)
{
	struct inspect *i = xcalloc(1, sizeof(*i));

	i->d = d;
	i->sweep = loop_event_new(d->base, -1, 0, DAEMON_PRIORITY_METRICS, on_sweep, i);
	/* answers of a daemon before this one are not found under their numbers */
	i->ids = (uint64_t)clock_real_ns() / 1000;
	return i;
}

void inspect_free(struct inspect *i)
{
	if (!i)
		return;
	for (struct run *r = i->runs, *next; r; r = next) {
		next = r->next;
		free_run(r);
	}
	loop_event_free(i->sweep);
	free(i);
}

/* --- requests --- */

static json_t *refuse(const char *why)
{
	return json_pack("{s:o}", "status", json_sprintf("failed: %s", why));
}

static json_t *find_process(struct inspect *i, const struct access_grant *who, const json_t *pid,
			    struct jobs_owner *out)
{
	json_int_t n = json_integer_value(pid);

	if (!i || i->d->sandbox)
		return json_pack("{s:s}", "status", NOT_HERE);
	if (!json_is_integer(pid) || n <= 0 || n > INT32_MAX)
		return refuse("no pid given");
	if (!jobs_find_owner(i->d->jobs, who, (int32_t)n, out))
		return refuse("no such process is registered");
	return NULL;
}

static json_t *describe(struct run *r, const char *key, bool commands)
{
	const char *state = r->fd >= 0 ? "running" : *r->why ? "failed" : "ended";
	json_t *answer = r->line.len ? read_answer(r->line.data, r->line.len) : NULL, *process;
	size_t at;

	answer = answer ? answer : json_null();

	json_array_foreach(json_object_get(answer, "processes"), at, process) if (!commands)
		json_object_set_new(process, "command", json_null());
	if (!commands)
		json_object_del(answer, "recording");
	/* it may name files */
	json_t *why = !*r->why	 ? json_null()
		      : commands ? json_string(r->why)
				 : json_string("it could not be looked into; its user sees why");
	return json_pack("{s:s, s:o, s:o}", "state", state, "why", why, key, answer);
}

/* It has failed, but not just now. */
static bool is_to_be_tried_again(const struct run *r)
{
	return r->fd < 0 && !r->line.len && clock_mono_ns() - r->started_ns > RETRY_NS;
}

json_t *inspect_memory(struct inspect *i, const struct access_grant *who, const json_t *request)
{
	static const char *const all[] = {"line", "owner", "module"};
	const char *wanted = json_string_value(json_object_get(request, "by")), *by = all[0];
	struct jobs_owner o;
	struct err err = {0};
	char pid[16];
	json_t *fault = find_process(i, who, json_object_get(request, "pid"), &o);
	struct run *r;

	if (fault)
		return fault;
	for (size_t k = 1; wanted && k < sizeof(all) / sizeof(all[0]); k++)
		by = strcmp(wanted, all[k]) ? by : all[k];
	for (r = i->runs; r; r = r->next)
		if (r->kind == MEMORY && r->process == o.host_pid && r->uid == o.uid &&
		    r->by == by && !is_to_be_tried_again(r))
			break;
	if (!r && !make_room(i, o.uid))
		return refuse("too many questions at once; try again in a moment");
	snprintf(pid, sizeof(pid), "%d", (int)o.host_pid);
	struct inspect_start s = {
		{"mem", "live", "--json", "--interval=2", "--top=30", "--by", by, pid},
		o.host_pid,
		o.uid};
	if (!r)
		r = start_run(i, MEMORY, &o, &s, &err);
	if (!r)
		return refuse(err.text);
	r->by = by;
	r->asked_ns = clock_mono_ns();
	return describe(r, "memory", o.command_line);
}

/* "12,13": those of one user; -1 where they are not, or where there are too many. */
static int list_pids(struct inspect *i, const struct access_grant *who, const json_t *pids,
		     struct jobs_owner *first, struct buf *out)
{
	for (size_t k = 0; k < json_array_size(pids); k++) {
		struct jobs_owner o;
		json_t *fault = find_process(i, who, json_array_get(pids, k), &o);

		if (fault || k >= MAX_PIDS || (k && o.uid != first->uid)) {
			json_decref(fault);
			return -1;
		}
		if (!k)
			*first = o;
		buf_addf(out, "%s%d", k ? "," : "", (int)o.host_pid);
	}
	return out->len ? 0 : -1;
}

json_t *inspect_take_snapshot(struct inspect *i, const struct access_grant *who,
			      const json_t *request)
{
	struct jobs_owner o;
	struct err err = {0};
	struct buf pids = {0};
	json_t *reply;

	if (!i || i->d->sandbox)
		return json_pack("{s:s}", "status", NOT_HERE);
	if (list_pids(i, who, json_object_get(request, "pids"), &o, &pids) < 0) {
		reply = refuse("name registered processes of one user, 64 at most");
	} else if (!make_room(i, o.uid)) {
		reply = refuse("too many questions at once; try again in a moment");
	} else {
		struct inspect_start s = {
			{"snap", "--json", "--top=12", "-p", buf_str(&pids)}, o.host_pid, o.uid};
		struct run *r = start_run(i, SNAPSHOT, &o, &s, &err);

		reply = r ? json_pack("{s:I}", "snapshot", (json_int_t)r->id) : refuse(err.text);
	}
	buf_release(&pids);
	return reply;
}

json_t *inspect_get_snapshot(struct inspect *i, const struct access_grant *who,
			     const json_t *request)
{
	json_int_t id = json_integer_value(json_object_get(request, "snapshot"));

	for (struct run *r = i ? i->runs : NULL; r; r = r->next)
		if (r->kind == SNAPSHOT && r->id == (uint64_t)id && access_covers(who, r->uid))
			return describe(r, "snapshot",
					r->commands &&
						(!who || who->command_lines || who->uid == r->uid));
	return refuse("there is no such snapshot, or not any more");
}
