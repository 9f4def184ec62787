/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the daemon costs when nothing happens, and what registered processes add to it.
 *
 *	idle        IPC on, no clients: how often it wakes up (voluntary context switches of all its
 *		    threads), its resident memory, and what of it is its own
 *	registered  10,000 real processes, each of which asked once: resident memory and open files
 *		    more than before; how soon all are forgotten once they are dead
 *
 * The processes share one memory and one socket, so that ten thousand of them fit on a small
 * machine. Beside it, in the same run: a loop that looks every 10 ms whether there is anything to
 *do.
 *
 * Fails above 20 wake-ups a minute, 8 MB resident, 2 MB of its own, 4 MB more for 10,000 processes.
 * Arguments: seconds of idleness (default 20). BENCH_QUICK: 3 seconds, 1,000 processes, and never
 * fails.
 */
#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "daemon_child.h"

#define CHILD_STACK 4096

struct bench {
	struct daemon_child daemon;
	int fd; /* of all children */
	struct bench_request *requests; /* one for each child, in memory that all share */
	char *stacks;
	unsigned nchildren;
	pid_t *children;
};

/* What a child needs: nothing of the C library, whose memory it shares with all others. */
struct child {
	const struct bench *bench;
	struct bench_request *request;
};

static double mb(unsigned long kb)
{
	return (double)kb / 1024;
}

/* Of all threads of a process. */
static unsigned long wake_ups(pid_t pid)
{
	char path[64];
	unsigned long sum = 0;
	struct dirent *e;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		char file[32];

		if (e->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "task/%.10s/status", e->d_name);
		sum += daemon_child_number(pid, file, "voluntary_ctxt_switches:");
	}
	if (dir)
		closedir(dir);
	return sum;
}

