/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/idle/host_calls.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/text/number_read.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NAME_SHOWN 120 /* bytes */

struct rule {
	enum idle_why why;
	const char *part; /* of the path, or of the name */
	const char *functions; /* " a b ": only these; NULL: all */
};

/* Functions whose work is all that they call: waiting in a queue below a data loader is waiting for data. */
static const struct rule broad_files[] = {
	{IDLE_DATA, "torch/utils/data/", NULL},
	{IDLE_DATA, "torchdata/", NULL},
	{IDLE_DATA, "mindspore/dataset/", NULL},
	{IDLE_DATA, "nvidia/dali/", NULL},
	{IDLE_DATA, "webdataset/", NULL},
	{IDLE_DATA, "tensorflow/python/data/", NULL},
	{IDLE_DATA, "ray/data/", NULL},
	{IDLE_DATA, "site-packages/datasets/", NULL},
	{IDLE_CHECKPOINT, "torch/serialization.py", NULL},
	{IDLE_CHECKPOINT, "torch_npu/utils/serialization.py", NULL},
	{IDLE_CHECKPOINT, "torch/distributed/checkpoint/", NULL},
	{IDLE_CHECKPOINT, "safetensors/", NULL},
	{IDLE_CHECKPOINT, "mindspore/train/serialization.py", NULL},
	{IDLE_CHECKPOINT, "transformers/trainer.py", " _save_checkpoint save_model "},
	{IDLE_COMPILER, "torch/_inductor/compile_fx.py", NULL},
	{IDLE_COMPILER, "torch/_dynamo/convert_frame.py", NULL},
	{IDLE_COMPILER, "triton/compiler/", NULL},
	{IDLE_COMPILER, "triton/runtime/autotuner.py", NULL},
	{IDLE_RANKS, "torch/distributed/distributed_c10d.py", NULL},
};

static const struct rule narrow_files[] = {
	{IDLE_ALLOCATION, "torch/cuda/memory.py", " empty_cache caching_allocator_alloc "},
	{IDLE_ALLOCATION, "torch_npu/npu/memory.py", " empty_cache caching_allocator_alloc "},
	{IDLE_SYNC, "torch/cuda/__init__.py", " synchronize "},
	{IDLE_SYNC, "torch/cuda/streams.py", " synchronize wait "},
	{IDLE_SYNC, "torch_npu/npu/utils.py", " synchronize "},
	{IDLE_SYNC, "torch_npu/npu/streams.py", " synchronize wait "},
	{IDLE_LOCK, "threading.py", " wait acquire join _wait_for_tstate_lock __enter__ "},
	{IDLE_LOCK, "queue.py", " get put join "},
	{IDLE_LOCK, "concurrent/futures/", " result wait "},
	{IDLE_LOCK, "multiprocessing/", " get recv recv_bytes poll wait join _recv acquire "},
	{IDLE_LOCK, "selectors.py", " select "},
	{IDLE_LOCK, "subprocess.py", " wait communicate _communicate _wait "},
};

/* What has no file: functions in C as PyTorch's profiler calls them. */
static const struct rule builtins[] = {
	{IDLE_COLLECTOR, "<garbage collection>", NULL},
	{IDLE_COLLECTOR, "<built-in function collect>", NULL},
	{IDLE_COLLECTOR, "<built-in method collect of module object", NULL},
	{IDLE_LOCK, "acquire' of '_thread.", NULL},
	{IDLE_LOCK, "method acquire of _thread.", NULL},
	{IDLE_SYNC, "function _cuda_synchronize", NULL},
	{IDLE_SYNC, "method synchronize of", NULL},
	{IDLE_SYNC, "method 'item' of", NULL},
	{IDLE_ALLOCATION, "_cuda_emptyCache", NULL},
};

/* By their beginnings; those that only ask or set something are none of them. */
static const struct rule library_calls[] = {
	{IDLE_ALLOCATION, "cudaMalloc", NULL},
	{IDLE_ALLOCATION, "cudaFree", NULL},
	{IDLE_ALLOCATION, "cudaHostAlloc", NULL},
	{IDLE_ALLOCATION, "cudaHostRegister", NULL},
	{IDLE_ALLOCATION, "cuMemAlloc", NULL},
	{IDLE_ALLOCATION, "cuMemFree", NULL},
	{IDLE_ALLOCATION, "cuMemCreate", NULL},
	{IDLE_ALLOCATION, "cuMemRelease", NULL},
	{IDLE_ALLOCATION, "cuMemMap", NULL},
	{IDLE_ALLOCATION, "cuMemUnmap", NULL},
	{IDLE_ALLOCATION, "cuMemSetAccess", NULL},
	{IDLE_ALLOCATION, "cuMemAddress", NULL},
	{IDLE_ALLOCATION, "cuMemHostAlloc", NULL},
	{IDLE_ALLOCATION, "aclrtMalloc", NULL},
	{IDLE_ALLOCATION, "aclrtFree", NULL},
	{IDLE_ALLOCATION, "aclrtMapMem", NULL},
	{IDLE_ALLOCATION, "aclrtUnmapMem", NULL},
	{IDLE_ALLOCATION, "aclrtReserveMem", NULL},
	{IDLE_ALLOCATION, "aclrtReleaseMem", NULL},
	{IDLE_ALLOCATION, "rtMalloc", NULL},
	{IDLE_ALLOCATION, "rtFree", NULL},
	{IDLE_ALLOCATION, "rtMapMem", NULL},
	{IDLE_ALLOCATION, "rtUnmapMem", NULL},
	{IDLE_ALLOCATION, "rtReserveMem", NULL},
	{IDLE_ALLOCATION, "rtReleaseMem", NULL},
	{IDLE_ALLOCATION, "halMem", NULL},
	{IDLE_ALLOCATION, HOST_ALLOCATIONS, NULL},
	{IDLE_RANKS, "Hccl", NULL},
	{IDLE_RANKS, "nccl", NULL},
	{IDLE_SYNC, "aten::item", NULL},
	{IDLE_SYNC, "aten::_local_scalar_dense", NULL},
};

