/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What modules of the interpreter say about the job. All of them in one walk over sys.modules:
 *
 *	os                                  environ._data             {b"RANK": b"3", …}
 *	torch.distributed.distributed_c10d  _world._default_pg        the default group (from 2.0)
 *	                                    GroupMember.WORLD         the same before
 *	                                    _pg_group_ranks           {group: {rank: rank, …}}
 *	multiprocessing.process             _current_process          who runs here
 *	torch.utils.data._utils.worker      _worker_info              None, but in a DataLoader's worker
 *
 * A group is an object of C++ behind one of pybind11. Its class keeps rank and size side by side
 * near its beginning; where exactly changes with the version. The size is known from
 * _pg_group_ranks: the pair with this size is the one.
 */
#include <errno.h>
#include <string.h>

#include "unwind/python/text.h"
#include "unwind/remote/objects/objects.h"
#include "unwind/remote/objects/objects_impl.h"
#include "wire/rank_env.h"

#define JOB_READS 20000
#define INTERPRETERS_MAX 256
#define ENVIRON_NAME 64
#define ENVIRON_VALUE 32 /* a longer one is no number */
#define VARIABLE_READS 4
#define GROUPS_MAX 4096
#define GROUP_WORDS 12 /* of the C++ object, in which rank and size are looked for */
#define GROUP_HEAD 2 /* of these, the first are its class and its references */

enum { MODULE_OS, MODULE_TORCH, MODULE_PROCESS, MODULE_WORKER, MODULES };

static const char *const module_names[MODULES] = {
	[MODULE_OS] = "os",
	[MODULE_TORCH] = "torch.distributed.distributed_c10d",
	[MODULE_PROCESS] = "multiprocessing.process",
	[MODULE_WORKER] = "torch.utils.data._utils.worker",
};

/* The list has the newest first; the main one is the last. */
static int main_interpreter(struct objects *o, const struct python_place *place, uint64_t *out)
{
	uint64_t at = place->runtime + o->l->runtime.interpreters_head, interp = 0, next;

	for (unsigned i = 0; i < INTERPRETERS_MAX; i++) {
		int r = objects_word(o, at, &next);

		if (r < 0)
			return r;
		if (!next)
			break;
		interp = next;
		at = interp + o->l->interp.next;
	}
	*out = interp;
	return interp ? 0 : -EAGAIN;
}

static bool is_none(struct objects *o, uint64_t object)
{
	return objects_type(o, object) < 0 || !strcmp(o->type.name, "NoneType");
}

/* --- the environment --- */

struct environ_walk {
	struct objects *o;
	struct buf *out;
	bool cut;
};

/* The others do not matter: however large an environment is, these few fit. */
static bool is_rank_name(const char *name, size_t len)
{
	for (enum rank_env what = RANK_ENV_RANK; what <= RANK_ENV_LOCAL_WORLD_SIZE; what++)
		for (const char *const *n = rank_env_names(what); *n; n++)
			if (strlen(*n) == len && !memcmp(*n, name, len))
				return true;
	return false;
}

/* A value with a NUL is none that an environment can hold: what follows it would be a variable. */
static bool add_variable(void *arg, uint64_t key, uint64_t value)
{
	struct environ_walk *w = arg;
	char name[ENVIRON_NAME], text[ENVIRON_VALUE];

	w->cut = w->o->reads_left < VARIABLE_READS;
	if (w->cut)
		return false;
	w->o->reads_left -= VARIABLE_READS;
	ssize_t n = python_bytes(&w->o->r->reader, w->o->l, key, name, sizeof(name));
	if (n <= 0 || n > (ssize_t)sizeof(name) || !is_rank_name(name, (size_t)n))
		return true;
	ssize_t len = python_bytes(&w->o->r->reader, w->o->l, value, text, sizeof(text));
	if (len < 0 || len > (ssize_t)sizeof(text) || memchr(text, 0, (size_t)len))
		return true;
	buf_add(w->out, name, (size_t)n);
	buf_add_char(w->out, '=');
	buf_add(w->out, text, (size_t)len);
	buf_add_char(w->out, '\0');
	return true;
}

static void read_environ(struct objects *o, uint64_t os, struct remote_job *out)
{
	struct environ_walk walk = {.o = o, .out = &out->environ};
	uint64_t environ, data;
	struct dict_view v;

	out->environ_known = object_attribute(o, os, "environ", &environ) == 0 &&
			     object_attribute(o, environ, "_data", &data) == 0 &&
			     dict_view_open(o, data, &v) == 0 &&
			     dict_each(o, &v, add_variable, &walk) == 0 && !walk.cut;
}

/* --- the process group --- */

static int find_group(struct objects *o, uint64_t torch, uint64_t *out)
{
	uint64_t world, class;

	if (object_attribute(o, torch, "_world", &world) == 0)
		return object_attribute(o, world, "_default_pg", out);
	int r = object_attribute(o, torch, "GroupMember", &class);
	return r < 0 ? r : class_attribute(o, class, "WORLD", out);
}

