/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 0))) static size_t fill(struct err *err, int code, const char *fmt,
							 va_list ap)
{
	int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);

	err->code = code;
	if (n < 0)
		n = 0;
	return (size_t)n < sizeof(err->text) ? (size_t)n : sizeof(err->text) - 1;
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	fill(err, code, fmt, ap);
	va_end(ap);
	return code;
}

int err_sys(struct err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	va_start(ap, fmt);
	size_t n = fill(err, code, fmt, ap);
	va_end(ap);
	snprintf(err->text + n, sizeof(err->text) - n, ": %s", strerror(-code));
	return code;
}
