/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The rows of a dump. Order of attributes as the format has it: allocation_id, addr, size, the
 * running sums, shadow, owner, page and allocation type. The owner stands in the MALLOC row; a
 * label that was given to a block afterwards stands in its FREE row, as rows are written at once.
 */
#include "memory/track/track_impl.h"

#include "base/mem.h"
#include "device/ascend/modules.h"
#include "memory/analysis/watch/watch.h"
#include "memory/dump/cell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool rows_wanted(const struct proc *p, uint32_t device)
{
	const struct mem_config *c = p->cfg;

	if (device == DEV_HOST)
		return c->cpu || c->watch.host;
	if (device == DEV_NONE || c->npu_all)
		return true;
	return device < MEM_MAX_DEVICES && c->npu_slots >> device & 1;
}

static bool is_dumped(const struct proc *p, uint32_t event)
{
	return p->cfg->dump_events & event;
}

void rows_begin(struct proc *p, struct row *row, enum row_event event, enum row_type type,
		uint32_t tid, uint32_t device, uint64_t mono_ns)
{
	row->event = event;
	row->type = type;
	row->pid = p->info.pid;
	row->tid = tid;
	row->device = device;
	row->time_ns = mono_ns + (uint64_t)p->track->wall_minus_mono_ns;
	row->nattrs = 0;
	row->name = NULL;
	row->name_len = 0;
	row->has_ptr = false;
	row->hidden = false;
	row->range = 0;
	row->step = 0;
	row->py_stack = NULL;
	row->py_stack_len = 0;
	row->c_stack = NULL;
	row->c_stack_len = 0;
	row->layer = NULL;
	row->tensor_bytes = 0;
	row->nparts = 0;
	row->temporary = false;
}

void rows_put_name(struct row *row, const char *name, size_t len)
{
	row->name = name;
	row->name_len = len;
}

static void put_text(struct row *row, enum attr_key key, const char *text)
{
	row_attr_text(row, key, text, strlen(text));
}

void rows_emit(struct proc *p, struct row *row)
{
	if (p->checkpoint)
		put_text(row, ATTR_CARRIED, "true");
	row->id = p->next_row;
	p->next_row += !row->hidden;
	if (p->track->sink.row)
		p->track->sink.row(p->track->sink.arg, p->info.proc, row);
}

enum row_type rows_pool_type(uint8_t pool)
{
	static const enum row_type types[POOL_END] = {
		[POOL_HAL] = TYPE_HAL,
		[POOL_HOST] = TYPE_HOST,
		[POOL_PTA] = TYPE_PTA,
		[POOL_PTA_WORKSPACE] = TYPE_PTA_WORKSPACE,
		[POOL_MINDSPORE] = TYPE_MINDSPORE,
		[POOL_ATB] = TYPE_ATB,
		[POOL_TORCH] = TYPE_TORCH,
		[POOL_CUDA] = TYPE_CUDA,
		[POOL_PYTHON] = TYPE_PYTHON,
	};

	return types[pool];
}

static enum row_type type_of_block(const struct block *b)
{
	return b->alone ? TYPE_HOST : rows_pool_type(b->pool);
}

const char *rows_pool_text(const struct block *b)
{
	static const char *const texts[POOL_END] = {
		[POOL_HAL] = "HAL",
		[POOL_HOST] = "HOST",
		[POOL_PTA] = "PTA",
		[POOL_PTA_WORKSPACE] = "PTA_WORKSPACE",
		[POOL_MINDSPORE] = "MINDSPORE",
		[POOL_ATB] = "ATB",
		[POOL_TORCH] = "TORCH",
		[POOL_CUDA] = "CUDA",
		[POOL_PYTHON] = "PYTHON",
	};

	return texts[b->pool];
}

/* With what the driver's own pools keep beside the blocks that were cut from them. */
static void put_cuda_total(struct row *row, const struct usage *u)
{
	uint64_t pools = u->total[POOL_CUDA], cut = u->async_bytes;

	if (u->peak_total[POOL_CUDA])
		row_attr_number(row, ATTR_TOTAL,
				u->used[POOL_CUDA] + (pools > cut ? pools - cut : 0));
}

