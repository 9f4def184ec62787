/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sys.version is kept in a static buffer of the interpreter once sys is there:
 *
 *	\0 "3.9.18 (main, Jan  1 2024, 12:00:00) \n[GCC 12.2.0]" \0 \0 …
 *
 * Looked for from its dots outwards: a dot is rarer than a digit. The byte before the text is 0, as
 * the variable is zero but for the text; what follows the number must look like the rest.
 */
#include "unwind/remote/find/version.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct text {
	const char *at, *end;
};

static bool take_char(struct text *t, char c)
{
	if (t->at == t->end || *t->at != c)
		return false;
	t->at++;
	return true;
}

/* One to three digits of a number up to 255. */
static bool take_number(struct text *t, uint32_t *out)
{
	const char *first = t->at;
	uint32_t v = 0;

	while (t->at < t->end && t->at - first < 3 && *t->at >= '0' && *t->at <= '9')
		v = v * 10 + (uint32_t)(*t->at++ - '0');
	*out = v;
	return t->at > first && v <= 255;
}

/* "a1", "b2", "rc3", or nothing: a release. As in PY_VERSION_HEX. */
static uint32_t take_level(struct text *t)
{
	uint32_t serial, level = 0xf;
	struct text before = *t;

	if (take_char(t, 'a'))
		level = 0xa;
	else if (take_char(t, 'b'))
		level = 0xb;
	else if (take_char(t, 'r') && take_char(t, 'c'))
		level = 0xc;
	if (level != 0xf && take_number(t, &serial))
		return level << 4 | (serial & 0xf);
	*t = before;
	return 0xf0;
}

/* Three numbers with dots, as a version begins with. */
static bool take_version(struct text *t, uint32_t *out)
{
	uint32_t major, minor, micro;

	if (!take_number(t, &major) || (major != 2 && major != 3) || !take_char(t, '.') ||
	    !take_number(t, &minor) || !take_char(t, '.') || !take_number(t, &micro))
		return false;
	*out = major << 24 | minor << 16 | micro << 8 | take_level(t);
	return true;
}

/*
 * What follows the number: "(build, date) [compiler]", with a vendor's words before it perhaps.
 *
 * "(main, Jan 1 2024, 12:00:00) [GCC 12.2.0]": brackets of both kinds in this order, printable,
 * ended by a NUL within VERSION_TEXT bytes.
 */
static bool is_version_tail(const struct text *t)
{
	const char *end = memchr(t->at, 0, (size_t)(t->end - t->at));
	const char *open, *close;

	if (!end || end - t->at > VERSION_TEXT)
		return false;
	for (const char *c = t->at; c < end; c++)
		if ((*c < ' ' && *c != '\n') || *c == 127)
			return false;
	open = memchr(t->at, '(', (size_t)(end - t->at));
	close = open ? memchr(open, ')', (size_t)(end - open)) : NULL;
	return close && memchr(close, '[', (size_t)(end - close));
}

bool version_find(const char *bytes, size_t n, uint32_t *out)
{
	const char *end = bytes + n;

	for (const char *dot = bytes; (dot = memchr(dot, '.', (size_t)(end - dot))); dot++) {
		struct text t = {.at = dot - 1, .end = end};
		uint32_t version;

		/* The variable is all zeros but for the text. */
		if (dot - bytes < 2 || dot[-2] != 0)
			continue;
		if (take_version(&t, &version) && is_version_tail(&t)) {
			*out = version;
			return true;
		}
	}
	return false;
}

#define BLOCK (256u << 10)
#define MAX_BYTES (64u << 20) /* of one segment: more is not searched */

_Static_assert(SCAN_OVERLAP > 2 * VERSION_TEXT, "a text may not be cut");

/* Blocks overlap, so that what lies on a border is found in the next one. A block that cannot be
 * read is skipped. */
static bool scan_part(const struct elf_image *image, const struct elf_part *p, char *block,
		      scan_fn fn, void *arg)
{
	uint64_t bytes = p->bytes < MAX_BYTES ? p->bytes : MAX_BYTES;
	/* Words are aligned: begin at one. */
	uint64_t at = -p->addr & 7;

	while (at < bytes) {
		size_t n = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;

		if (python_read(image->reader, p->addr + at, block, n) == 0 &&
		    fn(arg, p->addr + at, block, n))
			return true;
		if (n < BLOCK)
			break;
		at += BLOCK - SCAN_OVERLAP;
	}
	return false;
}

bool scan_image(const struct elf_image *image, scan_fn fn, void *arg)
{
	char *block = xmalloc(BLOCK);
	bool found = false;

	for (unsigned i = 0; i < image->nparts && !found; i++)
		if (image->parts[i].writable)
			found = scan_part(image, &image->parts[i], block, fn, arg);
	free(block);
	return found;
}

static bool find_version(void *arg, uint64_t addr, const char *bytes, size_t n)
{
	(void)addr;
	return version_find(bytes, n, arg);
}

bool scan_version(const struct elf_image *image, uint32_t *out)
{
	return scan_image(image, find_version, out);
}
