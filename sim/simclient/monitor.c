/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "monitor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "trace.h"

/* In the order of their numbers, which is the order of reports. */
enum kind_group { PER_RANGE, PER_DEVICE, PER_PROCESS };
static const struct kind {
	const char *name;
	enum kind_group group;
	int percent; /* of a step */
} kinds[MONITOR_KINDS] = {
	{"Marker", PER_RANGE, 100},	{"Kernel", PER_DEVICE, 60},
	{"API", PER_PROCESS, 20},	{"Hccl", PER_DEVICE, 8},
	{"Memory", PER_DEVICE, 2},	{"MemSet", PER_DEVICE, 1},
	{"MemCpy", PER_DEVICE, 3},	{"Communication", PER_DEVICE, 10},
	{"AclAPI", PER_PROCESS, 15},	{"NodeAPI", PER_PROCESS, 10},
	{"RuntimeAPI", PER_PROCESS, 5},
};

struct command {
	bool start, stop;
	int64_t interval_s;
	double duration_s;
	const char *kind_list, *log_file, *export_type, *filter;
};

static int kind_index(const char *name, size_t n)
{
	for (int i = 0; i < MONITOR_KINDS; i++)
		if (strlen(kinds[i].name) == n && !strncmp(kinds[i].name, name, n))
			return i;
	return -1;
}

static bool kinds_good(const char *list)
{
	for (const char *p = list;; p++) {
		size_t n = strcspn(p, ",");
		if (kind_index(p, n) < 0)
			return false;
		p += n;
		if (!*p)
			return true;
	}
}

static bool digits(const char *s, const char *accept)
{
	return s && *s && strspn(s, accept) == strlen(s);
}

/* Which rule the command breaks, or NULL. */
static const char *read_command(const struct config *c, struct command *out)
{
	const char *interval = config_get(c, "REPORT_INTERVAL_S");
	const char *duration = config_get(c, "DURATION");
	if (config_bool(c, "NPU_MONITOR_START", &out->start))
		return "NPU_MONITOR_START";
	if (config_bool(c, "NPU_MONITOR_STOP", &out->stop))
		return "NPU_MONITOR_STOP";
	if (!digits(interval, "0123456789") ||
	    config_number(c, "REPORT_INTERVAL_S", 0, UINT32_MAX, 0, &out->interval_s))
		return "REPORT_INTERVAL_S";
	if (!digits(duration, "0123456789.-"))
		return "DURATION";
	out->duration_s = strtod(duration, NULL);
	out->kind_list = config_get(c, "MSPTI_ACTIVITY_KIND");
	if (!out->kind_list || !kinds_good(out->kind_list))
		return "MSPTI_ACTIVITY_KIND";
	out->log_file = config_get(c, "NPU_MONITOR_LOG_FILE");
	if (!out->log_file || strlen(out->log_file) > 4096)
		return "NPU_MONITOR_LOG_FILE";
	out->export_type = config_get(c, "NPU_MONITOR_EXPORT_TYPE");
	if (!out->export_type ||
	    (strcasecmp(out->export_type, "DB") && strcasecmp(out->export_type, "Jsonl")))
		return "NPU_MONITOR_EXPORT_TYPE";
	out->filter = config_get(c, "NPU_MONITOR_FILTER");
	return NULL;
}

/* With a filter, a kind that it does not name is dropped: "Kernel:MatMul,Add;API:aclnn". */
static bool filter_passes(const char *filter, int kind)
{
	size_t n = strlen(kinds[kind].name);
	if (!filter || !*filter)
		return true;
	for (const char *p = filter;; p++) {
		if (!strncmp(p, kinds[kind].name, n) && p[n] == ':')
			return true;
		p += strcspn(p, ";");
		if (!*p)
			return false;
	}
}

static void apply_kinds(struct monitor *m, const struct command *cmd)
{
	for (int i = 0; i < MONITOR_KINDS; i++)
		m->on[i] = config_list_has(cmd->kind_list, kinds[i].name) &&
			   filter_passes(cmd->filter, i);
}

