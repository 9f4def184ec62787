/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The judge is glibc's backtrace(): it uses the unwinder of libgcc, which shares no line with
 * ours. Frame 0 of both is the place of the call itself and differs; all others must be equal.
 */
#include "unwind/native/native.h"

#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "test.h"
#include "unwind/native/cfi.h"
#include "unwind/native/modules.h"
#include "unwind/native/span.h"

#define MAX 200
#define NOINLINE __attribute__((noinline))
#define KEEP_FRAME() __asm__ volatile("" ::: "memory")

static _Atomic unsigned modules;
static _Atomic unsigned depth_seen;
static _Atomic int sink;

static void on_module(const struct native_module *m, void *arg)
{
	(void)arg;
	if (m->start < m->end && m->path && m->path[0])
		modules++;
}

static NOINLINE bool is_same(bool loud)
{
	uint64_t ours[MAX], theirs[MAX];
	unsigned n = native_capture(ours, MAX, 0, on_module, NULL);
	unsigned m = (unsigned)backtrace((void **)theirs, MAX);
	unsigned i = 1;

	if (m > n && theirs[1] != ours[1]) /* a sanitizer's backtrace() has a frame of its own */
		memmove(theirs, theirs + 1, --m * sizeof(theirs[0]));
	while (i < n && i < m && ours[i] == theirs[i])
		i++;
	depth_seen = n;
	if (n == m && i == n)
		return true;
	for (unsigned k = 0; loud && k < (n > m ? n : m); k++)
		fprintf(stderr, "%u %llx %llx\n", k, k < n ? (unsigned long long)ours[k] : 0,
			k < m ? (unsigned long long)theirs[k] : 0);
	return false;
}

static NOINLINE void check_same(void)
{
	CHECK(is_same(true));
	KEEP_FRAME();
}

static NOINLINE void recurse(unsigned n)
{
	if (n)
		recurse(n - 1);
	else
		check_same();
	KEEP_FRAME();
}

TEST(native, recursion)
{
	recurse(0);
	CHECK(depth_seen > 4);
	recurse(40);
	CHECK(depth_seen > 44);
	recurse(40);
}

static NOINLINE void with_alloca(unsigned n)
{
	char *p = alloca(n * 24 + 1);

	p[0] = (char)n;
	sink += p[0];
	if (n)
		with_alloca(n - 1);
	else
		check_same();
	sink += p[0];
}

static NOINLINE void with_big_frame(void)
{
	char big[300000];

	big[sink & 1] = 1;
	KEEP_FRAME();
	recurse(3);
	sink += big[1];
}

/* A realigned stack: the frame address is loaded from memory. */
static NOINLINE void with_alignment(unsigned n)
{
	char block[128] __attribute__((aligned(128)));
	char *p = alloca(n * 16 + 1);

	__asm__ volatile("" : : "r"(block), "r"(p) : "memory");
	if (n)
		with_alignment(n - 1);
	else
		check_same();
	__asm__ volatile("" : : "r"(block), "r"(p) : "memory");
}

TEST(native, odd_frames)
{
	with_alloca(10);
	with_big_frame();
	with_alignment(5);
}

static int compare(const void *a, const void *b)
{
	recurse(1);
	return *(const int *)a - *(const int *)b;
}

TEST(native, through_qsort)
{
	int v[] = {3, 1, 2, 9, 4};

	qsort(v, 5, sizeof(v[0]), compare);
	CHECK(v[4] == 9);
}

static void on_signal(int sig)
{
	(void)sig;
	recurse(2);
}

TEST(native, signal_handler)
{
	struct sigaction sa = {.sa_handler = on_signal};

	CHECK(!sigaction(SIGUSR1, &sa, NULL));
	recurse(0); /* lets backtrace() load libgcc */
	raise(SIGUSR1);
	unsigned plain = depth_seen;
	recurse(0);
	CHECK(plain > depth_seen);
}

TEST(native, alternate_signal_stack)
{
	static char room[65536];
	stack_t alt = {.ss_sp = room, .ss_size = sizeof(room)};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};

	CHECK(!sigaltstack(&alt, NULL) && !sigaction(SIGUSR1, &sa, NULL));
	recurse(0);
	unsigned plain = depth_seen;
	raise(SIGUSR1);
	CHECK(depth_seen > plain + 2);
	recurse(5);
}

