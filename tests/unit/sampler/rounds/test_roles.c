/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/rounds/roles.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

#define MANY 12

/* Processes as they are found: their pids are their places here, and 1000000. */
struct job {
	struct target all[MANY], *list[MANY];
	struct targets s;
};

static struct target *add(struct job *j, int parent, int rank, enum rank_source source)
{
	struct target *t = &j->all[j->s.n];

	*t = (struct target){
		.pid = 1000000 + (pid_t)j->s.n,
		.parent = parent < 0 ? 1 : 1000000 + parent,
		.own = {.rank = rank, .local_rank = -1, .world_size = -1, .source = source},
		.cmdline = (char *)(uintptr_t) "python train.py",
		.state = TARGET_OPEN};
	j->list[j->s.n++] = t;
	j->s.list = j->list;
	return t;
}

/* "launcher rank:0 helper:0 other", with a star behind those that count. */
static const char *assigned(struct job *j)
{
	static char text[256];
	size_t n = 0;

	roles_assign(&j->s);
	text[0] = '\0';
	for (unsigned i = 0; i < j->s.n; i++) {
		const struct target *t = j->list[i];

		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? " " : "",
				      role_name(t->role));
		if (t->rank >= 0)
			n += (size_t)snprintf(text + n, sizeof(text) - n, ":%d", t->rank);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", t->counts ? "*" : "");
	}
	return text;
}

TEST(roles, torchrun_below_srun_has_the_number_of_a_rank)
{
	struct job j = {0};

	add(&j, -1, 0, RANK_FROM_START); /* SLURM_PROCID */
	add(&j, 0, 0, RANK_FROM_START);
	add(&j, 0, 1, RANK_FROM_START);
	add(&j, 1, 0, RANK_FROM_START);
	CHECK_STR(assigned(&j), "launcher rank:0* rank:1* helper:0");
}

TEST(roles, a_launcher_of_one_rank_is_not_it)
{
	struct job j = {0};

	add(&j, -1, 0, RANK_FROM_ENVIRON); /* it has set RANK for its child */
	struct target *rank = add(&j, 0, 0, RANK_FROM_ENVIRON);
	rank->own.child = true;
	CHECK_STR(assigned(&j), "rank:0* helper:0"); /* nobody can know yet */
	rank->own.source = RANK_FROM_GROUP;
	CHECK_STR(assigned(&j), "launcher rank:0*");
}

TEST(roles, who_has_not_joined_yet_counts)
{
	struct job j = {0};

	add(&j, -1, -1, RANK_FROM_NOTHING);
	add(&j, 0, -1, RANK_FROM_NOTHING)->cmdline =
		(char *)(uintptr_t) "python -c from multiprocessing.resource_tracker import "
				    "main;main(3)";
	for (int i = 0; i < 3; i++) {
		struct target *t =
			add(&j, 0, i < 2 ? i : -1, i < 2 ? RANK_FROM_ENVIRON : RANK_FROM_NOTHING);

		t->own.child = true;
		strcpy(t->own.target, "train");
	}
	struct target *manager = add(&j, 0, -1, RANK_FROM_NOTHING);
	manager->own.child = true;
	add(&j, 3, -1, RANK_FROM_NOTHING)->own.loader = true;
	CHECK_STR(assigned(&j), "launcher other rank:0* rank:1* rank* other helper:1");
}

TEST(roles, before_anybody_has_joined)
{
	struct job j = {0};

	add(&j, -1, -1, RANK_FROM_NOTHING);
	for (int i = 0; i < 2; i++) {
		struct target *t = add(&j, 0, -1, RANK_FROM_NOTHING);
		t->own.child = t->own.spawned = true;
	}
	add(&j, 1, -1, RANK_FROM_NOTHING)->own.loader = true;
	CHECK_STR(assigned(&j), "launcher other* other* helper");
}

TEST(roles, what_a_rank_starts_helps_it)
{
	struct job j = {0};

	add(&j, -1, 3, RANK_FROM_GROUP)->own.world_size = 8;
	add(&j, 0, 3, RANK_FROM_GROUP)->own.world_size = 8; /* fork */
	add(&j, 0, -1, RANK_FROM_NOTHING); /* without its environment */
	add(&j, 0, 0, RANK_FROM_GROUP)->own.world_size = 1; /* a job of its own */
	add(&j, 0, 4, RANK_FROM_GROUP)->own.world_size = 8; /* another rank of the same */
	CHECK_STR(assigned(&j), "rank:3* helper:3 helper:3 helper:3 rank:4*");
}

TEST(roles, somebody_always_counts)
{
	struct job j = {0};

	struct target *t = add(&j, -1, 2, RANK_FROM_ENVIRON);
	t->own.loader = true;
	CHECK_STR(assigned(&j), "helper:2*");
	t->state = TARGET_REFUSED;
	CHECK_STR(assigned(&j), "rank:2");
}
