/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Brings the Python package into a Python program that is recorded and does not import it: what
 * was asked for (operators, accesses, owners, calls of functions) can only be seen from Python.
 *
 * The interpreter is asked to call us when it is at a place where Python code may run, in its main
 * thread; nothing is done here and now. It may be in the middle of starting up or of an import that
 * the package needs as well: then it is asked again later, a few times.
 */
#include "guest/guest.h"

#include "guest/env.h"

#include <errno.h>
#include <string.h>

#define MAX_TRIES 50
#define SOON_BYTES 4096
#define FILE_INPUT 257 /* Py_file_input */
#define OFF_ENV "SONDE_PYTHON"

extern int Py_IsInitialized(void) __attribute__((weak));
extern int Py_AddPendingCall(int (*fn)(void *), void *arg) __attribute__((weak));
extern void *Py_CompileString(const char *text, const char *name, int start) __attribute__((weak));
extern void *PyEval_EvalCode(void *code, void *globals, void *locals) __attribute__((weak));
extern void *PyEval_GetBuiltins(void) __attribute__((weak));
extern void *PyDict_New(void) __attribute__((weak));
extern int PyDict_SetItemString(void *dict, const char *key, void *value) __attribute__((weak));
extern void *PyUnicode_DecodeFSDefault(const char *text) __attribute__((weak));
extern void PyErr_Clear(void) __attribute__((weak));
extern int PyErr_ExceptionMatches(void *type) __attribute__((weak));
extern void *PyExc_Exception __attribute__((weak));
extern void Py_DecRef(void *object) __attribute__((weak));

/* `program` is <prefix>/lib/../bin/sonde. The package is found by its place, not by sys.path. */
static const char text[] =
	"import os, sys\n"
	"if 'msmemscope' not in sys.modules and sys.version_info >= (3, 8):\n"
	"    top = os.path.dirname(os.path.dirname(os.path.realpath(program)))\n"
	"    places = [os.path.join(top, sub) for sub in ('python', 'lib/python', '')]\n"
	"    for lib in [os.path.join(top, sub) for sub in ('lib', 'lib64')]:\n"
	"        if os.path.isdir(lib):\n"
	"            places += [os.path.join(lib, name, kind) for name in sorted(os.listdir(lib))\n"
	"                       if name.startswith('python3')\n"
	"                       for kind in ('site-packages', 'dist-packages')]\n"
	"    for place in places:\n"
	"        if os.path.isdir(os.path.join(place, 'msmemscope')):\n"
	"            sys.path.append(place)\n"
	"            try:\n"
	"                import msmemscope\n"
	"            except BaseException:\n"
	"                for name in [n for n in sys.modules if n.split('.')[0] in\n"
	"                             ('msmemscope', 'sonde')]:\n"
	"                    del sys.modules[name]\n"
	"                raise\n"
	"            finally:\n"
	"                sys.path.remove(place)\n"
	"            break\n";

enum { IDLE, ASKED, DONE };

static _Atomic uint32_t state;
static _Atomic uint32_t tries;

/* 1: the package is there; 0: not yet; -1: an exception that is the job's own is set. */
static int run(void)
{
	void *code = Py_CompileString(text, "<sonde>", FILE_INPUT);
	void *globals = code ? PyDict_New() : NULL;
	void *program = globals ? PyUnicode_DecodeFSDefault(guest_program()) : NULL;
	void *result = NULL;

	if (program && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0 &&
	    PyDict_SetItemString(globals, "program", program) == 0)
		result = PyEval_EvalCode(code, globals, globals);
	/* Ctrl-C at this very moment is for the job; our own trouble is not. */
	bool stop = !result && !PyErr_ExceptionMatches(PyExc_Exception);
	if (!result && !stop)
		PyErr_Clear();
	Py_DecRef(result);
	Py_DecRef(program);
	Py_DecRef(globals);
	Py_DecRef(code);
	return result ? 1 : stop ? -1 : 0;
}

/* The next question comes at the next segment of the ring: let that be soon. */
static void come_back_soon(void)
{
	struct guest_cursor *c = &guest_self.cur[0];

	if (!guest_self.level && c->end - c->pos > SOON_BYTES)
		c->end = c->pos + SOON_BYTES;
}

static int bring(void *arg)
{
	int r = run();

	(void)arg;
	if (r > 0 || atomic_fetch_add(&tries, 1) >= MAX_TRIES) {
		atomic_store(&state, DONE);
	} else {
		come_back_soon();
		atomic_store(&state, IDLE);
	}
	return r < 0 ? -1 : 0;
}

static bool has_python(void)
{
	return Py_IsInitialized && Py_AddPendingCall && Py_CompileString && PyEval_EvalCode &&
	       PyEval_GetBuiltins && PyDict_New && PyDict_SetItemString &&
	       PyUnicode_DecodeFSDefault && PyErr_Clear && Py_DecRef && PyErr_ExceptionMatches &&
	       &PyExc_Exception;
}

static bool is_off(void)
{
	char value[8];

	guest_env_copy(OFF_ENV, value, sizeof(value));
	return !strcmp(value, "0") || !strcmp(value, "off");
}

void guest_bring_package(bool device)
{
	uint32_t want = atomic_load(&guest.want), idle = IDLE;

	if (!(want & (WANT_TRACE | WANT_OWNERS | WANT_ACCESS | WANT_WATCH)) &&
	    !(device && want & WANT_OP))
		return;
	if (atomic_load(&state) != IDLE || !has_python() || !Py_IsInitialized() ||
	    !guest_is_launched())
		return;
	if (!atomic_compare_exchange_strong(&state, &idle, ASKED))
		return;
	int saved = errno;
	if (is_off())
		atomic_store(&state, DONE);
	else if (Py_AddPendingCall(bring, NULL) < 0)
		atomic_store(&state, IDLE);
	errno = saved;
}
