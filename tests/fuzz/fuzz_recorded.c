/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Recordings of anybody, as `sonde timeline`, `activity` and `report` read what `sonde record` has put into
 * them: windows of activities, stacks, counters. Input: records as type (1 byte), length (1 byte), body;
 * they become one batch of a well-formed file, behind a process whose window is open. Types from 128
 * on are of no process, as samples are.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "activity/read/recording.h"
#include "base/containers/buf.h"
#include "memory/analysis/processes/processes.h"
#include "report/profiles.h"
#include "timeline/clocks.h"
#include "timeline/sources.h"
#include "wire/record.h"
#include "wire/recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OF_NOBODY 128
#define REQUEST                                                                                    \
	"NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false\nREPORT_INTERVAL_S=60\nDURATION=0\n"       \
	"NPU_MONITOR_LOG_FILE=\nNPU_MONITOR_EXPORT_TYPE=DB\nSONDE_RECORD=true\n"                   \
	"MSPTI_ACTIVITY_KIND=Marker,Kernel,API,MemCpy,Communication\n"

static void add_frame(struct buf *file, uint32_t type, const void *payload, size_t n)
{
	struct frame f = {.magic = FRAME_MAGIC,
			  .type = type,
			  .stored_bytes = (uint32_t)n,
			  .raw_bytes = (uint32_t)n,
			  .check = XXH64(payload, n, (uint64_t)n << 32 | type)};

	buf_add(file, &f, sizeof(f));
	buf_add(file, payload, n);
}

static void add_run(struct buf *batch, uint32_t proc, const struct rec *r)
{
	struct batch_item it = {BATCH_RUN, (uint32_t)sizeof(it) + r->size, proc, 7};

	buf_add(batch, &it, sizeof(it));
	buf_add(batch, r, r->size);
}

static void add_window(struct buf *batch)
{
	_Alignas(8) char bytes[sizeof(struct rec_monitor) + sizeof(REQUEST) + 8] = {0};
	struct rec_monitor *r = (struct rec_monitor *)bytes;

	r->window = 1;
	r->kind = MONITOR_START;
	r->len = sizeof(REQUEST) - 1;
	r->head = (struct rec){
		.type = REC_MONITOR, .size = rec_size(sizeof(*r), r->len), .time_ns = 1000};
	memcpy(r->text, REQUEST, r->len);
	add_run(batch, 0, &r->head);
}

static void add_records(struct buf *batch, const uint8_t *data, size_t size)
{
	uint64_t now_ns = 2000;

	while (size >= 2) {
		_Alignas(8) char bytes[sizeof(struct rec) + 256] = {0};
		struct rec *r = (struct rec *)bytes;
		size_t n = data[1] < size - 2 ? data[1] : size - 2;

		*r = (struct rec){.type = data[0] % OF_NOBODY,
				  .size = rec_size(sizeof(*r), n),
				  .time_ns = now_ns += 1000};
		memcpy(r + 1, data + 2, n);
		if (rec_check(r, r->size))
			add_run(batch, data[0] >= OF_NOBODY ? PROC_NONE : 0, r);
		data += 2 + n;
		size -= 2 + n;
	}
}

static void *begin(void *arg, uint32_t proc, const struct activity_about *about)
{
	(void)proc;
	(void)about;
	return arg;
}

static int take(void *process, const struct activity *a)
{
	*(size_t *)process += strlen(a->name) + strlen(a->detail) + strlen(a->more);
	return 0;
}

/* A report's flame graph of the samples. */
static void read_profile(const char *path)
{
	struct pack pack;
	struct tree tree;
	struct stacks_read s = {.tree = &tree};
	struct err err = {0};

	pack_init(&pack, NULL);
	tree_init(&tree, &pack);
	int r = profile_read_recording(&s, path, NULL, &err);
	if (r < 0 ? r != -ENOENT : !s.total)
		abort();
	hmap_release(&s.own);
	tree_release(&tree);
	pack_release(&pack);
}

/* Two hosts with the same recording. */
static void read_clocks(const char *path)
{
	struct timeline_clocks *c = timeline_clocks_new();
	const struct timeline_source hosts[] = {{"a", path}, {"b", path}};
	const struct timeline_clock *list;
	struct buf notes = {0};
	struct err err = {0};
	size_t n;

	for (size_t i = 0; i < 2; i++)
		if (timeline_clocks_add(c, &hosts[i], &err) < 0)
			abort();
	if (timeline_clocks_solve(c, "/dev/null", &notes, &err) < 0)
		abort();
	list = timeline_clocks_list(c, &n);
	for (size_t i = 0; i < n; i++)
		if (list[i].first_ns > list[i].last_ns ||
		    (list[i].known && list[i].line.bound_ns < 0))
			abort();
	timeline_clocks_free(c);
	buf_release(&notes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char session[] = "{\"wallMinusMono\":1700000000000000000,\"host\":\"node\"}";
	static const struct activity_recording_ops ops = {.process = begin, .activity = take};
	struct recording_head head = {.version = RECORDING_PLAIN, .rec_version = REC_VERSION};
	struct timeline_options o = {.path = "/dev/null"};
	struct frame_proc proc = {.pid = 5};
	struct buf file = {0}, batch = {0}, notes = {0};
	struct timeline_counts counts;
	struct timeline *t;
	struct err err = {0};
	size_t texts = 0;
	char path[64];
	int fd = memfd_create("recording", MFD_CLOEXEC);

	memcpy(head.magic, RECORDING_MAGIC, sizeof(head.magic));
	buf_add(&file, &head, sizeof(head));
	add_frame(&file, FRAME_SESSION, session, sizeof(session) - 1);
	add_frame(&file, FRAME_PROC, &proc, sizeof(proc));
	add_window(&batch);
	add_records(&batch, data, size);
	add_frame(&file, FRAME_BATCH, batch.data, batch.len);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fd < 0 || write(fd, file.data, file.len) != (ssize_t)file.len ||
	    timeline_new(&o, &t, &err) < 0)
		abort();
	struct processes processes = {0};
	struct stream_listener names, samples, activities;
	struct sample_source *stacks = timeline_hear_samples(t, NULL, &processes, &names, &samples);
	struct recorded_activities *devices =
		timeline_hear_activities(t, NULL, &processes, &notes, &activities);
	activities.next = &samples;
	if (stream_file_to(path, &names, NULL, &err) < 0 ||
	    stream_file_to(path, &activities, NULL, &err) < 0 ||
	    activity_recording_read(path, ACTIVITY_ALL_PROCESSES, &ops, &texts, &err) < 0)
		abort(); /* the file is well-formed */
	(void)timeline_end_activities(devices);
	timeline_end_samples(stacks);
	processes_release(&processes);
	read_profile(path);
	read_clocks(path);
	(void)timeline_close(t, &counts, &err);
	close(fd);
	buf_release(&file);
	buf_release(&batch);
	buf_release(&notes);
	return 0;
}
