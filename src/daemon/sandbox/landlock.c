/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Landlock: a process restricts itself to actions on files below directories. Reading is left to
 * the rights of the user. Layouts and numbers are the kernel's (include/uapi/linux/landlock.h),
 * since headers of many systems are older than their kernels.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/sandbox/sandbox_impl.h"

enum { CREATE_RULESET = 444, ADD_RULE, RESTRICT_SELF }; /* the same on every architecture */

struct ruleset {
	uint64_t files;
	uint64_t net; /* from version 4 on */
	uint64_t scoped; /* from version 6 on */
};

struct beneath {
	uint64_t allowed;
	int32_t dir;
} __attribute__((packed));

#define PATH_BENEATH 1
#define VERSION_FLAG 1u

#define EXECUTE (1u << 0)
#define WRITE_FILE (1u << 1)
#define REMOVE_DIR (1u << 4)
#define REMOVE_FILE (1u << 5)
#define MAKE_CHAR (1u << 6)
#define MAKE_DIR (1u << 7)
#define MAKE_REG (1u << 8)
#define MAKE_SOCK (1u << 9)
#define MAKE_FIFO (1u << 10)
#define MAKE_BLOCK (1u << 11)
#define MAKE_SYM (1u << 12)
#define REFER (1u << 13) /* from version 2 on: links and renames between directories */
#define TRUNCATE (1u << 14) /* 3 */
#define IOCTL_DEV (1u << 15) /* 5 */
#define BIND_TCP 1u /* of net: all ports are open by then */
#define SCOPE_SIGNAL 2u /* no signals to processes outside */

static const uint64_t uses[] = {
	[LANDLOCK_FILES] = WRITE_FILE | MAKE_REG | MAKE_DIR | TRUNCATE,
	[LANDLOCK_LOG] = WRITE_FILE | MAKE_REG,
	[LANDLOCK_SOCKETS] = MAKE_SOCK | MAKE_DIR | REMOVE_FILE | REMOVE_DIR | REFER,
	[LANDLOCK_NEW_SOCKETS] = MAKE_SOCK,
	[LANDLOCK_DEVICES] = WRITE_FILE | IOCTL_DEV,
};

static uint64_t handled_files(long version)
{
	uint64_t all = EXECUTE | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_CHAR | MAKE_DIR |
		       MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_BLOCK | MAKE_SYM;

	if (version >= 2)
		all |= REFER;
	if (version >= 3)
		all |= TRUNCATE;
	if (version >= 5)
		all |= IOCTL_DEV;
	return all;
}

/* A directory that is not there needs no rule: nothing can be written in it. */
static int allow_place(int ruleset, const struct landlock_place *p, uint64_t handled)
{
	struct beneath rule = {.allowed = uses[p->use] & handled};

	rule.dir = open(p->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (rule.dir < 0)
		return 0;
	long r = syscall(ADD_RULE, ruleset, PATH_BENEATH, &rule, 0);
	int error = r < 0 ? -errno : 0;
	close(rule.dir);
	return error;
}

int landlock_enter(const struct landlock_place *places, size_t n)
{
	long version = syscall(CREATE_RULESET, NULL, 0, VERSION_FLAG);
	int r = 0;

	if (version < 1)
		return version < 0 ? -errno : -EOPNOTSUPP;
	struct ruleset set = {.files = handled_files(version),
			      .net = version >= 4 ? BIND_TCP : 0,
			      .scoped = version >= 6 ? SCOPE_SIGNAL : 0};
	size_t bytes = version >= 6   ? sizeof(set)
		       : version >= 4 ? offsetof(struct ruleset, scoped)
				      : offsetof(struct ruleset, net);
	int fd = (int)syscall(CREATE_RULESET, &set, bytes, 0);
	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < n && r == 0; i++)
		r = allow_place(fd, &places[i], set.files);
	if (r == 0 && syscall(RESTRICT_SELF, fd, 0) < 0)
		r = -errno;
	close(fd);
	return r < 0 ? r : (int)version;
}
