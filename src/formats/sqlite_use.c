/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/sqlite_use.h"

#include <errno.h>
#include <string.h>

#include "base/containers/buf.h"

int sql_errno(sqlite3 *db, int rc)
{
	int sys = sqlite3_system_errno(db);

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

/* Everything that means something in a URI is escaped. */
char *sql_immutable_uri(const char *path)
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
