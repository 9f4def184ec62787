/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What torch's caching allocator has noted down about its memory, as events of the recording. Its
 * notes are lists of dictionaries (torch.cuda.memory._snapshot()), reported in the order of time:
 *
 *	alloc, free_completed			a block of the pool begins, ends
 *	free_requested				its end is asked for; streams may still be using it
 *	segment_alloc, segment_map, …_free	memory that the pool takes, returns to the driver
 *
 * The dictionaries of frames are shared among the notes of one list: a place in code is looked up
 * once for each. Callers hold the GIL and the package's lock.
 */
#include "python/_sonde/module.h"

#include "guest/collect/collect.h"
#include "unwind/python/origin.h"

#include <string.h>

#define MAX_DEPTH (COLLECT_MAX_PLACES - 2) /* a cut and a frame of the user's may follow */
#define MAX_ACTIONS 16
#define FRAME_BITS 12

enum action { OTHER, ALLOC, FREE_REQUESTED, FREE_COMPLETED, TAKE, GIVE, UNMAP };

static const struct {
	const char *name;
	enum action action;
} actions[] = {
	{"alloc", ALLOC},
	{"free_requested", FREE_REQUESTED},
	{"free_completed", FREE_COMPLETED},
	{"segment_alloc", TAKE},
	{"segment_map", TAKE},
	{"segment_free", GIVE},
	{"segment_unmap", UNMAP},
};

/* Keys of the dictionaries; made once. */
static struct {
	PyObject *action, *addr, *size, *frames, *time_us, *filename, *name, *line;
} keys;

struct place {
	uint32_t id; /* 0: unknown */
	bool users; /* of the user's own code */
};

/* One list being reported. What it refers to stays alive until it is through. */
struct import {
	PyObject *live, *waiting, *segments; /* dicts by address: size; stack; size */
	PyObject *unmap; /* called with (address, size, time_ns) */
	uint16_t device;
	int64_t wall_minus_mono_ns;
	uint64_t now_ns, last_ns;
	uint32_t depth;
	struct {
		PyObject *text;
		enum action action;
	} known[MAX_ACTIONS];
	unsigned nknown;
	struct {
		PyObject *frame;
		struct place place;
	} places[1 << FRAME_BITS];
	uint64_t events, missed;
	int64_t live_bytes; /* by how much they have grown */
};

