/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Inner node: n children, key[i] = smallest key that may lie below child i, in rising order.
 * Removal leaves nodes underfull and drops them when they are empty: blocks come and go in bursts,
 * and rebalancing would cost more than it saves.
 */
#include "base/containers/omap.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define FANOUT 62
#define MAX_HEIGHT 16

struct omap_node {
	unsigned n;
	uint64_t key[FANOUT];
	void *ptr[FANOUT]; /* children, or values in a leaf */
};

/* Where we came down: node and index at each level, root first. */
struct path {
	struct omap_node *node[MAX_HEIGHT];
	unsigned at[MAX_HEIGHT];
};

/* Number of keys <= key. Branch-free halving: the compiler makes conditional moves of it. */
static unsigned count_le(const struct omap_node *nd, uint64_t key)
{
	const uint64_t *base = nd->key;
	unsigned n = nd->n;

	if (!n)
		return 0;
	while (n > 1) {
		unsigned half = n / 2;
		base += base[half - 1] <= key ? half : 0;
		n -= half;
	}
	return (unsigned)(base - nd->key) + (*base <= key);
}

static unsigned child_of(const struct omap_node *nd, uint64_t key)
{
	unsigned i = count_le(nd, key);

	return i ? i - 1 : 0;
}

static const struct omap_node *leaf_of(const struct omap *m, uint64_t key)
{
	const struct omap_node *nd = m->root;

	for (unsigned h = m->height; nd && h; h--)
		nd = nd->ptr[child_of(nd, key)];
	return nd;
}

void *omap_get(const struct omap *m, uint64_t key)
{
	const struct omap_node *nd = leaf_of(m, key);
	unsigned i = nd ? count_le(nd, key) : 0;

	return i && nd->key[i - 1] == key ? nd->ptr[i - 1] : NULL;
}

static void *floor_in(const struct omap_node *nd, unsigned h, uint64_t key, uint64_t *out_key)
{
	unsigned i = count_le(nd, key);

	if (h == 0) {
		if (!i)
			return NULL;
		*out_key = nd->key[i - 1];
		return nd->ptr[i - 1];
	}
	/* The separator may be older than what is left below it: then look one child before. */
	for (i = i ? i : 1; i > 0; i--) {
		void *v = floor_in(nd->ptr[i - 1], h - 1, key, out_key);
		if (v)
			return v;
	}
	return NULL;
}

void *omap_floor(const struct omap *m, uint64_t key, uint64_t *out_key)
{
	return m->root ? floor_in(m->root, m->height, key, out_key) : NULL;
}

static void node_insert(struct omap_node *nd, unsigned at, uint64_t key, void *ptr)
{
	memmove(nd->key + at + 1, nd->key + at, (nd->n - at) * sizeof(nd->key[0]));
	memmove(nd->ptr + at + 1, nd->ptr + at, (nd->n - at) * sizeof(nd->ptr[0]));
	nd->key[at] = key;
	nd->ptr[at] = ptr;
	nd->n++;
}

static void node_delete(struct omap_node *nd, unsigned at)
{
	nd->n--;
	memmove(nd->key + at, nd->key + at + 1, (nd->n - at) * sizeof(nd->key[0]));
	memmove(nd->ptr + at, nd->ptr + at + 1, (nd->n - at) * sizeof(nd->ptr[0]));
}

/* Splits child `at` of parent in two. The parent has room. */
static void split_child(struct omap_node *parent, unsigned at)
{
	struct omap_node *left = parent->ptr[at];
	struct omap_node *right = xmalloc(sizeof(*right));
	unsigned half = left->n / 2;

	right->n = left->n - half;
	memcpy(right->key, left->key + half, right->n * sizeof(right->key[0]));
	memcpy(right->ptr, left->ptr + half, right->n * sizeof(right->ptr[0]));
	left->n = half;
	node_insert(parent, at + 1, right->key[0], right);
}

