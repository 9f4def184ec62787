/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static int open_known(void *arg, const char *path)
{
	if (!strcmp(path, "/end"))
		_exit(0);
	if (strcmp(path, arg))
		return -EACCES;
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Asks for what is not there, so that the broker is asked whoever runs the test. */
TEST(broker, opens_what_it_knows)
{
	char text[16] = "";
	int fds[2], fd;

	CHECK(broker_open("/nowhere/file") == -ENOENT && !broker_lives());
	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[0]);
		broker_serve(fds[1], open_known, (void *)(uintptr_t) "/nowhere/file");
		_exit(0);
	}
	close(fds[1]);
	broker_use(fds[0], true);
	fd = broker_open("/nowhere/file");
	CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
	close(fd);
	CHECK(broker_open("/nowhere/else") == -EACCES);
	/* what we may open ourselves it is not asked for */
	fd = broker_open("/dev/null");
	CHECK(fd >= 0);
	close(fd);
	/* too long to be asked for, but a path all the same */
	char *path = malloc(2000);
	memset(path, 'x', 1999);
	path[1999] = '\0';
	memcpy(path, "/x/", 3);
	CHECK(broker_open(path) < 0);
	free(path);
	/* its end is noticed, and what is not there is not there again */
	CHECK(broker_open("/end") == -ENOENT);
	CHECK(!broker_lives());
	CHECK(broker_open("/nowhere/file") == -ENOENT);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

/* Whatever comes: it answers, or says nothing, and lives. */
TEST(broker, survives_bad_questions)
{
	char bytes[600];
	int fds[2];

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[0]);
		broker_serve(fds[1], open_known, (void *)(uintptr_t) "/nowhere/file");
		_exit(7);
	}
	close(fds[1]);
	memset(bytes, 'x', sizeof(bytes));
	for (size_t n = 1; n < sizeof(bytes); n += 13)
		CHECK(send(fds[0], bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
	CHECK(recv(fds[0], bytes, sizeof(bytes), MSG_DONTWAIT) < 0);
	close(fds[0]);
	int status = 0;
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
