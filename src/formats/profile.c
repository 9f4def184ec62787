/* SPDX-License-Identifier: MulanPSL-2.0 */

#include "formats/profile.h"

#include "base/clock.h"
#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "formats/json_value.h"
#include "formats/protobuf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#define PROFILE_NONE UINT32_MAX
#define NODES_MAX (4u << 20) /* some 300 MB */

/* Things are numbered in the order in which they are first seen. Those with the same hash are
 * chained by `same_hash`. */
struct profile_function {
	const char *name, *file;
	int32_t first_line;
	uint32_t same_hash;
};

struct profile_place { /* a frame: a function, or a line in it */
	uint32_t function;
	int32_t line;
};

struct profile_root { /* a thread of a process */
	const char *process, *thread; /* or NULL */
	int64_t pid, tid;
	uint32_t last_node; /* of its tree; the others by profile_node.before */
	uint32_t same_hash;
};

struct profile_node { /* a stack: that of its caller, and a place */
	uint32_t caller; /* PROFILE_NONE: none */
	uint32_t place;
	uint32_t root;
	uint32_t before; /* the node made before it in the same tree */
	uint64_t count; /* samples that ended here */
};

struct profile {
	struct profile_options o;
	struct profile_function *functions;
	struct profile_place *places;
	struct profile_root *roots;
	struct profile_node *nodes;
	size_t functions_cap, places_cap, roots_cap, nodes_cap;
	uint32_t nfunctions, nplaces, nroots, nnodes;
	struct hmap function_of; /* hash to the last function that has it */
	struct hmap place_of; /* function and line */
	struct hmap root_of; /* hash to the last root that has it */
	struct hmap node_of; /* caller (or the root, see profile.c) and place */
};

struct profile_stack {
	uint32_t *places; /* outermost first */
	uint32_t n;
	size_t cap;
};

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
	p->functions[p->nfunctions] = (struct profile_function){
		.name = f->name, .file = f->file, .first_line = f->first_line, .same_hash = first};
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
	p->roots[root].last_node = p->nnodes;
	hmap_put(&p->node_of, key, p->nnodes);
	return p->nnodes++;
}

void profile_add(struct profile *p, const char *process, const char *thread, int64_t pid,
		 int64_t tid, const struct profile_frame *frames, unsigned n, uint64_t count)
{
	uint32_t root = find_root(p, process, thread, pid, tid), node = PROFILE_NONE;

	for (unsigned i = 0; i < n; i++) {
		uint32_t next = find_node(p, root, node, find_place(p, &frames[i]));

		if (next == PROFILE_NONE)
			break; /* no room: what is further in is not distinguished */
		node = next;
	}
	if (node != PROFILE_NONE)
		p->nodes[node].count += count;
}

static void profile_stack_of(const struct profile *p, uint32_t node, struct profile_stack *out)
{
	uint32_t n = 0, at;

	for (at = node; at != PROFILE_NONE; at = p->nodes[at].caller)
		n++;
	out->places = xgrow(out->places, &out->cap, n, sizeof(*out->places));
	out->n = n;
	for (at = node; at != PROFILE_NONE; at = p->nodes[at].caller)
		out->places[--n] = p->nodes[at].place;
}

/*
 * Collapsed stacks, a line for each as flame graph programs read them, and speedscope's JSON (its
 * "sampled" kind: every distinct stack once, with its weight).
 */

static const char *last_parts(const char *file)
{
	const char *at = file + strlen(file);

	for (unsigned slashes = 0; at > file; at--)
		if (at[-1] == '/' && ++slashes == 2)
			break;
	return at;
}

/* By hand, because most events of a timeline have one. */
void frame_label(char out[FRAME_LABEL_BYTES], const char *name, const char *file, int32_t line)
{
	char *p = put_bytes(out, name, strnlen(name, FRAME_LABEL_BYTES / 2));

	file = last_parts(file);
	if (*file) {
		p = put_bytes(p, " (", 2);
		p = put_bytes(p, file, strnlen(file, FRAME_LABEL_BYTES / 2 - 32));
		if (line > 0) {
			*p++ = ':';
			p = put_u64(p, (uint64_t)line);
		}
		*p++ = ')';
	}
	*p = '\0';
}