static bool has_function(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at += n)
		if (at > list && at[-1] == ' ' && at[n] == ' ')
			return true;
	return false;
}

/* The part begins the path, or a folder or file in it. */
static bool is_in_path(const char *file, size_t len, const char *part)
{
	size_t n = strlen(part);

	for (const char *at = file, *end = file + len;
	     (at = memmem(at, (size_t)(end - at), part, n)); at++)
		if (at == file || at[-1] == '/')
			return true;
	return false;
}

static const struct rule *find_file_rule(const struct rule *rules, size_t n,
					 const struct host_call *c)
{
	if (c->origin == ORIGIN_USER)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (is_in_path(c->file, c->file_len, rules[i].part) &&
		    (!rules[i].functions || has_function(rules[i].functions, c->function)))
			return &rules[i];
	return NULL;
}

/* "FILE(LINE): FUNCTION" */
static void split_name(struct host_call *c)
{
	const char *end = strstr(c->name, "): "), *from = end;
	int64_t line;

	c->function = c->name;
	while (from && from > c->name && from[-1] >= '0' && from[-1] <= '9')
		from--;
	if (!from || from == end || from <= c->name + 1 || from[-1] != '(' ||
	    !number_read(from, (size_t)(end - from), &line) || line > INT32_MAX)
		return;
	c->file = c->name;
	c->file_len = (size_t)(from - 1 - c->name);
	c->line = (int32_t)line;
	c->function = end + 3;
}

static void classify_python(struct host_call *c)
{
	const struct rule *rule = NULL;

	split_name(c);
	if (c->file_len) {
		c->origin = python_origin_cut(c->file, c->file_len);
		rule = find_file_rule(broad_files, COUNT(broad_files), c);
		c->broad = rule != NULL;
		if (!rule)
			rule = find_file_rule(narrow_files, COUNT(narrow_files), c);
	}
	for (size_t i = 0; !c->file_len && !rule && i < COUNT(builtins); i++)
		if (strstr(c->name, builtins[i].part))
			rule = &builtins[i];
	if (rule)
		c->why = rule->why;
}

static void classify_other(struct host_call *c)
{
	c->function = c->name;
	c->launches =
		c->kind == HOST_CALL && (strstr(c->name, "aunch") || !strncmp(c->name, "Hccl", 4));
	if (strstr(c->name, "Synchronize")) {
		c->why = IDLE_SYNC;
	} else if (c->kind == HOST_RANGE && !strncmp(c->name, "enumerate(DataLoader)#", 22)) {
		c->why = IDLE_DATA;
		c->broad = true;
	} else if (!strcmp(c->name, "gc") && c->kind == HOST_RANGE) {
		c->why = IDLE_COLLECTOR;
	}
	for (size_t i = 0; !c->why && i < COUNT(library_calls); i++)
		if (!strncmp(c->name, library_calls[i].part, strlen(library_calls[i].part)))
			c->why = library_calls[i].why;
}

const struct host_call *host_call_find(struct host_calls *h, enum host_kind kind, const char *name,
				       int32_t caller_line)
{
	size_t len = strlen(name);
	uint64_t hash =
		XXH3_64bits_withSeed(name, len, (uint64_t)(uint32_t)caller_line << 8 | kind);
	struct host_call *c = hmap_get_ptr(&h->by_name, hash);

	if (c)
		return c;
	c = xcalloc(1, sizeof(*c) + len + 1);
	memcpy(c + 1, name, len + 1);
	c->name = (const char *)(c + 1);
	c->kind = kind;
	c->caller_line = caller_line > 0 ? caller_line : 0;
	if (kind == HOST_PYTHON)
		classify_python(c);
	else
		classify_other(c);
	hmap_put_ptr(&h->by_name, hash, c);
	return c;
}

void host_calls_release(struct host_calls *h)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&h->by_name, &at, &key, &value);)
		free((void *)(uintptr_t)value);
	hmap_release(&h->by_name);
}

/* "train.py", "models/__init__.py"; of what is installed "torch/utils/data/dataloader.py" */
static const char *shown_path(const struct host_call *c, size_t *out_len)
{
	const char *from = python_short_path(c->file, c->file_len), *end = c->file + c->file_len;
	const char *at = end;

	if (from == c->file && c->origin == ORIGIN_USER) {
		while (at > from && at[-1] != '/')
			at--;
		if (end - at > 1 && *at == '_' && at > from) /* __init__.py alone says nothing */
			for (at--; at > from && at[-1] != '/';)
				at--;
		from = at;
	}
	*out_len = (size_t)(end - from);
	return from;
}

void host_call_add(const struct host_call *c, int32_t line, struct buf *out)
{
	const char *address = strstr(c->function, " object at 0x"); /* says nothing */
	size_t len = address ? (size_t)(address - c->function) : strlen(c->function), file_len;

	buf_add(out, c->function, len < NAME_SHOWN ? len : NAME_SHOWN);
	if (address)
		buf_add_char(out, '>');
	if (!c->file_len)
		return;
	const char *file = shown_path(c, &file_len);
	buf_add_str(out, " (");
	buf_add(out, file, file_len);
	buf_addf(out, ":%d)", line ? line : c->line);
}
