/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Configuration and the life of a recording. Options are read by the table of the msmemscope
 * command, so that both accept the same words and refuse the rest with the same message.
 *
 * Settings are kept here and reported to the recording when there is one: configure() alone starts
 * nothing. They are those of the process and guarded by the GIL.
 */
#include "python/_sonde/module.h"

#include "base/mem.h"
#include "guest/collect/collect.h"
#include "memory/options/options.h"
#include "wire/control_page.h"

#include <string.h>

#define MAX_OPTIONS 32

static struct {
	struct mem_config config;
	bool known; /* config holds something */
	bool moved; /* the program said where files go */
	bool watching; /* and what is watched */
	bool untold; /* the recording does not know yet */
} own;

/* What counts before the program has said anything: the recording's own settings, or defaults. */
static int load_settings(void)
{
	struct rec_settings s;
	struct err err = {0};

	if (!own.known && mem_config_init(&own.config, &err) < 0) {
		PyErr_SetString(PyExc_OSError, err.text);
		return -1;
	}
	if (!own.known && collect_settings(&s)) {
		mem_config_set_settings(&own.config, &s);
		own.known = true;
	}
	return 0;
}

static void configure_watch(void)
{
	const struct mem_watch *w = &own.config.watch;

	collect_watch_configure(w->start, w->output_id, w->end, w->full_content);
}

static void emit_config(void)
{
	struct rec_settings s;

	if (!own.untold || !collect_has_joined())
		return;
	mem_config_get_settings(&own.config, &s);
	if (own.watching)
		configure_watch();
	collect_configure(&s, mem_config_want(&own.config),
			  own.moved ? own.config.output_dir : NULL);
	collect_hook_objects();
	own.untold = false;
}

/* "--call-stack=python:10" of ("call_stack", "python:10"). */
static char *option_word(PyObject *key, PyObject *value)
{
	Py_ssize_t nkey, nvalue;
	PyObject *k = PyUnicode_AsUTF8String(key), *v = PyUnicode_AsUTF8String(value);
	char *word = NULL, *ktext, *vtext;

	if (k && v && PyBytes_AsStringAndSize(k, &ktext, &nkey) == 0 &&
	    PyBytes_AsStringAndSize(v, &vtext, &nvalue) == 0) {
		if (strlen(ktext) != (size_t)nkey || strlen(vtext) != (size_t)nvalue) {
			PyErr_SetString(PyExc_ValueError, "a value holds a NUL character");
		} else {
			word = xasprintf("--%s=%s", ktext, vtext);
			for (char *p = word; p < word + 2 + nkey; p++)
				if (*p == '_')
					*p = '-';
		}
	}
	Py_XDECREF(k);
	Py_XDECREF(v);
	return word;
}

/* The words of a dictionary; how many, or -1 with an exception. */
static int option_words(PyObject *options, char *words[MAX_OPTIONS + 1])
{
	PyObject *key, *value;
	Py_ssize_t at = 0;
	int n = 0;

	while (PyDict_Next(options, &at, &key, &value)) {
		if (n == MAX_OPTIONS) {
			PyErr_SetString(PyExc_ValueError, "too many options");
			return -1;
		}
		words[n] = option_word(key, value);
		if (!words[n++])
			return -1;
	}
	return n;
}

static PyObject *configure(PyObject *self, PyObject *args)
{
	static const char *const usage[] = {"", NULL};
	static const struct args_spec spec = {
		.name = "config", .usage = usage, .options = mem_option_table};
	struct mem_options o = {0};
	struct args a = {.target = &o};
	char *words[MAX_OPTIONS + 1] = {0};
	struct err err = {0};
	PyObject *options, *notices = NULL;

	(void)self;
	if (!PyArg_ParseTuple(args, "O!", &PyDict_Type, &options) || load_settings() < 0)
		return NULL;
	o.config = own.config;
	o.compat_given = true;
	int n = option_words(options, words);
	if (n >= 0 && args_parse(&a, &spec, n, words, &err) == 0 &&
	    mem_options_finish(&o, &err) == 0) {
		bool moved = strcmp(o.config.output_dir, own.config.output_dir) != 0;
		own.config = o.config;
		own.known = own.untold = true;
		own.moved = own.moved || moved;
		own.watching = own.watching || PyDict_GetItemString(options, "watch") != NULL;
		emit_config();
		notices = PyUnicode_FromString(buf_str(&a.notices));
	} else if (!PyErr_Occurred()) {
		PyErr_SetString(PyExc_ValueError, err.text);
	}
	args_release(&a);
	for (int i = 0; i <= MAX_OPTIONS && words[i]; i++)
		free(words[i]);
	return notices;
}

static PyObject *settings(PyObject *self, PyObject *args)
{
	const struct mem_config *c = &own.config;

	(void)self;
	(void)args;
	if (load_settings() < 0)
		return NULL;
	return Py_BuildValue(
		"{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:O,s:O,s:O,s:O,s:O,s:O,s:s,s:s}", "level", c->level,
		"dump_events", c->dump_events, "events", c->events, "analysis", c->analysis,
		"npu_slots", c->npu_slots, "c_depth", c->c_stack ? c->c_depth : 0, "py_depth",
		c->py_stack ? c->py_depth : 0, "npu_all", c->npu_all ? Py_True : Py_False, "cpu",
		c->cpu ? Py_True : Py_False, "traceback", c->traceback ? Py_True : Py_False,
		"python_objects", c->python_objects ? Py_True : Py_False, "events_asked",
		c->events_asked ? Py_True : Py_False, "watch",
		c->watch.on || collect_watch_any() ? Py_True : Py_False, "format",
		mem_format_name(c->format), "output_path", c->output_dir);
}

