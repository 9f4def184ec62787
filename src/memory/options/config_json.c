/* SPDX-License-Identifier: MulanPSL-2.0 */
/* config.json, written and read. */
#include "memory/options/config.h"

#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/log.h"

#define CONFIG_MAX_BYTES (1 << 20)

/*
 * The file, row by row. Numbers are uint32_t fields (enums included), bools and texts are what they
 * say. `parent` is the object that holds the key, NULL at the top.
 */
enum field_kind { FIELD_UINT, FIELD_BOOL, FIELD_TEXT, FIELD_PATH };

struct field {
	const char *parent;
	const char *key;
	enum field_kind kind;
	size_t offset;
	uint32_t limit; /* FIELD_UINT: the largest value; FIELD_TEXT: bytes with the NUL */
	bool clamp; /* cut a larger number instead of refusing it */
};

_Static_assert(sizeof(enum mem_mode) == sizeof(uint32_t), "enums are stored as numbers");
_Static_assert(sizeof(enum row_compat) == sizeof(uint32_t), "enums are stored as numbers");

#define AT(member) offsetof(struct mem_config, member)

static const struct field fields[] = {
	{NULL, "analysisType", FIELD_UINT, AT(analysis), MEM_ANALYSIS_ALL, 0},
	{NULL, "cStackDepth", FIELD_UINT, AT(c_depth), MEM_MAX_DEPTH, true},
	{NULL, "collectAllNpu", FIELD_BOOL, AT(npu_all), 0, 0},
	{NULL, "collectCpu", FIELD_BOOL, AT(cpu), 0, 0},
	{NULL, "collectMode", FIELD_UINT, AT(mode), MEM_DEFERRED, 0},
	{NULL, "dataFormat", FIELD_UINT, AT(format), MEM_NONE, 0},
	{NULL, "dumpEventType", FIELD_UINT, AT(dump_events), MEM_EVENTS_ALL, 0},
	{NULL, "enableCStack", FIELD_BOOL, AT(c_stack), 0, 0},
	{NULL, "enableCompare", FIELD_BOOL, AT(compare), 0, 0},
	{NULL, "enablePyStack", FIELD_BOOL, AT(py_stack), 0, 0},
	{NULL, "eventType", FIELD_UINT, AT(events), MEM_EVENTS_ALL, 0},
	{NULL, "isEffective", FIELD_BOOL, AT(effective), 0, 0},
	{NULL, "levelType", FIELD_UINT, AT(level), MEM_LEVEL_ALL, 0},
	{NULL, "logLevel", FIELD_UINT, AT(log_level), LOG_ERROR, 0},
	{NULL, "npuSlots", FIELD_UINT, AT(npu_slots), UINT32_MAX, 0},
	{NULL, "oomTopK", FIELD_UINT, AT(oom_top), MEM_MAX_OOM, 0},
	{NULL, "report", FIELD_UINT, AT(report), MEM_REPORT_OFF, 0},
	{NULL, "reportAsked", FIELD_BOOL, AT(report_asked), 0, 0},
	{NULL, "outputDir", FIELD_PATH, AT(output_dir), MEM_PATH_BYTES, 0},
	{NULL, "pyStackDepth", FIELD_UINT, AT(py_depth), MEM_MAX_DEPTH, true},
	{"watchConfig", "end", FIELD_TEXT, AT(watch.end), MEM_NAME_BYTES, 0},
	{"watchConfig", "fullContent", FIELD_BOOL, AT(watch.full_content), 0, 0},
	{"watchConfig", "isWatched", FIELD_BOOL, AT(watch.on), 0, 0},
	{"watchConfig", "outputId", FIELD_UINT, AT(watch.output_id), UINT32_MAX, 0},
	{"watchConfig", "start", FIELD_TEXT, AT(watch.start), MEM_NAME_BYTES, 0},
	/* Ours. */
	{NULL, "bufferMb", FIELD_UINT, AT(buffer_mb), MEM_MAX_BUFFER_MB, 0},
	{NULL, "clockCerts", FIELD_TEXT, AT(clock_certs), MEM_PATH_BYTES, 0},
	{NULL, "clockHosts", FIELD_TEXT, AT(clock_hosts), MEM_NAME_BYTES, 0},
	{NULL, "command", FIELD_TEXT, AT(command), MEM_COMMAND_BYTES, 0},
	{NULL, "compat", FIELD_UINT, AT(compat), ROW_26_0, 0},
	{NULL, "cudaDriver", FIELD_UINT, AT(machine.cuda), MEM_DRIVER_MISSING, 0},
	{NULL, "machineGpus", FIELD_UINT, AT(machine.gpus), UINT32_MAX, 0},
	{NULL, "machineNpus", FIELD_UINT, AT(machine.npus), UINT32_MAX, 0},
	{NULL, "maxSizeKib", FIELD_UINT, AT(max_kib), UINT32_MAX, 0},
	{NULL, "program", FIELD_UINT, AT(program), MEM_PROGRAM_PRIVILEGED, 0},
	{NULL, "pythonObjects", FIELD_BOOL, AT(python_objects), 0, 0},
	{NULL, "pythonTrace", FIELD_BOOL, AT(traceback), 0, 0},
	{NULL, "tool", FIELD_UINT, AT(tool), MEM_TOOL_TRACE, 0},
	{NULL, "waitMs", FIELD_UINT, AT(wait_ms), MEM_MAX_WAIT_MS, 0},
};

