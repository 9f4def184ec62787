/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What an order means for a trace that waits in a guest, and whether one would ever begin. */
#include <string.h>

#include "daemon/jobs/jobs_impl.h"
#include "wire/request.h"

/* With the guest, until its first step, or still with us. */
static bool trace_waits(const struct jobs_process *p)
{
	return p->trace == FABRIC_READY || (p->pending && !p->pending->is_monitor);
}

/* A trace of steps, of a process that has told none so far. */
static bool lacks_steps(const struct jobs_order *o, const struct jobs_process *p)
{
	struct trace_request trace;

	return o->kind == CONFIG_NPU_TRACE && p->current_step < 0 &&
	       !trace_request_read(o->config, strlen(o->config), &trace) && trace.steps;
}

static void add(json_t *out, const char *key, const struct jobs_process *p)
{
	json_t *list = json_object_get(out, key);

	if (!list) {
		list = json_array();
		json_object_set_new(out, key, list);
	}
	json_array_append_new(list, json_integer(p->pid));
}

void jobs_trace_effects(const struct jobs_order *o, const struct jobs_config *c,
			const struct jobs_process *p, json_t *out)
{
	if (!p->guest)
		return;
	if (trace_waits(p) && o->kind == CONFIG_NPU_TRACE)
		add(out, "tracesReplaced", p);
	if (trace_waits(p) && c->is_monitor && (c->starts || c->stops))
		add(out, "tracesDropped", p);
	if (lacks_steps(o, p))
		add(out, "stepsUnknown", p);
}

const char *jobs_trace_effect(const struct jobs_order *o, const struct jobs_process *p)
{
	bool switches = config_is_true(o->config, "NPU_MONITOR_START") ||
			config_is_true(o->config, "NPU_MONITOR_STOP");

	if (!p->guest || o->kind == CONFIG_KINETO)
		return NULL;
	if (trace_waits(p) && o->kind == CONFIG_NPU_MONITOR && switches)
		return "takes it at once; the trace that waits for its first step there is dropped";
	if (trace_waits(p) && o->kind == CONFIG_NPU_TRACE)
		return "takes it at once, in the place of the trace that waits for its first step "
		       "there";
	if (lacks_steps(o, p))
		return "takes it at once, and begins when the job tells steps, which it has not "
		       "yet";
	return NULL;
}
