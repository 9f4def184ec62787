/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/remote/find/find.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"
#include "unwind/remote/find/elf.h"
#include "unwind/remote/find/eperm.h"
#include "unwind/remote/find/process.h"
#include "unwind/remote/find/version.h"

/* --- /proc/PID/maps --- */

static struct map_line one_line(const char *text)
{
	const char *at = text;
	struct map_line m;

	CHECK(maps_next(&at, text + strlen(text), &m));
	return m;
}

static bool path_is(const struct map_line *m, const char *path)
{
	return m->path_len == strlen(path) && memcmp(m->path, path, m->path_len) == 0;
}

TEST(remote_find_maps, reads_a_line)
{
	struct map_line m = one_line(
		"7f2b40000000-7f2b40200000 r-xp 00200000 fe:01 4711          /opt/my env/a.so\n");

	CHECK(m.start == 0x7f2b40000000 && m.end == 0x7f2b40200000 && m.offset == 0x200000);
	CHECK(m.readable && !m.writable && m.executable && !m.deleted);
	CHECK(m.inode == 4711 && m.device == (0xfeull << 32 | 1));
	CHECK(path_is(&m, "/opt/my env/a.so"));
}

TEST(remote_find_maps, knows_deleted_files_and_those_without_a_name)
{
	struct map_line m = one_line("1000-2000 rw-p 00000000 00:2c 9 /tmp/x (deleted)");

	CHECK(m.deleted && path_is(&m, "/tmp/x"));
	m = one_line("1000-2000 rw-p 00000000 00:00 0 ");
	CHECK(m.inode == 0 && m.path_len == 0 && !m.deleted);
}

TEST(remote_find_maps, leaves_out_what_makes_no_sense)
{
	static const char text[] = "\n-\nnonsense\n2000-1000 r--p 0 0:0 0 /backwards\n"
				   "10000000000000000000-2 r--p 0 0:0 0 /too/large\n1000-2000 r-";
	const char *at = text;
	struct map_line m;

	CHECK(!maps_next(&at, text + strlen(text), &m));
}

/* --- versions --- */

static uint32_t version_in(const char *text)
{
	char bytes[VERSION_TEXT * 2] = {0};
	uint32_t version = 0;

	snprintf(bytes + 8, sizeof(bytes) - 8, "%s", text);
	return version_find(bytes, sizeof(bytes), &version) ? version : 0;
}

TEST(remote_find_version, reads_the_text_of_sys_version)
{
	CHECK(version_in("3.9.18 (main, Aug 2 2023, 10:00:00) \n[GCC 12.2.0]") == 0x030912f0);
	CHECK(version_in("3.15.0a7 (main, Jan 1 2026, 10:00:00) [Clang 19]") == 0x030f00a7);
	CHECK(version_in("3.13.0rc2+ free-threading build (tags/x, Oct 1) [GCC 14]") == 0x030d00c2);
	CHECK(version_in("3.10.13 | packaged by conda-forge | (main, Oct 26 2023, 18:07:37) "
			 "[GCC 12.3.0]") == 0x030a0df0);
	CHECK(version_in("2.7.18 (default, Jan 1 2024, 10:00:00) \n[GCC 12.2.0]") == 0x020712f0);
}

TEST(remote_find_version, is_not_fooled_by_other_versions)
{
	CHECK(version_in("3.45.1") == 0);
	CHECK(version_in("3.45.1 2024-01-30 16:01:20") == 0);
	CHECK(version_in("3.9.18 (main") == 0);
	CHECK(version_in("13.9.18 (main, x) [GCC]") == 0);
	CHECK(version_in("5.2.15 (1)-release [x]") == 0);
	CHECK(version_in("3..") == 0);
}

/* --- binaries in memory: our own --- */

static uint64_t base_of(const void *addr)
{
	Dl_info info;

	CHECK(dladdr(addr, &info));
	return (uint64_t)(uintptr_t)info.dli_fbase;
}

TEST(remote_find_elf, finds_exported_symbols_like_the_loader)
{
	uint64_t expected = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "qsort");
	struct elf_image image;
	struct elf_symbol s;
	struct remote r;

	remote_init(&r, getpid());
	CHECK(elf_image_open(&r.reader, base_of((void *)(uintptr_t)expected), &image) == 0);
	CHECK(image.gnu_hash);
	CHECK(elf_symbol_find(&image, "qsort", &s) == 0 && s.addr == expected && s.bytes > 0);
	CHECK(elf_symbol_find(&image, "no_such_function", &s) == -ENOENT);
	CHECK(elf_symbol_find(&image, "", &s) == -ENOENT);
}

