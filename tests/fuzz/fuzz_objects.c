/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The readers of Python objects over memory that is nearly right. The first byte chooses the
 * version; then each three bytes change one byte of a well-formed image: two of offset, one of
 * content. Whatever comes of it, every reader ends.
 */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "../unit/python_image.h"
#include "unwind/remote/objects/objects.h"

static void change_bytes(struct image *m, const uint8_t *data, size_t size)
{
	for (size_t i = 1; i + 2 < size; i += 3)
		m->bytes[(size_t)(data[i] | data[i + 1] << 8) % IMAGE_BYTES] = data[i + 2];
}

static void read_job(const uint8_t *data, size_t size)
{
	struct python_place place = {0};
	struct remote_job job;
	struct remote r;
	struct image m;

	image_init(&m, PYTHON_OLDEST + data[0] % 8);
	place.layout = m.l;
	remote_init(&r, getpid());
	place.runtime = image_job(&m);
	change_bytes(&m, data, size);
	remote_job(&r, &place, &job);
	if (job.environ.len > 100000 || job.rank >= job.world_size + (job.rank < 0))
		abort();
	buf_release(&job.environ);
	free(m.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t told;

static void on_name(void *arg, uint64_t ident, const char *name)
{
	(void)arg;
	(void)ident;
	told += strlen(name);
}

struct reading {
	struct remote r;
	struct python_place place;
	struct buf out;
};

static void on_local(void *arg, const char *name, bool is_argument, uint64_t object)
{
	struct reading *g = arg;

	(void)is_argument;
	told += strlen(name);
	remote_repr(&g->r, &g->place, object, 100, &g->out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const names[] = {"MainThread", "other"};
	struct reading g = {0};
	struct image m;
	uint64_t items[4], code;

	if (!size || size > 3 * 4096)
		return 0;
	if (data[0] & 0x80) {
		read_job(data, size);
		return 0;
	}
	image_init(&m, PYTHON_OLDEST + data[0] % 8);
	g.place.layout = m.l;
	remote_init(&g.r, getpid());
	uint64_t interp = image_interp(&m, names, 2), frame = image_frame(&m, &code);
	items[0] = image_str(&m, "text");
	items[1] = image_float(&m, 1.5);
	items[2] = image_dict(&m, items, items, 2, false);
	items[3] = image_tuple(&m, items, 3);
	uint64_t list = image_list(&m, items, 4);
	change_bytes(&m, data, size);
	remote_thread_names(&g.r, &g.place, interp, on_name, NULL);
	remote_locals(&g.r, &g.place, frame, code, on_local, &g);
	remote_repr(&g.r, &g.place, list, 300, &g.out);
	if (g.out.len > 100000)
		abort(); /* the limit is one of order, not of bytes, but this is beyond all order */
	buf_release(&g.out);
	free(m.bytes);
	return 0;
}
