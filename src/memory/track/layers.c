/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which module of a model a block belongs to. What a thread allocates while the forward of a module
 * runs belongs to the innermost one; parameters, gradients and states of optimizers are told by
 * their addresses, afterwards. A layer is known by the hash of its text, see rec_layer.
 *
 * The forward pass of a thread lasts from the beginning of an outermost module to its end. Passes
 * are numbered: a block that is freed in the pass in which it was allocated was a temporary one.
 *
 * What a backward pass allocates belongs to the module of the operation whose gradient is computed:
 * autograd numbers operations, each thread its own, and says at which it is.
 *
 *	operations	number from which on they are those of a layer, ascending; of one thread
 *
 * Allocations may come late, as in labels.c. Here threads change several hundred times in a step of
 * training, so what they had is kept in a compact form, and more of it.
 */
#include "base/mem.h"
#include "memory/track/track_impl.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_OPEN 256 /* one inside the other; deeper ones count as the last */
#define MAX_THREADS 65536
#define MAX_PAST 65536u /* of a thread, and … */
#define MAX_ALL_PAST (1u << 20) /* … of all of them */
#define MAX_OPERATIONS 16384u /* of a thread; the older half goes */
#define MAX_COUNTERS 256u
#define MAX_TENSORS 4096u /* of a block */
#define NUMBER_BITS WORK_THREAD_SHIFT

struct past_layer {
	uint64_t from_ns;
	uint64_t layer;
	uint32_t forward;
};

struct layers_thread {
	uint64_t *open; /* innermost last */
	size_t nopen, cap_open;
	uint32_t forwards; /* that have begun */
	uint64_t gradient; /* the layer of the operation whose gradient is computed */
	uint64_t since_ns; /* when it last changed */
	struct past_layer *past; /* what was before, in a circle */
	size_t npast, cap_past, first_past;
};

struct layer_state {
	uint64_t layer;
	uint32_t forward;
};

static struct layer_state state_now(const struct layers_thread *th)
{
	if (!th->nopen)
		return (struct layer_state){.layer = th->gradient};
	return (struct layer_state){th->open[th->nopen - 1], th->forwards};
}

/* That of the newest change before; nothing where that is forgotten. */
static struct layer_state state_at(const struct layers_thread *th, uint64_t time_ns)
{
	size_t low = 0, high = th->npast;

	if (time_ns >= th->since_ns)
		return state_now(th);
	while (low < high) { /* the first that began later */
		size_t mid = (low + high) / 2;
		if (th->past[(th->first_past + mid) % th->npast].from_ns > time_ns)
			high = mid;
		else
			low = mid + 1;
	}
	if (!low)
		return (struct layer_state){0};
	const struct past_layer *was = &th->past[(th->first_past + low - 1) % th->npast];
	return (struct layer_state){was->layer, was->forward};
}

/* It is about to change. */
static void keep_past(struct proc *p, struct layers_thread *th, uint64_t now_ns)
{
	struct layer_state s = state_now(th);
	struct past_layer was = {th->since_ns, s.layer, s.forward};

	if (now_ns <= th->since_ns) /* at once: nothing can have been allocated between */
		return;
	th->since_ns = now_ns;
	if (th->npast < MAX_PAST && p->npast_layers < MAX_ALL_PAST && !th->first_past &&
	    budget_take(p, sizeof(was))) {
		th->past = xgrow(th->past, &th->cap_past, th->npast + 1, sizeof(*th->past));
		th->past[th->npast++] = was;
		p->npast_layers++;
	} else if (th->npast) {
		th->past[th->first_past] = was;
		th->first_past = (th->first_past + 1) % th->npast;
	}
}

static struct layers_thread *thread_of(struct proc *p, uint32_t tid)
{
	struct layers_thread *th = omap_get(&p->layers, tid);

	if (!th && p->layers.count < MAX_THREADS && budget_take(p, sizeof(*th))) {
		th = xcalloc(1, sizeof(*th));
		omap_put(&p->layers, tid, th);
	}
	return th;
}

/* --- gradients --- */

struct operations {
	struct {
		uint64_t from, layer;
	} * list;
	size_t n, cap;
};

static struct operations *operations_of(struct proc *p, uint64_t counter, bool make)
{
	struct operations *o = omap_get(&p->operations, counter);

	if (!o && make && p->operations.count < MAX_COUNTERS && budget_take(p, sizeof(*o))) {
		o = xcalloc(1, sizeof(*o));
		omap_put(&p->operations, counter, o);
	}
	return o;
}

