/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Types, dicts and attributes of another interpreter. The dict changes while it is read: a count
 * that does not fit its table, an entry that points nowhere, all of it is skipped or refused.
 *
 * A dict is two objects, and sometimes three:
 *
 *	PyDictObject	used | keys --+   | values: NULL, or an array (keys shared by a class)
 *	                              v
 *	PyDictKeysObject	header | indices, 1 to 8 bytes a slot | entries, as inserted
 *
 *	header	to 3.10    refcnt, slots, lookup function, usable, entries     40 bytes
 *	        from 3.11  refcnt, log2 of slots, log2 of the bytes of the     32 bytes
 *	                   indices, kind, version, usable, entries
 *	entry	hash, key, value               24 bytes
 *	        key, value                     16 bytes: only str as keys (kind, from 3.11)
 *
 * The indices are not used: a key is not looked up by its hash, since strings are hashed with a
 * secret of the process. Entries are read in blocks and compared by their text.
 *
 * Attributes of an object: see object_view().
 */
#include <errno.h>
#include <string.h>

#include "unwind/python/text.h"
#include "unwind/remote/objects/objects_impl.h"

#define DICT_MAX_ENTRIES (1u << 20)
#define DICT_BLOCK 64 /* entries in one read */
#define ENTRY_MAX 24
#define LOWEST_ADDRESS 4096
#define HIGHEST_ADDRESS (1ull << 56)

int objects_read(struct objects *o, uint64_t addr, void *out, size_t n)
{
	if (addr < LOWEST_ADDRESS || addr >= HIGHEST_ADDRESS)
		return -EFAULT;
	if (!o->reads_left)
		return -E2BIG;
	o->reads_left--;
	return remote_read(o->r, addr, out, n);
}

int objects_word(struct objects *o, uint64_t addr, uint64_t *out)
{
	return objects_read(o, addr, out, sizeof(*out));
}

/* In steps that never cross a page: the text may be the last thing before one that is not
 * mapped. */
int objects_c_string(struct objects *o, uint64_t addr, char *out, size_t cap)
{
	for (size_t n = 0; n + 1 < cap;) {
		size_t step = 32 - ((addr + n) & 31); /* never across the end of a page */

		if (step > cap - 1 - n)
			step = cap - 1 - n;
		int r = objects_read(o, addr + n, out + n, step);
		if (r < 0)
			return r;
		if (memchr(out + n, 0, step))
			return 0;
		n += step;
	}
	out[cap - 1] = 0;
	return 0;
}

/* The last type is remembered: items of one container mostly have the same one. */
int objects_type(struct objects *o, uint64_t object)
{
	const struct python_layout *l = o->l;
	struct object_type t = {0};
	uint64_t name = 0;

	int r = objects_word(o, object + l->object.type, &t.addr);
	if (r < 0)
		return r;
	if (t.addr == o->type.addr)
		return 0;
	if ((r = objects_word(o, t.addr + l->object.type_flags, &t.flags)) < 0 ||
	    (r = objects_word(o, t.addr + l->object.type_basicsize, &t.basicsize)) < 0 ||
	    (r = objects_word(o, t.addr + l->object.type_dictoffset, (uint64_t *)&t.dictoffset)) <
		    0 ||
	    (r = objects_word(o, t.addr + l->object.type_name, &name)) < 0 ||
	    (r = objects_c_string(o, name, t.name, sizeof(t.name))) < 0)
		return r;
	o->type = t;
	return 0;
}

/*
 * An int is sign and digits of 30 bits. To 3.11 ob_size is the number of digits, negative for a
 * negative number; from 3.12 on lv_tag has the number above three bits, of which the lowest two are
 * the sign (0 positive, 1 zero, 2 negative).
 */
