/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/dump/writer.h"
#include "test.h"
#include "wire/record.h"

static char path[64];
static struct err err;

static void make_path(void)
{
	char dir[] = "/tmp/sonde_db_XXXXXX";

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a.db", dir);
}

static char *beside(const char *suffix)
{
	static char name[80];

	snprintf(name, sizeof(name), "%s%s", path, suffix);
	return name;
}

static void remove_path(void)
{
	unlink(path);
	unlink(beside("-wal"));
	unlink(beside("-shm"));
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

/* The first cell of the first row as text, by a connection of its own. */
static const char *query(const char *sql)
{
	static char text[4096];
	sqlite3 *db;
	sqlite3_stmt *stmt;

	CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
	CHECK_INT(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
	CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
	const unsigned char *got = sqlite3_column_text(stmt, 0);
	snprintf(text, sizeof(text), "%s", got ? (const char *)got : "NULL");
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return text;
}

static struct row memory_row(uint64_t id)
{
	struct row r = {.id = id,
			.event = ROW_MALLOC,
			.type = TYPE_HAL,
			.time_ns = 3,
			.pid = 123,
			.tid = 1234,
			.has_ptr = true,
			.ptr = 12345};

	row_attr_number(&r, ATTR_ALLOCATION_ID, 1);
	r.attrs[r.nattrs++] = (struct attr){.key = ATTR_ADDR, .kind = ATTR_HEX, .number = 12345};
	row_attr_number(&r, ATTR_SIZE, 10);
	return r;
}

static struct writer *open_writer(void)
{
	struct writer *w = NULL;

	CHECK_INT(db_writer.open(path, ROW_SEED, &w, &err), 0);
	return w;
}

TEST(db, schema_is_exact)
{
	make_path();
	CHECK_INT(db_writer.close(open_writer(), &err), 0);
	CHECK_STR(query("SELECT sql FROM sqlite_master WHERE name='memscope_dump'"),
		  "CREATE TABLE memscope_dump(\"ID\" INTEGER,\"Event\" TEXT,\"Event Type\" TEXT,"
		  "\"Name\" TEXT,\"Timestamp(ns)\" INTEGER,\"Process Id\" INTEGER,"
		  "\"Thread Id\" INTEGER,\"Device Id\" TEXT,\"Ptr\" TEXT,\"Attr\" TEXT,"
		  "\"Call Stack(Python)\" TEXT,\"Call Stack(C)\" TEXT)");
	CHECK_STR(query("SELECT count(*) FROM sqlite_master"), "1");
	CHECK_STR(query("PRAGMA journal_mode"), "wal");
	remove_path();
}

TEST(db, one_file_is_left_after_close)
{
	struct row r = memory_row(1);
	struct stat st;

	make_path();
	umask(0);
	struct writer *w = open_writer();
	CHECK_INT(db_writer.add(w, &r, &err), 0);
	CHECK_INT(db_writer.flush(w, &err), 0);
	CHECK_INT(stat(beside("-wal"), &st), 0);
	CHECK_INT(st.st_mode & 07777, 0600);
	CHECK_INT(db_writer.close(w, &err), 0);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0600);
	CHECK(access(beside("-wal"), F_OK) < 0 && access(beside("-shm"), F_OK) < 0);
	CHECK_INT(db_writer.close(NULL, &err), 0);
	remove_path();
}

TEST(db, cells)
{
	struct row r = memory_row(3);
	struct row m = {.id = 4,
			.event = ROW_MSTX,
			.type = TYPE_MARK,
			.name = "a \"b\"",
			.name_len = 5,
			.pid = UINT32_MAX,
			.tid = UINT32_MAX,
			.device = DEV_NONE,
			.py_stack = "f.py(1): g\n",
			.py_stack_len = 11};

	make_path();
	struct writer *w = open_writer();
	CHECK_INT(db_writer.add(w, &r, &err), 0);
	CHECK_INT(db_writer.add(w, &m, &err), 0);
	m.name = "=1";
	m.name_len = 2;
	m.device = DEV_HOST;
	CHECK_INT(db_writer.add(w, &m, &err), 0);
	r.device = 31;
	CHECK_INT(db_writer.add(w, &r, &err), 0);
	CHECK_INT(db_writer.close(w, &err), 0);
	const char *sql =
		"SELECT group_concat(ID||'|'||Event||'|'||\"Event Type\"||'|'||Name||'|'||"
		"\"Timestamp(ns)\"||'|'||\"Process Id\"||'|'||\"Thread Id\"||'|'||"
		"\"Device Id\"||'|'||Ptr||'|'||Attr||'|'||\"Call Stack(Python)\"||'|'||"
		"\"Call Stack(C)\",'\n') FROM memscope_dump";
#define ATTR "{\"allocation_id\":\"1\",\"addr\":\"0x0000000000003039\",\"size\":\"10\"}"
	CHECK_STR(query(sql), "3|MALLOC|HAL|N/A|3|123|1234|0|0x0000000000003039|" ATTR "||\n"
			      "4|MSTX|Mark|\"a \"b\"\"|0|-1|-1|N/A|N/A|{}|\"f.py(1): g\n\"|\n"
			      "4|MSTX|Mark|\"\"|0|-1|-1|cpu|N/A|{}|\"f.py(1): g\n\"|\n"
			      "3|MALLOC|HAL|N/A|3|123|1234|31|0x0000000000003039|" ATTR "||");
	CHECK_STR(query("SELECT typeof(ID)||typeof(\"Device Id\")||typeof(\"Call Stack(C)\") "
			"FROM memscope_dump"),
		  "integertexttext");
	remove_path();
}

TEST(db, attr_is_valid_json_whatever_the_text)
{
	static const char nasty[] = "q:\"\\\x01\x02\t\r\n\x1f\x7f\xff,r:\0,no,ü:1,s:'{[}]";
	struct row r = memory_row(1);

	make_path();
	struct writer *w = open_writer();
	r.nattrs = 0;
	row_attr_text(&r, ATTR_OWNER, nasty, sizeof(nasty) - 1);
	row_attr_text(&r, ATTR_RAW, nasty, sizeof(nasty) - 1);
	row_attr_text(&r, ATTR_RAW, "", 0);
	row_attr_text(&r, ATTR_RAW, "shape:[1,5],dtype:x", 19);
	r.name = nasty;
	r.name_len = sizeof(nasty) - 1;
	CHECK_INT(db_writer.add(w, &r, &err), 0);
	CHECK_INT(db_writer.close(w, &err), 0);
	CHECK_STR(query("SELECT json_valid(Attr) FROM memscope_dump"), "1");
	CHECK_STR(query("SELECT json_extract(Attr,'$.shape') FROM memscope_dump"), "[1,5]");
	CHECK_STR(query("SELECT json_extract(Attr,'$.dtype') FROM memscope_dump"), "x");
	CHECK_STR(query("SELECT json_extract(Attr,'$.q') FROM memscope_dump"),
		  "\"\\\x01\x02\t\r\n\x1f\x7f\xef\xbf\xbd");
	CHECK_STR(query("SELECT json_extract(Attr,'$.r') FROM memscope_dump"), ",no,ü:1");
	CHECK_STR(query("SELECT json_extract(Attr,'$.owner') FROM memscope_dump"),
		  "q:\"\\\x01\x02\t\r\n\x1f\x7f\xef\xbf\xbd,r:,no,ü:1,s:'{[}]");
	remove_path();
}

static void add_rows(struct writer *w, int n)
{
	for (int i = 0; i < n; i++) {
		struct row r = memory_row((uint64_t)i);

		CHECK_INT(db_writer.add(w, &r, &err), 0);
	}
}

TEST(db, others_read_while_it_is_written)
{
	make_path();
	struct writer *w = open_writer();
	add_rows(w, 10);
	CHECK_STR(query("SELECT count(*) FROM memscope_dump"), "0");
	CHECK_INT(db_writer.flush(w, &err), 0);
	CHECK_INT(db_writer.flush(w, &err), 0);
	add_rows(w, 5);
	CHECK_STR(query("SELECT count(*) FROM memscope_dump"), "10");
	add_rows(w, 40000);
	CHECK_INT(db_writer.close(w, &err), 0);
	CHECK_STR(query("SELECT count(*) FROM memscope_dump"), "40015");
	w = open_writer();
	add_rows(w, 1);
	CHECK_INT(db_writer.close(w, &err), 0);
	CHECK_STR(query("SELECT count(*) FROM memscope_dump"), "40016");
	remove_path();
}

TEST(db, a_killed_writer_loses_nothing_that_was_flushed)
{
	int status;

	make_path();
	pid_t pid = fork();
	if (!pid) {
		struct writer *w = open_writer();
		add_rows(w, 1000);
		CHECK_INT(db_writer.flush(w, &err), 0);
		add_rows(w, 10);
		raise(SIGKILL);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status));
	CHECK_STR(query("SELECT count(*) FROM memscope_dump"), "1000");
	CHECK_STR(query("PRAGMA integrity_check"), "ok");
	remove_path();
}

