/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Real processes are stopped here, walked, and must not notice. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "test.h"
#include "tmpdir.h"
#include "unwind/remote/native/native.h"
#include "unwind/remote/native/native_impl.h"
#include "unwind/remote/native/stop.h"

/* What the child and the test see together. */
struct shared {
	volatile int ready, go, count;
	volatile pid_t tid;
};

static struct shared *shared;

static void make_shared(void)
{
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
}

/* Starts fn in a child that does not outlive us; returns when the child says that it is ready. */
static pid_t start(void (*fn)(void))
{
	if (!shared)
		make_shared();
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn();
		_exit(0);
	}
	while (!shared->ready)
		usleep(200);
	return pid;
}

static void finish(pid_t pid)
{
	kill(pid, SIGKILL);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
}

static char state_of(pid_t tid)
{
	struct buf text = {0};
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
	CHECK(fs_read_file(path, 4096, &text, NULL) == 0);
	const char *paren = strrchr(buf_str(&text), ')');
	CHECK(paren && paren[1] == ' ');
	char state = paren[2];
	buf_release(&text);
	return state;
}

/* Waits until the thread is in this state. */
static void expect_state(pid_t tid, char want)
{
	for (int i = 0; i < 5000 && state_of(tid) != want; i++)
		usleep(1000);
	CHECK_INT(state_of(tid), want);
}

static struct native_process *open_it(pid_t pid)
{
	struct native_process *p;
	struct err err = {0};

	CHECK(native_process_open(pid, &p, &err) == 0);
	return p;
}

/* --- names --- */

__attribute__((noinline)) void native_level_c(void);
__attribute__((noinline)) void native_level_b(void);
__attribute__((noinline)) void native_level_a(void);

void native_level_c(void)
{
	shared->tid = (pid_t)syscall(SYS_gettid);
	shared->ready = 1;
	while (!shared->go)
		syscall(SYS_futex, &shared->go, FUTEX_WAIT, 0, NULL, NULL, 0);
	__asm__ volatile("");
}

void native_level_b(void)
{
	volatile char room[300000]; /* more than one page, more than one guess */

	room[0] = room[sizeof(room) - 1] = 1;
	native_level_c();
	room[1] = room[0];
}

void native_level_a(void)
{
	native_level_b();
	__asm__ volatile("");
}

static unsigned find_frame(const struct native_stack *s, const char *name)
{
	for (unsigned i = 0; i < s->n; i++)
		if (!strcmp(s->frames[i].name, name))
			return i;
	fprintf(stderr, "no frame %s in %u\n", name, s->n);
	exit(1);
}

static void check_levels(struct native_process *p, pid_t tid, const char *outermost)
{
	struct native_stack s;
	struct err err = {0};

	CHECK_INT(native_capture_thread(p, tid, NULL, NULL, &err), 0);
	CHECK_INT(native_unwind(p, tid, NULL, &s, &err), 0);
	CHECK(s.whole);
	unsigned a = find_frame(&s, "native_level_a");
	CHECK_INT(find_frame(&s, "native_level_b"), a + 1);
	CHECK_INT(find_frame(&s, "native_level_c"), a + 2);
	CHECK(find_frame(&s, outermost) < a);
	CHECK(s.frames[a].kind == FRAME_IS_NATIVE && !s.is_eval[a] && !s.is_internal[a]);
	CHECK_STR(s.frames[a].file, "tests/unit/unwind/remote/native/test_native.c");
	CHECK(s.frames[a].line > 0);
	/* It is taken now. */
	struct native_stack again;
	CHECK_INT(native_unwind(p, tid, NULL, &again, &err), -ENOENT);
	native_stack_release(&s);
}

TEST(remote_native, names_what_a_process_does)
{
	pid_t pid = start(native_level_a);
	struct native_process *p = open_it(pid);

	for (int i = 0; i < 3; i++)
		check_levels(p, pid, "main");
	CHECK_INT(native_counts(p)->captures, 3);
	CHECK_INT(native_counts(p)->unwound, 3);
	native_process_close(p);
	finish(pid);
}

