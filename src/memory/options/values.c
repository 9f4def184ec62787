/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/options/values.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text/printable.h"
#include "memory/options/options.h"

#define WIDE_COMMA "\xef\xbc\x8c" /* U+FF0C */
#define INPUT_MAX_BYTES (8ll << 30)

static size_t comma_len(const char *p)
{
	if (*p == ',')
		return 1;
	return strncmp(p, WIDE_COMMA, 3) ? 0 : 3;
}

bool mem_list_next(const char **pos, struct mem_item *out_item)
{
	const char *p = *pos;

	while (comma_len(p))
		p += comma_len(p);
	const char *start = p;
	while (*p && !comma_len(p))
		p++;
	*pos = p;
	if (p == start)
		return false;
	*out_item = (struct mem_item){start, (size_t)(p - start)};
	return true;
}

static bool item_is(const struct mem_item *i, const char *word)
{
	return strlen(word) == i->len && !strncmp(i->text, word, i->len);
}

static int item_find(const struct mem_item *i, const char *const *words)
{
	for (int k = 0; words[k]; k++)
		if (item_is(i, words[k]))
			return k;
	return -1;
}

/* "invalid <what> '<value>': '<item>' is unknown[; did you mean 'x'?]; expected <accepted>" */
static int refuse_item(struct err *err, const char *what, const struct mem_item *i,
		       const char *const *words, const char *accepted)
{
	const char *near = words ? args_nearest(i->text, i->len, words) : NULL;
	int len = i->len > 120 ? 120 : (int)i->len;

	if (near)
		return err_set(err, -EINVAL, "invalid %s '%.*s', did you mean '%s'? Expected %s",
			       what, len, i->text, near, accepted);
	return err_set(err, -EINVAL, "invalid %s '%.*s': expected %s", what, len, i->text,
		       accepted);
}

static int refuse_empty(struct err *err, const char *what, const char *accepted)
{
	return err_set(err, -EINVAL, "invalid %s '': expected %s", what, accepted);
}

static struct mem_config *config_of(struct args *a)
{
	return &((struct mem_options *)a->target)->config;
}

int mem_parse_steps(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	static const char accepted[] = "one to five step numbers from 1, separated by commas";
	struct mem_config *c = config_of(a);
	struct mem_item i;
	unsigned n = 0, step;

	(void)opt;
	while (mem_list_next(&value, &i)) {
		if (!args_number(i.text, i.len, 1, UINT_MAX, &step))
			return refuse_item(err, "steps input", &i, NULL, accepted);
		if (n == MEM_MAX_STEPS)
			return err_set(err, -EINVAL,
				       "invalid steps input: more than %d steps; expected %s",
				       MEM_MAX_STEPS, accepted);
		c->steps[n++] = step;
	}
	if (!n)
		return refuse_empty(err, "steps input", accepted);
	c->nsteps = n;
	return 0;
}

int mem_parse_max_size(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	uint64_t bytes;

	(void)opt;
	if (!args_size(value, &bytes) || bytes >> 10 < MEM_MIN_KIB || bytes >> 10 > UINT32_MAX)
		return err_set(err, -EINVAL,
			       "invalid max-size '%.100s': expected a size from 1MiB to 4TiB, such "
			       "as 2G or 500MiB",
			       value);
	config_of(a)->max_kib = (uint32_t)(bytes >> 10);
	return 0;
}

/* "npu", "gpu:1": the accelerator, in the words of several vendors. -1: every one; -2: no such. */
static int parse_accelerator(const struct mem_item *i)
{
	static const char *const words[] = {"npu", "gpu", "cuda", NULL};
	const char *colon = memchr(i->text, ':', i->len);
	struct mem_item name = {i->text, colon ? (size_t)(colon - i->text) : i->len};
	unsigned id;

	if (item_find(&name, words) < 0)
		return -2;
	if (!colon)
		return -1;
	return args_number(colon + 1, i->len - name.len - 1, 0, MEM_MAX_DEVICES - 1, &id) ? (int)id
											  : -2;
}

