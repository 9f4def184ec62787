/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "wire/proc_stat.h"

#include <string.h>

#define FIELD_STATE 3
#define FIELD_START 22 /* every kernel has the fields up to here */
#define FIELD_LAST 28

/* Numbers of the fields that are kept; all others are passed over. */
static uint64_t *field_target(struct proc_stat *s, int field, uint64_t *parent)
{
	switch (field) {
	case 4:
		return parent;
	case 9:
		return &s->flags;
	case 14:
		return &s->user_ticks;
	case 15:
		return &s->system_ticks;
	case FIELD_START:
		return &s->start_ticks;
	case 26:
		return &s->start_code;
	case 28:
		return &s->start_stack;
	default:
		return NULL;
	}
}

/* Reads digits; fields such as the priority may be negative, none of ours is. */
static uint64_t read_number(const char **at, const char *end)
{
	uint64_t v = 0;

	for (; *at < end && **at >= '0' && **at <= '9'; (*at)++)
		v = v * 10 + (uint64_t)(**at - '0');
	return v;
}

/* The fields behind the name, each after one blank. The number of the last one that was there. */
static int read_fields(const char *at, const char *end, struct proc_stat *s)
{
	uint64_t parent = 0;
	int field = FIELD_STATE - 1;

	while (field < FIELD_LAST && end - at >= 2 && *at == ' ' && at[1] != ' ') {
		at++;
		if (++field == FIELD_STATE) {
			s->state = *at;
		} else {
			uint64_t *target = field_target(s, field, &parent);

			if (target)
				*target = read_number(&at, end);
		}
		while (at < end && *at != ' ' && *at != '\n')
			at++;
	}
	s->parent = parent <= INT32_MAX ? (uint32_t)parent : 0;
	return field;
}

bool proc_stat_parse(const char *text, size_t len, struct proc_stat *out)
{
	const char *open = memchr(text, '(', len), *end = text + len;
	const char *close = open ? memrchr(open, ')', (size_t)(end - open)) : NULL;
	struct proc_stat s = {0};

	if (!close)
		return false;
	size_t name = (size_t)(close - open - 1);
	if (name >= sizeof(s.name))
		name = sizeof(s.name) - 1;
	memcpy(s.name, open + 1, name);
	if (read_fields(close + 1, end, &s) < FIELD_START)
		return false;
	*out = s;
	return true;
}

/* The number behind a name at the beginning of a line. */
static bool find_number(const char *text, size_t len, const char *name, uint64_t *out)
{
	const char *at = memmem(text, len, name, strlen(name)), *end = text + len;

	if (!at)
		return false;
	at += strlen(name);
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	if (at == end || *at < '0' || *at > '9')
		return false;
	*out = read_number(&at, end);
	return true;
}

uint32_t proc_status_filters(const char *text, size_t len)
{
	uint64_t mode = 0, filters = 0;

	if (!find_number(text, len, "\nSeccomp:", &mode) || !mode)
		return 0;
	if (!find_number(text, len, "\nSeccomp_filters:", &filters) || !filters)
		return 1;
	return filters < UINT32_MAX ? (uint32_t)filters : UINT32_MAX;
}

uint32_t proc_status_peak_kib(const char *text, size_t len)
{
	uint64_t kib = 0;

	if (!find_number(text, len, "\nVmHWM:", &kib))
		return 0;
	return kib < UINT32_MAX ? (uint32_t)kib : UINT32_MAX;
}
