/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "memory/dump/amend.h"
#include "memory/dump/cell.h"
#include "memory/dump/writer.h"
#include "memory/input/reader.h"
#include "test.h"
#include "tmpdir.h"
#include "wire/record.h"

#define HEADER CELL_COLUMNS "\n"
#define MALLOC(id, attrs) id ",MALLOC,PTA,N/A,12,5,6,0,0x10," attrs ",,\n"
#define FREE "9,FREE,PTA,N/A,13,5,6,0,0x10,\"{allocation_id:1,size:64}\",,\n"

static struct err err;

/* Findings of process 5, by allocation id; an id of 0 ends them. */
static const struct amendment *find(void *arg, uint32_t pid, uint64_t id)
{
	for (const struct amendment *a = arg; a->allocation_id; a++)
		if (a->pid == pid && a->allocation_id == id)
			return a;
	return NULL;
}

static void write_text(const char *path, const char *text, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640);

	CHECK(fd >= 0 && write(fd, text, len) == (ssize_t)len);
	close(fd);
}

static void check_text(const char *path, const char *want, size_t len)
{
	struct buf got = {0};

	CHECK_INT(fs_read_file(path, 1 << 24, &got, &err), 0);
	if (got.len != len || memcmp(got.data, want, len))
		CHECK_STR(buf_str(&got), want);
	buf_release(&got);
}

static void check_alone(void)
{
	char command[256];

	snprintf(command, sizeof(command), "test $(ls -A %s | wc -l) = 1", tmpdir());
	CHECK_INT(system(command), 0);
}

/* Amends the text and compares, then once more: nothing changes. */
static void check_csv(const char *before, const char *after, enum row_compat compat,
		      struct amendment *findings, uint64_t want_rows)
{
	const char *path = tmpfile_path("a.csv");
	uint64_t rows = 99;
	struct stat one, two;

	write_text(path, before, strlen(before));
	CHECK_INT(dump_amend(path, compat, find, findings, &rows, &err), 0);
	check_text(path, after, strlen(after));
	CHECK_INT(rows, want_rows);
	CHECK_INT(stat(path, &one), 0);
	CHECK_INT(one.st_mode & 0777, 0640);
	CHECK_INT(dump_amend(path, compat, find, findings, &rows, &err), 0);
	CHECK_INT(rows, 0);
	check_text(path, after, strlen(after));
	CHECK(!stat(path, &two) && one.st_ino == two.st_ino);
	check_alone();
}

TEST(dump_amend, csv_puts_pairs_where_they_belong)
{
	struct amendment both[] = {
		{5, 1, "early_allocation,late_deallocation", "PTA@weight", false}, {0}};
	struct amendment tag[] = {{5, 1, "temporary_idleness", NULL, false}, {0}};
	struct amendment owner[] = {{5, 1, NULL, "PTA@x", false}, {0}};

	check_csv(HEADER MALLOC("1", "\"{allocation_id:1,addr:0x10,size:64,used:1,total:2}\"") FREE,
		  HEADER MALLOC("1", "\"{allocation_id:1,addr:0x10,size:64,used:1,total:2,"
				     "owner:PTA@weight,inefficient:early_allocation,"
				     "late_deallocation}\"") FREE,
		  ROW_SEED, both, 1);
	check_csv(HEADER MALLOC(
			  "1", "\"{allocation_id:1,shadow:true,page_type:huge,alloc_type:alloc}\""),
		  HEADER MALLOC("1", "\"{allocation_id:1,shadow:true,owner:PTA@weight,"
				     "inefficient_type:early_allocation,late_deallocation,"
				     "page_type:huge,alloc_type:alloc}\""),
		  ROW_26_0, both, 1);
	check_csv(HEADER MALLOC("1",
				"\"{allocation_id:1,owner:a,inefficient_type:x,y,page_type:p}\""),
		  HEADER MALLOC("1", "\"{allocation_id:1,owner:a,"
				     "inefficient_type:temporary_idleness,page_type:p}\""),
		  ROW_SEED, tag, 1);
	check_csv(HEADER MALLOC("1", "\"{allocation_id:1,inefficient:x,y}\""),
		  HEADER MALLOC("1", "\"{allocation_id:1,owner:PTA@x,inefficient:x,y}\""), ROW_26_0,
		  owner, 1);
	check_csv(HEADER MALLOC("1", "{allocation_id:1}"),
		  HEADER MALLOC("1", "\"{allocation_id:1,owner:PTA@x}\""), ROW_SEED, owner, 1);
}

