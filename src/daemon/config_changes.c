/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/config_changes.h"

#include <stddef.h>
#include <string.h>

#include "base/text/args.h"

#define AT(member) offsetof(struct daemon_config, member)

/* The options of metrics and sinks lie side by side. */
static enum reload_part part_of(size_t offset)
{
	if (offset == AT(regression_percent))
		return RELOAD_JOBS;
	if (offset >= AT(trust_local_users) && offset <= AT(access_file))
		return RELOAD_ACCESS;
	if (offset < AT(kernel_interval_s))
		return RELOAD_FIXED;
	return offset < AT(log_file) ? RELOAD_METRICS : RELOAD_LOG;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_texts(const char *const *a, const char *const *b)
{
	while (*a && same_text(*a, *b))
		a++, b++;
	return same_text(*a, *b);
}

static bool same_value(const struct opt *o, const struct daemon_config *a,
		       const struct daemon_config *b)
{
	const void *x = (const char *)a + o->offset, *y = (const char *)b + o->offset;

	switch (o->kind) {
	case OPT_FLAG:
		return *(const bool *)x == *(const bool *)y;
	case OPT_UINT:
	case OPT_SWITCH:
		return *(const unsigned *)x == *(const unsigned *)y;
	case OPT_TEXT:
		return same_text(*(const char *const *)x, *(const char *const *)y);
	case OPT_CALL: /* --bind */
		return same_texts(x, y);
	default:
		return true;
	}
}

unsigned reload_compare(const struct daemon_config *now, const struct daemon_config *next,
			struct buf *out_fixed)
{
	unsigned parts = 0;

	for (const struct opt *o = now->options; o->name; o++) {
		if (o->offset >= sizeof(*now) || same_value(o, now, next))
			continue;
		parts |= part_of(o->offset);
		if (part_of(o->offset) == RELOAD_FIXED)
			buf_addf(out_fixed, "%s--%s", out_fixed->len ? ", " : "", o->name);
	}
	return parts;
}

void reload_apply(struct daemon_config *now, const struct daemon_config *next, unsigned parts)
{
	if (parts & RELOAD_METRICS)
		memcpy((char *)now + AT(kernel_interval_s),
		       (const char *)next + AT(kernel_interval_s),
		       AT(log_file) - AT(kernel_interval_s));
	if (parts & RELOAD_LOG)
		now->log_file = next->log_file;
	if (parts & RELOAD_JOBS)
		now->regression_percent = next->regression_percent;
	if (parts & RELOAD_ACCESS) {
		now->trust_local_users = next->trust_local_users;
		now->admin_group = next->admin_group;
		now->access_file = next->access_file;
	}
}
