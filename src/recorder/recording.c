/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/recording.h"

#include "base/fs.h"
#include "base/mem.h"
#include "recorder/pack/pack.h"
#include "wire/control_page.h"
#include "wire/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#define ZSTD_LEVEL 1
#define COMPRESS_FROM 512 /* smaller payloads are not worth it */
/* Disk space behind the last frame, kept for the frames that say how it ended and what is missing.
 */
#define TAIL_BYTES (256u << 10)
#define RESERVE_STEP (4u << 20)
#define RESERVE_SHARE 64 /* of a recording with a limit */
#define RESERVE_MIN (16u << 10)
#define COPY_BYTES (1u << 20)
#define SEARCH_BYTES (1u << 20)
#define SEARCH_SHARE 4
#define MAX_SESSIONS_BYTES (4u << 20) /* of all session frames of a file; a real one has some KiB */
#define SEARCH_BASE (16u << 20) /* some file systems say late how much they store */

struct recording_writer {
	int fd;
	uint64_t offset; /* end of the last whole frame */
	uint64_t
		reserved; /* the file has disk space up to here; UINT64_MAX: no space can be reserved */
	uint32_t version; /* of the file */
	uint32_t step; /* bytes that are reserved at once … */
	uint32_t tail; /* … and behind the last frame */
	ZSTD_CCtx *zstd;
	struct pack *pack;
	struct buf frame, packed;
};

struct recording_reader {
	int fd;
	uint64_t offset; /* end of the last whole frame */
	uint64_t size;
	uint64_t skipped; /* damaged bytes before that frame */
	uint64_t tried; /* bytes, also expanded ones, that looked like a frame, and were none */
	uint64_t may_try;
	uint64_t sessions; /* bytes of the session frames so far */
	bool torn;
	bool grows; /* somebody writes it */
	struct buf stored;
	struct buf raw;
	struct pack *pack;
	size_t bytes; /* of the payload that was read last */
	uint32_t version;
	struct buf window; /* of the search for the next whole frame */
};

static uint64_t check_of(const struct frame *f, const char *stored)
{
	return XXH64(stored, f->stored_bytes, (uint64_t)f->raw_bytes << 32 | f->type);
}

/* Goes to the end of the last whole frame of a file that exists. */
static int writer_resume(struct recording_writer *w, const char *path, struct err *err)
{
	struct recording_reader *r;
	uint32_t type;
	const char *payload;
	size_t n;

	int ret = recording_open(&r, path, err);
	if (ret < 0)
		return ret;
	while ((ret = recording_next(r, &type, &payload, &n, err)) > 0)
		;
	w->offset = w->reserved = r->offset;
	w->version = r->version;
	recording_reader_free(r);
	if (ret == 0 && ftruncate(w->fd, (off_t)w->offset) < 0)
		ret = err_sys(err, -errno, "cannot cut '%s'", path);
	return ret;
}

static int open_writer(struct recording_writer **out, const char *path, int flags, mode_t mode,
		       struct err *err)
{
	struct recording_head head = {.version = RECORDING_PLAIN, .rec_version = REC_VERSION};
	struct recording_writer *w = xcalloc(1, sizeof(*w));
	struct stat st;

	memcpy(head.magic, RECORDING_MAGIC, sizeof(head.magic));
	w->version = RECORDING_PLAIN;
	w->step = RESERVE_STEP;
	w->tail = TAIL_BYTES;
	w->pack = pack_new();
	w->fd = fs_open(path, O_RDWR | O_CREAT | flags, mode, err);
	int r = w->fd < 0 ? w->fd : 0;
	if (r == 0 && fstat(w->fd, &st) < 0)
		r = err_sys(err, -errno, "cannot stat '%s'", path);
	if (r == 0 && st.st_size >= (off_t)sizeof(head)) {
		r = writer_resume(w, path, err);
	} else if (r == 0) {
		r = fs_write_all(w->fd, &head, sizeof(head), 0, NULL);
		if (r < 0)
			err_sys(err, r, "cannot write '%s'", path);
		w->offset = w->reserved = sizeof(head);
	}
	w->zstd = ZSTD_createCCtx();
	if (r < 0) {
		recording_close(w);
		return r;
	}
	*out = w;
	return 0;
}

