/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Arrays for textures. How the driver lays them out is its secret: what is reported is what their
 * elements take, which is a lower bound.
 */
#include "device/cuda/hooks/hooks.h"

#include <errno.h>

static uint64_t element_bytes(int format, unsigned int channels)
{
	uint64_t n = 1; /* packed and compressed ones take at least that */

	if (format == 2 || format == 9 || format == 0x10)
		n = 2;
	else if (format == 3 || format == 10 || format == 0x20)
		n = 4;
	return n * (channels ? channels : 1);
}

static uint64_t one_at_least(uint64_t n)
{
	return n ? n : 1;
}

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t bytes_of(const struct cu_array3d_desc *d, unsigned int levels)
{
	uint64_t sum = 0, element = element_bytes(d->format, d->channels);

	if (d->flags & (CU_ARRAY_SPARSE | CU_ARRAY_DEFERRED))
		return 0; /* memory comes later, by cuMemMapArrayAsync() */
	for (unsigned int i = 0; i < levels && i < 32; i++) {
		uint64_t layer = times(one_at_least(d->width >> i), one_at_least(d->height >> i));
		uint64_t bytes = times(times(layer, one_at_least(d->depth >> i)), element);
		sum = sum > UINT64_MAX - bytes ? UINT64_MAX : sum + bytes;
	}
	return sum;
}

static void report_array(int r, const void *array, uint64_t bytes, const void *caller)
{
	int saved = errno;

	collect_see_driver();
	if (bytes && collect_wants_driver()) {
		struct place at = place_now(NULL, caller);
		struct collect_block b = {
			.addr = (uint64_t)array,
			.size_bytes = bytes,
			.device = at.device,
			.pool = POOL_CUDA,
			.kind = ALLOC_ARRAY,
			.context = at.context,
			.module = collect_library(caller),
		};
		if (r == CU_SUCCESS)
			collect_alloc(&b, caller);
		else
			report_refusal(&b, r, caller);
	}
	errno = saved;
}

int hook_array_create(array_create_fn real, const void *caller, cu_array *out,
		      const struct cu_array_desc *desc)
{
	INSIDE(real, out, desc);
	int r = real(out, desc);
	if (desc) {
		struct cu_array3d_desc d = {.width = desc->width,
					    .height = desc->height,
					    .format = desc->format,
					    .channels = desc->channels};
		report_array(r, r == CU_SUCCESS ? *out : NULL, bytes_of(&d, 1), caller);
	}
	hook_leave();
	return r;
}

int hook_array3d_create(array3d_create_fn real, const void *caller, cu_array *out,
			const struct cu_array3d_desc *desc)
{
	INSIDE(real, out, desc);
	int r = real(out, desc);
	if (desc)
		report_array(r, r == CU_SUCCESS ? *out : NULL, bytes_of(desc, 1), caller);
	hook_leave();
	return r;
}

int hook_mipmap_create(mipmap_create_fn real, const void *caller, cu_mipmap *out,
		       const struct cu_array3d_desc *desc, unsigned int levels)
{
	INSIDE(real, out, desc, levels);
	int r = real(out, desc, levels);
	if (desc)
		report_array(r, r == CU_SUCCESS ? *out : NULL, bytes_of(desc, levels), caller);
	hook_leave();
	return r;
}

static struct collect_block array_block(const void *array)
{
	return (struct collect_block){.addr = (uint64_t)array,
				      .device = DEV_NONE,
				      .pool = POOL_CUDA,
				      .kind = ALLOC_ARRAY};
}

static void end_array(struct collect_pending p, const void *array, int r, const void *caller)
{
	struct collect_block b = array_block(array);
	int saved = errno;

	collect_free_end(p, &b, r == CU_SUCCESS, caller);
	errno = saved;
}

int hook_array_destroy(array_destroy_fn real, const void *caller, cu_array array)
{
	INSIDE(real, array);
	struct collect_block b = array_block(array);
	struct collect_pending p = collect_free_begin(&b);
	int r = real(array);
	end_array(p, array, r, caller);
	hook_leave();
	return r;
}

int hook_mipmap_destroy(mipmap_destroy_fn real, const void *caller, cu_mipmap array)
{
	INSIDE(real, array);
	struct collect_block b = array_block(array);
	struct collect_pending p = collect_free_begin(&b);
	int r = real(array);
	end_array(p, array, r, caller);
	hook_leave();
	return r;
}
