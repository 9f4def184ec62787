/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The beginning of _PyRuntime as anybody might write it. What is accepted must be within bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/python/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* Every field that is there ends before `size`. */
static void within(const uint32_t *fields, size_t n, uint32_t size)
{
	for (size_t i = 0; i < n; i++)
		must(fields[i] == PYTHON_NONE || fields[i] < size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct python_layout l;
	/* A copy of exactly this size: a sanitizer sees every step outside. */
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	if (python_layout_read(copy, size, &l) == 0) {
		must(l.minor >= 13 && l.minor <= PYTHON_NEWEST && l.version >> 24 == 3);
		must(l.tstate.size <= PYTHON_TSTATE_MAX && l.frame.size <= PYTHON_FRAME_MAX &&
		     l.code.size <= PYTHON_CODE_MAX);
		within(&l.tstate.prev, 10, l.tstate.size);
		within(&l.frame.back, 6, l.frame.size);
		within(&l.frame.stackpointer, 1, l.frame.size);
		within(&l.code.filename, 12, l.code.size);
		within(&l.code.tlbc, 1, l.code.size);
		within(&l.interp.next, 7, 16 << 20);
		within(&l.object.object_size, 13, 4096 + 8);
		within(&l.text.length, 5, 4096);
		within(&l.gil.locked, 2, 4097);
	}
	free(copy);
	return 0;
}
