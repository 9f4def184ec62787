/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The lines of msMemScope, one for each block that is lost, which scripts look for. */
#include <stdlib.h>

#include "base/mem.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/leaks/leaks_impl.h"

#define MAX_LINES 100 /* of single blocks, for each device */
#define MIB 1048576.0

static int by_device(const void *pa, const void *pb)
{
	const struct block *a = *(const struct block *const *)pa;
	const struct block *b = *(const struct block *const *)pb;
	const struct block_device *x = a->pool->device, *y = b->pool->device;

	/* The third is about a process id that was used again. */
	return ORDER(x->process->pid, y->process->pid) ?: ORDER(x->device, y->device)
	       ?: (x != y ? ORDER(x->process->first_ns, y->process->first_ns) ?: -1 : 0)
	       ?: ORDER(a->step, b->step) ?: ORDER(a->seq, b->seq);
}

static void print_device(const struct report *r, const struct block **list, size_t n)
{
	uint64_t bytes = 0;

	report_add(r, "\n====== ERROR: Detected memory leaks on device {} ======\n",
		   DEVICE(list[0]->pool->device->device));
	for (size_t i = 0; i < n; i++) {
		const struct block *b = list[i];

		bytes += b->bytes;
		if (i >= MAX_LINES)
			continue;
		buf_addf(r->out,
			 "Direct %s leak of %f Mb(s) at 0x%llx in kernel_%llu at step %u.\n",
			 blocks_pool_name(b->pool->type), (double)b->bytes / MIB,
			 (unsigned long long)b->ptr, (unsigned long long)b->kernels, b->step);
	}
	if (n > MAX_LINES)
		report_add(r, "... and {} more.\n", NUMBER(n - MAX_LINES));
	buf_addf(r->out, "====== SUMMARY: %g Mb(s) leaked in %zu allocation(s) ======\n",
		 (double)bytes / MIB, n);
}

void leaks_print_literal(const struct leak_answer *a, const struct report *r)
{
	const struct block **list = NULL;
	size_t n = 0, cap = 0, end;

	for (size_t i = 0; i < a->growing; i++)
		for (uint64_t k = 0; k < a->findings[i].blocks; k++) {
			LIST_ADD(list, n, cap, a->findings[i].list[k]);
		}
	SORT(list, n, by_device);
	for (size_t i = 0; i < n; i = end) {
		const struct block_device *d = list[i]->pool->device;

		for (end = i + 1; end < n && list[end]->pool->device == d; end++)
			;
		print_device(r, &list[i], end - i);
	}
	free(list);
}
