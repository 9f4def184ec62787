/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a block is for, by the labels of its owner. */
#include "memory/analysis/groups/groups.h"

#define TYPE(member_) (offsetof(struct group_types, member_) / sizeof(uint64_t))

static const struct {
	const char *words, *title, *key;
} types[GROUP_TYPES] = {
	[TYPE(weight)] = {"weights", ">Weights", "weight"},
	[TYPE(buffer)] = {"buffers", ">Buffers", "buffer"},
	[TYPE(gradient)] = {"gradients", ">Gradients", "gradient"},
	[TYPE(optimizer_state)] = {"optimizer states", ">States", "optimizer_state"},
	[TYPE(kv_cache)] = {"KV cache", ">KV cache", "kv_cache"},
	[TYPE(activation)] = {"activations", ">Activations", "activation"},
	[TYPE(temporary)] = {"temporaries of the forward pass", ">Temporary", "temporary"},
	[TYPE(backward)] = {"what backward allocated", ">Backward", "backward"},
	[TYPE(optimizer)] = {"what the optimizer's steps allocated", ">Optimizer", "optimizer"},
	[TYPE(other)] = {"other memory", ">Other", "other"},
	[TYPE(rounding)] = {"rounding of the allocator", ">Rounding", "rounding"},
	[TYPE(free_in_pools)] = {"free inside the pools", ">Free", "free"},
};

static const struct {
	const char *label;
	size_t type;
} labels[] = {
	{"weight", TYPE(weight)},	  {"weights", TYPE(weight)},
	{"sharded_weight", TYPE(weight)}, {"buffer", TYPE(buffer)},
	{"gradient", TYPE(gradient)},	  {"optimizer_state", TYPE(optimizer_state)},
	{"kv_cache", TYPE(kv_cache)},	  {"activation", TYPE(activation)},
	{"backward", TYPE(backward)},	  {"optimizer", TYPE(optimizer)},
};

const char *group_type_words(size_t type)
{
	return types[type].words;
}

const char *group_type_key(size_t type)
{
	return types[type].key;
}

const char *group_type_title(size_t type)
{
	return types[type].title;
}

static size_t label_type(const char *label, size_t len)
{
	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++)
		if (strlen(labels[i].label) == len && !memcmp(labels[i].label, label, len))
			return labels[i].type;
	return TYPE(other);
}

/* What runs when it is allocated; other types say what it is. */
static bool is_phase(size_t type)
{
	return type == TYPE(activation) || type == TYPE(backward) || type == TYPE(optimizer);
}

static bool has_prefix(const char *label, size_t len, const char *prefix)
{
	return len >= strlen(prefix) && !memcmp(label, prefix, strlen(prefix));
}

/*
 * By the first label that says what it is, else by the phase: fsdp1@backward@gradient is a gradient.
 *
 * Functions of FSDP label all that they allocate as weights or gradients. On the host that is whatever
 * malloc() was asked for meanwhile, so there it must also be a tensor of a module.
 */
static size_t block_type(const char *owner, const struct block *b)
{
	size_t phase = TYPE(other), type = TYPE(other);
	bool in_fsdp = false;

	for (const char *at = owner; *at && type == TYPE(other);) {
		size_t len = strcspn(at, "@"), one = label_type(at, len);

		in_fsdp |= has_prefix(at, len, "fsdp") || has_prefix(at, len, "sharded_");
		if (!is_phase(one))
			type = one;
		else if (phase == TYPE(other))
			phase = one;
		at += len + (at[len] == '@');
	}
	bool is_tensor = b->pool->type != TYPE_HOST || b->tensor_bytes;
	return type == TYPE(other) || (in_fsdp && !is_tensor) ? phase : type;
}

static size_t share_type(const struct blocks *b, const struct block *block)
{
	size_t type = block_type(text_numbers_text(&b->owners, block->owner), block);

	return type == TYPE(activation) && block->temporary ? TYPE(temporary) : type;
}

void group_add_part(struct group *g, const struct blocks *b, const struct block *block,
		    uint64_t bytes)
{
	g->sums.each[share_type(b, block)] += bytes;
	g->bytes += bytes;
}

void group_add_rounding(struct group *g, uint64_t bytes)
{
	g->sums.of.rounding += bytes;
	g->bytes += bytes;
	g->blocks++;
}

void group_add_share(struct group *g, const struct blocks *b, const struct breakdown_share *s)
{
	const struct block *block = s->block;
	uint64_t tensors = s->bytes;
	size_t type = TYPE(free_in_pools);

	if (block) {
		type = share_type(b, block);
		if (block->tensor_bytes && block->tensor_bytes < tensors)
			tensors = block->tensor_bytes;
	}
	g->sums.each[type] += tensors;
	g->sums.of.rounding += s->bytes - tensors;
	g->bytes += s->bytes;
	g->blocks += block != NULL;
}
