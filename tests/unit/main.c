/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Runs the registered tests; arguments select by `suite` or `suite.name` prefix. */
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static struct test *tests;

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

static int run_one(const struct test *t)
{
	int status;

	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(120);
		t->fn();
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	if (WIFSIGNALED(status))
		fprintf(stderr, "killed by signal %d\n", WTERMSIG(status));
	return status;
}

int main(int argc, char **argv)
{
	int passed = 0, failed = 0;

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
