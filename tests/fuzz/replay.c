/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Runs a fuzz target without a fuzzer: over every file of its corpus and over a fixed number of
 * mutations of them, the same ones on every machine. It finds what has rotted, not what is deep;
 * `make fuzz` searches.
 *
 *	replay [-n MUTATIONS] [-s SEED] [-o CRASH_FILE] FILE|DIRECTORY...
 *
 * Every input lies in a heap block of exactly its size, so that a sanitizer sees the first byte
 * read past the end. The input that a sanitizer stops at is kept in CRASH_FILE.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INPUT_MAX = 1 << 20 };

struct input {
	uint8_t *data;
	size_t len;
};

struct corpus {
	struct input *inputs;
	size_t count;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);
__attribute__((weak)) void __sanitizer_set_death_callback(void (*fn)(void));

static struct input current;
static const char *crash_file = "crash-input";

static void keep_current(void)
{
	int fd = open(crash_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		return;
	if (write(fd, current.data, current.len) == (ssize_t)current.len)
		fprintf(stderr, "the input is in %s (%zu bytes)\n", crash_file, current.len);
	close(fd);
}

static void *must(void *p)
{
	if (!p) {
		perror("replay");
		exit(2);
	}
	return p;
}

static void run(const uint8_t *data, size_t len)
{
	/* malloc(0) may be NULL, and a target may be given no bytes but never no pointer */
	uint8_t *exact = must(malloc(len ? len : 1));

	if (len)
		memcpy(exact, data, len);
	current = (struct input){exact, len};
	LLVMFuzzerTestOneInput(exact, len);
	free(exact);
}

/* splitmix64: small, and the same everywhere, which rand() is not */
static uint64_t next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t n)
{
	return n ? next(state) % n : 0;
}

/* Lengths and counts break parsers at their ends, so these go in at every width. */
static void put_extreme(uint64_t *s, uint8_t *data, size_t len)
{
	static const uint64_t values[] = {
		0,	1,	    0x7f,	0x80,	    0xff,      0x7fff,
		0xffff, 0x7fffffff, 0x80000000, 0xffffffff, INT64_MAX, UINT64_MAX,
	};
	uint64_t v = values[below(s, sizeof(values) / sizeof(*values))];
	size_t width = (size_t)1 << below(s, 4);

	if (len >= width)
		memcpy(data + below(s, len - width + 1), &v, width);
}

/* Moves a piece of `from` into `data`, over what is there or between; gives the new length. */
static size_t transplant(uint64_t *s, uint8_t *data, size_t len, const struct input *from)
{
	size_t at = below(s, len + 1);
	size_t start = below(s, from->len + 1);
	size_t n = below(s, from->len - start + 1);

	if (at + n > INPUT_MAX || len + n > INPUT_MAX)
		return len;
	if (next(s) & 1) {
		memmove(data + at + n, data + at, len - at);
		len += n;
	} else if (at + n > len) {
		len = at + n;
	}
	if (n)
		memcpy(data + at, from->data + start, n);
	return len;
}

static size_t mutate(uint64_t *s, uint8_t *data, size_t len, const struct corpus *c)
{
	size_t at = below(s, len), n;

	switch (below(s, 6)) {
	case 0: /* the file ends early */
		return below(s, len + 1);
	case 1:
		if (len)
			data[at] ^= (uint8_t)(1u << below(s, 8));
		return len;
	case 2:
		if (len)
			data[at] = (uint8_t)next(s);
		return len;
	case 3:
		put_extreme(s, data, len);
		return len;
	case 4: /* a piece is missing */
		n = below(s, len - at + 1);
		memmove(data + at, data + at + n, len - at - n);
		return len - n;
	default:
		return transplant(s, data, len, &c->inputs[below(s, c->count)]);
	}
}

static void run_mutations(const struct corpus *c, long count, uint64_t seed)
{
	uint8_t *data = must(malloc(INPUT_MAX));

	for (long i = 0; i < count; i++) {
		const struct input *in = &c->inputs[below(&seed, c->count)];
		size_t len = in->len;

		memcpy(data, in->data, len);
		for (size_t n = 1 + below(&seed, 4); n > 0; n--)
			len = mutate(&seed, data, len, c);
		run(data, len);
	}
	free(data);
}

static void add(struct corpus *c, uint8_t *data, size_t len)
{
	c->inputs = must(realloc(c->inputs, (c->count + 1) * sizeof(*c->inputs)));
	c->inputs[c->count++] = (struct input){data, len};
}

static void add_file(struct corpus *c, const char *path)
{
	FILE *f = must(fopen(path, "rb"));
	uint8_t *data = must(malloc(INPUT_MAX));
	size_t len = fread(data, 1, INPUT_MAX, f);

	fclose(f);
	add(c, data, len);
}

static void add_path(struct corpus *c, const char *path)
{
	struct dirent **entries;
	struct stat st;

	if (stat(path, &st) < 0)
		return;
	if (!S_ISDIR(st.st_mode)) {
		add_file(c, path);
		return;
	}
	int n = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char *full;
		if (entries[i]->d_name[0] != '.' &&
		    asprintf(&full, "%s/%s", path, entries[i]->d_name) >= 0) {
			add_path(c, full);
			free(full);
		}
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
}

int main(int argc, char **argv)
{
	struct corpus c = {0};
	long mutations = 2000;
	uint64_t seed = 1;
	int opt;

	if (LLVMFuzzerInitialize)
		LLVMFuzzerInitialize(&argc, &argv);
	if (__sanitizer_set_death_callback)
		__sanitizer_set_death_callback(keep_current);
	while ((opt = getopt(argc, argv, "n:o:s:")) != -1) {
		if (opt == 'n')
			mutations = strtol(optarg, NULL, 0);
		else if (opt == 'o')
			crash_file = optarg;
		else if (opt == 's')
			seed = strtoull(optarg, NULL, 0);
		else
			return 2;
	}
	for (int i = optind; i < argc; i++)
		add_path(&c, argv[i]);
	size_t files = c.count;
	add(&c, must(calloc(1, 64)), 64); /* a target without a corpus is still tried */

	run((const uint8_t *)"", 0);
	for (size_t i = 0; i < c.count; i++)
		run(c.inputs[i].data, c.inputs[i].len);
	run_mutations(&c, mutations, seed);
	printf("%s: %zu files, %ld mutations\n", argv[0], files, mutations);
	for (size_t i = 0; i < c.count; i++)
		free(c.inputs[i].data);
	free(c.inputs);
	return 0;
}