/* A part of a line: what separates parts and lines may not be in it. */
static void add_line_part(struct buf *out, const char *text, struct buf *scratch)
{
	size_t len = strlen(text);
	const char *s = text_clean(text, &len, scratch);
	char *p = buf_room(out, len);

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		p[i] = c == ';' ? ':' : c < ' ' || c == 127 ? ' ' : (char)c;
	}
	out->len += len;
}

static void add_place(const struct profile *p, uint32_t place, struct buf *out, struct buf *scratch)
{
	const struct profile_function *f = &p->functions[p->places[place].function];
	char label[FRAME_LABEL_BYTES];

	frame_label(label, f->name, f->file, p->places[place].line);
	add_line_part(out, label, scratch);
}

static void profile_collapsed(const struct profile *p, struct buf *out)
{
	struct buf scratch = {0};
	struct profile_stack stack = {0};

	for (uint32_t i = 0; i < p->nnodes; i++) {
		const struct profile_root *root = &p->roots[p->nodes[i].root];

		if (!p->nodes[i].count)
			continue;
		profile_stack_of(p, i, &stack);
		if (root->process) {
			add_line_part(out, root->process, &scratch);
			buf_add_char(out, ';');
		}
		if (root->thread) {
			add_line_part(out, root->thread, &scratch);
			buf_add_char(out, ';');
		}
		for (uint32_t k = 0; k < stack.n; k++) {
			if (k)
				buf_add_char(out, ';');
			add_place(p, stack.places[k], out, &scratch);
		}
		buf_add_char(out, ' ');
		buf_add_u64(out, p->nodes[i].count);
		buf_add_char(out, '\n');
	}
	free(stack.places);
	buf_release(&scratch);
}

static void add_frames(const struct profile *p, struct buf *out, struct buf *scratch)
{
	for (uint32_t i = 0; i < p->nplaces; i++) {
		const struct profile_function *f = &p->functions[p->places[i].function];

		buf_add_str(out, i ? ",\n{\"name\":" : "\n{\"name\":");
		json_text_add(out, f->name, scratch);
		if (*f->file) {
			buf_add_str(out, ",\"file\":");
			json_text_add(out, f->file, scratch);
		}
		if (p->places[i].line > 0)
			buf_addf(out, ",\"line\":%d", p->places[i].line);
		buf_add_char(out, '}');
	}
}

static uint64_t weight(const struct profile *p, uint64_t count)
{
	return count * (p->o.period_ns ? p->o.period_ns : 1);
}

static void add_name(const struct profile_root *root, struct buf *out, struct buf *scratch)
{
	struct buf name = {0};

	buf_add_str(&name, root->process ? root->process : "");
	if (root->process && root->thread)
		buf_add_str(&name, ", ");
	buf_add_str(&name, root->thread ? root->thread : "");
	json_text_add(out, buf_str(&name), scratch);
	buf_release(&name);
}

/* The samples of one thread, their weights meanwhile in `weights`. */
static uint64_t add_samples(const struct profile *p, const struct profile_root *root,
			    struct buf *out, struct buf *weights)
{
	struct profile_stack stack = {0};
	uint64_t total = 0;

	for (uint32_t i = root->last_node; i != PROFILE_NONE; i = p->nodes[i].before) {
		if (!p->nodes[i].count)
			continue;
		profile_stack_of(p, i, &stack);
		buf_add_str(out, total ? ",[" : "[");
		for (uint32_t k = 0; k < stack.n; k++) {
			if (k)
				buf_add_char(out, ',');
			buf_add_u64(out, stack.places[k]);
		}
		buf_add_char(out, ']');
		if (total)
			buf_add_char(weights, ',');
		buf_add_u64(weights, weight(p, p->nodes[i].count));
		total += weight(p, p->nodes[i].count);
	}
	free(stack.places);
	return total;
}

static void add_profile(const struct profile *p, const struct profile_root *root, struct buf *out,
			struct buf *scratch)
{
	struct buf samples = {0}, weights = {0};
	uint64_t total = add_samples(p, root, &samples, &weights);

