/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Watched memory in one of several stories. Operators are announced by marks, as torch's dispatcher
 * does it; blocks are changed by the runtime's own copy. Prints "done" with and without a
 *recording.
 *
 *	watched STORY
 */
#include "sonde/sonde.h"

#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 100000

static char *block[3]; /* side by side, as far as the device gives them so */

static void mark(const char *text)
{
	errno = 77;
	mstxMarkA(text, NULL);
	if (errno != 77)
		printf("errno %d\n", errno);
}

static void begin(const char *op)
{
	char text[200];

	snprintf(text, sizeof(text), "memscope-aten-b: name=torch._ops.%s", op);
	mark(text);
}

static void end(const char *op)
{
	char text[200];

	snprintf(text, sizeof(text), "memscope-aten-e: name=torch._ops.%s", op);
	mark(text);
}

static void gives(const char *op, const void *p)
{
	char text[500];

	snprintf(text, sizeof(text),
		 "memscope-aten-ac:ptr=%llu;is_write=True;is_read=False;is_output=True;"
		 "name=torch._ops.%s;shape=torch.Size([1, 2]);dtype=torch.float16;tensor_size=%d;"
		 "device=npu:0",
		 (unsigned long long)(uintptr_t)p, op, BYTES);
	mark(text);
}

static void change(void *p, int value)
{
	if (aclrtMemset(p, BYTES, value, BYTES))
		_exit(9);
}

/* An operator that writes `writes`, and says that it gives `says`. */
static void call(const char *op, void *writes, int value, const void *says)
{
	begin(op);
	if (writes)
		change(writes, value);
	if (says)
		gives(op, says);
	end(op);
}

static void start(void)
{
	call("aten.start.default", block[0], 1, block[0]);
}

static void good(void)
{
	start();
	for (int i = 0; i < 20; i++)
		call("aten.add_.Tensor", block[0], i, block[0]);
	call("aten.other.default", block[1], 3, block[1]);
	call("aten.last.default", NULL, 0, NULL);
	change(block[0], 99); /* not watched any longer */
	call("aten.other.default", NULL, 0, NULL);
}

static void during(void)
{
	start();
	call("aten.fine.default", block[1], 3, block[1]);
	call("aten.guilty.default", block[0], 3, block[2]);
	call("aten.last.default", NULL, 0, NULL);
}

static void between(void)
{
	start();
	call("aten.one.default", block[1], 3, block[1]);
	change(block[0], 7);
	call("aten.two.default", block[1], 3, block[1]);
}

static void nested(void)
{
	start();
	begin("aten.outer.default");
	call("aten.fine.default", block[1], 3, block[1]);
	call("aten.guilty.default", block[0], 3, block[1]);
	gives("aten.outer.default", block[2]);
	end("aten.outer.default");
}

static void named(void)
{
	printf("%d", sonde_watch(block[1], BYTES, "kv cache") == sonde_present());
	call("aten.guilty.default", block[1], 3, block[2]);
	sonde_unwatch(block[1]);
	call("aten.other.default", block[1], 4, block[2]);
	printf("%d", sonde_watch_times(block[2], BYTES, "twice", 2) == sonde_present());
	call("aten.other.default", block[1], 4, block[1]);
	call("aten.guilty.default", block[2], 4, block[1]);
	printf("\n");
}

static void freed(void)
{
	start();
	call("aten.fine.default", NULL, 0, NULL);
	if (aclrtFree(block[0]))
		_exit(9);
	call("aten.fine.default", NULL, 0, NULL);
	call("aten.fine.default", NULL, 0, NULL);
}

static int step;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

static void reach(int n)
{
	pthread_mutex_lock(&lock);
	while (step < n - 1)
		pthread_cond_wait(&moved, &lock);
	step = n;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
}

static void *writer(void *arg)
{
	(void)arg;
	(void)aclrtSetDevice(0);
	reach(1);
	begin("aten.late.default");
	change(block[0], 5);
	reach(2);
	reach(5);
	gives("aten.late.default", block[0]);
	end("aten.late.default");
	return NULL;
}

/* Another thread's operator sees the change before the writer has said a word. */
static void threads(void)
{
	pthread_t t;

	start();
	pthread_create(&t, NULL, writer, NULL);
	reach(3);
	call("aten.bystander.default", NULL, 0, NULL);
	reach(4);
	pthread_join(t, NULL);
}

static void forks(void)
{
	start();
	pid_t pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 5; i++)
			call("aten.child.default", NULL, 0, NULL);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	call("aten.fine.default", NULL, 0, NULL);
}

static void killed(void)
{
	during();
	kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} stories[] = {
		{"good", good},	      {"during", during}, {"between", between},
		{"nested", nested},   {"named", named},	  {"freed", freed},
		{"threads", threads}, {"forks", forks},	  {"killed", killed},
	};

	if (aclInit(NULL) || aclrtSetDevice(0))
		return 9;
	for (int i = 0; i < 3; i++)
		if (aclrtMalloc((void **)&block[i], BYTES, ACL_MEM_MALLOC_NORMAL_ONLY))
			return 9;
	for (size_t i = 0; argc > 1 && i < sizeof(stories) / sizeof(stories[0]); i++)
		if (!strcmp(argv[1], stories[i].name))
			stories[i].fn();
	printf("done\n");
	return 0;
}
