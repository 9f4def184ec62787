/* SPDX-License-Identifier: MulanPSL-2.0 */

#include "formats/profile/profile_impl.h"

#include "base/fs.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#define NODES_MAX (4u << 20) /* some 300 MB */

struct profile *profile_new(const struct profile_options *o)
{
	struct profile *p = xcalloc(1, sizeof(*p));

	p->o = *o;
	if (!p->o.most_nodes || p->o.most_nodes > NODES_MAX)
		p->o.most_nodes = NODES_MAX;
	p->o.title = xstrdup(o->title ? o->title : "");
	return p;
}

void profile_free(struct profile *p)
{
	if (!p)
		return;
	free((char *)(uintptr_t)p->o.title);
	free(p->functions);
	free(p->places);
	free(p->roots);
	free(p->nodes);
	free(p->values);
	hmap_release(&p->function_of);
	hmap_release(&p->place_of);
	hmap_release(&p->root_of);
	hmap_release(&p->node_of);
	free(p);
}

/* Keys of the maps are hashes: two 64-bit ones that are equal are reported apart by the chain. */
static uint32_t first_with(const struct hmap *m, uint64_t hash)
{
	uint64_t found = hmap_get(m, hash);

	return found == HMAP_NONE ? PROFILE_NONE : (uint32_t)found;
}

static uint32_t find_function(struct profile *p, const struct profile_frame *f)
{
	uint64_t key[] = {(uintptr_t)f->name, (uintptr_t)f->file, (uint32_t)f->first_line};
	uint64_t hash = XXH3_64bits(key, sizeof(key));
	uint32_t first = first_with(&p->function_of, hash);

	for (uint32_t i = first; i != PROFILE_NONE; i = p->functions[i].same_hash) {
		const struct profile_function *g = &p->functions[i];

		if (g->name == f->name && g->file == f->file && g->first_line == f->first_line)
			return i;
	}
	BUG_ON(p->nfunctions == PROFILE_NONE);
	p->functions =
		xgrow(p->functions, &p->functions_cap, p->nfunctions + 1, sizeof(*p->functions));
	p->functions[p->nfunctions] = (struct profile_function){.name = f->name,
								.file = f->file,
								.first_line = f->first_line,
								.users = f->users,
								.same_hash = first};
	hmap_put(&p->function_of, hash, p->nfunctions);
	return p->nfunctions++;
}

static uint32_t find_place(struct profile *p, const struct profile_frame *f)
{
	bool lines = p->o.lines || p->o.format == PROFILE_PPROF;
	uint32_t function = find_function(p, f);
	int32_t line = lines ? f->line : f->first_line;
	uint64_t key = (uint64_t)function << 32 | (uint32_t)line;
	uint64_t found = hmap_get(&p->place_of, key);

	if (found != HMAP_NONE)
		return (uint32_t)found;
	p->places = xgrow(p->places, &p->places_cap, p->nplaces + 1, sizeof(*p->places));
	p->places[p->nplaces] = (struct profile_place){.function = function, .line = line};
	hmap_put(&p->place_of, key, p->nplaces);
	return p->nplaces++;
}

static uint32_t find_root(struct profile *p, const char *process, const char *thread, int64_t pid,
			  int64_t tid)
{
	uint64_t key[] = {(uintptr_t)process, (uintptr_t)thread, (uint64_t)pid, (uint64_t)tid};
	uint64_t hash = XXH3_64bits(key, sizeof(key));
	uint32_t first = first_with(&p->root_of, hash);

	for (uint32_t i = first; i != PROFILE_NONE; i = p->roots[i].same_hash) {
		const struct profile_root *r = &p->roots[i];

		if (r->process == process && r->thread == thread && r->pid == pid && r->tid == tid)
			return i;
	}
	p->roots = xgrow(p->roots, &p->roots_cap, p->nroots + 1, sizeof(*p->roots));
	p->roots[p->nroots] = (struct profile_root){.process = process,
						    .thread = thread,
						    .pid = pid,
						    .tid = tid,
						    .last_node = PROFILE_NONE,
						    .same_hash = first};
	hmap_put(&p->root_of, hash, p->nroots);
	return p->nroots++;
}

/* Outermost nodes have the root for a caller: numbers from the other end, which nodes never reach.
 */
