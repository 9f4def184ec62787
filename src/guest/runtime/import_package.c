/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Brings Python modules of ours into a Python program that does not import them: what was asked for
 * (operators, accesses, owners, calls of functions; steps of training) can only be seen from
 * Python. What detects steps for a memory recording comes while the program imports torch or
 * mindspore, or when it has, and never into one that does not. The package comes into a program that
 * has initialised CUDA if it uses torch, JAX or CuPy: they know what is inside of their pools.
 *
 * The interpreter is asked to call us when it is at a place where Python code may run, in its main
 * thread. A thread that lives for the moment of its start-up does the asking, since there may be no
 * event to do it at; it asks again while a module of the standard library is only half imported.
 * Events ask as well: of an NPU that is taken into use, of a child that was forked meanwhile.
 *
 *	IDLE --- request_call() ---> ASKED --- import_module(), in the main thread ---> DONE
 *	  ^                                         |
 *	  |_______________ not now, or it failed ___|   (MAX_TRIES)
 *
 *	not now: site is not through, so sys.path is not what it will be; the import system holds a
 *	lock (to 3.11 an import inside would fail); nothing of the script runs yet.
 *
 * Everything of CPython is a weak symbol: in a program without it the addresses are 0, and one test
 * of them (guest_has_python()) is all that this costs.
 */
#include "guest/runtime/guest.h"

#include "guest/runtime/env.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_TRIES 1000
#define EARLY_TRIES 100 /* about a second */
#define PAUSE_NS 5000000
#define PATIENCE_NS 30000000000ull /* of the thread: a start-up that takes longer is none */
#define NEEDS_PYTHON (WANT_TRACE | WANT_OWNERS | WANT_ACCESS | WANT_WATCH)
#define STACK_BYTES (256u << 10)
#define FILE_INPUT 257 /* Py_file_input */
#define OFF_ENV "SONDE_PYTHON"

extern int Py_IsInitialized(void) __attribute__((weak));
extern int Py_AddPendingCall(int (*fn)(void *), void *arg) __attribute__((weak));
extern void *Py_CompileString(const char *text, const char *name, int start) __attribute__((weak));
extern void *PyEval_EvalCode(void *code, void *globals, void *locals) __attribute__((weak));
extern void *PyImport_AddModule(const char *name) __attribute__((weak));
extern void *PyEval_GetFrame(void) __attribute__((weak));
extern void *PyDict_New(void) __attribute__((weak));
extern int PyDict_SetItemString(void *dict, const char *key, void *value) __attribute__((weak));
extern void *PyUnicode_DecodeFSDefault(const char *text) __attribute__((weak));
extern int PyGILState_Ensure(void) __attribute__((weak));
extern void PyGILState_Release(int state) __attribute__((weak));
extern void PyErr_Clear(void) __attribute__((weak));
extern int PyErr_ExceptionMatches(void *type) __attribute__((weak));
extern void *PyDict_GetItemString(void *dict, const char *key) __attribute__((weak));
extern void PyDict_Clear(void *dict) __attribute__((weak));
extern int PyObject_IsTrue(void *object) __attribute__((weak));
extern void *PyExc_Exception __attribute__((weak));
extern void Py_DecRef(void *object) __attribute__((weak));
extern void *PySys_GetObject(const char *name) __attribute__((weak));
extern void *PyObject_GetAttrString(void *object, const char *name) __attribute__((weak));

/*
 * `program` is <prefix>/lib/../bin/sonde. The package is found by its place: sys.path stays as it
 * is. If the program has packages of these names, they are taken if they are sonde's, and otherwise
 * left alone: what it imports must be what it means.
 *
 * The folder of the script comes into sys.path last: not before the script itself runs. Programs
 * that have none, embedded Python, are recognised by their age.
 *
 * Up to 3.11 an import in the middle of taking the lock of another one makes that fail: not now. Nor
 * while a module is searched for or made: it is not in sys.modules yet, so we would import it, too, and
 * the program's own import would put a second one in its place, without what was imported below ours.
 *
 * An exception that a signal handler of the program raises meanwhile is the program's, of whatever
 * class; all others are ours. Read by Python 2 as well, up to the first condition.
 */
