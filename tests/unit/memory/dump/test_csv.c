/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/dump/amend.h"
#include "memory/dump/writer.h"
#include "test.h"
#include "wire/record.h"

#define HEADER                                                                                     \
	"ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,"          \
	"Call Stack(Python),Call Stack(C)\n"
#define ROW_1 "1,SYSTEM,ACL_INIT,N/A,12,123,1234,N/A,N/A,,,\n"

static char path[64];
#define CONTENT_BYTES (4u << 20)
static char *content; /* not an array: the sanitizer looks through it after every test */
static struct err err;

static void make_path(void)
{
	char dir[] = "/tmp/sonde_csv_XXXXXX";

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a.csv", dir);
}

static void remove_path(void)
{
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

static const char *slurp(void)
{
	int fd = open(path, O_RDONLY);

	if (!content)
		content = malloc(CONTENT_BYTES);
	CHECK(content);
	ssize_t n = read(fd, content, CONTENT_BYTES - 1);
	CHECK(n >= 0);
	content[n] = '\0';
	close(fd);
	return content;
}

static void spit(const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK_INT(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static struct row system_row(void)
{
	return (struct row){.id = 1,
			    .event = ROW_SYSTEM,
			    .type = TYPE_ACL_INIT,
			    .time_ns = 12,
			    .pid = 123,
			    .tid = 1234,
			    .device = DEV_NONE};
}

static struct row memory_row(enum row_event event, uint64_t id)
{
	struct row r = system_row();

	r.id = r.time_ns = id;
	r.event = event;
	r.type = TYPE_HAL;
	r.device = 0;
	r.has_ptr = true;
	r.ptr = 12345;
	row_attr_number(&r, ATTR_ALLOCATION_ID, 1);
	r.attrs[r.nattrs++] = (struct attr){.key = ATTR_ADDR, .kind = ATTR_HEX, .number = 12345};
	row_attr_number(&r, ATTR_SIZE, 10);
	return r;
}

/* What one row looks like in a file of its own, behind the header. */
static const char *written(const struct row *row, enum row_compat compat)
{
	struct writer *w;

	make_path();
	CHECK_INT(csv_writer.open(path, compat, &w, &err), 0);
	CHECK_INT(csv_writer.add(w, row, &err), 0);
	CHECK_INT(csv_writer.close(w, &err), 0);
	const char *text = slurp();
	CHECK(!strncmp(text, HEADER, strlen(HEADER)));
	remove_path();
	return text + strlen(HEADER);
}

TEST(csv, vectors_of_memory_rows)
{
	struct row r = memory_row(ROW_MALLOC, 3);

	row_attr_number(&r, ATTR_USED, 10);
	row_attr_text(&r, ATTR_PAGE_TYPE, "normal", 6);
	row_attr_text(&r, ATTR_ALLOC_TYPE, "create", 6);
	CHECK_STR(written(&r, ROW_SEED),
		  "3,MALLOC,HAL,N/A,3,123,1234,0,0x0000000000003039,\"{allocation_id:1,"
		  "addr:0x0000000000003039,size:10,used:10,page_type:normal,alloc_type:create}\","
		  ",\n");
	r = memory_row(ROW_FREE, 54);
	row_attr_number(&r, ATTR_USED, 0);
	CHECK_STR(written(&r, ROW_SEED),
		  "54,FREE,HAL,N/A,54,123,1234,0,0x0000000000003039,\"{allocation_id:1,"
		  "addr:0x0000000000003039,size:10,used:0}\",,\n");
	r = memory_row(ROW_ACCESS, 13);
	r.type = TYPE_UNKNOWN;
	r.name = "aten.add";
	r.name_len = 8;
	row_attr_text(&r, ATTR_TYPE, "PTA", 3);
	const char raw[] = "dtype:torch.float16,shape:torch.Size([1,5])";
	row_attr_text(&r, ATTR_RAW, raw, strlen(raw));
	CHECK_STR(written(&r, ROW_SEED),
		  "13,ACCESS,UNKNOWN,aten.add,13,123,1234,0,0x0000000000003039,\"{allocation_id:1,"
		  "addr:0x0000000000003039,size:10,type:PTA,dtype:torch.float16,"
		  "shape:torch.Size([1,5])}\",,\n");
}

TEST(csv, vectors_of_other_rows)
{
	struct row r = system_row();

	CHECK_STR(written(&r, ROW_SEED), ROW_1);
	r = (struct row){.id = 2,
			 .event = ROW_KERNEL_LAUNCH,
			 .type = TYPE_KERNEL_EXECUTE_START,
			 .name = "add01",
			 .name_len = 5,
			 .time_ns = 13,
			 .pid = UINT32_MAX,
			 .tid = UINT32_MAX};
	row_attr_number(&r, ATTR_STREAM_ID, 111);
	row_attr_number(&r, ATTR_TASK_ID, 222);
	CHECK_STR(written(&r, ROW_SEED), "2,KERNEL_LAUNCH,KERNEL_EXECUTE_START,add01,13,N/A,N/A,0,"
					 "N/A,\"{streamId:111,taskId:222}\",,\n");
	r = system_row();
	r.id = 2;
	r.event = ROW_MSTX;
	r.type = TYPE_RANGE_START;
	r.name = "step start";
	r.name_len = 10;
	r.time_ns = 13;
	r.device = 0;
	CHECK_STR(written(&r, ROW_SEED),
		  "2,MSTX,Range_start,\"step start\",13,123,1234,0,N/A,,,\n");
}

TEST(csv, spreadsheet_formulas_are_emptied)
{
	const char *bad[] = {"=1+1", "+x", "-x", "@x"};
	struct row r = system_row();

	r.event = ROW_MSTX;
	r.type = TYPE_MARK;
	for (int i = 0; i < 4; i++) {
		r.name = bad[i];
		r.name_len = strlen(bad[i]);
		CHECK_STR(written(&r, ROW_SEED), "1,MSTX,Mark,\"\",12,123,1234,N/A,N/A,,,\n");
	}
	r.name = "x=1";
	r.name_len = 3;
	CHECK_STR(written(&r, ROW_SEED), "1,MSTX,Mark,\"x=1\",12,123,1234,N/A,N/A,,,\n");
	r.event = ROW_OP_LAUNCH;
	r.type = TYPE_ATEN_START;
	r.name = "-x";
	r.name_len = 2;
	CHECK_STR(written(&r, ROW_SEED), "1,OP_LAUNCH,ATEN_START,-x,12,123,1234,N/A,N/A,,,\n");
}

TEST(csv, quoting)
{
	struct row r = system_row();

	r.event = ROW_KERNEL_LAUNCH;
	r.type = TYPE_KERNEL_START;
	r.name = "a\"b,c\nd\xff";
	r.name_len = 8;
	r.device = DEV_HOST;
	row_attr_text(&r, ATTR_RAW, "path:\"x\"", 8);
	row_attr_text(&r, ATTR_RAW, "", 0);
	row_attr_text(&r, ATTR_OWNER, "o", 1);
	r.py_stack = "f.py(1): g\nh\"";
	r.py_stack_len = 13;
	r.c_stack = "m(s+0)";
	r.c_stack_len = 6;
	CHECK_STR(written(&r, ROW_SEED),
		  "1,KERNEL_LAUNCH,KERNEL_START,\"a\"\"b,c\nd\xef\xbf\xbd\",12,123,1234,cpu,N/A,"
		  "\"{path:\"\"x\"\",owner:o}\",\"f.py(1): g\nh\"\"\",\"m(s+0)\"\n");
}

TEST(csv, vocabulary_of_26_0)
{
	struct row r = memory_row(ROW_MALLOC, 7);

	r.nattrs = 0;
	r.type = TYPE_PTA_WORKSPACE;
	row_attr_text(&r, ATTR_INEFFICIENT, "early_allocation", 16);
	CHECK_STR(written(&r, ROW_26_0), "7,MALLOC,PTA,N/A,7,123,1234,0,0x0000000000003039,"
					 "\"{inefficient_type:early_allocation}\",,\n");
	CHECK_STR(written(&r, ROW_SEED),
		  "7,MALLOC,PTA_WORKSPACE,N/A,7,123,1234,0,0x0000000000003039,"
		  "\"{inefficient:early_allocation}\",,\n");
}

TEST(csv, file_mode_and_links)
{
	struct writer *w = NULL;
	struct stat st;
	char other[80];

	make_path();
	umask(0);
	CHECK_INT(csv_writer.open(path, ROW_SEED, &w, &err), 0);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(st.st_mode & 07777, 0600);
	struct writer *second;
	CHECK_INT(csv_writer.open(path, ROW_SEED, &second, &err), -EBUSY);
	CHECK_INT(csv_writer.close(w, &err), 0);
	snprintf(other, sizeof(other), "%s.link", path);
	CHECK_INT(symlink(path, other), 0);
	CHECK_INT(csv_writer.open(other, ROW_SEED, &w, &err), -ELOOP);
	unlink(other);
	CHECK_INT(mkfifo(other, 0600), 0);
	CHECK_INT(csv_writer.open(other, ROW_SEED, &w, &err), -EINVAL);
	unlink(other);
	CHECK_INT(csv_writer.close(NULL, &err), 0);
	remove_path();
}

/* Opens `before`, adds a row, and gives what the file is then. */
static const char *appended(const char *before)
{
	struct row r = system_row();
	struct writer *w;

	spit(before);
	CHECK_INT(csv_writer.open(path, ROW_SEED, &w, &err), 0);
	CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.close(w, &err), 0);
	return slurp();
}

#define ROW_STACK "2,MSTX,Mark,\"a\nb\",1,1,1,0,N/A,,\"x\n,\"\"y\n\",\n"

TEST(csv, append)
{
	make_path();
	CHECK_STR(appended(""), HEADER ROW_1);
	CHECK_STR(appended("ID,Eve"), HEADER ROW_1);
	CHECK_STR(appended(HEADER), HEADER ROW_1);
	CHECK_STR(appended(HEADER ROW_1), HEADER ROW_1 ROW_1);
	CHECK_STR(appended(HEADER ROW_1 "2,MAL"), HEADER ROW_1 ROW_1);
	CHECK_STR(appended(HEADER ROW_STACK), HEADER ROW_STACK ROW_1);
	/* torn behind a line end inside a quoted field */
	CHECK_STR(appended(HEADER ROW_STACK "3,MSTX,Mark,\"a\n"), HEADER ROW_STACK ROW_1);
	CHECK_STR(appended(HEADER ROW_STACK "3,MSTX,Mark,\"a\nb\""), HEADER ROW_STACK ROW_1);
	remove_path();
}

TEST(csv, strange_files_are_left_alone)
{
	struct writer *w;
	const char *strange[] = {"hello\n", HEADER "1,\"a\"b\",x\n", "ID,Event\n1,2\n"};

	make_path();
	for (int i = 0; i < 3; i++) {
		spit(strange[i]);
		CHECK_INT(csv_writer.open(path, ROW_SEED, &w, &err), -EEXIST);
		CHECK(strstr(err.text, path));
		CHECK_STR(slurp(), strange[i]);
	}
	remove_path();
}

static void limit_file_size(rlim_t n)
{
	struct rlimit rl = {n, RLIM_INFINITY};

	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &rl), 0);
}

