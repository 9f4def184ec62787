/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * NVTX: each object of the job that uses it has its own copy, and the copy asks for a tool at its
 * first call: at the path in NVTX_INJECTION64_PATH, or else a variable that a tool may define
 * (preloaded, ours is the one that is found; otherwise device/cuda/activity/other_profilers.c sets
 * theirs). It hands us its table of functions. Nothing here may depend on being called once.
 *
 * While off a mark costs one load, and a range a look at the first character of its message: some
 * are steps of the job. Ranges are reported if they begin while on; of those that are pushed each
 * thread keeps the ids, which belong to the period in which it is on.
 */
#include "device/cuda/activity/cupti.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define DOMAINS 128
#define DOMAIN_BYTES 64
#define STRINGS_BYTES (1u << 20) /* for texts that programs register */
#define DEPTH 32

static _Atomic uint32_t period; /* odd: on */
static void (*_Atomic range_begins)(const char *message);

/* Names of domains and registered texts live as long as the process. */
static char domains[DOMAINS][DOMAIN_BYTES];
static _Atomic uint32_t ndomains;
static char *_Atomic strings;
static _Atomic uint32_t string_bytes;

static __thread struct {
	uint32_t period;
	uint32_t depth; /* of what was pushed in that period */
	uint32_t epoch, process, thread; /* who this is, under that epoch */
	uint32_t ids[DEPTH]; /* few bytes: what is loaded late has little room for these */
} mine __attribute__((tls_model("initial-exec")));

void nvtx_switch(bool on)
{
	uint32_t now = atomic_load(&period);

	if ((now & 1) != on)
		atomic_store(&period, now + 1);
}

static inline bool is_on(void)
{
	return atomic_load_explicit(&period, memory_order_relaxed) & 1;
}

void nvtx_on_range(void (*fn)(const char *message))
{
	atomic_store(&range_begins, fn);
}

__attribute__((noinline)) static void report_step(const char *message)
{
	void (*fn)(const char *) = atomic_load(&range_begins);

	if (fn)
		fn(message);
}

/* Before the range itself, which is the first thing in that step. */
static inline void check_step(const char *message)
{
	if (message && message[0] == ACTIVITY_STEP_MESSAGE[0])
		report_step(message);
}

/* A thread of a forked child has another number than the one that it is a copy of. */
static void find_self(struct collect_activity *a)
{
	uint32_t epoch = collect_epoch();

	if (!mine.process || mine.epoch != epoch) {
		mine.process = (uint32_t)syscall(SYS_getpid);
		mine.thread = (uint32_t)syscall(SYS_gettid);
		mine.epoch = epoch;
	}
	a->where[0] = mine.process;
	a->where[1] = mine.thread;
}

static void emit_mark(uint8_t flag, uint64_t id, const char *text, const char *domain)
{
	struct timespec t;
	struct collect_activity a = {
		.kind = ACTIVITY_MARKER,
		.flag = flag,
		.place = ACTIVITY_ON_HOST,
		.correlation = id,
		.name = text,
		.detail = domain,
	};

	clock_gettime(CLOCK_REALTIME, &t);
	a.start_ns = a.end_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	find_self(&a);
	cupti_emit(&a);
}

/* --- texts and domains: handles come back through foreign hands --- */

static const char *domain_name(const void *handle)
{
	uintptr_t at = (uintptr_t)handle - (uintptr_t)domains;

	return at < sizeof(domains) && at % DOMAIN_BYTES == 0 ? handle : "";
}

static const char *registered(const void *handle)
{
	char *base = atomic_load_explicit(&strings, memory_order_acquire);
	uintptr_t at = (uintptr_t)handle - (uintptr_t)base;

	return base && handle && at < STRINGS_BYTES ? handle : NULL;
}

static const char *text_of(const struct nvtx_event *e)
{
	if (!e || e->size < sizeof(*e))
		return NULL;
	if (e->message_type == NVTX_ASCII)
		return e->message;
	return e->message_type == NVTX_REGISTERED ? registered(e->message) : NULL;
}

