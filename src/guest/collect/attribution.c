/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which module of a model, and which line of the user's program, launches what a device executes.
 *
 *	Python's hooks of modules      collect_work(): this thread is in that module
 *	the vendor's library, at each  collect_work_launch(): has module, line or operation changed
 *	launch, in the same thread     since it was last told? Only then is there a record (REC_WORK)
 *	the vendor's library, later    collect_launch(): the launch itself, by its thread and time
 *
 * Outside of our process the last record of a thread before a launch says whose it is: nothing is
 * put into the vendor's library, and a launch costs a few loads.
 *
 * Gradients: autograd numbers the operations of a forward pass (`sequence`). A thread that computes
 * gradients says which operation it is at, and the module and line are those in which that
 * operation was. An operation has got its number when it launches something. So numbers given since
 * the last look belong to the state that is found at a launch, and at a border of modules to the
 * state before.
 */
#include "guest/collect/put.h"
#include "guest/runtime/guest.h"

#define NUMBER_MASK ((1ull << WORK_THREAD_SHIFT) - 1)

/* What this thread does, and what of it has been told. Static TLS is scarce. */
static __thread struct {
	uint64_t layer, sent_layer;
	uint64_t sequence; /* at the last look */
	uint64_t sent_sequence; /* of a gradient; else 0 */
	uint32_t line; /* 0: look for it */
	uint32_t sent_line;
	uint32_t epoch; /* in which it was told, and in which `line` means something */
	uint8_t sent_kind;
} here __attribute__((tls_model("initial-exec")));

static _Atomic bool is_on;
static _Atomic bool has_autograd;
static struct collect_autograd autograd;

void collect_work_switch(bool on)
{
	atomic_store(&is_on, on);
}

void collect_autograd(const struct collect_autograd *found)
{
	if (atomic_load(&has_autograd))
		return;
	autograd = *found;
	atomic_store_explicit(&has_autograd, true, memory_order_release);
}

static bool knows_autograd(void)
{
	return atomic_load_explicit(&has_autograd, memory_order_acquire);
}

static uint64_t sequence_now(void)
{
	if (!knows_autograd())
		return WORK_NO_SEQUENCE;
	return (autograd.sequence() & NUMBER_MASK) | autograd.thread() << WORK_THREAD_SHIFT;
}

/* With a hold. What was told in another arena is not known in this one. */
static void check_epoch(void)
{
	if (here.epoch == guest_self.epoch)
		return;
	here.epoch = guest_self.epoch;
	here.line = here.sent_line = 0;
	here.sent_layer = here.sent_sequence = 0;
	here.sent_kind = WORK_FORWARD;
}

static void put_work(uint8_t kind, uint64_t sequence, uint32_t line, uint64_t wall_ns)
{
	struct rec_work *r = guest_reserve(sizeof(*r));

	if (!r)
		return;
	*r = (struct rec_work){
		.head = {REC_WORK, 0, sizeof(*r), 0, guest_now()},
		.wall_ns = wall_ns,
		.layer = kind == WORK_FORWARD ? here.layer : 0,
		.sequence = sequence,
		.line = line,
		.kind = kind,
	};
	guest_publish(sizeof(*r));
	here.sent_kind = kind;
	here.sent_layer = r->layer;
	here.sent_line = line;
	here.sent_sequence = kind == WORK_BACKWARD ? sequence : 0;
}

/* since: the number of the first operation that belongs to it. */
static void emit_forward(uint64_t since, uint64_t wall_ns)
{
	bool held = guest_hold(RING_PENDING_NOW);

	check_epoch();
	uint32_t line = here.line ? here.line : guest_python_users();
	if (here.sent_kind != WORK_FORWARD || here.sent_layer != here.layer ||
	    here.sent_line != line)
		put_work(WORK_FORWARD, since, line, wall_ns);
	guest_unhold(held);
}

enum { NO_GRADIENT, GRADIENT, ADDING_ONE };

/* Whose gradient this thread computes. Adding one to a parameter has no number: it goes with what
 * was before. */
static int gradient_now(uint64_t *out)
{
	const char *node = knows_autograd() ? autograd.node() : NULL;
	uint64_t number, thread;

	if (!node)
		return NO_GRADIENT;
	memcpy(&number, node + autograd.sequence_at, sizeof(number));
	memcpy(&thread, node + autograd.thread_at, sizeof(thread));
	*out = (number & NUMBER_MASK) | thread << WORK_THREAD_SHIFT;
	return number == UINT64_MAX ? ADDING_ONE : GRADIENT;
}

/* False: no gradient is computed. */
static bool emit_backward(uint64_t wall_ns)
{
	uint64_t sequence = 0;
	int what = gradient_now(&sequence);

	if (what == NO_GRADIENT)
		return false;
	if (what == ADDING_ONE ||
	    (here.sent_kind == WORK_BACKWARD && here.sent_sequence == sequence &&
	     here.epoch == guest_epoch_now()))
		return true;
	bool held = guest_hold(RING_PENDING_NOW);
	check_epoch();
	put_work(WORK_BACKWARD, sequence, 0, wall_ns);
	guest_unhold(held);
	return true;
}

