/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside of a snapshot: torch_snapshot.c collects events, torch_segments.c writes the files. */
#ifndef SONDE_MEMORY_EXPORT_TORCH_SNAPSHOT_IMPL_H
#define SONDE_MEMORY_EXPORT_TORCH_SNAPSHOT_IMPL_H

#include "memory/analysis/common/breakdown.h"
#include "memory/export/block_frames.h"
#include "memory/export/torch_snapshot.h"

/* Texts that come often have these numbers in the memo of every file, in the order of torch_names. */
enum torch_name {
	NAME_ACTION,
	NAME_ADDR,
	NAME_SIZE,
	NAME_STREAM,
	NAME_FRAMES,
	NAME_TIME,
	NAME_CATEGORY,
	NAME_FILENAME,
	NAME_LINE,
	NAME_NAME,
	NAME_DEVICE_FREE,
	NAME_ALLOC,
	NAME_FREE_REQUESTED,
	NAME_FREE_COMPLETED,
	NAME_SEGMENT_ALLOC,
	NAME_SEGMENT_FREE,
	NAME_OOM,
	NAME_SNAPSHOT,
	NAME_END,
};

/* The events of one device; in own[2] of struct block_device. */
struct device_trace {
	struct block_device *device;
	int fd; /* -1: everything is in `tail` yet */
	uint64_t written; /* to fd */
	struct buf tail; /* what follows */
	struct hmap frames_of; /* stack to its number in the memo */
	struct hmap category_of; /* owner to its number */
	struct hmap text_of; /* address of an interned text to its number */
	uint64_t events;
	/* where the moment is that was asked for: */
	uint64_t moment_rows; /* of the moment that was seen last */
	uint64_t cut, cut_events; /* bytes and events up to it */
};

struct torch_snapshot {
	struct analysis base;
	struct torch_snapshot_options options;
	struct analysis *owners;
	struct device_trace **traces;
	size_t ntraces, cap_traces;
	struct block_frames frames;
	uint32_t next_number; /* of memos; of all devices, so that they may be in one file */
	struct err err; /* of writing events; 0: none */
};

static inline uint64_t trace_bytes(const struct device_trace *t)
{
	return t->written + t->tail.len;
}

/* A list of frames as a value. */
void torch_frames_add(struct torch_snapshot *s, struct device_trace *t, uint32_t stack,
		      struct buf *out);
/* "weight" of "PTA@model@weight"; its number, or 0 if there is none. */
const char *torch_category(const struct blocks *blocks, const struct block *b, size_t *len);
/* Turns the event of a driver block into that of a segment, now that a pool uses it. */
void torch_mark_segment(struct torch_snapshot *s, struct device_trace *t, const struct block *b);

static inline struct device_trace *torch_trace(const struct block_device *d)
{
	return (struct device_trace *)(uintptr_t)d->own[2];
}

extern const char *const torch_names[NAME_END];

#endif
