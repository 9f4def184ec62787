/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Marks that are meant for torch_npu's sanitizer: "sanitizer-op: name=…;read=…;write=…". Who
 * has asked for them gets them in the thread that launches the operator and before it goes on: a
 * sanitizer needs them in their order.
 */
#include "guest/collect/collect.h"

#include <stdatomic.h>
#include <string.h>

#define PREFIX "sanitizer-op:"

static _Atomic(collect_sanitizer_fn) sanitizer;

void collect_sanitizer_set(collect_sanitizer_fn fn)
{
	atomic_store(&sanitizer, fn);
}

void collect_sanitizer(const char *message, const void *stream)
{
	collect_sanitizer_fn fn = atomic_load_explicit(&sanitizer, memory_order_relaxed);

	if (fn && message && !strncmp(message, PREFIX, strlen(PREFIX)))
		fn(message, (uint64_t)stream);
}
