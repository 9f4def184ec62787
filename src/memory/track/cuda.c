/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the CUDA driver does beside handing out blocks.
 *
 * Virtual memory: the physical memory is a block whose address is its handle. Who holds it:
 *
 *	made: 1 reference ---- released: 0 ----.
 *	mapped at addr: 1 mapping --- unmapped: 0 ---> neither: the block ends
 *
 * A context ends with everything that was allocated in it.
 */
#include "memory/track/track_impl.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define KEPT_BYTES 96 /* of a handle or a mapping, with what its map needs */

struct handle {
	int64_t references;
	uint64_t mappings;
};

struct mapping {
	uint64_t bytes, offset, handle;
};

static void forget_handle(struct proc *p, uint64_t handle)
{
	struct handle *h = omap_remove(&p->handles, handle);

	if (h)
		budget_give_back(p->track, KEPT_BYTES);
	free(h);
}

void cuda_created(struct proc *p, uint64_t handle)
{
	forget_handle(p, handle);
	if (!budget_take(p, KEPT_BYTES))
		return;
	struct handle *h = xcalloc(1, sizeof(*h));
	h->references = 1;
	omap_put(&p->handles, handle, h);
}

static void settle_handle(struct proc *p, uint64_t handle, const struct rec *r, uint32_t tid)
{
	struct handle *h = omap_get(&p->handles, handle);

	if (!h || h->references > 0 || h->mappings)
		return;
	forget_handle(p, handle);
	alive_end(p, omap_remove(&p->maps[MAP_HANDLES], handle), r, tid);
}

static void map_memory(struct proc *p, const struct rec_vmm *r)
{
	struct handle *h = omap_get(&p->handles, r->handle);
	struct mapping *m;

	if (!h || omap_get(&p->mapped, r->addr) || !budget_take(p, KEPT_BYTES))
		return; /* memory of another process, or its beginning was lost */
	m = xcalloc(1, sizeof(*m));
	*m = (struct mapping){r->bytes, r->offset, r->handle};
	omap_put(&p->mapped, r->addr, m);
	h->mappings++;
}

/* One or several whole mappings. */
static void unmap_memory(struct proc *p, uint32_t tid, const struct rec_vmm *r)
{
	uint64_t end = r->addr + r->bytes < r->addr ? UINT64_MAX : r->addr + r->bytes, at;
	struct mapping *m;

	while (end > r->addr && (m = omap_floor(&p->mapped, end - 1, &at)) && at >= r->addr) {
		uint64_t handle = m->handle;
		struct handle *h = omap_get(&p->handles, handle);

		omap_remove(&p->mapped, at);
		budget_give_back(p->track, KEPT_BYTES);
		free(m);
		if (h && h->mappings)
			h->mappings--;
		settle_handle(p, handle, &r->head, tid);
	}
}

/* The driver may call the same memory by another name: then the address says which it is. */
static struct handle *find_retained(struct proc *p, const struct rec_vmm *r)
{
	struct handle *h = omap_get(&p->handles, r->handle);
	uint64_t at;

	if (h)
		return h;
	struct mapping *m = omap_floor(&p->mapped, r->addr, &at);
	return m && r->addr - at < m->bytes ? omap_get(&p->handles, m->handle) : NULL;
}

void cuda_vmm(struct proc *p, uint32_t tid, const struct rec_vmm *r)
{
	struct handle *h;

	switch (r->op) {
	case VMM_MAP:
		map_memory(p, r);
		break;
	case VMM_UNMAP:
		unmap_memory(p, tid, r);
		break;
	case VMM_RETAIN:
		h = find_retained(p, r);
		if (h)
			h->references++;
		break;
	case VMM_IMPORT: /* of its own, under the same name: one more; else another process' */
		h = omap_get(&p->handles, r->handle);
		if (h)
			h->references++;
		break;
	case VMM_RELEASE:
		h = omap_get(&p->handles, r->handle);
		if (h)
			h->references--;
		settle_handle(p, r->handle, &r->head, tid);
		break;
	default: /* reserved addresses are no memory */
		break;
	}
}

/* --- contexts --- */

struct ending {
	uint16_t context;
	struct block_list blocks;
};

static void collect_block_of(uint64_t key, void *value, void *arg)
{
	struct ending *e = arg;
	struct block *b = value;

	(void)key;
	if (b->context != e->context)
		return;
	e->blocks.list =
		xgrow(e->blocks.list, &e->blocks.cap, e->blocks.n + 1, sizeof(struct block *));
	e->blocks.list[e->blocks.n++] = b;
}

void cuda_context(struct proc *p, uint32_t tid, const struct rec_context *r)
{
	static const uint8_t maps[] = {POOL_CUDA, MAP_HANDLES, MAP_PINNED};
	struct ending e = {.context = r->context};

	if (r->op != CONTEXT_END || !r->context)
		return;
	for (size_t i = 0; i < sizeof(maps); i++) {
		e.blocks.n = 0;
		omap_each(&p->maps[maps[i]], collect_block_of, &e);
		for (size_t k = 0; k < e.blocks.n; k++) {
			struct block *b = e.blocks.list[k];
			alive_end(p, omap_remove(&p->maps[maps[i]], b->addr), &r->head, tid);
		}
	}
	free(e.blocks.list);
}

