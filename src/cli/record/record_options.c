/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/record/record_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text/number_read.h"
#include "cli/command.h"
#include "cli/stack/seconds.h"
#include "client/hosts.h"
#include "daemon/daemon.h"
#include "launch/monitor.h"
#include "memory/options/values.h"
#include "wire/record.h"
#include "wire/rpc.h"

#define OUTPUT "sonde_recordings"
#define STACKS_NS 20000000u
#define STACKS_MOST_NS 1000000000u
#define DURATION_MOST_NS (86400 * 1000000000ull)
#define LAST_MOST_NS (3600 * 1000000000ull)
#define LAST_MAX_KIB (2u << 20)
#define COUNTERS_MS 1000u
#define DEVICE_KINDS                                                                               \
	(ACTIVITY_BIT(ACTIVITY_KERNEL) | ACTIVITY_BIT(ACTIVITY_COMMUNICATION) |                    \
	 ACTIVITY_BIT(ACTIVITY_MEMCPY) | ACTIVITY_BIT(ACTIVITY_MEMSET) |                           \
	 ACTIVITY_BIT(ACTIVITY_MARKER))

int record_options_init(struct record_options *o, struct err *err)
{
	struct mem_config *c = &o->mem.config;
	int r = mem_options_init(&o->mem, err);

	if (r == 0)
		r = mem_path(OUTPUT, c->output_dir, err);
	mem_options_for_answers(c);
	c->dump_events = MEM_ALLOC | MEM_FREE;
	c->analysis = MEM_LEAKS | MEM_OOM;
	o->what = PART_ALL;
	o->interval_ns = STACKS_NS;
	return r;
}

static void set_record(const struct record_options *o, struct session_record *r)
{
	r->on = 1;
	if (o->what & PART_KERNELS)
		r->kinds = DEVICE_KINDS | (o->api ? ACTIVITY_APIS : 0);
	if (o->what & PART_STACKS)
		r->stacks_us = (uint32_t)(o->interval_ns / 1000);
	if (o->what & PART_COUNTERS)
		r->counters_ms = COUNTERS_MS;
	r->first_step = o->first_step;
	r->last_step = o->last_step;
	r->duration_ms = (uint32_t)(o->duration_ns / 1000000);
	r->last_s = (uint32_t)(o->last_ns / 1000000000u);
	r->hang_s = r->last_s ? (r->last_s + 1) / 2 : 0; /* what it did before is there then */
}

/* The first of "node[01-04,7],other": node01. */
static void add_first_node(const char *list, struct buf *out)
{
	size_t name = strcspn(list, "[,"), digits = 0;

	buf_add(out, list, name);
	if (list[name] == '[') {
		digits = strspn(list + name + 1, "0123456789");
		buf_add(out, list + name + 1, digits);
	}
}

static bool is_this_host(const char *name)
{
	char own[256] = "";

	gethostname(own, sizeof(own) - 1);
	size_t n = strcspn(own, "."), k = strcspn(name, ".");
	return !strcmp(name, "localhost") || !strncmp(name, "127.", 4) || !strcmp(name, "::1") ||
	       (n == k && !strncmp(name, own, n));
}

/* With whose clock that of each other host of the job is compared: the first node of a Slurm job, or
 * where the ranks meet. Not without certificates: anybody there could answer in a daemon's place. */
static void choose_peer(struct buf *out)
{
	const char *list = getenv("SLURM_JOB_NODELIST"), *nodes = getenv("SLURM_NNODES");
	const char *master = getenv("MASTER_ADDR");

	if (list && nodes && atoi(nodes) > 1)
		add_first_node(list, out);
	else if (master)
		buf_add_str(out, master);
	if (out->len && is_this_host(buf_str(out)))
		buf_clear(out);
}

static int check_hosts(const char *text, struct err *err)
{
	struct host_list list = {0};
	struct err why = {0};
	int r = host_list_add(&list, text, RPC_PORT, &why);

	host_list_release(&list);
	return r < 0 ? err_set(err, -EINVAL, "invalid value of --clocks: %s", why.text) : 0;
}

