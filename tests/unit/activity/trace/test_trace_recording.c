/* SPDX-License-Identifier: MulanPSL-2.0 */
/* nputrace: its recording, as those who read recordings see it. */
#include "activities.h"
#include "activity/read/recording.h"
#include "activity/steps/files.h"
#include "recorder/stream.h"
#include "wire/control_page.h"
#include "wire/record_samples.h"

#include <sys/stat.h>

#define MS 1000000ull

static struct stage st;
static struct buf seen; /* what a reader is given, a line for each */

static void begin(const char *more)
{
	stage_open(&st);
	stage_name(&st, 1, "launch");
	stage_name(&st, 2, "matmul");
	stage_name(&st, 3, "phase");
	stage_trace(&st, 10 * MS, more);
}

static void step(uint64_t ms, uint64_t number)
{
	RECORD(&st.recs, REC_MONITOR, rec_monitor, ms * MS, .kind = MONITOR_STEP, .window = 1,
	       .value = number, .rank = 3);
	stage_tell(&st);
}

static const char *finish(void)
{
	static char path[4096];

	stage_stop(&st, 400 * MS);
	stage_close(&st);
	snprintf(path, sizeof(path), "%s/" SESSION_RECORDING, stage_left(SPLIT_DIR_SUFFIX));
	buf_clear(&seen);
	return path;
}

static void *take_process(void *arg, uint32_t proc, const struct activity_about *about)
{
	buf_addf(arg, "process %u: pid %u, rank %d\n", proc, about->pid, about->rank);
	return arg;
}

static int take_activity(void *process, const struct activity *a)
{
	buf_addf(process, "%s %s %llu-%llu\n", activity_word(a, FIELD_KIND), a->name,
		 (unsigned long long)(a->start_ns - WALL) / MS,
		 (unsigned long long)(a->end_ns - WALL) / MS);
	return 0;
}

static void take_step(void *process, uint64_t number, uint64_t wall_ns)
{
	buf_addf(process, "step %llu %llu\n", (unsigned long long)number,
		 (unsigned long long)(wall_ns - WALL) / MS);
}

static void take_end(void *process, const struct activity_about *about)
{
	buf_addf(process, "end %d, lost %llu\n", about->end == ACTIVITY_END_THERE,
		 (unsigned long long)about->lost);
}

static const struct activity_recording_ops reader = {
	.process = take_process, .activity = take_activity, .step = take_step, .end = take_end};

TEST(trace_recording, activities_and_steps_are_those_of_the_trace)
{
	begin("PROFILE_MSPROF_TX=true");
	ACTIVITY(&st, ACTIVITY_RUNTIME_API, 80 * MS, 81 * MS, .name = 1, .correlation = 1,
		 ON_HOST(77, 7)); /* before the first step, */
	step(100, 5);
	ACTIVITY(&st, ACTIVITY_KERNEL, 99 * MS, 103 * MS, .name = 2, .correlation = 1,
		 ON_DEVICE(1, 2)); /* which runs in it */
	ACTIVITY(&st, ACTIVITY_RUNTIME_API, 110 * MS, 111 * MS, .name = 1, .correlation = 2,
		 ON_HOST(77, 7));
	MARK(&st, ACTIVITY_MARK_START, 105 * MS, 9, .name = 3, ON_HOST(77, 7));
	MARK(&st, ACTIVITY_MARK_END, 108 * MS, 9, ON_HOST(77, 7));
	stage_tell(&st);
	step(200, 6);
	step(300, 7);
	ACTIVITY(&st, ACTIVITY_KERNEL, 310 * MS, 320 * MS, .name = 2, .correlation = 2,
		 ON_DEVICE(1, 2)); /* launched in the steps */
	ACTIVITY(&st, ACTIVITY_RUNTIME_API, 330 * MS, 331 * MS, .name = 1, .correlation = 3,
		 ON_HOST(77, 7)); /* after them */
	stage_tell(&st);
	const char *path = finish();
	CHECK_INT(activity_recording_read(path, ACTIVITY_ALL_PROCESSES, &reader, &seen, NULL), 0);
	CHECK_STR(buf_str(&seen), "process 0: pid 77, rank 3\n"
				  "step 5 100\n"
				  "Kernel matmul 99-103\n"
				  "Marker phase 105-108\n"
				  "RuntimeAPI launch 110-111\n"
				  "step 6 200\n"
				  "step 7 300\n"
				  "Kernel matmul 310-320\n"
				  "end 1, lost 0\n");
	buf_release(&seen);
}

