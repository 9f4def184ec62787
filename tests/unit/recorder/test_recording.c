/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/recording.h"

#include "base/fs.h"
#include "base/mem.h"
#include "recorder/pack/pack_impl.h"
#include "test.h"
#include "tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <xxhash.h>
#include <zstd.h>

/* Three frames: compressed, stored as it is, empty. */
#define NFRAMES 3
static char big[3000];
static const char little[] = "{\"a\":1}";

static const void *payload_of(unsigned i, size_t *out_bytes)
{
	static const size_t bytes[NFRAMES] = {sizeof(big), sizeof(little), 0};
	static const void *const data[NFRAMES] = {big, little, ""};

	*out_bytes = bytes[i % NFRAMES];
	return data[i % NFRAMES];
}

static uint32_t type_of(unsigned i)
{
	static const uint32_t types[NFRAMES] = {FRAME_BATCH, FRAME_SESSION, FRAME_END};

	return types[i % NFRAMES];
}

static int append(struct recording_writer *w, unsigned i)
{
	size_t n;
	const void *p = payload_of(i, &n);

	return recording_append(w, type_of(i), p, n, NULL);
}

static const char *sample(void)
{
	const char *path = tmpfile_path("r.sonde");
	struct recording_writer *w;

	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i % 7);
	CHECK_INT(recording_create(&w, path, NULL), 0);
	for (unsigned i = 0; i < NFRAMES; i++)
		CHECK_INT(append(w, i), 0);
	recording_close(w);
	return path;
}

static void read_all(const char *path, struct buf *out)
{
	buf_clear(out);
	CHECK_INT(fs_read_file(path, 1 << 30, out, NULL), 0);
}

static void write_all(const char *path, const void *data, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0 && write(fd, data, n) == (ssize_t)n);
	close(fd);
}

/* How many whole frames there are; each must be the one that was written. */
static unsigned count(const char *path, bool *out_torn)
{
	struct recording_reader *r;
	const char *got;
	uint32_t type;
	size_t bytes, want_bytes;
	unsigned n = 0;

	CHECK_INT(recording_open(&r, path, NULL), 0);
	while (recording_next(r, &type, &got, &bytes, NULL) == 1) {
		const void *want = payload_of(n, &want_bytes);
		CHECK_INT(type, type_of(n));
		CHECK_INT(bytes, want_bytes);
		CHECK(!memcmp(got, want, bytes));
		n++;
	}
	*out_torn = recording_torn(r);
	CHECK(recording_offset(r) <= recording_size(r));
	recording_reader_free(r);
	return n;
}

TEST(recording, writes_and_reads)
{
	const char *path = sample();
	struct stat st;
	bool torn;

	CHECK_INT(count(path, &torn), NFRAMES);
	CHECK(!torn);
	CHECK(stat(path, &st) == 0);
	CHECK_INT(st.st_mode & 0777, 0600);
	CHECK(st.st_size < 1000); /* the big one was compressed */
}

TEST(recording, goes_on_behind_what_is_there)
{
	const char *path = sample();
	struct recording_writer *w;
	struct stat st;
	bool torn;

	CHECK(stat(path, &st) == 0);
	CHECK_INT(recording_create(&w, path, NULL), 0);
	CHECK_INT(recording_bytes(w), st.st_size);
	CHECK_INT(append(w, 0), 0);
	recording_close(w);
	CHECK_INT(count(path, &torn), NFRAMES + 1);
	CHECK(!torn);
}

static void frame_ends(const char *path, uint64_t ends[NFRAMES + 1])
{
	struct recording_reader *r;
	const char *p;
	uint32_t type;
	size_t bytes;

	ends[0] = sizeof(struct recording_head);
	CHECK_INT(recording_open(&r, path, NULL), 0);
	for (unsigned i = 1; recording_next(r, &type, &p, &bytes, NULL) == 1; i++)
		ends[i] = recording_offset(r);
	recording_reader_free(r);
}

