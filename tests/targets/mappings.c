/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * mappings: maps memory in every way and keeps, at its end,
 *
 *	private   1 MiB less 64 KiB in its middle, 3 MiB that were 1 MiB, 128 KiB of a reservation
 *	          of 1 GiB, 64 KiB of the break
 *	shared    256 KiB of a memfd, 128 KiB anonymous, 64 KiB of System V
 *	file      what its own program has
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB 1024ul
#define MIB (1024ul * KIB)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static char *checked(void *p)
{
	if (p == MAP_FAILED) {
		perror("mappings");
		exit(1);
	}
	return p;
}

static void map_private(void)
{
	char *p = checked(mmap(NULL, MIB, RW, PRIVATE, -1, 0));

	munmap(p + 512 * KIB, 64 * KIB);
	p = checked(mmap(NULL, MIB, RW, PRIVATE, -1, 0));
	p = checked(mremap(p, MIB, 3 * MIB, MREMAP_MAYMOVE));
	memset(p, 1, 3 * MIB);
	/* Something in the place of something else: the first is gone. */
	checked(mmap(p + MIB, MIB, RW, PRIVATE | MAP_FIXED, -1, 0));
	p = checked(mmap(NULL, MIB, RW, PRIVATE, -1, 0));
	munmap(p, MIB);
	sbrk(64 * KIB);
}

static void map_reserved(void)
{
	char *p = checked(mmap(NULL, 1024 * MIB, PROT_NONE, PRIVATE, -1, 0));

	mprotect(p + MIB, 256 * KIB, RW);
	mprotect(p + MIB, 128 * KIB, RW); /* once more */
	checked(mmap(p + MIB, 128 * KIB, PROT_NONE, PRIVATE | MAP_FIXED, -1, 0));
}

static void map_shared(void)
{
	int fd = memfd_create("mappings", 0), id = shmget(IPC_PRIVATE, 64 * KIB, IPC_CREAT | 0600);

	if (fd < 0 || ftruncate(fd, 256 * KIB) != 0 || id < 0)
		exit(1);
	checked(mmap(NULL, 256 * KIB, RW, MAP_SHARED, fd, 0));
	checked(mmap(NULL, 128 * KIB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	checked(shmat(id, NULL, 0));
	shmdt(checked(shmat(id, NULL, 0)));
	shmctl(id, IPC_RMID, NULL);
	close(fd);
}

static size_t map_file(void)
{
	struct stat st;
	int fd = open("/proc/self/exe", O_RDONLY);

	if (fd < 0 || fstat(fd, &st) != 0)
		exit(1);
	checked(mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0));
	munmap(checked(mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0)),
	       (size_t)st.st_size);
	close(fd);
	return (size_t)st.st_size;
}

int main(void)
{
	map_private();
	map_reserved();
	map_shared();
	printf("%zu\n", map_file());
	fflush(stdout);
	_exit(0);
}
