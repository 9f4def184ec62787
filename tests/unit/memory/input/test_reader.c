/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "dump_bytes.h"
#include "memory/dump/writer.h"
#include "memory/input/reader.h"
#include "test.h"
#include "wire/record.h"

#define HEADER                                                                                     \
	"ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,"          \
	"Call Stack(Python),Call Stack(C)\n"
#define GOOD "1,SYSTEM,ACL_INIT,N/A,12,123,1234,N/A,N/A,,,\n"

static char path[64];
static struct err err;
static struct row row;

static void make_path(void)
{
	char dir[] = "/tmp/sonde_dump_XXXXXX";

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a.file", dir); /* the name says nothing */
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

static bool text_is(const char *got, size_t len, const char *want)
{
	return want ? got && len == strlen(want) && !memcmp(got, want, len) : !got;
}

static struct dump *open_text(const char *text, unsigned flags)
{
	struct dump *d = NULL;

	CHECK_INT(dump_open_bytes(text, strlen(text), flags, &d, &err), 0);
	return d;
}

/* The answers of dump_next() in one word: r row, e bad row, and the end. */
static const char *answers(const char *text, unsigned flags)
{
	static char got[64];
	struct dump *d = open_text(text, flags);
	size_t n = 0;
	int r;

	while (n < 60 && (r = dump_next(d, &row, &err))) {
		CHECK(r == 1 || r == -EBADMSG);
		got[n++] = r == 1 ? 'r' : 'e';
	}
	if (dump_torn(d))
		got[n++] = 't';
	got[n] = '\0';
	dump_close(d);
	return got;
}

static const char shape[] = "dtype:torch.float16,shape:torch.Size([1,5])";
static const char stack[] = "/a,b.py(3): \"f\"\n/c.py(4): g\n";

static void write_dump(const struct writer_ops *ops, enum row_compat compat)
{
	struct writer *w;
	struct row r = {.id = UINT32_MAX,
			.event = ROW_ACCESS,
			.type = TYPE_READ,
			.name = "a,\"b\"",
			.name_len = 5,
			.time_ns = 1767225600000000001,
			.pid = 7,
			.tid = UINT32_MAX,
			.device = DEV_HOST,
			.has_ptr = true,
			.ptr = 0xffff800000001000,
			.py_stack = stack,
			.py_stack_len = strlen(stack),
			.c_stack = "x",
			.c_stack_len = 1};

	CHECK_INT(ops->open(path, compat, &w, &err), 0);
	row_attr_number(&r, ATTR_ALLOCATION_ID, 18446744073709551615u);
	r.attrs[r.nattrs++] = (struct attr){.key = ATTR_ADDR, .kind = ATTR_HEX, .number = r.ptr};
	row_attr_text(&r, ATTR_RAW, shape, strlen(shape));
	row_attr_text(&r, ATTR_OWNER, "A@\"B\"\\\n", 8);
	CHECK_INT(ops->add(w, &r, &err), 0);
	struct row s = {.event = ROW_SNAPSHOT, .type = TYPE_SNAPSHOT, .name = "N", .name_len = 1};
	row_attr_number(&s, ATTR_TOTAL_MEM, 1);
	row_attr_number(&s, ATTR_FREE_MEM, 2);
	row_attr_text(&s, ATTR_DEVICE_UTILIZATION, "12.500000", 9);
	CHECK_INT(ops->add(w, &s, &err), 0);
	struct row m = {.event = ROW_MSTX, .type = TYPE_MARK, .name = "\"q\"", .name_len = 3};
	m.device = DEV_NONE;
	CHECK_INT(ops->add(w, &m, &err), 0);
	CHECK_INT(ops->close(w, &err), 0);
}

static void check_dump(void)
{
	struct dump *d;

	CHECK_INT(dump_open(path, 0, &d, &err), 0);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(row.id, UINT32_MAX);
	CHECK(row.event == ROW_ACCESS && row.type == TYPE_READ);
	CHECK(text_is(row.name, row.name_len, "a,\"b\""));
	CHECK_INT(row.time_ns, 1767225600000000001);
	CHECK(row.pid == 7 && row.tid == UINT32_MAX && row.device == DEV_HOST);
	CHECK(row.has_ptr && row.ptr == 0xffff800000001000);
	CHECK(text_is(row.py_stack, row.py_stack_len, stack));
	CHECK(text_is(row.c_stack, row.c_stack_len, "x"));
	CHECK_INT(row.nattrs, 4);
	CHECK(row.attrs[0].key == ATTR_ALLOCATION_ID && row.attrs[0].kind == ATTR_NUMBER);
	CHECK(row.attrs[0].number == UINT64_MAX);
	CHECK(row.attrs[1].key == ATTR_ADDR && row.attrs[1].kind == ATTR_HEX);
	CHECK(row.attrs[1].number == 0xffff800000001000);
	CHECK(row.attrs[2].key == ATTR_RAW);
	CHECK(text_is(row.attrs[2].text, row.attrs[2].text_len, shape));
	CHECK(row.attrs[3].key == ATTR_OWNER && row.attrs[3].kind == ATTR_TEXT);
	CHECK(text_is(row.attrs[3].text, row.attrs[3].text_len, "A@\"B\"\\\n"));
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK(row.event == ROW_SNAPSHOT && row.nattrs == 3 && !row.has_ptr && !row.py_stack);
	CHECK(row.attrs[0].key == ATTR_TOTAL_MEM && row.attrs[0].number == 1);
	CHECK(row.attrs[1].key == ATTR_FREE_MEM && row.attrs[1].number == 2);
	CHECK(row.attrs[2].key == ATTR_DEVICE_UTILIZATION && row.attrs[2].kind == ATTR_TEXT);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK(row.event == ROW_MSTX && row.device == DEV_NONE && !row.nattrs);
	CHECK(text_is(row.name, row.name_len, "\"q\""));
	CHECK_INT(dump_next(d, &row, &err), 0);
	CHECK_INT(dump_next(d, &row, &err), 0);
	CHECK(!dump_torn(d) && !dump_bad_rows(d));
	dump_close(d);
}

TEST(dump_reader, csv_round_trip)
{
	make_path();
	write_dump(&csv_writer, ROW_SEED);
	check_dump();
	unlink(path);
	write_dump(&csv_writer, ROW_26_0);
	check_dump();
	remove_path();
}

TEST(dump_reader, db_round_trip)
{
	make_path();
	write_dump(&db_writer, ROW_SEED);
	check_dump();
	CHECK(access(beside("-wal"), F_OK) < 0 && access(beside("-shm"), F_OK) < 0);
	unlink(path);
	write_dump(&db_writer, ROW_26_0);
	check_dump();
	remove_path();
}

TEST(dump_reader, db_of_a_killed_writer)
{
	struct row r = {.event = ROW_SYSTEM, .type = TYPE_STEP};
	struct dump *d;
	int status, n = 0;

	make_path();
	pid_t pid = fork();
	if (!pid) {
		struct writer *w;

		CHECK_INT(db_writer.open(path, ROW_SEED, &w, &err), 0);
		for (int i = 0; i < 100; i++)
			CHECK_INT(db_writer.add(w, &r, &err), 0);
		CHECK_INT(db_writer.flush(w, &err), 0);
		raise(SIGKILL);
	}
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(dump_open(path, 0, &d, &err), 0);
	while (dump_next(d, &row, &err) == 1)
		n++;
	CHECK_INT(n, 100);
	dump_close(d);
	remove_path();
}

TEST(dump_reader, headers)
{
	struct dump *d;

	CHECK_STR(answers(HEADER, 0), "");
	CHECK_STR(answers("\xef\xbb\xbf" HEADER GOOD, 0), "r");
	CHECK_STR(answers("id,EVENT,event type,name,timestamp(NS),process id,\"THREAD ID\",Device "
			  "ID,ptr,attr,call stack(python),call stack(c)\r\n" GOOD,
			  0),
		  "r");
	/* another order, a column more, no stacks */
	CHECK_STR(answers("Attr,Extra,ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,"
			  "Device Id,Ptr\n,x,5,FREE,PTA,N/A,1,2,3,4,0x10\n",
			  0),
		  "r");
	CHECK(row.id == 5 && row.event == ROW_FREE && row.device == 4 && row.ptr == 16);
	const char *bad[] = {"", "\n", "x", "ID,Event\n", "\"a\"b\n", "\"" HEADER};
	for (int i = 0; i < 6; i++)
		CHECK_INT(dump_open_bytes(bad[i], strlen(bad[i]), 0, &d, &err), -EINVAL);
	CHECK_INT(dump_open("/nowhere", 0, &d, &err), -ENOENT);
	CHECK_INT(dump_open("/dev/null", 0, &d, &err), -EINVAL);
	CHECK_INT(dump_open("/tmp", 0, &d, &err), -EISDIR);
}

TEST(dump_reader, line_ends_and_blank_lines)
{
	CHECK_STR(answers(HEADER GOOD "\n\r\n" GOOD, 0), "rr");
	CHECK_STR(
		answers(HEADER "1,MSTX,Mark,\"a\r\nb\",12,1,2,0,N/A,,\"x\ny\n\",\"z\"\r\n" GOOD, 0),
		"rr");
	CHECK_STR(answers(HEADER "1,SYSTEM,ACL_INIT,N/A,12,123,1234,N/A,N/A,,,", 0), "r");
	CHECK_STR(answers(HEADER GOOD "\r", 0), "rt");
}

TEST(dump_reader, torn_ends)
{
	const char *tail = "1,MSTX,Mark,\"a\nb\",12,1,2,0,N/A,,\"x\n,\",\"z\"\n";
	char text[512];

	for (size_t n = 1; n < strlen(tail); n++) {
		snprintf(text, sizeof(text), HEADER GOOD "%.*s", (int)n, tail);
		const char *got = answers(text, 0);
		/* without a C stack, or without the line end, it is a row like any other */
		bool whole = n == strlen(tail) - 1 || n == strlen(tail) - 4;

		CHECK_STR(got, whole ? "rr" : "rt");
	}
}

TEST(dump_reader, bad_rows)
{
	const char *bad[] = {
		"1,SYSTEM,ACL_INIT,N/A,12,123,1234,N/A,N/A,,\n",
		"1,SYSTEM,ACL_INIT,N/A,12,123,1234,N/A,N/A,,,,\n",
		"x,SYSTEM,ACL_INIT,N/A,12,123,1234,N/A,N/A,,,\n",
		"1,SYS\x01,ACL_INIT,N/A,12,123,1234,N/A,N/A,,,\n",
		"1,SYSTEM,,N/A,12,123,1234,N/A,N/A,,,\n",
		"1,SYSTEM,ACL_INIT,N/A,-12,123,1234,N/A,N/A,,,\n",
		"1,SYSTEM,ACL_INIT,N/A,12,99999999999,1234,N/A,N/A,,,\n",
		"1,SYSTEM,ACL_INIT,N/A,12,123,,N/A,N/A,,,\n",
		"1,SYSTEM,ACL_INIT,N/A,12,123,1234,gpu,N/A,,,\n",
		"1,SYSTEM,ACL_INIT,N/A,12,123,1234,N/A,0xzz,,,\n",
		"1,SYSTEM,ACL_INIT,N/A,12,123,1234,N/A,N/A,size:1,,\n",
		"1,SYSTEM,ACL_INIT,N/A,12,123,1234,N/A,N/A,{,,\n",
		"1,SYSTEM,ACL_INIT,\"N\"A,12,123,1234,N/A,N/A,,,\n",
		/* one stray quote does not swallow the row behind it */
		"1,SYSTEM,STEP,\"N,12,1,1,0,N/A,,,\n1,SYSTEM,STEP,\"1\",1,1,1,0,N/A,,,\n",
	};
	char text[1024];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *more = strchr(bad[i], '\n')[1] ? "r" : "";
		char want[8];

		snprintf(text, sizeof(text), HEADER GOOD "%s" GOOD, bad[i]);
		snprintf(want, sizeof(want), "re%sr", more);
		CHECK_STR(answers(text, 0), want);
		CHECK(strstr(err.text, "line 3"));
		snprintf(want, sizeof(want), "r%sr", more);
		CHECK_STR(answers(text, DUMP_SKIP_BAD), want);
	}
}

