/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * unmaps HOW: a job that treats mappings which it does not know as its own, as checkpointers do, and
 * goes on allocating. HOW: unmap, protect (read-only), advise (empties them), replace (maps its own
 * memory there, and uses it).
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX 64
#define MARK 0x5a

static struct range {
	uint64_t from, to;
} unknown[MAX];
static unsigned nunknown;
static pthread_barrier_t at_taking; /* before and after */
static int waits;

/* What is shared and not ours: this program shares nothing. */
static void find_unknown(void)
{
	static char text[1 << 20];
	size_t len = 0;
	ssize_t n;
	int fd = open("/proc/self/maps", O_RDONLY);

	while ((n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		struct range r;
		char rights[8];
		if (sscanf(line, "%lx-%lx %7s", &r.from, &r.to, rights) == 3 && rights[3] == 's' &&
		    nunknown < MAX)
			unknown[nunknown++] = r;
	}
}

static void take(const struct range *r, const char *how)
{
	void *at = (void *)(uintptr_t)r->from;
	size_t len = r->to - r->from;
	int failed = 0;

	if (!strcmp(how, "unmap"))
		failed = munmap(at, len);
	else if (!strcmp(how, "protect"))
		failed = mprotect(at, len, PROT_READ);
	else if (!strcmp(how, "advise"))
		failed = madvise(at, len, MADV_REMOVE);
	else if (mmap(at, len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != at)
		failed = 1;
	else
		memset(at, MARK, len < 65536 ? len : 65536);
	if (failed)
		exit(97);
}

static void *churn(void *arg)
{
	for (unsigned i = 0; i < 5000; i++) {
		void *volatile p = malloc(16 + i % 100);
		free(p);
	}
	return arg;
}

/*
 * Goes on meanwhile. Where it is looked at who writes, it waits: what a thread has begun to write when its
 * memory is replaced, it ends, and nobody can keep it from that.
 */
static void *churn_beside(void *arg)
{
	churn(arg);
	if (waits) {
		pthread_barrier_wait(&at_taking);
		pthread_barrier_wait(&at_taking);
	}
	return churn(arg);
}

/* Nobody else writes to what is ours. */
static int is_intact(const struct range *r)
{
	size_t len = r->to - r->from < 65536 ? r->to - r->from : 65536;

	for (size_t i = 0; i < len; i++)
		if (((char *)(uintptr_t)r->from)[i] != MARK)
			return 0;
	return 1;
}

int main(int argc, char **argv)
{
	pthread_t other;

	if (argc != 2)
		return 98;
	churn(NULL);
	find_unknown();
	waits = !strcmp(argv[1], "replace");
	pthread_barrier_init(&at_taking, NULL, 2);
	pthread_create(&other, NULL, churn_beside, NULL);
	if (waits)
		pthread_barrier_wait(&at_taking);
	for (unsigned i = 0; i < nunknown; i++)
		take(&unknown[i], argv[1]);
	if (waits)
		pthread_barrier_wait(&at_taking);
	churn(NULL);
	pthread_join(other, NULL);
	if (waits)
		for (unsigned i = 0; i < nunknown; i++)
			if (!is_intact(&unknown[i]))
				return 96;
	puts("goes on");
	return 3;
}
