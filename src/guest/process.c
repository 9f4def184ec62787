/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Joining the recording: control page, arena, epoch. Once per process image, at its first event;
 * a process that never has one opens nothing.
 *
 * Who does it is settled by one compare-and-swap on `joining`; other threads that have their first
 * event at that moment wait for the outcome (bounded); the joining thread's own signal handlers
 * wait until it is done.
 */
#include "guest/guest.h"

#include "guest/env.h"
#include "stack/native.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AS_SHARE 16
#define FIRST_SEGS 16 /* file space of a new arena: 1 MiB of rings */
#define JOIN_WAIT_NS 1000000000ull
#define LIVE_WAIT_NS 2000000000ull
#define GATE_CLOSE_NS 100000000ull
#define GATE_OPEN_NS 50000000ull

struct guest_state guest;

/* Until a process has joined, the epoch is a value that no thread carries. */
static _Atomic uint32_t never = UINT32_MAX;
_Atomic uint32_t *_Atomic guest_epoch = &never;

struct owner {
	uint32_t pid;
	uint64_t ticks; /* when it started */
};

static _Atomic uint32_t joining; /* 0, or the pid that is at it */
static uint32_t epochs; /* counts on in forked children */
static char arena_path[1200];

static void nap(void)
{
	struct timespec t = {0, 500000};

	syscall(SYS_nanosleep, &t, NULL);
}

void guest_block_signals(uint64_t *out_old)
{
	uint64_t all = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGILL - 1) |
			 1ull << (SIGFPE - 1) | 1ull << (SIGTRAP - 1));

	*out_old = 0;
	/* Not by the C library, which leaves its own out: cancelling a thread is a jump too. */
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, out_old, sizeof(all));
}

void guest_restore_signals(const uint64_t *old)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, old, NULL, sizeof(*old));
}

