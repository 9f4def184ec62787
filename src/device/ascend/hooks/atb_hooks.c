/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * libatb_abi_0_hook.so and libatb_abi_1_hook.so: operators of the Ascend Transformer Boost library
 * and the kernels inside them. One source and one set of symbols for both names, since ATB's string
 * ABI shows in the symbols themselves; who preloads both gets each event once.
 *
 * An operator is always executed, whatever could or could not be found out about it.
 *
 * Kernels are seen by ATB's own means for saving tensors: its probes are asked "shall this be
 * saved?" before each kernel, and SaveLaunchParam() gets the kernel's tensors. While kernels are
 * wanted the probes are answered with yes, and SaveLaunchParam() passes on only what would have
 * been saved without us. Where another tool has replaced the probes, it alone decides.
 *
 * These are C frames between C++ ones: exceptions pass through (built with -fexceptions).
 */
#include "device/ascend/abi.h"
#include "device/ascend/hooks/atb_text.h"
#include "device/ascend/hooks/real.h"
#include "guest/collect/collect.h"

#include <errno.h>
#include <stdatomic.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

#define ATB_FAILED 1 /* any of ATB's codes but 0 */
#define MAX_TENSORS 4096u
#define MAX_DIMS 8u
#define NAME_BYTES 255
#define PATH_BYTES 601

enum hook {
	HOOK_EXECUTE,
	HOOK_SAVE_0,
	HOOK_SAVE_1,
	HOOK_NEED_0,
	HOOK_NEED_1,
	HOOK_AFTER,
	HOOK_BEFORE,
	HOOK_RANGE,
	HOOK_DESC,
	HOOK_IS_SAVE,
	HOOKS,
};

#define CXX11 "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

static const char *const symbols[HOOKS] = {
	[HOOK_EXECUTE] = "_ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE",
	[HOOK_SAVE_0] = "_ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKSs",
	[HOOK_SAVE_1] = "_ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERK" CXX11,
	[HOOK_NEED_0] = "_ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKSs",
	[HOOK_NEED_1] = "_ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERK" CXX11,
	[HOOK_AFTER] = "_ZN3atb5Probe17IsSaveTensorAfterEv",
	[HOOK_BEFORE] = "_ZN3atb5Probe18IsSaveTensorBeforeEv",
	[HOOK_RANGE] = "_ZN3atb5Probe21IsExecuteCountInRangeEm",
	[HOOK_DESC] = "_ZN3atb5Probe16IsSaveTensorDescEv",
	[HOOK_IS_SAVE] = "_ZNK3atb6Runner12IsSaveTensorEv",
};

static const char *const atb_libs[] = {"libatb.so", "libmki.so", NULL};
static const char *const cxx_libs[] = {"libstdc++.so.6", NULL};
static const char *const gcc_libs[] = {"libgcc_s.so.1", NULL};
static const char *const no_libs[] = {NULL};

typedef int32_t execute_fn(void *runner, void *pack);
typedef void save_fn(void *stream, const void *param, const void *dir);
typedef bool need_fn(const void *ids, const void *name);
typedef bool ask_fn(void);
typedef bool range_fn(uint64_t count);
typedef bool runner_fn(const void *runner);
typedef struct cxx_string string_fn(const void *runner);
typedef const struct mki_tensors *tensors_fn(const void *param);
typedef void destroy_fn(void *string);

/* --- finding things --- */

/* What one of our two libraries says about itself to the other. */
struct sonde_atb_hooks {
	void *(*find)(unsigned hook);
	void *hook[HOOKS];
};
static const struct sonde_atb_hooks own_hooks;
extern const struct sonde_atb_hooks sonde_atb_hooks EXPORT __attribute__((alias("own_hooks")));