static unsigned long open_files(pid_t pid)
{
	char path[64];
	unsigned long n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(path);
	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

/* --- idle --- */

static pid_t start_poller(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		bench_sleep_ms(10);
}

static bool measure_idle(const struct bench *b, unsigned seconds)
{
	pid_t daemon = b->daemon.pid, poller = start_poller();
	unsigned long before = wake_ups(daemon), base = wake_ups(poller);

	bench_sleep_ms(seconds * 1000);
	double per_minute = (double)(wake_ups(daemon) - before) * 60 / seconds;
	double base_per_minute = (double)(wake_ups(poller) - base) * 60 / seconds;
	kill(poller, SIGKILL);
	waitpid(poller, NULL, 0);

	double resident = mb(daemon_child_number(daemon, "status", "VmRSS:"));
	double dirty = mb(daemon_child_number(daemon, "smaps_rollup", "Private_Dirty:"));
	double clean = mb(daemon_child_number(daemon, "smaps_rollup", "Private_Clean:"));
	printf("idle        %.0f wake-ups a minute in %u s (a loop of 10 ms: %.0f)\n", per_minute,
	       seconds, base_per_minute);
	printf("idle        %.2f MB resident, %.2f MB written by itself, %.2f MB more mapped by "
	       "nobody else\n",
	       resident, dirty, clean);
	if (per_minute <= 20 && resident <= 8 && dirty <= 2)
		return true;
	printf("above the budget of 20 wake-ups, 8 MB and 2 MB\n");
	return false;
}

/* --- registered --- */

/* Runs in the child: asks once, by number of system call, and waits to be killed. */
static int child_main(void *arg)
{
	const struct child *c = arg;
	const struct daemon_child *d = &c->bench->daemon;

	syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	c->request->pids[0] = (int32_t)syscall(SYS_getpid);
	syscall(SYS_sendto, c->bench->fd, c->request, sizeof(*c->request), 0, &d->address,
		d->address_len);
	while (true)
		syscall(SYS_pause);
	return 0;
}

/* One more process; false if the machine allows no more. */
static bool add_child(struct bench *b)
{
	static struct child child;
	char *stack = b->stacks + (size_t)(b->nchildren + 1) * CHILD_STACK;
	char answer[4096];

	child = (struct child){b, &b->requests[b->nchildren]};
	bench_request_init(child.request, 0);
	pid_t pid = clone(child_main, stack, CLONE_VM | CLONE_FILES | SIGCHLD, &child);
	if (pid < 0)
		return false;
	b->children[b->nchildren++] = pid;
	/* The answer is to all of them, and tells that `child` is free for the next. */
	if (recv(b->fd, answer, sizeof(answer), 0) < (ssize_t)sizeof(struct fabric_header))
		bench_die("a process was not answered");
	return true;
}

/* How many processes the daemon knows. */
static unsigned long registered(const struct bench *b)
{
	static char reply[1 << 20];
	int fd = bench_rpc_connect(b->daemon.port);
	size_t n =
		bench_rpc_call(fd, "{\"fn\":\"listProcesses\",\"limit\":1}", reply, sizeof(reply));
	const char *at = n ? strstr(reply, "\"total\":") : NULL;

	close(fd);
	if (!at)
		bench_die("the daemon does not list its processes");
	return strtoul(at + strlen("\"total\":"), NULL, 10);
}

static void make_room(struct bench *b, unsigned n)
{
	const struct timeval patience = {.tv_sec = 10};

	b->requests = calloc(n, sizeof(*b->requests));
	b->children = calloc(n, sizeof(*b->children));
	b->stacks = mmap(NULL, (size_t)n * CHILD_STACK, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	b->fd = bench_client_socket(0);
	setsockopt(b->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (!b->requests || !b->children || b->stacks == MAP_FAILED)
		bench_die("no memory");
}

static void kill_children(struct bench *b)
{
	for (unsigned i = 0; i < b->nchildren; i++)
		kill(b->children[i], SIGKILL);
	for (unsigned i = 0; i < b->nchildren; i++)
		waitpid(b->children[i], NULL, 0);
}

static bool measure_registered(struct bench *b, unsigned wanted)
{
	pid_t daemon = b->daemon.pid;

	make_room(b, wanted);
	registered(b); /* what the first call takes is not counted */
	unsigned long before = daemon_child_number(daemon, "status", "VmRSS:");
	unsigned long files = open_files(daemon);
	uint64_t start = bench_now_ns();
	while (b->nchildren < wanted && add_child(b))
		;
	double took = (double)(bench_now_ns() - start) / 1e9;
	unsigned long known = registered(b);
	double more = mb(daemon_child_number(daemon, "status", "VmRSS:") - before);

	printf("registered  %u processes (%lu known) in %.1f s: %.2f MB more resident, %.0f bytes "
	       "each, %lu files more\n",
	       b->nchildren, known, took, more, more * 1048576 / (b->nchildren ? b->nchildren : 1),
	       open_files(daemon) - files);
	kill_children(b);
	start = bench_now_ns();
	while (registered(b) && bench_now_ns() - start < 10000000000u)
		bench_sleep_ms(1);
	printf("registered  %lu known %.0f ms after all are dead\n", registered(b),
	       (double)(bench_now_ns() - start) / 1e6);
	if (b->nchildren < wanted)
		printf("the machine allows no more than %u processes\n", b->nchildren);
	if (known == b->nchildren && more <= 4)
		return true;
	printf("above the budget of 4 MB, or not all are known\n");
	return false;
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--max-processes-per-uid", "20000", NULL};
	bool quick = getenv("BENCH_QUICK");
	unsigned seconds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : quick ? 3 : 20;
	static struct bench b;

	if (!seconds)
		bench_die("seconds must be a number above 0");
	daemon_child_init(&b.daemon);
	daemon_child_start(&b.daemon, options);
	bench_sleep_ms(500);
	bool good = measure_idle(&b, seconds);
	good &= measure_registered(&b, quick ? 1000 : 10000);
	daemon_child_end(&b.daemon);
	return good || quick ? 0 : 1;
}