int mem_parse_device(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	static const char *const words[] = {"npu", "gpu", "cuda", "cpu", NULL};
	static const char accepted[] = "npu, gpu or cuda (every device), npu:0 to npu:31 (or "
				       "gpu:N, cuda:N), cpu; separated by commas";
	struct mem_config *c = config_of(a);
	uint32_t slots = 0;
	bool all = false, cpu = false;
	struct mem_item i;

	(void)opt;
	while (mem_list_next(&value, &i)) {
		int id = parse_accelerator(&i);

		if (item_is(&i, "cpu"))
			cpu = true;
		else if (id == -1)
			all = true;
		else if (id >= 0)
			slots |= 1u << id;
		else
			return refuse_item(err, "device", &i, words, accepted);
	}
	if (!all && !cpu && !slots)
		return refuse_empty(err, "device", accepted);
	c->npu_all = all;
	c->npu_slots = all ? UINT32_MAX : slots;
	c->cpu = cpu;
	return 0;
}

int mem_parse_level(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	static const char *const words[] = {"op", "kernel", "0", "1", NULL};
	static const char accepted[] = "op, kernel or both, separated by a comma";
	struct mem_config *c = config_of(a);
	uint32_t level = 0;
	struct mem_item i;

	(void)opt;
	while (mem_list_next(&value, &i)) {
		int k = item_find(&i, words);

		if (k < 0)
			return refuse_item(err, "data trace level input", &i, words, accepted);
		level |= 1u << (k % 2);
	}
	if (!level)
		return refuse_empty(err, "data trace level input", accepted);
	c->level = level;
	return 0;
}

int mem_parse_events(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	static const char *const words[] = {"alloc",	 "free", "launch", "access",
					    "traceback", "none", NULL};
	static const char accepted[] =
		"alloc, free, launch, access, traceback (calls of Python functions), separated by "
		"commas, or none";
	struct mem_config *c = config_of(a);
	uint32_t events = 0;
	bool none = false, traceback = false;
	struct mem_item i;

	(void)opt;
	while (mem_list_next(&value, &i)) {
		int k = item_find(&i, words);

		if (k < 0)
			return refuse_item(err, "event trace type input", &i, words, accepted);
		if (k < 4)
			events |= 1u << k;
		traceback = traceback || k == 4;
		none = none || k == 5;
	}
	if (none && (events || traceback))
		args_notice(a, "Warn: 'none' mixed with other event types, all events cleared.");
	c->dump_events = none ? 0 : events;
	c->events_asked = true;
	c->traceback = traceback && !none;
	return 0;
}

int mem_parse_call_stack(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	static const char accepted[] =
		"c[:DEPTH], python[:DEPTH] or both, separated by a comma, DEPTH from 0 to 1000";
	struct mem_config *c = config_of(a);
	struct mem_item i;
	unsigned depth;

	(void)opt;
	c->c_stack = c->py_stack = false;
	c->c_depth = c->py_depth = MEM_DEFAULT_DEPTH;
	while (mem_list_next(&value, &i)) {
		const char *colon = memchr(i.text, ':', i.len);
		struct mem_item name = {i.text, colon ? (size_t)(colon - i.text) : i.len};

		depth = MEM_DEFAULT_DEPTH;
		if (colon &&
		    !args_number(colon + 1, i.len - name.len - 1, 0, MEM_MAX_DEPTH, &depth))
			return refuse_item(err, "call-stack depth input", &i, NULL, accepted);
		if (item_is(&name, "c")) {
			c->c_stack = true;
			c->c_depth = depth;
		} else if (item_is(&name, "python")) {
			c->py_stack = true;
			c->py_depth = depth;
		} else {
			return refuse_item(err, "call-stack input", &i, NULL, accepted);
		}
	}
	return 0;
}