void collect_work(uint64_t layer, uint32_t line)
{
	if (guest_mode() < GUEST_SHADOW)
		return;
	here.layer = layer;
	here.line = line;
	here.sequence = sequence_now();
	if (layer && line)
		emit_forward(here.sequence, guest_wall_now());
}

uint32_t collect_users_line(void)
{
	if (guest_mode() < GUEST_SHADOW)
		return 0;
	bool held = guest_hold(RING_PENDING_NOW);
	check_epoch();
	uint32_t line = guest_python_users();
	guest_unhold(held);
	return line;
}

/* In a module whose line is known; these change at its borders alone, where operations are looked at, too. */
static bool is_sent(void)
{
	return here.layer && here.line && here.sent_kind == WORK_FORWARD &&
	       here.sent_layer == here.layer && here.sent_line == here.line &&
	       here.epoch == guest_epoch_now();
}

void collect_work_launch(uint64_t wall_ns)
{
	if (!atomic_load_explicit(&is_on, memory_order_relaxed) || is_sent() ||
	    guest_mode() < GUEST_SHADOW)
		return;
	uint64_t since = here.sequence;
	here.sequence = sequence_now();
	if (here.layer || !emit_backward(wall_ns))
		emit_forward(since ? since : here.sequence, wall_ns);
}

void collect_launch(uint64_t correlation, uint32_t tid, uint64_t wall_ns)
{
	if (guest_mode() < GUEST_SHADOW)
		return;
	struct put p = put_begin(REC_LAUNCH, sizeof(struct rec_launch), NULL);
	struct rec_launch *r = p.rec;
	if (r) {
		r->wall_ns = wall_ns;
		r->correlation = correlation;
		r->tid = tid;
	}
	put_end(&p);
}

/*
 * --- memory ---
 *
 * Autograd is asked from within malloc(), too, and answers by a variable of its own thread. So it
 * is not asked again while it does, as making that variable allocates; not where the dynamic loader
 * allocates, which does so while it makes such variables; and there only in threads that have
 * called a module.
 */
_Atomic bool work_follows_gradients;

static __thread struct {
	uint64_t sent; /* one more than the operation whose gradient is computed; 0: none is */
	uint32_t epoch;
	bool has_modules, asking;
} gradient __attribute__((tls_model("initial-exec")));

void collect_follow_gradients(bool on)
{
	atomic_store(&work_follows_gradients, on && knows_autograd());
}

static void put_layer(uint8_t kind, uint64_t layer, uint64_t addr, uint64_t bytes)
{
	struct put p = put_begin(REC_LAYER, sizeof(struct rec_layer), NULL);
	struct rec_layer *r = p.rec;

	if (r) {
		r->layer = layer;
		r->addr = addr;
		r->bytes = bytes;
		r->kind = kind;
	}
	put_end(&p);
}

/* Operations that get a number from now on are those of the module that is entered, or gone on
 * with. */
void collect_layer(uint8_t kind, uint64_t layer, uint64_t addr, uint64_t bytes)
{
	if (guest_mode() < GUEST_SHADOW)
		return;
	if (kind != LAYER_ADDR &&
	    atomic_load_explicit(&work_follows_gradients, memory_order_relaxed)) {
		addr = 1 + sequence_now();
		if (!gradient.has_modules)
			(void)autograd.node(); /* now its variables are there */
		gradient.has_modules = true;
	}
	put_layer(kind, layer, addr, bytes);
}

/* Small blocks of the host are mostly of no tensors, and there are many. */
static bool may_ask(const struct collect_block *b, const void *caller)
{
	uintptr_t from = (uintptr_t)caller;

	if (b->pool != POOL_HOST && b->pool != POOL_PYTHON)
		return !gradient.asking;
	return gradient.has_modules && !gradient.asking && b->size_bytes > 512 &&
	       b->pool == POOL_HOST && !(from >= autograd.loader_from && from < autograd.loader_to);
}

/* Before an allocation: whose gradient needs it, if that has changed. */
void work_emit_gradient(const struct collect_block *b, const void *caller)
{
	uint64_t sequence = 0;

	if (!may_ask(b, caller))
		return;
	gradient.asking = true;
	int what = gradient_now(&sequence);
	gradient.asking = false;
	uint64_t now = what == NO_GRADIENT ? 0 : sequence + 1;
	if (gradient.epoch != guest_self.epoch)
		gradient.sent = 0;
	if (what == ADDING_ONE || gradient.sent == now)
		return;
	gradient.epoch = guest_self.epoch;
	gradient.sent = now;
	put_layer(LAYER_GRADIENT, 0, now, 0);
}