/*
 * Identity and sums. A block whose time is made up has no sums, and neither has one that is freed
 * outside the window: the sums would count blocks that have no row.
 */
static void put_block(struct proc *p, struct row *row, const struct block *b, uint64_t time_ns,
		      bool shadow)
{
	const struct usage *u = usage_of(p, b->device);

	row->has_ptr = true;
	row->ptr = b->addr;
	row_attr_number(row, ATTR_ALLOCATION_ID, b->id);
	row->attrs[row->nattrs++] =
		(struct attr){.key = ATTR_ADDR, .kind = ATTR_HEX, .number = b->addr};
	row_attr_number(row, ATTR_SIZE, b->size_bytes);
	if (shadow || p->checkpoint) {
		if (b->kind == ALLOC_PINNED)
			put_text(row, ATTR_PINNED, "true");
		if (shadow)
			put_text(row, ATTR_SHADOW, "true");
		if (p->checkpoint && u->total[b->pool]) /* no other row may come that says it */
			row_attr_number(row, ATTR_TOTAL, u->total[b->pool]);
	} else if (b->kind == ALLOC_PINNED) {
		put_text(row, ATTR_PINNED, "true");
		if (p->window)
			row_attr_number(row, ATTR_USED, u->used[MAP_PINNED]);
	} else if (!p->window) {
		return;
	} else if (b->pool == POOL_HOST || b->alone) {
		row_attr_number(row, ATTR_TOTAL, u->used[block_sum(b)]);
	} else {
		row_attr_number(row, ATTR_USED, u->used[b->pool]);
		if (b->pool == POOL_CUDA)
			put_cuda_total(row, u);
		else if (b->pool != POOL_HAL)
			row_attr_number(row, ATTR_TOTAL, u->total[b->pool]);
		rows_put_device(u, row, time_ns);
	}
}

/* Who owns it: where the memory comes from, then the labels. */
static void owner_text(const struct proc *p, const struct block *b, struct buf *out)
{
	if (b->pool == POOL_CUDA && cuda_owner(p, b, out)) {
		labels_text(b->labels, out);
		return;
	}
	if (!(p->cfg->analysis & MEM_DECOMPOSE) && !b->labels)
		return;
	if (b->pool == POOL_HAL)
		buf_addf(out, "CANN@%s", ascend_module_name(b->module));
	else if (b->pool == POOL_CUDA && !p->libraries.count) /* seen by torch's notes alone */
		buf_add_str(out, "CUDA@torch");
	else if (b->pool != POOL_HOST || b->labels) /* host memory has only its labels */
		buf_add_str(out, rows_pool_text(b));
	labels_text(b->labels, out);
}

static void put_owner(struct proc *p, struct row *row, const struct block *b, struct buf *text)
{
	owner_text(p, b, text);
	if (text->len)
		row_attr_text(row, ATTR_OWNER, text->data, text->len);
}

void rows_relabelled(struct proc *p, const struct block *b)
{
	const struct track_sink *sink = &p->track->sink;
	struct buf owner = {0};

	if (!sink->relabel || b->hidden)
		return;
	owner_text(p, b, &owner);
	sink->relabel(sink->arg, p->info.proc, p->info.pid, b->id, buf_str(&owner));
	buf_release(&owner);
}

static void put_mapping_type(struct row *row, const struct block *b)
{
	static const char *const types[] = {"mmap", "shared", "file"};
	static const char *const of_cuda[ALLOC_KIND_END] = {
		[ALLOC_PLAIN] = "alloc", [ALLOC_CREATE] = "create",   [ALLOC_PINNED] = "host",
		[ALLOC_ASYNC] = "async", [ALLOC_MANAGED] = "managed", [ALLOC_ARRAY] = "array",
		[ALLOC_GRAPH] = "graph",
	};

	if (b->pool == POOL_CUDA) {
		if (b->kind < ALLOC_KIND_END && of_cuda[b->kind])
			put_text(row, ATTR_ALLOC_TYPE, of_cuda[b->kind]);
		return;
	}
	if (b->kind >= ALLOC_MAPPED && b->kind <= ALLOC_FILE)
		put_text(row, ATTR_ALLOC_TYPE, types[b->kind - ALLOC_MAPPED]);
}