void *omap_put(struct omap *m, uint64_t key, void *value)
{
	BUG_ON(!value);
	if (!m->root) {
		m->root = xcalloc(1, sizeof(*m->root));
		m->height = 0;
	}
	if (m->root->n == FANOUT) {
		struct omap_node *top = xcalloc(1, sizeof(*top));
		node_insert(top, 0, m->root->key[0], m->root);
		m->root = top;
		BUG_ON(++m->height >= MAX_HEIGHT);
		split_child(top, 0);
	}
	struct omap_node *nd = m->root;
	for (unsigned h = m->height; h; h--) {
		if (key < nd->key[0])
			nd->key[0] = key; /* or a child that is split would stand before it */
		unsigned i = child_of(nd, key);
		struct omap_node *child = nd->ptr[i];
		if (child->n == FANOUT) {
			split_child(nd, i);
			i = child_of(nd, key);
			child = nd->ptr[i];
		}
		nd = child;
	}
	unsigned i = count_le(nd, key);
	if (i && nd->key[i - 1] == key) {
		void *old = nd->ptr[i - 1];
		nd->ptr[i - 1] = value;
		return old;
	}
	node_insert(nd, i, key, value);
	m->count++;
	return NULL;
}

/* Takes empty nodes off the path, and levels off the top while the root has one child. */
static void shrink_tree(struct omap *m, struct path *p)
{
	for (unsigned d = m->height; d > 0 && p->node[d]->n == 0; d--) {
		free(p->node[d]);
		node_delete(p->node[d - 1], p->at[d - 1]);
	}
	while (m->height && m->root->n == 1) {
		struct omap_node *child = m->root->ptr[0];
		free(m->root);
		m->root = child;
		m->height--;
	}
	if (m->root->n == 0)
		m->height = 0;
}

void *omap_remove(struct omap *m, uint64_t key)
{
	struct path p;
	struct omap_node *nd = m->root;

	if (!nd)
		return NULL;
	for (unsigned d = 0; d < m->height; d++) {
		p.node[d] = nd;
		p.at[d] = child_of(nd, key);
		nd = nd->ptr[p.at[d]];
	}
	p.node[m->height] = nd;
	unsigned i = count_le(nd, key);
	if (!i || nd->key[i - 1] != key)
		return NULL;
	void *value = nd->ptr[i - 1];
	node_delete(nd, i - 1);
	m->count--;
	if (nd->n == 0 && m->height)
		shrink_tree(m, &p);
	return value;
}

static void each_in(const struct omap_node *nd, unsigned h,
		    void (*fn)(uint64_t key, void *value, void *arg), void *arg)
{
	for (unsigned i = 0; i < nd->n; i++) {
		if (h)
			each_in(nd->ptr[i], h - 1, fn, arg);
		else
			fn(nd->key[i], nd->ptr[i], arg);
	}
}

void omap_each(const struct omap *m, void (*fn)(uint64_t key, void *value, void *arg), void *arg)
{
	if (m->root)
		each_in(m->root, m->height, fn, arg);
}

static void free_in(struct omap_node *nd, unsigned h)
{
	for (unsigned i = 0; h && i < nd->n; i++)
		free_in(nd->ptr[i], h - 1);
	free(nd);
}

void omap_release(struct omap *m)
{
	if (m->root)
		free_in(m->root, m->height);
	*m = (struct omap){0};
}

struct check {
	uint64_t last;
	size_t count;
	int bad;
};

static void check_entry(uint64_t key, void *value, void *arg)
{
	struct check *c = arg;

	c->bad |= !value || (c->count && key <= c->last);
	c->last = key;
	c->count++;
}

int omap_check(const struct omap *m)
{
	struct check c = {0};

	omap_each(m, check_entry, &c);
	return !c.bad && c.count == m->count;
}

static void free_one(uint64_t key, void *value, void *arg)
{
	(void)key;
	(*(void (**)(void *))arg)(value);
}

void omap_release_values(struct omap *m, void (*free_value)(void *value))
{
	omap_each(m, free_one, &free_value);
	omap_release(m);
}