TEST(dump_amend, csv_spells_as_the_file_does)
{
	struct amendment tag[] = {{5, 2, "x", NULL, false}, {0}};

	check_csv(HEADER MALLOC("1", "\"{allocation_id:1,inefficient_type:a}\"")
			  MALLOC("2", "\"{allocation_id:2}\""),
		  HEADER MALLOC("1", "\"{allocation_id:1,inefficient_type:a}\"")
			  MALLOC("2", "\"{allocation_id:2,inefficient_type:x}\""),
		  ROW_SEED, tag, 1);
}

/* Other processes, other events, dirt of every kind, a torn end: not a byte changes. */
TEST(dump_amend, csv_leaves_the_rest_alone)
{
#define DIRT                                                                                       \
	"\r\n\n1,MALLOC,PTA,\"N\"A,12,5,6,0,0x10,\"{allocation_id:1}\",,\n"                        \
	"x" MALLOC("1", "\"{allocation_id:1}\"") "1,MALLOC\n"                                      \
						 "7,MALLOC,PTA,N/"                                 \
						 "A,12,6,6,0,0x10,\"{allocation_id:1}\",,\n"       \
						 "7,MALLOC,PTA,N/A,12,N/"                          \
						 "A,6,0,0x10,\"{allocation_id:1}\",,\r\n"          \
						 "2,MSTX,Mark,\"a "                                \
						 "\"\"b\"\",\nc\",101,5,6,N/A,N/"                  \
						 "A,,\"f(x)\ng()\",\"main()\"\n" FREE
#define TORN "3,MALLOC,PTA,N/A,12,5,6,0,0x10,\"{allocation_id:1}\",,\"ab"
	struct amendment found[] = {{5, 1, NULL, "o", false}, {0}};
	struct amendment other[] = {{5, 77, NULL, "o", false}, {0}};
	const char *old = "4,MALLOC,PTA,\"a\"\"b\",12,5,6,0,0x10,"
			  "\"{allocation_id:1,x:\"\"q\"\",zz:1}\",\"s\"\"\nt\",\r\n";
	const char *new = "4,MALLOC,PTA,\"a\"\"b\",12,5,6,0,0x10,"
			  "\"{allocation_id:1,x:\"\"q\"\",zz:1,owner:o}\",\"s\"\"\nt\",\r\n";
	char before[4096], after[4096];

	snprintf(before, sizeof(before), "\xef\xbb\xbf" HEADER DIRT "%s" DIRT TORN, old);
	snprintf(after, sizeof(after), "\xef\xbb\xbf" HEADER DIRT "%s" DIRT TORN, new);
	check_csv(before, after, ROW_SEED, found, 1);
	check_csv(before, before, ROW_SEED, other, 0);
}

TEST(dump_amend, csv_unknown_process_and_columns_in_any_order)
{
	struct amendment found[] = {{UINT32_MAX, 1, NULL, "o", false}, {0}};
#define ORDER                                                                                      \
	"Attr,Extra,ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr\n"

	check_csv(ORDER "\"{allocation_id:1}\",\"x\",1,malloc,PTA,N/A,1,N/A,2,0,0x1\n",
		  ORDER "\"{allocation_id:1,owner:o}\",\"x\",1,malloc,PTA,N/A,1,N/A,2,0,0x1\n",
		  ROW_SEED, found, 1);
	/* the last row has no line end */
	check_csv(ORDER "\"{allocation_id:1}\",\"x\",1,malloc,PTA,N/A,1,N/A,2,0,0x1",
		  ORDER "\"{allocation_id:1,owner:o}\",\"x\",1,malloc,PTA,N/A,1,N/A,2,0,0x1",
		  ROW_SEED, found, 1);
}