int objects_int(struct objects *o, uint64_t object, int64_t *out, uint64_t *out_bits)
{
	const struct python_layout *l = o->l;
	uint64_t tag, digits, value = 0;
	bool negative;
	uint32_t digit[3] = {0};

	int r = objects_word(o, object + l->object.long_tag, &tag);
	if (r < 0)
		return r;
	if (l->minor >= 12) {
		digits = tag >> 3;
		negative = (tag & 3) == 2;
		if ((tag & 3) == 1)
			digits = 0;
	} else {
		negative = (int64_t)tag < 0;
		digits = negative ? 0 - tag : tag;
	}
	if (digits > 3) {
		*out_bits = digits > UINT64_MAX / 30 ? UINT64_MAX : digits * 30;
		return -ERANGE;
	}
	if (digits && (r = objects_read(o, object + l->object.long_digits, digit,
					digits * sizeof(*digit))) < 0)
		return r;
	if (digit[2] >> 3) { /* 63 bits hold what an int64_t can say, but for one number */
		*out_bits = 60 + 32 - (uint64_t)__builtin_clz(digit[2]);
		return -ERANGE;
	}
	for (unsigned i = 3; i-- > 0;)
		value = (value << 30) | (digit[i] & 0x3fffffff);
	*out = negative ? -(int64_t)value : (int64_t)value;
	return 0;
}

/*
 * Where the entries of a keys object begin: behind a header and a table of indices.
 *
 * Counts are checked against each other and against bounds before anything is read by them.
 */
static int keys_view(struct objects *o, uint64_t keys, struct dict_view *v)
{
	uint8_t head[40];
	uint64_t slots, index_bytes, header = o->l->minor >= 11 ? 32 : 40;

	int r = objects_read(o, keys, head, header);
	if (r < 0)
		return r;
	v->entry_bytes = 24;
	v->key_at = 8;
	if (o->l->minor >= 11) {
		memcpy(&v->count, head + 24, 8);
		if (head[8] > 40 || head[9] > 44 || head[10] > 2)
			return -EPROTO;
		slots = 1ull << head[8];
		index_bytes = 1ull << head[9];
		if (head[10]) { /* only str as keys: no hashes */
			v->entry_bytes = 16;
			v->key_at = 0;
		}
	} else {
		memcpy(&slots, head + 8, 8);
		memcpy(&v->count, head + 32, 8);
		index_bytes = slots <= 0xff ? slots : slots <= 0xffff ? slots * 2 : slots * 4;
	}
	v->value_at = v->key_at + 8;
	if (slots > 2 * DICT_MAX_ENTRIES || v->count > DICT_MAX_ENTRIES || v->count > slots)
		return -EPROTO;
	v->entries = keys + header + index_bytes;
	return 0;
}

int dict_view_open(struct objects *o, uint64_t dict, struct dict_view *out)
{
	const struct python_layout *l = o->l;
	uint64_t keys;

	memset(out, 0, sizeof(*out));
	int r = objects_word(o, dict + l->dict.keys, &keys);
	if (r < 0 || (r = objects_word(o, dict + l->dict.values, &out->values)) < 0)
		return r;
	if (out->values && l->minor >= 13)
		out->values += 8; /* sizes come first */
	return keys_view(o, keys, out);
}

/* The keys and values of up to DICT_BLOCK entries from `first` on; 0 where there is none. */
static int read_block(struct objects *o, const struct dict_view *v, uint64_t first, unsigned n,
		      uint64_t keys[DICT_BLOCK], uint64_t values[DICT_BLOCK])
{
	uint8_t entries[DICT_BLOCK * ENTRY_MAX];

	int r = objects_read(o, v->entries + first * v->entry_bytes, entries,
			     (size_t)n * v->entry_bytes);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < n; i++) {
		memcpy(&keys[i], entries + i * v->entry_bytes + v->key_at, 8);
		memcpy(&values[i], entries + i * v->entry_bytes + v->value_at, 8);
	}
	if (!v->values)
		return 0;
	return objects_read(o, v->values + first * 8, values, n * sizeof(*values));
}

int dict_each(struct objects *o, const struct dict_view *v, dict_fn fn, void *arg)
{
	uint64_t keys[DICT_BLOCK], values[DICT_BLOCK];

	for (uint64_t first = 0; first < v->count; first += DICT_BLOCK) {
		uint64_t left = v->count - first;
		unsigned n = left < DICT_BLOCK ? (unsigned)left : DICT_BLOCK;
		int r = read_block(o, v, first, n, keys, values);

		if (r < 0)
			return r;
		for (unsigned i = 0; i < n; i++)
			if (keys[i] && values[i] && !fn(arg, keys[i], values[i]))
				return 0;
	}
	return 0;
}