TEST(db, strange_files_are_left_alone)
{
	struct writer *w;
	sqlite3 *db;

	make_path();
	int fd = open(path, O_WRONLY | O_CREAT, 0600);
	for (int i = 0; i < 200; i++)
		CHECK_INT(write(fd, "not a database at all\n", 22), 22);
	close(fd);
	CHECK_INT(db_writer.open(path, ROW_SEED, &w, &err), -EEXIST);
	unlink(path);
	CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
	CHECK_INT(sqlite3_exec(db, "CREATE TABLE memscope_dump(x)", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	CHECK_INT(db_writer.open(path, ROW_SEED, &w, &err), -EEXIST);
	CHECK_INT(symlink(path, beside(".l")), 0);
	CHECK_INT(db_writer.open(beside(".l"), ROW_SEED, &w, &err), -ELOOP);
	unlink(beside(".l"));
	remove_path();
}

static void limit_file_size(rlim_t n)
{
	struct rlimit rl = {n, RLIM_INFINITY};

	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &rl), 0);
}

TEST(db, full_disk_rolls_back_counts_and_recovers)
{
	char want[32];

	make_path();
	struct writer *w = open_writer();
	add_rows(w, 100);
	CHECK_INT(db_writer.flush(w, &err), 0);
	limit_file_size(400000);
	add_rows(w, 10000);
	CHECK(db_writer.flush(w, &err) < 0);
	CHECK(strstr(err.text, path));
	CHECK_INT(db_writer.lost_rows(w), 10000);
	CHECK_STR(query("SELECT count(*) FROM memscope_dump"), "100");
	add_rows(w, 5);
	CHECK_INT(db_writer.lost_rows(w), 10005);
	limit_file_size(RLIM_INFINITY);
	CHECK_INT(db_writer.flush(w, &err), 0);
	add_rows(w, 50);
	CHECK_INT(db_writer.close(w, &err), 0);
	snprintf(want, sizeof(want), "%d", 150);
	CHECK_STR(query("SELECT count(*) FROM memscope_dump"), want);
	CHECK_STR(query("PRAGMA integrity_check"), "ok");
	remove_path();
}