/* Every row is 1,SYSTEM,… so the file must be the header and whole copies of it. */
static size_t whole_rows(void)
{
	const char *p = slurp() + strlen(HEADER);
	size_t n = 0;

	CHECK(!strncmp(content, HEADER, strlen(HEADER)));
	for (; *p; p += strlen(ROW_1), n++)
		CHECK(!strncmp(p, ROW_1, strlen(ROW_1)));
	return n;
}

TEST(csv, full_disk_leaves_whole_rows_and_recovers)
{
	struct row r = system_row();
	struct writer *w;

	make_path();
	CHECK_INT(csv_writer.open(path, ROW_SEED, &w, &err), 0);
	limit_file_size(1000);
	for (int i = 0; i < 100; i++)
		CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.flush(w, &err), -EFBIG); /* reported once */
	CHECK_INT(whole_rows(), (1000 - strlen(HEADER)) / strlen(ROW_1));
	CHECK_INT(csv_writer.flush(w, &err), 0);
	CHECK_INT(csv_writer.lost_rows(w), 0);
	for (int i = 0; i < 7; i++)
		CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.lost_rows(w), 7);
	limit_file_size(RLIM_INFINITY);
	CHECK_INT(csv_writer.flush(w, &err), 0);
	CHECK_INT(whole_rows(), 100); /* what was in the buffer was kept */
	CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.lost_rows(w), 7);
	CHECK_INT(csv_writer.close(w, &err), 0);
	CHECK_INT(whole_rows(), 101);
	remove_path();
}