void rows_malloc(struct proc *p, struct block *b, uint64_t time_ns, bool shadow)
{
	static const char *const pages[] = {"normal", "huge", "giant"};
	struct row row;
	struct buf owner = {0};

	b->written = true;
	b->shadow = shadow;
	b->hidden = !is_dumped(p, MEM_ALLOC);
	rows_begin(p, &row, ROW_MALLOC, type_of_block(b), b->tid, b->device, time_ns);
	row.hidden = b->hidden;
	put_block(p, &row, b, time_ns, shadow);
	put_owner(p, &row, b, &owner);
	layers_put_row(p, &row, b);
	if (b->pool == POOL_HAL) {
		put_text(&row, ATTR_PAGE_TYPE, pages[b->page <= PAGE_GIANT ? b->page : 0]);
		put_text(&row, ATTR_ALLOC_TYPE, b->kind == ALLOC_CREATE ? "create" : "alloc");
	}
	put_mapping_type(&row, b);
	rows_put_stack(p, &row, b->stack);
	rows_emit(p, &row);
	buf_release(&owner);
}

void rows_free(struct proc *p, const struct block *b, const struct rec *r, uint32_t tid,
	       uint64_t time_ns, bool shadow)
{
	struct buf owner = {0};
	struct row row;

	rows_begin(p, &row, ROW_FREE, type_of_block(b), tid, b->device, time_ns);
	row.hidden = b->hidden;
	put_block(p, &row, b, time_ns, shadow);
	if (b->labelled_late || b->pool == POOL_CUDA)
		put_owner(p, &row, b, &owner);
	layers_put_row(p, &row, b);
	row.temporary = r && !shadow && layers_is_temporary(p, b, time_ns);
	put_mapping_type(&row, b);
	if (r)
		rows_put_stack(p, &row, r->stack);
	rows_emit(p, &row);
	buf_release(&owner);
	if (shadow)
		budget_keep(p->track, BLOCK_COST);
}

/* Name and attributes of a text body: two strings around a NUL. */
static void split_text(const struct rec *r, const char **name, size_t *nname, const char **rest,
		       size_t *nrest)
{
	size_t len;
	const char *text = rec_text(r, &len), *nul = memchr(text, 0, len);

	*name = text;
	*nname = nul ? (size_t)(nul - text) : len;
	*rest = nul ? nul + 1 : "";
	*nrest = nul ? len - *nname - 1 : 0;
}

struct access {
	const struct rec *head;
	uint64_t addr, size_bytes;
	uint32_t device;
	uint8_t pool, kind;
	const char *name, *attrs;
	size_t nname, nattrs;
};

/* The block that an operator's tensor lies in: of its own framework, else of any, else the
 * driver's. */
static struct block *block_accessed(struct proc *p, const struct access *a)
{
	static const uint8_t others[] = {POOL_PTA,   POOL_PTA_WORKSPACE, POOL_ATB, POOL_MINDSPORE,
					 POOL_TORCH, POOL_HAL,		 POOL_CUDA};
	struct block *b = block_around(p, a->pool, a->addr);

	for (size_t i = 0; !b && i < sizeof(others); i++)
		b = block_around(p, others[i], a->addr);
	return b;
}

