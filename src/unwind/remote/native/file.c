/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The ELF file behind a module. It may lie in another mount namespace, may have been deleted or
 * replaced since, and is somebody else's: sections are read, never mapped, so that a file that is
 * cut short meanwhile is an error and no SIGBUS. Processes that run the same file share it.
 *
 *	1. /proc/PID/map_files/START-END	the mapping's own file
 *	2. /proc/PID/root/PATH			the file of that name, as the process sees it
 *	3. /proc/PID/exe			if the module is the program
 *	4. the process' memory			what is mapped of it, put at its place in the file
 *
 * Each of the first three is compared with the first page in memory before it is used.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "unwind/remote/native/native_impl.h"

#define SAME_BYTES 4096 /* header, program headers and mostly the build id */
#define IMAGE_MAX_BYTES ((size_t)256 << 20)

/* The files that are open: one reference of each is ours, the others are those of modules. */
struct file {
	dev_t dev;
	ino_t ino;
	struct timespec mtime;
	off_t bytes;
	int fd;
	Elf *elf;
};

static struct file *files;
static size_t nfiles, cap_files;
static unsigned users; /* native_process that are open */

void native_files_use(void)
{
	users++;
}

void native_files_done(void)
{
	if (--users)
		return;
	for (size_t i = 0; i < nfiles; i++) {
		elf_end(files[i].elf);
		close(files[i].fd);
	}
	free(files);
	files = NULL;
	nfiles = cap_files = 0;
}

/* One Elf per file for all processes: eight ranks map the same 2 GB of libtorch. References are
 * counted by libelf. */
static Elf *share_elf(int fd, const struct stat *st)
{
	for (size_t i = 0; i < nfiles; i++) {
		struct file *f = &files[i];

		if (f->dev == st->st_dev && f->ino == st->st_ino && f->bytes == st->st_size &&
		    !memcmp(&f->mtime, &st->st_mtim, sizeof(f->mtime))) {
			close(fd);
			return elf_begin(-1, ELF_C_READ, f->elf);
		}
	}
	Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF) {
		elf_end(elf);
		close(fd);
		return NULL;
	}
	files = xgrow(files, &cap_files, nfiles + 1, sizeof(files[0]));
	files[nfiles++] = (struct file){st->st_dev, st->st_ino, st->st_mtim, st->st_size, fd, elf};
	return elf_begin(-1, ELF_C_READ, elf);
}

/*
 * Takes the file if its beginning is what the process has mapped.
 *
 * The same first page as in the process' memory: header, program headers and mostly the build id. A
 * package that was updated under a running process has another file under the same name.
 */
static Elf *open_if_same(struct native_process *p, const struct native_module *m, const char *path)
{
	char theirs[SAME_BYTES], ours[SAME_BYTES];
	int fd = fs_open(path, O_RDONLY, 0, NULL);
	struct stat st;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		ssize_t n = pread(fd, ours, sizeof(ours), 0);

		if (n > (ssize_t)EI_NIDENT &&
		    remote_read(&p->remote, m->start, theirs, (size_t)n) == 0 &&
		    !memcmp(ours, theirs, (size_t)n))
			return share_elf(fd, &st);
	}
	close(fd);
	return NULL;
}

/* --- where there is no file --- */

static bool is_line_of(const struct native_module *m, const struct map_line *l)
{
	return l->readable && l->start >= m->start && l->end <= m->end && l->path_len &&
	       l->inode == m->inode && l->device == m->device;
}

static size_t image_bytes(struct native_process *p, const struct native_module *m)
{
	const char *at = p->maps.data, *end = at + p->maps.len;
	struct map_line l;
	uint64_t n = 0;

	while (maps_next(&at, end, &l)) {
		if (!is_line_of(m, &l))
			continue;
		if (l.offset > IMAGE_MAX_BYTES || l.end - l.start > IMAGE_MAX_BYTES)
			return 0;
		if (l.offset + (l.end - l.start) > n)
			n = l.offset + (l.end - l.start);
	}
	return n <= IMAGE_MAX_BYTES ? (size_t)n : 0;
}

/* Every mapped part at its place in the file. Section headers are not among them. */
static void read_image(struct native_process *p, struct native_module *m)
{
	const char *at = p->maps.data, *end = at + p->maps.len;
	Elf64_Ehdr *header = m->image;
	struct map_line l;

	while (maps_next(&at, end, &l))
		if (is_line_of(m, &l))
			remote_read(&p->remote, l.start, (char *)m->image + l.offset,
				    l.end - l.start);
	header->e_shoff = 0;
	header->e_shnum = header->e_shstrndx = 0;
}

/*
 * The vdso, a file that was deleted in a namespace we cannot enter, a memfd. Section headers are
 * not part of what is mapped, so they are struck out; libdwfl then finds the symbols by the dynamic
 * section.
 */
static Elf *open_image(struct native_process *p, struct native_module *m)
{
	size_t n = m->inode ? image_bytes(p, m) : m->end - m->start;

	if (m->image || n < sizeof(Elf64_Ehdr) || n > IMAGE_MAX_BYTES)
		return NULL;
	m->image = xcalloc(1, n);
	if (m->inode)
		read_image(p, m);
	else if (remote_read(&p->remote, m->start, m->image, n) < 0)
		return NULL;
	Elf *elf = memcmp(m->image, ELFMAG, SELFMAG) ? NULL : elf_memory(m->image, n);
	if (elf && elf_kind(elf) != ELF_K_ELF) {
		elf_end(elf);
		elf = NULL;
	}
	return elf;
}

/*
 * map_files is the mapping itself, deleted or not, but the kernel wants a privilege for it;
 * root/path goes through the process' mount namespace; exe is the program. The first that holds the
 * same bytes counts.
 */
Elf *native_module_open(struct native_process *p, struct native_module *m)
{
	char *path;
	Elf *elf;

	if (!m->inode)
		return open_image(p, m);
	path = xasprintf("/proc/%d/map_files/%llx-%llx", (int)p->pid, (unsigned long long)m->start,
			 (unsigned long long)m->map_end);
	elf = open_if_same(p, m, path);
	free(path);
	if (!elf && !m->deleted) {
		path = xasprintf("/proc/%d/root%s", (int)p->pid, m->path);
		elf = open_if_same(p, m, path);
		free(path);
	}
	if (!elf) {
		path = xasprintf("/proc/%d/exe", (int)p->pid);
		elf = open_if_same(p, m, path);
		free(path);
	}
	return elf ? elf : open_image(p, m);
}
