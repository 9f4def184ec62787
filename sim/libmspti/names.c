/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <stdlib.h>
#include <string.h>

#include "library.h"

#define CHUNK (16u << 10)
#define RECENT 256

struct chunk {
	struct chunk *next;
	size_t used;
	size_t size;
	char text[];
};

/* The same string comes again and again from the same address: one copy per buffer is enough. */
struct recent {
	const char *from;
	const char *copy;
};

struct names {
	struct chunk *chunks;
	struct recent recent[RECENT];
};

struct names *names_new(void)
{
	return calloc(1, sizeof(struct names));
}

static char *room_for(struct names *n, size_t bytes)
{
	struct chunk *c = n->chunks;
	if (!c || c->size - c->used < bytes) {
		size_t size = bytes > CHUNK ? bytes : CHUNK;
		c = malloc(sizeof(*c) + size);
		if (!c)
			return NULL;
		*c = (struct chunk){.next = n->chunks, .size = size};
		n->chunks = c;
	}
	c->used += bytes;
	return c->text + c->used - bytes;
}

const char *names_add(struct names *n, const char *text)
{
	if (!text)
		return NULL;
	struct recent *r = &n->recent[((uintptr_t)text >> 3 ^ (uintptr_t)text >> 11) % RECENT];
	if (r->from == text && !strcmp(r->copy, text))
		return r->copy;
	size_t bytes = strlen(text) + 1;
	char *copy = room_for(n, bytes);
	if (!copy)
		return NULL;
	memcpy(copy, text, bytes);
	*r = (struct recent){text, copy};
	return copy;
}

void names_free(struct names *n)
{
	while (n && n->chunks) {
		struct chunk *c = n->chunks;
		n->chunks = c->next;
		memset(c->text, 0xdd, c->used);
		__asm__ volatile("" : : "r"(c->text) : "memory"); /* not a dead store */
		free(c);
	}
	free(n);
}
