/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An ordered map from a 64-bit key to a pointer: a B+tree with wide nodes, so that a million live
 * blocks are three or four cache misses away. omap_floor() is what containment lookups stand on.
 * Zero-initialise and release. Not thread safe.
 */
#ifndef SONDE_BASE_CONTAINERS_OMAP_H
#define SONDE_BASE_CONTAINERS_OMAP_H

#include <stddef.h>
#include <stdint.h>

struct omap {
	struct omap_node *root;
	unsigned height; /* 0: the root is a leaf */
	size_t count;
};

/* The value under key, NULL if there is none. */
void *omap_get(const struct omap *m, uint64_t key);

/* The value under the greatest key <= key, and that key; NULL if every key is greater. */
void *omap_floor(const struct omap *m, uint64_t key, uint64_t *out_key);

/* Stores value (not NULL) under key and returns what was there before, or NULL. */
void *omap_put(struct omap *m, uint64_t key, void *value);

/* Removes key and returns its value, or NULL. */
void *omap_remove(struct omap *m, uint64_t key);

/* Calls fn for every entry in the order of keys. fn must not change the map. */
void omap_each(const struct omap *m, void (*fn)(uint64_t key, void *value, void *arg), void *arg);

void omap_release(struct omap *m);
/* After a call of free_value, such as free(), for every value. */
void omap_release_values(struct omap *m, void (*free_value)(void *value));

/* Whole-structure check for tests: order, fill and count. */
int omap_check(const struct omap *m);

#endif