TEST(dump_amend, a_value_begins_no_other_pair)
{
	struct amendment found[] = {{5, 1, NULL, "a,size:5,b\"c,,d:", false}, {0}};

	check_csv(HEADER MALLOC("1", "\"{allocation_id:1,size:64}\""),
		  HEADER MALLOC("1", "\"{allocation_id:1,size:64,owner:a;size:5,b\"\"c,;d:}\""),
		  ROW_SEED, found, 1);
}

static void make_rows(const struct writer_ops *ops, const char *path, unsigned n)
{
	struct writer *w;

	unlink(path);
	CHECK_INT(ops->open(path, ROW_SEED, &w, &err), 0);
	for (unsigned i = 1; i <= n; i++) {
		struct row r = {.id = i, .event = i % 2 ? ROW_MALLOC : ROW_FREE, .type = TYPE_PTA};

		r.pid = i % 8 == 3 ? UINT32_MAX : 5;
		r.time_ns = 1000 - i;
		row_attr_number(&r, ATTR_ALLOCATION_ID, (i + 1) / 2);
		row_attr_number(&r, ATTR_SIZE, 1ull << 33);
		row_attr_text(&r, ATTR_ALLOC_TYPE, "a,\"b\"", 5);
		CHECK_INT(ops->add(w, &r, &err), 0);
	}
	CHECK_INT(ops->close(w, &err), 0);
}

static const struct amendment *every_third(void *arg, uint32_t pid, uint64_t id)
{
	static struct amendment a;

	(void)arg;
	a = (struct amendment){pid, id, "early_allocation,late_deallocation", "PTA@\"w\",x", false};
	return id % 3 == 0 ? &a : NULL;
}

static void check_rows(const char *path, unsigned n)
{
	struct dump *d;
	struct row row;

	CHECK_INT(dump_open(path, 0, &d, &err), 0);
	for (unsigned i = 1; i <= n; i++) {
		CHECK_INT(dump_next(d, &row, &err), 1);
		bool amended = i % 2 && (i + 1) / 2 % 3 == 0;
		const struct attr *owner = row_attr(&row, ATTR_OWNER);
		const struct attr *tag = row_attr(&row, ATTR_INEFFICIENT);
		const struct attr *type = row_attr(&row, ATTR_ALLOC_TYPE);

		CHECK(row.id == i && row.nattrs == (amended ? 5 : 3));
		CHECK(row_attr(&row, ATTR_SIZE)->number == 1ull << 33);
		CHECK(type->text_len == 5 && !memcmp(type->text, "a,\"b\"", 5));
		CHECK(amended == (owner != NULL) && amended == (tag != NULL));
		if (amended) {
			CHECK(owner->text_len == 9 && !memcmp(owner->text, "PTA@\"w\",x", 9));
			CHECK(tag->text_len == 34 &&
			      !memcmp(tag->text, "early_allocation,late_deallocation", 34));
			CHECK(owner < tag && tag < type);
		}
	}
	CHECK_INT(dump_next(d, &row, &err), 0);
	dump_close(d);
}

TEST(dump_amend, both_formats_read_back)
{
	static const struct writer_ops *const formats[] = {&csv_writer, &db_writer};
	const unsigned n = 12000; /* several pieces of the CSV file */
	uint64_t rows;

	for (int i = 0; i < 2; i++) {
		const char *path = tmpfile_path("a.file");

		make_rows(formats[i], path, n);
		CHECK_INT(dump_amend(path, ROW_SEED, every_third, NULL, &rows, &err), 0);
		CHECK_INT(rows, n / 6);
		check_rows(path, n);
		CHECK_INT(dump_amend(path, ROW_SEED, every_third, NULL, &rows, &err), 0);
		CHECK_INT(rows, 0);
		check_alone();
		unlink(path);
	}
}