/* Cut at every byte: whole frames are read, the rest is torn, and a writer goes on there. */
TEST(recording, torn_at_every_byte)
{
	const char *path = sample(), *cut = tmpfile_path("cut");
	struct buf all = {0};
	struct recording_reader *r;
	uint64_t ends[NFRAMES + 1];

	read_all(path, &all);
	frame_ends(path, ends);
	for (size_t n = 0; n <= all.len; n++) {
		struct recording_writer *w;
		struct err err = {0};
		bool torn;
		unsigned whole = 0;

		write_all(cut, all.data, n);
		if (n < sizeof(struct recording_head)) {
			CHECK_INT(recording_open(&r, cut, &err), -EINVAL);
			CHECK(strstr(err.text, "not a sonde recording"));
		} else {
			while (whole < NFRAMES && ends[whole + 1] <= n)
				whole++;
			CHECK_INT(count(cut, &torn), whole);
			CHECK_INT(torn, n != ends[whole]);
		}
		CHECK_INT(recording_create(&w, cut, &err), 0);
		CHECK_INT(recording_bytes(w), ends[whole]);
		CHECK_INT(append(w, whole), 0);
		recording_close(w);
		CHECK_INT(count(cut, &torn), whole + 1);
		CHECK(!torn);
	}
	buf_release(&all);
}

/* The frames that were read: a bit for each of those that were written. */
static unsigned frames_read(const char *path, bool *out_torn, uint64_t *out_skipped)
{
	struct recording_reader *r;
	const char *got;
	uint32_t type;
	size_t bytes;
	unsigned seen = 0;

	*out_skipped = 0;
	CHECK_INT(recording_open(&r, path, NULL), 0);
	while (recording_next(r, &type, &got, &bytes, NULL) == 1) {
		size_t want_bytes;
		unsigned i = 0;
		while (i < NFRAMES && type_of(i) != type)
			i++;
		CHECK(i < NFRAMES);
		const void *want = payload_of(i, &want_bytes);
		CHECK(bytes == want_bytes && !memcmp(got, want, bytes));
		seen |= 1u << i;
		*out_skipped += recording_skipped(r);
	}
	*out_torn = recording_torn(r);
	recording_reader_free(r);
	return seen;
}

static unsigned frame_around(const uint64_t *ends, uint64_t byte)
{
	unsigned i = 0;

	while (ends[i + 1] <= byte)
		i++;
	return i;
}

static bool head_is_known(const char *file)
{
	const struct recording_head *h = (const struct recording_head *)file;

	return !memcmp(h->magic, RECORDING_MAGIC, sizeof(h->magic)) &&
	       h->version >= RECORDING_OLDEST && h->version <= RECORDING_VERSION &&
	       h->rec_version == 1;
}

/*
 * One flipped bit anywhere: all other frames are read, and none that was not written. One that turns
 * the version into another that we know changes nothing.
 */
TEST(recording, every_bit_flipped)
{
	const char *path = sample(), *bad = tmpfile_path("bad");
	struct buf all = {0};
	uint64_t ends[NFRAMES + 1];

	read_all(path, &all);
	frame_ends(path, ends);
	for (size_t bit = 0; bit < all.len * 8; bit++) {
		struct recording_reader *r;
		bool torn;

		all.data[bit / 8] ^= (char)(1u << bit % 8);
		write_all(bad, all.data, all.len);
		if (!head_is_known(all.data)) {
			CHECK(recording_open(&r, bad, NULL) < 0);
		} else if (bit / 8 < sizeof(struct recording_head)) {
			CHECK_INT(count(bad, &torn), NFRAMES);
		} else {
			uint64_t skipped;
			unsigned hit = frame_around(ends, bit / 8);
			unsigned seen = frames_read(bad, &torn, &skipped);
			CHECK_INT(seen, ((1u << NFRAMES) - 1) & ~(1u << hit));
			CHECK_INT(torn, hit == NFRAMES - 1);
			CHECK_INT(skipped, torn ? 0 : ends[hit + 1] - ends[hit]);
		}
		all.data[bit / 8] ^= (char)(1u << bit % 8);
	}
	buf_release(&all);
}