static void start(struct monitor *m, const struct command *cmd)
{
	int r = *cmd->log_file ? trace_mkdirs(cmd->log_file) : 0;
	if (r) {
		say("monitor not started: '%s': %s", cmd->log_file, strerror(-r));
		return;
	}
	m->running = true;
	m->to_files = *cmd->log_file;
	m->ends_ns = cmd->duration_s > 0 ? now_ns() + (uint64_t)(cmd->duration_s * 1e9) : 0;
	m->next_report_ns = now_ns() + (uint64_t)m->interval_s * 1000000000u;
	m->nranges = 0;
	memset(m->sum_ns, 0, sizeof(m->sum_ns));
	m->sent = 0;
	say("monitor started: %s, every %d s%s%s", cmd->kind_list, (int)m->interval_s,
	    m->to_files ? ", to " : "", cmd->log_file);
}

static void stop(struct monitor *m, const char *why)
{
	m->running = false;
	say("monitor stopped%s after %d metrics", why, m->sent);
}

void monitor_command(struct monitor *m, struct link *l, const struct config *c)
{
	struct command cmd = {0};
	const char *broken = read_command(c, &cmd);
	if (broken) {
		say("monitor command ignored: %s is not as it must be", broken);
		return;
	}
	if (cmd.stop) {
		if (m->running)
			stop(m, "");
	} else {
		if (cmd.interval_s)
			m->interval_s = cmd.interval_s;
		if (!m->interval_s)
			m->interval_s = 60;
		if (cmd.start && !m->running)
			start(m, &cmd);
		if (m->running)
			apply_kinds(m, &cmd);
	}
	link_monitor_status(l, m->running ? WIRE_RUNNING : WIRE_IDLE);
}

static void send_json(struct monitor *m, struct link *l, const char *json, int n)
{
	if (n > 0 && !link_send_data(l, json, (size_t)n))
		m->sent++;
}

static void send_sum(struct monitor *m, struct link *l, int64_t device, int kind)
{
	char json[256];
	send_json(m, l, json,
		  snprintf(json, sizeof(json),
			   "{\"deviceId\":%" PRId64 ",\"duration\":%" PRIu64
			   ",\"kind\":\"%s\",\"timestamp\":%" PRIu64 "}",
			   device, m->sum_ns[kind], kinds[kind].name, now_real_ns()));
}

/* A range is told twice: as the host saw it, with the device number that means none, and as the
 * device did. */
static void send_range(struct monitor *m, struct link *l, int device, int range)
{
	const int64_t devices[] = {UINT32_MAX, device};
	char json[256];
	for (int i = 0; i < 2; i++)
		send_json(m, l, json,
			  snprintf(json, sizeof(json),
				   "{\"deviceId\":%" PRId64
				   ",\"domain\":\"default\",\"duration\":%" PRIu64
				   ",\"kind\":\"Marker\",\"name\":\"step\",\"timestamp\":%" PRIu64
				   "}",
				   devices[i], m->ranges[range].ns, m->ranges[range].start_ns));
}

static void report(struct monitor *m, struct link *l, int device)
{
	for (int i = 0; i < m->nranges; i++)
		send_range(m, l, device, i);
	for (int i = 0; i < MONITOR_KINDS; i++)
		if (m->sum_ns[i])
			send_sum(m, l, kinds[i].group == PER_DEVICE ? device : -1, i);
	m->nranges = 0;
	memset(m->sum_ns, 0, sizeof(m->sum_ns));
}

static void count(struct monitor *m, int kind, uint64_t start_ns, uint64_t end_ns)
{
	if (kinds[kind].group != PER_RANGE) {
		m->sum_ns[kind] += (end_ns - start_ns) * (uint64_t)kinds[kind].percent / 100;
	} else if (m->nranges < MONITOR_RANGES) {
		m->ranges[m->nranges].start_ns = start_ns;
		m->ranges[m->nranges++].ns = end_ns - start_ns;
	}
}

void monitor_step(struct monitor *m, struct link *l, int device, uint64_t start_ns, uint64_t end_ns)
{
	if (!m->running || m->to_files)
		return;
	for (int i = 0; i < MONITOR_KINDS; i++)
		if (m->on[i])
			count(m, i, start_ns, end_ns);
	monitor_tick(m, l, device);
}

void monitor_tick(struct monitor *m, struct link *l, int device)
{
	uint64_t now = now_ns();
	if (!m->running)
		return;
	if (m->ends_ns && now >= m->ends_ns) {
		stop(m, " because its duration is over");
		return;
	}
	if (now < m->next_report_ns)
		return;
	report(m, l, device);
	m->next_report_ns = now + (uint64_t)m->interval_s * 1000000000u;
}