static void run_sql(const char *path, const char *sql)
{
	sqlite3 *db;
	char *text = NULL;

	CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK)
		CHECK_STR(text, "");
	sqlite3_close(db);
}

static void check_sql(const char *path, const char *sql, const char *want)
{
	sqlite3_stmt *stmt;
	sqlite3 *db;

	CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
	CHECK_INT(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
	CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
	CHECK_STR((const char *)sqlite3_column_text(stmt, 0), want);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
}

#define TABLE                                                                                      \
	"CREATE TABLE memscope_dump(id,event,\"event type\",name,\"timestamp(ns)\",\"process "     \
	"id\",\"thread id\",\"device id\",ptr,attr);"
#define INSERT(pid, attr)                                                                          \
	"INSERT INTO memscope_dump VALUES(1,'MALLOC','HAL','N/A',2," pid ",4,'0','0x5','" attr "'" \
	")"                                                                                        \
	";"

TEST(dump_amend, db_of_another_hand)
{
	struct amendment found[] = {
		{5, 1, "x,y", "a\"b\\\n", false}, {UINT32_MAX, 1, "z", NULL, false}, {0}};
	const char *path = tmpfile_path("a.db");
	uint64_t rows;

	run_sql(path,
		"PRAGMA journal_mode=DELETE;" TABLE "CREATE TABLE other(x);"
		"CREATE TRIGGER t AFTER UPDATE ON memscope_dump BEGIN INSERT INTO other VALUES(1);"
		"END;" INSERT("5", " { \"allocation_id\" : 1 , \"k\\u0041\\\"y\":true, "
				   "\"alloc_type\":\"q\" } ")
			INSERT("-1", "{\"allocation_id\":\"1\",\"inefficient_type\":\"old\"}")
				INSERT("'N/A'", "{}") INSERT("5", "{broken") INSERT("7", ""));
	CHECK_INT(dump_amend(path, ROW_SEED, find, found, &rows, &err), 0);
	CHECK_INT(rows, 2);
	check_sql(path, "SELECT attr FROM memscope_dump WHERE rowid=1",
		  "{\"allocation_id\" : 1,\"k\\u0041\\\"y\":true,\"owner\":\"a\\\"b\\\\\\n\","
		  "\"inefficient\":\"x,y\",\"alloc_type\":\"q\"}");
	check_sql(path, "SELECT attr FROM memscope_dump WHERE rowid=2",
		  "{\"allocation_id\":\"1\",\"inefficient_type\":\"z\"}");
	check_sql(path, "SELECT attr FROM memscope_dump WHERE rowid=4", "{broken");
	check_sql(path, "SELECT count(*) FROM other", "0");
	CHECK_INT(dump_amend(path, ROW_SEED, find, found, &rows, &err), 0);
	CHECK_INT(rows, 0);
	check_alone();
}

TEST(dump_amend, refuses)
{
	struct amendment found[] = {{5, 1, NULL, "o", false}, {0}};
	const char *text = HEADER MALLOC("1", "\"{allocation_id:1}\"");
	const char *path = tmpfile_path("a.csv");
	uint64_t rows = 7;

	CHECK_INT(dump_amend("/nowhere", ROW_SEED, find, found, &rows, &err), -ENOENT);
	CHECK_INT(dump_amend("/dev/null", ROW_SEED, find, found, &rows, &err), -EINVAL);
	CHECK_INT(dump_amend(tmpdir(), ROW_SEED, find, found, &rows, &err), -EISDIR);
	write_text(path, "hello\n", 6);
	CHECK_INT(dump_amend(path, ROW_SEED, find, found, &rows, &err), -EINVAL);
	write_text(path, text, strlen(text));
	int fd = open(path, O_RDONLY);
	CHECK_INT(flock(fd, LOCK_EX), 0);
	CHECK_INT(dump_amend(path, ROW_SEED, find, found, &rows, &err), -EBUSY);
	close(fd);
	check_text(path, text, strlen(text));
	check_alone();
	CHECK_INT(rows, 7);
}

/* The disk is full when half of the new file is written. */
TEST(dump_amend, failure_leaves_the_old_file)
{
	const struct rlimit small = {100000, 100000};
	const char *path = tmpfile_path("a.csv");
	struct buf old = {0};
	uint64_t rows = 7;

	make_rows(&csv_writer, path, 3000);
	CHECK_INT(fs_read_file(path, 1 << 24, &old, &err), 0);
	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	CHECK_INT(dump_amend(path, ROW_SEED, every_third, NULL, &rows, &err), -EFBIG);
	CHECK_INT(rows, 7);
	check_text(path, old.data, old.len);
	check_alone();
	buf_release(&old);
}

#define BLANKS_60 "                                                            "

/* A row with room is written over where it lies, whatever else happens to the disk. */
TEST(dump_amend, rows_with_room_are_written_over)
{
	static const char before[] = HEADER MALLOC(
		"1", "\"{allocation_id:1,size:64,owner:PTA,room:" BLANKS_60 BLANKS_60 "}\"") FREE;
	const struct rlimit none = {sizeof(before) - 1, RLIM_INFINITY};
	static const char *const kinds[] = {
		"early_allocation", "early_allocation,temporary_idleness",
		"early_allocation,temporary_idleness,late_deallocation"};
	const char *path = tmpfile_path("a.csv");
	struct stat one, two;
	struct dump *d;
	struct row row;
	uint64_t rows;

	write_text(path, before, strlen(before));
	CHECK_INT(stat(path, &one), 0);
	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &none), 0);
	for (unsigned i = 0; i < 6; i++) { /* each kind twice: the second time nothing is new */
		struct amendment found[] = {{5, 1, kinds[i / 2], NULL, false}, {0}};

		CHECK_INT(dump_amend(path, ROW_26_0, find, found, &rows, &err), 0);
		CHECK_INT(rows, i % 2 == 0);
		CHECK_INT(dump_open(path, 0, &d, &err), 0);
		CHECK_INT(dump_next(d, &row, &err), 1);
		const struct attr *a = row_attr(&row, ATTR_INEFFICIENT);
		CHECK(a && a->text_len == strlen(kinds[i / 2]) &&
		      !memcmp(a->text, kinds[i / 2], a->text_len));
		CHECK_INT(row.nattrs, 4); /* of room nobody hears */
		CHECK_INT(dump_next(d, &row, &err), 1);
		dump_close(d);
	}
	CHECK(!stat(path, &two) && one.st_ino == two.st_ino && one.st_size == two.st_size);
	check_alone();
}