static void *level_thread(void *arg)
{
	native_level_a();
	return arg;
}

static void with_thread(void)
{
	pthread_t t;

	pthread_create(&t, NULL, level_thread, NULL);
	pthread_join(t, NULL);
}

TEST(remote_native, names_what_a_thread_does)
{
	pid_t pid = start(with_thread);
	struct native_process *p = open_it(pid);

	CHECK(shared->tid != pid);
	check_levels(p, shared->tid, "level_thread");
	native_process_close(p);
	finish(pid);
}

/* --- not to be noticed --- */

static void on_signal(int signal)
{
	(void)signal;
	shared->count++;
}

static void count_signals(void)
{
	signal(SIGRTMIN, on_signal);
	shared->ready = 1;
	for (;;)
		pause();
}

TEST(remote_native, signals_are_delivered)
{
	pid_t pid = start(count_signals);
	struct native_process *p = open_it(pid);
	int sent = 0;

	for (int i = 0; i < 300; i++) {
		union sigval v = {0};
		struct err err = {0};

		sent += sigqueue(pid, SIGRTMIN, v) == 0;
		CHECK_INT(native_capture_thread(p, pid, NULL, NULL, &err), 0);
	}
	for (int i = 0; i < 5000 && shared->count != sent; i++)
		usleep(1000);
	CHECK_INT(shared->count, sent);
	expect_state(pid, 'S');
	native_process_close(p);
	finish(pid);
}

TEST(remote_native, a_stopped_job_stays_stopped)
{
	pid_t pid = start(native_level_a);
	struct native_process *p = open_it(pid);

	kill(pid, SIGSTOP);
	expect_state(pid, 'T');
	for (int i = 0; i < 20; i++)
		check_levels(p, pid, "main");
	expect_state(pid, 'T');
	kill(pid, SIGCONT);
	expect_state(pid, 'S');
	/* One that comes in the middle of it is not lost. */
	for (int i = 0; i < 20; i++) {
		struct err err = {0};

		kill(pid, SIGSTOP);
		CHECK_INT(native_capture_thread(p, pid, NULL, NULL, &err), 0);
		expect_state(pid, 'T');
		kill(pid, SIGCONT);
		CHECK_INT(native_capture_thread(p, pid, NULL, NULL, &err), 0);
		expect_state(pid, 'S');
	}
	native_process_close(p);
	finish(pid);
}

static pid_t traced;

static void be_a_debugger(void)
{
	if (ptrace(PTRACE_SEIZE, traced, NULL, NULL) == 0)
		shared->ready = 1;
	pause();
}

TEST(remote_native, leaves_a_debugger_alone)
{
	struct err err = {0};

	traced = start(native_level_a);
	struct native_process *p = open_it(traced);
	shared->ready = 0;
	pid_t debugger = start(be_a_debugger);
	CHECK_INT(native_capture_thread(p, traced, NULL, NULL, &err), -EBUSY);
	CHECK(strstr(err.text, "is traced by process"));
	finish(debugger);
	expect_state(traced, 'S');
	native_process_close(p);
	finish(traced);
}

/* A process that waits for the child of its vfork() sleeps uninterruptibly. The thread sanitizer
 * makes a fork() of vfork(), but does not know the system call. */
static void sleep_uninterruptibly(void)
{
	if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0) == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		shared->ready = 1;
		while (!shared->go)
			usleep(1000);
		_exit(0);
	}
	shared->count = 1;
	for (;;)
		pause();
}

TEST(remote_native, gives_up_on_a_thread_that_does_not_stop)
{
	struct err err = {0};
	pid_t pid = start(sleep_uninterruptibly);
	struct native_process *p = open_it(pid);

	expect_state(pid, 'D');
	CHECK_INT(native_capture_thread(p, pid, NULL, NULL, &err), -EBUSY);
	CHECK(strstr(err.text, "did not stop"));
	CHECK_INT(state_of(pid), 'D');
	shared->go = 1;
	for (int i = 0; i < 5000 && !shared->count; i++)
		usleep(1000);
	CHECK_INT(shared->count, 1);
	expect_state(pid, 'S');
	/* And then it can be had. */
	CHECK_INT(native_capture_thread(p, pid, NULL, NULL, &err), 0);
	native_process_close(p);
	finish(pid);
}

