/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Samples of watched blocks: which of them a thread can reach, what they hold, and their records.
 *
 *	edge of an operator
 *	  find_reach()		which slots belong to this thread's device, or to the host; waits
 *				for the device, so that everything before the edge is done
 *	  sample_slot()		copies the slot, uses up one sample, enters it, reads the block in
 *				pieces of 1 MiB, leaves it; drops the reading if the slot changed
 *	  put_sample()		REC_WATCH
 *
 * A launch of a kernel knows its name only afterwards: the samples before it are held in the thread
 * (watch_hold()) and written when the name is there (watch_emit_held()).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "guest/collect/checksum.h"
#include "guest/runtime/env.h"
#include "guest/runtime/text.h"
#include "guest/watch/slots.h"
#include "guest/watch/watch.h"

/* What a block held. */
struct watch_reading {
	uint64_t checksum;
	uint64_t content; /* number of the file with its bytes; 0: none */
	uint32_t error; /* not 0: there is no checksum */
	uint8_t content_errno;
};

/* Read only while *id is as it was: otherwise the reading ends with ECANCELED. */
struct watch_block {
	uint64_t addr, bytes;
	const _Atomic uint32_t *id;
	uint32_t was;
	bool host;
};

/*
 * Reading a block back from the device: in pieces, into memory that we map ourselves, and on demand
 * into a file. Files go to the recording's own directory under a number; the recorder moves them to
 * where users look for them once it has read the number.
 *
 * What cannot be written is reported by its errno and removed: a full disk is not the job's
 * problem. Raw system calls: those of the C library are places where threads may be cancelled.
 */

#define PIECE (1u << 20)
#define SPARES 8
#define PATH_BYTES 1300

static _Atomic(void *) spares[SPARES];

/* A spare is taken by an exchange, so each buffer has one user; a thread that finds none maps
 * its own, and the eighth that comes back is unmapped. */
