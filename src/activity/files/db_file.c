/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/files/db_file.h"

#include "activity/files/db_vfs.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "formats/sqlite_use.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define ADDRESS_BYTES 6
#define MAX_ADDRESSES 256
#define LOCALLY_ADMINISTERED 2 /* bit of the first byte */
#define BATCH_ROWS 131072 /* in one transaction before it is committed unasked */
#define BATCH_NS 1000000000u
#define RETRY_NS 1000000000u
#define PENDING_ROWS 2000000 /* that wait for somebody who reads, before any are dropped */
#define BUSY_MS 50 /* for readers, while things happen */
#define BUSY_LAST_MS 5000 /* and at the end */

/*
 * No log and no journal beside the file: it alone is all there is, for those who copy it and for
 * readers that may not write. No page leaves the cache before the commit, whose writes the VFS puts
 * in order (activity/files/db_vfs.h). Nothing is synced: what was written is with the kernel, so a
 * killed process loses nothing.
 */
static const char setup_sql[] = "PRAGMA page_size=4096;"
				"PRAGMA journal_mode=MEMORY;"
				"PRAGMA synchronous=OFF;"
				"PRAGMA cache_spill=OFF;"
				"PRAGMA cache_size=-16384;"
				"PRAGMA temp_store=MEMORY;";

/* MICRO and MAJOR are the wrong way round in every file of this kind; readers know them so. */
static const char constant_sql[] =
	"CREATE TABLE ENUM_API_TYPE(id INTEGER PRIMARY KEY,name TEXT);"
	"INSERT INTO ENUM_API_TYPE VALUES(5000,'runtime'),(5500,'communication'),(10000,'node'),"
	"(15000,'model'),(20000,'acl'),(50001,'op'),(50002,'queue'),(50003,'trace'),"
	"(50004,'mstx');"
	"CREATE TABLE ENUM_HCCL_DATA_TYPE(id INTEGER PRIMARY KEY,name TEXT);"
	"CREATE TABLE ENUM_MSTX_EVENT_TYPE(id INTEGER PRIMARY KEY,name TEXT);"
	"INSERT INTO ENUM_MSTX_EVENT_TYPE VALUES(0,'marker'),(1,'push/pop'),(2,'start/end'),"
	"(3,'marker_ex');"
	"CREATE TABLE META_DATA(name TEXT,value TEXT);"
	"INSERT INTO META_DATA VALUES('SCHEMA_VERSION_MICRO','1'),('SCHEMA_VERSION_MINOR','2'),"
	"('SCHEMA_VERSION_MAJOR','0'),('SCHEMA_VERSION','1.2.0');";

/* One row each, to be filled in. */
static const char state_sql[] = "CREATE TABLE HOST_INFO(hostUid TEXT,hostName TEXT);"
				"CREATE TABLE SESSION_TIME_INFO(startTimeNs INTEGER,"
				"endTimeNs INTEGER);"
				"CREATE TABLE NPU_INFO(id INTEGER,name TEXT);"
				"CREATE TABLE RANK_DEVICE_MAP(rankId INTEGER,deviceId INTEGER);"
				"CREATE TABLE ACTIVITY_LOSS(lost INTEGER,closed INTEGER);"
				"INSERT INTO NPU_INFO VALUES(-1,'UNKNOWN');"
				"INSERT INTO ACTIVITY_LOSS VALUES(0,0);";

/* What the transaction has made is not there any more. */
static void forget_transaction(struct db_file *f)
{
	hmap_release(&f->by_pointer);
	hmap_release(&f->by_hash);
	f->by_pointer = f->by_hash = (struct hmap){0};
	f->texts = f->texts_committed;
	f->ndevices = f->devices_put = f->devices_committed;
	f->lost += f->rows;
	f->rows = 0;
	f->in_batch = false;
}

static int exec_format(sqlite3 *db, const char *fmt, long long a, long long b)
{
	char *sql = sqlite3_mprintf(fmt, a, b);
	int rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

	sqlite3_free(sql);
	return rc;
}

static int put_loss(struct db_file *f)
{
	return exec_format(f->db, "UPDATE ACTIVITY_LOSS SET lost=%lld,closed=%lld",
			   (long long)f->lost, f->closing);
}

