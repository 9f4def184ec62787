/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/rounds/roles.h"

#include <stdlib.h>
#include <string.h>

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "base/proc.h"

#define DEPTH_MAX 64 /* of a family */
#define NOBODY UINT32_MAX
#define LABEL_BYTES 96 /* of the command line */

/* One target among the others. */
struct member {
	struct target *t;
	unsigned up; /* the nearest of its ancestors that is open; NOBODY */
	bool launcher;
	bool tool; /* a process of multiprocessing's own */
};

struct family {
	struct member *list; /* those that are open */
	unsigned n;
	struct hmap by_pid;
};

static bool has_rank(const struct target *t)
{
	return t->own.rank >= 0;
}

static bool has_group(const struct target *t)
{
	return t->own.source == RANK_FROM_GROUP;
}

/* Its server forks: what comes of that has its command line, but is somebody's child. */
static bool is_tool(const struct target *t)
{
	static const char *const programs[] = {"from multiprocessing.resource_tracker ",
					       "from multiprocessing.semaphore_tracker ",
					       "from multiprocessing.forkserver "};

	for (unsigned i = 0; i < 3; i++)
		if (!t->own.child && strstr(t->cmdline, programs[i]))
			return true;
	return false;
}

/* Shells and the like may be between the two. */
static unsigned find_ancestor(const struct family *f, const struct target *t)
{
	struct proc_stat s;
	pid_t pid = t->parent;

	for (unsigned i = 0; pid > 1 && i < DEPTH_MAX; i++) {
		uint64_t at = hmap_get(&f->by_pid, (uint64_t)pid);

		if (at != HMAP_NONE)
			return (unsigned)at;
		if (proc_stat_read(pid, &s) < 0)
			break;
		pid = (pid_t)s.parent;
	}
	return NOBODY;
}

static void family_init(struct family *f, const struct targets *s)
{
	*f = (struct family){.list = xcalloc(s->n + 1, sizeof(*f->list))};
	for (unsigned i = 0; i < s->n; i++)
		if (s->list[i]->state == TARGET_OPEN) {
			hmap_put(&f->by_pid, (uint64_t)s->list[i]->pid, f->n);
			f->list[f->n++] = (struct member){.t = s->list[i]};
		}
	for (unsigned i = 0; i < f->n; i++) {
		f->list[i].up = find_ancestor(f, f->list[i].t);
		f->list[i].tool = is_tool(f->list[i].t);
	}
}

static void family_release(struct family *f)
{
	hmap_release(&f->by_pid);
	free(f->list);
}

static struct member *parent_of(const struct family *f, const struct member *m)
{
	return m->up == NOBODY ? NULL : &f->list[m->up];
}

/* The nearest ancestor that has a rank, other than launchers. */
static struct member *ranked_above(const struct family *f, const struct member *m)
{
	struct member *up = parent_of(f, m);

	for (unsigned i = 0; up && i < DEPTH_MAX; i++) {
		if (has_rank(up->t) && !up->launcher)
			return up;
		up = parent_of(f, up);
	}
	return NULL;
}

/*
 * A process with a group of its own is a rank, whatever it starts. One that has its rank from the
 * environment alone is a launcher if a child has another rank, or has joined a group with its own;
 * one without a rank if a child has one.
 */
static void find_launchers(struct family *f)
{
	for (unsigned i = 0; i < f->n; i++) {
		const struct target *t = f->list[i].t;
		struct member *up = parent_of(f, &f->list[i]);

		if (up && !up->tool && !has_group(up->t) &&
		    (t->own.spawned || (has_rank(t) && !t->own.loader && !has_rank(up->t))))
			up->launcher = true;
		up = ranked_above(f, &f->list[i]);
		if (has_rank(t) && !t->own.loader && up && !has_group(up->t) &&
		    (has_group(t) || up->t->own.rank != t->own.rank))
			up->launcher = true;
	}
}

static bool is_other_job(const struct target *t, const struct target *above)
{
	return has_group(t) && has_group(above) && t->own.world_size != above->own.world_size;
}

/* Started by a launcher to do the same as a rank: no manager or logger beside them. */
static bool has_ranks_beside(const struct family *f, const struct member *m)
{
	const struct member *up = parent_of(f, m);

	if (!up || !up->launcher || !*m->t->own.target)
		return false;
	for (unsigned i = 0; i < f->n; i++)
		if (parent_of(f, &f->list[i]) == up && has_rank(f->list[i].t) &&
		    !strcmp(f->list[i].t->own.target, m->t->own.target))
			return true;
	return false;
}

static enum target_role choose_role(const struct family *f, const struct member *m, int *out_rank)
{
	const struct member *up = ranked_above(f, m);
	const struct target *t = m->t;

	*out_rank = has_rank(t) ? t->own.rank : up ? up->t->own.rank : -1;
	if (m->launcher) {
		*out_rank = -1;
		return ROLE_LAUNCHER;
	}
	if (t->own.loader)
		return ROLE_HELPER;
	if (up && has_rank(t) && is_other_job(t, up->t)) {
		*out_rank = up->t->own.rank;
		return ROLE_HELPER;
	}
	if (has_rank(t))
		return m->tool || (up && up->t->own.rank == t->own.rank) ? ROLE_HELPER : ROLE_RANK;
	if (up)
		return ROLE_HELPER;
	return !m->tool && has_ranks_beside(f, m) ? ROLE_RANK : ROLE_OTHER;
}

static void choose_who_counts(const struct family *f, bool ranks)
{
	unsigned counted = 0;

	for (unsigned i = 0; i < f->n; i++) {
		struct target *t = f->list[i].t;

		t->counts = t->role == ROLE_RANK ||
			    (!ranks && t->role == ROLE_OTHER && !f->list[i].tool);
		counted += t->counts;
	}
	for (unsigned i = 0; !counted && i < f->n; i++)
		f->list[i].t->counts = true;
}

void roles_assign(struct targets *s)
{
	struct family f;
	bool ranks = false;

	for (unsigned i = 0; i < s->n; i++) {
		struct target *t = s->list[i];

		t->role = has_rank(t) ? ROLE_RANK : ROLE_OTHER;
		t->rank = t->own.rank;
		t->counts = false;
	}
	family_init(&f, s);
	find_launchers(&f);
	for (unsigned i = 0; i < f.n; i++) {
		struct target *t = f.list[i].t;

		t->role = choose_role(&f, &f.list[i], &t->rank);
		ranks = ranks || t->role == ROLE_RANK;
	}
	choose_who_counts(&f, ranks);
	family_release(&f);
}

const char *role_name(enum target_role role)
{
	static const char *const names[] = {"other", "rank", "helper", "launcher"};

	return names[role];
}

/* A path of the program says little: its last part is shown. */
char *role_label(const struct target *t)
{
	const char *who = t->role == ROLE_HELPER ? "helper of rank" : "rank";
	const char *cmdline = t->cmdline;
	size_t word = strcspn(cmdline, " ");
	const char *slash = memrchr(cmdline, '/', word);
	const char *text = slash && cmdline[0] != '[' ? slash + 1 : cmdline;
	size_t len = strlen(text), cut = len > LABEL_BYTES ? LABEL_BYTES : len;

	while (cut < len && cut > 0 && ((unsigned char)text[cut] & 0xc0) == 0x80)
		cut--; /* not in the middle of a character */
	const char *more = cut < len ? "…" : "";
	if (t->rank < 0)
		return xasprintf("%.*s%s", (int)cut, text, more);
	return xasprintf("%s %d: %.*s%s", who, t->rank, (int)cut, text, more);
}