static void put_access(struct proc *p, uint32_t tid, const struct access *a)
{
	static const enum row_type types[] = {TYPE_UNKNOWN, TYPE_READ, TYPE_WRITE};
	struct block *b = block_accessed(p, a);
	uint32_t device = a->device == DEV_NONE && b ? b->device : a->device;
	struct row row;

	if (b && a->pool != POOL_ATB)
		labels_accessed(p, b);
	if (!rows_wanted(p, device))
		return;
	rows_begin(p, &row, ROW_ACCESS, types[a->kind <= ACCESS_WRITE ? a->kind : 0], tid, device,
		   a->head->time_ns);
	row.hidden = !is_dumped(p, MEM_ACCESS);
	row.has_ptr = true;
	row.ptr = a->addr;
	rows_put_name(&row, a->name, a->nname);
	if (b)
		row_attr_number(&row, ATTR_ALLOCATION_ID, b->id);
	row.attrs[row.nattrs++] =
		(struct attr){.key = ATTR_ADDR, .kind = ATTR_HEX, .number = a->addr};
	row_attr_number(&row, ATTR_SIZE, a->size_bytes);
	uint8_t pool = b && b->pool == POOL_TORCH ? POOL_TORCH : a->pool;
	put_text(&row, ATTR_TYPE, row_type_text(rows_pool_type(pool), ROW_SEED));
	if (a->nattrs)
		row_attr_text(&row, ATTR_RAW, a->attrs, a->nattrs);
	rows_emit(p, &row);
}

void rows_access(struct proc *p, uint32_t tid, const struct rec_access *r)
{
	struct access a = {
		.head = &r->head,
		.addr = r->addr,
		.size_bytes = r->size_bytes,
		.device = physical_device(p, r->device),
		.pool = r->pool && r->pool < POOL_END ? r->pool : POOL_PTA,
		.kind = r->kind,
	};

	split_text(&r->head, &a.name, &a.nname, &a.attrs, &a.nattrs);
	put_access(p, tid, &a);
}

static void put_op(struct proc *p, uint32_t tid, const struct rec *head, enum row_type type,
		   uint32_t device, const struct access *text)
{
	bool kernel = type == TYPE_KERNEL_START || type == TYPE_KERNEL_END;
	uint32_t level = kernel ? MEM_LEVEL_KERNEL : MEM_LEVEL_OP;
	struct row row;

	/* Operators of torch come as marks, which are collected at every level. */
	if (!rows_wanted(p, device))
		return;
	rows_begin(p, &row, kernel ? ROW_KERNEL_LAUNCH : ROW_OP_LAUNCH, type, tid, device,
		   head->time_ns);
	row.hidden = !is_dumped(p, MEM_LAUNCH) || !(p->cfg->level & level);
	rows_put_name(&row, text->name, text->nname);
	if (text->nattrs)
		row_attr_text(&row, ATTR_RAW, text->attrs, text->nattrs);
	rows_put_stack(p, &row, head->stack);
	rows_emit(p, &row);
}

void rows_op(struct proc *p, uint32_t tid, const struct rec_op *o)
{
	static const enum row_type types[] = {
		[OP_ATEN_START] = TYPE_ATEN_START,     [OP_ATEN_END] = TYPE_ATEN_END,
		[OP_ATB_START] = TYPE_ATB_START,       [OP_ATB_END] = TYPE_ATB_END,
		[OP_KERNEL_START] = TYPE_KERNEL_START, [OP_KERNEL_END] = TYPE_KERNEL_END,
	};
	struct access text = {0};

	if (o->kind > OP_KERNEL_END)
		return;
	if (o->kind <= OP_ATEN_END)
		labels_operator(p, tid, o->kind == OP_ATEN_START);
	if (!p->window)
		return;
	split_text(&o->head, &text.name, &text.nname, &text.attrs, &text.nattrs);
	put_op(p, tid, &o->head, types[o->kind], physical_device(p, o->device), &text);
}

