/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/profiles.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/containers/intern.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/number_read.h"
#include "formats/json_value.h"
#include "memory/analysis/common/frames.h"

#define MOST_BYTES (256u << 20)
#define MOST_DEPTH 1024u
#define MOST_NODES 2000000u

/* --- what it is --- */

enum profile_input profile_input_of(const char *path)
{
	char head[4096];
	int fd = fs_open(path, O_RDONLY, 0, NULL);
	ssize_t n = fd < 0 ? -1 : fs_read_at(fd, head, sizeof(head) - 1, 0);
	size_t i = 0;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return PROFILE_INPUT_NONE;
	head[n] = '\0';
	if ((unsigned char)head[0] == 0x1f && (unsigned char)head[1] == 0x8b)
		return PROFILE_INPUT_CHROME;
	while (i < (size_t)n && strchr(" \t\r\n", head[i]))
		i++;
	if (head[i] == '[' || head[i] == '{')
		return strstr(head, "speedscope") || strstr(head, "\"shared\"")
			       ? PROFILE_INPUT_SPEEDSCOPE
			       : PROFILE_INPUT_CHROME;
	if (memchr(head, '\0', (size_t)n)) /* a binary file */
		return PROFILE_INPUT_NONE;
	const char *end = strchr(head, '\n'), *last = end ? end : head + n;
	if (!end && (size_t)n == sizeof(head) - 1) /* a deep stack: its count comes later */
		return PROFILE_INPUT_TEXT;
	while (last > head && (last[-1] == '\r' || (last[-1] >= '0' && last[-1] <= '9')))
		last--;
	return last > head && last[-1] == ' ' ? PROFILE_INPUT_TEXT : PROFILE_INPUT_NONE;
}

/* --- nodes --- */

void stacks_read_add(struct stacks_read *s, uint32_t node, uint64_t amount)
{
	uint64_t before = hmap_get(&s->own, node);

	if (amount > 1ull << 52)
		amount = 1ull << 52;
	hmap_put(&s->own, node, (before == HMAP_NONE ? 0 : before) + amount);
	s->total += amount;
}

static enum tree_kind kind_of(const char *name, const char *file, int32_t line)
{
	struct buf text = {0};

	if (!*file)
		return strncmp(name, "process ", 8) && strncmp(name, "thread ", 7) &&
				       strcmp(name, "stacks") != 0
			       ? TREE_LIBRARY
			       : TREE_WORDS;
	buf_addf(&text, "%s(%d): %s", file, line > 0 ? line : 1, name);
	struct frame_line f = {text.data, text.len};
	bool users = frame_origin(&f, true) == FRAME_USER;
	buf_release(&text);
	return users ? TREE_USERS : TREE_LIBRARY;
}

uint32_t stacks_read_frame(struct stacks_read *s, uint32_t parent, const char *name,
			   const char *file, int32_t line)
{
	struct profile_frame f = {.name = name, .file = file, .line = line};

	if (tree_is_import_system(&f))
		return parent;
	if (s->tree->nnodes >= MOST_NODES) { /* ends where the known ones do */
		s->bad++;
		return parent;
	}
	return tree_node(s->tree, parent, kind_of(name, file, line), &f);
}

/* "step (app/train.py:41)": the last pair of brackets, if a file is in it. */
uint32_t stacks_read_node(struct stacks_read *s, uint32_t parent, const char *label, size_t len)
{
	const char *open = NULL, *colon = NULL;
	int64_t line = 0;

	if (len && label[len - 1] == ')')
		for (size_t i = len - 1; i > 1 && !open; i--)
			if (label[i] == '(' && label[i - 1] == ' ')
				open = label + i;
	for (const char *c = open; c && c < label + len - 1; c++)
		if (*c == ':')
			colon = c;
	if (colon && (!number_read(colon + 1, (size_t)(label + len - 1 - colon - 1), &line) ||
		      line < 0 || line > INT32_MAX))
		colon = NULL, line = 0;
	const char *end = colon ? colon : label + len - 1;
	bool is_file = open && (colon || memchr(open, '.', (size_t)(end - open)) ||
				memchr(open, '/', (size_t)(end - open)));
	char *name = xstrndup(label, is_file ? (size_t)(open - 1 - label) : len);
	char *file = is_file ? xstrndup(open + 1, (size_t)(end - open - 1)) : xstrdup("");
	uint32_t node = stacks_read_frame(s, parent, name, file, (int32_t)line);

	free(name);
	free(file);
	return node;
}

