/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Launches kernels and looks at itself: atb_kernels N [STEP…]
 *
 * First N launches of "FirstKernel" on each of two streams. Steps, in order:
 *	threads	print how many threads of this process are not the job's, with their names
 *	blocked	print whether those threads have every signal blocked
 *	fork	a child launches "FirstKernel" and "ChildKernel" N times each
 *	finalize, again	aclFinalize(), then launch once more
 *	exit, _exit, return	how to end (default return)
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl/acl.h"
#include "sim/kernel.h"

#define STREAMS 2

static long n;
static void *streams[STREAMS];

static void launch_all(const char *name)
{
	void *kernel = sim_kernel_register(name, 50000, NULL);

	for (long i = 0; i < n * STREAMS; i++)
		if (aclrtLaunchKernel(kernel, 1, "x", 1, streams[i % STREAMS]))
			exit(1);
	if (aclrtSynchronizeDevice())
		exit(1);
}

static void open_device(void)
{
	if (aclrtSetDevice(getenv("DEVICE") ? atoi(getenv("DEVICE")) : 0))
		exit(1);
	for (int i = 0; i < STREAMS; i++)
		if (aclrtCreateStream(&streams[i]))
			exit(1);
}

static int read_text(const char *tid, const char *file, char *out, size_t size)
{
	char path[300];

	snprintf(path, sizeof(path), "/proc/self/task/%s/%s", tid, file);
	FILE *f = fopen(path, "r");
	size_t len = f ? fread(out, 1, size - 1, f) : 0;
	out[len] = '\0';
	if (f)
		fclose(f);
	return len > 0;
}

/* Threads that are neither ours nor the simulated device's. */
static void print_threads(int blocked)
{
	usleep(100000); /* a new thread takes its name as its first act */
	DIR *d = opendir("/proc/self/task");
	char text[4096], tid[16];
	int others = 0;

	snprintf(tid, sizeof(tid), "%d", (int)getpid());
	for (struct dirent *e = readdir(d); e; e = readdir(d)) {
		if (*e->d_name == '.' || !strcmp(e->d_name, tid) ||
		    !read_text(e->d_name, "comm", text, sizeof(text)) ||
		    !strncmp(text, "sim-stream", 10))
			continue;
		others++;
		if (!blocked) {
			printf("thread %s", text);
			continue;
		}
		read_text(e->d_name, "status", text, sizeof(text));
		const char *mask = strstr(text, "SigBlk:");
		/* The C library keeps two for itself, the kernel SIGKILL and SIGSTOP. */
		printf("blocked %.16s\n", mask ? mask + 8 : "?");
	}
	closedir(d);
	printf("others %d\n", others);
}

static void fork_child(void)
{
	int status = 1;

	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		print_threads(0);
		open_device();
		launch_all("FirstKernel");
		launch_all("ChildKernel");
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		printf("child failed: %x\n", status);
	printf("child %d\n", (int)pid);
}

int main(int argc, char **argv)
{
	n = argc > 1 ? atol(argv[1]) : 10;
	if (aclInit(NULL))
		return 1;
	open_device();
	launch_all("FirstKernel");
	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "threads") || !strcmp(argv[i], "blocked"))
			print_threads(argv[i][0] == 'b');
		else if (!strcmp(argv[i], "fork"))
			fork_child();
		else if (!strcmp(argv[i], "finalize"))
			printf("finalize %d\n", aclFinalize());
		else if (!strcmp(argv[i], "again"))
			launch_all("LastKernel");
		else if (!strcmp(argv[i], "exit"))
			exit(5);
		else if (!strcmp(argv[i], "_exit")) {
			fflush(NULL);
			_exit(6);
		}
	}
	return 0;
}
