/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "wire/fabric.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/fabric_impl.h"
#include "test.h"
#include "tmpdir.h"

/* Datagrams as they were seen on the wire. */
#define ZEROS4 "00000000"
#define ZEROS28 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4 ZEROS4
#define HEADER(size, type4) size "00000000" type4 ZEROS28

static const char context_hex[] = HEADER("10000000", "63747874") "0300000092100000"
								 "0000000000000000";
static const char request_hex[] = HEADER("18000000", "72657100") "0300000002000000"
								 "0000000000000000"
								 "9210000068100000";
static const char empty_answer_hex[] = HEADER("00000000", "72657100");
static const char count_answer_hex[] = HEADER("04000000", "63747874") "01000000";
static const char status_hex[] =
	"2000000000000000"
	"6e70755472616365"
	"5374617475730000" ZEROS4 ZEROS4 ZEROS4 ZEROS4 "02000000070000000a0000000c000000"
	"92100000000000000000000000000000";
static const char slurm_hex[] = HEADER("24000000", "72657100") "03000000050000004d00000000000000"
							       "93010000920100009001000"
							       "08f0100008b010000";

/* Bytes with the alignment that fabric_parse() asks for. */
struct datagram {
	size_t len;
	_Alignas(8) unsigned char bytes[512];
};

static struct datagram from_hex(const char *hex)
{
	struct datagram d = {0};

	for (; hex[0]; hex += 2) {
		unsigned byte;

		CHECK(sscanf(hex, "%2x", &byte) == 1 && d.len < sizeof(d.bytes));
		d.bytes[d.len++] = (unsigned char)byte;
	}
	return d;
}

static struct datagram make(const char *type, const void *payload, size_t n)
{
	struct datagram d = {.len = sizeof(struct fabric_header) + n};

	fabric_header_init((void *)d.bytes, type, n);
	if (n)
		memcpy(d.bytes + sizeof(struct fabric_header), payload, n);
	return d;
}

static enum fabric_fault parse(const struct datagram *d, struct fabric_message *m)
{
	return fabric_parse(d->bytes, d->len, m);
}

TEST(fabric, reads_a_context)
{
	struct datagram d = from_hex(context_hex);
	struct fabric_message m;

	CHECK_INT(d.len, 56);
	CHECK_INT(parse(&d, &m), FABRIC_OK);
	CHECK_INT(m.kind, FABRIC_CONTEXT);
	CHECK_STR(m.type, "ctxt");
	CHECK_INT(m.context.gpu, 3);
	CHECK_INT(m.context.pid, 4242);
	CHECK_INT(m.context.job_id, 0);
}

TEST(fabric, reads_a_request)
{
	struct datagram d = from_hex(request_hex);
	struct fabric_message m;

	CHECK_INT(d.len, 64);
	CHECK_INT(parse(&d, &m), FABRIC_OK);
	CHECK_INT(m.kind, FABRIC_REQUEST);
	CHECK_INT(m.request->mask, FABRIC_EVENTS | FABRIC_ACTIVITIES);
	CHECK_INT(m.npids, 2);
	CHECK_INT(m.request->pids[0], 4242);
	CHECK_INT(m.request->pids[1], 4200);
}

TEST(fabric, reads_a_request_of_a_slurm_job)
{
	struct datagram d = from_hex(slurm_hex);
	struct fabric_message m;

	CHECK_INT(d.len, 76);
	CHECK_INT(parse(&d, &m), FABRIC_OK);
	CHECK_INT(m.request->job_id, 77);
	CHECK_INT(m.npids, 5);
	CHECK_INT(m.request->pids[4], 0x18b);
}

TEST(fabric, reads_both_forms_of_a_status)
{
	struct datagram d = from_hex(status_hex);
	struct fabric_status_short old = {FABRIC_RUNNING, 77, 5};
	struct fabric_message m;

	CHECK_INT(d.len, 72);
	CHECK_INT(parse(&d, &m), FABRIC_OK);
	CHECK_INT(m.kind, FABRIC_TRACE_STATUS);
	CHECK_INT(m.status.state, FABRIC_READY);
	CHECK_INT(m.status.current_step, 7);
	CHECK_INT(m.status.start_step, 10);
	CHECK_INT(m.status.stop_step, 12);
	CHECK_INT(m.status.pid, 4242);
	d = make("npuMonitorStatus", &old, sizeof(old));
	CHECK_INT(parse(&d, &m), FABRIC_OK);
	CHECK_INT(m.kind, FABRIC_MONITOR_STATUS);
	CHECK_INT(m.status.state, FABRIC_RUNNING);
	CHECK_INT(m.status.pid, 77);
	CHECK_INT(m.status.job_id, 5);
	CHECK_INT(m.status.current_step, -1);
	CHECK_INT(m.status.start_step, -1);
	CHECK_INT(m.status.stop_step, -1);
}