static void *buffer_take(void)
{
	for (int i = 0; i < SPARES; i++) {
		void *p = atomic_exchange(&spares[i], NULL);
		if (p)
			return p;
	}
	void *p = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static void buffer_return(void *p)
{
	for (int i = 0; i < SPARES; i++) {
		void *none = NULL;
		if (atomic_compare_exchange_strong(&spares[i], &none, p))
			return;
	}
	munmap(p, PIECE);
}

/* --- the file --- */

struct file {
	long fd; /* negative errno: there is none */
	uint64_t number;
	char path[PATH_BYTES];
};

static int file_path(struct file *f)
{
	char name[64], dir[PATH_BYTES];
	struct text t = {name, name + sizeof(name)};

	text_number(&t, guest_noted_owner());
	text_str(&t, "-");
	text_number(&t, (int64_t)f->number);
	if (guest_join_path(dir, sizeof(dir), guest_session_dir(), SESSION_WATCH_DIR) < 0)
		return -ENAMETOOLONG;
	syscall(SYS_mkdirat, AT_FDCWD, dir, 0700);
	return guest_join_path(f->path, sizeof(f->path), dir, name) < 0 ? -ENAMETOOLONG : 0;
}

/* A file above the job's limit would earn it a SIGXFSZ. */
static bool is_allowed(uint64_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
	       bytes <= limit.rlim_cur;
}

/* Named by the clock: unique within a process, and sorted. */
static void file_open(struct file *f, uint64_t bytes)
{
	f->number = guest_now();
	f->fd = is_allowed(bytes) ? file_path(f) : -EFBIG;
	if (f->fd < 0)
		return;
	f->fd = syscall(SYS_openat, AT_FDCWD, f->path,
			O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (f->fd < 0)
		f->fd = -errno;
}

static void file_drop(struct file *f, int why)
{
	syscall(SYS_close, (int)f->fd);
	syscall(SYS_unlinkat, AT_FDCWD, f->path, 0);
	f->fd = -why;
}

static void file_write(struct file *f, const char *data, size_t n)
{
	while (n && f->fd >= 0) {
		long r = syscall(SYS_write, (int)f->fd, data, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0) {
			file_drop(f, r < 0 ? errno : ENOSPC);
			return;
		}
		data += r;
		n -= (size_t)r;
	}
}

/* --- the reading --- */

/*
 * What is not mapped any more, or never was, is an error.
 *
 * process_vm_readv() on ourselves: what is not mapped is EFAULT, where a load would be a SIGSEGV.
 */
static int host_read(void *out, uint64_t addr, size_t bytes)
{
	struct iovec to = {out, bytes}, from = {(void *)(uintptr_t)addr, bytes};
	long n = syscall(SYS_process_vm_readv, syscall(SYS_getpid), &to, 1ul, &from, 1ul, 0ul);

	if (n == (long)bytes)
		return 0;
	return n < 0 ? errno : EFAULT;
}

static int block_read(const struct watch_block *b, void *out, uint64_t offset, size_t bytes)
{
	if (atomic_load(b->id) != b->was)
		return ECANCELED;
	return b->host ? host_read(out, b->addr + offset, bytes)
		       : watch_device->read(out, b->addr + offset, bytes);
}

static void read_pieces(char *buffer, const struct watch_block *b, struct file *f,
			struct watch_reading *out)
{
	uint64_t c = CHECKSUM_BEGIN;

	for (uint64_t done = 0; done < b->bytes;) {
		size_t n = b->bytes - done < PIECE ? (size_t)(b->bytes - done) : PIECE;
		int r = block_read(b, buffer, done, n);
		if (r) {
			out->error = (uint32_t)r;
			return;
		}
		c = checksum_add(c, buffer, n);
		if (f)
			file_write(f, buffer, n);
		done += n;
	}
	out->checksum = checksum_end(c);
}

static void drop_reading(const struct watch_reading *sample)
{
	struct file f = {.number = sample->content};

	if (f.number && file_path(&f) == 0)
		syscall(SYS_unlinkat, AT_FDCWD, f.path, 0);
}

static void read_watched(const struct watch_block *b, bool content, struct watch_reading *out)
{
	char *buffer = buffer_take();
	struct file f;

	*out = (struct watch_reading){0};
	if (!buffer) {
		out->error = ENOMEM;
		return;
	}
	if (content)
		file_open(&f, b->bytes);
	read_pieces(buffer, b, content ? &f : NULL, out);
	buffer_return(buffer);
	if (!content)
		return;
	if (out->error && f.fd >= 0)
		file_drop(&f, EIO);
	if (f.fd >= 0) {
		syscall(SYS_close, (int)f.fd);
		out->content = f.number;
	} else {
		out->content_errno = (uint8_t)(-f.fd < 256 ? -f.fd : EIO);
	}
}

/* --- samples --- */

#define HELD 8u

/* A sample that waits for the name of its kernel. */
struct held {
	struct watch_reading reading;
	uint32_t id;
	uint8_t slot;
};

static __thread struct {
	uint8_t n;
	struct held list[HELD];
} kept __attribute__((tls_model("initial-exec")));

_Static_assert(WATCH_SLOTS <= 256, "slot is a byte");

/* The number of the sample is drawn first: 0 says that the watch is over, and what was written
 * for it is removed. */
static void put_sample(struct slot *slot, const struct watched *s, const struct watch_edge *e,
		       const struct watch_reading *sample)
{
	uint32_t seq = watch_slot_next(slot, s->id);
	size_t nop = strnlen(e->op, SESSION_NAME_BYTES - 1);
	size_t nname = strnlen(s->name, SESSION_NAME_BYTES - 1);
	uint16_t len = (uint16_t)(nop + 1 + nname);
	uint16_t size = rec_size(sizeof(struct rec_watch), len);
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_watch *r = seq ? guest_reserve(size) : NULL;

	if (!r)
		drop_reading(sample);
	if (r) {
		memset(r, 0, size);
		r->head = (struct rec){REC_WATCH, 0, size, 0, ns};
		r->addr = s->addr;
		r->size_bytes = s->bytes;
		r->checksum = sample->checksum;
		r->content = sample->content;
		r->watch = s->id;
		r->seq = seq;
		r->call = e->call;
		r->watched_call = s->watched_call;
		r->output = s->output;
		r->error = sample->error;
		r->device = s->device;
		r->len = len;
		r->after = e->after;
		r->content_errno = sample->content_errno;
		r->last = atomic_load(&slot->left) == 0;
		memcpy(r->text, e->op, nop);
		memcpy(r->text + nop + 1, s->name, nname);
		guest_publish(size);
	}
	guest_unhold(held);
}

/* Whose memory can be looked at right now. */
struct reach {
	bool device, host;
	uint16_t number; /* of the device */
};

static bool is_in_reach(const struct watched *v, const struct reach *in)
{
	if (v->device == DEV_HOST)
		return in->host;
	return in->device && (v->device == in->number || v->device == DEV_NONE);
}

/* A sample of one slot; false: nothing to report. */
static bool sample_slot(struct slot *s, const struct reach *in, struct watched *out_watched,
			struct watch_reading *out)
{
	struct watched *w = out_watched;

	if (!watch_slot_copy(s, w, WATCHED_WORDS) || !is_in_reach(w, in) || !watch_slot_use(s) ||
	    !watch_slot_enter(s, w->id))
		return false;
	struct watch_block block = {w->addr, w->bytes, &s->id, w->id, w->device == DEV_HOST};
	read_watched(&block, watch_settings().content, out);
	watch_slot_leave(s);
	if (atomic_load(&s->id) != w->id) { /* freed meanwhile */
		drop_reading(out);
		return false;
	}
	if (w->device == DEV_NONE)
		w->device = in->number;
	return true;
}

/*
 * Is there something to look at, and is all work done that could change it?
 *
 * Slots are looked through before the device is waited for: an edge without anything to sample must
 * not wait.
 */
static bool find_reach(uint16_t device, bool host, struct reach *out)
{
	struct reach in = {device < WATCH_DEVICES, host, device}, found = {.number = device};

	if (!atomic_load(&watch_slots_live) || watch_is_over())
		return false;
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		struct watched v;
		if (!watch_slot_copy(&watch_slots[i], &v, WATCHED_HEAD) || !is_in_reach(&v, &in))
			continue;
		*(v.device == DEV_HOST ? &found.host : &found.device) = true;
	}
	found.device = found.device && watch_device->wait() == 0;
	*out = found;
	return found.device || found.host;
}

void watch_sample(const struct watch_edge *e, bool host)
{
	struct watch_reading sample;
	struct watched v;
	struct reach in;

	if (!find_reach(e->device, host, &in))
		return;
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		if (!sample_slot(&watch_slots[i], &in, &v, &sample))
			continue;
		put_sample(&watch_slots[i], &v, e, &sample);
		if (sample.error)
			watch_slot_drop(&watch_slots[i], v.id); /* not again at every edge */
	}
}