int mem_parse_analysis(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	static const char *const words[] = {"leaks", "decompose", "inefficient",
					    "oom",   "none",	  NULL};
	static const char accepted[] =
		"leaks, decompose, inefficient, oom[:K], separated by commas, or none";
	struct mem_config *c = config_of(a);
	uint32_t analysis = 0;
	unsigned top = 10;
	bool none = false;
	struct mem_item i;

	(void)opt;
	while (mem_list_next(&value, &i)) {
		int k = item_find(&i, words);

		if (k < 0 && i.len >= 4 && !strncmp(i.text, "oom:", 4)) {
			if (!args_number(i.text + 4, i.len - 4, 1, MEM_MAX_OOM, &top))
				return err_set(err, -EINVAL,
					       "invalid OOM top-K value '%.*s', valid range is "
					       "[1, %d]",
					       i.len > 64 ? 60 : (int)i.len - 4, i.text + 4,
					       MEM_MAX_OOM);
			k = 3;
		}
		if (k < 0)
			return refuse_item(err, "analysis type input", &i, words, accepted);
		if (k < 4)
			analysis |= 1u << k;
		none = none || k == 4;
	}
	if (none && analysis)
		args_notice(a,
			    "Warn: 'none' mixed with other analysis types, all analyses cleared.");
	c->analysis = none ? 0 : analysis;
	c->oom_top = top;
	return 0;
}

static const char watch_accepted[] = "[OP[:OUTPUT]],OP[,full-content], such as 'op0:out0,op1' or "
				     "',op1,full-content'";

static int refuse_watch(struct err *err, const char *value, const char *why)
{
	return err_set(err, -EINVAL, "invalid watch config '%.120s', %s: expected %s", value, why,
		       watch_accepted);
}

/* Operator names are cut at their limit, at a character and not inside of one. */
static void take_name(struct args *a, char out[MEM_NAME_BYTES], const char *text, size_t len)
{
	size_t keep = len < MEM_NAME_BYTES ? len : MEM_NAME_BYTES - 1;

	while (keep < len && keep && ((unsigned char)text[keep] & 0xc0) == 0x80)
		keep--;
	if (keep < len)
		args_notice(a, "Warn: operator name '%.40s...' in --watch is cut at %d bytes.",
			    text, MEM_NAME_BYTES - 1);
	memcpy(out, text, keep);
	out[keep] = '\0';
}

/* `op`, `op:0`, `op:out0`, or nothing. A name such as aten::add holds no output number. */
static int watch_start(struct args *a, struct mem_watch *w, struct mem_item i, const char *value,
		       struct err *err)
{
	const char *colon = memrchr(i.text, ':', i.len);
	unsigned id;

	w->output_id = MEM_ALL_OUTPUTS;
	if (colon && !(colon > i.text && colon[-1] == ':')) {
		const char *num = colon + 1;
		size_t len = i.len - (size_t)(num - i.text);

		if (len > 3 && !strncmp(num, "out", 3)) {
			num += 3;
			len -= 3;
		}
		if (!args_number(num, len, 0, UINT_MAX - 1, &id))
			return refuse_watch(err, value, "the output is no number");
		if (colon == i.text)
			return refuse_watch(err, value, "an output needs an operator before it");
		w->output_id = id;
		i.len = (size_t)(colon - i.text);
	}
	take_name(a, w->start, i.text, i.len);
	return 0;
}

int mem_parse_watch(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct mem_watch w = {.on = true};
	struct mem_item parts[4];
	const char *p = value;
	unsigned n = 0;

	(void)opt;
	for (;;) {
		const char *start = p;

		while (*p && !comma_len(p))
			p++;
		if (n == 4)
			return refuse_watch(err, value, "too many parts");
		parts[n++] = (struct mem_item){start, (size_t)(p - start)};
		if (!*p)
			break;
		p += comma_len(p);
	}
	if (n < 2 || !parts[1].len)
		return refuse_watch(err, value, "the operator at the end is missing");
	if (n > 3 && parts[3].len)
		return refuse_watch(err, value, "too many parts");
	if (n > 2 && parts[2].len && !item_is(&parts[2], "full-content"))
		return refuse_watch(err, value, "the third part is not 'full-content'");
	w.full_content = n > 2 && parts[2].len;
	int r = watch_start(a, &w, parts[0], value, err);
	if (r < 0)
		return r;
	take_name(a, w.end, parts[1].text, parts[1].len);
	config_of(a)->watch = w;
	return 0;
}

