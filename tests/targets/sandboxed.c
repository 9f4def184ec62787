/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sandboxed HOW WHAT: a job that forbids itself all system calls but those that it needs, and then
 * goes on allocating. It prints what it has seen and ends with 3.
 *
 *	HOW	kill, trap, errno	what a call that is not allowed meets; by prctl()
 *		seccomp			kill, by syscall(SYS_seccomp) and for all threads
 *		thread			kill, by syscall(SYS_prctl) in a second thread
 *		refused			no filter: what is asked for does not exist
 *		strict			SECCOMP_MODE_STRICT: read, write, _exit, sigreturn
 *		exec			errno; then it becomes this program again, in the sandbox
 *	WHAT	heap, driver		whose memory
 *		late			the driver's, for the first time in the sandbox
 *		device			heap, in a process that uses a device
 *		fill			heap, more than a recorder that was stopped has room for
 *		threads, forks		heap, also in threads and children that are made in there
 */
#include "acl/acl.h"
#include "hal/ascend_hal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ALLOW(nr)                                                                                  \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

#define ROUNDS 15000 /* of a pair of events: more than a new arena has room for */
#define LIVE 64

static const char *how, *what;
static volatile sig_atomic_t trapped;

/* --- memory --- */

/* The driver of this job: no system call, so that the sandbox need not know of any. */
int halMemAllocInner(void **pp, unsigned long long size, unsigned long long flag)
{
	static uint64_t next = 0x100000000000;

	(void)flag;
	*pp = (void *)(uintptr_t)__atomic_fetch_add(&next, (size + 4095) & ~4095ull,
						    __ATOMIC_RELAXED);
	return 0;
}

int halMemFreeInner(void *pp)
{
	(void)pp;
	return 0;
}

/* What the simulated driver does once it does here, past any hook. */
static void begin_driver(void)
{
	void *lib = dlopen("libascend_hal.so", RTLD_LAZY | RTLD_NOLOAD), *p;
	int (*alloc)(void **, unsigned long long, unsigned long long) = dlsym(lib, "halMemAlloc");

	if (!alloc || alloc(&p, 16, (uint64_t)HAL_VIRT_DEV << HAL_FLAG_VIRT_SHIFT))
		_exit(97);
}

static int is_driver(void)
{
	return !strcmp(what, "driver") || !strcmp(what, "late");
}

static void *take(size_t size)
{
	void *p = NULL;

	if (!is_driver()) {
		p = malloc(size);
		memset(p, 1, size);
	} else if (halMemAlloc(&p, size, (uint64_t)HAL_VIRT_DEV << HAL_FLAG_VIRT_SHIFT)) {
		return NULL;
	}
	return p;
}

static void give(void *p)
{
	if (is_driver() && p)
		halMemFree(p);
	else
		free(p);
}

/* From different depths, so that call stacks are new ones. */
static __attribute__((noinline)) unsigned long churn(unsigned rounds, unsigned depth)
{
	void *live[LIVE] = {0};
	unsigned long sum = 0;

	if (depth)
		return churn(rounds, depth - 1) | (depth > 1000); /* no jump */
	for (unsigned i = 0; i < rounds; i++) {
		give(live[i % LIVE]);
		live[i % LIVE] = take(16 + i % 700);
		sum += live[i % LIVE] != NULL;
	}
	for (unsigned i = 0; i < LIVE; i++)
		give(live[i]);
	return sum;
}

static void *churn_in_thread(void *arg)
{
	(void)arg;
	return (void *)churn(1000, 7);
}

/* --- the sandbox --- */

static void on_trap(int sig)
{
	(void)sig;
	trapped++;
}

static int install(struct sock_filter *f, size_t n)
{
	struct sock_fprog p = {(unsigned short)n, f};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	if (!strcmp(how, "seccomp"))
		return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
				    &p);
	if (!strcmp(how, "thread"))
		return (int)syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p, 0, 0);
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
}

static uint32_t answer(void)
{
	if (!strcmp(how, "trap"))
		return SECCOMP_RET_TRAP;
	if (!strcmp(how, "errno") || !strcmp(how, "exec"))
		return SECCOMP_RET_ERRNO | EPERM;
	return SECCOMP_RET_KILL_PROCESS;
}