	buf_add_str(out, "{\"type\":\"sampled\",\"name\":");
	add_name(root, out, scratch);
	buf_add_str(out, p->o.period_ns ? ",\"unit\":\"nanoseconds\"" : ",\"unit\":\"none\"");
	buf_add_str(out, ",\"startValue\":0,\"endValue\":");
	buf_add_u64(out, total);
	buf_add_str(out, ",\"samples\":[");
	buf_add(out, samples.data, samples.len);
	buf_add_str(out, "],\"weights\":[");
	buf_add(out, weights.data, weights.len);
	buf_add_str(out, "]}");
	buf_release(&samples);
	buf_release(&weights);
}

static void profile_speedscope(const struct profile *p, struct buf *out)
{
	struct buf scratch = {0};

	buf_add_str(out, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
			 "\"shared\":{\"frames\":[");
	add_frames(p, out, &scratch);
	buf_add_str(out, "]},\n\"profiles\":[");
	for (uint32_t i = 0; i < p->nroots; i++) {
		buf_add_str(out, i ? ",\n" : "\n");
		add_profile(p, &p->roots[i], out, &scratch);
	}
	buf_add_str(out, "],\n\"name\":");
	json_text_add(out, p->o.title, &scratch);
	buf_add_str(out, ",\"activeProfileIndex\":0,\"exporter\":\"sonde " SONDE_VERSION "\"}\n");
	buf_release(&scratch);
}

/*
 * profile.proto, the format of `go tool pprof`, encoded by hand: tagged fields, of which we need
 * numbers (varint) and bytes with a length. Texts are numbers of a table, whose first is "".
 */

enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_MAPPING = 3,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING = 6,
	PROFILE_TIME_NANOS = 9,
	PROFILE_DURATION_NANOS = 10,
	PROFILE_PERIOD_TYPE = 11,
	PROFILE_PERIOD = 12,
	PROFILE_DEFAULT_TYPE = 14,
};

struct encoder {
	const struct profile *p;
	struct buf *out;
	struct profile_stack stack;
	struct buf part; /* a message inside of the profile */
	struct buf inner; /* and one inside of that */
	struct buf scratch;
	struct hmap strings; /* address of an interned text to its number */
	struct buf table; /* the strings, encoded */
	uint64_t nstrings;
};

/* Moves what was put together in `part` to its place. */
static void add_part(struct buf *out, unsigned field, struct buf *part)
{
	protobuf_add_bytes(out, field, part->data, part->len);
	buf_clear(part);
}

static uint64_t string(struct encoder *e, const char *text)
{
	uint64_t found;

	if (!text || !*text)
		return 0;
	found = hmap_get(&e->strings, (uintptr_t)text);
	if (found != HMAP_NONE)
		return found;
	size_t len = strlen(text);
	const char *s = text_clean(text, &len, &e->scratch);
	protobuf_add_bytes(&e->table, PROFILE_STRING, s, len);
	hmap_put(&e->strings, (uintptr_t)text, ++e->nstrings);
	return e->nstrings;
}

static void add_value_type(struct encoder *e, unsigned field, const char *type, const char *unit)
{
	protobuf_add_number(&e->part, 1, string(e, type));
	protobuf_add_number(&e->part, 2, string(e, unit));
	add_part(e->out, field, &e->part);
}

static void add_text_label(struct encoder *e, const char *key, const char *text)
{
	if (!text)
		return;
	protobuf_add_number(&e->inner, 1, string(e, key));
	protobuf_add_number(&e->inner, 2, string(e, text));
	add_part(&e->part, 3, &e->inner);
}

static void add_number_label(struct encoder *e, const char *key, int64_t number)
{
	protobuf_add_number(&e->inner, 1, string(e, key));
	protobuf_add_number(&e->inner, 3, (uint64_t)number);
	add_part(&e->part, 3, &e->inner);
}