TEST(csv, full_disk_at_close)
{
	struct row r = system_row();
	struct writer *w;

	make_path();
	CHECK_INT(csv_writer.open(path, ROW_SEED, &w, &err), 0);
	for (int i = 0; i < 100; i++)
		CHECK_INT(csv_writer.add(w, &r, &err), 0);
	limit_file_size(1000);
	CHECK_INT(csv_writer.close(w, &err), -EFBIG);
	CHECK(strstr(err.text, "rows are lost"));
	CHECK_INT(whole_rows(), (1000 - strlen(HEADER)) / strlen(ROW_1));
	remove_path();
}

TEST(csv, many_and_large_rows)
{
	static char stack[300000];
	struct row r = system_row();
	struct writer *w;

	make_path();
	memset(stack, '"', sizeof(stack));
	CHECK_INT(csv_writer.open(path, ROW_SEED, &w, &err), 0);
	for (int i = 0; i < 10000; i++)
		CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.flush(w, &err), 0);
	CHECK_INT(whole_rows(), 10000);
	r.c_stack = stack;
	r.c_stack_len = sizeof(stack);
	CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.close(w, &err), 0);
	CHECK_INT(strlen(slurp()), strlen(HEADER) + 10001 * strlen(ROW_1) + 2 * sizeof(stack) + 2);
	remove_path();
}