static const char text[] =
	"names = ('sonde', 'msmemscope')\n"
	"def is_ours(place):\n"
	"    return (os.path.isdir(os.path.join(place, 'msmemscope')) and\n"
	"            os.path.isdir(os.path.join(place, 'sonde')) and any(\n"
	"                f.startswith('_sonde') for f in os.listdir(os.path.join(place, "
	"'sonde'))))\n"
	"def theirs():\n"
	"    for name in names:\n"
	"        if name in sys.modules:\n"
	"            file = getattr(sys.modules[name], '__file__', None) or '/'\n"
	"        else:\n"
	"            spec = PathFinder.find_spec(name)\n"
	"            file = spec.origin if spec and spec.has_location else None\n"
	"        if file:\n"
	"            yield os.path.dirname(os.path.dirname(os.path.realpath(file)))\n"
	"def places():\n"
	"    top = os.path.dirname(os.path.dirname(os.path.realpath(program)))\n"
	"    for sub in ('python', 'lib/python', ''):\n"
	"        yield os.path.join(top, sub)\n"
	"    for lib in (os.path.join(top, 'lib'), os.path.join(top, 'lib64')):\n"
	"        for name in sorted(os.listdir(lib)) if os.path.isdir(lib) else ():\n"
	"            if name.startswith('python3'):\n"
	"                yield os.path.join(lib, name, 'site-packages')\n"
	"                yield os.path.join(lib, name, 'dist-packages')\n"
	"class Finder:\n"
	"    def __init__(self, place):\n"
	"        self.place = place\n"
	"    def find_spec(self, name, path=None, target=None):\n"
	"        return PathFinder.find_spec(name, [self.place]) if name in names else None\n"
	"def bring(place):\n"
	"    before, finder = set(sys.modules), Finder(place)\n"
	"    sys.meta_path.insert(0, finder)\n"
	"    try:\n"
	"        __import__(wanted)\n"
	"    except BaseException:\n"
	"        for name in list(sys.modules):\n"
	"            if name not in before and name.split('.')[0] in names:\n"
	"                del sys.modules[name]\n"
	"        raise\n"
	"    finally:\n"
	"        sys.meta_path.remove(finder)\n"
	"def is_programs(trace):\n"
	"    from _signal import NSIG, getsignal\n"
	"    codes = []\n"
	"    for number in range(1, NSIG):\n"
	"        handler = getsignal(number)\n"
	"        handler = getattr(handler, 'func', handler)\n"
	"        for at in (handler, getattr(type(handler), '__call__', None)):\n"
	"            codes.append(getattr(getattr(at, '__func__', at), '__code__', codes))\n"
	"    while trace is not None:\n"
	"        if trace.tb_frame.f_code in codes:\n"
	"            return True\n"
	"        trace = trace.tb_next\n"
	"def is_locking():\n"
	"    frame = sys._getframe()\n"
	"    while frame is not None:\n"
	"        code, frame = frame.f_code, frame.f_back\n"
	"        if code.co_filename == '<frozen importlib._bootstrap>' and code.co_name in (\n"
	"                'acquire', 'release', 'has_deadlock', '__enter__', '__exit__',\n"
	"                '_get_module_lock', '_lock_unlock_module', 'cb'):\n"
	"            return True\n"
	"def is_importing():\n"
	"    frame = sys._getframe()\n"
	"    while frame is not None:\n"
	"        code, frame = frame.f_code, frame.f_back\n"
	"        if code.co_name == 'exec_module':\n"
	"            return False\n"
	"        if code.co_filename == '<frozen importlib._bootstrap>':\n"
	"            return True\n"
	"def is_early():\n"
	"    frame = sys._getframe()\n"
	"    while frame.f_back is not None:\n"
	"        frame = frame.f_back\n"
	"    return 'early' in globals() and frame.f_globals.get('__name__') not in (\n"
	"        '__main__', 'runpy')\n"
	"done = False\n"
	"try:\n"
	"    import sys\n"
	"    not_now = is_locking() or is_importing() or is_early()\n"
	"    if (not not_now and wanted not in sys.modules and\n"
	"            sys.version_info >= (3, 8)):\n"
	"        import os\n"
	"        from importlib.machinery import PathFinder\n"
	"        found = set(theirs())\n"
	"        for place in found if found else places():\n"
	"            if len(found) < 2 and is_ours(place):\n"
	"                bring(place)\n"
	"                break\n"
	"    done = not not_now\n"
	"except Exception as why:\n"
	"    if is_programs(getattr(why, '__traceback__', None)):\n"
	"        programs = True\n"
	"        raise\n";

enum { IDLE, ASKED, DONE };

struct wanted {
	const char *name; /* of the module */
	const char *const *frameworks; /* waits for one of them; NULL: comes at once */
	_Atomic uint32_t state;
	_Atomic uint32_t tries;
	_Atomic uint64_t tried_ns; /* the last of them */
};

