/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The model: for every layer two weights with two optimizer states each. A step goes forward
 * keeping three activations per layer, backward freeing them and making gradients, then updates and
 * frees those.
 */
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"
#include "rank.h"

#define NOINLINE __attribute__((noinline))
#define WEIGHTS 2
#define KEPT 3

struct layer {
	struct tensor weight[WEIGHTS];
	struct tensor momentum[WEIGHTS];
	struct tensor variance[WEIGHTS];
	struct tensor gradient[WEIGHTS];
	struct tensor kept[KEPT]; /* activations that backward needs */
	size_t activation_bytes;
};

struct model {
	struct tensor input;
	struct tensor loss;
	struct layer *layer;
};

uint64_t rank_random(struct rank *r)
{
	uint64_t z = r->random += 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static size_t random_bytes(struct rank *r, size_t min, size_t max)
{
	return (min + rank_random(r) % (max - min)) / 512 * 512;
}

static void fill_tensor(struct rank *r, const struct tensor *t)
{
	uint64_t words[8];
	for (int i = 0; i < 8; i++)
		words[i] = rank_random(r);
	if (t->ptr)
		(void)aclrtMemcpy(t->ptr, t->bytes, words, sizeof(words),
				  ACL_MEMCPY_HOST_TO_DEVICE);
}

static NOINLINE void create_weights(struct rank *r, struct layer *l)
{
	for (int i = 0; i < WEIGHTS; i++) {
		l->weight[i] = tensor_new(r, random_bytes(r, 256 << 10, 3 << 20));
		fill_tensor(r, &l->weight[i]);
	}
	l->activation_bytes = random_bytes(r, 128 << 10, 2 << 20);
}

static NOINLINE void create_optimizer_state(struct rank *r, struct layer *l)
{
	for (int i = 0; i < WEIGHTS; i++) {
		l->momentum[i] = tensor_new(r, l->weight[i].bytes);
		l->variance[i] = tensor_new(r, l->weight[i].bytes);
		fill_tensor(r, &l->momentum[i]);
		fill_tensor(r, &l->variance[i]);
	}
}

int train_setup(struct rank *r)
{
	r->model = calloc(1, sizeof(*r->model));
	if (!r->model)
		return -1;
	struct model *m = r->model;
	m->layer = calloc((size_t)r->opt->layers, sizeof(*m->layer));
	if (!m->layer)
		return -1;
	for (int i = 0; i < r->opt->layers; i++)
		create_weights(r, &m->layer[i]);
	for (int i = 0; i < r->opt->layers; i++)
		create_optimizer_state(r, &m->layer[i]);
	m->input = tensor_new(r, 512 << 10);
	m->loss = tensor_new(r, 512);
	return m->input.ptr && m->loss.ptr ? 0 : -1;
}

static NOINLINE void attention(struct rank *r, struct layer *l, const struct tensor *x)
{
	l->kept[0] = tensor_new(r, l->activation_bytes);
	op_run(r, &(struct op){.name = "aten.mm.default",
			       .in = {x, &l->weight[0]},
			       .out = {&l->kept[0]}});
	struct tensor scores = tensor_new(r, l->activation_bytes * 2);
	op_run(r, &(struct op){.name = "npu.npu_fusion_attention.default",
			       .in = {&l->kept[0]},
			       .out = {&scores}});
	l->kept[1] = tensor_new(r, l->activation_bytes);
	op_run(r, &(struct op){.name = "aten.bmm.default",
			       .in = {&scores, &l->kept[0]},
			       .out = {&l->kept[1]}});
	tensor_free(r, &scores);
}

static NOINLINE void feed_forward(struct rank *r, struct layer *l)
{
	struct tensor hidden = tensor_new(r, l->activation_bytes * 4);
	op_run(r, &(struct op){.name = "aten.mm.default",
			       .in = {&l->kept[1], &l->weight[1]},
			       .out = {&hidden}});
	op_run(r, &(struct op){.name = "aten.gelu.default", .in = {&hidden}, .out = {&hidden}});
	l->kept[2] = tensor_new(r, l->activation_bytes);
	op_run(r, &(struct op){.name = "aten.native_layer_norm.default",
			       .in = {&hidden},
			       .out = {&l->kept[2]}});
	op_run(r, &(struct op){.name = "aten.add.Tensor",
			       .in = {&l->kept[1], &l->kept[2]},
			       .out = {&l->kept[2]}});
	tensor_free(r, &hidden);
}

static NOINLINE const struct tensor *forward_layer(struct rank *r, struct layer *l,
						   const struct tensor *x)
{
	attention(r, l, x);
	feed_forward(r, l);
	return &l->kept[2];
}

static NOINLINE void forward(struct rank *r)
{
	struct model *m = r->model;
	if (r->leader)
		mstxMarkA("forward", r->stream);
	fill_tensor(r, &m->input);
	const struct tensor *x = &m->input;
	for (int i = 0; i < r->opt->layers; i++)
		x = forward_layer(r, &m->layer[i], x);
	op_run(r,
	       &(struct op){.name = "aten.nll_loss_forward.default", .in = {x}, .out = {&m->loss}});
}

/* The gradient of one weight, from what forward kept. */
static void backward_weight(struct rank *r, struct layer *l, int i, const struct tensor *kept[2])
{
	l->gradient[i] = tensor_new(r, l->weight[i].bytes);
	op_run(r, &(struct op){.name = "aten.mm_backward.default",
			       .in = {kept[0], &l->weight[i], &r->model->loss, kept[1]},
			       .out = {&l->gradient[i]}});
}

/* @x is the layer's input: the last activation of the layer below. What is done with is freed. */
static NOINLINE void backward_layer(struct rank *r, struct layer *l, const struct tensor *x)
{
	backward_weight(r, l, 1, (const struct tensor *[]){&l->kept[1], &l->kept[2]});
	tensor_free(r, &l->kept[2]);
	tensor_free(r, &l->kept[1]);
	backward_weight(r, l, 0, (const struct tensor *[]){&l->kept[0], x});
	tensor_free(r, &l->kept[0]);
}

static NOINLINE void backward(struct rank *r)
{
	if (r->leader)
		mstxMarkA("backward", r->stream);
	struct model *m = r->model;
	for (int i = r->opt->layers - 1; i >= 0; i--)
		backward_layer(r, &m->layer[i], i ? &m->layer[i - 1].kept[2] : &m->input);
}

static NOINLINE void all_reduce_gradients(struct rank *r, struct layer *l)
{
	for (int i = 0; i < WEIGHTS; i++)
		op_run(r, &(struct op){.name = "c10d.allreduce_.default",
				       .in = {&l->gradient[i]},
				       .out = {&l->gradient[i]}});
}

static NOINLINE void update_layer(struct rank *r, struct layer *l)
{
	for (int i = 0; i < WEIGHTS; i++) {
		op_run(r, &(struct op){.name = "aten._fused_adamw_.default",
				       .in = {&l->weight[i], &l->gradient[i], &l->momentum[i],
					      &l->variance[i]},
				       .out = {&l->weight[i], &l->momentum[i], &l->variance[i]}});
		tensor_free(r, &l->gradient[i]);
	}
}

static NOINLINE void optimizer_step(struct rank *r)
{
	if (r->leader)
		mstxMarkA("optimizer", r->stream);
	for (int i = 0; i < r->opt->layers; i++) {
		struct layer *l = &r->model->layer[i];
		if (r->comm || r->opt->devices * r->opt->procs > 1)
			all_reduce_gradients(r, l);
		update_layer(r, l);
	}
}

/* The first weight stands for the model: a step that went wrong anywhere changes it. */
static double read_loss(struct rank *r)
{
	uint64_t loss = 0;
	uint64_t weight = 0;
	if (aclrtSynchronizeStream(r->stream))
		r->failed = 1;
	(void)aclrtMemcpy(&loss, sizeof(loss), r->model->loss.ptr, sizeof(loss),
			  ACL_MEMCPY_DEVICE_TO_HOST);
	(void)aclrtMemcpy(&weight, sizeof(weight), r->model->layer[0].weight[0].ptr, sizeof(weight),
			  ACL_MEMCPY_DEVICE_TO_HOST);
	r->hash = (r->hash ^ loss ^ weight) * 0x100000001b3ull;
	return 4.0 / (1.0 + 0.1 * r->step) + (double)(loss % 10000) / 100000.0;
}

NOINLINE double train_step(struct rank *r, int step)
{
	r->step = step;
	if (step == r->opt->slower_step && r->leader && r->opt->slower_kernel[0])
		(void)ops_slow(r->opt->slower_kernel, r->opt->slower_factor);
	mstxRangeId range = r->leader ? mstxRangeStartA("step start", r->stream) : 0;
	if (r->leader && r->opt->bad_names)
		mstxMarkA("mark \xff\xfe that is not text", NULL);
	fault_step_begin(r);
	forward(r);
	fault_after_forward(r);
	backward(r);
	fault_after_backward(r);
	optimizer_step(r);
	fault_step_end(r);
	double loss = read_loss(r);
	if (r->leader)
		mstxRangeEnd(range);
	return loss;
}

static NOINLINE void free_layer(struct rank *r, struct layer *l)
{
	for (int i = 0; i < WEIGHTS; i++) {
		tensor_free(r, &l->weight[i]);
		tensor_free(r, &l->momentum[i]);
		tensor_free(r, &l->variance[i]);
	}
}

void train_finish(struct rank *r)
{
	struct model *m = r->model;
	if (!m)
		return;
	for (int i = 0; m->layer && i < r->opt->layers; i++)
		free_layer(r, &m->layer[i]);
	tensor_free(r, &m->input);
	tensor_free(r, &m->loss);
	free(m->layer);
	free(m);
	r->model = NULL;
}