TEST(dump_reader, counts_and_lines)
{
	struct dump *d =
		open_text(HEADER "1,MSTX,Mark,\"a\nb\",1,1,1,0,N/A,,,\nbad\n" GOOD, DUMP_SKIP_BAD);

	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(dump_source(d)->line, 2);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(dump_source(d)->line, 5);
	CHECK_INT(dump_bad_rows(d), 1);
	CHECK_STR(dump_first_bad(d), "\"(memory)\" line 4: wrong number of fields");
	CHECK_INT(dump_next(d, &row, &err), 0);
	dump_close(d);
	dump_close(NULL);
}

TEST(dump_reader, words_of_all_versions)
{
	struct dump *d =
		open_text(HEADER "1,malloc,MINDSPORE,N/A,1,18446744073709551615,N/A,cpu,1,"
				 "\"{addr:255,inefficient_type:a,b,total:007,zz:1,yy:2}\",,\n"
				 "2,NEWS,N/A,a\"b,1,1,1,0,N/A,{},,\n",
			  0);

	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK(row.event == ROW_MALLOC && row.type == TYPE_MINDSPORE && row.pid == UINT32_MAX);
	CHECK(row.device == DEV_HOST && row.ptr == 1 && !row.name);
	CHECK_INT(row.nattrs, 4);
	CHECK(row.attrs[0].number == 255);
	CHECK(row.attrs[1].key == ATTR_INEFFICIENT);
	CHECK(text_is(row.attrs[1].text, row.attrs[1].text_len, "a,b"));
	CHECK(row.attrs[2].key == ATTR_TOTAL && row.attrs[2].kind == ATTR_TEXT);
	CHECK(row.attrs[3].key == ATTR_RAW);
	CHECK(text_is(row.attrs[3].text, row.attrs[3].text_len, "zz:1,yy:2"));
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK(row.event == ROW_EVENT_END && row.type == TYPE_END && !row.nattrs);
	CHECK(text_is(row.name, row.name_len, "a\"b"));
	dump_close(d);
}

