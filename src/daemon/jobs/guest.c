/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Guests: libraries of ours inside jobs. They poll as every client does, but can be notified that
 * something waits for them, report which options of a request they honour, and reply to requests:
 * done, or why not. Frameworks never reply; who made a request asks for the replies some moments
 * later.
 */
#define LOG_AREA "jobs"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text/printable.h"
#include "daemon/jobs/jobs_impl.h"
#include "wire/request.h"

#define CAN_REPORTED 1u /* the first bit: it reported what it can */
#define CAN_BYTES 4096 /* of such a report */
#define MAX_WORDS 256
#define FILES_BYTES 4400 /* of a message about files: a path and two numbers */
#define MAX_LOGGED_FAILURES 4 /* about one request: anybody can send anything */

#define RECORDED (UINT64_C(1) << 63) /* its monitor is that of `sonde record` */

/* A key of a config, the option that sets it, and what it is without. An option with two keys has
 * two rows; an item of a list that not everybody knows has one, KEY.item. */
static const struct {
	const char *key, *option, *usual;
} keys[] = {
	{"ACTIVITIES_LOG_FILE", "--log-file", NULL},
	{"PROFILE_START_STEP", "--start-step", NULL},
	{"ACTIVITIES_ITERATIONS", "--iterations", NULL},
	{"ACTIVITIES_DURATION_MSECS", "--duration-ms", NULL},
	{"PROFILE_RECORD_SHAPES", "--record-shapes", "false"},
	{"PROFILE_PROFILE_MEMORY", "--profile-memory", "false"},
	{"PROFILE_WITH_STACK", "--with-stack", "false"},
	{"PROFILE_WITH_FLOPS", "--with-flops", "false"},
	{"PROFILE_WITH_MODULES", "--with-modules", "false"},
	{"PROFILE_ACTIVITIES", "--activities", "CPU,NPU"},
	{"PROFILE_ANALYSE", "--analyse", "false"},
	{"PROFILE_ASYNC_MODE", "--async-mode", "false"},
	{"PROFILE_PROFILER_LEVEL", "--profiler-level", "Level0"},
	{"PROFILE_AIC_METRICS", "--aic-metrics", "AiCoreNone"},
	{"PROFILE_L2_CACHE", "--l2-cache", "false"},
	{"PROFILE_OP_ATTR", "--op-attr", "false"},
	{"PROFILE_MSPROF_TX", "--msprof-tx", "false"},
	{"PROFILE_GC_DETECT_THRESHOLD", "--gc-detect-threshold", "None"},
	{"PROFILE_DATA_SIMPLIFICATION", "--data-simplification", "true"},
	{"PROFILE_EXPORT_TYPE", "--export-type", "Text"},
	{"PROFILE_HOST_SYS", "--host-sys", "None"},
	{"PROFILE_HOST_SYS.osrt", "--host-sys osrt", NULL},
	{"PROFILE_SYS_IO", "--sys-io", "false"},
	{"PROFILE_SYS_INTERCONNECTION", "--sys-interconnection", "false"},
	{"PROFILE_MSTX_DOMAIN_INCLUDE", "--mstx-domain-include", "None"},
	{"PROFILE_MSTX_DOMAIN_EXCLUDE", "--mstx-domain-exclude", "None"},
	{"PROFILE_RANK_LIST", "--rank-list", "None"},
	{"REPORT_INTERVAL_S", "--report-interval-s", "60"},
	{"DURATION", "--duration", "0"},
	{"MSPTI_ACTIVITY_KIND", "--mspti-activity-kind", "Marker"},
	{"NPU_MONITOR_LOG_FILE", "--log-file", ""},
	{"NPU_MONITOR_EXPORT_TYPE", "--export-type", "DB"},
	{"JSONL_ROTATE_LOG_LINES", "--json-rotate-log-lines", ""},
	{"JSONL_ROTATE_LOG_FILES", "--json-rotate-log-files", ""},
	{"NPU_MONITOR_FILTER", "--filter", ""},
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))
_Static_assert(KEYS < 62, "a bit for each, CAN_REPORTED and RECORDED");

