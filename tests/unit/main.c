/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Runs the registered tests; arguments select by `suite` or `suite.name` prefix. Most tests wait
 * for something most of the time, so some run beside each other (UNIT_JOBS=1: one by one); the
 * output of a test comes when it has ended. What a test leaves running ends with it: its orphans
 * are the children of the process that runs it. The last lines name the slowest tests
 * (UNIT_SLOWEST, default 5), those that were skipped, and the counts.
 *
 * UNIT_NOTE_THREADS=FILE writes the names of the tests that started a thread or set a signal handler,
 * UNIT_LIST=FILE runs those of such a file: to all others the thread sanitizer has nothing to say.
 */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_JOBS 4
#define DEFAULT_SLOWEST 5
#define AGAIN 3 /* failed tests that run once more */
#define CAPABILITIES "tests/capabilities"
#define EXIT_SKIPPED 77
#define LIMIT_S 300 /* of a test: a sanitizer on a busy machine takes its time */

static struct test *tests;

/* What the processes that run tests have in common. */
static struct shared {
	_Atomic int taken, passed, failed, skipped;
	const struct test *again[AGAIN]; /* the first ones that failed */
	struct outcome {
		long ms;
		_Atomic int concurrent; /* threads or signal handlers */
	} of[]; /* of each test, in the order of `tests` */
} * shared;
static int current; /* the number of the test that runs */
static char *skip_reason; /* shared by a runner and its test */
#define REASON_BYTES 4096
static char *listed; /* what UNIT_LIST names, a line each; NULL: every test */

/* For the address sanitizer. The C library keeps this for a thread until the thread is gone, and a
 * detached one may be a moment late. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:_dlerror_run\n";
}

/* All our code is linked with --wrap for these two (mk/tests.mk). */
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	shared->of[current].concurrent = 1;
	return __real_pthread_create(thread, attr, fn, arg);
}

int __real_sigaction(int, const struct sigaction *, struct sigaction *);
int __wrap_sigaction(int, const struct sigaction *, struct sigaction *);
int __wrap_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	if (act && act->sa_handler != SIG_IGN && act->sa_handler != SIG_DFL)
		shared->of[current].concurrent = 1;
	return __real_sigaction(sig, act, old);
}

void test_register(struct test *t)
{
	t->next = tests;
	tests = t;
}