TEST(dump_reader, more_attributes_than_places)
{
	struct dump *d =
		open_text(HEADER "1,MALLOC,HAL,N/A,1,1,1,0,0x1,\"{size:1,size:2,size:3,size:"
				 "4,size:5,size:6,size:7,size:8,size:9,size:10,size:11,size:12,"
				 "size:13,size:14,size:15,size:16,a:17,size:18}\",,\n",
			  0);

	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(row.nattrs, ROW_MAX_ATTRS);
	CHECK(row.attrs[14].key == ATTR_SIZE && row.attrs[14].number == 15);
	CHECK(row.attrs[15].key == ATTR_RAW);
	CHECK(text_is(row.attrs[15].text, row.attrs[15].text_len, "size:16,a:17,size:18"));
	dump_close(d);
}

TEST(dump_reader, a_row_without_end_is_bounded)
{
	const size_t size = 40u << 20;
	char *text = malloc(size + 1);
	struct dump *d;

	memset(text, 'x', size);
	text[size] = '\0';
	memcpy(text, HEADER "\"", strlen(HEADER) + 1);
	memcpy(text + size - strlen(GOOD) - 1, "\n" GOOD, strlen(GOOD) + 1);
	CHECK_INT(dump_open_bytes(text, size, DUMP_SKIP_BAD, &d, &err), 0);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(row.id, 1);
	CHECK_INT(dump_next(d, &row, &err), 0);
	CHECK(dump_bad_rows(d) >= 1);
	dump_close(d);
	free(text);
}