static uint64_t bit_of(size_t key)
{
	return UINT64_C(2) << key;
}

struct jobs_guest *jobs_guest_new(struct jobs_process *self, const struct jobs_address *from)
{
	struct jobs_guest *g = xcalloc(1, sizeof(*g));

	g->self = self;
	g->address = *from;
	return g;
}

void jobs_guest_free(struct jobs_guest *g)
{
	if (!g)
		return;
	BUG_ON(g->pause != JOBS_PAUSE_NONE);
	jobs_config_release(g->internal_request);
	jobs_config_release(g->stop);
	free(g->reply);
	free(g->files);
	free(g);
}

void jobs_guest_polled(struct jobs_guest *g, const struct jobs_address *from)
{
	/* another socket may be another library */
	if (g->address.len != from->len || memcmp(&g->address.address, &from->address, from->len))
		g->can = 0;
	g->address = *from;
}

void jobs_on_notify(struct jobs *j, jobs_notify_fn fn, void *arg)
{
	j->notify = fn;
	j->notify_arg = arg;
}

void jobs_on_gone(struct jobs *j, jobs_gone_fn fn, void *arg)
{
	j->gone = fn;
	j->gone_arg = arg;
}

void jobs_guest_gone(const struct jobs *j, const struct jobs_process *p)
{
	if (j->gone && p->guest)
		j->gone(j->gone_arg, p->uid, &p->guest->address);
}

void jobs_notify(const struct jobs *j, const struct jobs_process *p)
{
	if (j->notify && p->guest)
		j->notify(j->notify_arg, p->uid, &p->guest->address);
}

/* --- who is in the same process --- */

static struct jobs_process *other_client(const struct jobs *j, const struct jobs_process *p,
					 bool guest)
{
	if (p->peer) {
		struct jobs_process *q = p->peer->first;

		while (q && (q == p || q->pid != p->pid || !q->guest == guest))
			q = q->peer_next;
		return q;
	}
	struct jobs_process *q = jobs_find(j, 0, p->uid, p->job_id, p->pid, guest);
	/* libkineto takes the job's number from Slurm, a guest may not */
	return q ? q : jobs_find(j, 0, p->uid, 0, p->pid, guest);
}

struct jobs_process *jobs_guest_of(const struct jobs *j, const struct jobs_process *p)
{
	return p->guest ? NULL : other_client(j, p, true);
}

struct jobs_process *jobs_tracer_of(const struct jobs *j, const struct jobs_process *p)
{
	struct jobs_process *q = p->guest ? other_client(j, p, false) : NULL;
	bool polls = q && q->received & JOBS_RECEIVED_REQUEST;

	return polls && !(q->received & (JOBS_RECEIVED_TRACE | JOBS_RECEIVED_MONITOR)) ? q : NULL;
}

/* --- what it can --- */

static uint64_t read_keys(const char *text, size_t len)
{
	uint64_t can = CAN_REPORTED;

	for (size_t at = 0; at < len;) {
		size_t n = 0;

		while (at + n < len && text[at + n] != ' ' && text[at + n] != '\n')
			n++;
		for (size_t i = 0; i < KEYS && n; i++)
			if (strlen(keys[i].key) == n && !memcmp(keys[i].key, text + at, n))
				can |= bit_of(i);
		if (n == sizeof(FABRIC_RECORDED) - 1 && !memcmp(FABRIC_RECORDED, text + at, n))
			can |= RECORDED;
		at += n + 1;
	}
	return can;
}

bool jobs_guest_is_recorded(const struct jobs_guest *g)
{
	return g && g->can & RECORDED;
}

/* One whose pid is not visible is known by its address. */
static bool is_from(const struct jobs_process *p, const struct jobs_sender *from)
{
	const struct jobs_address *a = &p->guest->address;

	return p->uid == from->uid && a->len == from->guest->len &&
	       !memcmp(&a->address, &from->guest->address, a->len);
}

