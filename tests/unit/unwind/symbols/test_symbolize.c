/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/symbols/symbolize.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "test.h"
#include "unwind/symbols/symbol_file.h"

static uint64_t start, end, bias;
static char exe[512];

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	(void)arg;
	bias = info->dlpi_addr;
	start = ~0ull;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type != PT_LOAD)
			continue;
		uint64_t a = bias + p->p_vaddr, b = a + p->p_memsz;
		start = a < start ? a & ~4095ull : start;
		end = b > end ? (b + 4095) & ~4095ull : end;
	}
	return 1; /* the program comes first */
}

static void find_self(void)
{
	dl_iterate_phdr(visit, NULL);
	CHECK(start < end && readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
}

static uint64_t return_address;

static inline __attribute__((always_inline)) void inlined_helper(void)
{
#if defined(__x86_64__)
	__asm__ volatile("leaq 0f(%%rip), %0\n0: nop" : "=r"(return_address));
#else
	__asm__ volatile("adr %0, 0f\n0: nop" : "=r"(return_address));
#endif
}

__attribute__((noinline)) void symbolize_me(void);
__attribute__((noinline)) void symbolize_me(void)
{
	__asm__ volatile("nop\n\tnop");
	inlined_helper();
	__asm__ volatile("nop");
}

/* The lines of one address, with the own program found under `path`. */
static const char *lines(const char *path, uint64_t pc)
{
	static struct buf out;
	struct symbolizer *s = symbolizer_new();

	symbolizer_add_module(s, start, end, bias, path, strlen(path));
	buf_clear(&out);
	symbolizer_stack(s, &pc, 1, &out);
	struct buf again = {0};
	symbolizer_stack(s, &pc, 1, &again);
	CHECK_STR(buf_str(&again), buf_str(&out));
	buf_release(&again);
	symbolizer_free(s);
	return buf_str(&out);
}

TEST(symbolize, own_function_and_inlined_one)
{
	char want[700];

	find_self();
	symbolize_me();
	const char *text = lines(exe, return_address + 1);
	snprintf(want, sizeof(want), "%s(inlined_helper [inlined]) [0x%llx] ", exe,
		 (unsigned long long)return_address + 1);
	CHECK(!strncmp(text, want, strlen(want)));
	CHECK(strstr(text, "tests/unit/unwind/symbols/test_symbolize.c:"));
	const char *second = strchr(text, '\n') + 1;
	snprintf(want, sizeof(want), "%s(symbolize_me+0x%llx) [0x%llx] ", exe,
		 (unsigned long long)(return_address + 1 - (uint64_t)(uintptr_t)symbolize_me),
		 (unsigned long long)return_address + 1);
	CHECK(!strncmp(second, want, strlen(want)));
	CHECK(strstr(second, "tests/unit/unwind/symbols/test_symbolize.c:"));
	CHECK(strchr(second, '\n')[1] == 0);
	symbol_files_drop();
}

/* Whether the C library's debug file is installed or not: unpacking that takes longer than most answers. */
TEST(symbolize, c_library_has_names_and_no_lines)
{
	uint64_t pc = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "getppid") + 1;
	struct symbolizer *s = symbolizer_new();
	struct buf out = {0};
	Dl_info lib;
	char path[512];

	CHECK(dladdr((void *)(uintptr_t)pc, &lib) && realpath(lib.dli_fname, path));
	if (!strstr(path, "/libc"))
		SKIP("the C library is not apart");
	uint64_t base = (uint64_t)(uintptr_t)lib.dli_fbase;
	symbolizer_add_module(s, base, base + (1 << 20), base, path, strlen(path));
	symbolizer_stack(s, &pc, 1, &out);
	CHECK(strstr(buf_str(&out), "getppid+0x1) ["));
	CHECK(!strstr(buf_str(&out), ".c:") && !strstr(buf_str(&out), ".S:"));
	symbolizer_free(s);
	buf_release(&out);
	symbol_files_drop();
}

static void check_bare(const char *path, uint64_t pc)
{
	char want[700];

	snprintf(want, sizeof(want), "%s(+0x%llx) [0x%llx]\n", path,
		 (unsigned long long)(pc - bias), (unsigned long long)pc);
	CHECK_STR(lines(path, pc), want);
}

TEST(symbolize, nothing_known)
{
	struct symbolizer *s = symbolizer_new();
	uint64_t pc[] = {0x1234, 0};
	struct buf out = {0};

	find_self();
	symbolizer_stack(s, pc, 2, &out);
	CHECK_STR(buf_str(&out), "[0x1234]\n[0x0]\n");
	symbolizer_free(s);
	symbolizer_free(NULL);
	buf_release(&out);
	uint64_t me = (uint64_t)(uintptr_t)symbolize_me + 2;
	check_bare("/nonexistent/program", me);
	check_bare("/nonexistent/program (deleted)", me);
	check_bare("[vdso]", me);
	check_bare("", me);
	check_bare("relative/path", me);
	check_bare("/dev/zero", me);
	check_bare("/", me);
	check_bare("/proc/self/maps", me);
}