int recording_create(struct recording_writer **out, const char *path, struct err *err)
{
	return open_writer(out, path, 0, 0600, err);
}

int recording_create_new(struct recording_writer **out, const char *path, mode_t mode,
			 struct err *err)
{
	return open_writer(out, path, O_EXCL, mode, err);
}

/* The payload as it goes into the file, behind room for its frame. Returns the stored size. */
static size_t store_payload(struct recording_writer *w, const void *payload, size_t bytes)
{
	size_t cap = ZSTD_compressBound(bytes);

	buf_clear(&w->frame);
	char *at = buf_room(&w->frame, sizeof(struct frame) + (cap > bytes ? cap : bytes));
	if (bytes >= COMPRESS_FROM && w->zstd && payload != w->packed.data) {
		size_t n = ZSTD_compressCCtx(w->zstd, at + sizeof(struct frame), cap, payload,
					     bytes, ZSTD_LEVEL);
		if (!ZSTD_isError(n) && n < bytes)
			return n;
	}
	if (bytes)
		memcpy(at + sizeof(struct frame), payload, bytes);
	return bytes;
}

/* Space for `bytes` more and the tail behind them. */
static int reserve_space(struct recording_writer *w, size_t bytes)
{
	uint64_t need = w->offset + bytes + w->tail;
	uint64_t steps[] = {need + w->step, need};

	for (int i = 0; i < 2 && need > w->reserved; i++) {
		if (fallocate(w->fd, FALLOC_FL_KEEP_SIZE, (off_t)w->reserved,
			      (off_t)(steps[i] - w->reserved)) == 0)
			w->reserved = steps[i];
		else if (errno != ENOSPC && errno != EDQUOT && errno != EINTR)
			w->reserved = UINT64_MAX; /* not on this file system */
	}
	return need > w->reserved ? -ENOSPC : 0;
}

int recording_append(struct recording_writer *w, enum frame_type type, const void *payload,
		     size_t bytes, struct err *err)
{
	BUG_ON(bytes > FRAME_MAX_BYTES);
	bool batch = type == FRAME_BATCH;
	buf_clear(&w->packed);
	if (batch && bytes >= COMPRESS_FROM && w->version >= RECORDING_PACKED &&
	    pack_batch(w->pack, payload, bytes, &w->packed)) {
		type = FRAME_PACKED;
		payload = w->packed.data;
		bytes = w->packed.len;
	}
	size_t stored = store_payload(w, payload, bytes);
	char *at = w->frame.data;
	struct frame f = {
		.magic = FRAME_MAGIC,
		.type = type,
		.stored_bytes = (uint32_t)stored,
		.raw_bytes = (uint32_t)bytes,
	};
	f.check = check_of(&f, at + sizeof(f));
	memcpy(at, &f, sizeof(f));
	int r = batch ? reserve_space(w, sizeof(f) + stored) : 0;
	if (r < 0)
		return err_sys(err, r, "cannot write to the recording");
	r = fs_write_all(w->fd, at, sizeof(f) + stored, (int64_t)w->offset, NULL);
	if (r < 0) {
		(void)!ftruncate(w->fd, (off_t)w->offset);
		if (w->reserved != UINT64_MAX)
			w->reserved = w->offset;
		return err_sys(err, r, "cannot write to the recording");
	}
	w->offset += sizeof(f) + stored;
	return 0;
}

void recording_expect(struct recording_writer *w, uint64_t max_bytes)
{
	uint64_t share = max_bytes / RESERVE_SHARE;
	uint32_t most = share < RESERVE_MIN ? RESERVE_MIN : (uint32_t)share;

	if (share < w->step)
		w->step = most;
	if (share < w->tail)
		w->tail = most;
}

int recording_set_cut(struct recording_writer *w, struct err *err)
{
	const uint32_t version = RECORDING_VERSION;
	int r = fs_write_all(w->fd, &version, sizeof(version),
			     offsetof(struct recording_head, version), NULL);

	if (r < 0)
		return err_sys(err, r, "cannot write to the recording");
	w->version = version;
	return 0;
}

int recording_copy(struct recording_writer *w, int from, uint64_t begin, uint64_t end,
		   struct err *err)
{
	uint64_t to = w->offset;
	int r = 0;