static int set_clocks(const struct record_options *o, struct mem_config *c, struct err *err)
{
	bool certs = o->certs && *o->certs && strcmp(o->certs, DAEMON_NO_CERTS) != 0;
	struct buf hosts = {0};
	int r = 0;

	if (!o->clocks && certs)
		choose_peer(&hosts);
	else if (o->clocks && strcmp(o->clocks, "off") != 0)
		buf_add_str(&hosts, o->clocks);
	if (hosts.len && (r = check_hosts(buf_str(&hosts), o->clocks ? err : NULL)) < 0) {
		r = o->clocks ? r : 0; /* of no use, but no reason not to run the job */
		buf_clear(&hosts);
	}
	if (hosts.len >= sizeof(c->clock_hosts) && o->clocks)
		r = err_set(err, -EINVAL, "--clocks has more than %zu characters",
			    sizeof(c->clock_hosts) - 1);
	else if (hosts.len < sizeof(c->clock_hosts))
		memcpy(c->clock_hosts, buf_str(&hosts), hosts.len + 1);
	if (r == 0 && certs)
		r = mem_path(o->certs, c->clock_certs, err);
	buf_release(&hosts);
	return r;
}

int record_options_finish(struct record_options *o, struct session_record *out, struct err *err)
{
	struct mem_config *c = &o->mem.config;

	if (o->api && !(o->what & PART_KERNELS))
		return err_set(err, -EINVAL, "--api needs kernels in --only");
	if (c->cpu && !(o->what & PART_MEMORY))
		return err_set(err, -EINVAL, "--device=cpu needs memory in --only");
	if (o->interval_ns > STACKS_MOST_NS)
		return err_set(err, -EINVAL, "--interval is at most 1 second");
	if (o->duration_ns > DURATION_MOST_NS)
		return err_set(err, -EINVAL, "--duration is at most a day");
	if (o->last_ns > LAST_MOST_NS)
		return err_set(err, -EINVAL, "--last is at most an hour");
	if (o->last_ns && !c->max_kib)
		c->max_kib = LAST_MAX_KIB;
	if (!(o->what & PART_MEMORY)) {
		c->dump_events = 0;
		c->analysis = 0;
	}
	c->closing = !o->mem.quiet;
	int r = set_clocks(o, c, err);
	if (r < 0)
		return r;
	set_record(o, out);
	if (o->mem.quiet)
		o->mem.report = 1 + MEM_REPORT_OFF;
	return mem_options_finish(&o->mem, err);
}

/* --- values --- */

static int parse_only(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	static const char *const names[] = {"memory", "kernels", "stacks", "counters"};
	struct record_options *o = a->target;
	const char *item;
	size_t len;

	(void)opt;
	o->what = 0;
	while (command_next_item(&value, &item, &len)) {
		unsigned i = 0;

		while (i < 4 && (strlen(names[i]) != len || strncmp(names[i], item, len) != 0))
			i++;
		if (i == 4)
			return err_set(err, -EINVAL,
				       "invalid value '%.*s' of --only: expected memory, kernels, "
				       "stacks or counters, separated by commas",
				       (int)(len < 60 ? len : 60), item);
		o->what |= 1u << i;
	}
	return 0;
}

static int parse_steps(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	const char *dash = strchr(value, '-');
	size_t n = dash ? (size_t)(dash - value) : strlen(value);
	struct record_options *o = a->target;
	int64_t first, last;
	bool good = number_read(value, n, &first) && first > 0;

	(void)opt;
	last = first;
	if (good && dash)
		good = number_read(dash + 1, strlen(dash + 1), &last);
	if (!good || last < first || last > INT32_MAX)
		return err_set(err, -EINVAL,
			       "invalid value '%.60s' of --steps: expected numbers as in 10-20",
			       value);
	o->first_step = (uint32_t)first;
	o->last_step = (uint32_t)last;
	return 0;
}

