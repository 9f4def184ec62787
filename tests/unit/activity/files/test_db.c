/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "activity/files/activity.h"
#include "activity_samples.h"
#include "base/mem.h"

static const struct activity_closing closing = {.end_ns = T0 + 1000, .groups = "{\"g\":{}}"};

/* All rows of a query, cells with '|', rows with '\n'. */
static const char *query(const char *path, const char *sql)
{
	static char text[8192];
	sqlite3 *db;
	sqlite3_stmt *stmt;
	size_t n = 0;

	text[0] = '\0';
	CHECK_INT(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
		snprintf(text, sizeof(text), "error: %s", sqlite3_errmsg(db));
	else
		while (sqlite3_step(stmt) == SQLITE_ROW) {
			for (int i = 0; i < sqlite3_column_count(stmt); i++) {
				const void *cell = sqlite3_column_text(stmt, i);

				n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s",
						      i ? "|" : (n ? "\n" : ""),
						      cell ? (const char *)cell : "NULL");
				CHECK(n < sizeof(text));
			}
		}
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return text;
}

static char *write_all(const char *dir, const struct activity *list, unsigned n)
{
	static char path[512];
	struct activity_writer *w = activity_db.open(dir, &origin, NULL);
	struct err err = {0};

	for (unsigned i = 0; i < n; i++)
		CHECK_INT(activity_db.put(w, &list[i], &err), 0);
	snprintf(path, sizeof(path), "%s", activity_db.path(w));
	CHECK_INT(activity_db.close(w, &closing, &err), 0);
	return path;
}

TEST(activity_db, hash_is_that_of_the_tool)
{
	CHECK(activity_hash("abc") == 363002047600882ull);
	CHECK(activity_hash("group_name_0") == 5862276093215481612ull);
	CHECK(activity_hash("") == 0);
}

TEST(activity_db, no_file_without_an_activity)
{
	char *dir = activity_dir();
	struct activity_writer *w = activity_db.open(dir, &origin, NULL);

	CHECK_STR(activity_db.path(w), "");
	CHECK_INT(activity_db.flush(w, NULL), 0);
	CHECK_INT(activity_db.close(w, &closing, NULL), 0);
	CHECK_INT(activity_dir_remove(dir), 0);
}

TEST(activity_db, file_name_and_mode)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("k", 0);
	char *path = write_all(dir, &k, 1);
	unsigned pid, rank;
	unsigned long long when;
	struct stat st;

	CHECK_INT(sscanf(strrchr(path, '/'), "/msmonitor_%u_%17llu_%u.db", &pid, &when, &rank), 3);
	CHECK_INT(pid, 4711);
	CHECK_INT(rank, 3);
	CHECK(when > 20200101000000000ull);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(st.st_mode & 0137, 0); /* 0640 less umask */
	CHECK_INT(activity_dir_remove(dir), 1); /* no journal stays behind */
}

TEST(activity_db, kernel_rows)
{
	char *dir = activity_dir();
	struct activity k[] = {kernel_of("MatMul_1", 10), kernel_of("Add", 20)};
	char *path = write_all(dir, k, 2);

	CHECK_STR(query(path, "SELECT * FROM TASK"),
		  "1794723775000000010|1794723775000000510|1|103|0|4711|1|4294967295|2|4294967295|"
		  "4294967295\n"
		  "1794723775000000020|1794723775000000520|1|103|1|4711|1|4294967295|2|4294967295|"
		  "4294967295");
	CHECK_STR(query(path, "SELECT * FROM COMPUTE_TASK_INFO"),
		  "0|0|4294967295|4294967295|1|2|2|2|2|2|2|2|2|2|2\n"
		  "3|1|4294967295|4294967295|1|2|2|2|2|2|2|2|2|2|2");
	CHECK_STR(query(path, "SELECT * FROM STRING_IDS"),
		  "0|MatMul_1\n1|KERNEL_AICORE\n2|N/A\n3|Add");
	CHECK_STR(query(path, "PRAGMA integrity_check"), "ok");
	activity_dir_remove(dir);
}