/* The function behind a hook. A second library of ours in between is stepped over. */
static void *find_real(unsigned hook)
{
	const struct sonde_atb_hooks *other = dlsym(RTLD_NEXT, "sonde_atb_hooks");
	void *fn = dlsym(RTLD_NEXT, symbols[hook]);

	if (fn && other && fn == other->hook[hook])
		return other->find(hook);
	return fn ? fn : real_find(symbols[hook], NULL, atb_libs);
}

static _Atomic(void *) found[HOOKS];
static _Atomic bool foreign[HOOKS]; /* answered by another tool and not by ATB */

static void *find_slow(enum hook hook)
{
	int saved = errno;
	void *fn = find_real(hook);
	void *own = real_in_library(atb_libs[0], symbols[hook], RTLD_LAZY | RTLD_NOLOAD);

	atomic_store(&foreign[hook], fn && own && fn != own);
	atomic_store(&found[hook], fn);
	errno = saved;
	return fn;
}

static inline void *real_of(enum hook hook)
{
	void *fn = atomic_load_explicit(&found[hook], memory_order_acquire);

	return __builtin_expect(fn != NULL, 1) ? fn : find_slow(hook);
}

/* A function that is only good to have: looked for once, remembered if it is missing. */
struct helper {
	const char *name;
	const char *const *libs;
	_Atomic(void *) fn; /* `missing` after a search in vain */
};
static char missing;

static struct helper operation_name[] = {
	{"_ZNK3atb6Runner16GetOperationNameEv", atb_libs, NULL},
	{"_ZNK3atb6Runner16GetOperationNameB5cxx11Ev", atb_libs, NULL},
};
static struct helper save_dir[] = {
	{"_ZNK3atb6Runner16GetSaveTensorDirEv", atb_libs, NULL},
	{"_ZNK3atb6Runner16GetSaveTensorDirB5cxx11Ev", atb_libs, NULL},
};
static struct helper in_tensors = {"_ZN3Mki11LaunchParam12GetInTensorsEv", atb_libs, NULL};
static struct helper out_tensors = {"_ZN3Mki11LaunchParam13GetOutTensorsEv", atb_libs, NULL};
static struct helper destroy_string[] = {
	{"_ZNSsD1Ev", cxx_libs, NULL},
	{"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev", cxx_libs, NULL},
};
static struct helper heap_free = {"free", no_libs, NULL};
static struct helper personality = {"__gcc_personality_v0", gcc_libs, NULL};
static struct helper resume = {"_Unwind_Resume", gcc_libs, NULL};

static void *find_helper(struct helper *h)
{
	void *fn = atomic_load_explicit(&h->fn, memory_order_acquire);

	if (fn)
		return fn == &missing ? NULL : fn;
	int saved = errno;
	fn = dlsym(RTLD_DEFAULT, h->name);
	for (size_t i = 0; !fn && h->libs[i]; i++)
		fn = real_in_library(h->libs[i], h->name, RTLD_LAZY | RTLD_NOLOAD);
	atomic_store_explicit(&h->fn, fn ? fn : &missing, memory_order_release);
	errno = saved;
	return fn;
}

/* --- exceptions --- */

/*
 * The two functions that code with clean-ups needs to be unwound. Not linked from libgcc_s, which
 * would be loaded into every process of the job; looked up when an exception is really passing, and
 * then somebody has it. Otherwise (an unwinder linked statically) our clean-ups are left out.
 */
typedef int personality_fn(int version, int actions, uint64_t kind, void *exception, void *context);
#define CONTINUE_UNWIND 8
#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN personality_fn find_personality __asm__("__gcc_personality_v0");
HIDDEN void find_resume(void *exception) __asm__("_Unwind_Resume");

int find_personality(int version, int actions, uint64_t kind, void *exception, void *context)
{
	personality_fn *fn = (personality_fn *)find_helper(&personality);

	if (!fn || !find_helper(&resume))
		return CONTINUE_UNWIND;
	return fn(version, actions, kind, exception, context);
}

void find_resume(void *exception)
{
	((void (*)(void *))find_helper(&resume))(exception);
	__builtin_unreachable();
}