/* One row has none: the file is written anew, with what was written over before. */
TEST(dump_amend, a_row_without_room_among_others)
{
	struct amendment found[] = {{5, 1, "x", NULL, false}, {5, 2, "y", NULL, false}, {0}};
	static const char before[] = HEADER MALLOC("1", "\"{allocation_id:1,room:                "
							"}\"") MALLOC("2", "\"{allocation_id:2}\"");
	static const char after[] =
		HEADER MALLOC("1", "\"{allocation_id:1,inefficient:x,room:  }\"")
			MALLOC("2", "\"{allocation_id:2,"
				    "inefficient:y}\"");

	check_csv(before, after, ROW_SEED, found, 2);
}

TEST(dump_amend, follows_links)
{
	struct amendment found[] = {{5, 1, NULL, "o", false}, {0}};
	const char *text = HEADER MALLOC("1", "\"{allocation_id:1}\"");
	const char *want = HEADER MALLOC("1", "\"{allocation_id:1,owner:o}\"");
	const char *path = tmpfile_path("a.csv"), *link = tmpfile_path("link");
	struct stat st;
	uint64_t rows;

	write_text(path, text, strlen(text));
	CHECK_INT(symlink(path, link), 0);
	CHECK_INT(dump_amend(link, ROW_SEED, find, found, &rows, &err), 0);
	CHECK(!lstat(link, &st) && S_ISLNK(st.st_mode));
	check_text(path, want, strlen(want));
}