/* Whether CI=true makes a test that lacks this capability fail. Unknown names do, too. */
static int is_required(const char *capability)
{
	const char *ci = getenv("CI");
	char line[256], name[64], kind[64];
	int required = 1;

	if (!ci || strcmp(ci, "true") != 0)
		return 0;
	FILE *f = fopen(CAPABILITIES, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63s %63s", name, kind) == 2 && !strcmp(name, capability))
			required = strcmp(kind, "machine") != 0;
	if (f)
		fclose(f);
	return required;
}

void test_skip(const char *capability, const char *reason)
{
	if (capability && is_required(capability)) {
		fprintf(stderr, "%s is missing, and required with CI=true: %s\n", capability,
			reason);
		exit(1);
	}
	snprintf(skip_reason, REASON_BYTES, "%s%s%s", capability ? capability : "",
		 capability ? ": " : "", reason);
	/* not exit(): a test that ends early leaves what it holds, which is no leak */
	_exit(EXIT_SKIPPED);
}

static int is_selected(const struct test *t, int argc, char **argv)
{
	char full[256];

	snprintf(full, sizeof(full), "%s.%s\n", t->suite, t->name);
	if (listed && !strstr(listed, full))
		return 0;
	for (int i = 1; i < argc; i++)
		if (!strncmp(full, argv[i], strlen(argv[i])))
			return 1;
	return argc < 2;
}

/* Tests count on the defaults: nohup and background shells leave some signals ignored. */
static void reset_signals(void)
{
	struct sigaction sa;
	sigset_t none;

	/* only those: a sanitizer has handlers of its own */
	for (int sig = 1; sig < NSIG; sig++)
		if (!sigaction(sig, NULL, &sa) && sa.sa_handler == SIG_IGN)
			signal(sig, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
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

/* The output of a test, in one piece. */
static void copy_output(int from)
{
	char piece[4096];
	ssize_t n;

	for (off_t at = 0; (n = pread(from, piece, sizeof(piece), at)) > 0; at += n)
		if (write(STDERR_FILENO, piece, (size_t)n) != n)
			break;
}

static int run_test(const struct test *t)
{
	int output = memfd_create("output", MFD_CLOEXEC), status;

	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(output, STDOUT_FILENO);
		dup2(output, STDERR_FILENO);
		alarm(LIMIT_S);
		t->fn();
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	end_children();
	copy_output(output);
	close(output);
	if (WIFSIGNALED(status))
		fprintf(stderr, "killed by signal %d\n", WTERMSIG(status));
	return status;
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void run_and_count(const struct test *t, int number)
{
	long began = now_ms();

	current = number;
	int status = run_test(t);

	shared->of[number].ms = now_ms() - began;
	if (!status) {
		atomic_fetch_add(&shared->passed, 1);
	} else if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED) {
		printf("SKIP %s.%s: %s\n", t->suite, t->name, skip_reason);
		atomic_fetch_add(&shared->skipped, 1);
	} else {
		int nth = atomic_fetch_add(&shared->failed, 1);

		printf("FAIL %s.%s\n", t->suite, t->name);
		if (nth < AGAIN)
			shared->again[nth] = t;
	}
	fflush(stdout);
}

static void *map_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Takes the next test that nobody has taken, until there are no more. */
static void run_some(int argc, char **argv)
{
	int mine = atomic_fetch_add(&shared->taken, 1), selected = 0, number = 0;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	skip_reason = map_shared(REASON_BYTES);
	for (struct test *t = tests; t && skip_reason; t = t->next, number++) {
		if (!is_selected(t, argc, argv) || selected++ != mine)
			continue;
		run_and_count(t, number);
		mine = atomic_fetch_add(&shared->taken, 1);
	}
}

static void print_slowest(int n)
{
	for (; n > 0; n--) {
		const struct test *slowest = NULL;
		long ms = 0;
		int number = 0, at = 0;

		for (struct test *t = tests; t; t = t->next, number++)
			if (shared->of[number].ms > ms) {
				slowest = t;
				at = number;
				ms = shared->of[number].ms;
			}
		if (!slowest)
			return;
		printf("slow: %6.2f s  %s.%s\n", (double)ms / 1000, slowest->suite, slowest->name);
		shared->of[at].ms = 0;
	}
}

/*
 * On few processors one of a thousand may come too late for what it waits for: a few tests that
 * failed beside others run once more, alone. Those that pass then are named, to be repaired.
 */
static void run_again(void)
{
	int n = shared->failed;

	for (int i = 0; n <= AGAIN && i < n; i++) {
		const struct test *t = shared->again[i];

		if (run_test(t))
			continue;
		printf("unsteady: %s.%s: failed beside others, passed alone\n", t->suite, t->name);
		atomic_fetch_sub(&shared->failed, 1);
		atomic_fetch_add(&shared->passed, 1);
	}
}

/* An empty list selects every test: it is no answer to "which ones". */
static void read_list(const char *path)
{
	size_t bytes = 0;
	FILE *f = path ? fopen(path, "re") : NULL;

	if (f && getdelim(&listed, &bytes, '\0', f) <= 0) {
		free(listed);
		listed = NULL;
	}
	if (f)
		fclose(f);
}

static int write_list(const char *path)
{
	FILE *f = path ? fopen(path, "we") : NULL;
	int number = 0;

	if (!f)
		return path != NULL;
	for (struct test *t = tests; t; t = t->next, number++)
		if (shared->of[number].concurrent)
			fprintf(f, "%s.%s\n", t->suite, t->name);
	return fclose(f) != 0;
}

static int number_of(const char *variable, int otherwise)
{
	const char *text = getenv(variable);

	return text ? atoi(text) : otherwise;
}

int main(int argc, char **argv)
{
	int jobs = number_of("UNIT_JOBS", DEFAULT_JOBS), bad = 0;
	size_t n = 0;

	for (struct test *t = tests; t; t = t->next)
		n++;
	shared = map_shared(sizeof(*shared) + n * sizeof(shared->of[0]));
	if (!shared)
		return 1;
	read_list(getenv("UNIT_LIST"));
	reset_signals();
	for (int i = 0; i < jobs; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_some(argc, argv);
			_exit(0);
		}
		bad |= pid < 0;
	}
	for (int status; wait(&status) > 0;)
		bad |= status;
	if (jobs > 1 && shared->failed) {
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		skip_reason = map_shared(REASON_BYTES);
		run_again();
	}
	bad |= write_list(getenv("UNIT_NOTE_THREADS"));
	if (argc < 2)
		print_slowest(number_of("UNIT_SLOWEST", DEFAULT_SLOWEST));
	printf("%d passed, %d failed, %d skipped\n", shared->passed, shared->failed,
	       shared->skipped);
	return bad || shared->failed || !(shared->passed + shared->skipped);
}