/* --- strings --- */

/* Up to room - 1 bytes, as a C string. */
static void copy_text(char *out, size_t room, const char *data, size_t size)
{
	size_t n = data ? strnlen(data, size < room - 1 ? size : room - 1) : 0;

	if (n)
		memcpy(out, data, n);
	out[n] = '\0';
}

static void read_string(char *out, size_t room, const void *string, bool cxx11)
{
	const struct cxx_string *s = string;

	if (!s || !s->data)
		copy_text(out, room, NULL, 0);
	else if (cxx11)
		copy_text(out, room, s->data, s->size);
	else
		copy_text(out, room, s->data, ((const struct cxx_old_head *)s->data - 1)->size);
}

/* Did the compiler take the string over into s from a temporary, with its inline characters? */
static bool is_on_stack(const struct cxx_string *s)
{
	uintptr_t a = (uintptr_t)s->data, b = (uintptr_t)s;

	return (a > b ? a - b : b - a) < 65536;
}

/* Without libstdc++ in the process its strings can only have come from malloc(). */
static void drop_string(struct cxx_string *s, bool cxx11)
{
	destroy_fn *destroy = (destroy_fn *)find_helper(&destroy_string[cxx11]);
	destroy_fn *release = (destroy_fn *)find_helper(&heap_free);

	if (!s->data || (cxx11 && is_on_stack(s)))
		return;
	if (destroy) {
		destroy(s);
	} else if (cxx11 && release) {
		release(s->data);
	} else if (release) {
		struct cxx_old_head *h = (struct cxx_old_head *)s->data - 1;
		if (__atomic_fetch_sub(&h->references, 1, __ATOMIC_ACQ_REL) <= 0)
			release(h);
	}
}

/* What a method of the runner that returns a string by value says; empty if it is not there. */
static void ask_runner(char *out, size_t room, struct helper pair[2], const void *runner)
{
	bool cxx11 = find_helper(&pair[1]) != NULL;
	string_fn *fn = (string_fn *)find_helper(&pair[cxx11]);

	copy_text(out, room, NULL, 0);
	if (!fn)
		return;
	struct cxx_string s = fn(runner);
	read_string(out, room, &s, cxx11);
	drop_string(&s, cxx11);
}

/* --- tensors --- */

struct access {
	const char *name; /* of the operator or kernel */
	bool kernel; /* tensors of the kernel level have other names for the same numbers */
	uint16_t device;
	uint8_t kind;
};

static void report_tensor(const struct access *a, const struct atb_text_tensor *t, uint64_t addr,
			  uint64_t bytes)
{
	struct collect_block b = {
		.addr = addr,
		.size_bytes = bytes,
		.device = a->device,
		.pool = POOL_ATB,
	};
	char attrs[ATB_TEXT_TENSOR];

	if (!addr || t->ndims > MAX_DIMS)
		return;
	atb_text_tensor(attrs, t, a->kernel);
	collect_access(&b, a->kind, a->name, attrs);
}

static void report_atb(const struct access *a, const struct atb_tensors *v)
{
	const struct atb_tensor *t = v->heap ? v->heap : v->inline_data;

	if (v->size > (v->heap ? MAX_TENSORS : ATB_INLINE_TENSORS))
		return;
	for (uint64_t i = 0; i < v->size; i++) {
		struct atb_text_tensor x = {t[i].dtype, t[i].format, t[i].dims, t[i].ndims};
		report_tensor(a, &x, (uint64_t)t[i].device, t[i].bytes);
	}
}

static void report_mki(const struct access *a, const struct mki_tensors *v)
{
	if (!v || v->count > MKI_TENSORS)
		return;
	for (uint64_t i = 0; i < v->count; i++) {
		const struct mki_tensor *t = &v->data[i];
		struct atb_text_tensor x = {t->dtype, t->format, t->dims, t->ndims};
		report_tensor(a, &x, (uint64_t)t->data, t->bytes);
	}
}