TEST(remote_find_elf, finds_symbols_by_the_old_hash_table)
{
	uint64_t vdso = getauxval(AT_SYSINFO_EHDR);
	struct elf_image image;
	struct elf_symbol s;
	struct remote r;

	remote_init(&r, getpid());
	NEEDS(vdso && elf_image_open(&r.reader, vdso, &image) == 0 && image.hash, "vdso-hash",
	      "the vDSO has no hash table of the old kind");
	image.gnu_hash = 0;
#if defined(__x86_64__)
	CHECK(elf_symbol_find(&image, "__vdso_clock_gettime", &s) == 0);
#else
	CHECK(elf_symbol_find(&image, "__kernel_clock_gettime", &s) == 0);
#endif
	CHECK(s.addr > vdso && s.addr < image.end);
	CHECK(elf_symbol_find(&image, "_PyRuntime", &s) == -ENOENT);
}

TEST(remote_find_elf, says_what_is_no_binary)
{
	static Elf64_Ehdr e;
	struct elf_image image;
	struct remote r;
	uint64_t at = (uint64_t)(uintptr_t)&e;

	remote_init(&r, getpid());
	CHECK(elf_image_open(&r.reader, at, &image) == -ENOEXEC);
	memcpy(e.e_ident, ELFMAG, SELFMAG);
	e.e_ident[EI_CLASS] = ELFCLASS32;
	CHECK(elf_image_open(&r.reader, at, &image) == -ENOTSUP);
	e.e_ident[EI_CLASS] = ELFCLASS64;
	e.e_ident[EI_DATA] = ELFDATA2LSB;
	e.e_machine = EM_S390;
	CHECK(elf_image_open(&r.reader, at, &image) == -ENOTSUP);
	e.e_machine = EM_AARCH64;
	CHECK(elf_image_open(&r.reader, at, &image) == -ENOEXEC);
	CHECK(elf_image_open(&r.reader, 8, &image) == -EFAULT);
}

/* Not const: it must lie in writable memory, as the interpreter's does. */
static char version_variable[VERSION_TEXT];

TEST(remote_find_scan, finds_the_version_in_writable_memory)
{
	struct elf_image image;
	uint32_t version = 0;
	struct remote r;

	remote_init(&r, getpid());
	CHECK(elf_image_open(&r.reader, base_of(version_variable), &image) == 0);
	CHECK(!scan_version(&image, &version));
	snprintf(version_variable + 1, sizeof(version_variable) - 1, "%s",
		 "3.8.18 (x, Jan 1 2024, 10:00:00) [GCC]");
	CHECK(scan_version(&image, &version) && version == 0x030812f0);
}

/* --- binaries as files --- */

struct open_file {
	struct python_reader reader;
	int fd;
};

static int read_open_file(const struct python_reader *r, uint64_t at, void *out, size_t n)
{
	const struct open_file *f = (const struct open_file *)r;

	return pread(f->fd, out, n, (off_t)at) == (ssize_t)n ? 0 : -EFAULT;
}

