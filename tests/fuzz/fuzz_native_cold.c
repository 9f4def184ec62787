/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The exception table and the code of a program that somebody else wrote. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "unwind/remote/native/native_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct native_bytes table = {.addr = 0x400000}, code = {.addr = 0x400400};
	uint64_t start = 0, end = 0;
	uint16_t split;

	if (size < sizeof(split))
		return 0;
	memcpy(&split, data, sizeof(split));
	data += sizeof(split);
	size -= sizeof(split);
	table.data = data;
	table.n = split < size ? split : size;
	code.data = data + table.n;
	code.n = size - table.n;
	if (native_cold_part(&table, &code, &start, &end) == 0)
		BUG_ON(start > end);
	return 0;
}
