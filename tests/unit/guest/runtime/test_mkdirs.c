/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Directories that the guest makes for files of its job, at places that others may have prepared. */
#include "guest/runtime/env.h"
#include "test.h"
#include "tmpdir.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define STRANGER 61002

TEST(guest_mkdirs, over_links_of_our_own_alone)
{
	struct stat st;
	char dir[PATH_MAX], target[PATH_MAX], link[PATH_MAX], below[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s", tmpdir());
	snprintf(target, sizeof(target), "%.3000s//target/", dir);
	snprintf(link, sizeof(link), "%.3000s/link", dir);
	snprintf(below, sizeof(below), "%.3000s/a/b", link);
	CHECK_INT(guest_mkdirs(target), 0);
	CHECK_INT(guest_mkdirs(target), 0);
	CHECK_INT(symlink("target", link), 0);
	CHECK_INT(guest_mkdirs(below), 0);
	CHECK(stat(below, &st) == 0 && S_ISDIR(st.st_mode));
	if (geteuid() != 0)
		SKIP("only root can make a link of somebody else");
	CHECK_INT(lchown(link, STRANGER, STRANGER), 0);
	errno = 0;
	CHECK_INT(guest_mkdirs(below), -1);
	CHECK_INT(errno, ELOOP);
	snprintf(below, sizeof(below), "%.3000s/target/a/%0300d", dir, 1);
	CHECK_INT(guest_mkdirs(below), -1);
	CHECK_INT(errno, ENAMETOOLONG);
}