static uint32_t find_node(struct profile *p, uint32_t root, uint32_t caller, uint32_t place)
{
	uint32_t above = caller == PROFILE_NONE ? PROFILE_NONE - 1 - root : caller;
	uint64_t key = (uint64_t)above << 32 | place;
	uint64_t found = hmap_get(&p->node_of, key);

	if (found != HMAP_NONE)
		return (uint32_t)found;
	if (p->nnodes >= p->o.most_nodes)
		return PROFILE_NONE;
	BUG_ON(p->nroots >= PROFILE_NONE / 2);
	p->nodes = xgrow(p->nodes, &p->nodes_cap, p->nnodes + 1, sizeof(*p->nodes));
	p->nodes[p->nnodes] = (struct profile_node){
		.caller = caller, .place = place, .root = root, .before = p->roots[root].last_node};
	if (p->o.values) {
		p->values = xgrow(p->values, &p->values_cap, p->nnodes + 1, sizeof(*p->values));
		memset(p->values[p->nnodes], 0, sizeof(*p->values));
	}
	p->roots[root].last_node = p->nnodes;
	hmap_put(&p->node_of, key, p->nnodes);
	return p->nnodes++;
}

static uint32_t find_stack(struct profile *p, const char *process, const char *thread, int64_t pid,
			   int64_t tid, const struct profile_frame *frames, unsigned n)
{
	uint32_t root = find_root(p, process, thread, pid, tid), node = PROFILE_NONE;

	for (unsigned i = 0; i < n; i++) {
		uint32_t next = find_node(p, root, node, find_place(p, &frames[i]));

		if (next == PROFILE_NONE)
			break; /* no room: what is further in is not distinguished */
		node = next;
	}
	return node;
}

void profile_add(struct profile *p, const char *process, const char *thread, int64_t pid,
		 int64_t tid, const struct profile_frame *frames, unsigned n, uint64_t count)
{
	uint32_t node = find_stack(p, process, thread, pid, tid, frames, n);

	if (node != PROFILE_NONE)
		p->nodes[node].count += count;
}

void profile_add_values(struct profile *p, const char *process, const char *thread, int64_t pid,
			int64_t tid, const struct profile_frame *frames, unsigned n,
			const uint64_t *values)
{
	uint32_t node = find_stack(p, process, thread, pid, tid, frames, n);

	if (node == PROFILE_NONE)
		return;
	for (unsigned i = 0; i < p->o.values->n; i++)
		p->values[node][i] += values[i];
	p->nodes[node].count += values[p->o.values->main];
}

void profile_stack_of(const struct profile *p, uint32_t node, struct profile_stack *out)
{
	uint32_t n = 0, at;

	for (at = node; at != PROFILE_NONE; at = p->nodes[at].caller)
		n++;
	out->places = xgrow(out->places, &out->cap, n, sizeof(*out->places));
	out->n = n;
	for (at = node; at != PROFILE_NONE; at = p->nodes[at].caller)
		out->places[--n] = p->nodes[at].place;
}

static void pack(const struct buf *text, struct buf *out)
{
	z_stream z = {0};

	/* 16: a gzip header */
	BUG_ON(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK);
	size_t bound = deflateBound(&z, text->len);
	z.next_in = (Bytef *)text->data;
	z.avail_in = (uInt)text->len;
	z.next_out = (Bytef *)buf_room(out, bound);
	z.avail_out = (uInt)bound;
	BUG_ON(deflate(&z, Z_FINISH) != Z_STREAM_END);
	out->len += bound - z.avail_out;
	deflateEnd(&z);
}

/* What is there and no plain file, such as /dev/null or a pipe, is written as it is. */
static int write_out(const char *path, struct buf *content, struct err *err)
{
	if (!fs_is_stream(path))
		return fs_write_atomic(path, content, 0644, err);
	int fd = fs_open_output(path, 0, 0, err);
	if (fd < 0)
		return fd;
	int r = fs_write_all(fd, content->data, content->len, FS_HERE, NULL);
	close(fd);
	return r < 0 ? err_sys(err, r, "cannot write '%s'", path) : 0;
}

int profile_write(const struct profile *p, const char *path, struct err *err)
{
	struct buf text = {0}, packed = {0};
	int r;

	if (p->o.format == PROFILE_COLLAPSED) {
		profile_collapsed(p, &text);
	} else if (p->o.format == PROFILE_SPEEDSCOPE) {
		profile_speedscope(p, &text);
	} else if (p->o.format == PROFILE_FLAME) {
		profile_flame(p, &text);
	} else {
		profile_pprof(p, &text);
		pack(&text, &packed);
	}
	r = write_out(path, packed.len ? &packed : &text, err);
	buf_release(&text);
	buf_release(&packed);
	return r;
}