/* --- collapsed --- */

static void read_line(struct stacks_read *s, const char *line, size_t len)
{
	size_t end = len;
	uint32_t node = TREE_ROOT;
	int64_t count;

	while (end && line[end - 1] != ' ')
		end--;
	if (!end || !number_read(line + end, len - end, &count) || count < 0) {
		s->bad += len != 0;
		return;
	}
	for (size_t at = 0, depth = 0; at < end - 1 && depth < MOST_DEPTH; depth++) {
		const char *stop = memchr(line + at, ';', end - 1 - at);
		size_t n = stop ? (size_t)(stop - line) - at : end - 1 - at;

		if (n)
			node = stacks_read_node(s, node, line + at, n);
		at += n + 1;
	}
	stacks_read_add(s, node, (uint64_t)count);
}

int profile_read_collapsed(struct stacks_read *s, const char *text, size_t len, struct err *err)
{
	for (size_t at = 0; at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - text) - at : len - at;
		size_t shown = n && text[at + n - 1] == '\r' ? n - 1 : n;

		read_line(s, text + at, shown);
		at += n + 1;
	}
	return s->total ? 0 : err_set(err, -EBADMSG, "there is no stack with a count in it");
}

/* --- speedscope --- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

static uint32_t node_of_frame(struct stacks_read *s, uint32_t parent, const json_t *frames,
			      json_int_t number)
{
	const json_t *f = number >= 0 ? json_array_get(frames, (size_t)number) : NULL;
	json_int_t line = json_integer_value(json_object_get(f, "line"));

	if (!f) {
		s->bad++;
		return parent;
	}
	return stacks_read_frame(s, parent, text_of(f, "name"), text_of(f, "file"),
				 line > 0 && line < INT32_MAX ? (int32_t)line : 0);
}

static uint64_t amount_of(const json_t *v, double scale)
{
	double n = json_number_value(v) * scale;

	return n > 0 && n < 9e15 ? (uint64_t)(n + 0.5) : 0;
}

static void read_sampled(struct stacks_read *s, const json_t *p, const json_t *frames,
			 uint32_t root, double scale)
{
	const json_t *samples = json_object_get(p, "samples"),
		     *weights = json_object_get(p, "weights");
	const json_t *sample, *frame;
	size_t i, k;

	json_array_foreach(samples, i, sample)
	{
		uint32_t node = root;

		json_array_foreach(sample, k, frame) if (k < MOST_DEPTH) node =
			node_of_frame(s, node, frames, json_integer_value(frame));
		const json_t *weight = json_array_get(weights, i);
		stacks_read_add(s, node, weight ? amount_of(weight, scale) : 1);
	}
}

static void read_evented(struct stacks_read *s, const json_t *p, const json_t *frames,
			 uint32_t root, double scale)
{
	uint32_t stack[MOST_DEPTH + 1] = {root};
	const json_t *e;
	size_t i, depth = 0;
	double last = 0;

	json_array_foreach(json_object_get(p, "events"), i, e)
	{
		double at = json_number_value(json_object_get(e, "at"));

		if (i && at > last)
			stacks_read_add(
				s, stack[depth],
				(uint64_t)((at - last) * scale < 9e15 ? (at - last) * scale : 0));
		last = at;
		if (*text_of(e, "type") == 'O' && depth < MOST_DEPTH) {
			uint32_t node =
				node_of_frame(s, stack[depth], frames,
					      json_integer_value(json_object_get(e, "frame")));
			stack[++depth] = node;
		} else if (*text_of(e, "type") == 'C' && depth) {
			depth--;
		}
	}
}

int profile_read_speedscope(struct stacks_read *s, const char *text, size_t len, struct err *err)
{
	static const struct {
		const char *name, *unit;
		double scale;
	} units[] = {{"nanoseconds", "ns", 1},
		     {"microseconds", "ns", 1e3},
		     {"milliseconds", "ns", 1e6},
		     {"seconds", "ns", 1e9},
		     {"bytes", "bytes", 1}};
	json_error_t why;
	json_t *o = json_loadb(text, len, 0, &why), *p;
	const json_t *frames = json_object_get(json_object_get(o, "shared"), "frames");
	const json_t *profiles = json_object_get(o, "profiles");
	size_t i;

	if (!o || !json_is_array(frames) || !json_is_array(profiles)) {
		json_decref(o);
		return err_set(err, -EBADMSG, "it is no profile of speedscope");
	}
	json_array_foreach(profiles, i, p)
	{
		double scale = 1;
		uint32_t root = TREE_ROOT;

		for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++)
			if (!strcmp(text_of(p, "unit"), units[u].name)) {
				scale = units[u].scale;
				s->unit = units[u].unit;
			}
		if (json_array_size(profiles) > 1 && *text_of(p, "name")) {
			struct profile_frame f = {.name = text_of(p, "name"), .file = ""};
			root = tree_node(s->tree, root, TREE_WORDS, &f);
		}
		if (!strcmp(text_of(p, "type"), "evented"))
			read_evented(s, p, frames, root, scale);
		else
			read_sampled(s, p, frames, root, scale);
	}
	json_decref(o);
	return s->total ? 0 : err_set(err, -EBADMSG, "the profile has no samples");
}

/* --- all of them --- */

