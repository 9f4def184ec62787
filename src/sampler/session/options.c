/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/options.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define SECOND 1000000000ull
#define TIMEOUT_LEAST (SECOND / 10)

/* How often new processes are looked for: asking a driver is dear, walking /proc is not. */
#define REFRESH_DEVICES_NS (30 * SECOND)
#define REFRESH_RULES_NS SECOND

void stack_options_init(struct stack_options *o)
{
	*o = (struct stack_options){
		.min_npu_mb = 5000,
		.refresh_empty_ns = 5 * SECOND,
		.empty_exit_ns = 180 * SECOND,
		.interval_ns = SECOND / 10,
		.npu_smi_refresh = 1,
		.npu_timeout_ns = 2 * SECOND,
		.gpu_timeout_ns = 2 * SECOND,
		.host_timeout_ns = SECOND,
		.snapshot_ns = 7200 * SECOND,
	};
}

void stack_options_release(struct stack_options *o)
{
	stack_pids_release(&o->pids);
	stack_pids_release(&o->parents);
	stack_texts_release(&o->names);
	stack_texts_release(&o->cgroups);
	stack_texts_release(&o->sniffer_args);
	free(o->output_made);
	free(o->pid_file_made);
	free(o->detach_log_made);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), e = strlen(end);

	return n >= e && !strcmp(text + n - e, end);
}

static char *default_output(const struct stack_options *o)
{
	static const char *const names[] = {"stack_trace.json", "stack_trace.txt",
					    "stack_trace.speedscope.json", "stack_trace.pb.gz"};
	const char *name = names[o->format];

	return o->gzip && !ends_with(name, ".gz") ? xasprintf("%s.gz", name) : xstrdup(name);
}

static void complete_paths(struct stack_options *o)
{
	if (!o->output)
		o->output = o->output_made = default_output(o);
	else if (o->format == STACK_CHROME && ends_with(o->output, ".gz"))
		o->gzip = true;
	if (!o->autosave_output)
		o->autosave_output = o->output;
	if (!o->snapshot_output)
		o->snapshot_output = o->output;
	if (!o->pid_file)
		o->pid_file = o->pid_file_made = xasprintf("%s.pids", o->output);
	if (!o->detach_log)
		o->detach_log = o->detach_log_made = xasprintf("%s.wrapper.log", o->output);
}

static uint64_t at_least(uint64_t v, uint64_t least)
{
	return v < least ? least : v;
}

static int apply_sniffer_args(struct stack_options *o, struct args *a, struct err *err)
{
	struct args_spec spec = *a->spec;
	struct args inner = {.target = o};
	struct err why = {0};

	if (!o->sniffer_args.n)
		return 0;
	spec.flags = 0;
	spec.min_words = spec.max_words = 0;
	/* the words live in argv, so what is borrowed from them stays */
	int r = args_parse(&inner, &spec, (int)o->sniffer_args.n, (char **)o->sniffer_args.list,
			   &why);
	if (r >= 0 && inner.stopped)
		r = err_set(&why, -EINVAL, "'--%s' has no meaning there", inner.stopped->name);
	args_release(&inner);
	return r < 0 ? err_set(err, r, "--sniffer-arg: %.400s", why.text) : 0;
}

int stack_options_complete(struct stack_options *o, struct args *a, struct err *err)
{
	int r = apply_sniffer_args(o, a, err);

	if (r < 0)
		return r;
	if (o->python || o->sniffer_script)
		args_notice(a, "--python and --sniffer-script are not needed: sonde samples by "
			       "itself");
	if (o->gzip && o->format != STACK_CHROME)
		return err_set(
			err, -EINVAL,
			"--gzip goes with --format chrome only; pprof files are always gzip");
	if ((o->rotate_bytes || o->rotate_ns) && o->format != STACK_CHROME)
		return err_set(err, -EINVAL,
			       "--rotate-size and --rotate-time go with --format chrome only");
	if (o->detach + o->status + o->stop > 1)
		return err_set(err, -EINVAL, "only one of --detach, --status and --stop");
	if (o->debug_discovery)
		o->min_npu_mb = o->min_gpu_mb = 0;
	o->npu_timeout_ns = at_least(o->npu_timeout_ns, TIMEOUT_LEAST);
	o->gpu_timeout_ns = at_least(o->gpu_timeout_ns, TIMEOUT_LEAST);
	o->host_timeout_ns = at_least(o->host_timeout_ns, TIMEOUT_LEAST);
	complete_paths(o);
	return 0;
}

static bool has_rules(const struct stack_options *o)
{
	return o->names.n || o->cgroups.n || o->parents.n || o->all_python;
}

bool stack_options_manual(const struct stack_options *o)
{
	return (o->pids.n || o->parents.n) && !o->names.n && !o->cgroups.n && !o->all_python;
}

void stack_options_rules(const struct stack_options *o, struct discover_rules *out)
{
	bool devices = !o->pids.n && !has_rules(o);
	bool fixed = o->pids.n && !has_rules(o) && !o->children;
	uint64_t refresh = devices ? REFRESH_DEVICES_NS : REFRESH_RULES_NS;

	*out = (struct discover_rules){
		.pids = o->pids.list,
		.npids = o->pids.n,
		.names = o->names.list,
		.nnames = o->names.n,
		.parents = o->parents.list,
		.nparents = o->parents.n,
		.cgroups = o->cgroups.list,
		.ncgroups = o->cgroups.n,
		.children = o->children,
		.all_python = o->all_python,
		.devices = devices ? DISCOVER_AUTO : DISCOVER_NO_DEVICE,
		.min_npu_mb = o->min_npu_mb,
		.min_gpu_mb = o->min_gpu_mb,
		.timeout_ms = stack_ms(o->npu_timeout_ns > o->gpu_timeout_ns ? o->npu_timeout_ns
									     : o->gpu_timeout_ns),
		.refresh_ms = fixed ? 0 : stack_ms(o->refresh_ns ? o->refresh_ns : refresh),
	};
	/* Whatever is looked for anew is not looked for less often while it is missing. */
	out->refresh_empty_ms = stack_ms(o->refresh_empty_ns);
	if (fixed || out->refresh_empty_ms > out->refresh_ms)
		out->refresh_empty_ms = out->refresh_ms;
}