/* The names that are looked for in one walk over a dict, and what was found so far. */
struct name_search {
	const char *const *names;
	uint64_t *values; /* 0: not found yet */
	unsigned n, left;
};

/* Whether one of the names that are still looked for has this length, and the object is a compact
 * ASCII str. */
static bool may_match(const struct python_layout *l, const uint8_t *head,
		      const struct name_search *s, size_t *out_len)
{
	uint64_t length;
	uint32_t state;

	memcpy(&length, head + l->text.length, sizeof(length));
	memcpy(&state, head + l->text.state, sizeof(state));
	if (!(state >> l->text.compact_bit & 1) || !(state >> l->text.ascii_bit & 1))
		return false;
	for (unsigned i = 0; i < s->n; i++)
		if (!s->values[i] && strlen(s->names[i]) == length) {
			*out_len = (size_t)length;
			return true;
		}
	return false;
}

/* Spans in as few calls as possible; the ones that cannot be read are marked by out = NULL. */
static void read_spans(struct objects *o, struct remote_span *spans, unsigned n)
{
	unsigned at = 0;

	while (at < n && o->reads_left) {
		o->reads_left--;
		int got = remote_readv(o->r, spans + at, n - at);
		if (got < 0)
			break;
		at += (unsigned)got;
		if (at < n)
			spans[at++].out = NULL;
	}
	while (at < n)
		spans[at++].out = NULL;
}

static void note_match(struct name_search *s, const char *text, size_t len, uint64_t value)
{
	for (unsigned i = 0; i < s->n; i++)
		if (!s->values[i] && strlen(s->names[i]) == len &&
		    !memcmp(s->names[i], text, len)) {
			s->values[i] = value;
			s->left--;
			return;
		}
}

/*
 * Of all keys of a block first the heads, then the texts of those whose length fits: sys.modules
 * has thousands of keys. No key is read beyond its end, where memory may end, too.
 */
static void find_in_block(struct objects *o, const uint64_t *keys, const uint64_t *values,
			  unsigned n, struct name_search *s)
{
	enum { HEAD_BYTES = 96 };
	uint8_t heads[DICT_BLOCK][HEAD_BYTES];
	char texts[DICT_BLOCK][DICT_NAME_MAX];
	struct remote_span spans[DICT_BLOCK];
	unsigned index[DICT_BLOCK], nspans = 0, fits = 0;
	uint32_t head = o->l->text.ascii_data;

	if (head > HEAD_BYTES || o->l->text.length > head - 8 || o->l->text.state > head - 4)
		return;
	for (unsigned i = 0; i < n; i++)
		if (values[i] && keys[i] >= LOWEST_ADDRESS && keys[i] < HIGHEST_ADDRESS) {
			index[nspans] = i;
			spans[nspans++] = (struct remote_span){keys[i], heads[i], head};
		}
	read_spans(o, spans, nspans);
	for (unsigned k = 0; k < nspans; k++) {
		unsigned i = index[k];
		size_t len;

		if (!spans[k].out || !may_match(o->l, heads[i], s, &len))
			continue;
		index[fits] = i;
		spans[fits++] = (struct remote_span){keys[i] + head, texts[i], len};
	}
	read_spans(o, spans, fits);
	for (unsigned k = 0; k < fits && s->left; k++)
		if (spans[k].out)
			note_match(s, spans[k].out, spans[k].n, values[index[k]]);
}

int dict_find_names(struct objects *o, const struct dict_view *v, const char *const *names,
		    unsigned n, uint64_t *out_values)
{
	uint64_t keys[DICT_BLOCK], values[DICT_BLOCK];
	struct name_search s = {.names = names, .values = out_values, .n = n, .left = n};

	memset(out_values, 0, n * sizeof(*out_values));
	for (unsigned i = 0; i < n; i++)
		if (strlen(names[i]) > DICT_NAME_MAX)
			return -EINVAL;
	for (uint64_t first = 0; first < v->count && s.left; first += DICT_BLOCK) {
		uint64_t left = v->count - first;
		unsigned block = left < DICT_BLOCK ? (unsigned)left : DICT_BLOCK;
		int r = read_block(o, v, first, block, keys, values);

		if (r < 0)
			return r;
		find_in_block(o, keys, values, block, &s);
	}
	return (int)(n - s.left);
}

