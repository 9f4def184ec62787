/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl/values.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/number_read.h"
#include "cli/command.h"
#include "client/profiler_config.h"

static void *target_of(struct args *a, const struct opt *opt)
{
	return (char *)a->target + opt->offset;
}

static int refuse_value(const struct opt *opt, const char *value, const char *rule, struct err *err)
{
	return err_set(err, -EINVAL, "invalid value '%.100s' for '--%s': %s", value, opt->name,
		       rule);
}

/* A number with blanks around it. */
static bool read_whole(const char *text, size_t len, int64_t *out)
{
	while (len && *text == ' ') {
		text++;
		len--;
	}
	while (len && text[len - 1] == ' ')
		len--;
	return number_read(text, len, out);
}

/* Sets the int64_t or uint64_t. */
static int set_whole(struct args *a, const struct opt *opt, const char *value, int64_t least,
		     const char *rule, struct err *err)
{
	int64_t n;

	if (!read_whole(value, strlen(value), &n) || n < least)
		return refuse_value(opt, value, rule, err);
	*(int64_t *)target_of(a, opt) = n;
	return 0;
}

CTL_VALUE(ctl_value_u64)
{
	return set_whole(a, opt, value, 0, "expected a number from 0 to 2^63 - 1", err);
}

CTL_VALUE(ctl_value_i64)
{
	return set_whole(a, opt, value, INT64_MIN, "expected an integer", err);
}

CTL_VALUE(ctl_value_positive)
{
	return set_whole(a, opt, value, 1, "must be a positive integer", err);
}

CTL_VALUE(ctl_value_step)
{
	return set_whole(a, opt, value, -1, "must be a non-negative integer or -1", err);
}

bool ctl_float(const char *text, float *out)
{
	char *end;

	/* not what strtof() takes besides: hexadecimal, infinities, no number at all */
	if (!*text || strspn(text, "0123456789.+-eE") != strlen(text))
		return false;
	*out = strtof(text, &end);
	return !*end && isfinite(*out);
}

CTL_VALUE(ctl_value_seconds)
{
	float v;

	if (!ctl_float(value, &v) || v < 0)
		return refuse_value(opt, value, "must be a positive number", err);
	*(float *)target_of(a, opt) = v;
	return 0;
}

/* Whether a value of a config line would reach its reader whole. */
static int check_line(const char *name, const char *value, size_t max, struct err *err)
{
	size_t len = strlen(value);
	json_t *text = json_stringn(value, len);

	json_decref(text);
	if (len > max)
		return err_set(err, -EINVAL,
			       "invalid value for '--%s': the input string is too long, max "
			       "allowed: %zu bytes",
			       name, max);
	if (!text)
		return err_set(err, -EINVAL, "invalid value for '--%s': it is not UTF-8", name);
	if (len && (value[0] == ' ' || value[len - 1] == ' '))
		return err_set(err, -EINVAL,
			       "invalid value '%.100s' for '--%s': blanks at its ends would be "
			       "lost on the way to the process",
			       value, name);
	for (const char *c = value; *c; c++)
		if (*c == '=' || *c == '#' || (unsigned char)*c < ' ' || *c == 0x7f)
			return err_set(
				err, -EINVAL,
				"invalid value '%.100s' for '--%s': it is sent as a line "
				"KEY=VALUE, in which no '=', '#' or control character can stand",
				value, name);
	return 0;
}

CTL_VALUE(ctl_value_text)
{
	*(const char **)target_of(a, opt) = value;
	return check_line(opt->name, value, CONFIG_TEXT_MAX, err);
}

CTL_VALUE(ctl_value_path)
{
	*(const char **)target_of(a, opt) = value;
	return check_line(opt->name, value, CONFIG_PATH_MAX, err);
}

/* --- lists --- */

bool ctl_is_one_of(const char *const *choices, const char *word, size_t len)
{
	for (; *choices; choices++)
		if (strlen(*choices) == len && !strncmp(*choices, word, len))
			return true;
	return false;
}

static void append_item(char *list, const char *item, size_t len)
{
	size_t at = strlen(list);

	if (at)
		list[at++] = ',';
	memcpy(list + at, item, len);
	list[at + len] = '\0';
}