/* The write of a full buffer fails while the next one is filled: no row is lost before that is
 * known, none is torn, none comes twice. */
TEST(csv, full_disk_while_rows_are_added)
{
	const size_t fitting = (300000 - strlen(HEADER)) / strlen(ROW_1);
	struct row r = system_row();
	struct writer *w;
	int failed = 0, added = 0;

	make_path();
	CHECK_INT(csv_writer.open(path, ROW_SEED, &w, &err), 0);
	limit_file_size(300000);
	for (; !failed && added < 100000; added++)
		failed = csv_writer.add(w, &r, &err);
	CHECK_INT(failed, -EFBIG);
	CHECK(strstr(err.text, "rows are dropped until it works again"));
	CHECK_INT(whole_rows(), fitting);
	CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.lost_rows(w), 1);
	limit_file_size(RLIM_INFINITY);
	CHECK_INT(csv_writer.flush(w, &err), 0);
	CHECK_INT(whole_rows(), added);
	size_t most = strlen(HEADER) + (size_t)added * strlen(ROW_1) + 500000;
	limit_file_size(most);
	for (int i = 0; i < 20000; i++)
		csv_writer.add(w, &r, NULL);
	CHECK_INT(csv_writer.close(w, &err), -EFBIG);
	CHECK_INT(whole_rows(), (most - strlen(HEADER)) / strlen(ROW_1));
	limit_file_size(RLIM_INFINITY);
	remove_path();
}