TEST(activity_db, api_types_and_threads)
{
	char *dir = activity_dir();
	struct activity a[] = {api_of(ACTIVITY_API, "a", 0), api_of(ACTIVITY_ACL_API, "b", 0),
			       api_of(ACTIVITY_NODE_API, "c", 0),
			       api_of(ACTIVITY_RUNTIME_API, "d", 0)};
	char *path = write_all(dir, a, 4);

	CHECK_STR(query(path, "SELECT type,globalTid,connectionId,name FROM CANN_API"),
		  "10000|20233590931544|103|0\n20000|20233590931544|103|1\n"
		  "10000|20233590931544|103|2\n5000|20233590931544|103|3");
	activity_dir_remove(dir);
}

TEST(activity_db, communication_rows)
{
	char *dir = activity_dir();
	struct activity c[] = {communication_of("hcom_allReduce_", "group_name_0"),
			       communication_of("hcom_allReduce_", "group_name_0"),
			       communication_of("send", "")};
	char *path = write_all(dir, c, 3);

	CHECK_STR(query(path, "SELECT s.value,t.value,g.value,a.value,c.opId,relay,retry,dataType,"
			      "count,deviceId,connectionId FROM COMMUNICATION_OP c,STRING_IDS s,"
			      "STRING_IDS t,STRING_IDS g,STRING_IDS a WHERE s.id=opName AND "
			      "t.id=opType AND g.id=groupName AND a.id=algType ORDER BY opId"),
		  "hcom_allReduce__612_0_1|hcom_allReduce_|group_name_0|RING|0|0|0|4|1024|1|55\n"
		  "hcom_allReduce__612_1_1|hcom_allReduce_|group_name_0|RING|1|0|0|4|1024|1|55\n"
		  "send_0_0_1|send||RING|2|0|0|4|1024|1|55");
	activity_dir_remove(dir);
}

TEST(activity_db, marks_of_host_and_device)
{
	char *dir = activity_dir();
	struct activity m[] = {
		mark_of(ACTIVITY_ON_HOST, ACTIVITY_MARK_START_DEVICE, "step 1", 10),
		mark_of(ACTIVITY_ON_DEVICE, ACTIVITY_MARK_START_DEVICE, "step 1", 10),
		mark_of(ACTIVITY_ON_HOST, ACTIVITY_MARK_INSTANT, "here", 11)};
	char *path = write_all(dir, m, 3);

	CHECK_STR(query(path, "SELECT eventType,rangeId,category,message,globalTid,endGlobalTid,"
			      "domainId,connectionId FROM MSTX_EVENTS"),
		  "2|4294967295|4294967295|0|20233590931544|20233590931544|1|4000000010\n"
		  "0|4294967295|4294967295|3|20233590931544|20233590931544|1|4000000011");
	CHECK_STR(query(path, "SELECT value,connectionId,streamId FROM TASK,STRING_IDS WHERE "
			      "id=taskType"),
		  "MsTx|4000000010|2");
	activity_dir_remove(dir);
}

TEST(activity_db, kinds_that_the_tool_drops_have_tables)
{
	char *dir = activity_dir();
	struct activity a[ALL_KINDS];

	all_kinds(a);
	char *path = write_all(dir, a, ALL_KINDS);
	CHECK_STR(query(path, "SELECT deviceId,streamId,globalPid,bytesPerSecond FROM HCCL"),
		  "1|2|4711|123456789012");
	CHECK_STR(query(path, "SELECT operation,address,bytes FROM MEMORY_OP"),
		  "1|139637976731648|4096");
	CHECK_STR(query(path, "SELECT value,bytes,isAsync FROM MEMSET"), "255|65536|1");
	CHECK_STR(query(path, "SELECT copyKind,bytes,isAsync,connectionId FROM MEMCPY"),
		  "2|1048576|0|-1");
	activity_dir_remove(dir);
}