static void make_db(const char *sql)
{
	sqlite3 *db;

	unlink(path);
	CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
	CHECK_INT(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
}

#define TABLE                                                                                      \
	"CREATE TABLE memscope_dump(id,event,\"event type\",name,\"timestamp(ns)\",\"process "     \
	"id\","                                                                                    \
	"\"thread id\",\"device id\",ptr,attr);"
#define INSERT(attr)                                                                               \
	"INSERT INTO memscope_dump VALUES(1,'MALLOC','HAL','N/A',2,3,4,'0','0x5','" attr "');"

TEST(dump_reader, json_cells)
{
	const char *bad[] = {"{",
			     "[]",
			     "{\"a\":{}}",
			     "{\"a\":\"b\"}x",
			     "{\"a\":\"\\x\"}",
			     "{\"a\":\"\\ud800\"}",
			     "{\"a\":\"\\udc00\"}",
			     "{\"a\":\"\\u12\"}",
			     "{\"a\":\"b\",}",
			     "{\"a\"}",
			     "{a:1}",
			     "{\"a\":}"};
	char sql[1024];
	struct dump *d;

	make_path();
	make_db(TABLE INSERT("") INSERT("{}") INSERT(" { \"size\" : 12 , \"owner\":\"\\ud83d\\ude00"
						     "\\u00fc\\n\\/\" , \"x\":true } "));
	CHECK_INT(dump_open(path, 0, &d, &err), 0);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK(row.nattrs == 3 && row.attrs[0].number == 12);
	CHECK(text_is(row.attrs[1].text, row.attrs[1].text_len, "\xf0\x9f\x98\x80\xc3\xbc\n/"));
	CHECK(text_is(row.attrs[2].text, row.attrs[2].text_len, "x:true"));
	CHECK_INT(dump_next(d, &row, &err), 0);
	dump_close(d);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(sql, sizeof(sql), TABLE INSERT("%s") INSERT("{}"), bad[i]);
		make_db(sql);
		CHECK_INT(dump_open(path, 0, &d, &err), 0);
		CHECK_INT(dump_next(d, &row, &err), -EBADMSG);
		CHECK_INT(dump_next(d, &row, &err), 1);
		CHECK_INT(dump_next(d, &row, &err), 0);
		dump_close(d);
	}
	remove_path();
}

