/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * __cxa_demangle() of the C++ runtime, if it is installed: found at the first C++ name, not linked.
 * A mangled name is bounded before it is passed on (demanglers recurse), and so is what it means: that
 * may be longer than any memory (demangled_size.h). Such a name stays as it is.
 */
#include "unwind/symbols/demangle.h"

#include "base/containers/intern.h"
#include "base/text/printable.h"
#include "unwind/symbols/demangled_size.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MANGLED_MAX_BYTES 4096
#define PLAIN_MAX_BYTES (64u << 10) /* of what it means: nobody reads more */
#define SHOWN_MAX_BYTES 400 /* templates have no bound */

typedef char *(*demangle_fn)(const char *name, char *buffer, size_t *length, int *status);

/* Tried once. libstdc++ is on every machine that runs PyTorch; where it is not, names stay as
 * they are. */
static demangle_fn find_runtime(void)
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

/* "_Z" begins every mangled name of the Itanium ABI. Rust's "_R" is left as it is. */
char *demangle(const char *name)
{
	size_t n = strnlen(name, MANGLED_MAX_BYTES);
	int status = -1;

	if (n < 3 || n == MANGLED_MAX_BYTES || name[0] != '_' || name[1] != 'Z')
		return NULL;
	demangle_fn fn = demangled_size(name) < DEMANGLED_MOST ? find_runtime() : NULL;
	char *plain = fn ? fn(name, NULL, NULL, &status) : NULL;
	if (plain && status == 0 && strlen(plain) <= PLAIN_MAX_BYTES)
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

const char *symbol_text(const char *text, size_t len)
{
	struct buf shown = {0};

	len = strnlen(text, len);
	if (len > SHOWN_MAX_BYTES) {
		len = SHOWN_MAX_BYTES;
		while (len && (text[len] & 0xc0) == 0x80)
			len--;
	}
	text_add_printable(&shown, text, len);
	const char *out = intern(buf_str(&shown), shown.len);
	buf_release(&shown);
	return out;
}

const char *symbol_name(const char *name)
{
	char *plain = demangle(name);
	size_t n = strnlen(plain ? plain : name, MANGLED_MAX_BYTES);
	const char *version = plain ? NULL : memchr(name, '@', n);
	const char *out = symbol_text(plain ? plain : name,
				      version && version > name ? (size_t)(version - name) : n);

	free(plain);
	return out;
}
