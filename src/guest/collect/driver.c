/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the CUDA driver does beside handing out blocks: virtual memory, contexts, devices, refusals.
 *
 * The recorder puts together what lies where and what ends with what; here nothing is remembered.
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"
#include "guest/runtime/guest.h"

static _Atomic bool sees;

void collect_see_driver(void)
{
	if (unlikely(!atomic_load_explicit(&sees, memory_order_relaxed)))
		atomic_store_explicit(&sees, true, memory_order_relaxed);
}

bool collect_sees_driver(void)
{
	return atomic_load_explicit(&sees, memory_order_relaxed);
}

bool collect_wants_driver(void)
{
	return guest_mode() >= GUEST_SHADOW &&
	       atomic_load_explicit(&guest.want, memory_order_relaxed) & WANT_ALLOC;
}

struct collect_pending collect_driver_begin(void)
{
	struct collect_pending p = {0, false};

	if (!collect_wants_driver())
		return p;
	p.held = guest_hold(RING_PENDING_NOW);
	p.time_ns = guest_now();
	guest_hold_at(p.held, p.time_ns);
	return p;
}

static uint32_t stack_of(const void *caller)
{
	bool stacks = guest_mode() == GUEST_RECORD && guest_wants_stacks();

	return stacks ? guest_stack((uint64_t)caller) : 0;
}

static void put_vmm(const struct collect_vmm *v, uint64_t ns, const void *caller)
{
	uint32_t stack = stack_of(caller);
	struct rec_vmm *r = guest_reserve(sizeof(*r));

	if (!r)
		return;
	*r = (struct rec_vmm){
		.head = {REC_VMM, 0, sizeof(*r), stack, ns},
		.addr = v->addr,
		.bytes = v->bytes,
		.handle = v->handle,
		.offset = v->offset,
		.op = v->op,
	};
	guest_publish(sizeof(*r));
}

void collect_vmm(const struct collect_vmm *v, const void *caller)
{
	if (!collect_wants_driver())
		return;
	bool held = guest_hold(RING_PENDING_NOW);
	put_vmm(v, guest_now(), caller);
	guest_unhold(held);
}

void collect_vmm_end(struct collect_pending p, const struct collect_vmm *v, bool happened,
		     const void *caller)
{
	if (happened && p.time_ns && collect_wants_driver())
		put_vmm(v, p.time_ns, caller);
	guest_unhold(p.held);
}

static void put_context(const struct collect_context *c, uint64_t ns, const void *caller)
{
	uint32_t stack = stack_of(caller);
	struct rec_context *r = guest_reserve(sizeof(*r));

	if (!r)
		return;
	*r = (struct rec_context){
		.head = {REC_CONTEXT, 0, sizeof(*r), stack, ns},
		.handle = c->handle,
		.context = c->context,
		.device = c->device,
		.op = c->op,
		.flags = c->flags,
	};
	guest_publish(sizeof(*r));
}

void collect_context(const struct collect_context *c, const void *caller)
{
	if (!collect_wants_driver())
		return;
	bool held = guest_hold(RING_PENDING_NOW);
	put_context(c, guest_now(), caller);
	guest_unhold(held);
}

void collect_context_end(struct collect_pending p, const struct collect_context *c, bool happened,
			 const void *caller)
{
	if (happened && p.time_ns && collect_wants_driver())
		put_context(c, p.time_ns, caller);
	guest_unhold(p.held);
}

/* Whatever is wanted: it says why there may be nothing else. */
void collect_gpu(const struct rec_gpu *gpu, const char *name, const char *visible)
{
	struct two_texts t = texts(name, visible);

	if (gpu->device != DEV_NONE)
		collect_set_gpu_number(gpu->index, gpu->device);
	if (guest_mode() < GUEST_SHADOW)
		return;
	if (!gpu->error && !(gpu->flags & GPU_UNSEEN))
		guest_bring_for_cuda();
	struct put p = put_begin(REC_GPU, rec_size(sizeof(struct rec_gpu), texts_len(&t)), NULL);
	struct rec_gpu *r = p.rec;
	if (r) {
		struct rec head = r->head;
		memcpy(r, gpu, sizeof(*r));
		r->head = head;
		r->len = texts_len(&t);
		texts_put(&r->head, r->text, &t);
	}
	put_end(&p);
}

void collect_driver_oom(const struct collect_block *b, uint64_t free_bytes, const void *caller)
{
	if (!guest_wants(WANT_ALLOC))
		return;
	struct put p = put_begin_depth(REC_OOM, sizeof(struct rec_oom), caller,
				       oom_depth(guest.c_depth), oom_depth(guest.py_depth));
	struct rec_oom *r = p.rec;
	if (r) {
		r->size_bytes = b->size_bytes;
		r->flag = free_bytes;
		r->device = b->device;
		r->kind = b->kind;
		r->pool = b->pool;
		r->module = b->module;
	}
	put_end(&p);
}
