/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An interpreter whose memory is whatever the input says. The first byte chooses the version, the
 * rest lies at a fixed address, of which _PyRuntime is the beginning; we read ourselves.
 */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unwind/remote/process_state.h"

#define BASE 0x500000000000ull
#define BYTES (64u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint32_t versions[] = {0x030710f0, 0x030812f0, 0x030912f0,
					    0x030a0df0, 0x030b07f0, 0x030c01f0};
	static uint8_t *memory;
	struct python_place place = {.runtime = BASE};
	const struct python_options o = {.names = true};
	struct err err;

	if (!memory) {
		memory = mmap((void *)BASE, BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (memory != (void *)BASE)
			_exit(1);
	}
	if (size < 2 || python_layout_table(versions[data[0] % 6], PYTHON_X86_64, &place.layout))
		return 0;
	memset(memory, 0, BYTES);
	memcpy(memory, data + 1, size - 1 < BYTES ? size - 1 : BYTES);
	struct python_process *p = python_process_at(getpid(), &place, &o);
	for (unsigned i = 0; i < 3; i++) {
		/* Something moves between two looks. */
		memory[(data[size - 1] * 131u + i * 64) % BYTES] ^= data[size / 2];
		if (python_capture(p, &err) == 0)
			python_resolve(p, &err);
	}
	python_process_close(p);
	return 0;
}