static void *thread_main(void *arg)
{
	for (int i = 0; i < 200; i++)
		recurse((unsigned)i % 30);
	with_alloca(5);
	return arg;
}

TEST(native, threads)
{
	pthread_t t[8];

	for (int i = 0; i < 8; i++)
		CHECK(!pthread_create(&t[i], NULL, thread_main, NULL));
	for (int i = 0; i < 8; i++)
		CHECK(!pthread_join(t[i], NULL));
}

typedef int (*sqlite_open)(const char *, void **);
typedef int (*sqlite_close)(void *);
typedef int (*sqlite_row)(void *, int, char **, char **);
typedef int (*sqlite_exec)(void *, const char *, sqlite_row, void *, char **);

static int on_row(void *arg, int n, char **value, char **name)
{
	(void)n;
	(void)value;
	(void)name;
	++*(int *)arg;
	recurse(1);
	return 0;
}

TEST(native, through_a_loaded_library)
{
	void *lib = dlopen("libsqlite3.so.0", RTLD_NOW);
	void *db;
	int rows = 0;

	NEEDS(lib, "libsqlite3", "no library to load");
	sqlite_open open_db = (sqlite_open)dlsym(lib, "sqlite3_open");
	sqlite_close close_db = (sqlite_close)dlsym(lib, "sqlite3_close");
	sqlite_exec exec = (sqlite_exec)dlsym(lib, "sqlite3_exec");
	recurse(0);
	unsigned before = modules;
	CHECK(open_db && close_db && exec && open_db(":memory:", &db) == 0);
	CHECK(exec(db, "select 1 union select 2", on_row, &rows, NULL) == 0);
	CHECK_INT(rows, 2);
	CHECK_INT(modules, before + 1);
	CHECK(close_db(db) == 0);
}

static ucontext_t main_context, fiber_context;

static void fiber_main(void)
{
	recurse(3);
	swapcontext(&fiber_context, &main_context);
	recurse(7);
}

TEST(native, coroutine)
{
	size_t size = 65536;
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(stack != MAP_FAILED && !getcontext(&fiber_context));
	recurse(0);
	fiber_context.uc_stack.ss_sp = stack;
	fiber_context.uc_stack.ss_size = size;
	fiber_context.uc_link = &main_context;
	makecontext(&fiber_context, fiber_main, 0);
	swapcontext(&main_context, &fiber_context);
	recurse(4);
	swapcontext(&main_context, &fiber_context);
	munmap(stack, size);
	recurse(2);
}

static NOINLINE unsigned hook(uint64_t *out, unsigned max)
{
	unsigned n = native_capture(out, max, (uint64_t)(uintptr_t)__builtin_return_address(0),
				    on_module, NULL);

	KEEP_FRAME();
	return n;
}

static NOINLINE void inner_hook(uint64_t *out, uint64_t from, unsigned max, unsigned *out_n)
{
	*out_n = native_capture(out, max, from, on_module, NULL);
	KEEP_FRAME();
}

TEST(native, begins_at_the_hooks_caller)
{
	uint64_t out[MAX], other[MAX];
	unsigned n = hook(out, MAX), m;

	CHECK(n > 3);
	m = (unsigned)backtrace((void **)other, MAX);
	CHECK(m == n || m == n + 1); /* a sanitizer's backtrace() has a frame of its own */
	CHECK(!memcmp(out + 1, other + 1 + (m - n), (n - 1) * 8));
	CHECK_INT(hook(out, 1), 1);
	CHECK_INT(hook(out, 0), 0);
	inner_hook(out, 12345, MAX, &m); /* no such frame: all of them */
	CHECK_INT(m, n + 1); /* with its own */
	inner_hook(out, 12345, 2, &m);
	CHECK_INT(m, 2);
}

#define DEEP 8000

static NOINLINE void deep(unsigned n)
{
	uint64_t out[4];
	volatile char pad[64];

	pad[0] = (char)n;
	if (n)
		deep(n - 1);
	else
		for (int i = 0; i < 3; i++)
			CHECK_INT(native_capture(out, 4, 0, on_module, NULL), 4);
	sink += pad[0];
}