static void enter_sandbox(void)
{
	/* The last ones are for threads and children. */
	bool more = !strcmp(what, "threads") || !strcmp(what, "forks") || !strcmp(what, "fill") ||
		    !strcmp(how, "thread");
	struct sock_filter f[] = {
		LOAD,
		ALLOW(SYS_read),
		ALLOW(SYS_write),
		ALLOW(SYS_exit),
		ALLOW(SYS_exit_group),
		ALLOW(SYS_futex),
		ALLOW(SYS_mmap),
		ALLOW(SYS_munmap),
		ALLOW(SYS_mremap),
		ALLOW(SYS_mprotect),
		ALLOW(SYS_brk),
		ALLOW(SYS_rt_sigreturn),
		ALLOW(SYS_clock_gettime),
		ALLOW(SYS_fstat),
		ALLOW(SYS_newfstatat),
		ALLOW(SYS_lseek),
		ALLOW(SYS_getrandom),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 9, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigaction, 8, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 7, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 6, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_wait4, 5, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_set_robust_list, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rseq, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, answer()),
		BPF_STMT(BPF_RET | BPF_K, more ? SECCOMP_RET_ALLOW : answer()),
	};
	struct sigaction sa = {.sa_handler = on_trap};

	sigaction(SIGSYS, &sa, NULL);
	if (!strcmp(how, "exec")) { /* a loader needs more: only what is odd is refused */
		struct sock_filter odd[] = {
			LOAD,
			ALLOW(SYS_execve),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 2, 0),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ftruncate, 1, 0),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		};
		if (install(odd, sizeof(odd) / sizeof(odd[0])))
			_exit(99);
		return;
	}
	if (!strcmp(how, "refused")) {
		if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) ||
		    !prctl(PR_SET_SECCOMP, 77, f) || !prctl(PR_SET_SECCOMP, 2, 16) ||
		    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1u << 30, f) >= 0)
			_exit(99);
		return;
	}
	if (!strcmp(how, "strict") ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
				   : install(f, sizeof(f) / sizeof(f[0])))
		_exit(99);
}

/* No stdio: its first use makes system calls. */
static void print_result(unsigned long sum)
{
	char line[64];
	int n = snprintf(line, sizeof(line), "%s %s: %lu blocks, %d traps\n", how, what, sum,
			 (int)trapped);

	(void)!write(STDOUT_FILENO, line, (size_t)n);
}

static unsigned long use_threads(void)
{
	unsigned long sum = 0;

	for (int i = 0; i < 20; i++) {
		pthread_t t[2];
		for (int k = 0; k < 2; k++)
			if (pthread_create(&t[k], NULL, churn_in_thread, NULL))
				_exit(98);
		for (int k = 0; k < 2; k++) {
			void *got;
			pthread_join(t[k], &got);
			sum += (unsigned long)got;
		}
	}
	return sum;
}

static unsigned long use_children(void)
{
	unsigned long sum = 0;

	for (int i = 0; i < 3; i++) {
		int status = 0;
		pid_t pid = fork();
		if (pid == 0)
			_exit(churn(1000, 3) == 1000 ? 7 : 1);
		waitpid(pid, &status, 0);
		sum += (unsigned long)WEXITSTATUS(status);
	}
	return sum;
}

static pid_t recorder;

/* Its pid is a word of the control page (src/wire/control_page.h). */
static void stop_recorder(void)
{
	char path[4096];
	uint32_t words[16] = {0};
	int fd;

	if (!getenv("SONDE_SESSION"))
		return;
	snprintf(path, sizeof(path), "%s/session", getenv("SONDE_SESSION"));
	fd = open(path, O_RDONLY);
	if (fd < 0 || read(fd, words, sizeof(words)) != sizeof(words) || !words[11])
		_exit(95);
	close(fd);
	recorder = (pid_t)words[11];
	kill(recorder, SIGSTOP);
}

static void *run(void *arg)
{
	static unsigned long sum;

	(void)arg;
	if (strcmp(what, "late"))
		sum = churn(100, 1);
	else
		begin_driver();
	if (!strcmp(how, "strict")) { /* nothing more comes from the kernel */
		mallopt(M_MMAP_MAX, 0);
		mallopt(M_TRIM_THRESHOLD, INT_MAX);
		void *volatile big = malloc(4 << 20);
		free(big);
	}
	if (!strcmp(what, "device")) {
		if (aclInit(NULL) || aclrtSetDevice(0))
			_exit(96);
		usleep(20000); /* who is woken by that is at it */
	}
	if (!strcmp(what, "fill"))
		stop_recorder();
	enter_sandbox();
	if (!strcmp(what, "fill"))
		sum += churn(12 * ROUNDS, 2);
	if (!strcmp(how, "exec"))
		execl("/proc/self/exe", "sandboxed", "inside", what, (char *)NULL);
	sum += churn(ROUNDS, 2) + churn(10, 40);
	if (!strcmp(what, "threads"))
		sum += use_threads();
	if (!strcmp(what, "forks"))
		sum += use_children();
	print_result(sum);
	if (!strcmp(what, "fill"))
		kill(recorder, SIGCONT);
	if (!strcmp(how, "strict"))
		syscall(SYS_exit, 3);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t second;

	if (argc != 3)
		return 98;
	how = argv[1];
	what = argv[2];
	if (!strcmp(how, "inside")) {
		print_result(churn(ROUNDS, 2));
		return 3;
	}
	if (strcmp(how, "thread")) {
		run(NULL);
	} else {
		pthread_create(&second, NULL, run, NULL);
		pthread_join(second, NULL);
	}
	return 3;
}