#define NFIELDS (sizeof(fields) / sizeof(fields[0]))

static json_t *field_to_json(const struct mem_config *c, const struct field *f)
{
	const char *at = (const char *)c + f->offset;
	uint32_t n;

	switch (f->kind) {
	case FIELD_UINT:
		memcpy(&n, at, sizeof(n));
		return json_integer(n);
	case FIELD_BOOL:
		return json_boolean(*(const bool *)at);
	case FIELD_TEXT:
	case FIELD_PATH:
		return json_string(at);
	}
	return NULL;
}

static json_t *config_to_json(const struct mem_config *c)
{
	json_t *root = json_object(), *watch = json_object(), *steps = json_object();
	json_t *list = json_array();
	int bad = 0;

	for (size_t i = 0; i < NFIELDS; i++)
		bad |= json_object_set_new(fields[i].parent ? watch : root, fields[i].key,
					   field_to_json(c, &fields[i]));
	for (unsigned i = 0; i < MEM_MAX_STEPS; i++)
		bad |= json_array_append_new(list, json_integer(i < c->nsteps ? c->steps[i] : 0));
	bad |= json_object_set_new(steps, "stepCount", json_integer(c->nsteps));
	bad |= json_object_set_new(steps, "stepIdList", list);
	bad |= json_object_set_new(root, "SelectedStepList", steps);
	bad |= json_object_set_new(root, "watchConfig", watch);
	bad |= json_object_set_new(root, "sondeVersion", json_string(SONDE_VERSION));
	if (!bad)
		return root;
	json_decref(root);
	return NULL;
}

int mem_config_write(const struct mem_config *c, const char *path, struct err *err)
{
	json_t *root = config_to_json(c);
	struct buf text = {0};

	/* The only thing that can be wrong: JSON has no way to spell a path that is not UTF-8. */
	if (!root)
		return err_set(
			err, -EILSEQ,
			"cannot write '%s': the output path or an operator name is not UTF-8",
			path);
	char *dump = json_dumps(root, JSON_INDENT(4) | JSON_SORT_KEYS);
	json_decref(root);
	if (!dump)
		return err_set(err, -ENOMEM, "cannot write '%s'", path);
	buf_addf(&text, "%s\n", dump);
	free(dump);
	int r = fs_write_atomic(path, &text, 0640, err);
	buf_release(&text);
	return r;
}

static int read_uint(const struct field *f, const json_t *v, char *at, struct err *err)
{
	json_int_t n = json_integer_value(v);

	if (!json_is_integer(v) || n < 0 || (n > (json_int_t)f->limit && !f->clamp))
		return err_set(err, -EINVAL, "'%s' is not a number from 0 to %u", f->key, f->limit);
	uint32_t u = n > (json_int_t)f->limit ? f->limit : (uint32_t)n;
	memcpy(at, &u, sizeof(u));
	return 0;
}

