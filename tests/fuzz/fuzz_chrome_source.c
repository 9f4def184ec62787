/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Chrome traces of anybody, as `sonde timeline` merges and explains them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "timeline/explain.h"
#include "timeline/timeline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct timeline_options o = {.path = "/dev/null", .explain = explain_new(0, 0)};
	struct split_job job = {0};
	int fd = memfd_create("trace", MFD_CLOEXEC);
	struct timeline_counts counts;
	struct timeline *t;
	struct buf notes = {0};
	char path[64];

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (timeline_new(&o, &t, NULL) == 0) {
		struct timeline_source s = {NULL, path};

		(void)timeline_read_chrome(t, &s, &notes, NULL);
		(void)timeline_close(t, &counts, NULL);
		if (counts.slices > size || counts.counters > size)
			abort();
	}
	if (explain_finish(o.explain, &job)) {
		struct buf text = {0};

		split_job_text(&job, 10, &text);
		json_decref(split_job_json(&job));
		buf_release(&text);
	}
	split_job_release(&job);
	buf_release(&notes);
	close(fd);
	return 0;
}
