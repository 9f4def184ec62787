/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/windows/attribution.h"
#include "test.h"

#include <string.h>

#define THREAD(n) ((uint64_t)(n) << WORK_THREAD_SHIFT)

struct fixture {
	struct attribution *t;
	struct texts names;
};

static void name_layer(struct fixture *f, uint64_t hash, const char *text)
{
	CHECK(texts_add(&f->names, hash, text, strlen(text)));
}

static void name_place(struct fixture *f, uint64_t id, uint32_t line)
{
	static const char text[] = "step\0/job/train.py";
	union {
		struct rec_python r;
		char room[128];
	} u = {.r = {.head = {.type = REC_PYTHON,
			      .size = rec_size(sizeof(struct rec_python), sizeof(text) - 1)},
		     .id = id,
		     .line = line,
		     .len = sizeof(text) - 1}};

	memcpy(u.r.text, text, sizeof(text) - 1);
	attribution_place(f->t, &u.r);
}

static struct fixture make(void)
{
	struct fixture f = {.t = attribution_new()};

	name_layer(&f, 1, "GPT:h.0.mlp:MLP");
	name_layer(&f, 2, "GPT::GPT");
	name_place(&f, 9, 18);
	return f;
}

static void work(struct fixture *f, uint32_t tid, uint64_t ns, uint8_t kind, uint64_t layer,
		 uint32_t line, uint64_t sequence)
{
	struct rec_work r = {
		.wall_ns = ns, .layer = layer, .sequence = sequence, .line = line, .kind = kind};

	attribution_work(f->t, tid, &r, &f->names);
}

/* NULL: nobody's. */
static const struct activity_owner *launch(struct fixture *f, uint32_t tid, uint64_t ns)
{
	static uint64_t ids;
	struct rec_launch r = {.wall_ns = ns, .correlation = ++ids, .tid = tid};
	const struct activity_owner *o;

	CHECK(!attribution_find(f->t, ids, &o));
	attribution_launch(f->t, &r);
	CHECK(attribution_find(f->t, ids, &o));
	return o;
}

static void release(struct fixture *f)
{
	attribution_free(f->t);
	texts_release(&f->names);
}

TEST(attribution, a_launch_belongs_to_what_its_thread_last_said)
{
	struct fixture f = make();

	work(&f, 7, 100, WORK_FORWARD, 1, 9, THREAD(1) | 10);
	work(&f, 7, 200, WORK_FORWARD, 2, 0, THREAD(1) | 20);
	work(&f, 7, 300, WORK_FORWARD, 0, 9, THREAD(1) | 30);
	CHECK(!launch(&f, 7, 99) && !launch(&f, 8, 150));
	const struct activity_owner *mlp = launch(&f, 7, 100), *model = launch(&f, 7, 250);
	CHECK(mlp && !strcmp(mlp->module, "h.0.mlp") && !strcmp(mlp->module_class, "MLP"));
	CHECK(!strcmp(mlp->model, "GPT") && !strcmp(mlp->line, "step (/job/train.py:18)"));
	CHECK(!mlp->backward && launch(&f, 7, 199) == mlp);
	CHECK(model && !strcmp(model->module, "GPT") && !*model->line);
	const struct activity_owner *none = launch(&f, 7, 400);
	CHECK(none && !*none->module && *none->line);
	release(&f);
}

TEST(attribution, a_gradient_belongs_to_its_operation)
{
	struct fixture f = make();

	work(&f, 7, 100, WORK_FORWARD, 1, 9, THREAD(1) | 10);
	work(&f, 7, 200, WORK_FORWARD, 2, 0, THREAD(1) | 20);
	work(&f, 9, 300, WORK_BACKWARD, 0, 0, THREAD(1) | 25);
	work(&f, 9, 400, WORK_BACKWARD, 0, 0, THREAD(1) | 19);
	work(&f, 9, 500, WORK_BACKWARD, 0, 0, THREAD(1) | 9); /* before anything was said */
	work(&f, 9, 600, WORK_BACKWARD, 0, 0, THREAD(2) | 15); /* of another counter */
	CHECK(!strcmp(launch(&f, 9, 301)->module, "GPT") && launch(&f, 9, 301)->backward);
	CHECK(!strcmp(launch(&f, 9, 401)->module, "h.0.mlp") && launch(&f, 9, 401)->backward);
	CHECK(!launch(&f, 9, 501) && !launch(&f, 9, 601));
	/* The same numbers once more: a new pass. */
	work(&f, 7, 700, WORK_FORWARD, 2, 0, THREAD(1) | 15);
	work(&f, 9, 800, WORK_BACKWARD, 0, 0, THREAD(1) | 19);
	CHECK(!strcmp(launch(&f, 9, 801)->module, "GPT"));
	release(&f);
}

TEST(attribution, memory_is_bounded)
{
	struct fixture f = make();

	for (uint64_t i = 0; i < 300000; i++) {
		work(&f, 7, 1000 + i, WORK_FORWARD, 1 + (i & 1), 0, THREAD(1) | i);
		work(&f, (uint32_t)i, 1000, WORK_FORWARD, 1, 0, WORK_NO_SEQUENCE);
	}
	CHECK(!launch(&f, 7, 1001) && launch(&f, 7, 300900));
	for (unsigned i = 0; i < 600000; i++)
		attribution_launch(f.t, &(struct rec_launch){.correlation = 1000000 + i});
	const struct activity_owner *o;
	CHECK(!attribution_find(f.t, 1000000, &o) && attribution_find(f.t, 1599999, &o));
	release(&f);
}
