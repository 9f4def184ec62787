/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The native part of python_stack's job (tests/targets/python/ten_frames.py): takes and gives back
 * memory, the way that a framework below Python does. Two ways of getting the Python stack of each
 * event, as one would write them first, are here to be compared with:
 *
 *	walk	the interpreter's own functions, with the GIL, text of each frame
 *	call	a function of Python that is called, also with the GIL
 *
 * The interpreter's functions are those of the program that loads this: no headers are needed.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define FRAMES 10

enum how { PLAIN, WALK, CALL };

static struct {
	int (*gil)(void);
	void (*gil_back)(int);
	void *(*frame)(void);
	int (*line)(void *);
	void *(*attr)(void *, const char *);
	const char *(*utf8)(void *);
	void *(*call)(void *, void *);
	void (*unref)(void *);
} python;

static char text[FRAMES * 512];
static void *volatile kept;

void look_up(void);
void pairs(long events, int how, void *function);

void look_up(void)
{
	*(void **)&python.gil = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
	*(void **)&python.gil_back = dlsym(RTLD_DEFAULT, "PyGILState_Release");
	*(void **)&python.frame = dlsym(RTLD_DEFAULT, "PyEval_GetFrame");
	*(void **)&python.line = dlsym(RTLD_DEFAULT, "PyFrame_GetLineNumber");
	*(void **)&python.attr = dlsym(RTLD_DEFAULT, "PyObject_GetAttrString");
	*(void **)&python.utf8 = dlsym(RTLD_DEFAULT, "PyUnicode_AsUTF8");
	*(void **)&python.call = dlsym(RTLD_DEFAULT, "PyObject_CallObject");
	*(void **)&python.unref = dlsym(RTLD_DEFAULT, "Py_DecRef");
}

static int put_frame(void *frame, char *out, size_t room)
{
	void *code = python.attr(frame, "f_code");
	void *file = python.attr(code, "co_filename"), *name = python.attr(code, "co_name");
	int n = snprintf(out, room, "%s(%d): %s\n", python.utf8(file), python.line(frame),
			 python.utf8(name));

	python.unref(name);
	python.unref(file);
	python.unref(code);
	return n;
}

static void walk(void)
{
	int state = python.gil();
	void *frame = python.frame(), *owned = NULL;
	size_t used = 0;

	for (int i = 0; frame && i < FRAMES && used < sizeof(text); i++) {
		used += (size_t)put_frame(frame, text + used, sizeof(text) - used);
		frame = python.attr(frame, "f_back"); /* there are more than FRAMES */
		if (owned)
			python.unref(owned);
		owned = frame;
	}
	if (owned)
		python.unref(owned);
	python.gil_back(state);
}

static void call(void *function)
{
	int state = python.gil();

	python.unref(python.call(function, NULL));
	python.gil_back(state);
}

void pairs(long events, int how, void *function)
{
	for (long i = 0; i < events; i++) {
		if (i & 1)
			free(kept);
		else
			kept = malloc(4096);
		if (how == WALK)
			walk();
		else if (how == CALL)
			call(function);
	}
}
