/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * .eh_frame_hdr and .eh_frame as an attacker would write them. Input: 2 bytes of pc, 2 bytes of
 * offset of the header, then the segment, seen at address 0x400000.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/native/cfi.h"

#define BASE 0x400000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint16_t pc, hdr;

	if (size < 4)
		return 0;
	memcpy(&pc, data, 2);
	memcpy(&hdr, data + 2, 2);
	size -= 4;
	/* A copy of exactly this size: a sanitizer sees every step outside. */
	uint8_t *copy = malloc(size ? size : 1);
	if (!copy)
		return 0;
	memcpy(copy, data + 4, size);
	struct cfi_view v = {copy, size, BASE, BASE + hdr};
	uint64_t rule = cfi_rule(&v, BASE + pc);
	if (rule_how(rule) >= RULE_HOW_END)
		abort();
	free(copy);
	return 0;
}