TEST(fabric, writes_answers_as_expected)
{
	struct datagram want = from_hex(empty_answer_hex);
	struct datagram d = make("req", NULL, 0);
	int32_t one = 1;

	CHECK(d.len == want.len && !memcmp(d.bytes, want.bytes, d.len));
	want = from_hex(count_answer_hex);
	d = make("ctxt", &one, sizeof(one));
	CHECK(d.len == want.len && !memcmp(d.bytes, want.bytes, d.len));
}

TEST(fabric, takes_a_type_by_its_beginning)
{
	struct fabric_message m;
	struct datagram d = make("data2", "{}", 2);

	CHECK_INT(parse(&d, &m), FABRIC_OK);
	CHECK_INT(m.kind, FABRIC_DATA);
	CHECK_INT(m.payload_bytes, 2);
	CHECK(!memcmp(m.payload, "{}", 2));
	d = make("", NULL, 0);
	CHECK_INT(parse(&d, &m), FABRIC_OK);
	CHECK_INT(m.kind, FABRIC_OTHER);
	d = make("re", NULL, 0);
	CHECK_INT(parse(&d, &m), FABRIC_OK);
	CHECK_INT(m.kind, FABRIC_OTHER);
}

TEST(fabric, refuses_what_is_no_datagram)
{
	struct datagram d = from_hex(request_hex);
	struct fabric_message m = {.type = "untouched"};

	for (size_t n = 0; n < sizeof(struct fabric_header); n++)
		CHECK_INT(fabric_parse(d.bytes, n, &m), FABRIC_TOO_SHORT);
	CHECK_INT(fabric_parse(d.bytes, d.len - 1, &m), FABRIC_WRONG_SIZE);
	CHECK_INT(fabric_parse(d.bytes, d.len + 1, &m), FABRIC_WRONG_SIZE);
	memset(d.bytes, 0xff, 8);
	CHECK_INT(parse(&d, &m), FABRIC_WRONG_SIZE);
	d = from_hex(request_hex);
	memset(d.bytes + 8, 'r', FABRIC_TYPE_BYTES);
	CHECK_INT(parse(&d, &m), FABRIC_BAD_TYPE);
	CHECK_STR(m.type, "untouched");
}

TEST(fabric, refuses_payloads_that_are_too_short)
{
	static const char *const types[] = {"ctxt", "req", "npuTraceStatus", "npuMonitorStatus"};
	struct fabric_status s = {.state = 1, .current_step = 1};
	struct fabric_message m;

	for (size_t i = 0; i < 4; i++)
		for (size_t n = 0; n < 16; n++) {
			struct datagram d = make(types[i], &s, n);

			CHECK_INT(parse(&d, &m), FABRIC_BAD_PAYLOAD);
		}
	for (size_t n = 17; n < 32; n++) {
		struct datagram d = make("npuTraceStatus", &s, n);

		CHECK_INT(parse(&d, &m), FABRIC_BAD_PAYLOAD);
	}
}

static enum fabric_fault parse_pids(int32_t claimed, unsigned there, unsigned *out_npids)
{
	struct {
		int32_t mask, npids;
		int64_t job_id;
		int32_t pids[100];
	} r = {.mask = 3, .npids = claimed};
	struct datagram d = make("req", &r, 16 + there * sizeof(int32_t));
	struct fabric_message m = {0};
	enum fabric_fault fault = parse(&d, &m);

	*out_npids = m.npids;
	return fault;
}