int dict_find(struct objects *o, const struct dict_view *v, const char *name, uint64_t *out_value)
{
	uint64_t value;
	int r = dict_find_names(o, v, &name, 1, &value);

	if (r > 0)
		*out_value = value;
	return r < 0 ? r : r > 0 ? 0 : -ENOENT;
}

/*
 * Objects whose type says so keep their attributes in an array without a dict, until somebody asks
 * for the dict. Gives one of the two: the other is 0.
 *
 * Where the pointer is depends on the version: two words before the object's head in 3.11 (values,
 * then dict), one word with a tag bit in 3.12, and from 3.13 on values inside the object itself,
 * behind its fixed part, with a flag that says whether they still count.
 */
static int managed_dict(struct objects *o, uint64_t object, uint64_t *out_dict,
			uint64_t *out_values)
{
	const struct python_layout *l = o->l;
	uint8_t head[8];
	uint64_t word;
	int r;

	*out_dict = *out_values = 0;
	if (l->minor == 11) {
		r = objects_word(o, object - 32, out_values);
		return r < 0 || *out_values ? r : objects_word(o, object - 24, out_dict);
	}
	if (l->minor == 12) {
		r = objects_word(o, object - 24, &word);
		if (r == 0 && word & 1)
			*out_values = word + 1;
		else if (r == 0)
			*out_dict = word;
		return r;
	}
	if (o->type.flags & TYPE_INLINE_VALUES && o->type.basicsize < 1 << 20) {
		uint64_t inlined = object + o->type.basicsize;

		r = objects_read(o, inlined, head, sizeof(head));
		if (r < 0)
			return r;
		if (head[3]) { /* valid */
			*out_values = inlined + 8;
			return 0;
		}
	}
	return objects_word(o, object - (l->free_threaded ? 8 : 24), out_dict);
}

/*
 * Three ways to keep attributes: a dict at tp_dictoffset; from 3.11 on a pointer before the object
 * (managed); and an array of values in the order of the class' shared keys, without any dict, as
 * long as nobody asks for it.
 */
int object_view(struct objects *o, uint64_t object, struct dict_view *out)
{
	uint64_t dict = 0, values = 0, keys;

	int r = objects_type(o, object);
	if (r < 0)
		return r;
	const struct object_type *t = &o->type;
	if (o->l->minor >= 11 && t->flags & TYPE_MANAGED_DICT)
		r = managed_dict(o, object, &dict, &values);
	else if (t->dictoffset > 0 && t->dictoffset < 1 << 20)
		r = objects_word(o, object + (uint64_t)t->dictoffset, &dict);
	if (r < 0)
		return r;
	if (!values)
		return dict ? dict_view_open(o, dict, out) : -ENOENT;
	memset(out, 0, sizeof(*out));
	r = objects_word(o, t->addr + o->l->dict.cached_keys, &keys);
	if (r == 0)
		r = keys_view(o, keys, out);
	out->values = values;
	return r;
}

int object_attribute(struct objects *o, uint64_t object, const char *name, uint64_t *out_value)
{
	struct dict_view v;
	int r = object_view(o, object, &v);

	return r < 0 ? r : dict_find(o, &v, name, out_value);
}

int class_attribute(struct objects *o, uint64_t class, const char *name, uint64_t *out_value)
{
	struct dict_view v;
	uint64_t dict;
	/* tp_dict is three words before tp_dictoffset in every version. */
	int r = objects_word(o, class + o->l->object.type_dictoffset - 24, &dict);

	if (r == 0)
		r = dict ? dict_view_open(o, dict, &v) : -ENOENT;
	return r < 0 ? r : dict_find(o, &v, name, out_value);
}