/* A list of words of a set. */
static int set_words(struct args *a, const struct opt *opt, const char *value, const char *what,
		     const char *const *choices, struct err *err)
{
	char *list = target_of(a, opt);
	struct buf all = {0};
	const char *item;
	size_t len;
	int r = check_line(opt->name, value, CONFIG_TEXT_MAX, err);

	list[0] = '\0';
	while (r == 0 && command_next_item(&value, &item, &len)) {
		if (ctl_is_one_of(choices, item, len)) {
			append_item(list, item, len);
			continue;
		}
		const char *near = args_nearest(item, len, choices);
		if (near)
			buf_addf(&all, "did you mean '%s'?", near);
		else
			buf_add_str(&all, "expected "), args_list_choices(choices, &all);
		r = err_set(err, -EINVAL, "invalid value for '--%s': invalid %s '%.*s'; %s",
			    opt->name, what, (int)(len < 100 ? len : 100), item, buf_str(&all));
		buf_release(&all);
	}
	return r;
}

CTL_VALUE(ctl_value_kinds)
{
	return set_words(a, opt, value, "MSPTI activity kind", npu_monitor_kinds, err);
}

CTL_VALUE(ctl_value_host_systems)
{
	if (!strcmp(value, "None")) {
		*(char *)target_of(a, opt) = '\0';
		return 0;
	}
	return set_words(a, opt, value, "NPU trace host system", nputrace_host_systems, err);
}

CTL_VALUE(ctl_value_ranks)
{
	char *list = target_of(a, opt);
	const char *item;
	size_t len;
	int64_t n;
	int r = check_line(opt->name, value, CONFIG_TEXT_MAX, err);

	list[0] = '\0';
	while (r == 0 && command_next_item(&value, &item, &len)) {
		if (!len)
			return refuse_value(opt, "", "must be a comma-separated list of integers",
					    err);
		if (!read_whole(item, len, &n))
			return err_set(err, -EINVAL, "invalid integer value '%.*s' in '--%s'",
				       (int)(len < 100 ? len : 100), item, opt->name);
		append_item(list, item, len);
	}
	return r;
}

CTL_VALUE(ctl_value_pids)
{
	const char *item, *rest = value;
	size_t len;
	int64_t n;

	*(const char **)target_of(a, opt) = value;
	if (strlen(value) > CONFIG_TEXT_MAX)
		return check_line(opt->name, value, CONFIG_TEXT_MAX, err);
	while (*value && command_next_item(&rest, &item, &len))
		if (!read_whole(item, len, &n) || n < 0 || n > INT32_MAX)
			return refuse_value(opt, value, "expected process ids separated by commas",
					    err);
	return 0;
}

json_t *ctl_pids(const char *text)
{
	json_t *list = json_array();
	const char *item, *rest = text;
	size_t len;
	int64_t n;

	while (*text && command_next_item(&rest, &item, &len))
		if (read_whole(item, len, &n))
			json_array_append_new(list, json_integer(n));
	return list;
}

/* --- numbers that travel as text --- */

static int set_number(struct args *a, const struct opt *opt, const char *value, bool good,
		      int64_t n, const char *rule, struct err *err)
{
	char *text = target_of(a, opt);

	text[0] = '\0';
	if (!value[strspn(value, " ")])
		return 0;
	if (!good)
		return refuse_value(opt, value, rule, err);
	snprintf(text, 16, "%d", (int)n);
	return 0;
}

CTL_VALUE(ctl_value_rotate_lines)
{
	int64_t n = 0;
	bool good = read_whole(value, strlen(value), &n) && n >= 100 && n <= 500000;

	return set_number(a, opt, value, good, n, "must be an integer in [100, 500000]", err);
}

CTL_VALUE(ctl_value_rotate_files)
{
	int64_t n = 0;
	bool good = read_whole(value, strlen(value), &n) && (n == -1 || n >= 2) && n <= INT32_MAX;

	return set_number(a, opt, value, good, n,
			  "must be -1 or an integer greater than or equal to 2", err);
}
