/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * str and bytes in memory that anybody might have written. Input: 1 byte of version, 1 byte of
 * room, 2 bytes of address, then the memory, seen at address 0x10000.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/python/text.h"

#define BASE 0x10000u
#define HEAD 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct memory {
	struct python_reader reader;
	const uint8_t *bytes;
	size_t n;
};

static int read_memory(const struct python_reader *r, uint64_t addr, void *out, size_t n)
{
	const struct memory *m = (const struct memory *)r;

	if (addr < BASE || addr - BASE > m->n || n > m->n - (addr - BASE))
		return -EFAULT;
	memcpy(out, m->bytes + (addr - BASE), n);
	return 0;
}

static void must(int ok)
{
	if (!ok)
		abort();
}

/* Whole characters only, no surrogates, no NUL. */
static void must_be_utf8(const char *text, size_t n)
{
	for (size_t i = 0; i < n;) {
		unsigned char c = (unsigned char)text[i++];
		unsigned more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;

		must(c != 0 && (c < 0x80 || (c >= 0xc2 && c <= 0xf4)));
		must(!(c == 0xed && (unsigned char)text[i] > 0x9f));
		for (; more; more--)
			must(i < n && ((unsigned char)text[i++] & 0xc0) == 0x80);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct python_layout l;
	uint16_t addr;

	if (size < HEAD ||
	    python_layout_table((0x0307u + data[0] % 6) << 16 | 0x5f0, PYTHON_X86_64, &l) < 0)
		return 0;
	if (data[0] & 0x80) { /* as free-threaded builds have it */
		l.text.kind_shift = 8;
		l.text.compact_bit = 11;
		l.text.ascii_bit = 12;
	}
	memcpy(&addr, data + 2, 2);
	struct memory m = {{read_memory}, data + HEAD, size - HEAD};
	/* Exactly as much room as is said: a sanitizer sees every step outside. */
	size_t cap = data[1];
	char *out = malloc(cap ? cap : 1);
	if (!out)
		return 0;
	ssize_t n = python_text(&m.reader, &l, BASE + addr, out, cap);
	if (n >= 0) {
		must((size_t)n < cap && out[n] == '\0');
		must_be_utf8(out, (size_t)n);
	}
	n = python_bytes(&m.reader, &l, BASE + addr, out, cap);
	must(n < 0 || n <= (ssize_t)1 << 31);
	free(out);
	return 0;
}