TEST(activity_db, all_tables_are_there_from_the_beginning)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("k", 0);
	char *path = write_all(dir, &k, 1);

	CHECK_STR(query(path, "SELECT group_concat(name) FROM (SELECT name FROM sqlite_master "
			      "WHERE type='table' ORDER BY name)"),
		  "ACTIVITY_LOSS,CANN_API,COMMUNICATION_OP,COMPUTE_TASK_INFO,ENUM_API_TYPE,"
		  "ENUM_HCCL_DATA_TYPE,ENUM_MSTX_EVENT_TYPE,HCCL,HOST_INFO,MEMCPY,MEMORY_OP,MEMSET,"
		  "META_DATA,MSTX_EVENTS,NPU_INFO,RANK_DEVICE_MAP,SESSION_TIME_INFO,STRING_IDS,"
		  "TASK");
	activity_dir_remove(dir);
}

TEST(activity_db, state_is_there_before_the_end)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("k", 0), a = api_of(ACTIVITY_API, "f", 0);
	struct activity_writer *w = activity_db.open(dir, &origin, NULL);
	struct err err = {0};

	CHECK_INT(activity_db.put(w, &a, &err), 0);
	CHECK_INT(activity_db.flush(w, &err), 0);
	const char *path = activity_db.path(w);
	CHECK_STR(query(path, "SELECT * FROM NPU_INFO"), "-1|UNKNOWN");
	CHECK_STR(query(path, "SELECT * FROM RANK_DEVICE_MAP"), "3|-1");
	CHECK_STR(query(path, "SELECT value FROM STRING_IDS"), "f");
	CHECK_STR(query(path, "SELECT name||'='||value FROM META_DATA"),
		  "SCHEMA_VERSION_MICRO=1\nSCHEMA_VERSION_MINOR=2\nSCHEMA_VERSION_MAJOR=0\n"
		  "SCHEMA_VERSION=1.2.0");
	CHECK_STR(query(path, "SELECT startTimeNs,endTimeNs>0 FROM SESSION_TIME_INFO"),
		  "1794723775000000000|1");
	CHECK_STR(query(path, "SELECT count(*) FROM HOST_INFO"), "1");
	CHECK_STR(query(path, "SELECT name FROM ENUM_HCCL_DATA_TYPE WHERE id=11"), "BFP16");
	CHECK_STR(query(path, "SELECT name FROM ENUM_API_TYPE WHERE id=5500"), "communication");
	CHECK_INT(activity_db.put(w, &k, &err), 0);
	k.device = 5;
	CHECK_INT(activity_db.put(w, &k, &err), 0);
	CHECK_INT(activity_db.flush(w, &err), 0);
	CHECK_STR(query(path, "SELECT id FROM NPU_INFO"), "1\n5");
	CHECK_STR(query(path, "SELECT * FROM RANK_DEVICE_MAP"), "3|1\n3|5");
	const struct activity_closing end = {.end_ns = T0 + 77, .groups = "{\"x\":1}", .lost = 12};
	char copy[512];
	snprintf(copy, sizeof(copy), "%s", path);
	CHECK_INT(activity_db.close(w, &end, &err), 0);
	CHECK_STR(query(copy, "SELECT value FROM META_DATA WHERE name='parallel_group_info'"),
		  "{\"x\":1}");
	CHECK_STR(query(copy, "SELECT endTimeNs FROM SESSION_TIME_INFO"), "1794723775000000077");
	CHECK_STR(query(copy, "SELECT lost FROM ACTIVITY_LOSS"), "12");
	activity_dir_remove(dir);
}