static bool begin_recording(void)
{
	bool joined;

	if (load_settings() < 0)
		return false;
	const char *output = own.moved ? own.config.output_dir : NULL;
	Py_BEGIN_ALLOW_THREADS
	joined = collect_begin(output);
	Py_END_ALLOW_THREADS
	if (joined)
		emit_config();
	return joined;
}

static PyObject *begin(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	bool joined = begin_recording();
	return PyErr_Occurred() ? NULL : PyBool_FromLong(joined);
}

static PyObject *start(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	bool joined = begin_recording();
	if (PyErr_Occurred())
		return NULL;
	if (joined)
		collect_set_tracing(true);
	return PyBool_FromLong(joined);
}

static PyObject *stop(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	collect_set_tracing(false);
	Py_RETURN_NONE;
}

static PyObject *flush(PyObject *self, PyObject *args)
{
	unsigned timeout_ms;
	bool done;

	(void)self;
	if (!PyArg_ParseTuple(args, "I", &timeout_ms))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	done = collect_flush(timeout_ms);
	Py_END_ALLOW_THREADS
	return PyBool_FromLong(done);
}

static PyObject *usage(PyObject *self, PyObject *args)
{
	struct collect_usage u;
	unsigned device, pool;

	(void)self;
	if (!PyArg_ParseTuple(args, "II", &device, &pool))
		return NULL;
	if (device > DEV_HOST || pool >= POOL_END ||
	    !collect_usage((uint16_t)device, (uint8_t)pool, &u))
		Py_RETURN_NONE;
	return Py_BuildValue("KKK", u.used_bytes, u.peak_bytes, u.peak_heap_bytes);
}

static PyObject *step(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	collect_step();
	Py_RETURN_NONE;
}

static PyObject *detected_step(PyObject *self, PyObject *args)
{
	unsigned char source;
	const char *name;
	int first;

	(void)self;
	if (!PyArg_ParseTuple(args, "bsp", &source, &name, &first))
		return NULL;
	return PyBool_FromLong(collect_detected_step(source, name, first));
}

static PyObject *tracing(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyBool_FromLong(collect_has_joined() && collect_tracing());
}

static PyObject *wants(PyObject *self, PyObject *args)
{
	unsigned bits;

	(void)self;
	if (!PyArg_ParseTuple(args, "I", &bits))
		return NULL;
	return PyBool_FromLong(collect_has_joined() && collect_wants(bits));
}

static PyObject *joined(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyBool_FromLong(collect_has_joined());
}

static PyObject *launched(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyBool_FromLong(collect_is_launched());
}

static PyObject *must_wait(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyBool_FromLong(collect_must_wait());
}

static PyObject *hide_file(PyObject *self, PyObject *name)
{
	(void)self;
	if (!PyUnicode_Check(name)) {
		PyErr_SetString(PyExc_TypeError, "hide_file() takes the co_filename of a function");
		return NULL;
	}
	Py_INCREF(name); /* for good */
	collect_hide_file(name);
	Py_RETURN_NONE;
}

static PyObject *session(PyObject *self, PyObject *args)
{
	(void)self;
	(void)args;
	return PyUnicode_DecodeFSDefault(collect_session_dir());
}

PyMethodDef control_methods[] = {
	{"configure", configure, METH_VARARGS,
	 "configure(dict of str) -> notices; ValueError says what is wrong, and nothing changes"},
	{"settings", settings, METH_NOARGS, "settings() -> dict: what is or would be recorded"},
	{"begin", begin, METH_NOARGS, "begin() -> bool: joins or makes the recording"},
	{"start", start, METH_NOARGS, "start() -> bool: the same, and events are recorded"},
	{"stop", stop, METH_NOARGS, "stop(): from now on blocks are followed, nothing else"},
	{"flush", flush, METH_VARARGS,
	 "flush(timeout_ms) -> bool: files hold what happened until now"},
	{"usage", usage, METH_VARARGS,
	 "usage(device, pool) -> (used, peak, peak of its heap) bytes of this process, as the "
	 "recorder had counted them at its last flush; None: not known"},
	{"step", step, METH_NOARGS, "step(): ends a step"},
	{"detected_step", detected_step, METH_VARARGS,
	 "detected_step(source, name, first) -> bool: a step that the program did not report; "
	 "False: it reports them"},
	{"tracing", tracing, METH_NOARGS, "tracing() -> bool: between start() and stop()?"},
	{"wants", wants, METH_VARARGS, "wants(bits) -> bool: any of WANT_*, right now?"},
	{"joined", joined, METH_NOARGS, "joined() -> bool: is there a recording?"},
	{"launched", launched, METH_NOARGS, "launched() -> bool: by the msmemscope command?"},
	{"must_wait", must_wait, METH_NOARGS,
	 "must_wait() -> bool: no recording yet, since a monitor's recorders were killed so often"},
	{"hide_file", hide_file, METH_O,
	 "hide_file(co_filename): its functions are left out of Python stacks"},
	{"session", session, METH_NOARGS, "session() -> the directory of the recording"},
	{NULL, NULL, 0, NULL},
};