TEST(native, deep_recursion)
{
	static uint64_t many[1000];

	deep(DEEP);
	deep(10);
	deep(DEEP);
	CHECK(native_capture(many, 1000, 0, on_module, NULL) < 20);
}

/* What calls the frames that were asked for is looked for in the program alone, and not where one of
 * those is of it. */
static NOINLINE void check_program(unsigned n, struct native_program *p, unsigned max)
{
	volatile char pad[64];
	uint64_t out[4];

	pad[0] = (char)n;
	if (n)
		check_program(n - 1, p, max);
	else
		CHECK_INT(native_capture_program(out, max, p, 0, on_module, NULL), max);
	sink += pad[0];
}

TEST(native, goes_on_to_the_program)
{
	uint64_t all[MAX];
	unsigned n = native_capture(all, MAX, 0, on_module, NULL);
	uint64_t caller = all[n - 3]; /* no other frame of this stack is within some bytes of it */
	struct native_program p = {.start = caller, .end = caller + 1};

	check_program(20, &p, 4);
	CHECK_INT(p.n, 1);
	CHECK(p.pc[0] == caller);
	CHECK(p.left_out >= 15);
	/* more than are ever kept; all frames are of it */
	p = (struct native_program){.start = 1, .end = ~0ull};
	check_program(20, &p, 4);
	CHECK_INT(p.n, 0);
	/* not known, or nowhere */
	p = (struct native_program){0};
	check_program(20, &p, 4);
	CHECK(!p.n && !p.left_out);
	p = (struct native_program){.start = 16, .end = 32};
	check_program(20, &p, 4);
	CHECK_INT(p.n, 0);
}

TEST(native, keeps_errno_and_reports_after_forget)
{
	uint64_t out[MAX];

	native_capture(out, MAX, 0, on_module, NULL);
	unsigned first = modules;
	CHECK(first >= 2);
	errno = 4711;
	native_capture(out, MAX, 0, on_module, NULL);
	CHECK_INT(modules, first);
	native_forget();
	native_capture(out, MAX, 0, on_module, NULL);
	CHECK_INT(modules, 2 * first);
	CHECK_INT(errno, 4711);
}

TEST(native, object_replaced_by_another)
{
	struct native_object a = {.start = 0x10000, .end = 0x30000, .bias = 1, .name = "/a.so"};
	struct native_object b = {.start = 0x20000, .end = 0x40000, .bias = 2, .name = "/b.so"};

	CHECK(!native_object_report(&a, on_module, NULL) && modules == 1);
	CHECK(!native_object_report(&a, on_module, NULL) && modules == 1);
	CHECK(native_object_report(&b, on_module, NULL) && modules == 2);
	CHECK(native_object_report(&a, on_module, NULL) && modules == 3);
}

static char own_path[512];

static void on_own_module(const struct native_module *m, void *arg)
{
	uint64_t here = (uint64_t)(uintptr_t)on_own_module;

	(void)arg;
	if (here >= m->start && here < m->end)
		snprintf(own_path, sizeof(own_path), "%s", m->path);
}

TEST(native, knows_its_own_path)
{
	uint64_t out[MAX];
	char exe[512] = "";

	native_capture(out, MAX, 0, on_own_module, NULL);
	CHECK(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	CHECK_STR(own_path, exe);
}

TEST(native, span)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t a = (uint64_t)(uintptr_t)p;

	CHECK(p != MAP_FAILED && !mprotect(p + 4096, 4096, PROT_NONE));
	CHECK(span_readable(a) && !span_readable(a + 4096) && !span_readable(0));
	struct span s = {a, a + 4096};
	CHECK(span_grow(&s, a + 4096) && !span_grow(&s, a + 4097) && !span_grow(&s, ~0ull));
	CHECK_INT(s.hi - a, 4096);
}

#if defined(__x86_64__)

