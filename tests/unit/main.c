/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Runs the registered tests; arguments select by `suite` or `suite.name` prefix. Most tests wait
 * for something most of the time, so some run beside each other (UNIT_JOBS=1: one by one); what one
 * says comes when it has ended. What a test leaves running ends with it: its orphans are the
 * children of the process that runs it.
 */
#include "test.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_JOBS 4

static struct test *tests;

/* For the address sanitizer. The C library keeps this for a thread until the thread is gone, and a
 * detached one may be a moment late. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:_dlerror_run\n";
}

void test_register(struct test *t)
{
	t->next = tests;
	tests = t;
}

static int selected(const struct test *t, int argc, char **argv)
{
	char full[256];

	snprintf(full, sizeof(full), "%s.%s", t->suite, t->name);
	for (int i = 1; i < argc; i++)
		if (!strncmp(full, argv[i], strlen(argv[i])))
			return 1;
	return argc < 2;
}

static void end_children(void)
{
	char path[64];
	int pid;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	/* Those that end may leave us children of their own. */
	for (;;) {
		FILE *f = fopen(path, "re");
		int n = 0;

		for (; f && fscanf(f, "%d", &pid) == 1; n++)
			kill(pid, SIGKILL);
		if (f)
			fclose(f);
		if (!n)
			return;
		waitpid(-1, NULL, 0);
	}
}

/* What a test said, in one piece. */
static void pass_on(int said)
{
	char piece[4096];
	ssize_t n;

	for (off_t at = 0; (n = pread(said, piece, sizeof(piece), at)) > 0; at += n)
		if (write(STDERR_FILENO, piece, (size_t)n) != n)
			break;
}

static int run_one(const struct test *t)
{
	int said = memfd_create("said", MFD_CLOEXEC), status;

	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(said, STDOUT_FILENO);
		dup2(said, STDERR_FILENO);
		alarm(120);
		t->fn();
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	end_children();
	pass_on(said);
	close(said);
	if (WIFSIGNALED(status))
		fprintf(stderr, "killed by signal %d\n", WTERMSIG(status));
	return status;
}

/* What the processes that run tests have in common. */
struct progress {
	_Atomic int taken, passed, failed;
};

static void run_some(struct progress *p, int argc, char **argv)
{
	int mine = atomic_fetch_add(&p->taken, 1), i = 0;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (struct test *t = tests; t; t = t->next) {
		if (!selected(t, argc, argv) || i++ != mine)
			continue;
		int bad = run_one(t);
		if (bad)
			printf("FAIL %s.%s\n", t->suite, t->name);
		fflush(stdout);
		atomic_fetch_add(bad ? &p->failed : &p->passed, 1);
		mine = atomic_fetch_add(&p->taken, 1);
	}
}

int main(int argc, char **argv)
{
	const char *jobs = getenv("UNIT_JOBS");
	int n = jobs ? atoi(jobs) : DEFAULT_JOBS, bad = 0;
	struct progress *p =
		mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return 1;
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_some(p, argc, argv);
			_exit(0);
		}
		bad |= pid < 0;
	}
	for (int status; wait(&status) > 0;)
		bad |= status;
	printf("%d passed, %d failed\n", p->passed, p->failed);
	return bad || p->failed || !p->passed;
}
