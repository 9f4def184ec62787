/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Guests: libraries of ours inside jobs. They ask as every client does, but can be told that there
 * is something to ask for, and say which options of an order they honour.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"
#include "wire/request.h"

#define CAN_TOLD 1u /* the first bit: it said what it can */
#define CAN_BYTES 4096 /* of what it says */

/* A key of a config, the option that sets it, and what it is without. An option with two keys has
 * two rows; an item of a list that not everybody knows has one, KEY.item. */
static const struct {
	const char *key, *option, *usual;
} keys[] = {
	{"ACTIVITIES_LOG_FILE", "--log-file", NULL},
	{"PROFILE_START_STEP", "--start-step", NULL},
	{"ACTIVITIES_ITERATIONS", "--iterations", NULL},
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
_Static_assert(KEYS < 63, "a bit for each, and CAN_TOLD");

static uint64_t bit(size_t key)
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

void jobs_guest_free(struct jobs *j, struct jobs_guest *g)
{
	if (!g)
		return;
	BUG_ON(g->pause != JOBS_PAUSE_NONE);
	(void)j;
	jobs_config_release(g->errand);
	jobs_config_release(g->stop);
	free(g->said);
	free(g);
}

void jobs_guest_heard(struct jobs_guest *g, const struct jobs_address *from)
{
	/* another socket may be another library */
	if (g->address.len != from->len || memcmp(&g->address.address, &from->address, from->len))
		g->can = 0;
	g->address = *from;
}

void jobs_on_poke(struct jobs *j, jobs_poke_fn fn, void *arg)
{
	j->poke = fn;
	j->poke_arg = arg;
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

void jobs_poke(const struct jobs *j, const struct jobs_process *p)
{
	if (j->poke && p->guest)
		j->poke(j->poke_arg, p->uid, &p->guest->address);
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
	bool polls = q && q->heard & JOBS_HEARD_REQUEST;

	return polls && !(q->heard & (JOBS_HEARD_TRACE | JOBS_HEARD_MONITOR)) ? q : NULL;
}

/* --- what it can --- */

static uint64_t read_keys(const char *text, size_t len)
{
	uint64_t can = CAN_TOLD;

	for (size_t at = 0; at < len;) {
		size_t n = 0;

		while (at + n < len && text[at + n] != ' ' && text[at + n] != '\n')
			n++;
		for (size_t i = 0; i < KEYS && n; i++)
			if (strlen(keys[i].key) == n && !memcmp(keys[i].key, text + at, n))
				can |= bit(i);
		at += n + 1;
	}
	return can;
}

/* One whose pid is not visible is known by its address. */
static bool is_from(const struct jobs_process *p, const struct jobs_sender *from)
{
	const struct jobs_address *a = &p->guest->address;

	return p->uid == from->uid && a->len == from->guest->len &&
	       !memcmp(&a->address, &from->guest->address, a->len);
}

static bool note_unseen(struct jobs *j, const struct jobs_sender *from, uint64_t can)
{
	bool found = false;
	size_t n;
	struct jobs_process **all = jobs_collect(j, NULL, NULL, NULL, &n);

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
		return note_unseen(j, from, can);
	struct jobs_peer *peer = hmap_get_ptr(&j->peers, (uint64_t)from->pid);
	for (struct jobs_process *p = peer ? peer->first : NULL; p; p = p->peer_next)
		if (p->guest) {
			p->guest->can = can;
			found = true;
		}
	return found;
}

static bool is_usual(const char *value, size_t len, const char *usual)
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

void jobs_guest_lacks(const struct jobs_guest *g, const char *config, uint64_t *set)
{
	if (!(g->can & CAN_TOLD))
		return;
	for (size_t i = 0; i < KEYS; i++) {
		const char *dot = strchr(keys[i].key, '.'), *value;
		size_t len;

		if (g->can & bit(i))
			continue;
		if (dot) { /* the row of the key itself is above */
			if (!(*set & bit(i - 1)) && has_item(config, keys[i].key, dot))
				*set |= bit(i);
			continue;
		}
		value = config_value(config, keys[i].key, &len);
		if (!value)
			continue;
		if (!keys[i].usual || !is_usual(value, len, keys[i].usual))
			*set |= bit(i);
	}
}

json_t *jobs_lacking(uint64_t set)
{
	json_t *list = json_array();

	for (size_t i = 0; i < KEYS; i++)
		if (set & bit(i))
			json_array_append_new(list, json_string(keys[i].option));
	return list;
}
