/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/symbols/demangle.h"

#include "base/text/printable.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MANGLED_MAX_BYTES 4096 /* what it means may be much longer */

typedef char *(*demangle_fn)(const char *name, char *buffer, size_t *length, int *status);

static demangle_fn runtime(void)
{
	static bool tried;
	static demangle_fn fn;

	if (!tried) {
		void *lib = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_LOCAL);
		void *found = lib ? dlsym(lib, "__cxa_demangle") : NULL;

		memcpy(&fn, &found, sizeof(fn));
		tried = true;
	}
	return fn;
}

char *demangle(const char *name)
{
	size_t n = strnlen(name, MANGLED_MAX_BYTES);
	int status = -1;

	if (n < 3 || n == MANGLED_MAX_BYTES || name[0] != '_' || name[1] != 'Z')
		return NULL;
	demangle_fn fn = runtime();
	char *plain = fn ? fn(name, NULL, NULL, &status) : NULL;
	if (plain && status == 0)
		return plain;
	free(plain);
	return NULL;
}

void demangle_add_name(struct buf *out, const char *name, size_t max)
{
	char *plain = demangle(name);
	const char *text = plain ? plain : name;

	text_add_shortened(out, text, strlen(text), max);
	free(plain);
}
