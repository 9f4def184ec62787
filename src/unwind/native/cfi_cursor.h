/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Reading numbers of DWARF from a view of .eh_frame: fixed ones, LEB128, encoded pointers.
 *
 * A cursor knows its end: a read past it gives 0 and marks the cursor bad.
 */
#ifndef SONDE_UNWIND_NATIVE_CFI_CURSOR_H
#define SONDE_UNWIND_NATIVE_CFI_CURSOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "unwind/native/cfi.h"

enum { ENC_OMIT = 0xff, ENC_PCREL = 0x10, ENC_DATAREL = 0x30 };

/* A position in the view. `bad` stays set: one check at the end is enough. */
struct cursor {
	const struct cfi_view *v;
	uint64_t at; /* offsets into the view */
	uint64_t end;
	bool bad;
};

static inline bool cursor_at(struct cursor *c, const struct cfi_view *v, uint64_t va)
{
	*c = (struct cursor){.v = v, .at = va - v->va, .end = v->size};
	return va >= v->va && va - v->va < v->size;
}

static inline uint64_t take_bytes(struct cursor *c, unsigned n)
{
	uint64_t v = 0;

	if (c->end - c->at < n) {
		c->at = c->end;
		c->bad = true;
		return 0;
	}
	memcpy(&v, c->v->data + c->at, n); /* both processors are little-endian */
	c->at += n;
	return v;
}

static inline void skip_bytes(struct cursor *c, uint64_t n)
{
	if (c->end - c->at < n) {
		c->bad = true;
		n = c->end - c->at;
	}
	c->at += n;
}

/* LEB128: seven bits a byte, lowest first; bit 7 says that another follows. More than 64 bits
 * are skipped, not added; eleven bytes are the most that is read. */
static inline uint64_t take_leb(struct cursor *c, bool is_signed)
{
	uint64_t v = 0, byte;
	unsigned shift = 0;

	do {
		byte = take_bytes(c, 1);
		if (shift < 64)
			v |= (byte & 0x7f) << shift;
		shift += 7;
	} while ((byte & 0x80) && shift < 77 && !c->bad);
	if (is_signed && shift < 64 && (byte & 0x40))
		v |= ~0ull << shift;
	return v;
}

static inline uint64_t uleb(struct cursor *c)
{
	return take_leb(c, false);
}

static inline int64_t sleb(struct cursor *c)
{
	return (int64_t)take_leb(c, true);
}

/* The low half of DW_EH_PE_*: absptr, uleb128, udata2, 4, 8, …, sleb128, sdata2, 4, 8. */
static inline uint64_t take_format(struct cursor *c, uint8_t enc)
{
	static const uint8_t bytes[16] = {8, 0, 2, 4, 8, 0, 0, 0, 0, 0, 2, 4, 8};
	unsigned format = enc & 0x0f, n = bytes[format];

	if (format == 0x01 || format == 0x09)
		return take_leb(c, format == 0x09);
	if (!n) {
		c->bad = true;
		return 0;
	}
	uint64_t v = take_bytes(c, n);
	if (format < 0x09)
		return v;
	return (uint64_t)((int64_t)(v << (64 - 8 * n)) >> (64 - 8 * n));
}

/*
 * A pointer as DW_EH_PE_* says; never follows an indirect one.
 *
 * The upper half of the encoding says what the number is relative to: nothing, its own address, or
 * .eh_frame_hdr. Text-relative and function-relative ones are not written for these processors. An
 * indirect pointer would be one more read at an address that nobody has proved; personality
 * routines have them, and those are skipped.
 */
static inline uint64_t take_pointer(struct cursor *c, uint8_t enc)
{
	uint64_t here = c->v->va + c->at;
	uint64_t v = take_format(c, enc);

	switch (enc & 0xf0) {
	case 0:
		return v;
	case ENC_PCREL:
		return v + here;
	case ENC_DATAREL:
		return v + c->v->hdr;
	default:
		c->bad = true;
		return 0;
	}
}

#endif
