/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/containers/intern.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

/* Open addressing over pointers to the texts; each has its length and hash in front. */
struct entry {
	uint64_t hash;
	size_t len;
	char text[];
};

#define SLAB_BYTES (64u << 10)

static struct entry **slots;
static size_t nslots, count;
static char *slab;
static size_t slab_left;

/* Room for one entry; a large one has a block for itself, and the slab in use goes on. */
static void *take_room(size_t size)
{
	if (size > SLAB_BYTES / 4)
		return xmalloc(size);
	if (size > slab_left) {
		slab = xmalloc(SLAB_BYTES);
		slab_left = SLAB_BYTES;
	}
	void *p = slab;
	slab += size;
	slab_left -= size;
	return p;
}

static struct entry *entry_new(const char *text, size_t len, uint64_t hash)
{
	struct entry *e = take_room((sizeof(*e) + len + 1 + 7) & ~(size_t)7);

	e->hash = hash;
	e->len = len;
	memcpy(e->text, text, len);
	e->text[len] = '\0';
	return e;
}

static void grow_table(void)
{
	size_t n = nslots ? nslots * 2 : 1024;
	struct entry **bigger = xcalloc(n, sizeof(*bigger));

	for (size_t i = 0; i < nslots; i++) {
		if (!slots[i])
			continue;
		size_t at = slots[i]->hash & (n - 1);
		while (bigger[at])
			at = (at + 1) & (n - 1);
		bigger[at] = slots[i];
	}
	free(slots);
	slots = bigger;
	nslots = n;
}

static const char *find_text(const char *text, size_t len, uint64_t hash)
{
	if (count * 2 >= nslots)
		grow_table();
	size_t at = hash & (nslots - 1);
	for (; slots[at]; at = (at + 1) & (nslots - 1))
		if (slots[at]->hash == hash && slots[at]->len == len &&
		    !memcmp(slots[at]->text, text, len))
			return slots[at]->text;
	slots[at] = entry_new(text, len, hash);
	count++;
	return slots[at]->text;
}

const char *intern(const char *text, size_t len)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	uint64_t hash = XXH3_64bits(text, len);

	pthread_mutex_lock(&lock);
	const char *found = find_text(text, len, hash);
	pthread_mutex_unlock(&lock);
	return found;
}