TEST(dump_reader, strange_databases)
{
	struct dump *d;

	make_path();
	make_db("CREATE TABLE other(x)");
	CHECK_INT(dump_open(path, 0, &d, &err), -EINVAL);
	make_db("CREATE TABLE memscope_dump(x)");
	CHECK_INT(dump_open(path, 0, &d, &err), -EINVAL);
	make_db("CREATE VIEW memscope_dump AS WITH RECURSIVE c(ID) AS (SELECT 1 UNION ALL SELECT "
		"ID+1 FROM c) SELECT ID FROM c");
	CHECK_INT(dump_open(path, 0, &d, &err), -EINVAL);
	/* NULLs and numbers where texts belong */
	make_db(TABLE "INSERT INTO memscope_dump VALUES(NULL,1,2,3,4,5,6,7,8,9);"
		      "INSERT INTO memscope_dump VALUES(1,'FREE','HAL',NULL,4,5,6,NULL,8,NULL);"
		      "INSERT INTO memscope_dump VALUES(1,'FREE','HAL',3,4,-1,6,7,NULL,NULL);");
	CHECK_INT(dump_open(path, DUMP_SKIP_BAD, &d, &err), 0);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK(row.pid == UINT32_MAX && row.device == 7 && !row.has_ptr);
	CHECK_INT(dump_next(d, &row, &err), 0);
	CHECK_INT(dump_bad_rows(d), 2);
	dump_close(d);
	remove_path();
}

/* A database with damaged pages gives an error or rows, never more than that. */
TEST(dump_reader, damaged_databases)
{
	static char page[200000];
	struct dump *d;

	make_path();
	for (unsigned seed = 1; seed < 60; seed++) {
		unlink(path);
		write_dump(&db_writer, ROW_SEED);
		int fd = open(path, O_RDWR);
		ssize_t n = read(fd, page, sizeof(page));
		CHECK(n > 100);
		srand(seed);
		for (int i = 0; i < 40; i++)
			page[16 + rand() % (n - 16)] = (char)rand();
		CHECK_INT(pwrite(fd, page, (size_t)n, 0), n);
		close(fd);
		if (dump_open(path, DUMP_SKIP_BAD, &d, &err) < 0)
			continue;
		for (int i = 0; i < 10000 && dump_next(d, &row, &err) == 1; i++)
			;
		dump_close(d);
	}
	remove_path();
}

/* The ids of the rows in the order they come, bad ones as 0. */
static const char *order(struct dump *d)
{
	static char got[256];
	size_t n = 0;
	int r;

	while (n < 200 && (r = dump_next(d, &row, &err))) {
		CHECK(r == 1 || r == -EBADMSG);
		n += (size_t)snprintf(got + n, sizeof(got) - n, "%d ", r == 1 ? (int)row.id : 0);
	}
	got[n] = '\0';
	return got;
}

#define AT(id, time) #id ",SYSTEM,STEP,\"\"\"" #id "\n\"," #time ",1,1,0,N/A,,,\n"
#define MIXED                                                                                      \
	HEADER AT(5, 30) AT(1, 10) "dirt\n" AT(4, 30) AT(2, 20) AT(3, 20) AT(3, 20)                \
		AT(9, 5) "8,SYSTEM,STEP,8,1,1,1,0,N/A,,,"