static int read_text(const struct field *f, const json_t *v, char *at, struct err *err)
{
	const char *s = json_string_value(v);

	if (!s || json_string_length(v) >= f->limit)
		return err_set(err, -EINVAL, "'%s' is not a text of less than %u bytes", f->key,
			       f->limit);
	if (f->kind == FIELD_PATH) {
		if (s[0] != '/')
			return err_set(err, -EINVAL, "'%s' is not an absolute path", f->key);
		return mem_path(s, at, err);
	}
	memcpy(at, s, json_string_length(v) + 1);
	return 0;
}

static int read_field(const struct field *f, const json_t *root, struct mem_config *c,
		      struct err *err)
{
	const json_t *from = f->parent ? json_object_get(root, f->parent) : root;
	const json_t *v = json_object_get(from, f->key);
	char *at = (char *)c + f->offset;

	if (!v)
		return 0;
	switch (f->kind) {
	case FIELD_UINT:
		return read_uint(f, v, at, err);
	case FIELD_BOOL:
		if (!json_is_boolean(v))
			return err_set(err, -EINVAL, "'%s' is not true or false", f->key);
		*(bool *)at = json_is_true(v);
		return 0;
	case FIELD_TEXT:
	case FIELD_PATH:
		return read_text(f, v, at, err);
	}
	return -EINVAL;
}

static int read_steps(const json_t *root, struct mem_config *c, struct err *err)
{
	const json_t *o = json_object_get(root, "SelectedStepList");
	const json_t *count = json_object_get(o, "stepCount");
	const json_t *list = json_object_get(o, "stepIdList");

	if (!count)
		return 0;
	json_int_t n = json_integer_value(count);
	if (!json_is_integer(count) || n < 0 || n > MEM_MAX_STEPS ||
	    json_array_size(list) < (size_t)n)
		return err_set(err, -EINVAL, "'stepCount' does not fit 'stepIdList'");
	for (json_int_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(list, (size_t)i);
		json_int_t step = json_integer_value(v);

		if (!json_is_integer(v) || step < 1 || step > (json_int_t)UINT32_MAX)
			return err_set(err, -EINVAL,
				       "'stepIdList' holds something that is no step");
		c->steps[i] = (uint32_t)step;
	}
	c->nsteps = (uint32_t)n;
	return 0;
}

static int config_from_json(const json_t *root, struct mem_config *c, struct err *err)
{
	int r = 0;

	if (!json_is_object(root))
		return err_set(err, -EINVAL, "the file does not hold an object");
	for (size_t i = 0; i < NFIELDS && r == 0; i++)
		r = read_field(&fields[i], root, c, err);
	if (r == 0)
		r = read_steps(root, c, err);
	/* Somebody may have written the file by hand: collect at least what is to be written. */
	uint32_t events = c->events;
	mem_config_link(c);
	c->events |= events;
	return r;
}

int mem_config_parse(const char *text, size_t len, struct mem_config *out_c, struct err *err)
{
	struct mem_config c;
	json_error_t where;

	int r = mem_config_init(&c, err);
	if (r < 0)
		return r;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	if (!root)
		return err_set(err, -EINVAL, "line %d: %s", where.line, where.text);
	r = config_from_json(root, &c, err);
	json_decref(root);
	if (r == 0)
		*out_c = c;
	return r;
}

int mem_config_read(const char *path, struct mem_config *out_c, struct err *err)
{
	struct buf text = {0};
	struct err inner = {0};

	int r = fs_read_file(path, CONFIG_MAX_BYTES, &text, err);
	if (r == 0) {
		r = mem_config_parse(buf_str(&text), text.len, out_c, &inner);
		if (r < 0)
			err_set(err, r, "cannot read '%s': %s", path, inner.text);
	}
	buf_release(&text);
	return r;
}
