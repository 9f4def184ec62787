/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An error with words. A function that can fail returns a negative errno and, where the caller
 * passed a `struct err`, says in it what failed and on what. Untouched on success; NULL is fine.
 * Messages: lower case, no full stop, what failed first, the subject in quotes.
 */
#ifndef SONDE_BASE_ERR_H
#define SONDE_BASE_ERR_H

struct err {
	int code; /* negative errno */
	char text[512];
};

/* Fills err (if any) and returns code, so that `return err_set(err, -EINVAL, "…")` reads well. */
__attribute__((format(printf, 3, 4))) int err_set(struct err *err, int code, const char *fmt, ...);

/* The same with ": <strerror(-code)>" behind the text. */
__attribute__((format(printf, 3, 4))) int err_sys(struct err *err, int code, const char *fmt, ...);

#endif