static void put_profile(json_t *list, unsigned number, const char *path, struct stacks_read *s)
{
	struct column node = {0}, own = {0};
	json_t *one = json_object();
	uint64_t key, value;
	size_t at = 0;
	char *prefix = xasprintf("p%u.", number);

	while (hmap_next(&s->own, &at, &key, &value)) {
		column_add(&node, key);
		column_add(&own, value);
	}
	pack_put(s->tree->pack, prefix, "node", &node);
	pack_put(s->tree->pack, prefix, "own", &own);
	put_text(one, "prefix", prefix);
	json_object_set_new(one, "title", pack_value(s->tree->pack, REDACT_PATH, path));
	put_text(one, "unit", s->unit);
	put_number(one, "total", s->total);
	put_number(one, "bad", s->bad);
	json_array_append_new(list, one);
	free(prefix);
}

/* Whatever form it has. */
static int read_profile(struct stacks_read *s, const char *path, struct err *err)
{
	enum profile_input kind = profile_input_of(path);
	struct buf text = {0};
	struct err why = {0};
	int r = 0;

	if (kind == PROFILE_INPUT_CHROME)
		r = profile_read_chrome(s, path, &why);
	else if ((r = fs_read_file(path, MOST_BYTES, &text, &why)) == 0)
		r = kind == PROFILE_INPUT_SPEEDSCOPE
			    ? profile_read_speedscope(s, text.data, text.len, &why)
			    : profile_read_collapsed(s, text.data ? text.data : "", text.len, &why);
	if (r < 0)
		err_set(err, why.code, "'%s': %s", path, why.text);
	buf_release(&text);
	return r;
}

int profiles_add(json_t *list, unsigned number, const char *path, struct tree *t, struct err *err)
{
	struct stacks_read s = {.tree = t, .unit = "samples"};
	int r = read_profile(&s, path, err);

	if (r == 0)
		put_profile(list, number, path, &s);
	hmap_release(&s.own);
	return r;
}

int profiles_add_recording(json_t *list, unsigned number, const char *path, const char *title,
			   const struct input_choice *choice, struct tree *t, struct err *err)
{
	struct stacks_read s = {.tree = t};
	int r = profile_read_recording(&s, path, choice, err);

	if (r == 0)
		put_profile(list, number, title, &s);
	hmap_release(&s.own);
	return r;
}

/* --- as a picture alone --- */

static void fill_profile(const struct stacks_read *s, struct profile *p)
{
	uint64_t key, value;
	size_t at = 0;

	while (hmap_next(&s->own, &at, &key, &value)) {
		struct profile_frame frames[MOST_DEPTH];
		unsigned n = 0;

		for (uint32_t node = (uint32_t)key; node && n < MOST_DEPTH;
		     node = s->tree->links[node].parent)
			frames[MOST_DEPTH - ++n] = s->tree->links[node].frame;
		profile_add(p, NULL, NULL, 0, 0, frames + MOST_DEPTH - n, n, value);
	}
}

int profiles_write_svg(const char *path, const char *output, struct err *err)
{
	struct pack pack;
	struct tree tree;
	struct stacks_read s = {.tree = &tree, .unit = "samples"};

	pack_init(&pack, NULL);
	tree_init(&tree, &pack);
	int r = read_profile(&s, path, err);
	if (r == 0) {
		struct profile_options o = {.format = PROFILE_FLAME,
					    .lines = true,
					    .title = "Stacks",
					    .period_ns = !strcmp(s.unit, "ns")};
		struct profile *p = profile_new(&o);

		fill_profile(&s, p);
		r = profile_write(p, output, err);
		profile_free(p);
	}
	hmap_release(&s.own);
	tree_release(&tree);
	pack_release(&pack);
	return r;
}
