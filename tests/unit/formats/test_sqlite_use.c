/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/sqlite_use.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "test.h"
#include "tmpdir.h"

#define STRANGER 61001

static const char rows[] = "CREATE TABLE IF NOT EXISTS t(a);INSERT INTO t VALUES(1)";

static void enter_tmp(void)
{
	CHECK_INT(chdir(tmpdir()), 0);
}

static int run(const char *path, const char *journal, const char **out_words)
{
	static char words[256];
	sqlite3 *db;
	int rc = sql_open_to_write(path, NULL, &db);

	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, journal, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, rows, NULL, NULL, NULL);
	snprintf(words, sizeof(words), "%s", sql_words(db, rc));
	*out_words = words;
	sqlite3_close(db);
	return rc & 0xff;
}

static void make(const char *path)
{
	int fd = fs_open(path, O_RDWR | O_CREAT, 0600, NULL);

	CHECK(fd >= 0 && close(fd) == 0);
}

TEST(sqlite_use, own_links_on_the_way)
{
	const char *words;
	sqlite3 *db;

	enter_tmp();
	CHECK(mkdir("dir", 0700) == 0 && symlink("dir", "link") == 0);
	make("dir/f.db");
	CHECK_INT(run("link/f.db", "PRAGMA journal_mode=WAL", &words), SQLITE_OK);
	CHECK_INT(run("link/f.db", "PRAGMA journal_mode=DELETE", &words), SQLITE_OK);
	CHECK(access("dir/f.db-journal", F_OK) < 0 && access("dir/f.db-wal", F_OK) < 0);
	CHECK_INT(sql_open_to_read("link/f.db", false, &db), SQLITE_OK);
	CHECK_INT(sqlite3_exec(db, "SELECT a FROM t", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	CHECK_INT(sql_open_to_read("link/f.db", true, &db), SQLITE_OK);
	CHECK_INT(sqlite3_exec(db, "INSERT INTO t VALUES(1)", NULL, NULL, NULL), SQLITE_READONLY);
	sqlite3_close(db);
}

/* Nothing is created, and nothing waits. */
TEST(sqlite_use, a_journal_that_is_planted)
{
	static const struct {
		const char *pragma, *name;
	} all[] = {{"PRAGMA journal_mode=DELETE", "f.db-journal"},
		   {"PRAGMA journal_mode=WAL", "f.db-wal"}};
	const char *words;

	for (int i = 0; i < 2; i++) {
		enter_tmp();
		make("f.db");
		CHECK_INT(symlink("precious", all[i].name), 0);
		(void)run("f.db", all[i].pragma, &words); /* SQLite may have removed it */
		CHECK(access("precious", F_OK) < 0);
		unlink(all[i].name);
		CHECK_INT(mkfifo(all[i].name, 0600), 0);
		(void)run("f.db", all[i].pragma, &words);
		unlink(all[i].name);
		unlink("f.db");
	}
}

TEST(sqlite_use, strangers_are_refused)
{
	const char *words;

	NEEDS(geteuid() == 0, "root", "files of another user");
	enter_tmp();
	CHECK(mkdir("dir", 0700) == 0 && symlink("dir", "link") == 0);
	CHECK(lchown("link", STRANGER, STRANGER) == 0);
	make("dir/f.db");
	CHECK_INT(run("link/f.db", "", &words), SQLITE_CANTOPEN);
	CHECK(strstr(words, "another user (uid 61001)"));
	CHECK(chown("dir/f.db", STRANGER, STRANGER) == 0);
	CHECK_INT(run("dir/f.db", "", &words), SQLITE_READONLY);
	CHECK(strstr(words, "belongs to another user"));
}

TEST(sqlite_use, a_fifo_is_not_waited_for)
{
	sqlite3 *db;

	enter_tmp();
	CHECK_INT(mkfifo("fifo", 0600), 0);
	CHECK_INT(sql_open_to_read("fifo", false, &db) & 0xff, SQLITE_CANTOPEN);
	sqlite3_close(db);
}