/* More files than there are threads: each has all its rows, in their order. */
TEST(csv, several_files_at_once)
{
	enum { FILES = 6, ROWS = 12000 };
	struct writer *w[FILES];
	struct row r = system_row();
	char name[80];

	make_path();
	for (int k = 0; k < FILES; k++) {
		snprintf(name, sizeof(name), "%s.%d", path, k);
		CHECK_INT(csv_writer.open(name, ROW_SEED, &w[k], &err), 0);
	}
	for (r.id = 0; r.id < ROWS; r.id++)
		for (int k = 0; k < FILES; k++) {
			r.pid = (uint32_t)k;
			CHECK_INT(csv_writer.add(w[k], &r, &err), 0);
		}
	for (int k = 0; k < FILES; k++) {
		unsigned id, pid, want = 0;
		char line[256];

		CHECK_INT(csv_writer.close(w[k], &err), 0);
		snprintf(name, sizeof(name), "%s.%d", path, k);
		FILE *f = fopen(name, "r");
		CHECK(f && fgets(line, sizeof(line), f));
		for (; fgets(line, sizeof(line), f); want++)
			CHECK(sscanf(line, "%u,SYSTEM,ACL_INIT,N/A,12,%u,1234,N/A,N/A,,,\n", &id,
				     &pid) == 2 &&
			      id == want && pid == (unsigned)k);
		CHECK_INT(want, ROWS);
		fclose(f);
		unlink(name);
	}
	remove_path();
}

#define BLOCKS 12000

/* Owner of a block, NULL for most. Those of some come late. */
static const char *owner_of(uint64_t id)
{
	return id % 7 == 0 ? "PTA@weight" : id % 11 == 0 ? "PTA@a,b:\"c\"" : NULL;
}

static const struct amendment *find_owner(void *arg, uint32_t pid, uint64_t id)
{
	static struct amendment found;

	(void)arg;
	found = (struct amendment){.pid = pid, .allocation_id = id, .owner = owner_of(id)};
	return found.owner ? &found : NULL;
}

static void add_block(struct writer *w, uint64_t id)
{
	static char stack[400];
	struct row r = memory_row(ROW_MALLOC, id);

	memset(stack, 's', sizeof(stack));
	r.attrs[0].number = id;
	r.py_stack = stack;
	r.py_stack_len = sizeof(stack);
	CHECK_INT(csv_writer.add(w, &r, &err), 0);
}

/* A finding ends up as the same bytes, whether its row was held or in the file already. */
TEST(csv, findings_about_held_rows)
{
	static const unsigned delays[] = {0, 3, 300, 5000, BLOCKS};
	struct writer *w;
	uint64_t rows;
	char plain[80], command[200];

	make_path();
	snprintf(plain, sizeof(plain), "%s.plain", path);
	CHECK_INT(csv_writer.open(plain, ROW_SEED, &w, &err), 0);
	for (uint64_t id = 1; id <= BLOCKS; id++)
		add_block(w, id);
	CHECK(!csv_writer.amend(w, find_owner(NULL, 5, BLOCKS / 7 * 7))); /* was not asked for */
	CHECK_INT(csv_writer.close(w, &err), 0);
	CHECK_INT(dump_amend(plain, ROW_SEED, find_owner, NULL, &rows, &err), 0);
	for (size_t i = 0; i < sizeof(delays) / sizeof(delays[0]); i++) {
		uint64_t missed = 0;

		CHECK_INT(csv_writer.open(path, ROW_SEED, &w, &err), 0);
		csv_writer.hold(w, HOLD_FOR_OWNERS);
		for (uint64_t id = 1; id <= BLOCKS + delays[i]; id++) {
			if (id <= BLOCKS)
				add_block(w, id);
			const struct amendment *a =
				id > delays[i] ? find_owner(NULL, 5, id - delays[i]) : NULL;
			missed += a && !csv_writer.amend(w, a);
			if (i != 2 && id % 1000 == 0)
				CHECK_INT(csv_writer.flush_old(w, &err), 0);
		}
		CHECK_INT(csv_writer.close(w, &err), 0);
		CHECK_INT(missed > 0, delays[i] >= 5000);
		CHECK_INT(dump_amend(path, ROW_SEED, find_owner, NULL, &rows, &err), 0);
		CHECK_INT(rows, missed);
		snprintf(command, sizeof(command), "cmp %s %s", path, plain);
		CHECK_INT(system(command), 0);
		unlink(path);
	}
	unlink(plain);
	remove_path();
}