TEST(dump_reader, sorted)
{
	struct dump *d = open_text(MIXED, DUMP_SORTED | DUMP_SKIP_BAD);

	CHECK_STR(order(d), "8 9 1 2 3 3 4 5 ");
	CHECK(dump_bad_rows(d) == 1 && !dump_torn(d));
	CHECK_INT(dump_next(d, &row, &err), 0);
	dump_close(d);
	/* bad rows are told first */
	d = open_text(MIXED, DUMP_SORTED);
	CHECK_STR(order(d), "0 8 9 1 2 3 3 4 5 ");
	dump_close(d);
	d = open_text(HEADER, DUMP_SORTED);
	CHECK_STR(order(d), "");
	dump_close(d);
}

TEST(dump_reader, sorted_rows_know_their_lines)
{
	struct dump *d = open_text(MIXED, DUMP_SORTED | DUMP_SKIP_BAD);
	static const int lines[] = {17, 15, 4, 9, 11, 13, 7, 2};

	for (int i = 0; i < 8; i++) {
		CHECK_INT(dump_next(d, &row, &err), 1);
		CHECK_INT(dump_source(d)->line, lines[i]);
		if (row.id != 8)
			CHECK(row.name[0] == '"' && row.name[1] == (char)('0' + row.id));
	}
	dump_close(d);
}

/* Rows of a file much larger than what is read at once, back to front, among long stacks. */
TEST(dump_reader, sorted_file)
{
	const int n = 20000;
	struct dump *d;

	make_path();
	FILE *f = fopen(path, "w");
	CHECK(f);
	fputs(HEADER, f);
	for (int i = n; i > 0; i--)
		fprintf(f, "%d,MALLOC,PTA,N/A,%d,1,1,0,0x%x,\"{size:%d}\",,\"%0*d\n\"\"\"\n", i,
			i / 2, i, i, i % 1000 ? 40 : 300000, i);
	fclose(f);
	CHECK_INT(dump_open(path, DUMP_SORTED, &d, &err), 0);
	for (int i = 1; i <= n; i++) {
		CHECK_INT(dump_next(d, &row, &err), 1);
		CHECK(row.id == (uint64_t)i && row.ptr == row.id && row.attrs[0].number == row.id);
		CHECK_INT(row.c_stack_len, (i % 1000 ? 40 : 300000) + 2);
		CHECK_INT(atoi(row.c_stack), i);
		CHECK_INT(dump_source(d)->line, 2 + 2 * (n - i));
	}
	CHECK_INT(dump_next(d, &row, &err), 0);
	dump_close(d);
	remove_path();
}

TEST(dump_reader, sorted_file_that_changes)
{
	struct dump *d;
	struct stat st;

	make_path();
	write_dump(&csv_writer, ROW_SEED);
	CHECK_INT(dump_open(path, DUMP_SORTED, &d, &err), 0);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(truncate(path, st.st_size / 2), 0);
	int r;
	while ((r = dump_next(d, &row, &err)) > 0)
		;
	CHECK_INT(r, -EIO);
	dump_close(d);
	remove_path();
}

TEST(dump_reader, sorted_db)
{
	struct dump *d;

	make_path();
	make_db(TABLE "INSERT INTO memscope_dump VALUES(5,'FREE','HAL',3,30,1,6,7,NULL,NULL);"
		      "INSERT INTO memscope_dump VALUES(1,'FREE','HAL',3,'4',1,6,7,NULL,NULL);"
		      "INSERT INTO memscope_dump VALUES(4,'FREE','HAL',3,30,1,6,7,NULL,NULL);"
		      "INSERT INTO memscope_dump VALUES(2,'FREE','HAL',3,'20',1,6,7,NULL,'{');"
		      "INSERT INTO memscope_dump VALUES(3,'FREE','HAL',3,20,1,6,7,NULL,NULL);");
	CHECK_INT(dump_open(path, DUMP_SORTED, &d, &err), 0);
	CHECK_STR(order(d), "1 0 3 4 5 ");
	CHECK(strstr(err.text, "line 4"));
	dump_close(d);
	make_db("CREATE TABLE memscope_dump(id PRIMARY KEY,event,\"event type\",name,"
		"\"timestamp(ns)\",\"process id\",\"thread id\",\"device id\",ptr,attr) WITHOUT "
		"ROWID;"
		"INSERT INTO memscope_dump VALUES(1,'FREE','HAL',3,30,1,6,7,NULL,NULL);"
		"INSERT INTO memscope_dump VALUES(2,'FREE','HAL',3,20,1,6,7,NULL,NULL);");
	CHECK_INT(dump_open(path, DUMP_SORTED, &d, &err), 0);
	CHECK_STR(order(d), "2 1 ");
	dump_close(d);
	remove_path();
}

