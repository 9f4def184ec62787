/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Recordings whose frames are all whole, but one is missing, or there twice. */
#include "base/containers/buf.h"
#include "base/fs.h"
#include "memory/track/track.h"
#include "recorder/recording.h"
#include "records.h"
#include "test.h"
#include "tmpdir.h"

enum part {
	SESSION = 1,
	CUT = 2,
	PROC = 4,
	BASE_BEGIN = 8,
	BASE_END = 16,
	TWICE = 32,
	ENDED = 64, /* nobody lived at the cut */
	SAMPLE = 128, /* of a process that had ended before the cut */
	ALL = SESSION | CUT | PROC | BASE_BEGIN | BASE_END,
};

static struct recording_writer *out;
static struct buf words;
static unsigned allocations;

static void put(enum frame_type type, const void *payload, size_t bytes)
{
	CHECK_INT(recording_append(out, type, payload, bytes, NULL), 0);
}

static void put_batch(uint32_t proc, struct buf *recs, uint64_t counted, uint64_t in_batch)
{
	struct batch_count c = {.head = {BATCH_COUNT, sizeof(c), proc, 0},
				.records = counted,
				.in_batch = in_batch};
	struct buf batch = {0};

	if (recs->len)
		add_run(&batch, proc, 7, recs);
	if (counted)
		buf_add(&batch, &c, sizeof(c));
	put(FRAME_BATCH, batch.data, batch.len);
	buf_release(&batch);
	buf_clear(recs);
}

static void put_checkpoint(unsigned parts)
{
	struct buf recs = {0};

	if (parts & BASE_BEGIN)
		RECORD(&recs, REC_STATE, rec_state, 5, .kind = STATE_BEGIN);
	if (parts & BASE_END)
		RECORD(&recs, REC_STATE, rec_state, 5, .kind = STATE_END);
	put_batch(0, &recs, 0, 0);
	put_batch(0, &recs, 2, 2);
	buf_release(&recs);
}

static void add_word(void *arg, const char *text)
{
	(void)arg;
	buf_addf(&words, "%s\n", text);
}

static void count_row(void *arg, uint32_t proc, const struct row *row)
{
	(void)arg;
	(void)proc;
	allocations += row->event == ROW_MALLOC;
}

/* Writes and reads it. Is it complete? What is said is in `words`. */
static bool is_complete(unsigned parts, bool cut)
{
	const struct frame_cut c = {.events = 2, .ended_events = parts & ENDED ? 2 : 0, .cuts = 1};
	const struct frame_proc p = {.pid = 100, .exe = "/bin/job"};
	const struct frame_proc_end e = {.time_ns = 20, .records = cut ? 3 : 1};
	const char *path = tmpfile_path("damage.sonde");
	struct track *t = track_new(&(struct track_sink){.row = count_row});
	struct buf recs = {0};

	CHECK_INT(recording_create(&out, path, NULL), 0);
	if (cut)
		CHECK_INT(recording_set_cut(out, NULL), 0);
	if (parts & SESSION)
		put(FRAME_SESSION, "{}", 2);
	if (cut && parts & CUT)
		put(FRAME_CUT, &c, sizeof(c));
	if (parts & PROC)
		put(FRAME_PROC, &p, sizeof(p));
	if (cut)
		put_checkpoint(parts);
	for (int i = 0; i < (parts & TWICE ? 2 : 1); i++) {
		add_alloc(&recs, 10, 0x10, 4, POOL_HAL);
		put_batch(0, &recs, e.records, 1);
	}
	if (parts & SAMPLE) {
		RECORD(&recs, REC_USAGE, rec_usage, 11);
		put_batch(9, &recs, 0, 0);
	}
	put(FRAME_PROC_END, &e, sizeof(e));
	put(FRAME_END, NULL, 0);
	recording_close(out);
	buf_clear(&words);
	allocations = 0;
	CHECK_INT(track_file(t, path, NULL, NULL), 0);
	track_damage_words(t, add_word, NULL);
	bool complete = track_is_whole(t) && track_is_read(t) && track_loss_is_known(t);
	CHECK(complete == (!words.len || parts & TWICE));
	track_free(t);
	fs_unlink(path, NULL);
	buf_release(&recs);
	return complete;
}

TEST(track_damage, none)
{
	CHECK(is_complete(ALL, false));
	CHECK(is_complete(ALL, true));
	CHECK(is_complete((ALL & ~(BASE_BEGIN | BASE_END)) | ENDED, true));
	CHECK(is_complete(ALL | SAMPLE, true));
	buf_release(&words);
}

TEST(track_damage, repeated_batch)
{
	for (int cut = 0; cut < 2; cut++) {
		CHECK(is_complete(ALL | TWICE, cut));
		CHECK(strstr(buf_str(&words), "1 batch of events is in the recording twice"));
		CHECK(strstr(buf_str(&words), "was passed over"));
		CHECK_INT(allocations, cut ? 0 : 1); /* the checkpoint lacks what rows need */
	}
	buf_release(&words);
}

TEST(track_damage, no_session)
{
	CHECK(!is_complete(ALL & ~SESSION, false));
	CHECK(strstr(buf_str(&words), "does not say what was asked for"));
	buf_release(&words);
}

TEST(track_damage, no_process)
{
	CHECK(!is_complete(ALL & ~PROC, false));
	CHECK(strstr(buf_str(&words), "1 event is left out: the recording does not say"));
	buf_release(&words);
}

TEST(track_damage, no_cut)
{
	CHECK(!is_complete(ALL & ~CUT, true));
	CHECK(strstr(buf_str(&words), "The oldest part of the recording was dropped"));
	buf_release(&words);
}

TEST(track_damage, no_checkpoint)
{
	static const unsigned lacking[] = {BASE_BEGIN, BASE_END, BASE_BEGIN | BASE_END};

	for (unsigned i = 0; i < 3; i++) {
		CHECK(!is_complete(ALL & ~lacking[i], true));
		CHECK(strstr(buf_str(&words), "1 process lacks the blocks"));
	}
	buf_release(&words);
}
