/* SPDX-License-Identifier: MulanPSL-2.0 */
/* An operator call: build the packs that ATB builds, then execute through the replaceable name. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner.h"
#include "runtime/rt.h"

#define MAX_TENSORS 48

struct frame {
	struct atb_variant_pack pack;
	struct mki_launch_param param;
};

static void fill_pack(struct atb_tensors *v, const struct atb_tensor *t, size_t n)
{
	v->capacity = 65;
	v->size = n;
	v->heap = NULL;
	if (n)
		memcpy(v->inline_data, t, n * sizeof(*t));
}

static void fill_param(struct mki_tensors *v, const struct atb_tensor *t, size_t n)
{
	v->count = n;
	for (size_t i = 0; i < n; i++) {
		struct mki_tensor *m = &v->data[i];
		memset(m, 0, sizeof(*m));
		m->dtype = t[i].dtype;
		m->format = t[i].format;
		m->dim_count = t[i].dim_num;
		for (uint64_t d = 0; d < t[i].dim_num && d < 8; d++)
			m->dims[d] = t[i].dims[d];
		m->data = t[i].device;
		m->bytes = t[i].bytes;
		m->host = t[i].host;
	}
}

static size_t capped(size_t n)
{
	return n < MAX_TENSORS ? n : MAX_TENSORS;
}

int sim_atb_execute(const struct sim_atb_call *call)
{
	static _Atomic uint64_t executed;
	struct frame on_stack; /* 60 kB; clearing all of it for every call would be the main cost */
	struct frame *f = &on_stack;
	memset(&f->pack.in_flags, 0, sizeof(f->pack) - offsetof(struct atb_variant_pack, in_flags));
	fill_pack(&f->pack.in, call->in, capped(call->in_count));
	fill_pack(&f->pack.out, call->out, capped(call->out_count));
	fill_param(&f->param.in, call->in, capped(call->in_count));
	fill_param(&f->param.out, call->out, capped(call->out_count));
	void *context[1] = {call->stream};
	const char *layout = getenv("SIM_ATB_LAYOUT");
	bool newer = layout && !strcmp(layout, "new");
	f->pack.workspace = call->workspace;
	f->pack.workspace_bytes = call->workspace_bytes;
	/* In the newer layout the old place holds a buffer, not a context. */
	f->pack.context = newer ? call->workspace : context;
	f->pack.newer_context = newer ? context : NULL;

	int32_t device = 0;
	(void)rtGetDevice(&device);
	struct atb_runner runner = {.call = call, .param = &f->param};
	runner.execute_count = atomic_fetch_add(&executed, 1);
	snprintf(runner.dir, sizeof(runner.dir), "%d_%d/%llu_%s", device, (int)gettid(),
		 (unsigned long long)runner.execute_count, call->name);
	return _ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE(&runner, &f->pack);
}