/* From operation `number` on they belong to this layer; what was behind it never came to be. */
static void add_operation(struct proc *p, struct operations *o, uint64_t number, uint64_t layer)
{
	while (o->n && o->list[o->n - 1].from >= number)
		o->n--;
	if (o->n && o->list[o->n - 1].layer == layer)
		return;
	if (o->n == MAX_OPERATIONS) {
		o->n /= 2;
		memmove(o->list, o->list + o->n, o->n * sizeof(*o->list));
	}
	if (o->n == o->cap && !budget_take(p, (o->cap ? o->cap : 8) * sizeof(*o->list)))
		return;
	o->list = xgrow(o->list, &o->cap, o->n + 1, sizeof(*o->list));
	o->list[o->n].from = number;
	o->list[o->n++].layer = layer;
}

/* Whose operation this is; 0: nobody's. */
static uint64_t layer_of_operation(struct proc *p, uint64_t sequence)
{
	const struct operations *o = operations_of(p, sequence >> NUMBER_BITS, false);
	uint64_t number = sequence & ((1ull << NUMBER_BITS) - 1);
	size_t low = 0, high = o ? o->n : 0;

	while (low < high) {
		size_t mid = (low + high) / 2;
		if (o->list[mid].from <= number)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? o->list[low - 1].layer : 0;
}

/* A module has begun or ended in the thread: what its next operations belong to. */
static void note_operations(struct proc *p, const struct layers_thread *th,
			    const struct rec_layer *r)
{
	uint64_t sequence = r->addr - 1;
	struct operations *o = r->addr ? operations_of(p, sequence >> NUMBER_BITS, true) : NULL;

	if (o)
		add_operation(p, o, sequence & ((1ull << NUMBER_BITS) - 1),
			      th->nopen ? th->open[th->nopen - 1] : 0);
}

static void restore_operation(struct proc *p, const struct rec_layer *r)
{
	uint64_t sequence = r->addr - 1;
	struct operations *o = r->addr ? operations_of(p, sequence >> NUMBER_BITS, true) : NULL;

	if (o)
		add_operation(p, o, sequence & ((1ull << NUMBER_BITS) - 1), r->layer);
}

static void begin_gradient(struct proc *p, uint32_t tid, const struct rec_layer *r)
{
	struct layers_thread *th = thread_of(p, tid);
	uint64_t layer = r->addr && !r->layer ? layer_of_operation(p, r->addr - 1) : r->layer;

	if (!th || th->gradient == layer)
		return;
	if (!th->nopen)
		keep_past(p, th, r->head.time_ns);
	th->gradient = layer;
}

static void free_operations(void *value)
{
	free(((struct operations *)value)->list);
	free(value);
}

/* --- forward passes --- */

static void enter_layer(struct proc *p, uint32_t tid, const struct rec_layer *r)
{
	struct layers_thread *th = thread_of(p, tid);

	if (!th || th->nopen >= MAX_OPEN)
		return;
	keep_past(p, th, r->head.time_ns);
	th->forwards += !th->nopen;
	th->open = xgrow(th->open, &th->cap_open, th->nopen + 1, sizeof(*th->open));
	th->open[th->nopen++] = r->layer;
	note_operations(p, th, r);
}

/* The innermost of this text, and all that is inside: a forward that raised may have said nothing.
 * */
static void leave_layer(struct proc *p, uint32_t tid, const struct rec_layer *r)
{
	struct layers_thread *th = omap_get(&p->layers, tid);
	size_t n = th ? th->nopen : 0;

	while (n && r->layer && th->open[n - 1] != r->layer)
		n--;
	if (!n)
		return;
	n = r->layer ? n : 1;
	keep_past(p, th, r->head.time_ns);
	th->nopen = n - 1;
	note_operations(p, th, r);
}

/* --- blocks --- */

void layers_allocated(struct proc *p, struct block *b, uint64_t time_ns)
{
	const struct layers_thread *th = omap_get(&p->layers, b->tid);

	if (!th)
		return;
	struct layer_state s = state_at(th, time_ns);
	b->layer = s.layer;
	b->forward = s.forward;
}

bool layers_is_temporary(const struct proc *p, const struct block *b, uint64_t freed_ns)
{
	const struct layers_thread *th = b->forward ? omap_get(&p->layers, b->tid) : NULL;

	return th && state_at(th, freed_ns).forward == b->forward;
}

/* The text of what is around both; its length, 0: they are of different models. */
static size_t common_text(const char *a, const char *b, char *out, size_t size)
{
	const char *path = strchr(a, ':');
	size_t n = 0, same = 0;

	if (!path || strncmp(a, b, (size_t)(path + 1 - a)) != 0)
		return 0;
	n = same = (size_t)(path + 1 - a);
	for (;; n++) {
		bool ends_a = a[n] == '.' || a[n] == ':', ends_b = b[n] == '.' || b[n] == ':';
		if (ends_a && ends_b)
			same = n;
		if (a[n] != b[n] || a[n] == ':' || !a[n])
			break;
	}
	if (same + 2 > size)
		return 0;
	memcpy(out, a, same);
	out[same] = ':';
	out[same + 1] = '\0';
	return same + 1;
}

/* What is around two tensors of one block. */
static uint64_t common_layer(struct proc *p, uint64_t a, uint64_t b)
{
	const char *text_a = omap_get(&p->names, a), *text_b = omap_get(&p->names, b);
	char text[REC_MAX_NAME + 2];
	size_t len = text_a && text_b ? common_text(text_a, text_b, text, sizeof(text)) : 0;

	if (!len)
		return b;
	uint64_t hash = XXH3_64bits(text, len);
	if (!omap_get(&p->names, hash)) {
		if (!budget_take(p, len))
			return b;
		omap_put(&p->names, hash, xstrndup(text, len));
	}
	return hash;
}

/* --- tensors that share a block --- */

/* In the order of their addresses; none overlaps another. */
struct tensors {
	size_t n;
	uint64_t bytes; /* of all of them */
	struct tensor {
		uint64_t addr, bytes, layer;
	} list[];
};

static size_t tensors_cost(size_t n)
{
	return sizeof(struct tensors) + n * sizeof(struct tensor);
}

void layers_block_gone(struct track *t, struct block *b)
{
	if (!b->is_shared)
		return;
	budget_give_back(t, tensors_cost(b->tensors->n));
	free(b->tensors);
	b->is_shared = false;
}

/* Of the block, with one more; what it overlaps is not there any more. */
static bool add_tensor(struct proc *p, struct block *b, const struct tensor *new)
{
	struct tensors *t = b->is_shared ? b->tensors : NULL;
	size_t n = t ? t->n : 0, low = 0, high = n;

	while (low < high) { /* the first that does not end before it */
		size_t mid = (low + high) / 2;
		if (t->list[mid].addr + t->list[mid].bytes > new->addr)
			high = mid;
		else
			low = mid + 1;
	}
	while (high < n && t->list[high].addr < new->addr + new->bytes)
		high++;
	if (high == low) {
		if (n >= MAX_TENSORS || !budget_take(p, n ? sizeof(*new) : tensors_cost(1)))
			return false;
		t = xrealloc(t, tensors_cost(n + 1));
		t->bytes = n ? t->bytes : 0;
	}
	for (size_t i = low; i < high; i++)
		t->bytes -= t->list[i].bytes;
	if (high != low + 1)
		memmove(&t->list[low + 1], &t->list[high], (n - high) * sizeof(*new));
	t->list[low] = *new;
	t->bytes += new->bytes;
	t->n = n + 1 - (high - low);
	if (high > low + 1)
		budget_give_back(p->track, (high - low - 1) * sizeof(*new));
	b->tensors = t;
	b->is_shared = true;
	return true;
}

static bool share_block(struct proc *p, struct block *b, const struct tensor *new)
{
	struct tensor first = {b->tensor_addr, b->tensor_bytes, b->layer};

	if (!b->is_shared && !add_tensor(p, b, &first))
		return false;
	return add_tensor(p, b, new);
}

static void place_tensor(struct proc *p, const struct rec_layer *r)
{
	struct block *b = labels_block_at(p, r->addr);
	struct tensor new = {r->addr, r->bytes, r->layer};

	if (!b)
		return;
	if (r->bytes > b->size_bytes)
		new.bytes = b->size_bytes;
	if (!b->is_shared && (!b->tensor_addr || b->tensor_addr == r->addr)) {
		b->tensor_addr = r->addr;
		b->tensor_bytes = new.bytes;
		b->layer = r->layer;
		return;
	}
	if (!new.bytes || !share_block(p, b, &new))
		return;
	b->tensor_bytes = b->tensors->bytes;
	if (b->tensor_bytes > b->size_bytes)
		b->tensor_bytes = b->size_bytes;
	b->layer = b->layer == r->layer ? r->layer : common_layer(p, b->layer, r->layer);
}

/* Of a checkpoint: what is around all of them is known. */
static void restore_tensor(struct proc *p, const struct rec_layer *r)
{
	struct block *b = labels_block_at(p, r->addr);
	struct tensor new = {r->addr, r->bytes, r->layer};

	if (b && new.bytes &&new.bytes <= b->size_bytes)
		(void)add_tensor(p, b, &new);
}

void layers_split_block(struct proc *p, struct block *b, const struct block *of)
{
	const struct tensors *t = of->is_shared ? of->tensors : NULL;

	if (!t)
		return;
	b->is_shared = false;
	b->tensor_addr = 0;
	b->tensor_bytes = 0;
	for (size_t i = 0; i < t->n; i++) {
		uint64_t into = t->list[i].addr - b->addr;

		if (into < b->size_bytes && t->list[i].bytes <= b->size_bytes - into)
			(void)add_tensor(p, b, &t->list[i]);
	}
	if (b->is_shared)
		b->tensor_bytes = b->tensors->bytes;
}

void layers_write_block(const struct block *b, struct checkpoint_writing *w)
{
	for (size_t i = 0; b->is_shared && i < b->tensors->n; i++) {
		struct rec_layer r = {.head = {.type = REC_LAYER, .size = sizeof(r)},
				      .kind = LAYER_TENSOR,
				      .layer = b->tensors->list[i].layer,
				      .addr = b->tensors->list[i].addr,
				      .bytes = b->tensors->list[i].bytes};
		checkpoint_put(w, b->tid, &r, NULL, 0);
	}
}

static void put_parts(const struct proc *p, struct row *row, const struct tensors *t)
{
	struct track *k = p->track;

	for (size_t i = 0; i < t->n; i++) {
		struct row_part part = {omap_get(&p->names, t->list[i].layer), t->list[i].bytes};

		k->parts = xgrow(k->parts, &k->cap_parts, row->nparts + 1u, sizeof(*k->parts));
		if (part.layer)
			k->parts[row->nparts++] = part;
	}
	row->parts = k->parts;
}

void layers_put_row(const struct proc *p, struct row *row, const struct block *b)
{
	if (!b->layer)
		return;
	row->layer = omap_get(&p->names, b->layer);
	row->tensor_bytes = b->tensor_bytes;
	if (b->is_shared && row->layer)
		put_parts(p, row, b->tensors);
}

void layers_record(struct proc *p, uint32_t tid, const struct rec_layer *r)
{
	if (r->kind == LAYER_LEAVE)
		leave_layer(p, tid, r);
	else if (r->kind == LAYER_ENTER && r->layer)
		enter_layer(p, tid, r);
	else if (r->kind == LAYER_ADDR && r->layer)
		place_tensor(p, r);
	else if (r->kind == LAYER_GRADIENT)
		begin_gradient(p, tid, r);
	else if (r->kind == LAYER_OPERATION)
		restore_operation(p, r);
	else if (r->kind == LAYER_TENSOR && r->layer)
		restore_tensor(p, r);
}

/* --- threads --- */

static void free_thread(void *value)
{
	struct layers_thread *th = value;

	free(th->open);
	free(th->past);
	free(th);
}

void layers_thread_begins(struct proc *p, uint32_t tid)
{
	struct layers_thread *th = omap_remove(&p->layers, tid);

	if (!th)
		return;
	p->npast_layers -= th->npast;
	free_thread(th);
}

void layers_release(struct proc *p)
{
	omap_release_values(&p->layers, free_thread);
	omap_release_values(&p->operations, free_operations);
}

/* --- for checkpoint_write.c; what was before is left out, as in labels.c --- */

static void write_thread(uint64_t tid, void *value, void *arg)
{
	const struct layers_thread *th = value;
	struct rec_state s = {.head = {.type = REC_STATE, .size = sizeof(s)},
			      .kind = STATE_FORWARDS,
			      .value = {tid, th->forwards}};

	for (size_t i = 0; i < th->nopen; i++) {
		struct rec_layer r = {.head = {.type = REC_LAYER, .size = sizeof(r)},
				      .kind = LAYER_ENTER,
				      .layer = th->open[i]};
		checkpoint_put(arg, (uint32_t)tid, &r, NULL, 0);
	}
	checkpoint_put(arg, (uint32_t)tid, &s, NULL, 0);
	struct rec_layer g = {.head = {.type = REC_LAYER, .size = sizeof(g)},
			      .kind = LAYER_GRADIENT,
			      .layer = th->gradient};
	if (th->gradient)
		checkpoint_put(arg, (uint32_t)tid, &g, NULL, 0);
}

static void write_operations(uint64_t counter, void *value, void *arg)
{
	const struct operations *o = value;

	for (size_t i = 0; i < o->n; i++) {
		struct rec_layer r = {.head = {.type = REC_LAYER, .size = sizeof(r)},
				      .kind = LAYER_OPERATION,
				      .layer = o->list[i].layer,
				      .addr = 1 + (counter << NUMBER_BITS | o->list[i].from)};
		checkpoint_put(arg, 0, &r, NULL, 0);
	}
}

void layers_write(struct proc *p, struct checkpoint_writing *w)
{
	omap_each(&p->operations, write_operations, w);
	omap_each(&p->layers, write_thread, w);
}

void layers_set_forwards(struct proc *p, uint32_t tid, uint32_t n)
{
	struct layers_thread *th = thread_of(p, tid);

	if (th)
		th->forwards = n;
}
