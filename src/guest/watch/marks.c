/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Operators of torch as its dispatcher reports them in marks:
 *
 *	memscope-aten-b: name=<operator>	it begins
 *	memscope-aten-ac:ptr=<n>;…		a tensor of it
 *	memscope-aten-e: name=<operator>	it ends
 */
#include "guest/watch/watch.h"

#include <string.h>

#define MAX_MARK 8192
#define ATEN "memscope-aten-"

/* The value of `key` up to ';' or '}', as a C string in out; false: not there or too long. */
static bool find_field(const char *text, const char *key, char *out, size_t room)
{
	const char *at = strstr(text, key);

	if (!at)
		return false;
	at += strlen(key);
	size_t n = strcspn(at, ";}");
	if (!n || n >= room)
		return false;
	memcpy(out, at, n);
	out[n] = '\0';
	return true;
}

static uint64_t find_number(const char *text, const char *key)
{
	char digits[24];
	uint64_t n = 0;

	if (!find_field(text, key, digits, sizeof(digits)))
		return 0;
	for (const char *p = digits; *p; p++) {
		if (*p < '0' || *p > '9' || n > UINT64_MAX / 10 - 1)
			return 0;
		n = n * 10 + (uint64_t)(*p - '0');
	}
	return n;
}

static void mark_output(const char *text, const char *op)
{
	char is_output[8];

	if (find_field(text, "is_output=", is_output, sizeof(is_output)) &&
	    !strcmp(is_output, "True"))
		collect_watch_output(op, find_number(text, "ptr="),
				     find_number(text, "tensor_size="), WATCH_NEXT_OUTPUT);
}

/* Only the dispatcher's marks begin with the prefix; anything else is the job's own text and
 * left alone. */
void watch_mark(const char *message, bool written)
{
	char op[SESSION_NAME_BYTES];
	size_t n = strlen(ATEN);

	if (!message || strncmp(message, ATEN, n))
		return;
	const char *text = message + n;
	bool begins = !strncmp(text, "b:", 2), ends = !strncmp(text, "e:", 2);
	/* Written before what happens at its beginning, and after what happens until its end. */
	if (begins != written || (!begins && !ends && strncmp(text, "ac:", 3)))
		return;
	if (strnlen(text, MAX_MARK) == MAX_MARK || !find_field(text, "name=", op, sizeof(op)))
		return;
	if (begins)
		collect_watch_begin(op);
	else if (ends)
		collect_watch_end(op);
	else
		mark_output(text, op);
}