TEST(trace_recording, the_window_of_a_killed_process_has_no_end)
{
	begin("");
	step(100, 5);
	ACTIVITY(&st, ACTIVITY_KERNEL, 110 * MS, 120 * MS, .name = 2, ON_DEVICE(1, 2));
	stage_tell(&st);
	stage_frame(&st, FRAME_PROC_END,
		    &(struct frame_proc_end){.proc = 0, .lost_events = 3, .time_ns = 130 * MS},
		    sizeof(struct frame_proc_end));
	const char *path = finish();
	CHECK_INT(activity_recording_read(path, ACTIVITY_ALL_PROCESSES, &reader, &seen, NULL), 0);
	CHECK(strstr(buf_str(&seen), "Kernel matmul 110-120\nend 0, lost 3\n"));
	buf_release(&seen);
}

static unsigned mode_with(mode_t mask)
{
	mode_t was = umask(mask);
	struct stat file;

	begin("");
	step(100, 5);
	CHECK_INT(stat(finish(), &file), 0);
	umask(was);
	return file.st_mode & 07777;
}

TEST(trace_recording, a_group_may_read_it)
{
	CHECK_INT(mode_with(022), 0640);
}

TEST(trace_recording, whose_mask_leaves_nothing_to_others_is_obeyed)
{
	CHECK_INT(mode_with(077), 0600);
}

/* --- stacks --- */

static void take_sample(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	const struct rec_frame *f = (const struct rec_frame *)r;
	const struct rec_sample *s = (const struct rec_sample *)r;
	size_t len;

	(void)tid;
	if (r->type == REC_FRAME)
		buf_addf(arg, "%u = %s after %u; ", f->id, rec_text(r, &len), f->caller);
	else if (r->type == REC_SAMPLE)
		buf_addf(arg, "%llu: %u, kept %u\n", (unsigned long long)(r->time_ns / MS),
			 s->frame, s->flags >> SAMPLE_KEPT_SHIFT);
	CHECK(r->type == REC_SAMPLE || r->type == REC_FRAME || r->type == REC_SAMPLED ||
	      r->type == REC_COUNTER || proc == 0);
}

static void span(uint64_t ms, uint8_t kind_, uint64_t name_)
{
	RECORD(&st.recs, REC_CALL, rec_call, ms * MS, .kind = kind_, .name = name_);
	stage_tell(&st);
}

/* Spans that the program has named need not be nested, and stacks always are. */
TEST(trace_recording, calls_that_overlap_are_stacks)
{
	static const struct stream_ops samples = {.record = take_sample};

	begin("PROFILE_WITH_STACK=true");
	step(100, 5);
	span(110, CALL_NOTE, 1);
	span(120, CALL_NOTE, 2);
	span(130, CALL_NOTE_END, 1);
	span(140, CALL_NOTE_END, 2);
	step(200, 6);
	step(300, 7);
	const char *path = finish();
	CHECK_INT(stream_file(path, &samples, &seen, NULL, NULL), 0);
	CHECK_STR(buf_str(&seen), "1 = launch after 0; 110: 1, kept 0\n"
				  "2 = matmul after 1; 120: 2, kept 1\n"
				  "3 = matmul after 0; 130: 3, kept 0\n"
				  "140: 0, kept 0\n");
	buf_release(&seen);
}
