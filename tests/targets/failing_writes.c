/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * failing_writes NAME EVERY SWITCH PROGRAM…: becomes the program. Of the writes that it and everybody
 * it starts make to files of that name, every EVERY-th fails with EIO, as long as the file SWITCH is
 * there. A process of its own decides (seccomp's user notification), and ends with the last of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int install_filter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			    &program);
}

static void pass_descriptor(int to, int fd)
{
	char space[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = space,
			   .msg_controllen = sizeof(space)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(to, &m, 0) < 0)
		exit(99);
}

static int take_descriptor(int from)
{
	char space[CMSG_SPACE(sizeof(int))] = {0}, byte;
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io,
			   .msg_iovlen = 1,
			   .msg_control = space,
			   .msg_controllen = sizeof(space)};
	int fd = -1;

	if (recvmsg(from, &m, 0) > 0 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static int is_meant(const struct seccomp_notif *n, const char *name)
{
	char link[64], path[4096];

	snprintf(link, sizeof(link), "/proc/%u/fd/%d", n->pid, (int)n->data.args[0]);
	ssize_t len = readlink(link, path, sizeof(path) - 1);
	if (len < 0)
		return 0;
	path[len] = '\0';
	const char *slash = strrchr(path, '/');
	return slash && !strcmp(slash + 1, name);
}

static void decide(int listener, const char *name, unsigned long every, const char *flag)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};
	unsigned long writes = 0;

	while (poll(&p, 1, -1) > 0 && !(p.revents & POLLHUP)) {
		struct seccomp_notif n = {0};
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0)
			continue;
		struct seccomp_notif_resp r = {.id = n.id,
					       .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
		if (is_meant(&n, name) && access(flag, F_OK) == 0 && ++writes % every == 0)
			r = (struct seccomp_notif_resp){.id = n.id, .error = -EIO};
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
	}
}

int main(int argc, char **argv)
{
	int pair[2];

	if (argc < 5 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return 98;
	pid_t pid = fork();
	if (pid == 0) {
		if (fork())
			_exit(0);
		for (int i = 0; i < 3; i++) /* who reads the job's output does not wait for us */
			dup2(open("/dev/null", O_RDWR), i);
		close(pair[0]);
		setsid();
		decide(take_descriptor(pair[1]), argv[1], strtoul(argv[2], NULL, 10), argv[3]);
		_exit(0);
	}
	waitpid(pid, NULL, 0); /* the program has no child that it does not know */
	int listener = install_filter();
	if (listener < 0) {
		perror("seccomp");
		return 97;
	}
	pass_descriptor(pair[0], listener);
	close(listener);
	execvp(argv[4], argv + 4);
	perror(argv[4]);
	return 96;
}
