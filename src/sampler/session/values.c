/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/values.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/number.h"

#define MOST_SECONDS 1e9 /* some thirty years; in nanoseconds it fits into 64 bits */

bool stack_seconds(const char *text, uint64_t *out_ns)
{
	static const struct {
		const char *name;
		double seconds;
	} units[] = {{"", 1},	{"s", 1},    {"ms", 1e-3}, {"us", 1e-6},
		     {"m", 60}, {"min", 60}, {"h", 3600},  {"d", 86400}};
	char *end = NULL;

	/* strtod() would also take signs, blanks, hexadecimal numbers, "inf" and "nan" */
	if (!isdigit((unsigned char)*text) && *text != '.')
		return false;
	if (text[0] == '0' && (text[1] | 32) == 'x')
		return false;
	double v = strtod(text, &end);
	if (end == text)
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(units[i].name, end))
			continue;
		v *= units[i].seconds;
		if (!(v <= MOST_SECONDS))
			return false;
		*out_ns = (uint64_t)(v * 1e9 + 0.5);
		return true;
	}
	return false;
}

int stack_parse_seconds(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	uint64_t ns = 0;

	if (stack_seconds(value, &ns) && ns >= (uint64_t)opt->min * 1000) {
		memcpy((char *)a->target + opt->offset, &ns, sizeof(ns));
		return 0;
	}
	if (opt->min)
		return err_set(err, -EINVAL,
			       "invalid value '%.100s' for '--%s': expected seconds such as 0.1 or "
			       "60, or a number with us, ms, s, m or h behind it, at least %g%s",
			       value, opt->name, opt->min < 1000 ? opt->min : opt->min / 1e3,
			       opt->min < 1000 ? "us" : "ms");
	return err_set(
		err, -EINVAL,
		"invalid value '%.100s' for '--%s': expected seconds such as 0.1 or 60, or a "
		"number with us, ms, s, m or h behind it",
		value, opt->name);
}

unsigned stack_ms(uint64_t ns)
{
	uint64_t ms = (ns + 999999) / 1000000;

	return ms > UINT_MAX ? UINT_MAX : (unsigned)ms;
}

void stack_pids_release(struct stack_pids *p)
{
	free(p->list);
	*p = (struct stack_pids){0};
}

void stack_texts_release(struct stack_texts *t)
{
	free(t->list);
	*t = (struct stack_texts){0};
}

void stack_pid_add(struct stack_pids *p, pid_t pid)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->list[i] == pid)
			return;
	p->list = xgrow(p->list, &p->cap, p->n + 1, sizeof(*p->list));
	p->list[p->n++] = pid;
}

int stack_parse_pids(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct stack_pids *pids = (struct stack_pids *)((char *)a->target + opt->offset);
	bool any = false;

	for (const char *p = value; *p;) {
		size_t len = strcspn(p, ","), first = strspn(p, " \t"), last = len;
		int64_t pid = 0;

		while (last > first && strchr(" \t", p[last - 1]))
			last--;
		if (first < last) {
			if (!number_read(p + first, last - first, &pid) || pid < 1 ||
			    pid > INT32_MAX)
				return err_set(err, -EINVAL,
					       "invalid value '%.*s' for '--%s': expected process "
					       "ids, such as 4711 or 4711,4712",
					       (int)(len < 100 ? len : 100), p, opt->name);
			stack_pid_add(pids, (pid_t)pid);
			any = true;
		}
		p += len + (p[len] == ',');
	}
	if (!any)
		return err_set(err, -EINVAL,
			       "option '--%s': empty pid list; expected process ids, such as 4711 "
			       "or 4711,4712",
			       opt->name);
	return 0;
}

int stack_parse_text(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct stack_texts *texts = (struct stack_texts *)((char *)a->target + opt->offset);

	if (!*value)
		return err_set(err, -EINVAL, "option '--%s' needs a value that is not empty",
			       opt->name);
	texts->list = xgrow(texts->list, &texts->cap, texts->n + 1, sizeof(*texts->list));
	texts->list[texts->n++] = value;
	return 0;
}