/* --- operators --- */

struct op {
	const struct atb_pack *pack;
	const void *caller;
	char name[NAME_BYTES];
	char watched[NAME_BYTES]; /* its place in the graph, by which watched memory knows it */
	char attrs[PATH_BYTES + 100];
};

static void op_tensors(const struct op *op)
{
	struct access a = {.name = op->name, .kind = ACCESS_UNKNOWN};

	if (!collect_wants(WANT_ACCESS))
		return;
	a.device = collect_device();
	report_atb(&a, &op->pack->in);
	a.kind = ACCESS_WRITE;
	report_atb(&a, &op->pack->out);
}

static void op_begin(struct op *op, const void *runner)
{
	const struct atb_pack *p = op->pack;
	int saved = errno;

	ask_runner(op->name, sizeof(op->name), operation_name, runner);
	char dir[PATH_BYTES];
	ask_runner(dir, sizeof(dir), save_dir, runner);
	struct atb_text t = {op->attrs, sizeof(op->attrs), 0};
	atb_text_add(&t, "path:");
	atb_text_add(&t, dir);
	atb_text_add(&t, ",workspace_ptr:");
	atb_text_hex(&t, (uint64_t)p->workspace);
	atb_text_add(&t, ",workspace_size:");
	atb_text_number(&t, p->workspace_bytes + p->intermediate_bytes);
	collect_op(OP_ATB_START, op->name, op->attrs, op->caller);
	op_tensors(op);
	op->watched[0] = '\0';
	if (collect_wants(WANT_WATCH)) {
		const char *name = dir[0] ? dir : op->name;
		copy_text(op->watched, sizeof(op->watched), name, strlen(name));
		collect_watch_begin(op->watched);
	}
	errno = saved;
}

static void watch_outputs(const struct op *op)
{
	const struct atb_tensors *v = &op->pack->out;
	const struct atb_tensor *t = v->heap ? v->heap : v->inline_data;

	if (v->size > (v->heap ? MAX_TENSORS : ATB_INLINE_TENSORS))
		return;
	for (uint64_t i = 0; i < v->size; i++)
		collect_watch_output(op->watched, (uint64_t)t[i].device, t[i].bytes, (uint32_t)i);
}

/* Also when an exception leaves the operator: every START has its END. */
static void op_end(struct op *const *ends)
{
	const struct op *op = *ends;
	int saved = errno;

	op_tensors(op);
	if (op->watched[0]) {
		watch_outputs(op);
		collect_watch_end(op->watched);
	}
	collect_op(OP_ATB_END, op->name, op->attrs, op->caller);
	errno = saved;
}

__attribute__((noinline)) static int32_t execute(execute_fn *real, void *runner, void *pack,
						 const void *caller)
{
	struct op op;

	op.pack = pack;
	op.caller = caller;
	op_begin(&op, runner);
	struct op *ends __attribute__((cleanup(op_end))) = &op;
	(void)ends;
	return real(runner, pack);
}

static int32_t hook_execute(void *runner, void *pack)
{
	execute_fn *real = (execute_fn *)real_of(HOOK_EXECUTE);

	if (!real)
		return ATB_FAILED;
	if (!runner || !pack || !collect_wants(WANT_OP | WANT_ACCESS | WANT_WATCH))
		return real(runner, pack);
	return execute(real, runner, pack, CALLER);
}

/* --- kernels --- */

enum denied {
	DENIED_NEED = 1,
	DENIED_RANGE = 2,
	DENIED_BEFORE = 4,
	DENIED_AFTER = 8,
	DENIED_DESC = 16
};

static __thread struct {
	uint8_t denied; /* answers that were no, and that we turned into yes */
	uint8_t honest; /* in real code that asks for its own purposes: no forcing */
} self __attribute__((tls_model("initial-exec")));

/* Where accesses are wanted but no launches, nothing says which level is meant: both are. */
static bool wants_kernels(void)
{
	return collect_wants(WANT_KERNEL) ||
	       (collect_wants(WANT_ACCESS) && !collect_wants(WANT_OP));
}