TEST(symbolize, newest_module_wins)
{
	struct symbolizer *s = symbolizer_new();
	uint64_t pc = 0x5000;
	struct buf out = {0};

	symbolizer_stack(s, &pc, 1, &out);
	symbolizer_add_module(s, 0x4000, 0x8000, 0x1000, "/a\nb", 4);
	symbolizer_stack(s, &pc, 1, &out);
	symbolizer_add_module(s, 0x1000, 0x6000, 0x2000, "/b", 2);
	symbolizer_stack(s, &pc, 1, &out);
	symbolizer_add_module(s, 0x1000, 0x6000, 0x2000, "/b", 2);
	symbolizer_add_module(s, 9, 9, 0, "/c", 2);
	pc = 0x7000;
	symbolizer_stack(s, &pc, 1, &out);
	CHECK_STR(buf_str(&out), "[0x5000]\n/a?b(+0x4000) [0x5000]\n/b(+0x3000) [0x5000]\n"
				 "/a?b(+0x6000) [0x7000]\n");
	symbolizer_free(s);
	buf_release(&out);
}

static char *read_all(const char *path, size_t *out_len)
{
	int fd = open(path, O_RDONLY);
	struct stat st;

	CHECK(fd >= 0 && !fstat(fd, &st));
	char *data = malloc((size_t)st.st_size);
	CHECK(data && read(fd, data, (size_t)st.st_size) == st.st_size);
	close(fd);
	*out_len = (size_t)st.st_size;
	return data;
}

static void write_all(const char *path, const char *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0 && write(fd, data, len) == (ssize_t)len);
	close(fd);
}

static const char *temp_path(void)
{
	static char path[64] = "/tmp/sonde-symbolize-XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	close(fd);
	return path;
}

TEST(symbolize, stripped_program)
{
	const char *path = temp_path();
	pid_t pid = fork();
	int status;

	find_self();
	if (pid == 0) {
		execlp("strip", "strip", "-o", path, exe, (char *)NULL);
		_exit(127);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (status == 0) {
		/* Not exported, so nothing is left; a function of the dynamic table would be. */
		const char *text = lines(path, (uint64_t)(uintptr_t)symbolize_me + 2);
		CHECK(!strncmp(text, path, strlen(path)) && !strstr(text, "test_symbolize.c"));
	}
	unlink(path);
	symbol_files_drop();
}

TEST(symbolize, garbage_file)
{
	const char *path = temp_path();
	char junk[4096];

	find_self();
	for (size_t i = 0; i < sizeof(junk); i++)
		junk[i] = (char)(i * 7919 >> 3);
	write_all(path, junk, sizeof(junk));
	check_bare(path, (uint64_t)(uintptr_t)symbolize_me + 2);
	memcpy(junk, "\177ELF\2\1\1", 8);
	write_all(path, junk, sizeof(junk));
	check_bare(path, (uint64_t)(uintptr_t)symbolize_me + 2);
	unlink(path);
	symbol_files_drop();
}

TEST(symbolize, truncated_program)
{
	const char *path = temp_path();
	size_t len;

	find_self();
	char *data = read_all(exe, &len);
	for (size_t i = 0; i <= 60; i++) {
		write_all(path, data, i < 20 ? i * 64 : len / 60 * i);
		CHECK(strstr(lines(path, (uint64_t)(uintptr_t)symbolize_me + 2), path));
		symbol_files_drop();
	}
	free(data);
	unlink(path);
}

TEST(symbolize, damaged_program)
{
	const char *path = temp_path();
	uint32_t seed = 99;
	size_t len;

	find_self();
	symbolize_me();
	char *data = read_all(exe, &len), *copy = malloc(len);
	for (int round = 0; round < 60; round++) {
		memcpy(copy, data, len);
		for (int i = 0; i < 400; i++) {
			seed = seed * 1664525 + 1013904223;
			size_t at = seed % len;
			if (i % 4 == 0 && round % 2)
				at = len - 1 - at % 4096; /* section headers */
			if (at > 4096 || i % 40 == 0)
				copy[at] ^= (char)(seed >> 24);
		}
		write_all(path, copy, len);
		CHECK(strstr(lines(path, return_address + 1), path));
		symbol_files_drop();
	}
	free(copy);
	free(data);
	unlink(path);
}