static bool set_unseen(struct jobs *j, const struct jobs_sender *from, uint64_t can)
{
	bool found = false;
	size_t n;
	struct jobs_process **all = jobs_collect(j, NULL, NULL, NULL, NULL, &n);

	for (size_t i = 0; i < n; i++)
		if (all[i]->guest && !all[i]->peer && is_from(all[i], from)) {
			all[i]->guest->can = can;
			found = true;
		}
	free(all);
	return found;
}

bool jobs_can(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len)
{
	bool found = false;

	if (!from->guest || len > CAN_BYTES)
		return false;
	uint64_t can = read_keys(text, len);
	if (!from->pid)
		return set_unseen(j, from, can);
	struct jobs_peer *peer = hmap_get_ptr(&j->peers, (uint64_t)from->pid);
	for (struct jobs_process *p = peer ? peer->first : NULL; p; p = p->peer_next)
		if (p->guest) {
			p->guest->can = can;
			found = true;
		}
	return found;
}

static bool is_default(const char *value, size_t len, const char *usual)
{
	return strlen(usual) == len && !memcmp(value, usual, len);
}

/* Does the list of this key have the item? */
static bool has_item(const char *config, const char *key, const char *dot)
{
	char *name = xstrndup(key, (size_t)(dot - key));
	struct request_text list;
	bool has = request_find(config, strlen(config), name, &list) &&
		   request_lists(&list, dot + 1, strlen(dot + 1));

	free(name);
	return has;
}

void jobs_guest_unsupported(const struct jobs_guest *g, const char *config, uint64_t *set)
{
	if (!(g->can & CAN_REPORTED))
		return;
	for (size_t i = 0; i < KEYS; i++) {
		const char *dot = strchr(keys[i].key, '.'), *value;
		size_t len;

		if (g->can & bit_of(i))
			continue;
		if (dot) { /* the row of the key itself is above */
			if (!(*set & bit_of(i - 1)) && has_item(config, keys[i].key, dot))
				*set |= bit_of(i);
			continue;
		}
		value = config_value(config, keys[i].key, &len);
		if (!value)
			continue;
		if (!keys[i].usual || !is_default(value, len, keys[i].usual))
			*set |= bit_of(i);
	}
}

json_t *jobs_unsupported_options(uint64_t set)
{
	json_t *list = json_array();

	for (size_t i = 0; i < KEYS; i++)
		if (set & bit_of(i))
			json_array_append_new(list, json_string(keys[i].option));
	return list;
}

/* --- replies --- */

/* Of a text from outside, what can be shown. */
static char *printable_words(const char *text, size_t len)
{
	struct buf out = {0};

	text_add_shortened(&out, text, len, MAX_WORDS);
	char *words = xstrdup(buf_str(&out));
	buf_release(&out);
	return words;
}

static void record_reply(struct jobs *j, struct jobs_process *p, uint64_t id, const char *words,
			 size_t len)
{
	struct jobs_guest *g = p->guest;

	if (!g || !id || g->request_id != id)
		return;
	free(g->reply);
	g->reply = NULL;
	g->replied_id = id;
	g->succeeded = !len || *words == '+';
	if (!len)
		return;
	g->reply = printable_words(words + g->succeeded, len - g->succeeded);
	g->ends_trace =
		g->succeeded && !strncmp(g->reply, "ended", 5) && p->trace == FABRIC_RUNNING;
	if (g->succeeded && g->trace_id && !g->files && !strncmp(g->reply, "dropped", 7)) {
		g->files = xasprintf("the trace was %s", g->reply);
		g->is_written = false;
	}
	if (g->succeeded || g->logged_failures == MAX_LOGGED_FAILURES ||
	    !user_limit_take(j->log_limit, p->uid))
		return;
	g->logged_failures++;
	log_warn("process %d did not carry out its request: %s", (int)p->pid, g->reply);
}

