/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Python objects in our own memory, laid out as an interpreter lays them out, for the readers of
 * other processes' objects: the other process is this one. Shared by unit tests and fuzz target.
 */
#ifndef SONDE_TESTS_PYTHON_IMAGE_H
#define SONDE_TESTS_PYTHON_IMAGE_H

#include <string.h>

#include "base/mem.h"
#include "unwind/python/layout.h"

#define IMAGE_BYTES 65536

#define IMAGE_INT (1u << 24)
#define IMAGE_LIST (1u << 25)
#define IMAGE_TUPLE (1u << 26)
#define IMAGE_BYTES_TYPE (1u << 27)
#define IMAGE_STR (1u << 28)
#define IMAGE_DICT (1u << 29)
#define IMAGE_MANAGED (1u << 4)
#define IMAGE_INLINE (1u << 2)

struct image {
	uint8_t *bytes;
	size_t used;
	struct python_layout l;
	uint64_t none, of_int, of_float, of_str, of_bytes, of_list, of_tuple, of_dict, of_cell;
};

static inline uint8_t *image_room(struct image *m, size_t n)
{
	uint8_t *p = m->bytes + m->used + 64; /* room for what lies before some objects */

	m->used += (64 + n + 63) / 64 * 64;
	BUG_ON(m->used > IMAGE_BYTES);
	return p;
}

static inline void image_set(uint64_t object, uint32_t offset, uint64_t word)
{
	memcpy((uint8_t *)(uintptr_t)object + offset, &word, sizeof(word));
}

static inline uint64_t image_object(struct image *m, uint64_t type, size_t n)
{
	uint64_t object = (uintptr_t)image_room(m, n);

	image_set(object, m->l.object.type, type);
	return object;
}

static inline uint64_t image_type(struct image *m, const char *name, uint64_t flags,
				  uint64_t basicsize, int64_t dictoffset)
{
	uint64_t type = (uintptr_t)image_room(m, m->l.dict.cached_keys + 8);
	uint8_t *text = image_room(m, strlen(name) + 1);

	memcpy(text, name, strlen(name) + 1);
	image_set(type, m->l.object.type_name, (uintptr_t)text);
	image_set(type, m->l.object.type_flags, flags);
	image_set(type, m->l.object.type_basicsize, basicsize);
	image_set(type, m->l.object.type_dictoffset, (uint64_t)dictoffset);
	return type;
}

static inline uint64_t image_str(struct image *m, const char *text)
{
	size_t n = strlen(text);
	uint64_t object = image_object(m, m->of_str, m->l.text.ascii_data + n + 1);
	uint32_t state = 1u << m->l.text.kind_shift | 1u << m->l.text.compact_bit |
			 1u << m->l.text.ascii_bit;

	image_set(object, m->l.text.length, n);
	memcpy((uint8_t *)(uintptr_t)object + m->l.text.state, &state, sizeof(state));
	memcpy((uint8_t *)(uintptr_t)object + m->l.text.ascii_data, text, n + 1);
	return object;
}

static inline uint64_t image_int(struct image *m, int64_t value)
{
	uint64_t object = image_object(m, m->of_int, m->l.object.long_digits + 12);
	uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value, n = 0;

	for (; rest; n++, rest >>= 30) {
		uint32_t digit = rest & 0x3fffffff;

		memcpy((uint8_t *)(uintptr_t)object + m->l.object.long_digits + 4 * n, &digit, 4);
	}
	if (m->l.minor >= 12)
		n = n << 3 | (value < 0 ? 2u : value ? 0u : 1u);
	else if (value < 0)
		n = 0 - n;
	image_set(object, m->l.object.long_tag, n);
	return object;
}

static inline uint64_t image_float(struct image *m, double value)
{
	uint64_t object = image_object(m, m->of_float, 32), word;

	memcpy(&word, &value, sizeof(word));
	image_set(object, m->l.object.float_value, word);
	return object;
}