/* In a transaction of its own. The file does not grow by it. */
static void write_loss(struct db_file *f)
{
	if (sqlite3_exec(f->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
		return;
	int rc = put_loss(f);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(f->db, "COMMIT", NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		f->lost_written = f->lost;
	else if (!sqlite3_get_autocommit(f->db))
		sqlite3_exec(f->db, "ROLLBACK", NULL, NULL, NULL);
}

static int fail_for(struct db_file *f, const struct err *why, struct err *err)
{
	int before = f->failed;

	f->failed = why->code;
	f->retry_ns = clock_mono_ns() + RETRY_NS;
	if (!before)
		err_set(err, f->failed,
			"cannot write '%s', activities are dropped until it works again: %s",
			f->path, why->text);
	if (f->db && !sqlite3_get_autocommit(f->db))
		sqlite3_exec(f->db, "ROLLBACK", NULL, NULL, NULL);
	forget_transaction(f);
	if (f->db && why->code != -EBUSY)
		write_loss(f);
	return before ? 0 : f->failed;
}

static int set_sql_error(sqlite3 *db, int rc, struct err *why)
{
	return err_set(why, sql_errno(db, rc), "%s", sql_words(db, rc));
}

static int note_failure(struct db_file *f, int rc, struct err *err)
{
	struct err why;

	set_sql_error(f->db, rc, &why);
	return fail_for(f, &why, err);
}

static int insert_text(sqlite3 *db, const char *sql, const char *a, const char *b)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_bind_text(stmt, 1, a, -1, SQLITE_TRANSIENT);
	if (rc == SQLITE_OK && b)
		rc = sqlite3_bind_text(stmt, 2, b, -1, SQLITE_TRANSIENT);
	if (rc == SQLITE_OK)
		rc = sql_run(stmt);
	sqlite3_finalize(stmt);
	return rc;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

typedef char address_text[2 * ADDRESS_BYTES + 1];

/* Those of one kind, each interface once. */
static unsigned list_addresses(const struct ifaddrs *list, bool local, address_text *out)
{
	unsigned n = 0;

	for (const struct ifaddrs *i = list; i && n < MAX_ADDRESSES; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_PACKET ||
		    i->ifa_flags & IFF_LOOPBACK)
			continue;
		struct sockaddr_ll ll;
		memcpy(&ll, i->ifa_addr, sizeof(ll));
		if (ll.sll_halen != ADDRESS_BYTES ||
		    local != ((ll.sll_addr[0] & LOCALLY_ADMINISTERED) != 0))
			continue;
		for (unsigned b = 0; b < ADDRESS_BYTES; b++)
			snprintf(out[n] + 2 * b, 3, "%02x", ll.sll_addr[b]);
		n++;
	}
	qsort(out, n, sizeof(*out), by_text);
	return n;
}

/* hostUid: hash of the hardware addresses. */
static uint64_t host_uid(void)
{
	address_text *all = xcalloc(MAX_ADDRESSES, sizeof(*all));
	struct ifaddrs *list = NULL;
	struct buf joined = {0};

	if (getifaddrs(&list) < 0)
		list = NULL;
	unsigned n = list_addresses(list, false, all);
	if (!n)
		n = list_addresses(list, true, all);
	for (unsigned i = 0; i < n; i++)
		buf_addf(&joined, "%s%s", i ? "-" : "", all[i]);
	uint64_t uid = activity_hash(buf_str(&joined));
	buf_release(&joined);
	freeifaddrs(list);
	free(all);
	return uid;
}

static int put_host(sqlite3 *db)
{
	struct buf scratch = {0};
	char uid[24], name[256] = "";

	sqlite3_snprintf(sizeof(uid), uid, "%llu", (unsigned long long)host_uid());
	gethostname(name, sizeof(name) - 1);
	size_t len = strlen(name);
	const char *clean = text_clean(name, &len, &scratch);
	char *whole = xstrndup(clean, len);
	int rc = insert_text(db, "INSERT INTO HOST_INFO VALUES(?,?)", uid, whole);
	free(whole);
	buf_release(&scratch);
	return rc;
}

static int put_constants(const struct db_file *f, sqlite3 *db)
{
	const char *name;
	uint16_t type;
	int rc = sqlite3_exec(db, constant_sql, NULL, NULL, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, state_sql, NULL, NULL, NULL);
	for (unsigned i = 0; rc == SQLITE_OK && activity_data_type_at(i, &type, &name); i++) {
		char *sql = sqlite3_mprintf("INSERT INTO ENUM_HCCL_DATA_TYPE VALUES(%u,%Q)", type,
					    name);

		rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
		sqlite3_free(sql);
	}
	if (rc == SQLITE_OK)
		rc = put_host(db);
	if (rc == SQLITE_OK)
		rc = exec_format(db, "INSERT INTO SESSION_TIME_INFO VALUES(%lld,%lld)",
				 (long long)f->who.start_ns, (long long)f->who.start_ns);
	if (rc == SQLITE_OK)
		rc = exec_format(db, "INSERT INTO RANK_DEVICE_MAP VALUES(%lld,%lld)", f->who.rank,
				 -1);
	return rc;
}

static int create_table(sqlite3 *db, const struct db_table *table)
{
	const struct db_column *c = table->columns;
	struct buf sql = {0};

	buf_addf(&sql, "CREATE TABLE %s", table->name);
	for (unsigned i = 0; c[i].name; i++)
		buf_addf(&sql, "%c%s %s", i ? ',' : '(', c[i].name,
			 c[i].type ? c[i].type : "INTEGER");
	buf_add_char(&sql, ')');
	int rc = sqlite3_exec(db, buf_str(&sql), NULL, NULL, NULL);
	buf_release(&sql);
	return rc;
}

/* All that is constant, and the tables: the file is there with them or not at all. */
static int write_skeleton(struct db_file *f, const char *path, struct err *why)
{
	static const char sql[] = "PRAGMA page_size=4096;PRAGMA journal_mode=OFF;"
				  "PRAGMA synchronous=OFF;BEGIN";
	sqlite3 *db;
	int rc = sql_open_to_write(path, "unix", &db);

	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = put_constants(f, db);
	for (unsigned i = 0; rc == SQLITE_OK && i < TABLE_END; i++)
		rc = create_table(db, &activity_tables[i]);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	int r = rc == SQLITE_OK ? 0 : set_sql_error(db, rc, why);
	sqlite3_close(db);
	return r;
}

static int make_file(struct db_file *f, struct err *why)
{
	char *temporary = xasprintf("%s.tmp", f->path);

	(void)fs_unlink(temporary, NULL); /* of a process that was killed */
	int r = fs_open(temporary, O_RDWR | O_CREAT | O_EXCL, ACTIVITY_FILE_MODE, why);
	if (r >= 0) {
		close(r);
		r = write_skeleton(f, temporary, why);
	}
	if (r == 0)
		r = fs_rename(temporary, f->path, why);
	if (r < 0)
		(void)fs_unlink(temporary, NULL);
	free(temporary);
	return r;
}

static int open_path(struct db_file *f, struct err *why)
{
	int r = make_file(f, why);

	if (r < 0)
		return r;
	int rc = sql_open_to_write(f->path, activity_db_vfs(), &f->db);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(f->db, setup_sql, NULL, NULL, NULL);
	return rc == SQLITE_OK ? 0 : set_sql_error(f->db, rc, why);
}

static int open_db(struct db_file *f, struct err *err)
{
	struct err why = {0};
	char *path = NULL;
	int fd = activity_file_new(f->dir, &f->who, "db", &f->last_ms, &path, err);

	if (fd < 0) {
		int before = f->failed;

		f->failed = fd;
		f->retry_ns = clock_mono_ns() + RETRY_NS;
		return before ? 0 : fd;
	}
	close(fd);
	free(f->path);
	f->path = path;
	if (open_path(f, &why) == 0)
		return 0;
	int r = fail_for(f, &why, err);
	sqlite3_close(f->db);
	f->db = NULL;
	(void)fs_unlink(path, NULL);
	*path = '\0';
	return r;
}

static int begin_transaction(struct db_file *f, struct err *err)
{
	int rc = sqlite3_exec(f->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);

	if (rc != SQLITE_OK)
		return note_failure(f, rc, err);
	f->in_batch = true;
	f->begun_ns = clock_mono_ns();
	return 0;
}

bool db_file_begin(struct db_file *f, struct err *err, int *out_r)
{
	*out_r = 0;
	if (f->in_batch)
		return true;
	if (!f->failed || clock_mono_ns() >= f->retry_ns) {
		if (!f->db)
			*out_r = open_db(f, err);
		if (f->db)
			*out_r = begin_transaction(f, err);
	}
	f->lost += !f->in_batch;
	return f->in_batch;
}

static int prepare_insert(struct db_file *f, enum activity_table table)
{
	const struct db_table *s = &activity_tables[table];
	struct buf sql = {0};

	buf_addf(&sql, "INSERT INTO %s VALUES", s->name);
	for (unsigned i = 0; s->columns[i].name; i++)
		buf_add_str(&sql, i ? ",?" : "(?");
	buf_add_char(&sql, ')');
	int rc = sqlite3_prepare_v3(f->db, buf_str(&sql), -1, SQLITE_PREPARE_PERSISTENT,
				    &f->inserts[table], NULL);
	buf_release(&sql);
	return rc;
}

int db_file_row(struct db_file *f, enum activity_table table, const int64_t *values,
		struct err *err)
{
	sqlite3_stmt **insert = &f->inserts[table];
	int rc = SQLITE_OK;

	if (!f->in_batch)
		return 0; /* an earlier row of the same activity has failed */
	if (!*insert)
		rc = prepare_insert(f, table);
	for (int i = 0; rc == SQLITE_OK && activity_tables[table].columns[i].name; i++)
		rc = sqlite3_bind_int64(*insert, i + 1, values[i]);
	if (rc == SQLITE_OK)
		rc = sql_run(*insert);
	return rc == SQLITE_OK ? 0 : note_failure(f, rc, err);
}

/* Its failure is noticed by the row that uses it: the transaction is gone then. */
int64_t db_file_new_text(struct db_file *f, const char *text)
{
	sqlite3_stmt **insert = &f->inserts[TABLE_STRING_IDS];
	size_t len = strlen(text);
	const char *clean = text_clean(text, &len, &f->scratch);
	int rc = SQLITE_OK;

	if (!f->in_batch)
		return 0;
	if (!*insert)
		rc = prepare_insert(f, TABLE_STRING_IDS);
	if (rc == SQLITE_OK)
		rc = sqlite3_bind_int64(*insert, 1, (int64_t)f->texts);
	if (rc == SQLITE_OK)
		rc = sqlite3_bind_text(*insert, 2, clean, (int)len, SQLITE_TRANSIENT);
	if (rc == SQLITE_OK)
		rc = sql_run(*insert);
	if (rc != SQLITE_OK) {
		note_failure(f, rc, NULL);
		return 0;
	}
	return (int64_t)f->texts++;
}

int64_t db_file_text(struct db_file *f, const char *text)
{
	uint64_t key = (uintptr_t)text;
	uint64_t id = hmap_get(&f->by_pointer, key);

	if (id != HMAP_NONE)
		return (int64_t)id;
	uint64_t hash = XXH3_64bits(text, strlen(text));
	id = hmap_get(&f->by_hash, hash);
	if (id == HMAP_NONE) {
		id = (uint64_t)db_file_new_text(f, text);
		if (!f->in_batch)
			return 0;
		hmap_put(&f->by_hash, hash, id);
	}
	hmap_put(&f->by_pointer, key, id);
	return (int64_t)id;
}

void db_file_device(struct db_file *f, uint32_t device)
{
	if (device == ACTIVITY_NOWHERE)
		return;
	for (size_t i = f->ndevices; i-- > 0;)
		if (f->devices[i] == device)
			return;
	*XPUSH(f->devices, f->ndevices, f->devices_cap) = device;
}

/* What has changed since the last commit. */
static int put_state(struct db_file *f, uint64_t end_ns)
{
	int rc = SQLITE_OK;

	if (f->ndevices && !f->devices_put)
		rc = sqlite3_exec(f->db, "DELETE FROM NPU_INFO;DELETE FROM RANK_DEVICE_MAP", NULL,
				  NULL, NULL);
	for (size_t i = f->devices_put; rc == SQLITE_OK && i < f->ndevices; i++) {
		rc = exec_format(f->db, "INSERT INTO NPU_INFO VALUES(%lld,'UNKNOWN')",
				 f->devices[i], 0);
		if (rc == SQLITE_OK)
			rc = exec_format(f->db, "INSERT INTO RANK_DEVICE_MAP VALUES(%lld,%lld)",
					 f->who.rank, f->devices[i]);
	}
	f->devices_put = f->ndevices;
	if (rc == SQLITE_OK)
		rc = exec_format(f->db, "UPDATE SESSION_TIME_INFO SET endTimeNs=%lld",
				 (long long)end_ns, 0);
	if (rc == SQLITE_OK && (f->lost != f->lost_written || f->closing))
		rc = put_loss(f);
	return rc;
}

static void note_commit(struct db_file *f)
{
	f->texts_committed = f->texts;
	f->devices_committed = f->ndevices;
	f->lost_written = f->lost;
	f->in_batch = false;
	f->rows = 0;
	f->failed = 0;
}

int db_file_commit(struct db_file *f, uint64_t end_ns, bool wait, struct err *err)
{
	if (!f->in_batch && f->db && f->lost != f->lost_written)
		write_loss(f);
	if (!f->in_batch)
		return 0;
	int rc = put_state(f, end_ns);
	if (rc == SQLITE_OK) {
		sqlite3_busy_timeout(f->db, wait ? BUSY_LAST_MS : BUSY_MS);
		rc = sqlite3_exec(f->db, "COMMIT", NULL, NULL, NULL);
	}
	if ((rc & 0xff) == SQLITE_BUSY && !wait && f->rows < PENDING_ROWS) {
		f->begun_ns = clock_mono_ns(); /* somebody reads: later */
		return 0;
	}
	if (rc != SQLITE_OK)
		return note_failure(f, rc, err);
	note_commit(f);
	return 0;
}

int db_file_end(struct db_file *f, struct err *err)
{
	if (!f->in_batch)
		return 0;
	f->rows++;
	bool old = f->rows % 256 == 0 && clock_mono_ns() - f->begun_ns > BATCH_NS;
	if (!old && f->rows % BATCH_ROWS)
		return 0;
	return db_file_commit(f, (uint64_t)clock_real_ns(), f->rows >= PENDING_ROWS, err);
}

static int put_groups(struct db_file *f, const char *json, struct err *err)
{
	size_t len = strlen(json);
	const char *clean = text_clean(json, &len, &f->scratch);
	char *whole = xstrndup(clean, len);
	int rc = insert_text(f->db, "INSERT INTO META_DATA VALUES('parallel_group_info',?)", whole,
			     NULL);
	free(whole);
	return rc == SQLITE_OK ? 0 : note_failure(f, rc, err);
}

int db_file_finish(struct db_file *f, const struct activity_closing *c, struct err *err)
{
	uint64_t end_ns = c ? c->end_ns : (uint64_t)clock_real_ns();

	f->lost += c ? c->lost : 0;
	f->closing = true;
	/* The first activity makes the file. Where that failed, one is made now: to state the loss. */
	int r = f->db || !f->lost ? 0 : open_db(f, err);
	if (!f->db)
		return r;
	if (!f->in_batch)
		r = begin_transaction(f, err);
	if (f->in_batch)
		r = db_file_commit(f, end_ns, true, err);
	/* Behind all else: if there is no room for it, the rest stays. */
	if (!f->failed && c && c->groups) {
		r = begin_transaction(f, err);
		if (f->in_batch)
			r = put_groups(f, c->groups, err);
		if (f->in_batch)
			r = db_file_commit(f, end_ns, true, err);
	}
	return r;
}

int db_file_close(struct db_file *f, struct err *err)
{
	int r = 0;

	for (unsigned i = 0; i < TABLE_END; i++)
		sqlite3_finalize(f->inserts[i]);
	if (f->db && sqlite3_close(f->db) != SQLITE_OK)
		r = err_set(err, -EIO, "cannot close '%s'", f->path);
	hmap_release(&f->by_pointer);
	hmap_release(&f->by_hash);
	buf_release(&f->scratch);
	free(f->devices);
	free(f->path);
	free(f->dir);
	return r;
}