bool jobs_replied(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len)
{
	const char *space = memchr(text, ' ', len);

	if (!from->guest || !from->pid || !space || space - text > 20)
		return false;
	char digits[24] = "";
	memcpy(digits, text, (size_t)(space - text));
	uint64_t id = strtoull(digits, NULL, 10);
	size_t rest = len - (size_t)(space + 1 - text);
	struct jobs_peer *peer = hmap_get_ptr(&j->peers, (uint64_t)from->pid);
	for (struct jobs_process *p = peer ? peer->first : NULL; p; p = p->peer_next)
		record_reply(j, p, id, space + 1, rest);
	return peer != NULL;
}

void jobs_expect_reply(struct jobs_process *p, const struct jobs_config *c)
{
	struct jobs_guest *g = p->guest;

	if (!g)
		return;
	g->request_id = c->id;
	g->logged_failures = 0;
	if (!c->is_npu_trace)
		return;
	g->trace_id = c->id;
	g->stop_id = 0;
	free(g->files);
	g->files = NULL;
}

/* "<pid> <request> +<path>", or why there are no files. */
bool jobs_files(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len)
{
	char *copy = xstrndup(text, len < FILES_BYTES ? len : FILES_BYTES), *end;
	long pid = strtol(copy, &end, 10);
	uint64_t id = *end == ' ' ? strtoull(end + 1, &end, 10) : 0;
	bool is_known = false;
	struct jobs_process *p = NULL;

	if (pid > 0 && pid <= INT32_MAX && id && *end == ' ')
		p = jobs_find_reported(j, from, (int32_t)pid, &is_known);
	if (p && p->guest && p->guest->trace_id == id) {
		struct buf words = {0};

		p->guest->is_written = end[1] == '+';
		end += 1 + p->guest->is_written;
		text_add_printable(&words, end, strlen(end));
		free(p->guest->files);
		p->guest->files = xstrdup(buf_str(&words));
		buf_release(&words);
	}
	free(copy);
	return p || !is_known; /* of one that has ended, nobody asks any more */
}

struct replies {
	json_int_t done;
	json_t *expected, *failed, *waiting, *outcomes, *written, *not_written;
};

static void add_files(const struct jobs_process *p, uint64_t id, struct replies *out)
{
	const struct jobs_guest *g = p->guest;

	if (g && (g->request_id == id || g->trace_id == id))
		json_array_append_new(out->expected, json_integer(p->pid));
	if (g && g->files && (g->trace_id == id || g->stop_id == id))
		json_array_append_new(g->is_written ? out->written : out->not_written,
				      json_pack("{sIss}", "pid", (json_int_t)p->pid,
						g->is_written ? "path" : "why", g->files));
}

static void add_reply(const struct jobs_process *p, uint64_t id, struct replies *out)
{
	const struct jobs_guest *g = p->guest;

	if (!g || g->request_id != id)
		return;
	if (g->replied_id != id) {
		json_array_append_new(out->waiting, json_integer(p->pid));
		return;
	}
	out->done += g->succeeded;
	if (g->reply)
		json_array_append_new(g->succeeded ? out->outcomes : out->failed,
				      json_pack("{sIss}", "pid", (json_int_t)p->pid,
						g->succeeded ? "what" : "why", g->reply));
}

json_t *jobs_get_replies(struct jobs *j, const struct access_grant *who, const json_t *request)
{
	const char *text = json_string_value(json_object_get(request, "request"));
	struct replies all = {.expected = json_array(),
			      .failed = json_array(),
			      .waiting = json_array(),
			      .outcomes = json_array(),
			      .written = json_array(),
			      .not_written = json_array()};
	uint64_t id = text ? strtoull(text, NULL, 10) : 0;
	const struct jobs_process *p;

	for (struct jobs_cursor c = {.who = who}; id && (p = jobs_next(j, &c));) {
		add_reply(p, id, &all);
		add_files(p, id, &all);
	}
	return json_pack("{sIsosososososo}", "done", all.done, "expected", all.expected, "failed",
			 all.failed, "told", all.outcomes, "waiting", all.waiting, "written",
			 all.written, "not_written", all.not_written);
}