/* --- samples that are written later --- */

/* Those of a launch that was left in the middle. */
static void drop_held(void)
{
	for (uint8_t i = 0; i < kept.n; i++)
		drop_reading(&kept.list[i].reading);
	kept.n = 0;
}

void watch_hold(uint16_t device)
{
	struct watch_reading sample;
	struct watched v;
	struct reach in;

	drop_held();
	if (!find_reach(device, false, &in))
		return;
	for (uint32_t i = 0; i < WATCH_SLOTS && kept.n < HELD; i++) {
		if (!sample_slot(&watch_slots[i], &in, &v, &sample))
			continue;
		kept.list[kept.n++] = (struct held){sample, v.id, (uint8_t)i};
	}
}

void watch_emit_held(const struct watch_edge *e)
{
	for (uint8_t i = 0; i < kept.n; i++) {
		const struct held *h = &kept.list[i];
		struct slot *s = &watch_slots[h->slot];
		struct watched v;
		if (!watch_slot_copy(s, &v, WATCHED_WORDS) || v.id != h->id) {
			drop_reading(&h->reading);
			continue;
		}
		if (v.device == DEV_NONE)
			v.device = e->device;
		put_sample(s, &v, e, &h->reading);
		if (h->reading.error)
			watch_slot_drop(s, h->id);
	}
	kept.n = 0;
}

void watch_forget_held(void)
{
	kept.n = 0;
}