static void add_use(struct writer *w, enum row_event event, enum row_type type, uint64_t id)
{
	struct row r = memory_row(event, id);

	r.type = type;
	r.attrs[0].number = id;
	CHECK_INT(csv_writer.add(w, &r, &err), 0);
}

static unsigned rooms(void)
{
	char command[200];

	snprintf(command, sizeof(command), "exit $(grep -c 'room: ' %s)", path);
	return (unsigned)WEXITSTATUS(system(command));
}

/* Rows of blocks that are alive when their rows go out have room, of pools whose use is judged. */
TEST(csv, rows_of_live_blocks_have_room)
{
	struct amendment late = {.pid = 5, .allocation_id = 2, .inefficient = "late_deallocation"};
	struct writer *w;

	make_path();
	CHECK_INT(csv_writer.open(path, ROW_SEED, &w, &err), 0);
	csv_writer.hold(w, HOLD_FOR_USE);
	add_use(w, ROW_MALLOC, TYPE_PTA, 1);
	add_use(w, ROW_MALLOC, TYPE_PTA, 2);
	add_use(w, ROW_MALLOC, TYPE_HAL, 3);
	add_use(w, ROW_MALLOC, TYPE_ATB, 4);
	add_use(w, ROW_FREE, TYPE_PTA, 2);
	CHECK(csv_writer.amend(w, &late));
	CHECK_INT(csv_writer.flush(w, &err), 0);
	CHECK_INT(rooms(), 2);
	add_use(w, ROW_MALLOC, TYPE_PTA, 5);
	csv_writer.hold(w, HOLD_NOTHING); /* the end: nothing more comes */
	CHECK_INT(csv_writer.close(w, &err), 0);
	CHECK_INT(rooms(), 2);
	remove_path();
}

/* Rows are held for one call of flush_old(), and for no flush(); those of a full disk are kept. */
TEST(csv, held_rows_reach_the_file)
{
	struct row r = system_row();
	struct writer *w;

	make_path();
	CHECK_INT(csv_writer.open(path, ROW_SEED, &w, &err), 0);
	csv_writer.hold(w, HOLD_FOR_OWNERS);
	CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.flush_old(w, &err), 0);
	CHECK_INT(whole_rows(), 0);
	CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.flush_old(w, &err), 0);
	CHECK_INT(whole_rows(), 1);
	CHECK_INT(csv_writer.flush(w, &err), 0);
	CHECK_INT(whole_rows(), 2);
	limit_file_size(300);
	for (int i = 0; i < 10; i++)
		CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.flush_old(w, &err), 0);
	CHECK_INT(csv_writer.add(w, &r, &err), 0);
	CHECK_INT(csv_writer.flush_old(w, &err), -EFBIG);
	CHECK_INT(whole_rows(), (300 - strlen(HEADER)) / strlen(ROW_1));
	limit_file_size(RLIM_INFINITY);
	CHECK_INT(csv_writer.flush_old(w, &err), 0);
	CHECK_INT(whole_rows(), 13);
	CHECK_INT(csv_writer.close(w, &err), 0);
	remove_path();
}
