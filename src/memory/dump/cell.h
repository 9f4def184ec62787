/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The columns of a dump, and the cells that need more than a number or a word: the name, and the
 * Attr cell in its two forms, `key:value,…` (CSV) and a flat JSON object of strings (DB). Shared by
 * writers and readers so that the grammar is written down once.
 *
 * A key is a letter or `_`, then letters, digits, `_` and spaces, at the start or behind a comma,
 * and before a colon. Everything up to the next `,key:` is its value: values may hold commas
 * (`shape:[1,5]`) and colons.
 */
#ifndef SONDE_MEMORY_DUMP_CELL_H
#define SONDE_MEMORY_DUMP_CELL_H

#include <stdbool.h>

#include "base/containers/buf.h"
#include "memory/dump/row.h"
#include "memory/dump/word_cache.h"

#define CELL_COLUMNS                                                                               \
	"ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,"          \
	"Call Stack(Python),Call Stack(C)"

enum cell_column {
	COL_ID,
	COL_EVENT,
	COL_TYPE,
	COL_NAME,
	COL_TIME,
	COL_PID,
	COL_TID,
	COL_DEVICE,
	COL_PTR,
	COL_ATTR,
	COL_PY_STACK, /* from here on a reader can do without */
	COL_C_STACK,
	COL_END,
};

struct cell {
	const char *text; /* may be NULL when len is 0 */
	size_t len;
};

/* Behind the text of a cell this many bytes may be read; they mean nothing. */
#define CELL_SLACK 64

struct pair {
	const char *key; /* empty for text without a key */
	size_t key_len;
	const char *value;
	size_t value_len;
};

/* The column of that name, in any case; COL_END for none. */
enum cell_column cell_column_find(const char *name, size_t len);

/* The name as it is written, without quotes: N/A for none, empty where a spreadsheet would run it.
 */
const char *cell_name(const struct row *row, size_t *out_len);

/* Takes the next pair off the text at *at and moves *at behind it and its comma. */
bool cell_next_pair(const char **at, const char *end, struct pair *out);

/*
 * A pair that means nothing: `room:` and blanks, where a finding may be written later without making
 * the row longer. Readers pass it over.
 */
#define CELL_ROOM "room:"
#define CELL_ROOM_BYTES 72 /* ",inefficient_type:" and all its kinds, and one blank */
bool cell_is_room(const char *pair, size_t len);

/* Does a key with its colon begin at p? */
bool cell_is_key(const char *p, const char *end);

/* Adds the inside of a JSON string. */
void cell_json_text(struct buf *out, const char *s, size_t n);

/* The attributes as a JSON object, all values as strings. `scratch` is for text_clean(). */
void cell_attrs_json(const struct row *row, enum row_compat compat, struct buf *out,
		     struct buf *scratch);

/*
 * Reading. `keys` was made by cell_keys_init(); then a reader that can do without some attributes
 * may take their bits away, and they are passed over. The pairs of an Attr cell become row->attrs;
 * texts point into the cell, which has its CELL_SLACK. -EBADMSG for text that is none.
 */
struct cell_keys {
	struct words words;
	uint64_t wanted; /* bit i: enum attr_key i; ATTR_RAW's is for all that has no key of its own
			  */
};
void cell_keys_init(struct cell_keys *keys);
int cell_read_attrs(struct cell_keys *keys, const char *text, size_t len, struct row *row);
/* The same from JSON, without slack; texts point into `keep`, which is cleared first. */
int cell_read_json(struct cell_keys *keys, const char *text, size_t len, struct buf *keep,
		   struct row *row);

/* Decimal, every byte a digit, no overflow. */
bool cell_read_u64(const char *s, size_t n, uint64_t *out);
/* 0x and 1 to 16 hexadecimal digits. */
bool cell_read_hex(const char *s, size_t n, uint64_t *out);

#endif