/* Code without unwind information; the frame pointer is set by it or spoilt. */
static unsigned through_code(const uint8_t *code, size_t len, void (*fn)(void))
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(page != MAP_FAILED);
	memcpy(page, code, len);
	depth_seen = 0;
	((void (*)(void (*)(void)))(uintptr_t)page)(fn);
	munmap(page, 4096);
	return depth_seen;
}

static NOINLINE void capture_only(void)
{
	uint64_t out[MAX];

	depth_seen = native_capture(out, MAX, 0, on_module, NULL);
}

TEST(native, code_without_unwind_information)
{
	/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
	static const uint8_t framed[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
	/* push %rbp; mov $0x1234567890abcdef,%rbp; call *%rdi; pop %rbp; ret */
	static const uint8_t spoilt[] = {0x55, 0x48, 0xbd, 0xef, 0xcd, 0xab, 0x90, 0x78,
					 0x56, 0x34, 0x12, 0xff, 0xd7, 0x5d, 0xc3};
	/* push %rbp; lea 0x7f0000(%rsp),%rbp; call *%rdi; pop %rbp; ret */
	static const uint8_t far[] = {0x55, 0x48, 0x8d, 0xac, 0x24, 0x00, 0x00,
				      0x7f, 0x00, 0xff, 0xd7, 0x5d, 0xc3};
	/* push %rbp; lea 3(%rsp),%rbp; call *%rdi; pop %rbp; ret */
	static const uint8_t crooked[] = {0x55, 0x48, 0x8d, 0x6c, 0x24,
					  0x03, 0xff, 0xd7, 0x5d, 0xc3};

	CHECK(through_code(framed, sizeof(framed), capture_only) > 6);
	CHECK_INT(through_code(spoilt, sizeof(spoilt), capture_only), 2);
	CHECK_INT(through_code(far, sizeof(far), capture_only), 2);
	CHECK_INT(through_code(crooked, sizeof(crooked), capture_only), 2);
}

#else

TEST(native, code_without_unwind_information)
{
	NEEDS(false, "x86-64", "the code is for that processor");
}

#endif

#if defined(__x86_64__) && !TEST_TSAN /* which puts signals off */

/* The processor's trap flag: a comparison after every single instruction. */
static volatile unsigned steps, bad;
static volatile bool stepping; /* not in set_trap(), which moves the stack pointer by itself */

static void on_step(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	(void)context;
	if (!stepping)
		return;
	steps++;
	if (!is_same(bad == 0))
		bad++;
}

static void set_trap(bool on)
{
	if (on)
		__asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
	else
		__asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

static int plain_compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static NOINLINE void with_alignment_quietly(unsigned n)
{
	char block[128] __attribute__((aligned(128)));
	char *p = alloca(n * 16 + 1);

	__asm__ volatile("" : : "r"(block), "r"(p) : "memory");
	if (n)
		with_alignment_quietly(n - 1);
	__asm__ volatile("" : : "r"(block), "r"(p) : "memory");
}

static NOINLINE void workload(void)
{
	int v[] = {5, 3, 9, 1, 7, 2};
	char text[128], block[128] __attribute__((aligned(128)));
	char *p = alloca((size_t)v[0] * 16);

	stepping = true;
	memset(block, v[1], sizeof(block));
	with_alignment_quietly(3);
	qsort(v, 6, sizeof(v[0]), plain_compare);
	snprintf(text, sizeof(text), "%d %s %f %p", v[0], "text", 1.5, (void *)text);
	p[0] = text[0];
	free(malloc(1000));
	sink += (int)strtol("123", NULL, 10) + p[0] + block[3] + (int)getpgrp();
	stepping = false;
}

static void step_through(bool alt)
{
	static char room[65536];
	stack_t ss = {.ss_sp = room, .ss_size = sizeof(room)};
	struct sigaction sa = {.sa_sigaction = on_step,
			       .sa_flags = SA_SIGINFO | (alt ? SA_ONSTACK : 0)};

	is_same(true); /* lets backtrace() load libgcc */
	CHECK(!sigaltstack(&ss, NULL) && !sigaction(SIGTRAP, &sa, NULL));
	set_trap(true);
	workload();
	set_trap(false);
	CHECK(steps > 1000);
	CHECK_INT(bad, 0);
}

TEST(native, every_instruction)
{
	step_through(false);
}

TEST(native, every_instruction_on_another_stack)
{
	step_through(true);
}

#else

TEST(native, every_instruction)
{
	SKIP("needs the trap flag of x86-64, and no thread sanitizer");
}

TEST(native, every_instruction_on_another_stack)
{
	SKIP("needs the trap flag of x86-64, and no thread sanitizer");
}

#endif

/* --- hostile unwind information --- */

#if defined(__has_feature)
#	if __has_feature(address_sanitizer)
#		define SANITIZES_ADDRESSES 1
#	endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#	define SANITIZES_ADDRESSES 1
#endif
#ifndef SANITIZES_ADDRESSES
#	define SANITIZES_ADDRESSES 0
#else
void __asan_poison_memory_region(void const volatile *at, size_t n);
void __asan_unpoison_memory_region(void const volatile *at, size_t n);
#endif

static struct cfi_view own_view(uint64_t pc)
{
	struct native_object o;

	CHECK(native_object_find(pc, &o) && o.cfi.size);
	return o.cfi;
}

typedef uint64_t any_word __attribute__((aligned(1), may_alias));

/* The segment holds the red zones of a sanitizer, too. */
__attribute__((no_sanitize_address)) static void copy_bytes(uint8_t *to, const uint8_t *from,
							    uint64_t n)
{
	const volatile uint8_t *p = from;
	uint64_t i = 0;

	for (; i + sizeof(any_word) <= n; i += sizeof(any_word))
		*(volatile any_word *)(to + i) = *(const volatile any_word *)(p + i);
	for (; i < n; i++)
		to[i] = p[i];
}

static void shrink_view(struct cfi_view *v)
{
	/* From the search table on: what lies before (and is large) plays no part. */
	uint64_t off = v->hdr - v->va;

	v->data += off;
	v->va += off;
	v->size -= off;
}

/* What lies from `at` on is not to be touched any more; only a sanitizer sees whether it is. */
static void forbid(const uint8_t *at, uint64_t n)
{
#if SANITIZES_ADDRESSES
	__asan_poison_memory_region(at, n);
#else
	(void)at;
	(void)n;
#endif
}

static void allow(const uint8_t *at, uint64_t n)
{
#if SANITIZES_ADDRESSES
	__asan_unpoison_memory_region(at, n);
#else
	(void)at;
	(void)n;
#endif
}

TEST(native, truncated_unwind_information)
{
	uint64_t pc = (uint64_t)(uintptr_t)recurse + 8;
	struct cfi_view v = own_view(pc);
	uint64_t want = cfi_rule(&v, pc);

	CHECK(want != RULE_NONE);
	shrink_view(&v);
	CHECK(cfi_rule(&v, pc) == want);
	unsigned found = 0;
	uint64_t stride = v.size / 2000 | 1;
	uint8_t *copy = malloc(v.size); /* one for all: cut shorter and shorter */
	copy_bytes(copy, v.data, v.size);
	for (uint64_t size = v.size; size > 0;) {
		struct cfi_view cut = v;
		uint64_t less = size > 4096 + stride ? stride : 1;

		size -= less;
		forbid(copy + size, less);
		cut.data = copy;
		cut.size = size;
		uint64_t got = cfi_rule(&cut, pc);
		CHECK(got == want || got == RULE_NONE);
		found += got == want;
	}
	CHECK(found > 0);
	allow(copy, v.size);
	free(copy);
}

TEST(native, random_damage)
{
	uint64_t pc = (uint64_t)(uintptr_t)recurse + 8;
	struct cfi_view v = own_view(pc);
	uint32_t seed = 12345;

	shrink_view(&v);
	if (v.size > 65536)
		v.size = 65536;
	uint8_t *copy = malloc(v.size);
	for (int round = 0; round < 20000; round++) {
		if (round % 100 == 0)
			copy_bytes(copy, v.data, v.size);
		seed = seed * 1664525 + 1013904223;
		copy[(seed >> 8) % v.size] ^= (uint8_t)seed | 1;
		struct cfi_view broken = v;
		broken.data = copy;
		sink = (int)cfi_rule(&broken, pc + (seed >> 28) * 16);
	}
	free(copy);
}