static const char *const stepping[] = {"torch", "mindspore", NULL};
static const char *const of_cuda[] = {"torch", "jax", "cupy", NULL};
static struct wanted package = {.name = "msmemscope"};
static struct wanted cuda_package = {.name = "msmemscope", .frameworks = of_cuda};
static _Atomic bool cuda; /* was initialised */
static struct wanted steps = {.name = "sonde._steps.for_monitor"};
static struct wanted memory_steps = {.name = "sonde._steps.for_memory", .frameworks = stepping};

/*
 * 1: the module is there, or is not to come; 0: not yet; -1: an exception of the job's is set.
 *
 * Globals of its own, with the real builtins: a sandboxed program may have replaced them. They are
 * cleared afterwards, since the functions that the text defines refer to them, and they to the
 * functions.
 */
static int run_text(struct wanted *w)
{
	void *code = Py_CompileString(text, "<sonde>", FILE_INPUT);
	void *globals = code ? PyDict_New() : NULL;
	void *program = globals ? PyUnicode_DecodeFSDefault(guest_program()) : NULL;
	void *name = program ? PyUnicode_DecodeFSDefault(w->name) : NULL;
	void *result = NULL;
	int r = 0;

	/* Not those of the code that runs now: it may be kept from having any. */
	void *builtins = name ? PyImport_AddModule("builtins") : NULL;
	if (builtins && PyDict_SetItemString(globals, "__builtins__", builtins) == 0 &&
	    PyDict_SetItemString(globals, "program", program) == 0 &&
	    PyDict_SetItemString(globals, "wanted", name) == 0 &&
	    (atomic_load(&w->tries) >= EARLY_TRIES ||
	     PyDict_SetItemString(globals, "early", program) == 0))
		result = PyEval_EvalCode(code, globals, globals);
	if (result)
		r = PyObject_IsTrue(PyDict_GetItemString(globals, "done")) == 1;
	else if (PyErr_ExceptionMatches(PyExc_Exception) &&
		 !(globals && PyDict_GetItemString(globals, "programs")))
		PyErr_Clear();
	else
		r = -1;
	Py_DecRef(result);
	Py_DecRef(name);
	Py_DecRef(program);
	if (globals)
		PyDict_Clear(globals); /* its functions refer to it */
	Py_DecRef(globals);
	Py_DecRef(code);
	return r;
}

static bool is_true(void *object, const char *name)
{
	void *value = object ? PyObject_GetAttrString(object, name) : NULL;
	bool is = value && PyObject_IsTrue(value) == 1;

	PyErr_Clear();
	Py_DecRef(value);
	return is;
}

enum { MODULE_ABSENT, MODULE_HALF, MODULE_COMPLETE };

static int find_module(const char *name)
{
	void *modules = PySys_GetObject("modules");
	void *module = modules ? PyDict_GetItemString(modules, name) : NULL;
	void *spec = module ? PyObject_GetAttrString(module, "__spec__") : NULL;
	bool half = is_true(spec, "_initializing");

	PyErr_Clear();
	Py_DecRef(spec);
	return !module ? MODULE_ABSENT : half ? MODULE_HALF : MODULE_COMPLETE;
}

/* Until its module site is through, sys.path does not say yet what the program can import. */
static bool is_starting(void)
{
	int site = find_module("site");

	return site == MODULE_HALF ||
	       (site == MODULE_ABSENT && !is_true(PySys_GetObject("flags"), "no_site"));
}

static bool has_framework(const struct wanted *w)
{
	for (unsigned i = 0; w->frameworks && w->frameworks[i]; i++)
		if (find_module(w->frameworks[i]) != MODULE_ABSENT)
			return true;
	return !w->frameworks;
}

static int import_module(void *arg)
{
	struct wanted *w = arg;

	if (guest_is_sealed()) { /* an import makes system calls */
		atomic_store(&w->state, DONE);
		return 0;
	}
	if (!has_framework(w)) { /* perhaps never */
		bool enough = w == &cuda_package && atomic_fetch_add(&w->tries, 1) >= MAX_TRIES;
		atomic_store(&w->state, enough ? DONE : IDLE);
		return 0;
	}
	/* Without a frame it is the interpreter that ends, and what it could not raise is printed.
	 */
	int r = is_starting() || !PyEval_GetFrame() ? 0 : run_text(w);

	atomic_store(&w->tried_ns, guest_now());
	atomic_store(&w->state, r > 0 || atomic_fetch_add(&w->tries, 1) >= MAX_TRIES ? DONE : IDLE);
	return r < 0 ? -1 : 0;
}