/* Any path but one that cannot be shown, or written into JSON, as it is. */
int mem_parse_output(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct err why = {0};
	struct buf shown = {0};

	(void)opt;
	text_add_printable(&shown, value, strlen(value));
	bool refused = strcmp(buf_str(&shown), value) != 0;
	if (refused)
		err_set(err, -EINVAL,
			"invalid output path '%.200s': it has control characters, or bytes that "
			"are "
			"not UTF-8",
			buf_str(&shown));
	buf_release(&shown);
	if (refused)
		return -EINVAL;
	if (mem_path(value, config_of(a)->output_dir, &why) < 0)
		return err_set(err, -EINVAL, "invalid output path '%.100s': %s", value, why.text);
	return 0;
}

/* One input of --compare: a readable regular file of at most 8 GiB, or a directory. */
static int check_input(const char *path, mode_t *out_kind, struct err *err)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return err_sys(err, -errno, "invalid paths input '%.200s'", path);
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return err_set(err, -EINVAL,
			       "invalid paths input '%.200s': neither a regular file nor a "
			       "directory",
			       path);
	if (S_ISREG(st.st_mode) && st.st_size > INPUT_MAX_BYTES)
		return err_set(err, -EFBIG, "invalid paths input '%.200s': larger than 8 GiB",
			       path);
	if (access(path, R_OK) < 0)
		return err_sys(err, -errno, "invalid paths input '%.200s'", path);
	*out_kind = st.st_mode & S_IFMT;
	return 0;
}

int mem_parse_input(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	static const char accepted[] = "two dump files or two directories, separated by a comma";
	struct mem_config *c = config_of(a);
	struct err why = {0};
	struct mem_item i;
	mode_t kind[2];
	int n = 0;

	(void)opt;
	if (strlen(value) >= MEM_PATH_BYTES)
		return err_set(err, -EINVAL,
			       "invalid paths input: longer than %d characters; expected %s",
			       MEM_PATH_BYTES - 1, accepted);
	for (const char *p = value; mem_list_next(&p, &i); n++) {
		if (n == 2)
			return err_set(err, -EINVAL,
				       "invalid paths input '%.200s': more than two; expected %s",
				       value, accepted);
		char *path = xstrndup(i.text, i.len);
		int r = check_input(path, &kind[n], err);
		if (r == 0 && mem_path(path, c->inputs[n], &why) < 0)
			r = err_set(err, -EINVAL, "invalid paths input '%.100s': %s", path,
				    why.text);
		free(path);
		if (r < 0)
			return r;
	}
	if (n != 2 || kind[0] != kind[1])
		return err_set(err, -EINVAL, "invalid paths input '%.200s': expected %s", value,
			       accepted);
	return 0;
}

int mem_parse_log_level(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct mem_options *o = a->target;
	int level = log_level_find(value);

	(void)opt;
	if (level < 0)
		return err_set(err, -EINVAL,
			       "invalid log level '%.100s': expected debug, info, warn or error",
			       value);
	o->config.log_level = (uint32_t)level;
	o->log_level_given = true;
	return 0;
}

int mem_parse_compat(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct mem_options *o = a->target;
	int compat = mem_compat_find(value);

	(void)opt;
	if (compat < 0)
		return err_set(err, -EINVAL, "invalid compat '%.100s': expected 26.0 or current",
			       value);
	o->config.compat = (enum row_compat)compat;
	o->compat_given = true;
	return 0;
}