TEST(fabric, counts_the_pids_itself)
{
	unsigned n;

	CHECK_INT(parse_pids(0, 0, &n), FABRIC_BAD_PAYLOAD);
	CHECK_INT(parse_pids(0, 3, &n), FABRIC_BAD_PAYLOAD);
	CHECK_INT(parse_pids(-1, 3, &n), FABRIC_BAD_PAYLOAD);
	CHECK_INT(parse_pids(INT32_MIN, 3, &n), FABRIC_BAD_PAYLOAD);
	CHECK_INT(parse_pids(4, 3, &n), FABRIC_BAD_PAYLOAD);
	CHECK_INT(parse_pids(INT32_MAX, 63, &n), FABRIC_BAD_PAYLOAD);
	CHECK_INT(parse_pids(3, 4, &n), FABRIC_OK);
	CHECK_INT(n, 3);
	CHECK_INT(parse_pids(100, 100, &n), FABRIC_OK);
	CHECK_INT(n, FABRIC_MAX_PIDS);
}

TEST(fabric, addresses_have_their_exact_length)
{
	struct sockaddr_un a;
	socklen_t len;
	char name[109];

	CHECK_INT(fabric_abstract_address("dynolog", &a, &len), 0);
	CHECK_INT(len, 2 + 1 + 7 + 1);
	CHECK(!memcmp(a.sun_path, "\0dynolog\0", 9));
	CHECK_INT(fabric_path_address("/tmp/x", &a, &len), 0);
	CHECK_INT(len, 2 + 6 + 1);
	memset(name, 'x', sizeof(name));
	name[106] = '\0';
	CHECK_INT(fabric_abstract_address(name, &a, &len), 0);
	CHECK_INT(len, sizeof(a));
	name[106] = 'x';
	name[107] = '\0';
	CHECK_INT(fabric_abstract_address(name, &a, &len), -ENAMETOOLONG);
	CHECK_INT(fabric_path_address(name, &a, &len), 0);
	name[107] = 'x';
	name[108] = '\0';
	CHECK_INT(fabric_path_address(name, &a, &len), -ENAMETOOLONG);
	CHECK_INT(fabric_path_address("", &a, &len), -EINVAL);
}

TEST(fabric, a_long_type_is_cut)
{
	struct fabric_header h;

	fabric_header_init(&h, "a type that is longer than a type can be", 7);
	CHECK_INT(strlen(h.type), 31);
	CHECK_INT(h.size, 7);
}

/* --- data --- */

static bool is_data(const char *text)
{
	json_t *o = fabric_data_parse(text, strlen(text));

	json_decref(o);
	return o != NULL;
}

TEST(fabric, data_is_one_json_object)
{
	CHECK(is_data("{\"kind\":\"Kernel\",\"duration\":5,\"deviceId\":\"-1\"}"));
	CHECK(!is_data(""));
	CHECK(!is_data("[1]"));
	CHECK(!is_data("{\"a\":1e999}"));
	CHECK(!is_data("{\"a\":99999999999999999999999}"));
	CHECK(!is_data("{\"a\":\"\xff\xfe\"}"));
	CHECK(!is_data("{\"a\":1}x"));
}

TEST(fabric, data_is_shallow)
{
	CHECK(is_data("{\"a\":[[[[[[[[[1]]]]]]]]]}"));
	CHECK(!is_data("{\"a\":[[[[[[[[[[1]]]]]]]]]]}"));
	CHECK(is_data("{\"[[[[[[[[[[[[[\":\"\\\"[[[[[[[[[[[[[[\"}"));
}

/* --- limits --- */

#define SECOND 1000000000u

static unsigned take_all(struct fabric_limit *l, uid_t uid, pid_t pid, uint64_t now)
{
	unsigned taken = 0;

	while (fabric_limit_take(l, uid, pid, FABRIC_LIMIT_CONTROL, now))
		taken++;
	return taken;
}

TEST(fabric_limit, gives_back_with_time)
{
	struct fabric_limit l = {0};
	uint64_t now = 5 * (uint64_t)SECOND;

	CHECK_INT(take_all(&l, 4321, 0, now), FABRIC_LIMIT_RATE);
	CHECK(fabric_limit_take(&l, 4321, 0, FABRIC_LIMIT_DATA, now));
	now += SECOND / FABRIC_LIMIT_RATE / 2;
	CHECK_INT(take_all(&l, 4321, 0, now), 0);
	now += SECOND / FABRIC_LIMIT_RATE / 2;
	CHECK_INT(take_all(&l, 4321, 0, now), 1);
	now += 3600 * (uint64_t)SECOND;
	CHECK_INT(take_all(&l, 4321, 0, now), FABRIC_LIMIT_RATE);
	fabric_limit_release(&l);
}