static int make_keys(void)
{
	const struct {
		PyObject **key;
		const char *text;
	} all[] = {
		{&keys.action, "action"}, {&keys.addr, "addr"},	      {&keys.size, "size"},
		{&keys.frames, "frames"}, {&keys.time_us, "time_us"}, {&keys.filename, "filename"},
		{&keys.name, "name"},	  {&keys.line, "line"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!*all[i].key && !(*all[i].key = PyUnicode_InternFromString(all[i].text)))
			return -1;
	return 0;
}

/* Borrowed; NULL without an exception where there is none. */
static PyObject *get_field(PyObject *dict, PyObject *key)
{
	return PyDict_Check(dict) ? PyDict_GetItem(dict, key) : NULL;
}

/* 0 for what is no number. */
static uint64_t to_number(PyObject *o)
{
	if (!o || !PyLong_Check(o))
		return 0;
	uint64_t v = PyLong_AsUnsignedLongLongMask(o);
	if (PyErr_Occurred())
		PyErr_Clear();
	return v;
}

/* --- stacks --- */

static struct place place_of_frame(PyObject *frame)
{
	PyObject *file = get_field(frame, keys.filename), *name = get_field(frame, keys.name);
	PyObject *file_bytes = NULL, *name_bytes = NULL;
	Py_ssize_t nfile, nname;
	char *file_text, *name_text;
	struct place place = {0};

	if (file && name && PyUnicode_Check(file) && PyUnicode_Check(name)) {
		file_bytes = PyUnicode_AsEncodedString(file, "utf-8", "replace");
		name_bytes = PyUnicode_AsEncodedString(name, "utf-8", "replace");
	}
	if (file_bytes && name_bytes &&
	    PyBytes_AsStringAndSize(file_bytes, &file_text, &nfile) == 0 &&
	    PyBytes_AsStringAndSize(name_bytes, &name_text, &nname) == 0) {
		struct collect_frame f = {
			.file = file_text,
			.function = name_text,
			.file_len = (uint32_t)nfile,
			.function_len = (uint32_t)nname,
			.line = (uint32_t)to_number(get_field(frame, keys.line)),
		};
		place.id = collect_frame_place(&f);
		place.users = python_origin(f.file, f.file_len) == ORIGIN_USER;
	}
	PyErr_Clear();
	Py_XDECREF(file_bytes);
	Py_XDECREF(name_bytes);
	return place;
}

static struct place place_of(struct import *im, PyObject *frame)
{
	size_t slot = ((uintptr_t)frame >> 4) * 0x9e3779b97f4a7c15ull >> (64 - FRAME_BITS);

	if (!im)
		return place_of_frame(frame);
	if (im->places[slot].frame != frame) {
		im->places[slot].place = place_of_frame(frame);
		im->places[slot].frame = frame;
	}
	return im->places[slot].place;
}

/* The innermost frames and, where none of them is of the user's own code, the innermost of these. */
static uint32_t stack_of(struct import *im, PyObject *frames, uint32_t depth)
{
	uint32_t places[COLLECT_MAX_PLACES], n = 0;
	bool has_users = false, left_out = false;

	if (!depth || !frames || !PyList_Check(frames))
		return 0;
	depth = depth < MAX_DEPTH ? depth : MAX_DEPTH;
	Py_ssize_t all = PyList_Size(frames);
	for (Py_ssize_t i = 0; i < all && (n < depth || !has_users); i++) {
		struct place place = place_of(im, PyList_GetItem(frames, i));
		if (!place.id)
			continue;
		if (n >= depth && !place.users) {
			left_out = true;
			continue;
		}
		if (left_out)
			places[n++] = COLLECT_PLACE_CUT;
		places[n++] = place.id;
		has_users |= place.users;
	}
	return collect_places(places, n);
}

/* --- events --- */

static enum action action_of(struct import *im, PyObject *text)
{
	enum action action = OTHER;

	for (unsigned i = 0; i < im->nknown; i++)
		if (im->known[i].text == text)
			return im->known[i].action;
	if (!text || !PyUnicode_Check(text))
		return OTHER;
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		if (!PyUnicode_CompareWithASCIIString(text, actions[i].name))
			action = actions[i].action;
	if (im->nknown < MAX_ACTIONS) {
		im->known[im->nknown].text = text;
		im->known[im->nknown++].action = action;
	}
	return action;
}

/* Notes have microseconds, and several may have the same: here every one is later than the last. */
static uint64_t time_of(struct import *im, PyObject *entry)
{
	uint64_t us = to_number(get_field(entry, keys.time_us));
	uint64_t ns = us ? us * 1000 - (uint64_t)im->wall_minus_mono_ns : im->now_ns;

	if (ns > im->now_ns)
		ns = im->now_ns;
	if (ns <= im->last_ns)
		ns = im->last_ns + 1;
	im->last_ns = ns;
	return ns;
}

static struct collect_block block_at(uint64_t addr, uint64_t size, unsigned device, unsigned pool)
{
	return (struct collect_block){
		.addr = addr,
		.size_bytes = size,
		.device = device <= DEV_HOST ? (uint16_t)device : DEV_NONE,
		.pool = pool < POOL_END ? (uint8_t)pool : POOL_TORCH,
		.kind = pool == POOL_CUDA ? ALLOC_PLAIN : ALLOC_REGION,
		.module = MODULE_NONE,
	};
}

static void put_alloc(const struct collect_block *b, uint64_t time_ns, uint32_t stack)
{
	struct collect_block heap = *b;

	heap.pool = POOL_TORCH;
	if (b->pool == POOL_CUDA)
		collect_heap_at(&heap, HEAP_ADD, time_ns);
	if (b->pool == POOL_CUDA && collect_sees_driver())
		return; /* the driver's blocks are reported already */
	collect_alloc_at(b, time_ns, stack);
}

static void put_free(const struct collect_block *b, uint64_t time_ns, uint32_t stack)
{
	struct collect_block heap = *b;

	heap.pool = POOL_TORCH;
	if (b->pool == POOL_CUDA)
		collect_heap_at(&heap, HEAP_DROP, time_ns);
	if (b->pool == POOL_CUDA && collect_sees_driver())
		return;
	collect_free_at(b, time_ns, stack);
}

static int on_alloc(struct import *im, PyObject *entry, PyObject *addr, uint64_t time_ns)
{
	PyObject *size = get_field(entry, keys.size), *old = PyDict_GetItem(im->live, addr);
	struct collect_block b = block_at(to_number(addr), to_number(size), im->device, POOL_TORCH);

	if (!size)
		return 0;
	if (old) { /* its end was not noted */
		im->missed++;
		im->live_bytes -= (int64_t)to_number(old);
	}
	im->live_bytes += (int64_t)b.size_bytes;
	put_alloc(&b, time_ns, stack_of(im, get_field(entry, keys.frames), im->depth));
	return PyDict_SetItem(im->live, addr, size);
}

static int on_free(struct import *im, PyObject *entry, PyObject *addr, uint64_t time_ns)
{
	PyObject *size = PyDict_GetItem(im->live, addr), *asked = PyDict_GetItem(im->waiting, addr);
	uint32_t stack = (uint32_t)to_number(asked);
	struct collect_block b = block_at(to_number(addr), to_number(size), im->device, POOL_TORCH);

	if (asked && PyDict_DelItem(im->waiting, addr) < 0)
		return -1;
	if (!size) {
		im->missed++;
		return 0;
	}
	if (!asked)
		stack = stack_of(im, get_field(entry, keys.frames), im->depth);
	im->live_bytes -= (int64_t)b.size_bytes;
	put_free(&b, time_ns, stack);
	return PyDict_DelItem(im->live, addr);
}

/* Who asked for the end is who counts; streams may go on for a while. */
static int on_free_requested(struct import *im, PyObject *entry, PyObject *addr)
{
	uint32_t stack = stack_of(im, get_field(entry, keys.frames), im->depth);
	PyObject *value = PyLong_FromUnsignedLong(stack);
	int r = value ? PyDict_SetItem(im->waiting, addr, value) : -1;

	Py_XDECREF(value);
	return r;
}

static int on_segment(struct import *im, PyObject *entry, PyObject *addr, bool taken,
		      uint64_t time_ns)
{
	PyObject *size = get_field(entry, keys.size);
	struct collect_block b = block_at(to_number(addr), to_number(size), im->device, POOL_CUDA);

	if (!size)
		return 0;
	if (taken) {
		put_alloc(&b, time_ns, stack_of(im, get_field(entry, keys.frames), im->depth));
		return PyDict_SetItem(im->segments, addr, size);
	}
	if (!PyDict_GetItem(im->segments, addr)) {
		im->missed++;
		return 0;
	}
	put_free(&b, time_ns, stack_of(im, get_field(entry, keys.frames), im->depth));
	return PyDict_DelItem(im->segments, addr);
}

/* Any part of what was mapped, one piece or several. */
static int on_unmap(struct import *im, PyObject *entry, PyObject *addr, uint64_t time_ns)
{
	PyObject *size = get_field(entry, keys.size);
	PyObject *r = size ? PyObject_CallFunction(im->unmap, "OOK", addr, size,
						   (unsigned long long)time_ns)
			   : NULL;

	Py_XDECREF(r);
	return r || !size ? 0 : -1;
}

static int emit_entry(struct import *im, PyObject *entry)
{
	enum action action = action_of(im, get_field(entry, keys.action));
	PyObject *addr = get_field(entry, keys.addr);

	if (action == OTHER || !addr)
		return 0;
	im->events++;
	if (action == FREE_REQUESTED)
		return on_free_requested(im, entry, addr);
	uint64_t time_ns = time_of(im, entry);
	switch (action) {
	case ALLOC:
		return on_alloc(im, entry, addr, time_ns);
	case FREE_COMPLETED:
		return on_free(im, entry, addr, time_ns);
	case UNMAP:
		return on_unmap(im, entry, addr, time_ns);
	default:
		return on_segment(im, entry, addr, action == TAKE, time_ns);
	}
}

static PyObject *history(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = {"notes",	"begin",  "depth",
					    "device",	"live",	  "waiting",
					    "segments", "unmap",  "wall_minus_mono_ns",
					    "last_ns",	"now_ns", NULL};
	static struct import im; /* too large for a stack; the package's lock guards it */
	PyObject *entries;
	Py_ssize_t begin;
	unsigned device, depth;
	long long offset;
	unsigned long long last_ns, now_ns;

	(void)self;
	memset(&im, 0, sizeof(im));
	if (make_keys() < 0 ||
	    !PyArg_ParseTupleAndKeywords(
		    args, kwargs, "O!nIIO!O!O!OLKK", (char **)names, &PyList_Type, &entries, &begin,
		    &depth, &device, &PyDict_Type, &im.live, &PyDict_Type, &im.waiting,
		    &PyDict_Type, &im.segments, &im.unmap, &offset, &last_ns, &now_ns))
		return NULL;
	im.device = device <= DEV_HOST ? (uint16_t)device : DEV_NONE;
	im.wall_minus_mono_ns = offset;
	im.last_ns = last_ns;
	im.now_ns = now_ns;
	im.depth = depth < MAX_DEPTH ? depth : MAX_DEPTH;
	for (Py_ssize_t i = begin; i < PyList_Size(entries); i++)
		if (emit_entry(&im, PyList_GetItem(entries, i)) < 0)
			return NULL;
	return Py_BuildValue("KKLK", (unsigned long long)im.events, (unsigned long long)im.missed,
			     (long long)im.live_bytes, (unsigned long long)im.last_ns);
}

/* --- single events, where the notes have a hole --- */

static PyObject *history_alloc(PyObject *self, PyObject *args)
{
	unsigned long long addr, size, time_ns;
	unsigned device, pool, depth;
	PyObject *frames;

	(void)self;
	if (!PyArg_ParseTuple(args, "KKIIKOI", &addr, &size, &device, &pool, &time_ns, &frames,
			      &depth) ||
	    make_keys() < 0)
		return NULL;
	struct collect_block b = block_at(addr, size, device, pool);
	put_alloc(&b, time_ns, stack_of(NULL, frames, depth));
	Py_RETURN_NONE;
}

static PyObject *history_free(PyObject *self, PyObject *args)
{
	unsigned long long addr, size, time_ns;
	unsigned device, pool;

	(void)self;
	if (!PyArg_ParseTuple(args, "KKIIK", &addr, &size, &device, &pool, &time_ns))
		return NULL;
	struct collect_block b = block_at(addr, size, device, pool);
	put_free(&b, time_ns, 0);
	Py_RETURN_NONE;
}

static PyObject *history_until(PyObject *self, PyObject *args)
{
	unsigned long long time_ns;

	(void)self;
	if (!PyArg_ParseTuple(args, "K", &time_ns))
		return NULL;
	collect_history_until(time_ns);
	Py_RETURN_NONE;
}

static PyObject *torch_blocks(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyLong_FromUnsignedLongLong(collect_torch_blocks());
}

/* --- refused memory --- */

/* Of an allocator that asks nobody when it has no room: reported afterwards. */
static PyObject *refusal(PyObject *self, PyObject *args)
{
	unsigned long long size, limit;
	unsigned device, depth;
	PyObject *frames;

	(void)self;
	if (!PyArg_ParseTuple(args, "IKKOI", &device, &size, &limit, &frames, &depth) ||
	    make_keys() < 0)
		return NULL;
	collect_oom_with(device <= DEV_HOST ? (uint16_t)device : DEV_NONE, ALLOC_REGION, size,
			 limit, stack_of(NULL, frames, depth));
	Py_RETURN_NONE;
}

static PyObject *oom_callback;

static PyObject *on_oom(PyObject *self, PyObject *callback)
{
	PyObject *old = oom_callback;

	(void)self;
	oom_callback = callback == Py_None ? NULL : callback;
	Py_XINCREF(oom_callback);
	Py_XDECREF(old);
	Py_RETURN_NONE;
}

/*
 * Called by torch's allocator, in the thread that asked for memory. No frame of ours is on the
 * Python stack yet: the innermost is the program's.
 */
static PyObject *oom_observer(PyObject *self, PyObject *args)
{
	uint32_t stack = collect_oom_stack(__builtin_return_address(0));
	PyObject *callback = oom_callback;
	long long device, asked, limit, left; /* limit: all of the device, or what it may use */

	(void)self;
	if (!callback || !PyArg_ParseTuple(args, "LLLL", &device, &asked, &limit, &left)) {
		PyErr_Clear();
		Py_RETURN_NONE;
	}
	Py_INCREF(callback);
	/* It says which number the device has on this machine, after it has reported what led here.
	 */
	PyObject *number_there = PyObject_CallFunction(callback, "LL", device, asked);
	Py_DECREF(callback);
	unsigned long there = number_there ? PyLong_AsUnsignedLong(number_there) : 0;
	if (PyErr_Occurred()) { /* the job gets the exception of its allocator, none of ours */
		PyErr_Clear();
		there = device >= 0 ? (unsigned long)device : DEV_NONE;
	}
	Py_XDECREF(number_there);
	collect_oom_with(there <= DEV_HOST ? (uint16_t)there : DEV_NONE, ALLOC_REGION,
			 (uint64_t)asked, (uint64_t)limit, stack);
	Py_RETURN_NONE;
}

PyMethodDef history_methods[] = {
	{"history", (PyCFunction)(void (*)(void))history, METH_VARARGS | METH_KEYWORDS,
	 "history(notes, begin, depth, device, live, waiting, segments, unmap, "
	 "wall_minus_mono_ns, last_ns, now_ns) -> (events, missed, grown by, last_ns)"},
	{"history_alloc", history_alloc, METH_VARARGS,
	 "history_alloc(address, size, device, pool, time_ns, frames, depth); time 0: not known"},
	{"history_free", history_free, METH_VARARGS,
	 "history_free(address, size, device, pool, time_ns)"},
	{"history_until", history_until, METH_VARARGS,
	 "history_until(ns): younger events wait for what is still to come; 0: not any more"},
	{"torch_blocks", torch_blocks, METH_NOARGS,
	 "torch_blocks() -> how many events of torch's allocator a preloaded library has seen"},
	{"refusal", refusal, METH_VARARGS,
	 "refusal(device, size, limit, frames, depth): an allocator had no room, and none to ask"},
	{"on_oom", on_oom, METH_O,
	 "on_oom(callback(device, size) -> number): before a refusal is reported; None: no more"},
	{"oom_observer", oom_observer, METH_VARARGS, "oom_observer(device, size, limit, free)"},
	{NULL, NULL, 0, NULL},
};