/* No room: NULL, and what is named so has no name. */
static void *on_register_string(void *domain, const char *text)
{
	char *base = atomic_load(&strings), *none = NULL;
	size_t len = text ? strnlen(text, REC_MAX_TEXT) : 0;

	(void)domain;
	if (!text || atomic_load(&string_bytes) > STRINGS_BYTES - REC_MAX_TEXT - 1)
		return NULL;
	if (!base) {
		base = mmap(NULL, STRINGS_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (base == MAP_FAILED)
			return NULL;
		if (!atomic_compare_exchange_strong(&strings, &none, base)) {
			munmap(base, STRINGS_BYTES);
			base = none;
		}
	}
	uint32_t at = atomic_fetch_add(&string_bytes, (uint32_t)len + 1);
	if (at > STRINGS_BYTES - REC_MAX_TEXT - 1)
		return NULL;
	memcpy(base + at, text, len);
	return base + at;
}

static void *on_domain_create(const char *name)
{
	uint32_t n = atomic_load(&ndomains);

	if (!name)
		return NULL;
	for (uint32_t i = 0; i < n && i < DOMAINS; i++)
		if (!strncmp(domains[i], name, DOMAIN_BYTES - 1))
			return domains[i];
	n = atomic_fetch_add(&ndomains, 1);
	if (n >= DOMAINS) {
		atomic_store(&ndomains, DOMAINS);
		return NULL;
	}
	size_t len = strnlen(name, DOMAIN_BYTES - 1);
	memcpy(domains[n], name, len);
	return domains[n];
}

static void on_domain_destroy(void *domain)
{
	(void)domain; /* domains are few, named, and may be created again */
}

/* --- marks and ranges --- */

static uint64_t start_range(const char *text, const char *domain)
{
	uint64_t id = collect_range_id();

	emit_mark(ACTIVITY_MARK_START, id, text, domain);
	return id;
}

static int push_range(const char *text, const char *domain)
{
	uint32_t now = atomic_load_explicit(&period, memory_order_relaxed);

	if (mine.period != now) {
		mine.period = now;
		mine.depth = 0;
	}
	uint32_t level = mine.depth++;
	if (level < DEPTH) {
		mine.ids[level] = (uint32_t)collect_range_id();
		emit_mark(ACTIVITY_MARK_START, mine.ids[level], text, domain);
	}
	return (int)level;
}

static int pop_range(const char *domain)
{
	if (mine.period != atomic_load_explicit(&period, memory_order_relaxed) || !mine.depth)
		return NVTX_NOT_TRACKED;
	uint32_t level = --mine.depth;
	if (level < DEPTH)
		emit_mark(ACTIVITY_MARK_END, mine.ids[level], NULL, domain);
	return (int)level;
}

static void on_mark(const char *text)
{
	if (is_on())
		emit_mark(ACTIVITY_MARK_INSTANT, 0, text, "");
}

static void on_mark_event(const struct nvtx_event *e)
{
	if (is_on())
		emit_mark(ACTIVITY_MARK_INSTANT, 0, text_of(e), "");
}

static uint64_t on_start(const char *text)
{
	check_step(text);
	return is_on() ? start_range(text, "") : 0;
}

static uint64_t on_start_event(const struct nvtx_event *e)
{
	const char *text = text_of(e);

	check_step(text);
	return is_on() ? start_range(text, "") : 0;
}

static void on_end(uint64_t id)
{
	if (is_on() && id)
		emit_mark(ACTIVITY_MARK_END, id, NULL, "");
}

static int on_push(const char *text)
{
	check_step(text);
	return is_on() ? push_range(text, "") : NVTX_NOT_TRACKED;
}

static int on_push_event(const struct nvtx_event *e)
{
	const char *text = text_of(e);

	check_step(text);
	return is_on() ? push_range(text, "") : NVTX_NOT_TRACKED;
}

static int on_pop(void)
{
	return is_on() ? pop_range("") : NVTX_NOT_TRACKED;
}

static void on_domain_mark(const void *domain, const struct nvtx_event *e)
{
	if (is_on())
		emit_mark(ACTIVITY_MARK_INSTANT, 0, text_of(e), domain_name(domain));
}

static uint64_t on_domain_start(const void *domain, const struct nvtx_event *e)
{
	const char *text = text_of(e);

	check_step(text);
	return is_on() ? start_range(text, domain_name(domain)) : 0;
}

static void on_domain_end(const void *domain, uint64_t id)
{
	if (is_on() && id)
		emit_mark(ACTIVITY_MARK_END, id, NULL, domain_name(domain));
}

static int on_domain_push(const void *domain, const struct nvtx_event *e)
{
	const char *text = text_of(e);

	check_step(text);
	return is_on() ? push_range(text, domain_name(domain)) : NVTX_NOT_TRACKED;
}

static int on_domain_pop(const void *domain)
{
	return is_on() ? pop_range(domain_name(domain)) : NVTX_NOT_TRACKED;
}

/* --- the tables; those that are missing stay without a tool --- */

#define SLOT(fn) ((nvtx_slot)(fn))

static const nvtx_slot core[] = {
	[1] = SLOT(on_mark_event), [2] = SLOT(on_mark), [4] = SLOT(on_start_event),
	[5] = SLOT(on_start),	   [7] = SLOT(on_end),	[8] = SLOT(on_push_event),
	[9] = SLOT(on_push),	   [11] = SLOT(on_pop),
};
static const nvtx_slot core2[] = {
	[1] = SLOT(on_domain_mark),    [2] = SLOT(on_domain_start),
	[3] = SLOT(on_domain_end),     [4] = SLOT(on_domain_push),
	[5] = SLOT(on_domain_pop),     [10] = SLOT(on_register_string),
	[12] = SLOT(on_domain_create), [14] = SLOT(on_domain_destroy),
};

/* Fills what this NVTX has; ids at or past its size do not exist. */
static int fill_table(nvtx_module_fn get, int module, const nvtx_slot *slots, unsigned n)
{
	nvtx_slot **table = NULL;
	unsigned size = 0;

	if (!get(module, &table, &size) || !table)
		return 0;
	for (unsigned id = 1; id < n && id < size; id++)
		if (table[id] && slots[id])
			*table[id] = slots[id];
	return 1;
}

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

int InitializeInjectionNvtx2(nvtx_export_fn get)
{
	const struct nvtx_callbacks *c = get ? get(NVTX_CALLBACKS) : NULL;

	if (!c || c->struct_size < sizeof(*c) || !c->module)
		return 0;
	int filled = fill_table(c->module, NVTX_CORE, core, COUNT(core));
	filled += fill_table(c->module, NVTX_CORE2, core2, COUNT(core2));
	return filled > 0;
}

/* A preloaded tool without a path in the environment. */
extern EXPORT nvtx_init_fn InitializeInjectionNvtx2_fnptr;
EXPORT nvtx_init_fn InitializeInjectionNvtx2_fnptr = InitializeInjectionNvtx2;