/* --- who asks for memory --- */

void cuda_gpu(struct proc *p, const struct rec_gpu *r)
{
	if (r->device >= MEM_MAX_DEVICES || !r->total_bytes)
		return;
	struct usage *u = usage_of(p, r->device);
	u->gpu_bytes = r->total_bytes;
	u->gpu_part = r->flags & GPU_MIG;
	memcpy(u->gpu_uuid, r->uuid, sizeof(u->gpu_uuid));
}

void cuda_library(struct proc *p, const struct rec_library *r)
{
	size_t len;
	const char *path = rec_text(&r->head, &len);

	if (r->number < MODULE_NONE && !omap_get(&p->libraries, r->number))
		omap_put(&p->libraries, r->number, xstrndup(path, len));
}

/* The name that people know a library by: the beginning of its file's. */
static const struct {
	const char *file, *name;
} known_libraries[] = {
	{"libnccl", "NCCL"},
	{"libcublas", "cuBLAS"},
	{"libcudnn", "cuDNN"},
	{"libcufft", "cuFFT"},
	{"libcusolver", "cuSOLVER"},
	{"libcusparse", "cuSPARSE"},
	{"libcurand", "cuRAND"},
	{"libnvshmem", "NVSHMEM"},
	{"libcutensor", "cuTENSOR"},
	{"libnvinfer", "TensorRT"},
	{"libc10_cuda", "torch"},
	{"libtorch", "torch"},
	{"libc10", "torch"},
	{"xla_", "XLA"},
	{"libxla", "XLA"},
	{"libjax", "XLA"},
	{"libtriton", "Triton"},
	{"libucx", "UCX"},
	{"libuct", "UCX"},
	{"libmpi", "MPI"},
	{"libtensorflow", "TensorFlow"},
	{"libpython", "Python"},
	{"python3", "Python"},
};

static const char *known_name(const char *path, const char *file)
{
	for (size_t i = 0; i < sizeof(known_libraries) / sizeof(known_libraries[0]); i++)
		if (!strncmp(file, known_libraries[i].file, strlen(known_libraries[i].file)))
			return known_libraries[i].name;
	if (strstr(path, "/cupy"))
		return "CuPy";
	if (strstr(path, "/jaxlib/") || strstr(path, "/jax_"))
		return "XLA";
	return strstr(path, "/triton/") ? "Triton" : NULL;
}

bool cuda_owner(const struct proc *p, const struct block *b, struct buf *out)
{
	const char *path = b->pool == POOL_CUDA && b->module < MODULE_NONE
				   ? omap_get(&p->libraries, b->module)
				   : NULL;

	if (!path)
		return false;
	const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
	const char *name = known_name(path, file);
	buf_add_str(out, "CUDA@");
	if (name) {
		buf_add_str(out, name);
		return true;
	}
	/* "libfoo.so.3" is libfoo; '@' would begin the next part, ',' the next attribute. */
	const char *end = strstr(file, ".so");
	size_t len = end && end > file ? (size_t)(end - file) : strlen(file);
	for (size_t i = 0; i < len && i < 128; i++) {
		char c = file[i] == '@' || file[i] == ',' || file[i] < ' ' ? '_' : file[i];
		buf_add(out, &c, 1);
	}
	return true;
}

/* --- for checkpoint_write.c --- */

struct writing {
	struct proc *p;
	struct checkpoint_writing *w;
};

static void write_vmm(struct writing *w, uint8_t op, uint64_t addr, uint64_t handle,
		      const struct mapping *m)
{
	struct rec_vmm r = {
		.head = {.type = REC_VMM, .size = sizeof(r), .time_ns = w->p->last_ns},
		.addr = addr,
		.bytes = m ? m->bytes : 0,
		.offset = m ? m->offset : 0,
		.handle = handle,
		.op = op,
	};

	checkpoint_put(w->w, w->p->info.pid, &r, NULL, 0);
}

static void write_mapping(uint64_t key, void *value, void *arg)
{
	const struct mapping *m = value;

	write_vmm(arg, VMM_MAP, key, m->handle, m);
}

/* A block comes with one reference. */
static void write_references(uint64_t key, void *value, void *arg)
{
	const struct handle *h = value;

	for (int64_t n = h->references; n > 1 && n < 65536; n--)
		write_vmm(arg, VMM_RETAIN, 0, key, NULL);
	if (h->references <= 0)
		write_vmm(arg, VMM_RELEASE, 0, key, NULL);
}

void cuda_write(struct proc *p, struct checkpoint_writing *w)
{
	struct writing writing = {p, w};

	omap_each(&p->mapped, write_mapping, &writing);
	omap_each(&p->handles, write_references, &writing);
}

static void free_kept(uint64_t key, void *value, void *arg)
{
	(void)key;
	budget_give_back(arg, KEPT_BYTES);
	free(value);
}

void cuda_release(struct proc *p)
{
	omap_each(&p->handles, free_kept, p->track);
	omap_release(&p->handles);
	omap_each(&p->mapped, free_kept, p->track);
	omap_release(&p->mapped);
	omap_release_values(&p->libraries, free);
}