/* The sizes of a frame are covered by its checksum: the packed bytes are never told as they are. */
TEST(recording, raw_size_is_checked)
{
	const char *path = tmpfile_path("raw"), *bad = tmpfile_path("bad");
	struct recording_writer *w;
	struct buf all = {0};
	bool torn;

	sample();
	CHECK_INT(recording_create(&w, path, NULL), 0);
	CHECK_INT(append(w, 0), 0);
	recording_close(w);
	read_all(path, &all);
	struct frame *f = (struct frame *)(all.data + sizeof(struct recording_head));
	CHECK(f->stored_bytes < f->raw_bytes);
	f->raw_bytes = f->stored_bytes;
	write_all(bad, all.data, all.len);
	CHECK_INT(count(bad, &torn), 0);
	CHECK(torn);
	buf_release(&all);
}

/* A file of nothing but beginnings of large frames costs a few times its size, not its square. */
TEST(recording, hostile_beginnings)
{
	const char *path = tmpfile_path("beginnings");
	struct recording_head h = {.version = RECORDING_VERSION, .rec_version = 1};
	struct frame f = {FRAME_MAGIC, FRAME_BATCH, 1u << 20, 1u << 20, 1};
	struct buf all = {0};
	uint64_t skipped;
	bool torn;

	memcpy(h.magic, RECORDING_MAGIC, 8);
	buf_add(&all, &h, sizeof(h));
	while (all.len < 4u << 20)
		buf_add(&all, &f, sizeof(f));
	write_all(path, all.data, all.len);
	CHECK_INT(frames_read(path, &torn, &skipped), 0);
	CHECK(torn);
	buf_release(&all);
}

/* Adds a frame of a few bytes that is whole, expands to a MiB, and is none after all. */
static void add_bomb(struct buf *out, enum frame_type type)
{
	enum { BYTES = 1 << 20 };
	/* a MiB, then no column but one of that size */
	static const char head[] = "\200\200\100\0\0\0\0\0\0\0\0\0\0\0\0\200\200\100";
	char *zeros = xcalloc(1, BYTES), small[4096];
	struct pack_head v2 = {.batch_bytes = BYTES};
	struct frame f = {.magic = FRAME_MAGIC, .type = type};
	size_t bound = ZSTD_compressBound(BYTES), at = 0;
	char *bomb = xmalloc(bound);
	size_t n = ZSTD_compress(bomb, bound, zeros, BYTES, 1);

	CHECK(!ZSTD_isError(n) && n < 128);
	if (type == FRAME_PACKED) {
		at = sizeof(head) - 1;
		memcpy(small, head, at);
		small[at++] = (char)n;
	} else if (type == FRAME_PACKED_V2) {
		v2.column[COLUMNS_V2 - 1].raw = BYTES;
		v2.column[COLUMNS_V2 - 1].stored = (uint32_t)n;
		at = offsetof(struct pack_head, column[COLUMNS_V2]);
		memcpy(small, &v2, at);
	}
	memcpy(small + at, bomb, n);
	f.stored_bytes = (uint32_t)(n + at);
	f.raw_bytes = type == FRAME_BATCH ? BYTES + 1 : f.stored_bytes;
	f.check = XXH64(small, f.stored_bytes, (uint64_t)f.raw_bytes << 32 | f.type);
	buf_add(out, &f, sizeof(f));
	buf_add(out, small, f.stored_bytes);
	free(zeros);
	free(bomb);
}

/* What the search expands counts, too: behind some of them it goes on, behind many it gives up. */
TEST(recording, bombs_end_the_search)
{
	const char *path = tmpfile_path("bombs");
	struct buf whole = {0}, all = {0};
	uint64_t skipped;
	bool torn;

	read_all(sample(), &whole);
	for (unsigned i = 0; i < 6; i++) {
		static const enum frame_type types[] = {FRAME_BATCH, FRAME_PACKED_V2, FRAME_PACKED};
		bool many = i & 1;

		buf_clear(&all);
		buf_add(&all, whole.data, sizeof(struct recording_head));
		for (unsigned n = 0; n < (many ? 24 : 4); n++)
			add_bomb(&all, types[i / 2]);
		buf_add(&all, whole.data + sizeof(struct recording_head),
			whole.len - sizeof(struct recording_head));
		write_all(path, all.data, all.len);
		CHECK_INT(frames_read(path, &torn, &skipped), many ? 0 : (1 << NFRAMES) - 1);
		CHECK_INT(torn, many);
	}
	buf_release(&whole);
	buf_release(&all);
}