#define AT(member) offsetof(struct record_options, member)

static const char *const output_names[] = {"output", NULL};

const struct opt record_option_table[] = {
	OPTION_CALL("output-path", "DIR", mem_parse_output, 0, "./" OUTPUT,
		    "Directory for recordings. It is created if it does not exist; hosts may share "
		    "it (also --output).",
		    .letters = "o", .aliases = output_names, .group = "What is recorded"),
	OPTION_CALL("only", "LIST", parse_only, 0, "memory,kernels,stacks,counters",
		    "Record only some of it: memory (of devices; steps, marks), kernels (what "
		    "devices execute: kernels, communication, copies), stacks (of Python), "
		    "counters (of devices and host)."),
	OPTION_CALL("steps", "FIRST-LAST", parse_steps, 0, "all",
		    "Kernels, stacks and counters of these training steps alone, from a little "
		    "before to a little after them. Memory is always followed, since a block lives "
		    "longer than a step."),
	OPTION_CALL("duration", "TIME", stack_parse_seconds, AT(duration_ns),
		    "as long as the job runs",
		    "Kernels, stacks and counters for this time alone, from the start on.",
		    .min = 1000),
	OPTION_CALL("last", "TIME", stack_parse_seconds, AT(last_ns), "everything is kept",
		    "A flight recorder: only about this much of the newest is kept on disk, from 1 "
		    "second to an hour, and never more than --max-size (then 2G). A copy of it is "
		    "frozen when memory runs out, a process crashes or a job that has steps hangs, "
		    "and by "
		    "'sonde record --dump'.",
		    .min = 1000000),
	OPTION_FLAG("dump", AT(dump),
		    "Run nothing: save a copy of what a running recording has now, beside it. Name "
		    "a process of the job or the directory of the recording; else it is the newest "
		    "one in ./" OUTPUT "."),
	OPTION_CALL("interval", "TIME", stack_parse_seconds, AT(interval_ns), "0.02",
		    "Between two samples of the Python stacks, from 1 ms to 1 s.", .min = 1000),
	OPTION_FLAG("api", AT(api),
		    "Record calls of the vendor's runtime, too; with them the timeline has arrows "
		    "from launches to kernels."),
	OPTION_CALL("call-stack", "LIST", mem_parse_call_stack, 0, "python:10",
		    "Call stacks of allocations: c[:DEPTH], python[:DEPTH], or both; python:0 for "
		    "none."),
	OPTION_CALL("device", "LIST", mem_parse_device, 0, "every NPU and GPU that the job uses",
		    "Whose memory is recorded: npu, gpu, npu:ID, gpu:ID, cpu (host memory)."),
	OPTION_CALL("max-size", "SIZE", mem_parse_max_size, 0, "any size",
		    "Largest size of the recording, such as 2G. The oldest part is dropped, and "
		    "every answer reports that."),
	OPTION_TEXT(
		"clocks", "HOSTS", AT(clocks),
		"with --certs-dir the first node of a Slurm job, or MASTER_ADDR",
		"For jobs on several hosts: compare the clock of this one with those of these, by "
		"round trips to their daemons at the start, each minute and at the end; as "
		"'--hostname' of 'sonde ctl'. 'off': with none.",
		.group = "Several hosts"),
	OPTION_TEXT("certs-dir", "DIR", AT(certs), DAEMON_NO_CERTS,
		    "Directory with ca.crt, client.crt and client.key for these daemons."),
	OPTION_TEXT("mspti", "LIBRARY", AT(mspti),
		    "$ASCEND_HOME_PATH/lib64/" MONITOR_MSPTI ", if it is there",
		    "The CANN library that reports what NPUs execute; 'none': do not use one.",
		    .group = "Other"),
	OPTION_FLAG("quiet", AT(mem.quiet), "Say nothing at the end.", .letters = "q"),
	COMMAND_HELP_OPTION,
	OPT_END,
};
