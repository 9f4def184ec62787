/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/sqlite_use.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/mem.h"

/* Why the last file of this thread was not opened or removed. */
static __thread struct err refusal;

/* --- the system calls of SQLite's VFS --- */

/* SQLite opens directories, too, to sync them; and never waits for what is no file. */
static int open_to_read(const char *path, int flags)
{
	int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fd;
	if (!S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode))
		return fd;
	close(fd);
	errno = EINVAL;
	return -1;
}

static int open_by_rules(const char *path, int flags, int mode)
{
	if (!(flags & (O_WRONLY | O_RDWR)))
		return open_to_read(path, flags);
	int fd = fs_open(path, flags, (mode_t)mode, &refusal);
	if (fd >= 0)
		return fd;
	errno = -fd;
	return -1;
}

static int unlink_by_rules(const char *path)
{
	int r = fs_unlink(path, &refusal);

	errno = -r;
	return r < 0 ? -1 : 0;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void use_rules(void)
{
	sqlite3_vfs *unix_vfs = sqlite3_vfs_find("unix");

	if (!unix_vfs || unix_vfs->iVersion < 3)
		return;
	unix_vfs->xSetSystemCall(unix_vfs, "open", (sqlite3_syscall_ptr)open_by_rules);
	unix_vfs->xSetSystemCall(unix_vfs, "unlink", (sqlite3_syscall_ptr)unlink_by_rules);
}

/* Everything that means something in a URI is escaped. */
static char *immutable_uri(const char *path)
{
	struct buf b = {0};

	buf_add_str(&b, "file:");
	for (; *path; path++) {
		if (strchr("%?#", *path))
			buf_addf(&b, "%%%02x", (unsigned char)*path);
		else
			buf_add_char(&b, *path);
	}
	buf_add_str(&b, "?immutable=1");
	buf_str(&b);
	return b.data;
}

/* SQLite itself resolves every link before it opens anything, whoever made the link: so it gets a
 * path without any. */
int sql_open_to_write(const char *path, const char *vfs, sqlite3 **out)
{
	const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
	struct buf real = {0};

	pthread_once(&once, use_rules);
	refusal.code = 0;
	*out = NULL;
	int rc = fs_resolve(path, &real, &refusal) < 0
			 ? SQLITE_CANTOPEN
			 : sqlite3_open_v2(buf_str(&real), out, flags, vfs);
	buf_release(&real);
	return rc;
}

int sql_open_to_read(const char *path, bool as_it_is, sqlite3 **out)
{
	const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
	char *real = realpath(path, NULL), *uri = immutable_uri(real ? real : path);

	pthread_once(&once, use_rules);
	refusal.code = 0;
	*out = NULL;
	int rc = as_it_is ? sqlite3_open_v2(uri, out, flags | SQLITE_OPEN_URI, NULL)
			  : sqlite3_open_v2(real ? real : path, out, flags, NULL);
	free(uri);
	free(real);
	return rc;
}

int sql_replace(const char *from, const char *to, struct err *err)
{
	static const char *const beside[] = {"-wal", "-shm", "-journal"};
	int r = 0;

	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]) && r == 0; i++) {
		char *path = xasprintf("%s%s", to, beside[i]);

		r = fs_unlink(path, err);
		if (r == -ENOENT)
			r = 0;
		free(path);
	}
	return r < 0 ? r : fs_rename(from, to, err);
}

const char *sql_words(sqlite3 *db, int rc)
{
	int kind = rc & 0xff;

	if (refusal.code && (kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY))
		return refusal.text;
	return db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
}

/* --- codes and statements --- */

int sql_errno(sqlite3 *db, int rc)
{
	int sys = db ? sqlite3_system_errno(db) : -refusal.code;

	switch (rc & 0xff) {
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return -EACCES;
	case SQLITE_NOTADB:
	case SQLITE_CORRUPT:
		return -EBADMSG;
	default:
		return sys > 0 ? -sys : -EIO;
	}
}

int sql_run(sqlite3_stmt *stmt)
{
	sqlite3_step(stmt);
	return sqlite3_reset(stmt);
}