static void limit_file_size(rlim_t bytes)
{
	struct rlimit l;

	CHECK(getrlimit(RLIMIT_FSIZE, &l) == 0);
	l.rlim_cur = bytes;
	CHECK(setrlimit(RLIMIT_FSIZE, &l) == 0);
}

/* A full disk: the frame that does not fit leaves no trace, and later ones are welcome again. */
TEST(recording, full_disk_and_after)
{
	const char *path = sample();
	struct recording_writer *w;
	struct stat before, st;
	struct err err = {0};
	bool torn;

	signal(SIGXFSZ, SIG_IGN);
	CHECK(stat(path, &before) == 0);
	CHECK_INT(recording_create(&w, path, NULL), 0);
	for (rlim_t room = 0; room < 40; room++) {
		limit_file_size((rlim_t)before.st_size + room);
		CHECK_INT(recording_append(w, FRAME_BATCH, big, sizeof(big), &err), -EFBIG);
		CHECK(strstr(err.text, "cannot write to the recording"));
		CHECK(stat(path, &st) == 0);
		CHECK_INT(st.st_size, before.st_size);
	}
	limit_file_size(RLIM_INFINITY);
	CHECK_INT(append(w, 0), 0);
	CHECK_INT(append(w, 1), 0);
	recording_close(w);
	CHECK_INT(count(path, &torn), NFRAMES + 2);
	CHECK(!torn);
}

TEST(recording, full_disk_at_the_head)
{
	struct recording_writer *w = NULL;
	struct err err = {0};
	const char *path = tmpfile_path("head");

	signal(SIGXFSZ, SIG_IGN);
	limit_file_size(10);
	CHECK(recording_create(&w, path, &err) < 0);
	CHECK(strstr(err.text, path));
	CHECK(!w);
	limit_file_size(RLIM_INFINITY);
	CHECK_INT(recording_create(&w, path, NULL), 0); /* what it left is no obstacle */
	recording_close(w);
}

/* A reader of a file that grows sees what was there when it came, and calls it whole. */
TEST(recording, reader_of_a_growing_file)
{
	const char *path = sample();
	struct recording_writer *w;
	struct recording_reader *r;
	const char *p;
	uint32_t type;
	size_t bytes;
	unsigned n = 0;

	CHECK_INT(recording_open(&r, path, NULL), 0);
	CHECK_INT(recording_create(&w, path, NULL), 0);
	CHECK_INT(append(w, 0), 0);
	recording_close(w);
	while (recording_next(r, &type, &p, &bytes, NULL) == 1)
		n++;
	CHECK_INT(n, NFRAMES);
	CHECK(!recording_torn(r));
	CHECK_INT(recording_offset(r), recording_size(r));
	recording_reader_free(r);
}

TEST(recording, refuses_what_is_none)
{
	struct recording_writer *w = NULL;
	struct recording_reader *r = NULL;
	struct recording_head h = {.version = RECORDING_VERSION + 1};
	struct err err = {0};
	const char *path = tmpfile_path("other");
	struct stat st;

	CHECK_INT(recording_open(&r, tmpfile_path("none"), &err), -ENOENT);
	CHECK(recording_open(&r, tmpdir(), &err) < 0);
	write_all(path, "a text of somebody else, longer than a head is\n", 46);
	CHECK_INT(recording_open(&r, path, &err), -EINVAL);
	CHECK_INT(recording_create(&w, path, &err), -EINVAL);
	CHECK(stat(path, &st) == 0 && st.st_size == 46);
	memcpy(h.magic, RECORDING_MAGIC, 8);
	write_all(path, &h, sizeof(h));
	CHECK_INT(recording_open(&r, path, &err), -EPROTO);
	CHECK(strstr(err.text, "5.0"));
	CHECK(!r && !w);
	CHECK(symlink(sample(), tmpfile_path("link")) == 0);
	CHECK(recording_create(&w, tmpfile_path("link"), &err) < 0);
}

