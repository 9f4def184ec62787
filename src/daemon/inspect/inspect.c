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
#define EVERYBODY ((uid_t)-1)
#define TEXT_MAX (1u << 20) /* of one answer */
#define PIECE 65536
#define BYTES_PER_S TEXT_MAX /* more than that is no answer of ours */
#define PAGE_MAX (32u << 20) /* of a report */
#define PAGE_NS 300000000000ull /* that one may take */
#define SWEEP_S 2
#define REAP_US 20000 /* what has said everything is gone by then */
#define IDLE_NS 15000000000ull /* a memory that nobody has asked for so long is not followed */
#define RETRY_NS 10000000000ull
#define KEEP_NS 300000000000ull /* an answer */
#define SNAP_NS 120000000000ull /* that a snapshot may take, or an order */
#define MAX_PIDS 64
#define NOT_HERE                                                                                   \
	"failed: the daemon runs with --user and starts no programs: ask with 'sonde mem live', "  \
	"'sonde snap', 'sonde report' or 'sonde ctl watch' on the node"

/* What an answer may be: a line each, or all of the text. */
static const struct kind {
	bool goes_on; /* while somebody asks, a line for each answer */
	uint32_t most_bytes; /* of an answer */
	uint64_t most_ns; /* that it may take */
	uint64_t keep_ns; /* afterwards */
} kinds[] = {
	[INSPECT_MEMORY] = {true, TEXT_MAX, UINT64_MAX, IDLE_NS},
	[INSPECT_SNAPSHOT] = {false, TEXT_MAX, SNAP_NS, KEEP_NS},
	[INSPECT_REPORT] = {false, PAGE_MAX, PAGE_NS, 2 * KEEP_NS},
	[INSPECT_HOSTS] = {true, TEXT_MAX, UINT64_MAX, IDLE_NS},
	[INSPECT_ORDER] = {false, TEXT_MAX, SNAP_NS, KEEP_NS},
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
			r->pid = 0;
		else /* it is about to end, and takes the place of another */
			event_add(r->owner->sweep, &(struct timeval){.tv_usec = REAP_US});
	}
}

static void release_answer(struct run *r)
{
	buf_release(&r->line);
	if (r->page)
		evbuffer_free(r->page);
	r->page = NULL;
	if (r->file >= 0)
		close(r->file);
	r->file = -1;
}

static void free_run(struct run *r)
{
	end_run(r);
	if (r->pid > 0) /* it was killed; who sleeps in a file system is not waited for */
		waitpid(r->pid, NULL, WNOHANG);
	buf_release(&r->text);
	release_answer(r);
	free(r->about);
	free(r);
}

/* --- what it prints --- */

/* An object, or of hosts a list, as our program makes it, whoever has made it up. Words on the standard
 * error may follow. */
static json_t *read_answer(const char *text, size_t len)
{
	json_t *o = json_depth(text, len) > RPC_DEPTH_MAX
			    ? NULL
			    : json_loadb(text, len, JSON_DISABLE_EOF_CHECK, NULL);

	if (o && !json_is_object(o) && !json_is_array(o)) {
		json_decref(o);
		o = NULL;
	}
	return o;
}

/* It is read when somebody asks: one that prints without end costs nothing. */
static void take_answer(struct run *r, const char *text, size_t len)
{
	bool list = r->kind == INSPECT_HOSTS || r->kind == INSPECT_ORDER;
	char begin[] = {'\n', list ? '[' : '{', 0};
	const char *object = len && *text != begin[1] ? memmem(text, len, begin, 2) : NULL;
	struct buf words = {0};

	if (object) { /* behind a warning */
		len -= (size_t)(object + 1 - text);
		text = object + 1;
	}
	if (len && *text == begin[1]) {
		buf_clear(&r->line);
		buf_add(&r->line, text, len);
		*r->why = '\0';
	} else if (len) { /* what it says instead: the last line counts */
		text_add_shortened(&words, text, len, sizeof(r->why) - 8);
		snprintf(r->why, sizeof(r->why), "%s", buf_str(&words));
		buf_release(&words);
	}
}

