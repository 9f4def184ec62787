/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Runs the registered tests; arguments select by `suite` or `suite.name` prefix. What a test leaves
 * running ends with it: the orphans of a test are the children of this process. */
#include "test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

static int run_one(const struct test *t)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(120);
		t->fn();
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	if (WIFSIGNALED(status))
		fprintf(stderr, "killed by signal %d\n", WTERMSIG(status));
	end_children();
	return status;
}

int main(int argc, char **argv)
{
	int passed = 0, failed = 0;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (struct test *t = tests; t; t = t->next) {
		if (!selected(t, argc, argv))
			continue;
		int bad = run_one(t);
		if (bad)
			printf("FAIL %s.%s\n", t->suite, t->name);
		*(bad ? &failed : &passed) += 1;
	}
	printf("%d passed, %d failed\n", passed, failed);
	return failed || !passed;
}
