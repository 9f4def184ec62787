/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sanitized HOW: a job with threads that allocate, for compilers with -fsanitize. HOW: good; over
 * (writes behind a block); leak; race (two threads write one word); child PROGRAM (a shell that runs
 * it). It ends with 5 unless a sanitizer stops it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *volatile left;
static int shared;

static void *work(void *arg)
{
	const char *how = arg;

	for (size_t i = 0; i < 2000; i++) {
		char *p = malloc(16 + i);
		memset(p, 1, 16 + i);
		p = realloc(p, 8 + i);
		free(p);
	}
	if (!strcmp(how, "race"))
		shared++;
	return NULL;
}

static void write_behind(size_t n)
{
	volatile char *p = malloc(10);

	p[n] = 1;
	free((void *)p);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "good";
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, work, (void *)how);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	puts("has worked");
	fflush(stdout);
	if (!strcmp(how, "over"))
		write_behind((size_t)argc + 8);
	if (!strcmp(how, "leak")) {
		left = malloc(33);
		left = NULL;
	}
	if (!strcmp(how, "child") && argc > 2)
		return system(argv[2]) >> 8;
	return 5;
}
