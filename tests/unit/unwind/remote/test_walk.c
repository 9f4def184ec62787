/* SPDX-License-Identifier: MulanPSL-2.0 */
/* An interpreter of our own making, in our own memory: what is believed, and when. */
#include <string.h>
#include <unistd.h>

#include "test.h"
#include "unwind/remote/process_state.h"

#define FRAMES 4

static struct {
	uint8_t runtime[4096], interp[4096], tstate[1024], code[512], text[128], bytes[64];
	uint8_t frames[FRAMES][512];
} m;

static void put(void *at, uint32_t offset, uint64_t v)
{
	memcpy((uint8_t *)at + offset, &v, sizeof(v));
}

static uint64_t addr(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* Frame i calls i + 1; the last one runs. */
static void make_frames(const struct python_layout *l)
{
	for (unsigned i = 0; i < FRAMES; i++) {
		int32_t lasti = 2;

		put(m.frames[i], l->frame.code, addr(m.code));
		put(m.frames[i], l->frame.back, i ? addr(m.frames[i - 1]) : 0);
		memcpy(m.frames[i] + l->frame.lasti, &lasti, sizeof(lasti));
		m.frames[i][l->frame.executing] = 1;
	}
	put(m.tstate, l->tstate.frame, addr(m.frames[FRAMES - 1]));
}

static struct python_process *open_made_up(struct python_place *place)
{
	const struct python_options o = {.names = false};
	const struct python_layout *l = &place->layout;
	uint32_t state;

	memset(&m, 0, sizeof(m));
	*place = (struct python_place){.runtime = addr(m.runtime)};
	CHECK_INT(python_layout_table(0x030812f0, PYTHON_X86_64, &place->layout), 0);
	state = 1u << l->text.kind_shift | 1u << l->text.compact_bit | 1u << l->text.ascii_bit;
	put(m.runtime, l->runtime.interpreters_head, addr(m.interp));
	put(m.interp, l->interp.threads_head, addr(m.tstate));
	put(m.tstate, l->tstate.interp, addr(m.interp));
	put(m.tstate, l->tstate.thread_id, addr(m.tstate));
	put(m.code, l->code.filename, addr(m.text));
	put(m.code, l->code.name, addr(m.text));
	put(m.code, l->code.linetable, addr(m.bytes));
	put(m.code, l->code.instructions, addr(m.bytes));
	put(m.text, l->text.length, 4);
	memcpy(m.text + l->text.state, &state, sizeof(state));
	memcpy(m.text + l->text.ascii_data, "func", 4);
	put(m.bytes, l->object.var_size, 16);
	memset(m.bytes + l->object.bytes_data, 1, 16);
	make_frames(l);
	return python_process_at(getpid(), place, &o);
}

static const struct python_thread *look(struct python_process *p)
{
	struct err err = {0};

	CHECK_INT(python_capture(p, &err), 0);
	CHECK_INT(python_resolve(p, &err), 0);
	CHECK_INT(p->nthreads, 1);
	return &p->threads[0];
}

TEST(remote_walk, a_stack)
{
	struct python_place place;
	struct python_process *p = open_made_up(&place);
	const struct python_thread *t = look(p);

	CHECK(!t->missed);
	CHECK_INT(t->nframes, FRAMES);
	CHECK_STR(t->frames[0].name, "func");
	CHECK_INT(look(p)->kept, FRAMES);
	CHECK_INT(p->threads[0].unchanged, 1);
	python_process_close(p);
}

TEST(remote_walk, a_thread_that_leaves_python_and_comes_back)
{
	struct python_place place;
	struct python_process *p = open_made_up(&place);

	CHECK_INT(look(p)->nframes, FRAMES);
	put(m.tstate, place.layout.tstate.frame, 0);
	const struct python_thread *t = look(p);
	CHECK(!t->missed);
	CHECK_INT(t->nframes, 0);
	make_frames(&place.layout);
	t = look(p);
	CHECK(!t->missed);
	CHECK_INT(t->nframes, FRAMES);
	CHECK_INT(t->kept, 0);
	python_process_close(p);
}

TEST(remote_walk, an_innermost_frame_at_its_return_is_left_out)
{
	struct python_place place;
	struct python_process *p = open_made_up(&place);

	m.bytes[place.layout.object.bytes_data + 4] = 83; /* RETURN_VALUE */
	int32_t lasti = 4;
	memcpy(m.frames[FRAMES - 1] + place.layout.frame.lasti, &lasti, sizeof(lasti));
	(void)look(p); /* the code is not known yet */
	const struct python_thread *t = look(p);
	CHECK(t->missed || (t->partial && t->nframes == FRAMES - 1));
	python_process_close(p);
}
