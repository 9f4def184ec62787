/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/python/frame.h"

#include <string.h>

#include "unwind/python/text.h"

static uint32_t half_word(const void *bytes, uint32_t at)
{
	uint32_t v;

	__builtin_memcpy(&v, (const char *)bytes + at, sizeof(v));
	return v;
}

/*
 * `entry`, called from C: every frame to 3.10, by a flag in 3.11; from 3.12 on the caller of this
 * learns it from the shim that comes next. `dead`: a frame object of 3.10 and before outlives its
 * call, and a generator's frame waits in it; the flag says whether it executes now.
 */
void python_frame_decode(const struct python_layout *l, uint64_t address, const void *bytes,
			 struct python_raw_frame *out)
{
	const uint8_t *b = bytes;

	*out = (struct python_raw_frame){
		.address = address,
		.code = python_word(b, l->frame.code) & ~(uint64_t)l->tagged,
		.back = python_word(b, l->frame.back),
	};
	if (l->minor <= 10) {
		/* One run of the interpreter's loop for each of them. */
		out->instr = (uint64_t)(int64_t)(int32_t)half_word(b, l->frame.lasti);
		out->entry = true;
		out->dead = b[l->frame.executing] != (l->minor < 10);
		return;
	}
	out->instr = python_word(b, l->frame.lasti);
	if (l->frame.is_entry != PYTHON_NONE)
		out->entry = b[l->frame.is_entry];
	out->generator = b[l->frame.owner] == PYTHON_OWNER_GENERATOR;
	if (l->minor >= 12)
		out->shim = b[l->frame.owner] >= PYTHON_OWNER_SHIM;
	if (l->frame.tlbc_index != PYTHON_NONE)
		out->tlbc = half_word(b, l->frame.tlbc_index);
}

/* In 3.11 and 3.12 the thread state points to a small structure on the C stack, one per run of the
 * interpreter's loop, and that one to the frame. */
static int innermost_frame(const struct python_reader *r, const struct python_layout *l,
			   uint64_t tstate, uint64_t *out)
{
	if (l->tstate.cframe == PYTHON_NONE)
		return python_read_word(r, tstate + l->tstate.frame, out);
	int ret = python_read_word(r, tstate + l->tstate.cframe, out);
	if (ret < 0 || !*out)
		return ret;
	return python_read_word(r, *out + l->cframe_current, out);
}

int python_walk_begin(struct python_walk *w, const struct python_reader *r,
		      const struct python_layout *l, uint64_t tstate)
{
	*w = (struct python_walk){.reader = r, .layout = l};
	return innermost_frame(r, l, tstate, &w->at);
}

int python_walk_next(struct python_walk *w, struct python_raw_frame *out)
{
	uint8_t bytes[PYTHON_FRAME_MAX];

	if (!w->at)
		return 0;
	int ret = python_read(w->reader, w->at, bytes, w->layout->frame.size);
	if (ret < 0)
		return ret;
	python_frame_decode(w->layout, w->at, bytes, out);
	w->at = out->back;
	return 1;
}

bool python_is_trampoline(const struct python_reader *r, const struct python_layout *l,
			  uint64_t file, uint64_t name)
{
	char text[16];

	return file == name && l->minor >= 13 && python_text(r, l, file, text, sizeof(text)) == 8 &&
	       !memcmp(text, "__init__", 8);
}