	buf_clear(&w->frame);
	char *piece = buf_room(&w->frame, COPY_BYTES);
	while (begin < end && r == 0) {
		size_t want = end - begin < COPY_BYTES ? (size_t)(end - begin) : COPY_BYTES;
		ssize_t n = fs_read_at(from, piece, want, begin);
		r = n < 0 ? (int)n : n < (ssize_t)want ? -EIO : 0;
		if (r == 0)
			r = fs_write_all(w->fd, piece, want, (int64_t)to, NULL);
		begin += want;
		to += want;
	}
	if (r < 0) {
		(void)!ftruncate(w->fd, (off_t)w->offset);
		return err_sys(err, r, "cannot copy the recording");
	}
	w->offset = to;
	if (w->reserved < to)
		w->reserved = to;
	return 0;
}

int recording_sync(struct recording_writer *w, struct err *err)
{
	return fdatasync(w->fd) < 0 ? err_sys(err, -errno, "cannot write the recording") : 0;
}

int recording_replace(struct recording_writer *w, const char *path, const char *next, uint64_t done,
		      struct err *err)
{
	struct recording_writer to = {.fd = fs_open(next, O_RDWR, 0, err)};
	struct stat st;

	if (to.fd < 0)
		return to.fd;
	int r = fstat(to.fd, &st) < 0 ? err_sys(err, -errno, "cannot stat '%s'", next) : 0;
	if (r == 0) {
		to.offset = to.reserved = (uint64_t)st.st_size;
		r = recording_copy(&to, w->fd, done, w->offset, err);
	}
	if (r == 0)
		r = fs_rename(next, path, err);
	buf_release(&to.frame);
	if (r < 0) {
		close(to.fd);
		return r;
	}
	close(w->fd);
	w->fd = to.fd;
	w->offset = to.offset;
	if (w->reserved != UINT64_MAX)
		w->reserved = to.offset;
	w->version = RECORDING_VERSION;
	return 0;
}

bool recording_is_removed(const struct recording_writer *w)
{
	struct stat st;

	return fstat(w->fd, &st) == 0 && !st.st_nlink;
}

uint64_t recording_bytes(const struct recording_writer *w)
{
	return w->offset;
}

void recording_close(struct recording_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0) {
		/* The tail goes back to the disk; a file that we could not read stays as it is. */
		if (w->reserved > w->offset && w->reserved != UINT64_MAX)
			(void)!ftruncate(w->fd, (off_t)w->offset);
		close(w->fd);
	}
	ZSTD_freeCCtx(w->zstd);
	pack_free(w->pack);
	buf_release(&w->frame);
	buf_release(&w->packed);
	free(w);
}

static void allow_search(struct recording_reader *r, const struct stat *st)
{
	uint64_t stored = (uint64_t)st->st_blocks * 512; /* a sparse file has less */

	r->may_try = SEARCH_BASE + SEARCH_SHARE * (stored < r->size ? stored : r->size);
}

