/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/tree.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "report/redact/redact_words.h"

void tree_init(struct tree *t, struct pack *pack)
{
	*t = (struct tree){.pack = pack, .nnodes = 1};
	column_add(&t->parent, 0);
	column_add(&t->frame, 0);
}

/* Ten frames of it lie between two modules, and say nothing of either. */
bool tree_is_import_system(const struct profile_frame *f)
{
	return !strncmp(f->file, "<frozen importlib", 17);
}

/* Without a file nobody knows whose a function is. */
static enum redact_kind kind_of_name(enum tree_kind kind, const struct profile_frame *f)
{
	if (kind == TREE_WORDS)
		return REDACT_OWNER;
	if (kind == TREE_LIBRARY && (*f->file || redact_is_vendor_kernel(f->name, strlen(f->name))))
		return REDACT_FUNCTION;
	return REDACT_OWN_FUNCTION;
}

static uint32_t find_frame(struct tree *t, enum tree_kind kind, const struct profile_frame *f)
{
	uint32_t name = pack_string(t->pack, kind_of_name(kind, f), f->name);
	uint32_t file =
		pack_string(t->pack, kind == TREE_USERS ? REDACT_OWN_FILE : REDACT_FILE, f->file);
	const uint32_t key[] = {name, file, (uint32_t)f->line, kind};
	uint64_t hash = XXH3_64bits(key, sizeof(key));
	uint64_t at = hmap_get(&t->frame_of, hash);

	if (at != HMAP_NONE)
		return (uint32_t)at;
	column_add(&t->name, name);
	column_add(&t->file, file);
	column_add(&t->line, f->line > 0 ? (uint64_t)f->line : 0);
	column_add(&t->kind, kind);
	hmap_put(&t->frame_of, hash, t->nframes);
	return t->nframes++;
}

uint32_t tree_node(struct tree *t, uint32_t parent, enum tree_kind kind,
		   const struct profile_frame *frame)
{
	uint32_t number = find_frame(t, kind, frame);
	uint64_t key = (uint64_t)parent << 32 | number;
	uint64_t at = hmap_get(&t->node_of, key);

	if (at != HMAP_NONE)
		return (uint32_t)at;
	column_add(&t->parent, t->nnodes - parent);
	column_add(&t->frame, number);
	hmap_put(&t->node_of, key, t->nnodes);
	t->links = xgrow(t->links, &t->cap_links, t->nnodes + 1u, sizeof(*t->links));
	t->links[t->nnodes] = (struct tree_link){parent, *frame};
	t->links[t->nnodes].frame.name = intern(frame->name, strlen(frame->name));
	t->links[t->nnodes].frame.file = intern(frame->file, strlen(frame->file));
	t->links[t->nnodes].frame.users = kind == TREE_USERS;
	return t->nnodes++;
}

void tree_put(struct tree *t)
{
	pack_put(t->pack, "frame.", "name", &t->name);
	pack_put(t->pack, "frame.", "file", &t->file);
	pack_put(t->pack, "frame.", "line", &t->line);
	pack_put(t->pack, "frame.", "kind", &t->kind);
	pack_put(t->pack, "node.", "parent", &t->parent);
	pack_put(t->pack, "node.", "frame", &t->frame);
}

void tree_release(struct tree *t)
{
	struct column *all[] = {&t->name, &t->file, &t->line, &t->kind, &t->parent, &t->frame};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		buf_release(&all[i]->bytes);
	hmap_release(&t->frame_of);
	hmap_release(&t->node_of);
	free(t->links);
}