/* Frames that claim more than there is. */
TEST(recording, hostile_sizes)
{
	static const struct {
		uint32_t stored, raw;
	} sizes[] = {{100, 100}, {UINT32_MAX, UINT32_MAX}, {8, FRAME_MAX_BYTES + 1},
		     {16, 8},	 {8, FRAME_MAX_BYTES},	   {0, 100},
		     {9, 9}};
	const char *path = tmpfile_path("hostile");

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct {
			struct recording_head h;
			struct frame f;
			char payload[8];
		} file = {.h = {.version = RECORDING_VERSION, .rec_version = 1},
			  .f = {FRAME_MAGIC, FRAME_BATCH, sizes[i].stored, sizes[i].raw, 0}};
		bool torn;
		memcpy(file.h.magic, RECORDING_MAGIC, 8);
		write_all(path, &file, sizeof(file));
		CHECK_INT(count(path, &torn), 0);
		CHECK(torn);
	}
}

TEST(recording, is_followed_while_it_is_written)
{
	const char *path = sample();
	struct recording_reader *r;
	struct recording_writer *w;
	const char *payload;
	uint32_t type;
	size_t n;
	struct stat st;

	CHECK_INT(recording_open(&r, path, NULL), 0);
	CHECK_INT(recording_refresh(r, path, NULL), 0);
	for (unsigned i = 0; i < NFRAMES; i++)
		CHECK_INT(recording_next(r, &type, &payload, &n, NULL), 1);
	CHECK_INT(recording_next(r, &type, &payload, &n, NULL), 0);
	CHECK_INT(recording_refresh(r, path, NULL), 0);

	/* one more, byte by byte: it is there when it is whole, and nothing is skipped */
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(recording_create(&w, path, NULL), 0);
	CHECK_INT(append(w, 1), 0);
	uint64_t whole = recording_bytes(w);
	recording_close(w);
	struct buf frame = {0};
	int fd = open(path, O_RDWR);
	size_t bytes = (size_t)(whole - (uint64_t)st.st_size);
	CHECK_INT(pread(fd, buf_room(&frame, bytes), bytes, st.st_size), (ssize_t)bytes);
	CHECK_INT(ftruncate(fd, st.st_size), 0);
	for (size_t i = 0; i < bytes; i++) {
		CHECK_INT(recording_next(r, &type, &payload, &n, NULL), 0);
		CHECK_INT(pwrite(fd, frame.data + i, 1, st.st_size + (off_t)i), 1);
		CHECK_INT(recording_refresh(r, path, NULL), 1);
	}
	CHECK_INT(recording_next(r, &type, &payload, &n, NULL), 1);
	CHECK_INT(type, FRAME_SESSION);
	CHECK_INT(recording_skipped(r), 0);
	CHECK(!recording_torn(r));

	/* what is no frame is damage, as ever: the next whole one counts */
	CHECK_INT(pwrite(fd, "rubbish that is longer than a head", 34, (off_t)whole), 34);
	CHECK_INT(pwrite(fd, frame.data, bytes, (off_t)whole + 34), (ssize_t)bytes);
	CHECK_INT(recording_refresh(r, path, NULL), 1);
	CHECK_INT(recording_next(r, &type, &payload, &n, NULL), 1);
	CHECK_INT(recording_skipped(r), 34);

	/* shorter, or another file */
	CHECK_INT(ftruncate(fd, st.st_size), 0);
	CHECK_INT(recording_refresh(r, path, NULL), -ESTALE);
	close(fd);
	buf_release(&frame);
	recording_reader_free(r);
	CHECK_INT(recording_open(&r, path, NULL), 0);
	CHECK_INT(unlink(path), 0);
	CHECK_INT(recording_refresh(r, path, NULL), -ENOENT);
	CHECK_STR(sample(), path);
	CHECK_INT(recording_refresh(r, path, NULL), -ESTALE);
	recording_reader_free(r);
}