/* --- ends --- */

static void *end_at_once(void *arg)
{
	shared->tid = (pid_t)syscall(SYS_gettid);
	usleep(shared->count++ % 200);
	return arg;
}

static void many_short_threads(void)
{
	for (int i = 0; !shared->go || i < 100; i++) {
		pthread_t t;

		shared->ready = 1;
		if (pthread_create(&t, NULL, end_at_once, NULL) == 0)
			pthread_join(t, NULL);
	}
	_exit(42);
}

TEST(remote_native, threads_and_processes_may_end_meanwhile)
{
	pid_t pid = start(many_short_threads);
	struct native_process *p = open_it(pid);
	int status = 0, caught = 0;

	for (int i = 0; i < 2000 && caught < 50; i++) {
		struct native_stack s;
		struct err err = {0};
		pid_t tid = shared->tid;
		int r = native_capture_thread(p, tid, NULL, NULL, &err);

		CHECK(r == 0 || r == -ESRCH);
		if (r == 0 && native_unwind(p, tid, NULL, &s, &err) == 0) {
			native_stack_release(&s);
			caught++;
		}
	}
	CHECK(caught > 0);
	shared->go = 1;
	/* The end of a child of ours is still ours to see, whatever we do while it comes. */
	for (int r = 0; r == 0;) {
		struct err err = {0};

		r = native_capture_thread(p, pid, NULL, NULL, &err);
		CHECK(r == 0 || r == -ESRCH);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	struct err err = {0};
	CHECK_INT(native_capture_thread(p, pid, NULL, NULL, &err), -ESRCH);
	native_process_close(p);
	CHECK_INT(native_process_open(pid, &p, &err), -ESRCH);
}

static void become_another(void)
{
	shared->ready = 1;
	while (!shared->go)
		usleep(100);
	execlp("sh", "sh", "-c", "sleep 0.2; exit 7", (char *)NULL);
}

TEST(remote_native, a_process_may_become_another_program)
{
	pid_t pid = start(become_another);
	struct native_process *p = open_it(pid);
	bool before = false, after = false;
	int status = 0;

	for (int i = 0;; i++) {
		struct native_stack s;
		struct err err = {0};

		if (i == 20)
			shared->go = 1;
		int r = native_capture_thread(p, pid, NULL, NULL, &err);
		if (r == -ESRCH)
			break;
		CHECK(r == 0 || r == -EBUSY);
		if (r == 0 && native_unwind(p, pid, NULL, &s, &err) == 0) {
			for (unsigned k = 0; k < s.n; k++) {
				before |= i < 20 && !strcmp(s.frames[k].name, "become_another");
				after |= i > 20 && s.whole && strstr(s.frames[k].file, "libc");
			}
			native_stack_release(&s);
		}
		usleep(2000);
	}
	CHECK(before && after);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	native_process_close(p);
}

static void die_now(void *arg, const struct stopped_regs *regs)
{
	(void)arg;
	(void)regs;
	kill(getpid(), SIGKILL);
}

static void die_while_it_stands(void)
{
	uint64_t ns;

	shared->ready = 1;
	thread_stop(traced, traced, die_now, NULL, &ns, NULL);
}

TEST(remote_native, our_own_end_lets_it_go)
{
	int status = 0;

	traced = start(native_level_a);
	shared->ready = 0;
	pid_t sampler = start(die_while_it_stands);
	CHECK_INT(waitpid(sampler, &status, 0), sampler);
	CHECK(WIFSIGNALED(status));
	expect_state(traced, 'S');
	shared->go = 1;
	syscall(SYS_futex, &shared->go, FUTEX_WAKE, 1, NULL, NULL, 0);
	CHECK_INT(waitpid(traced, &status, 0), traced);
	CHECK(WIFEXITED(status));
}

/* --- files --- */

TEST(remote_native, a_program_that_was_deleted)
{
	const char *copy = tmpfile_path("program");
	char command[200], exe[64], runs[200] = "";
	struct native_stack s;
	struct err err = {0};

	snprintf(command, sizeof(command), "cp -L /bin/sleep %s && chmod 755 %s", copy, copy);
	CHECK_INT(system(command), 0);
	pid_t pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(copy, "sleep", "100", (char *)NULL);
		_exit(1);
	}
	snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)pid);
	for (int i = 0; i < 5000 && !strstr(runs, copy); i++, usleep(1000))
		CHECK(readlink(exe, runs, sizeof(runs) - 1) > 0);
	usleep(20000);
	expect_state(pid, 'S');
	CHECK_INT(unlink(copy), 0);
	struct native_process *p = open_it(pid);
	CHECK_INT(native_capture_thread(p, pid, NULL, NULL, &err), 0);
	CHECK_INT(native_unwind(p, pid, NULL, &s, &err), 0);
	CHECK(s.whole);
	CHECK(s.n > 3);
	native_stack_release(&s);
	native_process_close(p);
	finish(pid);
}

