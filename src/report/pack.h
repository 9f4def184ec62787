/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a page carries: one JSON object, the model, with everything that is small, texts, each once, and
 * arrays of whole numbers. All of it becomes one text: gzip in base64, which the browser unpacks.
 *
 *	4 bytes	n, little endian: the length of the model
 *	n	the model; in it "texts" and "arrays": {name: [numbers, offset, bytes]}
 *	the rest	the arrays: numbers of 7 bits in each byte, lowest first, bit 7 where more follow
 *
 * Numbers that may be negative are written as 2n, and as -2n - 1 below zero.
 */
#ifndef SONDE_REPORT_PACK_H
#define SONDE_REPORT_PACK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "base/err.h"
#include "report/redact/redact.h"

/* An array in the making. Zero-initialise; pack_put() releases it. */
struct column {
	struct buf bytes;
	size_t n;
};
void column_add(struct column *c, uint64_t v);
void column_add_signed(struct column *c, int64_t v);

struct pack {
	json_t *model; /* an object */
	json_t *texts, *arrays;
	struct buf bytes;
	struct hmap text_of;
	struct redact *redact; /* NULL: texts stay as they are */
};

void pack_init(struct pack *p, struct redact *redact);
void pack_release(struct pack *p);

void pack_put(struct pack *p, const char *prefix, const char *name, struct column *c);
/* The number of a text, 0 for none. Bytes that are no UTF-8 are replaced. */
uint32_t pack_text(struct pack *p, enum redact_kind kind, const char *text, size_t len);
uint32_t pack_string(struct pack *p, enum redact_kind kind, const char *text);
/* A text as a JSON value. */
json_t *pack_value(struct pack *p, enum redact_kind kind, const char *text);
/* The same of any length. */
json_t *pack_long(struct pack *p, enum redact_kind kind, struct buf *text);

/* Adds gzip in base64; the pack is used up. out_raw: how many bytes it was before. */
int pack_finish(struct pack *p, struct buf *out, uint64_t *out_raw, struct err *err);

#endif