TEST(dump_reader, ranges)
{
	static const struct {
		const char *type, *name;
		uint64_t range;
	} cases[] = {
		{"Range_end", "Range end from id 77", 77},
		{"Range_end", "Range end from id 18446744073709551615", UINT64_MAX},
		{"Range_end", "Range end from id ", 0},
		{"Range_end", "Range end from id 7x", 0},
		{"Range_end", "other", 0},
		{"Mark", "Range end from id 7", 0},
		{"Range_start", "step start", 0},
	};
	char text[512];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(text, sizeof(text), HEADER "1,MSTX,%s,\"%s\",1,1,1,0,N/A,,,\n",
			 cases[i].type, cases[i].name);
		CHECK_STR(answers(text, 0), "r");
		CHECK(row.range == cases[i].range && !row.hidden);
	}
}

/* Rows across the pieces in which a file is read; a bad line there is one bad row. */
TEST(dump_reader, large_file)
{
	const int n = 30000;
	struct dump *d;
	int rows = 0;

	make_path();
	FILE *f = fopen(path, "w");
	CHECK(f);
	fputs(HEADER, f);
	for (int i = 0; i < n; i++) {
		fprintf(f, "%d,MALLOC,PTA,N/A,1,1,1,0,0x1,\"{size:8589934592}\",,\"%0*d\"\n", i,
			i % 97, i);
		if (i % 10 == 0)
			fprintf(f, "\"bad\" %0*d\n", i % 1000, i);
	}
	fclose(f);
	CHECK_INT(dump_open(path, DUMP_SKIP_BAD, &d, &err), 0);
	for (; dump_next(d, &row, &err) > 0; rows++) {
		CHECK(row.id == (uint64_t)rows && atoi(row.c_stack) == rows);
		CHECK(row.attrs[0].number == 8589934592u);
	}
	CHECK_INT(rows, n);
	CHECK_INT(dump_bad_rows(d), n / 10);
	dump_close(d);
	remove_path();
}

/* --- with a second thread --- */

/* What a plain reading and one ahead give for the same text must be the same. */
static void check_ahead(const char *text, size_t len, size_t piece)
{
	struct dump *plain, *ahead;
	const struct row *got;
	int r;

	CHECK_INT(dump_open_bytes(text, len, DUMP_SKIP_BAD, &plain, &err), 0);
	CHECK_INT(dump_open_bytes(text, len, DUMP_SKIP_BAD, &ahead, &err), 0);
	dump_read_ahead(ahead, 1 + piece % 3, piece);
	while ((r = dump_next(plain, &row, &err)) > 0) {
		CHECK_INT(dump_take(ahead, &got, &err), 1);
		CHECK(got->id == row.id && got->nattrs == row.nattrs);
		CHECK(got->name_len == row.name_len && got->c_stack_len == row.c_stack_len);
		CHECK(!row.name_len || !memcmp(got->name, row.name, row.name_len));
		CHECK(!row.c_stack_len || !memcmp(got->c_stack, row.c_stack, row.c_stack_len));
		for (unsigned i = 0; i < row.nattrs; i++)
			CHECK(got->attrs[i].key == row.attrs[i].key &&
			      got->attrs[i].number == row.attrs[i].number);
	}
	CHECK_INT(r, 0);
	CHECK_INT(dump_take(ahead, &got, &err), 0);
	CHECK_INT(dump_take(ahead, &got, &err), 0);
	CHECK_INT(dump_bad_rows(ahead), dump_bad_rows(plain));
	CHECK_INT(dump_torn(ahead), dump_torn(plain));
	if (dump_bad_rows(plain))
		CHECK_STR(dump_first_bad(ahead), dump_first_bad(plain));
	dump_close(plain);
	dump_close(ahead);
}