struct size_walk {
	struct objects *o;
	uint64_t group;
	uint64_t size; /* 0: not found */
	unsigned left;
};

static bool find_size(void *arg, uint64_t key, uint64_t value)
{
	struct size_walk *w = arg;
	struct dict_view v;

	if (key != w->group)
		return --w->left > 0;
	if (dict_view_open(w->o, value, &v) == 0)
		w->size = v.count;
	return false;
}

static uint64_t group_size(struct objects *o, uint64_t torch, uint64_t group)
{
	struct size_walk walk = {.o = o, .group = group, .left = GROUPS_MAX};
	struct dict_view v;
	uint64_t ranks;

	if (object_attribute(o, torch, "_pg_group_ranks", &ranks) == 0 &&
	    dict_view_open(o, ranks, &v) == 0)
		(void)dict_each(o, &v, find_size, &walk);
	return walk.size;
}

static void read_group(struct objects *o, uint64_t torch, struct remote_job *out)
{
	int32_t words[GROUP_WORDS][2];
	uint64_t group, object;

	if (find_group(o, torch, &group) < 0 || is_none(o, group))
		return;
	uint64_t size = group_size(o, torch, group);
	if (!size || size > INT32_MAX ||
	    objects_word(o, group + o->l->object.object_size, &object) < 0 ||
	    objects_read(o, object, words, sizeof(words)) < 0)
		return;
	for (unsigned i = GROUP_HEAD; i < GROUP_WORDS; i++) {
		int32_t rank = words[i][0];

		if (words[i][1] != (int32_t)size || rank < 0 || rank >= (int32_t)size)
			continue;
		out->rank = rank;
		out->world_size = (int32_t)size;
		return;
	}
}

/* --- multiprocessing --- */

static void read_target(struct objects *o, uint64_t process, struct remote_job *out)
{
	uint32_t name_at = o->l->object.object_size + (o->l->minor >= 10 ? 2 : 6) * 8;
	uint64_t target, name;

	if (object_attribute(o, process, "_target", &target) < 0 || objects_type(o, target) < 0 ||
	    strcmp(o->type.name, "function") != 0 || objects_word(o, target + name_at, &name) < 0 ||
	    python_text(&o->r->reader, o->l, name, out->target, sizeof(out->target)) < 0)
		out->target[0] = '\0';
}

/* _wrap() of torch.multiprocessing.spawn is called with (function, index, arguments, …). */
static void read_spawn_index(struct objects *o, uint64_t process, struct remote_job *out)
{
	uint64_t args, n, items[3], bits;
	int64_t index;

	if (strcmp(out->target, "_wrap") != 0 || object_attribute(o, process, "_args", &args) < 0 ||
	    objects_type(o, args) < 0 || !(o->type.flags & TYPE_TUPLE) ||
	    objects_word(o, args + o->l->object.var_size, &n) < 0 || n < 3 ||
	    objects_read(o, args + o->l->object.tuple_items, items, sizeof(items)) < 0)
		return;
	if (objects_type(o, items[1]) == 0 && o->type.flags & TYPE_LONG &&
	    objects_int(o, items[1], &index, &bits) == 0 && index >= 0 && index <= INT32_MAX)
		out->spawn_index = (int32_t)index;
}

static void read_process(struct objects *o, uint64_t module, struct remote_job *out)
{
	uint64_t process;

	if (object_attribute(o, module, "_current_process", &process) < 0 ||
	    objects_type(o, process) < 0 || !strcmp(o->type.name, "_MainProcess"))
		return;
	out->child = true;
	read_target(o, process, out);
	read_spawn_index(o, process, out);
}

static void read_worker(struct objects *o, uint64_t module, struct remote_job *out)
{
	uint64_t info;

	out->loader = object_attribute(o, module, "_worker_info", &info) == 0 && !is_none(o, info);
}

int remote_job(struct remote *r, const struct python_place *place, struct remote_job *out)
{
	static void (*const read[MODULES])(struct objects *, uint64_t, struct remote_job *) = {
		[MODULE_OS] = read_environ,
		[MODULE_TORCH] = read_group,
		[MODULE_PROCESS] = read_process,
		[MODULE_WORKER] = read_worker,
	};
	struct objects o = {.r = r, .l = &place->layout, .reads_left = JOB_READS};
	uint64_t interp, modules, found[MODULES];
	struct dict_view v;

	*out = (struct remote_job){.rank = RANK_ENV_UNKNOWN,
				   .world_size = RANK_ENV_UNKNOWN,
				   .spawn_index = RANK_ENV_UNKNOWN};
	int e = main_interpreter(&o, place, &interp);
	if (e == 0)
		e = objects_word(&o, interp + place->layout.interp.modules, &modules);
	if (e == 0)
		e = modules ? dict_view_open(&o, modules, &v) : -ENOENT;
	if (e == 0)
		e = dict_find_names(&o, &v, module_names, MODULES, found);
	for (unsigned i = 0; e >= 0 && i < MODULES; i++)
		if (found[i])
			read[i](&o, found[i], out);
	return e < 0 ? e : 0;
}
