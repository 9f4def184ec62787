/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Names as they are shown. */
#include <stdlib.h>
#include <string.h>

#include "base/containers/intern.h"
#include "unwind/remote/native/native_impl.h"
#include "unwind/symbols/demangle.h"

#define NATIVE_TEXT_BYTES 400 /* templates have no bound */
#define MANGLED_MAX_BYTES 4096

/* How many bytes of a UTF-8 character begin here; 0 if it is none. */
static size_t character(const unsigned char *s)
{
	size_t n = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : *s >= 0xe0 && *s < 0xf0 ? 3 : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

const char *native_text(const char *text, size_t len)
{
	char copy[NATIVE_TEXT_BYTES];
	size_t n = 0;

	for (size_t i = 0; i < len && text[i];) {
		size_t each = character((const unsigned char *)text + i);

		if (n + (each ? each : 1) > sizeof(copy))
			break;
		if (!each || (unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
			copy[n++] = '?';
			i++;
		} else {
			memcpy(copy + n, text + i, each);
			n += each;
			i += each;
		}
	}
	return intern(copy, n);
}

const char *native_demangle(const char *name)
{
	char *plain = demangle(name);

	if (plain) {
		const char *out = native_text(plain, strlen(plain));

		free(plain);
		return out;
	}
	size_t n = strnlen(name, MANGLED_MAX_BYTES);
	/* Without the version that a library's symbol may carry: clock_nanosleep@GLIBC_2.2.5. */
	const char *version = memchr(name, '@', n);
	return native_text(name, version && version > name ? (size_t)(version - name) : n);
}
