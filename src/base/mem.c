/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noreturn)) static void out_of_memory(size_t size)
{
	fprintf(stderr, "sonde: out of memory (%zu bytes wanted)\n", size);
	exit(70);
}

void bug_report(const char *file, int line, const char *what)
{
	fprintf(stderr, "sonde: bug at %s:%d: %s\n", file, line, what);
	abort();
}

void *xmalloc(size_t size)
{
	void *p = malloc(size ? size : 1);

	if (!p)
		out_of_memory(size);
	return p;
}

void *xcalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size ? size : 1);

	if (!p)
		out_of_memory(size);
	return p;
}

void *xcalloc_apart(size_t size)
{
	size_t whole = (size + MEM_APART - 1) / MEM_APART * MEM_APART;
	void *p = aligned_alloc(MEM_APART, whole);

	if (!p)
		out_of_memory(size);
	return memset(p, 0, whole);
}

void *xrealloc(void *old, size_t size)
{
	void *p = realloc(old, size ? size : 1);

	if (!p)
		out_of_memory(size);
	return p;
}

char *xstrdup(const char *s)
{
	return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
	char *p = xmalloc(n + 1);

	memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

char *xasprintf(const char *fmt, ...)
{
	char *p;
	va_list ap;

	va_start(ap, fmt);
	int n = vasprintf(&p, fmt, ap);
	va_end(ap);
	if (n < 0)
		out_of_memory(0);
	return p;
}

void *xgrow(void *p, size_t *cap, size_t need, size_t size)
{
	if (need <= *cap)
		return p;
	size_t want = *cap ? *cap : 16;
	while (want < need)
		want *= 2;
	BUG_ON(want > SIZE_MAX / size);
	*cap = want;
	return xrealloc(p, want * size);
}
