/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A recording of somebody else's that is followed while it grows. Input: a sequence of type (1 byte),
 * length (2 bytes, little endian), payload, as for fuzz_stream.c. Half of the frames are there when it
 * is opened; then come the others, and last a part of the input as it is.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "memory/live/live.h"
#include "recorder/recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Adds a frame; false: that was all. */
static int add_frame(struct recording_writer *w, const uint8_t **data, size_t *size)
{
	if (*size < 3)
		return 0;
	size_t n = (*data)[1] | (size_t)(*data)[2] << 8;
	uint32_t type = (*data)[0];

	*data += 3;
	*size -= 3;
	n = n > *size ? *size : n;
	void *aligned = xmalloc(n + 1); /* as a recorder has it */
	memcpy(aligned, *data, n);
	(void)recording_append(w, type, aligned, n, NULL);
	free(aligned);
	*data += n;
	*size -= n;
	return 1;
}

static void look(struct live *l)
{
	struct live_display display = {.width = 60, .top = 5, .rows = 20};
	struct live_groups g;
	struct buf out = {0};

	while (live_read(l, UINT64_MAX, NULL) > 0)
		continue;
	for (unsigned by = 0; by <= LIVE_BY_MODULE; by++) {
		struct live_view v = {.by = by, .sort = by, .filter = ""};

		live_describe(l, &v, &out);
		live_courses_text(l, &v, &display, &out);
		live_groups(l, &v, &g);
		live_groups_text(&g, &v, &display, &out);
		live_groups_release(&g);
		json_decref(live_json(l, &v, 3));
	}
	for (size_t i = 0; i < out.len; i++)
		BUG_ON((unsigned char)out.data[i] < ' ' && out.data[i] != '\n');
	buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_proc p = {.pid = 1, .visible_devices = "3,2,1"};
	struct recording_writer *w;
	struct live *l;
	char path[64];

	snprintf(path, sizeof(path), "/tmp/fuzz_live.%d", (int)getpid());
	unlink(path);
	BUG_ON(recording_create(&w, path, NULL) < 0);
	recording_append(w, FRAME_PROC, &p, sizeof(p), NULL);
	for (unsigned i = 0; i < 2; i++)
		add_frame(w, &data, &size);
	BUG_ON(live_open(&l, path, NULL) < 0);
	look(l);
	while (add_frame(w, &data, &size))
		continue;
	look(l);
	recording_close(w);
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	BUG_ON(write(fd, data, size) < 0);
	close(fd);
	look(l);
	live_free(l);
	unlink(path);
	return 0;
}