static void take_lines(struct run *r)
{
	char *end;

	while (kinds[r->kind].goes_on && r->text.len &&
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
		uint32_t most = kinds[r->kind].most_bytes;
		struct err err = {0};

		r->text.len += (size_t)n;
		r->bytes += (uint64_t)n;
		take_lines(r);
		if (r->kind == INSPECT_REPORT)
			inspect_save_page(r, &err);
		if (!err.code && r->text.len + r->file_bytes <= most &&
		    r->bytes <= (s + 4) * BYTES_PER_S + most)
			return;
		if (err.code)
			snprintf(r->why, sizeof(r->why), "%.250s", err.text);
		else
			snprintf(r->why, sizeof(r->why), "the answer is longer than %u KiB",
				 most >> 10);
		release_answer(r);
	} else if (r->file < 0) {
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
		const struct kind *k = &kinds[r->kind];
		bool late = r->fd >= 0 && now - r->started_ns > k->most_ns;

		if (late)
			snprintf(r->why, sizeof(r->why), "it took longer than %u minutes",
				 (unsigned)(k->most_ns / 60000000000u));
		if (late || r->fd < 0 || (k->goes_on && idle > IDLE_NS))
			end_run(r);
		if (r->fd < 0 && !r->pid && (idle > k->keep_ns || !r->id)) {
			*at = r->next;
			free_run(r);
		} else {
			at = &r->next;
		}
	}
	if (i->runs)
		event_add(i->sweep, &(struct timeval){.tv_sec = SWEEP_S});
}

/* If at least so many are kept of that user. */
static void forget_oldest_of(struct inspect *i, uid_t uid, unsigned least)
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
	if (!oldest || kept < least)
		return;
	r = *oldest;
	*oldest = r->next;
	free_run(r);
}

static unsigned count_kept(const struct inspect *i, uid_t uid)
{
	unsigned n = 0;

	for (const struct run *r = i->runs; r; r = r->next)
		n += uid == EVERYBODY || r->uid == uid;
	return n;
}

static uid_t find_user_with_most(const struct inspect *i)
{
	uid_t found = EVERYBODY;
	unsigned most = 0;

	for (const struct run *r = i->runs; r; r = r->next)
		if (count_kept(i, r->uid) > most) {
			most = count_kept(i, r->uid);
			found = r->uid;
		}
	return found;
}

static bool make_room(struct inspect *i, uid_t uid)
{
	unsigned running = 0, of_user = 0;

	for (const struct run *r = i->runs; r; r = r->next) {
		running += r->pid > 0;
		of_user += r->pid > 0 && r->uid == uid;
	}
	if (running >= MAX_RUNS || of_user >= MAX_OF_USER)
		return false;
	forget_oldest_of(i, uid, MAX_KEPT_OF_USER);
	if (count_kept(i, EVERYBODY) >= MAX_KEPT)
		forget_oldest_of(i, find_user_with_most(i), 1);
	return count_kept(i, EVERYBODY) < MAX_KEPT;
}

struct run *inspect_run(struct inspect *i, const struct run *like, const struct inspect_start *s,
			struct err *err)
{
	struct run *r;

	if (!make_room(i, like->uid)) {
		err_set(err, -EAGAIN, "too many requests at once; try again in a moment");
		return NULL;
	}
	r = xcalloc(1, sizeof(*r));
	*r = *like;
	r->owner = i;
	r->id = ++i->ids;
	r->fd = r->file = -1;
	r->started_ns = r->asked_ns = clock_mono_ns();
	if (inspect_start(s, &r->pid, &r->fd, err) < 0) {
		free(r);
		return NULL;
	}
	r->about = like->about ? xstrdup(like->about) : NULL;
	log_debug("'sonde %s' runs as user %u", s->words[0], (unsigned)r->uid);
	r->readable = loop_event_new(i->d->base, r->fd, EV_READ | EV_PERSIST,
				     DAEMON_PRIORITY_METRICS, on_readable, r);
	event_add(r->readable, NULL);
	r->next = i->runs;
	i->runs = r;
	event_add(i->sweep, &(struct timeval){.tv_sec = SWEEP_S});
	return r;
}