void rows_kernel(struct proc *p, uint32_t tid, const struct rec_kernel *k)
{
	static const enum row_type types[] = {TYPE_KERNEL_LAUNCH, TYPE_KERNEL_EXECUTE_START,
					      TYPE_KERNEL_EXECUTE_END};
	uint32_t device = k->device; /* the driver's number already */
	const char *name = omap_get(&p->names, k->name_hash);
	char unknown[24];
	struct row row;

	if (k->kind > KERNEL_EXECUTE_END || !rows_wanted(p, device))
		return;
	if (!name) {
		snprintf(unknown, sizeof(unknown), "0x%016llx", (unsigned long long)k->name_hash);
		name = unknown;
	}
	rows_begin(p, &row, ROW_KERNEL_LAUNCH, types[k->kind], tid, device, k->head.time_ns);
	row.hidden = !is_dumped(p, MEM_LAUNCH);
	rows_put_name(&row, name, strlen(name));
	row_attr_number(&row, ATTR_STREAM_ID, k->stream);
	row_attr_number(&row, ATTR_TASK_ID, k->task);
	rows_emit(p, &row);
}

void rows_mark(struct proc *p, uint32_t tid, const struct rec_mark *m)
{
	static const enum row_type types[] = {TYPE_MARK, TYPE_RANGE_START, TYPE_RANGE_END};
	struct access text = {0};
	uint32_t device = physical_device(p, m->device);
	char ends[64];
	struct row row;

	if (m->kind > MARK_RANGE_END || !rows_wanted(p, device))
		return;
	split_text(&m->head, &text.name, &text.nname, &text.attrs, &text.nattrs);
	if (m->kind == MARK_RANGE_END) {
		text.nname = (size_t)snprintf(ends, sizeof(ends), "Range end from id %llu",
					      (unsigned long long)m->range);
		text.name = ends;
	}
	rows_begin(p, &row, ROW_MSTX, types[m->kind], tid, device, m->head.time_ns);
	row.range = m->range;
	if (p->track->was_cut && m->range && m->range == p->step_range)
		row.step = (uint32_t)p->step;
	rows_put_name(&row, text.name, text.nname);
	rows_emit(p, &row);
}

void rows_system(struct proc *p, uint32_t tid, const struct rec_system *s)
{
	static const enum row_type types[] = {
		[SYSTEM_ACL_INIT] = TYPE_ACL_INIT,
		[SYSTEM_ACL_FINI] = TYPE_ACL_FINI,
		[SYSTEM_START_TRACE] = TYPE_START_TRACE,
		[SYSTEM_STOP_TRACE] = TYPE_STOP_TRACE,
		[SYSTEM_STEP] = TYPE_STEP,
		[SYSTEM_EXIT] = TYPE_EXIT,
	};
	uint32_t device = physical_device(p, s->device);
	char number[24];
	struct row row;

	if (s->kind > SYSTEM_EXIT || !rows_wanted(p, device))
		return;
	rows_begin(p, &row, ROW_SYSTEM, types[s->kind], tid, device, s->head.time_ns);
	row.hidden = s->kind == SYSTEM_EXIT && p->cfg->compat == ROW_26_0; /* unknown there */
	if (s->kind == SYSTEM_STEP) {
		row.name_len = (size_t)snprintf(number, sizeof(number), "%llu",
						(unsigned long long)s->value);
		row.name = number;
	}
	if (s->kind == SYSTEM_START_TRACE)
		rows_put_total(p, &row, s->head.time_ns);
	rows_emit(p, &row);
}

/* For the analyses alone. Its name is the number, and the name of what steps: "3 AdamW". */
void rows_detected_step(struct proc *p, uint32_t tid, const struct rec_system *s)
{
	const char *name = omap_get(&p->names, p->step_name);
	char text[32 + ROW_STEP_NAME];
	struct row row;

	rows_begin(p, &row, ROW_SYSTEM, TYPE_STEP, tid, DEV_NONE, s->head.time_ns);
	row.hidden = true;
	row.range = s->source;
	row.name_len =
		(uint32_t)snprintf(text, sizeof(text), "%llu %.*s", (unsigned long long)s->value,
				   ROW_STEP_NAME, name ? name : "");
	row.name = text;
	rows_emit(p, &row);
}

/* --- watched memory --- */