/* Somebody who reads does not hold the writer up, and nothing is lost. */
TEST(activity_db, waits_for_a_reader_without_waiting)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("k", 0);
	struct activity_writer *w = activity_db.open(dir, &origin, NULL);
	struct err err = {0};
	sqlite3 *db;
	sqlite3_stmt *stmt;
	char path[512];

	CHECK_INT(activity_db.put(w, &k, &err), 0);
	CHECK_INT(activity_db.flush(w, &err), 0);
	snprintf(path, sizeof(path), "%s", activity_db.path(w));
	CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
	CHECK_INT(sqlite3_prepare_v2(db, "SELECT * FROM STRING_IDS", -1, &stmt, NULL), SQLITE_OK);
	CHECK_INT(sqlite3_step(stmt), SQLITE_ROW);
	for (int i = 0; i < 1000; i++)
		CHECK_INT(activity_db.put(w, &k, &err), 0);
	k.device = 7;
	CHECK_INT(activity_db.put(w, &k, &err), 0);
	CHECK_INT(activity_db.flush(w, &err), 0);
	CHECK_INT(activity_db.put(w, &k, &err), 0);
	CHECK_INT(activity_db.flush(w, &err), 0);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	CHECK_INT(activity_db.flush(w, &err), 0);
	CHECK_STR(query(path, "SELECT count(*) FROM TASK"), "1003");
	CHECK_STR(query(path, "SELECT id FROM NPU_INFO"), "1\n7");
	CHECK_INT(activity_db.close(w, &closing, &err), 0);
	CHECK_STR(query(path, "SELECT lost FROM ACTIVITY_LOSS"), "0");
	activity_dir_remove(dir);
}

/* A full disk: rows are dropped and counted, the file stays whole and goes on when there is room.
 */
TEST(activity_db, full_disk)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("k", 0);
	struct activity_writer *w = activity_db.open(dir, &origin, NULL);
	struct rlimit limit, small = {256 << 10, 256 << 10};
	struct err err = {0};
	char path[512];
	int failures = 0;

	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(activity_db.put(w, &k, &err), 0);
	CHECK_INT(activity_db.flush(w, &err), 0);
	snprintf(path, sizeof(path), "%s", activity_db.path(w));
	CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small.rlim_max = limit.rlim_max;
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 20000; i++)
		failures += activity_db.put(w, &k, &err) < 0;
	failures += activity_db.flush(w, &err) < 0;
	CHECK_INT(failures, 1);
	CHECK(strstr(err.text, "cannot write"));
	CHECK_STR(query(path, "PRAGMA integrity_check"), "ok");
	CHECK_STR(query(path, "SELECT count(*) FROM TASK"), "1");
	CHECK_INT(activity_db.put(w, &k, &err), 0); /* too early to try again: lost */
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
	usleep(1100000);
	k.name = "after";
	CHECK_INT(activity_db.put(w, &k, &err), 0);
	CHECK_INT(activity_db.close(w, &closing, &err), 0);
	CHECK_STR(query(path, "PRAGMA integrity_check"), "ok");
	CHECK_STR(query(path, "SELECT s.value,(SELECT value FROM STRING_IDS WHERE id=c.taskType) "
			      "FROM COMPUTE_TASK_INFO c,STRING_IDS s WHERE s.id=c.name"),
		  "k|KERNEL_AICORE\nafter|KERNEL_AICORE");
	CHECK_STR(query(path, "SELECT lost FROM ACTIVITY_LOSS"), "20001");
	activity_dir_remove(dir);
}

