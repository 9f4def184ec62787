/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/options.h"

#include <limits.h>
#include <stdlib.h>

#include "base/mem.h"

#define SECOND 1000000000ull

/* How often new processes are searched for: asking a driver is expensive, walking /proc is not. */
#define REFRESH_DEVICES_NS (30 * SECOND)
#define REFRESH_RULES_NS SECOND

void stack_options_init(struct stack_options *o)
{
	*o = (struct stack_options){
		.min_npu_mb = 5000,
		.refresh_empty_ns = 5 * SECOND,
		.empty_exit_ns = 180 * SECOND,
		.interval_ns = SECOND / 10,
		.npu_timeout_ns = 2 * SECOND,
		.gpu_timeout_ns = 2 * SECOND,
		.snapshot_ns = 7200 * SECOND,
	};
}

void stack_options_release(struct stack_options *o)
{
	free(o->pids.list);
	free(o->parents.list);
	free(o->names.list);
	free(o->cgroups.list);
}

void stack_pid_add(struct stack_pids *p, pid_t pid)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->list[i] == pid)
			return;
	p->list = xgrow(p->list, &p->cap, p->n + 1, sizeof(*p->list));
	p->list[p->n++] = pid;
}

void stack_text_add(struct stack_texts *t, const char *text)
{
	t->list = xgrow(t->list, &t->cap, t->n + 1, sizeof(*t->list));
	t->list[t->n++] = text;
}

unsigned stack_ms(uint64_t ns)
{
	uint64_t ms = (ns + 999999) / 1000000;

	return ms > UINT_MAX ? UINT_MAX : (unsigned)ms;
}

static bool has_rules(const struct stack_options *o)
{
	return o->names.n || o->cgroups.n || o->parents.n || o->all_python;
}

bool stack_options_fixed(const struct stack_options *o)
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
	/* What is searched for again is not searched for less often while it is missing. */
	out->refresh_empty_ms = stack_ms(o->refresh_empty_ns);
	if (fixed || out->refresh_empty_ms > out->refresh_ms)
		out->refresh_empty_ms = out->refresh_ms;
}