TEST(fabric_limit, trusts_root_more)
{
	struct fabric_limit l = {0};

	CHECK_INT(take_all(&l, 0, 0, SECOND), FABRIC_LIMIT_TRUSTED_RATE);
	CHECK_INT(take_all(&l, geteuid() + 1, 0, SECOND), FABRIC_LIMIT_RATE);
	fabric_limit_release(&l);
}

TEST(fabric_limit, leaves_something_to_the_other_processes_of_a_user)
{
	struct fabric_limit l = {0};
	const unsigned part = FABRIC_LIMIT_RATE / FABRIC_LIMIT_PROCESS_PART;

	CHECK_INT(take_all(&l, 4321, 100, 2 * (uint64_t)SECOND), part);
	CHECK_INT(take_all(&l, 4321, 101, 2 * (uint64_t)SECOND), part);
	CHECK_INT(take_all(&l, 4321, 100, 2 * (uint64_t)SECOND), 0);
	for (int i = 0; i < 2000; i++)
		CHECK(fabric_limit_take(&l, 4321, 100, FABRIC_LIMIT_DATA, 2 * (uint64_t)SECOND));
	/* another process on its place */
	CHECK_INT(take_all(&l, 4321, 100 + 1024, 2 * (uint64_t)SECOND), part);
	CHECK_INT(take_all(&l, 4321, 100 + 1024, 4 * (uint64_t)SECOND), part);
	fabric_limit_release(&l);
}

TEST(fabric_limit, a_process_silences_none_of_another_user)
{
	struct fabric_limit l = {0};
	const unsigned part = FABRIC_LIMIT_RATE / FABRIC_LIMIT_PROCESS_PART;

	/* pids can be chosen: by starting processes until one has the pid */
	for (pid_t pid = 100; pid < 100 + 20 * 1024; pid += 1024)
		take_all(&l, 4321, pid, 2 * (uint64_t)SECOND);
	CHECK(fabric_limit_take(&l, 0, 100 + 1024, FABRIC_LIMIT_CONTROL, 2 * (uint64_t)SECOND));
	CHECK(take_all(&l, 5555, 100, 2 * (uint64_t)SECOND) >= part);
	fabric_limit_release(&l);
}

TEST(fabric_limit, knows_a_bounded_number_of_users)
{
	struct fabric_limit l = {0};
	uint64_t now = SECOND;

	for (uid_t uid = 1; uid <= 3 * FABRIC_LIMIT_USERS; uid++)
		CHECK(fabric_limit_take(&l, 100000 + uid, 0, FABRIC_LIMIT_CONTROL, now));
	CHECK_INT(l.users.count, FABRIC_LIMIT_USERS);
	CHECK_INT(take_all(&l, 99999, 0, now), FABRIC_LIMIT_RATE - 2 * FABRIC_LIMIT_USERS);
	/* root has its own, whoever else there is */
	CHECK_INT(take_all(&l, 0, 0, now), FABRIC_LIMIT_TRUSTED_RATE);
	now += 2 * (uint64_t)SECOND;
	CHECK_INT(take_all(&l, 99999, 0, now), FABRIC_LIMIT_RATE);
	CHECK_INT(l.users.count, 1);
	fabric_limit_release(&l);
}

/* --- answers --- */

static int autobound(struct fabric_peer *out)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	CHECK(fd >= 0);
	CHECK_INT(bind(fd, (struct sockaddr *)&(struct sockaddr_un){.sun_family = AF_UNIX},
		       sizeof(sa_family_t)),
		  0);
	out->address_len = sizeof(out->address);
	CHECK_INT(getsockname(fd, (struct sockaddr *)&out->address, &out->address_len), 0);
	return fd;
}