/* It stays full, until the writer closes or is killed: the loss is known all the same. */
TEST(activity_db, a_disk_that_stays_full_tells_the_loss)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("k", 0);
	struct activity_writer *w = activity_db.open(dir, &origin, NULL);
	struct rlimit limit, small;
	struct err err = {0};
	char path[512], groups[20000];
	struct stat st;

	memset(groups, 'g', sizeof(groups) - 1);
	groups[sizeof(groups) - 1] = '\0';
	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(activity_db.put(w, &k, &err), 0);
	CHECK_INT(activity_db.flush(w, &err), 0);
	snprintf(path, sizeof(path), "%s", activity_db.path(w));
	CHECK_STR(query(path, "SELECT lost,closed FROM ACTIVITY_LOSS"), "0|0");
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = (struct rlimit){(rlim_t)st.st_size, limit.rlim_max};
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 20000; i++)
		activity_db.put(w, &k, &err);
	activity_db.flush(w, &err);
	CHECK_STR(query(path, "SELECT lost,closed FROM ACTIVITY_LOSS"), "20000|0");
	activity_db.put(w, &k, &err);
	activity_db.flush(w, &err);
	CHECK_STR(query(path, "SELECT lost,closed FROM ACTIVITY_LOSS"), "20001|0");
	CHECK(activity_db.close(
		      w, &(struct activity_closing){.end_ns = T0, .lost = 5, .groups = groups},
		      &err) < 0);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
	CHECK_STR(query(path, "PRAGMA integrity_check"), "ok");
	CHECK_STR(query(path, "SELECT lost,closed FROM ACTIVITY_LOSS"), "20006|1");
	CHECK_STR(query(path, "SELECT count(*) FROM TASK"), "1");
	activity_dir_remove(dir);
}

/* No file can be made while there are activities: one at the end states the loss. */
TEST(activity_db, a_file_that_comes_too_late_tells_the_loss)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("k", 0);
	struct activity_writer *w = activity_db.open(dir, &origin, NULL);
	struct rlimit limit, none;
	struct err err = {0};
	glob_t found = {0};

	CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){3, limit.rlim_max};
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	CHECK_INT(activity_db.put(w, &k, &err), -EMFILE);
	activity_db.put(w, &k, &err);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
	CHECK_INT(activity_db.close(w, &closing, &err), 0);
	char *pattern = xasprintf("%s/*.db", dir);
	CHECK_INT(glob(pattern, 0, NULL, &found), 0);
	CHECK_STR(query(found.gl_pathv[0], "SELECT lost,closed FROM ACTIVITY_LOSS"), "2|1");
	globfree(&found);
	free(pattern);
	activity_dir_remove(dir);
}

TEST(activity_db, unwritable_place)
{
	struct activity k = kernel_of("k", 0);
	struct activity_writer *w = activity_db.open("/proc/no/such/place", &origin, NULL);
	struct err err = {0};

	CHECK(activity_db.put(w, &k, &err) < 0);
	CHECK(err.text[0]);
	CHECK_INT(activity_db.put(w, &k, &err), 0); /* told once */
	CHECK_INT(activity_db.flush(w, &err), 0);
	CHECK_STR(activity_db.path(w), "");
	CHECK_INT(activity_db.close(w, &closing, &err), 0);
}

TEST(activity_db, ill_formed_texts)
{
	char *dir = activity_dir();
	struct activity k = kernel_of("bad\xff\xc3name", 0);
	char *path = write_all(dir, &k, 1);

	CHECK_STR(query(path, "SELECT value FROM STRING_IDS WHERE id=0"),
		  "bad\xef\xbf\xbd\xef\xbf\xbdname");
	activity_dir_remove(dir);
}

static void copy_file(const char *from, const char *to)
{
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	char piece[65536];
	ssize_t n;

	CHECK(in >= 0 && out >= 0);
	while ((n = read(in, piece, sizeof(piece))) > 0)
		CHECK_INT(write(out, piece, (size_t)n), n);
	close(in);
	close(out);
}

/* Every row has its texts, every kernel its task, and nothing is malformed. */
static void check_copy(const char *path)
{
	CHECK_STR(query(path, "SELECT count(*) FROM COMPUTE_TASK_INFO c LEFT JOIN STRING_IDS s ON "
			      "s.id=c.name WHERE s.value IS NULL"),
		  "0");
	CHECK_STR(query(path, "SELECT count(*) FROM COMMUNICATION_OP c LEFT JOIN STRING_IDS s ON "
			      "s.id=c.opName WHERE s.value IS NULL"),
		  "0");
	CHECK_STR(query(path, "SELECT count(*) FROM TASK t LEFT JOIN COMPUTE_TASK_INFO c ON "
			      "c.globalTaskId=t.globalTaskId WHERE c.name IS NULL"),
		  "0");
	CHECK_STR(query(path, "SELECT count(*) FROM META_DATA"), "4");
	CHECK_STR(query(path, "SELECT count(*) FROM SESSION_TIME_INFO"), "1");
}