static inline uint64_t image_bytes(struct image *m, const void *bytes, size_t n)
{
	uint64_t object = image_object(m, m->of_bytes, m->l.object.bytes_data + n + 1);

	image_set(object, m->l.object.var_size, n);
	memcpy((uint8_t *)(uintptr_t)object + m->l.object.bytes_data, bytes, n);
	return object;
}

static inline uint64_t image_tuple(struct image *m, const uint64_t *items, size_t n)
{
	uint64_t object = image_object(m, m->of_tuple, m->l.object.tuple_items + 8 * n);

	image_set(object, m->l.object.var_size, n);
	for (size_t i = 0; i < n; i++)
		image_set(object, m->l.object.tuple_items + (uint32_t)(8 * i), items[i]);
	return object;
}

static inline uint64_t image_list(struct image *m, const uint64_t *items, size_t n)
{
	uint64_t object = image_object(m, m->of_list, 48);
	uint8_t *array = image_room(m, 8 * n + 8);

	memcpy(array, items, 8 * n);
	image_set(object, m->l.object.var_size, n);
	image_set(object, m->l.object.list_items, (uintptr_t)array);
	return object;
}

/* A keys object with up to 200 entries; without values: one that several objects share. */
static inline uint64_t image_keys(struct image *m, const uint64_t *keys, const uint64_t *values,
				  size_t n, bool all_str)
{
	bool late = m->l.minor >= 11;
	size_t header = late ? 32 : 40, entry = late && all_str ? 16 : 24, at = header + 256;
	uint8_t *p = image_room(m, at + entry * n);
	uint64_t size = 256, count = n;

	if (late) {
		p[8] = 8;
		p[9] = 8;
		p[10] = all_str ? (values ? 1 : 2) : 0;
		memcpy(p + 24, &count, 8);
	} else {
		memcpy(p + 8, &size, 8);
		memcpy(p + 32, &count, 8);
		at += 256; /* indices of two bytes */
		m->used += 256;
		BUG_ON(m->used > IMAGE_BYTES);
	}
	for (size_t i = 0; i < n; i++) {
		uint8_t *e = p + at + entry * i + (entry == 24 ? 8 : 0);

		memcpy(e, &keys[i], 8);
		if (values)
			memcpy(e + 8, &values[i], 8);
	}
	return (uintptr_t)p;
}

static inline uint64_t image_dict(struct image *m, const uint64_t *keys, const uint64_t *values,
				  size_t n, bool all_str)
{
	uint64_t object = image_object(m, m->of_dict, 64);

	image_set(object, m->l.dict.used, n);
	image_set(object, m->l.dict.keys, image_keys(m, keys, values, n, all_str));
	image_set(object, m->l.dict.values, 0);
	return object;
}

/* An object of a class that has attributes: in the way in which the version keeps them. */
static inline uint64_t image_instance(struct image *m, const char *class, const uint64_t *names,
				      const uint64_t *values, size_t n)
{
	uint32_t head = m->l.object.object_size;

	if (m->l.minor < 11) {
		uint64_t type = image_type(m, class, 0, head + 8, head);
		uint64_t object = image_object(m, type, head + 8);

		image_set(object, head, image_dict(m, names, values, n, true));
		return object;
	}
	uint64_t flags = IMAGE_MANAGED | (m->l.minor >= 13 ? IMAGE_INLINE : 0);
	uint64_t type = image_type(m, class, flags, head, -1);
	uint64_t object = image_object(m, type, head + 8 + 8 * n);
	uint8_t *array = (uint8_t *)(uintptr_t)object + head;

	image_set(type, m->l.dict.cached_keys, image_keys(m, names, NULL, n, true));
	if (m->l.minor >= 13)
		array[3] = 1; /* valid */
	else
		array = image_room(m, 8 * n);
	for (size_t i = 0; i < n; i++)
		memcpy(array + (m->l.minor >= 13 ? 8 : 0) + 8 * i, &values[i], 8);
	if (m->l.minor == 11)
		image_set(object - 32, 0, (uintptr_t)array);
	else if (m->l.minor == 12)
		image_set(object - 24, 0, (uintptr_t)array - 1);
	return object;
}