TEST(dump_reader, ahead)
{
	static const char *const texts[] = {
		HEADER,
		MIXED,
		HEADER GOOD "dirt\n\n" GOOD "\"stray,\n" GOOD GOOD "2,SYS",
		HEADER
		"1,SYSTEM,STEP,\"a \"\"quoted\"\"\n name\",1,1,1,0,N/A,\"{a:1,b:2}\",,\r\n" GOOD,
		"\xef\xbb\xbf" HEADER GOOD "\"",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		for (size_t piece = 0; piece < 80; piece++)
			check_ahead(texts[i], strlen(texts[i]), piece);
}

/* Rows longer than a piece and than the room before it, bad ones that reach over many pieces. */
TEST(dump_reader, ahead_of_long_rows)
{
	const int n = 3000;
	struct buf text = {0};

	buf_add_str(&text, HEADER);
	for (int i = 1; i <= n; i++) {
		int long_one = i % 250 == 0 ? 400000 : i % 50 == 0 ? 20000 : i % 300;

		buf_addf(&text,
			 "%d,MALLOC,PTA,N/A,%d,1,1,0,0x%x,\"{size:%d,owner:a@b}\",,\"%0*d\"\n", i,
			 i, i, i, long_one, i);
		if (i % 400 == 0)
			buf_addf(&text, "\"bad\" %0*d\n", long_one, i);
	}
	check_ahead(text.data, text.len, 0);
	check_ahead(text.data, text.len, 1000);
	check_ahead(text.data, text.len - 100, 100000);
	buf_release(&text);
}

/* The caller goes away while the thread reads, waits for room, or has not begun. */
TEST(dump_reader, ahead_left_early)
{
	struct buf text = {0};
	const struct row *got;
	struct dump *d;

	buf_add_str(&text, HEADER);
	for (int i = 0; i < 5000; i++)
		buf_add_str(&text, GOOD);
	for (int rows = 0; rows < 5000; rows = rows * 3 + 1) {
		CHECK_INT(dump_open_bytes(text.data, text.len, DUMP_SKIP_BAD, &d, &err), 0);
		dump_read_ahead(d, 1, 1000);
		for (int i = 0; i < rows; i++)
			CHECK_INT(dump_take(d, &got, &err), 1);
		if (rows > 1000)
			usleep(2000);
		dump_close(d);
	}
	buf_release(&text);
}

/* Only where it can be: everything else comes as ever. */
TEST(dump_reader, ahead_of_a_database)
{
	const struct row *got;
	struct dump *d;

	make_path();
	make_db(TABLE "INSERT INTO memscope_dump VALUES(5,'FREE','HAL',3,30,1,6,7,NULL,NULL);");
	CHECK_INT(dump_open(path, DUMP_SKIP_BAD, &d, &err), 0);
	dump_read_ahead(d, 1, 0);
	CHECK_INT(dump_take(d, &got, &err), 1);
	CHECK_INT(got->id, 5);
	CHECK_INT(dump_take(d, &got, &err), 0);
	dump_close(d);
	d = open_text(MIXED, DUMP_SORTED | DUMP_SKIP_BAD);
	dump_read_ahead(d, 1, 0);
	CHECK_INT(dump_take(d, &got, &err), 1);
	CHECK_INT(got->id, 8);
	dump_close(d);
	remove_path();
}

TEST(dump_reader, wanted_attributes)
{
	static const char text[] =
		HEADER "1,MALLOC,PTA,N/A,1,1,1,0,0x1,"
		       "\"{allocation_id:7,addr:0x1,strange:[1,2],size:8,owner:a,used:9}\",,\n"
		       "2,SNAPSHOT,Snapshot,N/A,1,1,1,0,N/A,\"{total:5,used:6}\",,\n"
		       "3,MALLOC,PTA,N/A,1,1,1,0,0x1,\"broken\",,\n";
	struct dump *d = open_text(text, 0);

	dump_want(d, 1ull << ATTR_SIZE | 1ull << ATTR_OWNER | 1ull << ATTR_TOTAL);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(row.nattrs, 2);
	CHECK(row.attrs[0].key == ATTR_SIZE && row.attrs[0].number == 8);
	CHECK(row.attrs[1].key == ATTR_OWNER &&
	      text_is(row.attrs[1].text, row.attrs[1].text_len, "a"));
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(row.nattrs, 0); /* the total of a snapshot is another one */
	CHECK_INT(dump_next(d, &row, &err), -EBADMSG);
	dump_close(d);
	d = open_text(text, 0);
	dump_want(d, 1ull << ATTR_RAW);
	CHECK_INT(dump_next(d, &row, &err), 1);
	CHECK_INT(row.nattrs, 1);
	CHECK(text_is(row.attrs[0].text, row.attrs[0].text_len, "strange:[1,2]"));
	dump_close(d);
}
