/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/socket_owner.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/address.h"
#include "test.h"

#define OTHER_USER 61001

struct ends {
	int server, client;
};

static int listen_at(const char *text, bool v6_only, struct sockaddr_storage *out)
{
	const int only = v6_only;
	socklen_t len;

	CHECK(address_parse(text, 0, out, &len));
	int fd = socket(out->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (out->ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
	if (fd < 0 || bind(fd, (struct sockaddr *)out, len) < 0 || listen(fd, 4) < 0) {
		if (fd >= 0)
			close(fd);
		return -1; /* no IPv6 here */
	}
	CHECK(getsockname(fd, (struct sockaddr *)out, &len) == 0);
	return fd;
}

/* A connection from `to` to a listener at `at`. False: this machine has no IPv6. */
static bool connect_ends(const char *at, const char *to, struct ends *out)
{
	struct sockaddr_storage own, peer;
	socklen_t len;
	int listener = listen_at(at, false, &own);

	if (listener < 0)
		return false;
	CHECK(address_parse(to, address_port((struct sockaddr *)&own), &peer, &len));
	out->client = socket(peer.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool good = out->client >= 0 && connect(out->client, (struct sockaddr *)&peer, len) == 0;
	out->server = good ? accept(listener, NULL, NULL) : -1;
	close(listener);
	return good;
}

static int owner_of(int fd, uid_t *out)
{
	int questions = socket_owner_open();

	CHECK(questions >= 0);
	int r = socket_owner_tcp(questions, fd, out);
	close(questions);
	return r;
}

static void check_owner(const char *at, const char *to)
{
	struct ends e;
	uid_t uid = 12345;

	if (!connect_ends(at, to, &e))
		SKIP("no IPv6");
	CHECK_INT(owner_of(e.server, &uid), 0);
	CHECK_INT(uid, getuid());
	uid = 12345;
	CHECK_INT(owner_of(e.client, &uid), 0);
	CHECK_INT(uid, getuid());
	close(e.server);
	close(e.client);
}

TEST(socket_owner, of_ipv4)
{
	check_owner("127.0.0.1", "127.0.0.1");
}

TEST(socket_owner, of_ipv6)
{
	check_owner("::1", "::1");
}

TEST(socket_owner, of_ipv4_at_a_listener_of_both)
{
	check_owner("::", "127.0.0.1");
}

TEST(socket_owner, of_ipv4_that_is_spelt_as_ipv6)
{
	check_owner("127.0.0.1", "::ffff:127.0.0.1");
}

/* The user who made the socket, not who connects. */
TEST(socket_owner, is_another_user)
{
	struct ends e;
	uid_t uid = 0;
	int pair[2];
	char go;

	NEEDS(geteuid() == 0, "root", "becomes another user");
	struct sockaddr_storage at;
	int listener = listen_at("127.0.0.1", false, &at);
	CHECK(pipe(pair) == 0);
	pid_t pid = fork();
	if (!pid) {
		CHECK(setresuid(OTHER_USER, OTHER_USER, OTHER_USER) == 0);
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(connect(fd, (struct sockaddr *)&at, sizeof(struct sockaddr_in)) == 0);
		(void)!read(pair[0], &go, 1);
		_exit(0);
	}
	e.server = accept(listener, NULL, NULL);
	CHECK_INT(owner_of(e.server, &uid), 0);
	CHECK_INT(uid, OTHER_USER);
	CHECK(write(pair[1], "", 1) == 1);
	CHECK(waitpid(pid, NULL, 0) == pid);
	/* It is gone. Kernels say that a socket without a process belongs to root. */
	uid = OTHER_USER;
	CHECK_INT(owner_of(e.server, &uid), -ENOENT);
	CHECK_INT(uid, OTHER_USER);
	close(e.server);
	close(listener);
	close(pair[0]);
	close(pair[1]);
}

TEST(socket_owner, is_known_while_the_peer_only_reads)
{
	struct ends e;
	uid_t uid = 12345;

	CHECK(connect_ends("127.0.0.1", "127.0.0.1", &e));
	CHECK(shutdown(e.client, SHUT_WR) == 0);
	CHECK_INT(owner_of(e.server, &uid), 0);
	CHECK_INT(uid, getuid());
	close(e.client);
	CHECK_INT(owner_of(e.server, &uid), -ENOENT);
	close(e.server);
}

/* A socket that listens on the port of a peer that has gone; -1 if others have connections from the
 * same port. */
static int listen_in_place_of_client(struct ends *e)
{
	const struct linger at_once = {1, 0};
	struct sockaddr_in peer;
	socklen_t len = sizeof(peer);

	CHECK(connect_ends("127.0.0.1", "127.0.0.1", e));
	CHECK(getsockname(e->client, (struct sockaddr *)&peer, &len) == 0);
	setsockopt(e->client, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(e->client);
	int other = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(other, (struct sockaddr *)&peer, len) == 0 && listen(other, 1) == 0)
		return other;
	close(other);
	close(e->server);
	return -1;
}

TEST(socket_owner, is_not_who_listens_on_the_port)
{
	struct ends e;
	uid_t uid = 12345;
	int other = -1;

	for (int i = 0; other < 0 && i < 50; i++)
		other = listen_in_place_of_client(&e);
	CHECK(other >= 0);
	CHECK(owner_of(e.server, &uid) < 0);
	CHECK_INT(uid, 12345);
	close(other);
	close(e.server);
}

TEST(socket_owner, of_a_unix_socket)
{
	int pair[2], in_group = -1;
	uid_t uid = 12345;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK_INT(socket_owner_unix(pair[0], (gid_t)-1, &uid, &in_group), 0);
	CHECK_INT(uid, getuid());
	CHECK_INT(in_group, 0);
	CHECK_INT(socket_owner_unix(pair[0], getgid(), &uid, &in_group), 0);
	CHECK_INT(in_group, 1);
	CHECK_INT(socket_owner_unix(pair[0], 4000000, &uid, &in_group), 0);
	CHECK_INT(in_group, 0);
	CHECK(owner_of(pair[0], &uid) < 0);
	close(pair[0]);
	close(pair[1]);
}