/* 3.7 to 3.12 as the tables say; 13 and more: like 3.12 where the readers do not look at it. */
static inline void image_init(struct image *m, unsigned minor)
{
	unsigned table = minor > 12 ? 12 : minor;

	memset(m, 0, sizeof(*m));
	m->bytes = xcalloc(1, IMAGE_BYTES);
	BUG_ON(python_layout_table(3u << 24 | table << 16 | 7u << 8 | 0xf0, PYTHON_X86_64, &m->l) <
	       0);
	m->l.minor = (uint8_t)minor;
	m->l.tagged = minor >= 14 ? 3 : 0;
	m->of_str = image_type(m, "str", IMAGE_STR, 40, 0);
	m->of_int = image_type(m, "int", IMAGE_INT, 24, 0);
	m->of_float = image_type(m, "float", 0, 24, 0);
	m->of_bytes = image_type(m, "bytes", IMAGE_BYTES_TYPE, 33, 0);
	m->of_list = image_type(m, "list", IMAGE_LIST, 40, 0);
	m->of_tuple = image_type(m, "tuple", IMAGE_TUPLE, 24, 0);
	m->of_dict = image_type(m, "dict", IMAGE_DICT, 48, 0);
	m->of_cell = image_type(m, "cell", 0, 24, 0);
	m->none = image_object(m, image_type(m, "NoneType", 0, 16, 0), 16);
}

/* An interpreter whose threading._active has the given threads; idents count from 1000. */
static inline uint64_t image_interp(struct image *m, const char *const *names, size_t n)
{
	uint64_t idents[8], threads[8], attributes[2], values[2];

	BUG_ON(n > 8);
	for (size_t i = 0; i < n; i++) {
		attributes[0] = image_str(m, "_target");
		attributes[1] = image_str(m, "_name");
		values[0] = m->none;
		values[1] = image_str(m, names[i]);
		idents[i] = image_int(m, 1000 + (int64_t)i);
		threads[i] = image_instance(m, "Thread", attributes, values, 2);
	}
	uint64_t active = image_str(m, "_active"), dict = image_dict(m, idents, threads, n, false);
	uint32_t head = m->l.object.object_size;
	uint64_t module = image_object(m, image_type(m, "module", 0, 64, head), 64);
	image_set(module, head, image_dict(m, &active, &dict, 1, true));
	uint64_t modules[2] = {image_str(m, "sys"), image_str(m, "threading")};
	values[0] = m->none;
	values[1] = module;
	uint64_t interp = (uintptr_t)image_room(m, m->l.interp.modules + 8);
	image_set(interp, m->l.interp.modules, image_dict(m, modules, values, 2, true));
	return interp;
}

static inline uint64_t image_module(struct image *m, uint64_t type, const char *name,
				    uint64_t value)
{
	uint64_t module = image_object(m, type, 64), key = image_str(m, name);

	image_set(module, m->l.object.object_size, image_dict(m, &key, &value, 1, true));
	return module;
}

/* A default process group of PyTorch: its C++ object has rank and size in the fourth word. */
static inline uint64_t image_torch(struct image *m, uint64_t type, int32_t rank, int32_t size)
{
	uint64_t group = image_object(m, image_type(m, "ProcessGroup", 0, 56, 0), 56), keys[2];
	uint64_t names[3] = {image_str(m, "_other"), image_str(m, "_world"),
			     image_str(m, "_pg_group_ranks")};
	uint64_t attribute = image_str(m, "_default_pg"), ranks[8];
	int32_t *words = (int32_t *)(void *)image_room(m, 96);

	BUG_ON(size > 8);
	for (int32_t i = 0; i < size; i++)
		ranks[i] = image_int(m, i);
	words[2] = 1, words[3] = size; /* counts of references look like it, too */
	words[6] = rank, words[7] = size;
	image_set(group, m->l.object.object_size, (uintptr_t)words);
	uint64_t sizes[2] = {m->none, image_dict(m, ranks, ranks, (size_t)size, false)};
	keys[0] = m->none, keys[1] = group;
	uint64_t values[3] = {m->none, image_instance(m, "_World", &attribute, &group, 1),
			      image_dict(m, keys, sizes, 2, false)};
	uint64_t module = image_object(m, type, 64);
	image_set(module, m->l.object.object_size, image_dict(m, names, values, 3, true));
	return module;
}