void watch_record(struct proc *p, uint32_t tid, const struct rec_watch *r)
{
	const struct track_sink *sink = &p->track->sink;
	struct watch_sample s = {
		.time_ns = r->head.time_ns + (uint64_t)p->track->wall_minus_mono_ns,
		.tid = tid,
		.device = physical_device(p, r->device),
		.watch = r->watch,
		.seq = r->seq,
		.addr = r->addr,
		.size_bytes = r->size_bytes,
		.checksum = r->checksum,
		.content = r->content,
		.error = r->error,
		.content_errno = r->content_errno,
		.output = r->output,
		.watched_call = r->watched_call,
		.call = r->call,
		.after = r->after != 0,
		.last = r->last != 0,
	};

	split_text(&r->head, &s.op, &s.op_len, &s.watched, &s.watched_len);
	if (sink->watch && p->window && rows_wanted(p, s.device))
		sink->watch(sink->arg, p->info.proc, &s);
}

/* --- marks of torch's dispatcher: text made by the Python side, so it is foreign input --- */

#define ATEN_PREFIX "memscope-aten-"

/* The value of `key=` in text, up to ';' or '}'. */
static const char *find_field(const char *text, size_t len, const char *key, size_t *out_len)
{
	const char *at = memmem(text, len, key, strlen(key));
	const char *end = text + len;

	*out_len = 0;
	if (!at)
		return "";
	at += strlen(key);
	const char *stop = at;
	while (stop < end && *stop != ';' && *stop != '}')
		stop++;
	*out_len = (size_t)(stop - at);
	return at;
}

static bool field_is_true(const char *text, size_t len, const char *key)
{
	size_t n;
	const char *v = find_field(text, len, key, &n);

	return n == 4 && !memcmp(v, "True", 4);
}

static uint64_t field_number(const char *text, size_t len, const char *key)
{
	size_t n;
	const char *v = find_field(text, len, key, &n);
	uint64_t x;

	return cell_read_u64(v, n, &x) ? x : 0;
}

static void aten_access(struct proc *p, uint32_t tid, const struct rec_mark *m, const char *text,
			size_t len)
{
	struct access a = {.head = &m->head, .pool = POOL_PTA};
	struct buf attrs = {0};
	size_t n, k;
	const char *dtype = find_field(text, len, "dtype=", &n),
		   *shape = find_field(text, len, "shape=", &k);

	a.device = physical_device(p, m->device);
	a.addr = field_number(text, len, "ptr=");
	a.size_bytes = field_number(text, len, "tensor_size=");
	a.name = find_field(text, len, "name=", &a.nname);
	if (field_is_true(text, len, "is_write="))
		a.kind = ACCESS_WRITE;
	else if (field_is_true(text, len, "is_read="))
		a.kind = ACCESS_READ;
	buf_addf(&attrs, "dtype:%.*s,shape:%.*s", (int)n, dtype, (int)k, shape);
	a.attrs = attrs.data;
	a.nattrs = attrs.len;
	if (a.addr)
		put_access(p, tid, &a);
	buf_release(&attrs);
}

bool rows_aten(struct proc *p, uint32_t tid, const struct rec_mark *m)
{
	size_t len, skip = strlen(ATEN_PREFIX);
	const char *text = rec_text(&m->head, &len);
	struct access op = {0};

	if (len < skip + 2 || memcmp(text, ATEN_PREFIX, skip) != 0)
		return false;
	text += skip;
	len -= skip;
	if (text[1] == ':')
		labels_operator(p, tid, text[0] == 'b');
	if (!p->window)
		return true;
	op.name = find_field(text, len, "name=", &op.nname);
	if (!memcmp(text, "b:", 2))
		put_op(p, tid, &m->head, TYPE_ATEN_START, physical_device(p, m->device), &op);
	else if (!memcmp(text, "e:", 2))
		put_op(p, tid, &m->head, TYPE_ATEN_END, physical_device(p, m->device), &op);
	else if (!memcmp(text, "ac", 2))
		aten_access(p, tid, m, text, len);
	return true;
}