void inspect_drop(struct run *r)
{
	end_run(r);
	release_answer(r);
	r->id = 0; /* nobody finds it; the sweep frees it */
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

json_t *inspect_refuse(const char *why)
{
	return json_pack("{s:o}", "status", json_sprintf("failed: %s", why));
}

json_t *inspect_not_here(const struct inspect *i)
{
	return !i || i->d->sandbox ? json_pack("{s:s}", "status", NOT_HERE) : NULL;
}

static json_t *find_process(struct inspect *i, const struct access_grant *who, const json_t *pid,
			    struct jobs_owner *out)
{
	json_int_t n = json_integer_value(pid);

	json_t *not_here = inspect_not_here(i);

	if (not_here)
		return not_here;
	if (!json_is_integer(pid) || n <= 0 || n > INT32_MAX)
		return inspect_refuse("no pid given");
	if (!jobs_find_owner(i->d->jobs, who, (int32_t)n, out))
		return inspect_refuse("no such process is registered");
	return NULL;
}

json_t *inspect_answer(const struct run *r)
{
	json_t *answer = r->line.len ? read_answer(r->line.data, r->line.len) : NULL;

	return answer ? answer : json_null();
}

json_t *inspect_state(const struct run *r, const char *key, json_t *answer, bool reasons)
{
	const char *state = r->fd >= 0 ? "running" : *r->why ? "failed" : "ended";
	/* it may name files */
	json_t *why =
		!*r->why  ? json_null()
		: reasons ? json_string(r->why)
			  : json_string("it could not be read; its own user can see the reason");

	return json_pack("{s:s, s:o, s:o}", "state", state, "why", why, key, answer);
}

static json_t *describe_process(const struct run *r, const char *key, bool commands)
{
	json_t *answer = inspect_answer(r), *process;
	size_t at;

	json_array_foreach(json_object_get(answer, "processes"), at, process) if (!commands)
		json_object_set_new(process, "command", json_null());
	if (!commands)
		json_object_del(answer, "recording");
	return inspect_state(r, key, answer, commands);
}

bool inspect_may_try_again(const struct run *r)
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
		if (r->kind == INSPECT_MEMORY && r->process == o.host_pid && r->uid == o.uid &&
		    r->by == by && !inspect_may_try_again(r))
			break;
	snprintf(pid, sizeof(pid), "%d", (int)o.host_pid);
	struct inspect_start s = {
		.words = {"mem", "live", "--json", "--interval=2", "--top=30", "--by", by, pid},
		.process = o.host_pid,
		.uid = o.uid};
	struct run like = {.kind = INSPECT_MEMORY, .uid = o.uid, .process = o.host_pid, .by = by};
	like.commands = o.command_line;
	if (!r)
		r = inspect_run(i, &like, &s, &err);
	if (!r)
		return inspect_refuse(err.text);
	r->asked_ns = clock_mono_ns();
	return describe_process(r, "memory", o.command_line);
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
	struct jobs_owner o = {0};
	struct err err = {0};
	struct buf pids = {0};
	json_t *reply;

	reply = inspect_not_here(i);
	if (reply)
		return reply;
	if (list_pids(i, who, json_object_get(request, "pids"), &o, &pids) < 0) {
		reply = inspect_refuse("name registered processes of one user, 64 at most");
	} else {
		struct inspect_start s = {
			.words = {"snap", "--json", "--top=12", "-p", buf_str(&pids)},
			.process = o.host_pid,
			.uid = o.uid};
		struct run like = {.kind = INSPECT_SNAPSHOT, .uid = o.uid, .process = o.host_pid};

		like.commands = o.command_line;
		struct run *r = inspect_run(i, &like, &s, &err);
		reply = r ? json_pack("{s:I}", "snapshot", (json_int_t)r->id)
			  : inspect_refuse(err.text);
	}
	buf_release(&pids);
	return reply;
}

json_t *inspect_get_snapshot(struct inspect *i, const struct access_grant *who,
			     const json_t *request)
{
	json_int_t id = json_integer_value(json_object_get(request, "snapshot"));

	for (struct run *r = i ? i->runs : NULL; r; r = r->next)
		if (r->kind == INSPECT_SNAPSHOT && r->id == (uint64_t)id &&
		    access_covers(who, r->uid))
			return describe_process(
				r, "snapshot",
				r->commands && (!who || who->command_lines || who->uid == r->uid));
	return inspect_refuse("no such snapshot: it may have been deleted");
}