/* --- the part of a function that lies elsewhere --- */

#define TABLE_AT 0x400000u
#define CODE_AT 0x500000u

static struct native_bytes made_table(const uint32_t *starts, uint32_t n)
{
	static uint8_t bytes[256];
	int32_t frames = 0;

	memcpy(bytes, "\x01\x1b\x03\x3b", 4);
	memcpy(bytes + 4, &frames, 4);
	memcpy(bytes + 8, &n, 4);
	for (uint32_t i = 0; i < n; i++) {
		int32_t pair[2] = {(int32_t)(starts[i] - TABLE_AT), 0};

		memcpy(bytes + 12 + 8 * i, pair, 8);
	}
	return (struct native_bytes){bytes, 12 + 8 * n, TABLE_AT};
}

/* Code that jumps to each of these places. */
static struct native_bytes made_code(const uint32_t *to, unsigned n)
{
	static uint8_t bytes[256];
	unsigned at = 0;

	memset(bytes, 0, sizeof(bytes));
	for (unsigned i = 0; i < n; i++, at += 8) {
#if defined(__x86_64__)
		int32_t by = (int32_t)(to[i] - (CODE_AT + at) - 5);

		bytes[at] = 0xe9;
		memcpy(bytes + at + 1, &by, 4);
#else
		uint32_t insn = 0x14000000u | (((to[i] - (CODE_AT + at)) / 4) & 0x3ffffffu);

		memcpy(bytes + at, &insn, 4);
#endif
	}
	return (struct native_bytes){bytes, at, CODE_AT};
}

TEST(remote_native, finds_the_part_of_a_function_that_has_no_name)
{
	const uint32_t starts[] = {0x401000, 0x402000, 0x403000, CODE_AT};
	const uint32_t most[] = {0x402100, 0x401000, 0x402ffc, CODE_AT + 8, 0x402000, 0x40a000};
	const uint32_t few[] = {0x402100, 0x401000, 0x402ffc, 0x401004};
	uint64_t start = 0, end = 0;
	struct native_bytes table = made_table(starts, 4), code = made_code(most, 6);

	CHECK_INT(native_cold_part(&table, &code, &start, &end), 0);
	CHECK_INT(start, 0x402000);
	CHECK_INT(end, 0x403000);
	code = made_code(few, 4);
	CHECK_INT(native_cold_part(&table, &code, &start, &end), -ENOENT);
	table.n -= 1;
	CHECK_INT(native_cold_part(&table, &code, &start, &end), -EPROTO);
	table.n = 5;
	CHECK_INT(native_cold_part(&table, &code, &start, &end), -EPROTO);
}
