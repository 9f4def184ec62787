/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Making arenas (wire/ring.h), and making their space real.
 *
 *	ftruncate		the whole size, up to 1 GiB and more: nothing but holes
 *	fallocate		head, rings, segment states, stack index; and the first 16 segments
 *	guest_commit()		more segments (1 MiB at a time), stack data (256 KiB), 2nd, 3rd index
 *
 * Storing into a hole of a shared mapping allocates the block then; on a full disk that is a SIGBUS
 * in the job. So nobody stores into a part that was not committed. Which parts those are is in the
 * head (nsegs, stack_committed, has_more), written after the commit succeeded.
 *
 * No descriptor stays open: jobs close descriptors that they do not know. The mapping is enough;
 * only kernels without MADV_POPULATE_WRITE (before 5.14) need the path again.
 *
 * One thread makes an arena at a time: who joins or moves (process.c). Two paths are remembered,
 * because during a move both arenas grow.
 */
#include "guest/runtime/guest.h"

#include "guest/runtime/env.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AS_SHARE 16

struct owner {
	uint32_t pid;
	uint64_t pid_ns; /* where that number counts; 0: not known */
};

struct geometry {
	uint32_t max_segs, stack_bytes;
};

/* The one in use, and that which comes or was before. */
static struct file {
	struct arena_head *arena;
	char path[1200];
} files[2];

/*
 * MADV_POPULATE_WRITE faults the pages in for writing, which allocates blocks; it fails with an
 * error where a store would raise SIGBUS. On a kernel that does not know it, fallocate() does the
 * same by the path.
 */
int guest_commit(struct arena_head *a, uint64_t off, uint64_t len)
{
	uint64_t from = off & ~4095ull, to = (off + len + 4095) & ~4095ull;
	int r = -ESTALE;

	if (guest_is_sealed())
		return -EPERM;
#ifdef MADV_POPULATE_WRITE
	/* By its number: the name may be that of guest/interpose, which spares our memory. */
	if (syscall(SYS_madvise, (char *)a + from, to - from, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
#endif
	/* An older kernel: by the file, if it still is where it was made. */
	for (int i = 0; i < 2; i++) {
		if (files[i].arena != a)
			continue;
		int fd = open(files[i].path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0)
			return -errno;
		r = fallocate(fd, 0, (off_t)from, (off_t)(to - from)) < 0 ? -errno : 0;
		close(fd);
	}
	return r;
}

/* The file is visible under its name from the beginning; the recorder looks for the magic
 * number, which is stored last. */
static void fill_head(struct arena_head *a, const struct owner *o, uint64_t image_ns,
		      const struct geometry *g)
{
	a->version = ARENA_VERSION;
	a->pid = o->pid;
	a->ppid = o->pid == (uint32_t)getpid() ? (uint32_t)getppid() : 0;
	a->image_ns = image_ns;
	a->pid_ns = o->pid_ns;
	a->address = (uint64_t)(uintptr_t)a;
	a->file_bytes = arena_bytes(g->max_segs, g->stack_bytes);
	a->max_rings = ARENA_MAX_RINGS;
	a->max_segs = g->max_segs;
	a->stack_bytes = g->stack_bytes;
	a->nsegs = ARENA_FIRST_SEGS;
	a->stack_used = sizeof(uint64_t);
	guest_read_file("/proc/self/cmdline", a->cmdline, sizeof(a->cmdline));
	ssize_t n = readlink("/proc/self/exe", a->exe, sizeof(a->exe) - 1);
	a->exe[n > 0 ? n : 0] = '\0';
	guest_env_copy("ASCEND_RT_VISIBLE_DEVICES", a->visible_devices, sizeof(a->visible_devices));
	atomic_thread_fence(memory_order_release);
	*(volatile uint64_t *)&a->magic = ARENA_MAGIC; /* last: now the recorder may look */
}

/* Sparse beyond the first segments; guest_commit() makes the rest real as it is needed. */
static int arena_create(const char *dir, const struct owner *o, char *path, uint64_t *out_image_ns)
{
	/*
	 * The name is never used twice: after exec() the recorder may be done with the file of the
	 * former image or not, and must take this one for a new process either way.
	 */
	*out_image_ns = guest_now();
	if (!guest_arena_name(path, sizeof(files[0].path), dir, o->pid, o->pid_ns, *out_image_ns))
		return -ENAMETOOLONG;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	(void)!fchmod(fd, 0600); /* whatever the job's umask: the recorder must read it */
	return fd;
}

/* The most bytes that an arena may have. */
static uint64_t read_limits(void)
{
	struct rlimit limit;
	uint64_t most = UINT64_MAX;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0)
		most = limit.rlim_cur;
	/* Address space that is limited belongs to the job: a small share of it will do. */
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    limit.rlim_cur / AS_SHARE < most)
		most = limit.rlim_cur / AS_SHARE;
	return most;
}

/*
 * How large a new arena is. A file larger than the job's limit would earn it a SIGXFSZ: then it has
 * fewer segments, or, where not even the smallest fits, there is none.
 */
static bool choose_geometry(const struct control_page *page, struct geometry *out)
{
	const uint64_t fixed = arena_bytes(0, ARENA_SMALL_STACKS), most = read_limits();
	uint32_t segs = page->max_segs;

	if (segs < ARENA_FIRST_SEGS)
		segs = ARENA_FIRST_SEGS;
	if (segs > ARENA_MAX_SEGS)
		segs = ARENA_MAX_SEGS;
	if (most < fixed + (uint64_t)ARENA_FIRST_SEGS * ARENA_SEG_SIZE)
		return false;
	if ((most - fixed) / ARENA_SEG_SIZE < segs)
		segs = (uint32_t)((most - fixed) / ARENA_SEG_SIZE);
	*out = (struct geometry){segs, ARENA_SMALL_STACKS};
	if ((page->c_depth | page->py_depth) && segs >= 4 * ARENA_SEGS_FOR_STACKS)
		*out = (struct geometry){segs - ARENA_SEGS_FOR_STACKS, ARENA_LARGE_STACKS};
	return true;
}

struct arena_head *guest_make_arena(const struct control_page *page, const char *dir)
{
	struct geometry g;
	uint64_t image_ns = 0;
	struct owner o = {guest_owner_pid(), guest_pid_namespace()};
	struct file *file = files[0].arena && files[0].arena == guest.arena ? &files[1] : &files[0];

	file->arena = NULL; /* the path is not its own any more, whatever becomes of this */
	if (!choose_geometry(page, &g))
		return NULL;
	int fd = arena_create(page->ring_dir[0] ? page->ring_dir : dir, &o, file->path, &image_ns);
	if (fd < 0)
		return NULL;
	const uint64_t bytes = arena_bytes(g.max_segs, g.stack_bytes);
	void *p = MAP_FAILED;
	/* Space for what every job needs now; a full disk says so here and not by SIGBUS. */
	if (ftruncate(fd, (off_t)bytes) == 0 && fallocate(fd, 0, 0, ARENA_OFF_MORE_INDEX) == 0 &&
	    fallocate(fd, 0, ARENA_OFF_SEGS, ARENA_FIRST_SEGS * ARENA_SEG_SIZE) == 0)
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		unlink(file->path);
		close(fd);
		return NULL;
	}
	/* Read-ahead would fill megabytes of a file that is nothing but holes yet. */
	madvise(p, bytes, MADV_RANDOM);
	fill_head(p, &o, image_ns, &g);
	/* Now: a file that nobody has open and that is not complete is swept away. */
	close(fd);
	file->arena = p;
	guest_own_range(p, bytes);
	return p;
}