TEST(fabric_reply, who_reads_nothing_leaves_room_for_others)
{
	struct event_base *base = event_base_new();
	event_base_priority_init(base, DAEMON_PRIORITIES);
	struct fabric_replies *r = fabric_replies_new(base);
	struct fabric_peer to = {.uid = 12345};
	socklen_t len = sizeof(to.send_bytes);
	const int bytes = 32768;
	char text[1000] = {0};
	int deaf[64], n = 0;

	to.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	CHECK_INT(setsockopt(to.fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
	CHECK_INT(getsockopt(to.fd, SOL_SOCKET, SO_SNDBUF, &to.send_bytes, &len), 0);
	while (n < 64) {
		deaf[n++] = autobound(&to);
		int sent = 0;
		while (sent < 8 && fabric_reply(r, &to, "req", NULL, 0, 0))
			sent++;
		if (!sent)
			break;
	}
	CHECK(n > 1 && n < 64);
	/* for him, a config, though not without end; for root anything */
	CHECK(fabric_reply(r, &to, "req", text, sizeof(text), FABRIC_REPLY_NOW));
	for (int i = 0; i < 8; i++)
		fabric_reply(r, &to, "req", text, sizeof(text), FABRIC_REPLY_NOW);
	CHECK(!fabric_reply(r, &to, "req", text, sizeof(text), FABRIC_REPLY_NOW));
	to.uid = 0;
	int other = autobound(&to);
	CHECK(fabric_reply(r, &to, "req", NULL, 0, 0));
	CHECK(fabric_reply(r, &to, "req", text, sizeof(text), FABRIC_REPLY_NOW));
	/* and for all when it is read */
	while (n)
		close(deaf[--n]);
	to.uid = 12345;
	CHECK(fabric_reply(r, &to, "req", NULL, 0, 0));
	fabric_replies_forget(r, to.fd);
	close(other);
	close(to.fd);
	fabric_replies_free(r);
	event_base_free(base);
}

/* --- endpoints --- */

TEST(fabric_endpoint, has_its_mode_and_removes_its_file)
{
	const char *path = tmpfile_path("dynolog");
	struct fabric_endpoint e;
	struct stat st;
	struct err err;
	char text[112];

	umask(022);
	CHECK_INT(fabric_endpoint_path(&e, path, 0666, geteuid(), &err), 0);
	CHECK(!lstat(path, &st) && S_ISSOCK(st.st_mode));
	CHECK_INT(st.st_mode & 0777, 0666);
	CHECK_STR(fabric_endpoint_text(&e, text), path);
	CHECK_INT(umask(022), 022);
	fabric_endpoint_close(&e);
	CHECK(lstat(path, &st) < 0);
}

TEST(fabric_endpoint, keeps_its_name_where_others_may_take_it)
{
	const char *path = tmpfile_path("dynolog");
	struct fabric_endpoint e;
	struct stat before, after;
	struct err err;
	char text[112];

	for (int i = 0; i < 3; i++) {
		CHECK_INT(fabric_endpoint_path(&e, path, 0666, geteuid(), &err), 0);
		CHECK_STR(fabric_endpoint_text(&e, text), path);
		CHECK(!fabric_endpoint_lost(&e) && !fabric_endpoint_free(path, true));
		e.keeps_name = true;
		CHECK(!lstat(path, &before));
		fabric_endpoint_close(&e);
		CHECK(!lstat(path, &after) && after.st_ino == before.st_ino);
		CHECK_INT(after.st_mode & 0777, 0666);
		CHECK(fabric_endpoint_free(path, true));
	}
}

TEST(fabric_endpoint, replaces_the_file_of_the_dead_and_no_other)
{
	const char *path = tmpfile_path("dynolog");
	struct fabric_endpoint first, second;
	struct err err;

	CHECK_INT(fabric_endpoint_path(&first, path, 0600, geteuid(), &err), 0);
	CHECK_INT(fabric_endpoint_path(&second, path, 0600, geteuid(), &err), -EADDRINUSE);
	CHECK(strstr(err.text, "another daemon listens"));
	CHECK_INT(unlink(path), 0);
	CHECK_INT(fabric_endpoint_path(&second, path, 0600, geteuid(), &err), 0);
	fabric_endpoint_close(&first); /* the file is not its own any more */
	CHECK_INT(access(path, F_OK), 0);
	fabric_endpoint_close(&second);
	CHECK(access(path, F_OK) < 0);
	CHECK_INT(mknod(path, S_IFSOCK | 0600, 0), 0);
	CHECK_INT(fabric_endpoint_path(&first, path, 0600, geteuid(), &err), 0);
	fabric_endpoint_close(&first);
}

TEST(fabric_endpoint, follows_no_link)
{
	const char *path = tmpfile_path("dynolog"), *victim = tmpfile_path("victim");
	struct fabric_endpoint e;
	struct stat st;
	struct err err;

	CHECK_INT(mknod(victim, S_IFSOCK | 0600, 0), 0);
	CHECK_INT(symlink(victim, path), 0);
	CHECK_INT(fabric_endpoint_path(&e, path, 0666, geteuid(), &err), -EEXIST);
	CHECK(!lstat(path, &st) && S_ISLNK(st.st_mode));
	CHECK(!lstat(victim, &st) && (st.st_mode & 0777) == 0600);
}

TEST(fabric_endpoint, says_what_is_wrong)
{
	struct fabric_endpoint e;
	struct err err;
	char name[200];

	memset(name, 'x', sizeof(name) - 1);
	name[0] = '/';
	name[sizeof(name) - 1] = '\0';
	CHECK_INT(fabric_endpoint_path(&e, name, 0600, geteuid(), &err), -ENAMETOOLONG);
	CHECK_INT(fabric_endpoint_path(&e, tmpfile_path("none/dynolog"), 0600, geteuid(), &err),
		  -ENOENT);
	CHECK(strstr(err.text, "none/dynolog"));
}

TEST(fabric_endpoint, knows_that_it_is_lost)
{
	const char *path = tmpfile_path("dynolog"), *moved = tmpfile_path("moved");
	struct fabric_endpoint e, other;
	struct err err;

	CHECK(fabric_endpoint_free(path, true));
	CHECK_INT(fabric_endpoint_path(&e, path, 0600, geteuid(), &err), 0);
	CHECK(!fabric_endpoint_lost(&e) && !fabric_endpoint_free(path, true));
	CHECK_INT(rename(path, moved), 0);
	CHECK(fabric_endpoint_lost(&e) && fabric_endpoint_free(path, true));
	CHECK_INT(fabric_endpoint_path(&other, path, 0600, geteuid(), &err), 0);
	CHECK(fabric_endpoint_lost(&e) && !fabric_endpoint_lost(&other));
	fabric_endpoint_close(&e);
	CHECK_INT(access(path, F_OK), 0);
	CHECK_INT(access(moved, F_OK), 0);
	fabric_endpoint_close(&other);
	CHECK(access(path, F_OK) < 0);
}

/* A daemon that begins and ends when it is told to, in a child. The end says whether it had the
 * endpoint then. */
enum { HAD_NONE = 10, HAD_IT, LOST_IT };

static pid_t beginner(const char *path, int begin, int tried, int end)
{
	fflush(NULL);
	pid_t pid = fork();
	struct fabric_endpoint e;
	struct err err;
	char byte = 0;

	CHECK(pid >= 0);
	if (pid)
		return pid;
	bool good = read(begin, &byte, 1) == 1;
	bool had = fabric_endpoint_path(&e, path, 0600, geteuid(), &err) == 0;
	good &= write(tried, &byte, 1) == 1 && read(end, &byte, 1) == 1;
	if (!good)
		_exit(1);
	_exit(!had ? HAD_NONE : fabric_endpoint_lost(&e) ? LOST_IT : HAD_IT);
}

static void check_one_has_it(const char *path)
{
	pid_t pids[4];
	int begin[2], tried[2], end[2], status, winners = 0;
	char byte;

	CHECK(!pipe(begin) && !pipe(tried) && !pipe(end));
	for (int i = 0; i < 4; i++)
		pids[i] = beginner(path, begin[0], tried[1], end[0]);
	CHECK_INT(write(begin[1], "....", 4), 4);
	for (int i = 0; i < 4; i++)
		CHECK_INT(read(tried[0], &byte, 1), 1);
	CHECK_INT(write(end[1], "....", 4), 4);
	for (int i = 0; i < 4; i++) {
		CHECK_INT(waitpid(pids[i], &status, 0), pids[i]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) >= HAD_NONE);
		CHECK(WEXITSTATUS(status) != LOST_IT);
		winners += WEXITSTATUS(status) == HAD_IT;
	}
	CHECK_INT(winners, 1);
	for (int i = 0; i < 2; i++) {
		close(begin[i]);
		close(end[i]);
		close(tried[i]);
	}
}

TEST(fabric_endpoint, of_those_that_begin_at_once_one_has_it)
{
	const char *path = tmpfile_path("dynolog");

	for (int round = 0; round < 100; round++) {
		unlink(path);
		CHECK_INT(mknod(path, S_IFSOCK | 0600, 0), 0); /* left by a dead one */
		check_one_has_it(path);
	}
}