static bool choose_answer(enum hook hook, enum denied bit, bool real)
{
	if (self.honest)
		return real;
	bool force = !atomic_load_explicit(&foreign[hook], memory_order_relaxed) && wants_kernels();
	self.denied &= (uint8_t)~bit;
	if (force && !real)
		self.denied |= bit;
	return force || real;
}

static bool hook_need_0(const void *ids, const void *name)
{
	need_fn *real = (need_fn *)real_of(HOOK_NEED_0);

	return choose_answer(HOOK_NEED_0, DENIED_NEED, real && real(ids, name));
}

static bool hook_need_1(const void *ids, const void *name)
{
	need_fn *real = (need_fn *)real_of(HOOK_NEED_1);

	return choose_answer(HOOK_NEED_1, DENIED_NEED, real && real(ids, name));
}

static bool hook_range(uint64_t count)
{
	range_fn *real = (range_fn *)real_of(HOOK_RANGE);

	return choose_answer(HOOK_RANGE, DENIED_RANGE, real && real(count));
}

/* These are asked only after the others said yes, and may rely on it. */
static bool ask_real(enum hook hook)
{
	ask_fn *real = (ask_fn *)real_of(hook);

	if (!self.honest && self.denied & (DENIED_NEED | DENIED_RANGE))
		return false;
	return real && real();
}

static bool hook_after(void)
{
	return choose_answer(HOOK_AFTER, DENIED_AFTER, ask_real(HOOK_AFTER));
}

static bool hook_before(void)
{
	return choose_answer(HOOK_BEFORE, DENIED_BEFORE, ask_real(HOOK_BEFORE));
}

static bool hook_desc(void)
{
	return choose_answer(HOOK_DESC, DENIED_DESC, ask_real(HOOK_DESC));
}

static void honest_end(const int *unused)
{
	(void)unused;
	self.honest--;
}

#define HONEST                                                                                     \
	self.honest++;                                                                             \
	__attribute__((cleanup(honest_end), unused)) const int honest_ = 0

/* Operators are never saved because of us: what it would have said without our answers. */
static bool hook_is_save(const void *runner)
{
	runner_fn *real = (runner_fn *)real_of(HOOK_IS_SAVE);

	HONEST;
	return real && real(runner) && !(self.denied & DENIED_NEED);
}

/* "<dir>/<kernel>/before" or "…/after"; the kernel's name is copied out. */
static enum denied side_of(const char *path, char *out_name, size_t room)
{
	const char *end = strrchr(path, '/');
	enum denied side = 0;

	if (end && !strcmp(end, "/before"))
		side = DENIED_BEFORE;
	else if (end && !strcmp(end, "/after"))
		side = DENIED_AFTER;
	if (!side)
		end = path + strlen(path);
	const char *begin = end;
	while (begin > path && begin[-1] != '/')
		begin--;
	copy_text(out_name, room, begin, (size_t)(end - begin));
	return side;
}

static void kernel_tensors(const char *name, const void *param)
{
	tensors_fn *in = (tensors_fn *)find_helper(&in_tensors),
		   *out = (tensors_fn *)find_helper(&out_tensors);
	struct access a = {.name = name, .kernel = true, .kind = ACCESS_UNKNOWN};

	if (!param || !collect_wants(WANT_ACCESS))
		return;
	a.device = collect_device();
	report_mki(&a, in ? in(param) : NULL);
	a.kind = ACCESS_WRITE;
	report_mki(&a, out ? out(param) : NULL);
}