static void add_sample(struct encoder *e, uint32_t node)
{
	const struct profile_node *at = &e->p->nodes[node];
	const struct profile_root *root = &e->p->roots[at->root];

	profile_stack_of(e->p, node, &e->stack);
	for (uint32_t n = e->stack.n; n > 0; n--) /* innermost first */
		protobuf_add_varint(&e->inner, e->stack.places[n - 1] + 1);
	add_part(&e->part, 1, &e->inner);
	protobuf_add_varint(&e->inner, at->count);
	protobuf_add_varint(&e->inner, at->count * e->p->o.period_ns);
	add_part(&e->part, 2, &e->inner);
	add_number_label(e, "pid", root->pid);
	add_number_label(e, "tid", root->tid);
	add_text_label(e, "process", root->process);
	add_text_label(e, "thread", root->thread);
	add_part(e->out, PROFILE_SAMPLE, &e->part);
}

/* One for all, which says that functions, files and lines are known and need no symbols. */
static void add_mapping(struct encoder *e)
{
	protobuf_add_number(&e->part, 1, 1);
	protobuf_add_number(&e->part, 5, string(e, "python"));
	for (unsigned known = 7; known <= 9; known++)
		protobuf_add_number(&e->part, known, 1);
	add_part(e->out, PROFILE_MAPPING, &e->part);
}

static void add_locations(struct encoder *e)
{
	for (uint32_t i = 0; i < e->p->nplaces; i++) {
		const struct profile_place *place = &e->p->places[i];

		protobuf_add_number(&e->inner, 1, place->function + 1);
		protobuf_add_number(&e->inner, 2, place->line > 0 ? (uint64_t)place->line : 0);
		protobuf_add_number(&e->part, 1, i + 1);
		protobuf_add_number(&e->part, 2, 1);
		add_part(&e->part, 4, &e->inner);
		add_part(e->out, PROFILE_LOCATION, &e->part);
	}
}

static void add_functions(struct encoder *e)
{
	for (uint32_t i = 0; i < e->p->nfunctions; i++) {
		const struct profile_function *f = &e->p->functions[i];

		protobuf_add_number(&e->part, 1, i + 1);
		/* No system_name (3): one that equals the name is taken for a C++ symbol, and
		 * "<module>" for its template arguments. */
		protobuf_add_number(&e->part, 2, string(e, f->name));
		protobuf_add_number(&e->part, 4, string(e, f->file));
		protobuf_add_number(&e->part, 5, f->first_line > 0 ? (uint64_t)f->first_line : 0);
		add_part(e->out, PROFILE_FUNCTION, &e->part);
	}
}

static void profile_pprof(const struct profile *p, struct buf *out)
{
	struct encoder e = {.p = p, .out = out};

	protobuf_add_bytes(&e.table, PROFILE_STRING, "", 0);
	add_value_type(&e, PROFILE_SAMPLE_TYPE, "samples", "count");
	add_value_type(&e, PROFILE_SAMPLE_TYPE, "wall", "nanoseconds");
	for (uint32_t i = 0; i < p->nnodes; i++)
		if (p->nodes[i].count)
			add_sample(&e, i);
	add_mapping(&e);
	add_locations(&e);
	add_functions(&e);
	protobuf_add_number(out, PROFILE_TIME_NANOS, (uint64_t)p->o.start_real_ns);
	if (p->o.start_real_ns)
		protobuf_add_number(out, PROFILE_DURATION_NANOS,
				    (uint64_t)(clock_real_ns() - p->o.start_real_ns));
	add_value_type(&e, PROFILE_PERIOD_TYPE, "wall", "nanoseconds");
	protobuf_add_number(out, PROFILE_PERIOD, p->o.period_ns);
	protobuf_add_number(out, PROFILE_DEFAULT_TYPE, string(&e, "wall"));
	buf_add(out, e.table.data, e.table.len);
	free(e.stack.places);
	buf_release(&e.part);
	buf_release(&e.inner);
	buf_release(&e.scratch);
	buf_release(&e.table);
	hmap_release(&e.strings);
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
	} else {
		profile_pprof(p, &text);
		pack(&text, &packed);
	}
	r = write_out(path, packed.len ? &packed : &text, err);
	buf_release(&text);
	buf_release(&packed);
	return r;
}