TEST(remote_find_sections, finds_symbols_that_are_not_exported)
{
	static const char *const names[] = {"version_variable", "no_such_variable"};
	struct open_file f = {{read_open_file}, open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
	struct elf_symbol symbols[2] = {{0}};
	struct elf_sections sections;
	struct elf_image image;
	struct remote r;

	remote_init(&r, getpid());
	CHECK(elf_image_open(&r.reader, base_of(version_variable), &image) == 0);
	CHECK(elf_sections_read(&f.reader, &sections) == 0 && sections.runtime == 0);
	elf_sections_symbols(&f.reader, &sections, names, 2, symbols);
	CHECK(image.bias + symbols[0].addr == (uint64_t)(uintptr_t)version_variable);
	CHECK(symbols[0].bytes >= sizeof(version_variable) && symbols[1].addr == 0);
	close(f.fd);
}

/* --- what may not be read --- */

static const char *words(struct eperm_facts f)
{
	static struct err err;

	f.pid = 42;
	snprintf(f.name, sizeof(f.name), "python3");
	snprintf(f.program, sizeof(f.program), "/opt/bin/sonde");
	if (!f.yama)
		f.yama = -1;
	memset(&err, 0, sizeof(err));
	CHECK(eperm_words(&f, &err) == -EPERM && err.code == -EPERM);
	CHECK(!strncmp(err.text, "may not read process 42 (python3): ", 35));
	return err.text;
}

#define US .our_uid = 1000, .our_gid = 1000
#define THEM .uid = 1000, .gid = 1000
#define SAYS(text, ...) CHECK(strstr(words((struct eperm_facts){__VA_ARGS__}), text))

TEST(remote_find_eperm, names_the_cause)
{
	SAYS("belongs to user 0, we are user 1000", US);
	SAYS("belongs to user 7, and we are root without", .uid = 7);
	SAYS("its group is 5, ours is 1000", US, .uid = 1000, .gid = 5);
	SAYS("ptrace_scope is 1", US, THEM, .yama = 1);
	SAYS("ptrace_scope is 2", US, THEM, .yama = 2);
	SAYS("ptrace_scope is 3", US, THEM, .yama = 3);
	SAYS("ptrace_scope is 3", US, THEM, .yama = 3, .can_trace = true);
	SAYS("PR_SET_DUMPABLE", US, THEM, .not_dumpable = true, .yama = 1);
	SAYS("PR_SET_DUMPABLE", US, THEM);
	SAYS("capabilities that we have not", US, THEM, .more_capabilities = true, .yama = 1);
	SAYS("system calls are filtered", US, THEM, .seccomp = true);
	SAYS("system calls are filtered", .can_trace = true, .seccomp = true, .yama = 1);
	SAYS("another user namespace", US, THEM, .other_user_namespace = true);
	SAYS("a user namespace where", .can_trace = true, .other_user_namespace = true);
	SAYS("AppArmor", .can_trace = true, .confined = true);
	SAYS("in spite of", .can_trace = true);
}

TEST(remote_find_eperm, says_the_command_that_helps)
{
	SAYS("'sudo -u \\#7'", US, .uid = 7);
	SAYS("'docker exec -u 7'", US, .uid = 7, .container = true);
	SAYS("'sudo setcap cap_sys_ptrace=ep /opt/bin/sonde'", US, THEM);
	SAYS("'docker run --cap-add SYS_PTRACE'", US, THEM, .container = true);
	SAYS("'docker run --cap-add SYS_PTRACE'", .uid = 7);
	SAYS("add: [\"SYS_PTRACE\"]", US, THEM, .container = true, .kubernetes = true);
	SAYS("'sudo sysctl kernel.yama.ptrace_scope=0'", US, THEM, .yama = 1);
	SAYS("'sonde stack run -- …'", US, THEM, .yama = 1);
	SAYS("'sudo sysctl kernel.yama.ptrace_scope=0'", US, THEM, .yama = 2);
	SAYS("/etc/sysctl.d", US, THEM, .yama = 3);
}

/* --- processes that are no Python --- */

static int find(pid_t pid, struct err *err)
{
	struct python_place place;
	struct remote r;

	memset(err, 0, sizeof(*err));
	remote_init(&r, pid);
	return python_find(&r, &place, err);
}

TEST(remote_find, knows_that_a_process_is_no_python)
{
	struct err err;

	CHECK(find(getpid(), &err) == -ENOEXEC && err.code == -ENOEXEC);
	CHECK(strstr(err.text, "is not a Python process"));
}

TEST(remote_find, knows_processes_that_have_ended)
{
	struct err err;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0)
		_exit(0);
	siginfo_t info;
	CHECK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
	CHECK(find(pid, &err) == -ESRCH && strstr(err.text, "has ended"));
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(find(pid, &err) == -ESRCH && strstr(err.text, "there is no process"));
	CHECK(find(0x7fffffff, &err) == -ESRCH);
}

TEST(remote_find, copes_with_odd_names)
{
	struct err err;

	CHECK(prctl(PR_SET_NAME, "a) R (b c") == 0);
	CHECK(find(getpid(), &err) == -ENOEXEC && strstr(err.text, "(a) R (b c)"));
}