static void watch_kernel(const char *name, const void *param, enum denied side)
{
	tensors_fn *out = (tensors_fn *)find_helper(&out_tensors);
	const struct mki_tensors *v = out && param ? out(param) : NULL;

	if (!collect_wants(WANT_WATCH))
		return;
	if (side == DENIED_BEFORE)
		collect_watch_begin(name);
	if (side != DENIED_AFTER)
		return;
	for (uint64_t i = 0; v && v->count <= MKI_TENSORS && i < v->count; i++)
		collect_watch_output(name, (uint64_t)v->data[i].data, v->data[i].bytes,
				     (uint32_t)i);
	collect_watch_end(name);
}

static enum denied report_kernel(const void *param, const void *dir, bool cxx11, const void *caller)
{
	char path[PATH_BYTES], attrs[PATH_BYTES + 8], name[NAME_BYTES];
	int saved = errno;

	read_string(path, sizeof(path), dir, cxx11);
	enum denied side = side_of(path, name, sizeof(name));
	if (wants_kernels()) {
		struct atb_text t = {attrs, sizeof(attrs), 0};
		atb_text_add(&t, "path:");
		atb_text_add(&t, path);
		if (side == DENIED_BEFORE)
			collect_op(OP_KERNEL_START, name, attrs, caller);
		kernel_tensors(name, param);
		watch_kernel(name, param, side);
		if (side == DENIED_AFTER)
			collect_op(OP_KERNEL_END, name, attrs, caller);
	}
	errno = saved;
	return side;
}

/* Would ATB have come here without our answers? */
static bool is_users(enum denied side)
{
	if (self.denied & (DENIED_NEED | DENIED_RANGE | side))
		return false;
	if (!wants_kernels() || !side)
		return true;
	return ask_real(side == DENIED_BEFORE ? HOOK_BEFORE : HOOK_AFTER);
}

static void hook_save_0(void *stream, const void *param, const void *dir)
{
	save_fn *real = (save_fn *)real_of(HOOK_SAVE_0);
	enum denied side = report_kernel(param, dir, false, CALLER);

	if (real && is_users(side)) {
		HONEST;
		real(stream, param, dir);
	}
}

static void hook_save_1(void *stream, const void *param, const void *dir)
{
	save_fn *real = (save_fn *)real_of(HOOK_SAVE_1);
	enum denied side = report_kernel(param, dir, true, CALLER);

	if (real && is_users(side)) {
		HONEST;
		real(stream, param, dir);
	}
}

static const struct sonde_atb_hooks own_hooks = {
	.find = find_real,
	.hook =
		{
			[HOOK_EXECUTE] = (void *)hook_execute,
			[HOOK_SAVE_0] = (void *)hook_save_0,
			[HOOK_SAVE_1] = (void *)hook_save_1,
			[HOOK_NEED_0] = (void *)hook_need_0,
			[HOOK_NEED_1] = (void *)hook_need_1,
			[HOOK_AFTER] = (void *)hook_after,
			[HOOK_BEFORE] = (void *)hook_before,
			[HOOK_RANGE] = (void *)hook_range,
			[HOOK_DESC] = (void *)hook_desc,
			[HOOK_IS_SAVE] = (void *)hook_is_save,
		},
};

/* The names under which ATB calls them. */
#define NAMED(type, symbol, hook) EXPORT type symbol __attribute__((alias(#hook)))

/* clang-format off */
NAMED(execute_fn, _ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE, hook_execute);
NAMED(save_fn, _ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKSs, hook_save_0);
NAMED(save_fn, _ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE, hook_save_1);
NAMED(need_fn, _ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKSs, hook_need_0);
NAMED(need_fn, _ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE, hook_need_1);
NAMED(ask_fn, _ZN3atb5Probe17IsSaveTensorAfterEv, hook_after);
NAMED(ask_fn, _ZN3atb5Probe18IsSaveTensorBeforeEv, hook_before);
NAMED(range_fn, _ZN3atb5Probe21IsExecuteCountInRangeEm, hook_range);
NAMED(ask_fn, _ZN3atb5Probe16IsSaveTensorDescEv, hook_desc);
NAMED(runner_fn, _ZNK3atb6Runner12IsSaveTensorEv, hook_is_save);
/* clang-format on */
