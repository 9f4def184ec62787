/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A hash map from a 64-bit key to a 64-bit value: one array, linear probing, no tombstones, so that
 * a map which is filled and emptied for ever stays as small as it ever needed to be. Any key is
 * good; the one value that cannot be stored is HMAP_NONE. Zero-initialise and release. Not thread
 * safe.
 */
#ifndef SONDE_BASE_CONTAINERS_HMAP_H
#define SONDE_BASE_CONTAINERS_HMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HMAP_NONE UINT64_MAX

struct hmap {
	struct hmap_slot *slots;
	size_t cap; /* a power of two, or 0 */
	size_t count;
};

/* The value under key, HMAP_NONE if there is none. */
uint64_t hmap_get(const struct hmap *m, uint64_t key);

/* Stores value under key and returns what was there before, or HMAP_NONE. */
uint64_t hmap_put(struct hmap *m, uint64_t key, uint64_t value);

/* Removes key and returns its value, or HMAP_NONE. */
uint64_t hmap_remove(struct hmap *m, uint64_t key);

/* The same for pointers; NULL where there is none, and never stored. */
void *hmap_get_ptr(const struct hmap *m, uint64_t key);
void *hmap_put_ptr(struct hmap *m, uint64_t key, void *value);

/* Every entry, in no order: start with *at = 0, until false. The map must not change meanwhile. */
bool hmap_next(const struct hmap *m, size_t *at, uint64_t *out_key, uint64_t *out_value);

void hmap_release(struct hmap *m);

/* Whole-structure check for tests: every entry can be found, and the count is right. */
int hmap_check(const struct hmap *m);

#endif
