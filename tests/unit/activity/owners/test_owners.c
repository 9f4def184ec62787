/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/owners/owners.h"
#include "base/containers/intern.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static const char *text(const char *s)
{
	return intern(s, strlen(s));
}

static void add(struct owner_times *t, const char *model, const char *module, const char *class,
		const char *line, bool backward, uint64_t ns)
{
	struct activity_owner o = {text(model), text(module), text(class), text(line), backward};
	struct activity a = {ACTIVITY_EMPTY,
			     .kind = ACTIVITY_KERNEL,
			     .place = ACTIVITY_ON_DEVICE,
			     .start_ns = 100,
			     .end_ns = 100 + ns,
			     .attributed = true,
			     .owner = *model || *line ? owner_find(&o) : NULL};

	owner_times_add(t, &a);
}

static const struct owner_group *find(const struct owner_groups *g, const char *name,
				      const char *class)
{
	for (size_t i = 0; i < g->n; i++)
		if (!strcmp(g->list[i].name, name) && !strcmp(g->list[i].module_class, class))
			return &g->list[i];
	return NULL;
}

static void add_model(struct owner_times *t)
{
	for (int i = 0; i < 12; i++) {
		char path[32];
		snprintf(path, sizeof(path), "h.%d.mlp", i);
		add(t, "GPT", path, "MLP", "step (t.py:3)", false, 100);
		add(t, "GPT", path, "MLP", "step (t.py:3)", true, 200);
	}
	add(t, "GPT", "h.0", "Block", "step (t.py:3)", false, 10);
	add(t, "", "optimizer", "AdamW", "step (t.py:5)", false, 50);
	add(t, "", "", "", "step (t.py:4)", false, 7);
	add(t, "", "", "", "", false, 3); /* nobody's */
}

TEST(activity_owners, equal_layers_are_one_group)
{
	struct owner_times t = {0};
	struct owner_groups g = {0};

	add_model(&t);
	CHECK(t.asked);
	owner_groups_build(&g, &t, OWNERS_BY_MODULE, 0);
	const struct owner_group *mlp = find(&g, "h.*.mlp", "MLP");
	CHECK(mlp && mlp == &g.list[0] && mlp->count == 12 && mlp->calls == 24);
	CHECK(mlp->total_ns == 3600 && mlp->forward_ns == 1200 && mlp->backward_ns == 2400);
	/* One alone has its own name. */
	CHECK(find(&g, "h.0", "Block") && find(&g, "h.0", "Block")->count == 1);
	CHECK(find(&g, "optimizer", "AdamW") && find(&g, OWNERS_NO_MODULE, ""));
	/* What is nobody's stands last, whatever it takes, and all of it adds up. */
	CHECK(g.list[g.n - 1].is_nobody && g.list[g.n - 1].total_ns == 3 && g.nobody_ns == 3);
	CHECK(g.total_ns == 3670);
	owner_groups_release(&g);
	owner_times_release(&t);
}

TEST(activity_owners, by_depth_and_by_line)
{
	struct owner_times t = {0};
	struct owner_groups g = {0};

	add_model(&t);
	owner_groups_build(&g, &t, OWNERS_BY_MODULE, 1);
	CHECK(find(&g, "h", "") && find(&g, "h", "")->total_ns == 3610);
	owner_groups_release(&g);
	owner_groups_build(&g, &t, OWNERS_BY_LINE, 0);
	CHECK(g.n == 4 && !strcmp(g.list[0].name, "step (t.py:3)") && g.list[0].total_ns == 3610);
	owner_groups_release(&g);
	owner_times_release(&t);
}

TEST(activity_owners, several_models_have_their_names)
{
	struct owner_times t = {0};
	struct owner_groups g = {0};

	add(&t, "Generator", "0", "Linear", "", false, 5);
	add(&t, "Critic", "0", "Linear", "", false, 6);
	add(&t, "Critic", "Critic", "Critic", "", false, 1);
	owner_groups_build(&g, &t, OWNERS_BY_MODULE, 0);
	CHECK(find(&g, "Generator.0", "Linear") && find(&g, "Critic.0", "Linear"));
	CHECK(find(&g, "Critic", "Critic"));
	owner_groups_release(&g);
	owner_times_release(&t);
}
