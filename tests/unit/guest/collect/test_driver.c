/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the CUDA driver's hooks report: virtual memory, contexts, devices, who asks. */
#include "guest/collect/collect.h"

#include "guest/runtime/guest.h"
#include "jobs.h"

static void run(uint32_t want, void (*fn)(void))
{
	job_session(want, 64, 0);
	job_wait(job_start(fn));
	while (job_look())
		;
	CHECK_INT(job_ends[0].damaged, 0);
	CHECK_INT(job_ends[0].lost_events, 0);
}

static void vmm_job(void)
{
	struct collect_vmm v = {0x1000, 0x2000, 7, 0x100, VMM_MAP};

	collect_vmm(&v, NULL);
	struct collect_pending p = collect_driver_begin();
	CHECK(p.time_ns && p.held);
	CHECK_INT(atomic_load(&guest_self.cur[0].ring->pending_ns), p.time_ns);
	v.op = VMM_UNMAP;
	collect_vmm_end(p, &v, true, NULL);
	CHECK_INT(atomic_load(&guest_self.cur[0].ring->pending_ns), 0);
	p = collect_driver_begin();
	collect_vmm_end(p, &v, false, NULL); /* it failed */
	struct collect_context c = {0xc0, 1, 2, CONTEXT_BEGIN, CONTEXT_PRIMARY};
	collect_context(&c, NULL);
	p = collect_driver_begin();
	c.op = CONTEXT_END;
	collect_context_end(p, &c, true, NULL);
	struct rec_gpu gpu = {.total_bytes = 5, .driver = 13000, .device = 3, .count = 1};
	collect_gpu(&gpu, "NVIDIA H200", "3");
	struct collect_block b = {
		.size_bytes = 99, .device = 3, .pool = POOL_CUDA, .kind = ALLOC_ASYNC, .module = 9};
	collect_driver_oom(&b, 4, NULL);
	b.addr = 0x5000;
	b.context = 1;
	collect_alloc(&b, NULL);
}

TEST(driver, records)
{
	run(WANT_ALLOC, vmm_job);
	CHECK_INT(job_nevents, 7);
	const struct rec_vmm *v = (const struct rec_vmm *)job_record(0);
	CHECK(v->head.type == REC_VMM && v->op == VMM_MAP && v->addr == 0x1000 &&
	      v->bytes == 0x2000 && v->handle == 7 && v->offset == 0x100);
	CHECK_INT(((const struct rec_vmm *)job_record(1))->op, VMM_UNMAP);
	const struct rec_context *c = (const struct rec_context *)job_record(2);
	CHECK(c->head.type == REC_CONTEXT && c->handle == 0xc0 && c->context == 1 &&
	      c->device == 2 && c->op == CONTEXT_BEGIN && c->flags == CONTEXT_PRIMARY);
	CHECK_INT(((const struct rec_context *)job_record(3))->op, CONTEXT_END);
	const struct rec_gpu *g = (const struct rec_gpu *)job_record(4);
	CHECK(g->head.type == REC_GPU && g->total_bytes == 5 && g->driver == 13000 &&
	      g->device == 3 && g->len == 13);
	CHECK(!memcmp(g->text, "NVIDIA H200\0003", 13));
	const struct rec_oom *o = (const struct rec_oom *)job_record(5);
	CHECK(o->head.type == REC_OOM && o->size_bytes == 99 && o->flag == 4 && o->device == 3 &&
	      o->kind == ALLOC_ASYNC && o->pool == POOL_CUDA && o->module == 9);
	CHECK_INT(JOB_ALLOC(6)->context, 1);
	job_cleanup();
}

static void unwanted_job(void)
{
	struct collect_vmm v = {0x1000, 0x2000, 7, 0x100, VMM_MAP};
	struct rec_gpu gpu = {.device = DEV_NONE, .error = 100};

	CHECK_INT(collect_library(__builtin_return_address(0)), MODULE_NONE);
	collect_vmm(&v, NULL);
	CHECK(!collect_driver_begin().time_ns);
	collect_gpu(&gpu, NULL, NULL);
}

TEST(driver, only_devices_if_no_blocks_are_wanted)
{
	run(0, unwanted_job);
	CHECK_INT(job_nevents, 1);
	CHECK_INT(((const struct rec_gpu *)job_record(0))->error, 100);
	job_cleanup();
}

static void library_job(void)
{
	const char *here = (const char *)library_job + 1;
	uint8_t number = collect_library(here);

	CHECK(number != MODULE_NONE);
	for (int i = 0; i < 1000; i++)
		CHECK_INT(collect_library(here), number);
	CHECK_INT(collect_library(here + 1), number);
	/* of no object, so that who called it is the answer */
	CHECK_INT(collect_library((const void *)0x1000), number);
}

TEST(driver, who_asks_is_reported_once)
{
	char program[1024];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program));

	run(WANT_ALLOC, library_job);
	size_t found = 0;
	for (size_t i = 0; i < job_nevents; i++) {
		const struct rec_library *r = (const struct rec_library *)job_record(i);

		if (r->head.type != REC_LIBRARY)
			continue;
		found++;
		CHECK(r->len == n && !memcmp(r->text, program, (size_t)n));
	}
	CHECK_INT(found, 1);
	job_cleanup();
}