int guest_commit(uint64_t off, uint64_t len)
{
	uint64_t from = off & ~4095ull, to = (off + len + 4095) & ~4095ull;

#ifdef MADV_POPULATE_WRITE
	if (madvise((char *)guest.arena + from, to - from, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return -errno;
#endif
	/* An older kernel: by the file, if it still is where it was made. */
	int fd = open(arena_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	int r = fallocate(fd, 0, (off_t)from, (off_t)(to - from)) < 0 ? -errno : 0;
	close(fd);
	return r;
}

/* The epoch lives in a page that the kernel empties in a forked child. */
static _Atomic uint32_t *epoch_page(void)
{
	static _Atomic uint32_t *page;

	if (page)
		return page;
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, 4096, MADV_WIPEONFORK) < 0) {
		munmap(p, 4096);
		return NULL;
	}
	page = p;
	return page;
}

/* Without a launcher: the page of a new session, and a recorder to fill it in. */
static int session_make(const char *dir)
{
	char path[1200];
	struct session_page init = {
		.magic = SESSION_MAGIC, .version = SESSION_VERSION, .root_pid = guest_root_pid()};

	if (guest_mkdirs(dir) < 0 || guest_join_path(path, sizeof(path), dir, SESSION_FILE) < 0)
		return -1;
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		(void)!fchmod(fd, 0600);
	if (fd < 0)
		return errno == EEXIST ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
	if (fallocate(fd, 0, 0, SESSION_BYTES) < 0 ||
	    pwrite(fd, &init, sizeof(init), 0) != (ssize_t)sizeof(init)) {
		close(fd);
		return -1;
	}
	if (guest_spawn_recorder(dir) < 0) {
		unlink(path);
		close(fd);
		return -1;
	}
	return fd;
}

static struct session_page *session_map(const char *dir, bool make)
{
	char path[1200];

	if (guest_join_path(path, sizeof(path), dir, SESSION_FILE) < 0)
		return NULL;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 && errno == ENOENT && make)
		fd = session_make(dir);
	if (fd < 0)
		return NULL;
	struct stat st;
	void *p = MAP_FAILED;
	if (fstat(fd, &st) == 0 && st.st_size >= SESSION_BYTES)
		p = mmap(NULL, SESSION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return NULL;
	struct session_page *page = p;
	if (page->magic != SESSION_MAGIC || page->version != SESSION_VERSION) {
		munmap(p, SESSION_BYTES);
		return NULL;
	}
	return page;
}

/*
 * A recorder that left is called back; one that is starting is given a moment to configure. False:
 * there is none and there will be none.
 */
static bool session_wait_live(struct session_page *page, const char *dir)
{
	uint32_t finished = SESSION_FINISHED, called = SESSION_NEW;

	if (atomic_compare_exchange_strong(&page->state, &finished, SESSION_NEW) &&
	    guest_spawn_recorder(dir) < 0)
		atomic_compare_exchange_strong(&page->state, &called, SESSION_FINISHED);
	uint64_t until = guest_now() + LIVE_WAIT_NS;
	while (atomic_load(&page->state) == SESSION_NEW && guest_now() < until)
		nap();
	return atomic_load(&page->state) != SESSION_FINISHED;
}

bool guest_revive(void)
{
	uint32_t live = SESSION_LIVE;
	struct session_page *page = guest.page;

	if (!page || !guest_has_joined())
		return false;
	if (atomic_load(&page->state) == SESSION_LIVE &&
	    guest_is_gone(atomic_load(&page->recorder_pid)))
		atomic_compare_exchange_strong(&page->state, &live, SESSION_FINISHED);
	return session_wait_live(page, guest_session_dir());
}

/* It sleeps on this word, which stays as it is. */
void guest_wake_recorder(void)
{
	int saved = errno;

	if (guest_has_joined())
		syscall(SYS_futex, &guest.page->exit_asked, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	errno = saved;
}

/*
 * Whose memory this is. A child of vfork() or clone(CLONE_VM) that has the first event of all is
 * its parent to us: the arena must not end with it.
 */
static uint32_t owner_pid(void)
{
	_Atomic uint32_t *page = epoch_page();
	uint32_t pid = (uint32_t)getpid(), parent = (uint32_t)getppid();

	/* Noted when the library was loaded, and wiped by fork: then the kernel is asked. */
	if (page && atomic_load(&page[1]))
		return atomic_load(&page[1]);
	if (parent && syscall(SYS_kcmp, pid, parent, KCMP_VM, 0, 0) == 0)
		pid = parent;
	if (page)
		atomic_store(&page[1], pid);
	return pid;
}

uint32_t guest_noted_owner(void)
{
	_Atomic uint32_t *page = epoch_page();

	return page ? atomic_load(&page[1]) : 0;
}

void guest_note_owner(void)
{
	(void)owner_pid();
}

static void fill_head(struct arena_head *a, const struct owner *o, uint64_t image_ns,
		      uint32_t max_segs)
{
	a->version = ARENA_VERSION;
	a->pid = o->pid;
	a->ppid = o->pid == (uint32_t)getpid() ? (uint32_t)getppid() : 0;
	a->image_ns = image_ns;
	a->start_ticks = o->ticks;
	struct stat ns;
	a->pid_ns = stat("/proc/self/ns/pid", &ns) == 0 ? ns.st_ino : 0;
	a->file_bytes = arena_bytes(max_segs);
	a->max_rings = ARENA_MAX_RINGS;
	a->max_segs = max_segs;
	a->nsegs = FIRST_SEGS;
	a->stack_used = sizeof(uint64_t);
	guest_read_file("/proc/self/cmdline", a->cmdline, sizeof(a->cmdline));
	ssize_t n = readlink("/proc/self/exe", a->exe, sizeof(a->exe) - 1);
	a->exe[n > 0 ? n : 0] = '\0';
	guest_env_copy("ASCEND_RT_VISIBLE_DEVICES", a->visible_devices, sizeof(a->visible_devices));
	atomic_thread_fence(memory_order_release);
	*(volatile uint64_t *)&a->magic = ARENA_MAGIC; /* last: now the recorder may look */
}

/* Sparse beyond the first segments; guest_commit() makes the rest real as it is needed. */
static int arena_create(const char *dir, const struct owner *o, uint64_t *out_image_ns)
{
	/*
	 * The name is never used twice: after exec() the recorder may be done with the file of the
	 * former image or not, and must take this one for a new process either way.
	 */
	*out_image_ns = guest_now();
	if (!guest_arena_name(arena_path, sizeof(arena_path), dir, o->pid, o->ticks, *out_image_ns))
		return -ENAMETOOLONG;
	int fd = open(arena_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	(void)!fchmod(fd, 0600); /* whatever the job's umask: the recorder must read it */
	return fd;
}

/*
 * Segments of a new arena. A file larger than the job's limit would earn it a SIGXFSZ: then fewer,
 * or, where not even the smallest arena fits, none.
 */
static uint32_t allowed_segs(uint32_t wanted)
{
	struct rlimit limit;

	if (wanted < FIRST_SEGS)
		wanted = FIRST_SEGS;
	if (wanted > ARENA_MAX_SEGS)
		wanted = ARENA_MAX_SEGS;
	uint64_t most = UINT64_MAX;
	if (getrlimit(RLIMIT_FSIZE, &limit) == 0)
		most = limit.rlim_cur;
	/* Address space that is limited belongs to the job: a small share of it will do. */
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
	    limit.rlim_cur / AS_SHARE < most)
		most = limit.rlim_cur / AS_SHARE;
	if (arena_bytes(wanted) <= most)
		return wanted;
	if (arena_bytes(FIRST_SEGS) > most)
		return 0;
	return (uint32_t)((most - ARENA_OFF_SEGS) / ARENA_SEG_SIZE);
}

static struct arena_head *arena_make(const struct session_page *page, const char *dir)
{
	uint32_t max_segs = allowed_segs(page->max_segs);
	uint64_t image_ns = 0;
	struct owner o = {.pid = owner_pid()};

	o.ticks = guest_start_ticks(o.pid);
	if (!max_segs)
		return NULL;
	int fd = arena_create(page->ring_dir[0] ? page->ring_dir : dir, &o, &image_ns);
	if (fd < 0)
		return NULL;
	void *p = MAP_FAILED;
	/* Space for everything but stack data now; a full disk says so here and not by SIGBUS. */
	if (ftruncate(fd, (off_t)arena_bytes(max_segs)) == 0 &&
	    fallocate(fd, 0, 0, ARENA_OFF_STACK_DATA) == 0 &&
	    fallocate(fd, 0, ARENA_OFF_SEGS, FIRST_SEGS * ARENA_SEG_SIZE) == 0)
		p = mmap(NULL, arena_bytes(max_segs), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED) {
		unlink(arena_path);
		return NULL;
	}
	/* Read-ahead would fill megabytes of a file that is nothing but holes yet. */
	madvise(p, arena_bytes(max_segs), MADV_RANDOM);
	fill_head(p, &o, image_ns, max_segs);
	return p;
}

/* A forked child must not keep its parent's arena mapped: it would hold the file's space. */
static void drop_parent_arena(void)
{
	/* Unless the fork happened in a signal handler inside a hook, which is still to write. */
	if (guest.arena && !guest_self.level)
		munmap(guest.arena, guest.arena->file_bytes);
	guest.arena = NULL;
	native_forget(); /* the new arena must be told of every object again */
}

/* What is to be told before the first event. */
static struct {
	bool settings, tracing;
} owed;

static uint32_t join(void)
{
	const char *dir = guest_session_dir();
	_Atomic uint32_t *epoch = epoch_page();
	uint32_t parent = atomic_load(&guest.mode);

	drop_parent_arena();
	if (!dir[0] || !epoch)
		return GUEST_OFF;
	/* The directory of a launcher is not made again: somebody removed it. */
	if (!guest.page)
		guest.page = session_map(dir, !guest_is_launched());
	if (!guest.page)
		return GUEST_OFF;
	if (session_wait_live(guest.page, dir))
		guest.arena = arena_make(guest.page, dir);
	/* Again: the recorder may have left just now. */
	if (!guest.arena || !session_wait_live(guest.page, dir)) {
		atomic_fetch_add(&guest.page->unrecorded, 1);
		return GUEST_OFF;
	}
	atomic_fetch_add(&guest.page->joined, 1);
	uint32_t want = atomic_load(&guest.page->want);
	bool tracing = !(want & WANT_DEFERRED);
	if (!guest.configured) {
		guest.c_depth = guest.page->c_depth;
		guest.py_depth = guest.page->py_depth;
		atomic_store(&guest.want, want);
	}
	/* A forked child does what its parent did, and says so if that is not what it began with.
	 */
	bool traced = parent < GUEST_SHADOW ? tracing : parent == GUEST_RECORD;
	owed.settings = guest.configured;
	owed.tracing = traced != tracing;
	atomic_store(&guest.arena->tracing, traced);
	return traced ? GUEST_RECORD : GUEST_SHADOW;
}

/* --- the gate of exit(): see guest.h --- */

static struct {
	_Atomic uint32_t tid; /* the thread that exits; 0: nobody does */
	_Atomic uint64_t open_ns; /* from here on nobody is kept */
} gate;

/* Threads inside a hook hold pending_ns (guest_hold); who comes later meets the gate. */
static void wait_for_hooks(struct arena_head *a)
{
	uint64_t until = guest_now() + GATE_CLOSE_NS;
	uint32_t n = atomic_load(&a->nrings);

	if (n > 1)
		nap(); /* longer than a store that was under way needs to become visible */
	for (uint32_t i = 0; i < n && i < a->max_rings; i++)
		while (atomic_load(&arena_ring(a, i)->pending_ns) && guest_now() < until)
			nap();
}

void guest_close_gate(void)
{
	_Atomic uint32_t *epoch = atomic_load(&guest_epoch);

	if (!guest.arena || guest_epoch_now() == 0 || epoch == &never)
		return;
	atomic_store(&gate.open_ns, UINT64_MAX);
	atomic_store(&gate.tid, (uint32_t)syscall(SYS_gettid));
	atomic_store(epoch, GUEST_EPOCH_EXIT);
	wait_for_hooks(guest.arena);
}

void guest_open_gate(void)
{
	if (atomic_load(&gate.tid))
		atomic_store(&gate.open_ns, guest_now() + GATE_OPEN_NS);
}

static void wait_at_gate(void)
{
	if ((uint32_t)syscall(SYS_gettid) == atomic_load(&gate.tid))
		return;
	while (guest_now() < atomic_load(&gate.open_ns))
		nap();
}

/*
 * A monitor's session is of one process. A child that was forked is none of it: it would call its
 * parent's recorder back to a directory that is gone. Nor does it last if it could not be joined,
 * where there may be room next time.
 */
bool guest_leave_monitor(void)
{
	uint32_t of = guest_monitor_pid();
	_Atomic uint32_t *epoch = epoch_page();

	if (!of || !epoch || (of == owner_pid() && atomic_load(&guest.mode) != GUEST_OFF) ||
	    !guest_unname_monitor_session(of))
		return false;
	drop_parent_arena();
	guest.page = NULL;
	atomic_store(&guest.mode, GUEST_NEW);
	atomic_store(epoch, 0);
	return true;
}

/* The outcome is published as an epoch: threads compare it with the one they joined under. */
static uint32_t join_and_publish(void)
{
	uint32_t mode = join();
	_Atomic uint32_t *page = epoch_page();

	atomic_store(&guest.mode, mode);
	if (++epochs == 0 || epochs >= GUEST_EPOCH_EXIT)
		epochs = 1;
	atomic_store(&gate.tid, 0);
	if (page) {
		atomic_store(page, epochs);
		atomic_store(&guest_epoch, page);
	}
	return mode;
}

static bool joined(void)
{
	uint32_t epoch = guest_epoch_now();

	return epoch && (epoch != UINT32_MAX || atomic_load(&guest.mode) == GUEST_OFF);
}

uint32_t guest_attach(void)
{
	uint32_t pid = (uint32_t)getpid();
	uint64_t until = guest_now() + JOIN_WAIT_NS;

	if (guest_epoch_now() == GUEST_EPOCH_EXIT) {
		wait_at_gate();
		return GUEST_OFF;
	}
	while (!joined()) {
		uint32_t who = atomic_load(&joining);
		if (who != pid && atomic_compare_exchange_strong(&joining, &who, pid)) {
			if (!joined())
				join_and_publish();
			atomic_store(&joining, 0);
			break;
		}
		if (guest_now() > until)
			return GUEST_OFF;
		nap();
	}
	return atomic_load(&guest.mode);
}

static void tell_settings(void)
{
	size_t len = strnlen(guest.output_dir, sizeof(guest.output_dir) - 1);
	uint16_t size = rec_size(sizeof(struct rec_config), len);
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_config *r = guest_reserve(size);

	if (r) {
		memset(r, 0, size);
		r->head = (struct rec){REC_CONFIG, 0, size, 0, ns};
		r->settings = guest.settings;
		r->len = (uint16_t)len;
		memcpy(r->text, guest.output_dir, len);
		guest_publish(size);
	}
	guest_unhold(held);
}

static void tell_tracing(bool on)
{
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_system *r = guest_reserve(sizeof(*r));

	if (r) {
		*r = (struct rec_system){
			.head = {REC_SYSTEM, 0, sizeof(*r), 0, ns},
			.device = DEV_NONE,
			.kind = on ? SYSTEM_START_TRACE : SYSTEM_STOP_TRACE,
		};
		guest_publish(sizeof(*r));
	}
	guest_unhold(held);
}

static void tell_owed(void)
{
	bool settings = owed.settings, tracing = owed.tracing;

	owed.settings = owed.tracing = false;
	if (settings)
		tell_settings();
	if (tracing)
		tell_tracing(atomic_load(&guest.mode) == GUEST_RECORD);
}

uint32_t guest_mode_slow(void)
{
	struct guest_thread *t = &guest_self;
	int saved = errno;
	uint32_t mode = GUEST_OFF;

	if (!guest_has_begun())
		return GUEST_OFF;
	/* The handler of a fault inside our own joining: its event is not recorded. */
	if (!t->busy) {
		uint64_t signals;
		guest_block_signals(&signals);
		t->busy = 1;
		atomic_signal_fence(memory_order_seq_cst);
		if (guest_epoch_now() != 0 || !guest_leave_monitor())
			mode = guest_attach();
		atomic_signal_fence(memory_order_seq_cst);
		t->busy = 0;
		guest_restore_signals(&signals);
	}
	if (mode >= GUEST_SHADOW && (owed.settings || owed.tracing))
		tell_owed();
	errno = saved;
	return mode;
}

bool guest_has_joined(void)
{
	uint32_t epoch = guest_epoch_now();

	return epoch && epoch < GUEST_EPOCH_EXIT && atomic_load(&guest.mode) >= GUEST_SHADOW;
}

void guest_configure(const struct rec_settings *s, uint32_t want, const char *output_dir)
{
	guest.settings = *s;
	guest.configured = true;
	if (output_dir) {
		size_t n = strnlen(output_dir, sizeof(guest.output_dir) - 1);
		memcpy(guest.output_dir, output_dir, n);
		guest.output_dir[n] = '\0';
	}
	guest.c_depth = s->c_stack ? s->c_depth : 0;
	guest.py_depth = s->py_stack ? s->py_depth : 0;
	atomic_store(&guest.want, want);
	tell_settings();
}

void guest_set_tracing(bool on)
{
	if (guest_mode() < GUEST_SHADOW)
		return;
	atomic_store(&guest.arena->tracing, on);
	atomic_store(&guest.mode, on ? GUEST_RECORD : GUEST_SHADOW);
}