/* A runtime whose process is rank 2 of 5 by its group, has these variables in its environment, and
 * is a worker of a DataLoader that multiprocessing has started. */
static inline uint64_t image_job_with(struct image *m, uint64_t data)
{
	uint64_t type = image_type(m, "module", 0, 64, m->l.object.object_size);
	uint64_t data_name = image_str(m, "_data"), names[4];
	uint64_t pid_name = image_str(m, "_parent_pid"), pid = image_int(m, 4711);
	uint64_t modules[4] = {
		image_module(m, type, "environ",
			     image_instance(m, "_Environ", &data_name, &data, 1)),
		image_torch(m, type, 2, 5),
		image_module(m, type, "_current_process",
			     image_instance(m, "ForkProcess", &pid_name, &pid, 1)),
		image_module(m, type, "_worker_info", pid),
	};

	names[0] = image_str(m, "os");
	names[1] = image_str(m, "torch.distributed.distributed_c10d");
	names[2] = image_str(m, "multiprocessing.process");
	names[3] = image_str(m, "torch.utils.data._utils.worker");
	uint64_t interp = (uintptr_t)image_room(m, m->l.interp.modules + 8);
	image_set(interp, m->l.interp.modules, image_dict(m, names, modules, 4, true));
	uint64_t runtime = (uintptr_t)image_room(m, m->l.runtime.interpreters_head + 8);
	image_set(runtime, m->l.runtime.interpreters_head, interp);
	return runtime;
}

/* The same with RANK=7. */
static inline uint64_t image_job(struct image *m)
{
	uint64_t key = image_bytes(m, "RANK", 4), value = image_bytes(m, "7", 1);

	return image_job_with(m, image_dict(m, &key, &value, 1, false));
}

/* A frame of a function (step, *, batch) with a cell: returns the frame, the code in *out_code. */
static inline uint64_t image_frame(struct image *m, uint64_t *out_code)
{
	uint64_t names[3] = {image_str(m, "step"), image_str(m, "batch"), image_str(m, "seen")};
	uint64_t code = (uintptr_t)image_room(m, m->l.code.size + 256);
	uint64_t frame = (uintptr_t)image_room(m, m->l.frame.locals + 64);
	uint64_t cell = image_object(m, m->of_cell, 32);
	static const uint8_t kinds[3] = {0x20, 0x20, 0x80};
	uint32_t one = 1;

	image_set(cell, m->l.object.object_size, image_int(m, 7));
	memcpy((uint8_t *)(uintptr_t)code + m->l.code.argcount, &one, 4);
	if (m->l.minor <= 10) {
		image_set(code, m->l.code.varnames, image_tuple(m, names, 2));
		image_set(code, m->l.code.varnames + 8, image_tuple(m, names + 2, 1));
		image_set(code, m->l.code.varnames + 16, image_tuple(m, names, 0));
	} else {
		image_set(code, m->l.code.localsplusnames, image_tuple(m, names, 3));
		image_set(code, m->l.code.localspluskinds, image_bytes(m, kinds, 3));
	}
	image_set(frame, m->l.frame.code, code);
	image_set(frame, m->l.frame.locals, image_int(m, 3));
	image_set(frame, m->l.frame.locals + 8, 0);
	image_set(frame, m->l.frame.locals + 16, cell);
	*out_code = code;
	return frame;
}

#endif
