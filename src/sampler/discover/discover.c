/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/discover/discover.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "sampler/discover/discover_impl.h"

void pid_list_add(struct pid_list *l, pid_t pid)
{
	l->v = xgrow(l->v, &l->cap, l->n + 1, sizeof(*l->v));
	l->v[l->n++] = pid;
}

void pid_list_release(struct pid_list *l)
{
	free(l->v);
	*l = (struct pid_list){0};
}

void finder_add(struct finder *f, const struct discovered *d)
{
	struct discovery *out = f->out;

	if (d->pid <= 0 || d->pid == f->own)
		return;
	uint64_t at = hmap_get(&f->seen, (uint64_t)d->pid);
	if (at != HMAP_NONE) {
		if (out->list[at].device < 0) {
			out->list[at].device = d->device;
			out->list[at].device_mb = d->device_mb;
		}
		return;
	}
	hmap_put(&f->seen, (uint64_t)d->pid, out->n);
	out->list = xgrow(out->list, &f->cap, out->n + 1, sizeof(*out->list));
	out->list[out->n++] = *d;
}

void finder_add_pid(struct finder *f, pid_t pid)
{
	finder_add(f, &(struct discovered){pid, -1, UINT64_MAX, false});
}

void finder_say(struct finder *f, const char *fmt, ...)
{
	char *how = f->out->how;
	size_t len = strlen(how), cap = sizeof(f->out->how);
	va_list ap;

	if (len && len + 2 < cap)
		len += (size_t)snprintf(how + len, cap - len, ", ");
	va_start(ap, fmt);
	vsnprintf(how + len, cap - len, fmt, ap);
	va_end(ap);
}

const struct pid_list *finder_all(struct finder *f)
{
	DIR *proc = f->have_all ? NULL : opendir("/proc");
	struct dirent *e;

	f->have_all = true;
	while (proc && (e = readdir(proc)))
		if (isdigit((unsigned char)e->d_name[0]))
			pid_list_add(&f->all, (pid_t)strtol(e->d_name, NULL, 10));
	if (proc)
		closedir(proc);
	return &f->all;
}

static void find_named(struct finder *f)
{
	const struct discover_rules *r = f->rules;

	for (unsigned i = 0; i < r->npids; i++)
		finder_add(f, &(struct discovered){r->pids[i], -1, UINT64_MAX, true});
	if (r->npids)
		finder_say(f, r->npids == 1 ? "%u pid" : "%u pids", r->npids);
}

static void find_parents(struct finder *f)
{
	const struct discover_rules *r = f->rules;
	struct pid_list roots = {0};

	for (unsigned i = 0; i < r->nparents; i++) {
		finder_add_pid(f, r->parents[i]);
		pid_list_add(&roots, r->parents[i]);
	}
	if (roots.n == 1)
		finder_say(f, "process %d and its children", (int)r->parents[0]);
	else if (roots.n)
		finder_say(f, "%zu processes and their children", roots.n);
	if (roots.n)
		find_descendants(f, &roots);
	pid_list_release(&roots);
}

static void find_by_name(struct finder *f)
{
	for (unsigned i = 0; i < f->rules->nnames; i++) {
		const struct pid_list *all = finder_all(f);

		for (size_t k = 0; k < all->n; k++)
			if (process_is_named(all->v[k], f->rules->names[i]))
				finder_add_pid(f, all->v[k]);
		finder_say(f, "name '%s'", f->rules->names[i]);
	}
}

static void find_cgroups(struct finder *f)
{
	for (unsigned i = 0; i < f->rules->ncgroups; i++) {
		find_cgroup(f, f->rules->cgroups[i]);
		finder_say(f, "cgroup '%s'", f->rules->cgroups[i]);
	}
}

static void find_python(struct finder *f)
{
	if (!f->rules->all_python)
		return;
	const struct pid_list *all = finder_all(f);
	for (size_t i = 0; i < all->n; i++)
		if (hmap_get(&f->seen, (uint64_t)all->v[i]) == HMAP_NONE &&
		    process_looks_like_python(all->v[i]))
			finder_add_pid(f, all->v[i]);
	finder_say(f, "every Python process");
}

static void find_children(struct finder *f)
{
	struct pid_list roots = {0};

	if (!f->rules->children)
		return;
	for (unsigned i = 0; i < f->out->n; i++)
		pid_list_add(&roots, f->out->list[i].pid);
	if (roots.n)
		find_descendants(f, &roots);
	finder_say(f, "their children");
	pid_list_release(&roots);
}

int discover(const struct discover_rules *rules, struct discovery *out, struct err *err)
{
	struct discovery found = {0};
	struct finder f = {.rules = rules, .out = &found, .own = getpid()};

	find_named(&f);
	find_parents(&f);
	find_by_name(&f);
	find_cgroups(&f);
	find_python(&f);
	int r = find_on_devices(&f, err);
	if (r == 0)
		find_children(&f);
	hmap_release(&f.seen);
	pid_list_release(&f.all);
	if (r < 0)
		discovery_release(&found);
	else
		*out = found;
	return r;
}

void discovery_release(struct discovery *d)
{
	free(d->list);
	*d = (struct discovery){0};
}