int recording_open(struct recording_reader **out, const char *path, struct err *err)
{
	struct recording_head head;
	struct recording_reader *r = xcalloc(1, sizeof(*r));
	struct stat st;
	int ret = 0;

	r->fd = fs_open(path, O_RDONLY, 0, err);
	if (r->fd < 0)
		ret = r->fd;
	else if (fstat(r->fd, &st) < 0)
		ret = err_sys(err, -errno, "cannot stat '%s'", path);
	else if (!S_ISREG(st.st_mode))
		ret = err_set(err, -EINVAL, "'%s' is not a regular file", path);
	else if (fs_read_at(r->fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
		 memcmp(head.magic, RECORDING_MAGIC, sizeof(head.magic)) != 0)
		ret = err_set(err, -EINVAL, "'%s' is not a sonde recording", path);
	else if (head.version < RECORDING_OLDEST || head.version > RECORDING_VERSION ||
		 head.rec_version != REC_VERSION)
		ret = err_set(err, -EPROTO,
			      "'%s' is of format %u.%u; this program reads %u.%u to %u.%u: use the "
			      "version of sonde that recorded it",
			      path, head.version, head.rec_version, RECORDING_OLDEST, REC_VERSION,
			      RECORDING_VERSION, REC_VERSION);
	if (ret < 0) {
		recording_reader_free(r);
		return ret;
	}
	r->version = head.version;
	r->pack = pack_new();
	r->offset = sizeof(head);
	r->size = (uint64_t)st.st_size;
	allow_search(r, &st);
	*out = r;
	return 0;
}

int recording_refresh(struct recording_reader *r, const char *path, struct err *err)
{
	struct stat now, ours;

	r->grows = true;
	if (stat(path, &now) < 0 || fstat(r->fd, &ours) < 0)
		return err_sys(err, -errno, "cannot stat '%s'", path);
	if (now.st_ino != ours.st_ino || now.st_dev != ours.st_dev ||
	    (uint64_t)ours.st_size < r->offset)
		return err_set(err, -ESTALE, "'%s' was replaced", path);
	bool more = (uint64_t)ours.st_size != r->size;
	r->size = (uint64_t)ours.st_size;
	allow_search(r, &ours);
	return more;
}

static bool frame_is_sane(const struct frame *f, uint64_t at, const struct recording_reader *r)
{
	if (f->magic != FRAME_MAGIC || f->raw_bytes > FRAME_MAX_BYTES)
		return false;
	if (f->stored_bytes > f->raw_bytes)
		return false;
	return at + sizeof(*f) + f->stored_bytes <= r->size;
}

/* A frame is expanded only if somebody can use it: small ones may say that they are large. */
static bool is_for_us(const struct frame *f)
{
	return f->type == FRAME_SESSION || f->type == FRAME_PROC || f->type == FRAME_BATCH ||
	       f->type == FRAME_PROC_END || f->type == FRAME_PACKED_V2 || f->type == FRAME_PACKED ||
	       f->type == FRAME_CUT;
}

/* Text that is expanded and parsed takes far longer than anything else of that size. */
static bool take_session(struct recording_reader *r, const struct frame *f)
{
	if (f->type == FRAME_SESSION)
		r->sessions += f->raw_bytes;
	return r->sessions <= MAX_SESSIONS_BYTES;
}

/* 1: payload in r->raw or r->stored; 0: damaged, after r->bytes were expanded. */
static int unpack_frame(struct recording_reader *r, const struct frame *f, const char **out_payload)
{
	if (check_of(f, r->stored.data) != f->check)
		return 0;
	*out_payload = r->stored.data;
	if (!is_for_us(f))
		return 1;
	if (!take_session(r, f))
		return 0;
	if (f->type == FRAME_PACKED)
		return pack_expand(r->pack, r->stored.data, f->stored_bytes, out_payload,
				   &r->bytes) == 0;
	if (f->type == FRAME_PACKED_V2)
		return pack_expand_v2(r->pack, r->stored.data, f->stored_bytes, out_payload,
				      &r->bytes) == 0;
	r->bytes = f->raw_bytes;
	if (f->stored_bytes == f->raw_bytes)
		return 1;
	buf_clear(&r->raw);
	char *raw = buf_room(&r->raw, f->raw_bytes);
	size_t n = ZSTD_decompress(raw, f->raw_bytes, r->stored.data, f->stored_bytes);
	*out_payload = raw;
	return !ZSTD_isError(n) && n == f->raw_bytes;
}

/* 1: there is a whole frame, and r->offset behind it; 0: there is none. */
static int read_frame(struct recording_reader *r, uint64_t at, struct frame *f,
		      const char **out_payload, struct err *err)
{
	ssize_t n = fs_read_at(r->fd, f, sizeof(*f), at);

	if (n < 0)
		return err_sys(err, (int)n, "cannot read the recording");
	if (n < (ssize_t)sizeof(*f) || !frame_is_sane(f, at, r))
		return 0;
	buf_clear(&r->stored);
	n = fs_read_at(r->fd, buf_room(&r->stored, f->stored_bytes + 1u), f->stored_bytes,
		       at + sizeof(*f));
	if (n < 0)
		return err_sys(err, (int)n, "cannot read the recording");
	r->bytes = 0;
	if (n != (ssize_t)f->stored_bytes || !unpack_frame(r, f, out_payload)) {
		r->tried += f->stored_bytes + r->bytes;
		return 0;
	}
	r->offset = at + sizeof(*f) + f->stored_bytes;
	return 1;
}

/* Of a file that grows: is what is behind the last whole frame the beginning of one? */
static bool is_incomplete(const struct recording_reader *r, uint64_t at)
{
	struct frame f;

	if (!r->grows || r->size - at < sizeof(f))
		return r->grows;
	return fs_read_at(r->fd, &f, sizeof(f), at) == (ssize_t)sizeof(f) &&
	       f.magic == FRAME_MAGIC && f.raw_bytes <= FRAME_MAX_BYTES &&
	       f.stored_bytes <= f.raw_bytes && at + sizeof(f) + f.stored_bytes > r->size;
}

/*
 * The next whole frame behind a damaged one. A file that was made to look like the beginnings of
 * many frames, or of frames that expand to much and are none, costs a few times its size.
 */
static int search_frame(struct recording_reader *r, uint64_t at, struct frame *f,
			const char **out_payload, struct err *err)
{
	const uint32_t magic = FRAME_MAGIC;

	while (at + sizeof(*f) <= r->size) {
		off_t data = lseek(r->fd, (off_t)at, SEEK_DATA); /* holes hold nothing */
		if (data > (off_t)at)
			at = (uint64_t)data;
		else if (data < 0 && errno == ENXIO)
			return 0;
		buf_clear(&r->window);
		char *window = buf_room(&r->window, SEARCH_BYTES);
		ssize_t n = fs_read_at(r->fd, window, SEARCH_BYTES, at);
		if (n < (ssize_t)sizeof(magic))
			return n < 0 ? err_sys(err, (int)n, "cannot read the recording") : 0;
		const char *hit = window, *end = window + n;
		while ((hit = memmem(hit, (size_t)(end - hit), &magic, sizeof(magic)))) {
			int found =
				read_frame(r, at + (uint64_t)(hit - window), f, out_payload, err);
			if (found || r->tried > r->may_try)
				return found;
			hit++;
		}
		at += (uint64_t)n - sizeof(magic) + 1;
	}
	return 0;
}

int recording_next(struct recording_reader *r, uint32_t *out_type, const char **out_payload,
		   size_t *out_bytes, struct err *err)
{
	uint64_t begin = r->offset;
	struct frame f;

	r->skipped = 0;
	r->torn = false;
	if (begin >= r->size) /* what was added since it was opened is not ours */
		return 0;
	int ret = read_frame(r, begin, &f, out_payload, err);
	if (ret == 0 && is_incomplete(r, begin)) {
		r->torn = true;
		return 0;
	}
	if (ret == 0) {
		ret = search_frame(r, begin + 1, &f, out_payload, err);
		if (ret > 0)
			r->skipped = r->offset - sizeof(f) - f.stored_bytes - begin;
		r->torn = ret == 0;
	}
	if (ret <= 0)
		return ret;
	bool packed = f.type == FRAME_PACKED || f.type == FRAME_PACKED_V2;
	*out_type = packed ? FRAME_BATCH : f.type;
	*out_bytes = r->bytes;
	return 1;
}

uint64_t recording_skipped(const struct recording_reader *r)
{
	return r->skipped;
}

uint32_t recording_version(const struct recording_reader *r)
{
	return r->version;
}

bool recording_torn(const struct recording_reader *r)
{
	return r->torn;
}

uint64_t recording_offset(const struct recording_reader *r)
{
	return r->offset;
}

uint64_t recording_size(const struct recording_reader *r)
{
	return r->size;
}

void recording_reader_free(struct recording_reader *r)
{
	if (!r)
		return;
	if (r->fd >= 0)
		close(r->fd);
	buf_release(&r->stored);
	buf_release(&r->raw);
	buf_release(&r->window);
	pack_free(r->pack);
	free(r);
}

int recording_find(const char *path, struct buf *out_file, struct err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_sys(err, -errno, "cannot open '%s'", path);
	buf_add_str(out_file, path);
	if (S_ISDIR(st.st_mode)) {
		buf_add_str(out_file, "/" SESSION_RECORDING);
		if (stat(buf_str(out_file), &st) < 0)
			return err_set(err, -errno, "'%s' holds no recording (no %s in it)", path,
				       SESSION_RECORDING);
	}
	return 0;
}