bool guest_has_python(void)
{
	return Py_IsInitialized && Py_AddPendingCall && Py_CompileString && PyEval_EvalCode &&
	       PyImport_AddModule && PyGILState_Ensure && PyGILState_Release && PyEval_GetFrame &&
	       PyDict_New && PyDict_SetItemString && PyUnicode_DecodeFSDefault && PyErr_Clear &&
	       Py_DecRef && PyErr_ExceptionMatches && PyDict_GetItemString && PyDict_Clear &&
	       PyObject_IsTrue && PySys_GetObject && PyObject_GetAttrString && &PyExc_Exception;
}

static bool is_off(void)
{
	char value[8];

	guest_env_copy(OFF_ENV, value, sizeof(value));
	return !strcmp(value, "0") || !strcmp(value, "off");
}

/*
 * Each try costs the job a millisecond or two, and a program that imports makes thousands of events, which
 * all would ask: the longer it takes, the more patient. A hundred tries are about a second, MAX_TRIES more
 * than a minute.
 */
static bool is_too_soon(const struct wanted *w)
{
	uint64_t pause_ns = PAUSE_NS / 32 * atomic_load(&w->tries);

	return pause_ns && guest_now() - atomic_load(&w->tried_ns) < pause_ns;
}

static void request_call(struct wanted *w)
{
	uint32_t idle = IDLE;

	if (is_too_soon(w) || !Py_IsInitialized() ||
	    !atomic_compare_exchange_strong(&w->state, &idle, ASKED))
		return;
	if (Py_AddPendingCall(import_module, w) < 0)
		atomic_store(&w->state, IDLE);
}

/* The package detects steps as well. While nothing is recorded, a program that starts it does. */
static bool needs_steps(uint32_t want)
{
	return want & WANT_ALLOC && !(want & (NEEDS_PYTHON | WANT_DEFERRED));
}

static void request_if_idle(struct wanted *w)
{
	if (atomic_load(&w->state) == IDLE && guest_has_python() && guest_is_launched() &&
	    !is_off())
		request_call(w);
}

void guest_bring_package(bool device)
{
	uint32_t want = atomic_load(&guest.want);
	int saved = errno;

	if (want & NEEDS_PYTHON || (device && want & WANT_OP))
		request_if_idle(&package);
	else if (atomic_load_explicit(&cuda, memory_order_relaxed) && needs_steps(want))
		request_if_idle(&cuda_package);
	if (needs_steps(want))
		request_if_idle(&memory_steps);
	errno = saved;
}

void guest_bring_for_cuda(void)
{
	atomic_store_explicit(&cuda, true, memory_order_relaxed);
	guest_bring_package(false);
}

/*
 * From 3.9 to 3.12 the main thread does not learn what another has asked for before it has a reason
 * to look. Somebody who waits for the GIL is one.
 */
static void wake_main_thread(void)
{
	PyGILState_Release(PyGILState_Ensure());
}

static void *ask_until_done(void *arg)
{
	uint64_t until = guest_now() + PATIENCE_NS;
	struct wanted *w = arg;

	while (atomic_load(&w->state) != DONE && guest_now() < until && !guest_is_sealed()) {
		request_call(w);
		guest_sleep(PAUSE_NS);
		if (atomic_load(&w->state) == ASKED && Py_IsInitialized())
			wake_main_thread();
	}
	guest_leave_calls();
	return NULL;
}

/* A detached thread with a small stack. All signals are blocked in it: the kernel would
 * otherwise be free to deliver one of the job's there. */
static void start_asking(struct wanted *w)
{
	pthread_attr_t attr;
	pthread_t thread;
	uint64_t signals;

	if (!guest_has_python() || is_off() || guest_is_sealed() || pthread_attr_init(&attr) != 0)
		return;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	guest_block_signals(&signals); /* it takes none of the job's */
	guest_enter_calls();
	if (pthread_create(&thread, &attr, ask_until_done, w) != 0)
		guest_leave_calls();
	guest_restore_signals(&signals);
	pthread_attr_destroy(&attr);
}

void guest_await_python(uint32_t want)
{
	if (want & NEEDS_PYTHON && !(want & WANT_DEFERRED))
		start_asking(&package);
}

void guest_bring_steps(void)
{
	if (atomic_load(&steps.state) == IDLE)
		start_asking(&steps);
}