static void write_until_killed(const char *dir, int ready)
{
	struct activity_writer *w = activity_db.open(dir, &origin, NULL);
	struct activity k = kernel_of("k", 0), c = communication_of("hcom", "g");
	char names[512][16];

	for (unsigned i = 0; i < 512; i++)
		snprintf(names[i], sizeof(names[i]), "kernel_%u", i);
	for (uint64_t i = 0;; i++) {
		k.name = names[i * i % 512];
		k.start_ns++;
		if (activity_db.put(w, &k, NULL) < 0 || activity_db.put(w, &c, NULL) < 0)
			_exit(1);
		if (i % 200 == 199 && activity_db.flush(w, NULL) < 0)
			_exit(2);
		if (i == 199)
			(void)!write(ready, "", 1);
	}
}

static void find_db(const char *dir, char *out, size_t size)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while ((e = readdir(d)))
		if (strlen(e->d_name) > 3 && !strcmp(e->d_name + strlen(e->d_name) - 3, ".db"))
			snprintf(out, size, "%s/%s", dir, e->d_name);
	closedir(d);
}

/* Pages that were written but not yet pointed to are no damage. */
static void check_whole(const char *path)
{
	const char *text = query(path, "PRAGMA integrity_check");

	for (const char *p = text; *p && strcmp(text, "ok");
	     p += strcspn(p, "\n"), p += *p == '\n') {
		char line[256];

		snprintf(line, sizeof(line), "%.*s", (int)strcspn(p, "\n"), p);
		if (!strstr(line, "never used") && !strstr(line, "in database main"))
			CHECK_STR(line, "ok");
	}
}

/* Killed at any moment, the file can be read, and so can a copy of it. */
TEST(activity_db, killed_at_any_moment)
{
	const char *rounds = getenv("ACTIVITY_KILLS");

	for (int i = 0, n = rounds ? atoi(rounds) : 25; i < n; i++) {
		char *dir = activity_dir();
		char path[512] = "", copy[600], byte;
		int ready[2];

		CHECK_INT(pipe(ready), 0);
		pid_t pid = fork();
		if (!pid)
			write_until_killed(dir, ready[1]);
		CHECK_INT(read(ready[0], &byte, 1), 1);
		usleep((unsigned)(rand() % 20000));
		kill(pid, SIGKILL);
		CHECK_INT(waitpid(pid, NULL, 0), pid);
		close(ready[0]);
		close(ready[1]);
		find_db(dir, path, sizeof(path));
		snprintf(copy, sizeof(copy), "%s.copy", path);
		copy_file(path, copy);
		check_copy(copy);
		CHECK_INT(activity_dir_files(dir), 2); /* nothing lies beside it */
		check_whole(copy);
		activity_dir_remove(dir);
	}
}

TEST(activity_db, copied_while_it_is_written)
{
	char *dir = activity_dir();
	char path[512] = "", copy[600], byte;
	int ready[2];

	CHECK_INT(pipe(ready), 0);
	pid_t pid = fork();
	if (!pid)
		write_until_killed(dir, ready[1]);
	CHECK_INT(read(ready[0], &byte, 1), 1);
	find_db(dir, path, sizeof(path));
	snprintf(copy, sizeof(copy), "%s.copy", path);
	for (int i = 0; i < 20; i++) {
		copy_file(path, copy);
		CHECK_STR(query(copy, "SELECT count(*) FROM META_DATA"), "4");
		CHECK(atoi(query(copy, "SELECT count(*) FROM TASK")) >= 200);
		CHECK(atoi(query(copy, "SELECT count(*) FROM STRING_IDS")) >= 200);
	}
	kill(pid, SIGKILL);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
	activity_dir_remove(dir);
}
