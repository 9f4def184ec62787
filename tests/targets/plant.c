/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What another user does in a directory of his while somebody writes there, until he gets SIGTERM;
 * then it prints how many times.
 *
 *	plant exchange DIR NAME OTHER ...  exchanges the two names, as fast as it can; or several
 *	                                   pairs of names, one after the other
 *	plant replace DIR TARGET           whatever name comes into DIR is moved away, and a link to
 *	                                   TARGET put in its place
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXCHANGE 2 /* RENAME_EXCHANGE, which old headers lack */

static volatile sig_atomic_t over;

static void end(int sig)
{
	(void)sig;
	over = 1;
}

static unsigned long exchange(int dir, char **names)
{
	unsigned long n = 0;

	while (!over)
		for (char **at = names; at[0] && at[1]; at += 2)
			n += syscall(SYS_renameat2, dir, at[0], dir, at[1], EXCHANGE) == 0;
	return n;
}

/* What was moved away has a name that is left alone, and the link is no news. */
static bool replace_one(int dir, const char *name, const char *target, unsigned long n)
{
	char away[64];
	struct stat st;

	if (!strncmp(name, ".away", 5) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    S_ISLNK(st.st_mode))
		return false;
	snprintf(away, sizeof(away), ".away%lu", n);
	return renameat(dir, name, dir, away) == 0 && symlinkat(target, dir, name) == 0;
}

static unsigned long replace(const char *path, int dir, const char *target)
{
	_Alignas(struct inotify_event) char buf[65536];
	int fd = inotify_init1(IN_CLOEXEC);
	unsigned long n = 0;

	if (fd < 0 || inotify_add_watch(fd, path, IN_CREATE | IN_MOVED_TO) < 0)
		return 0;
	while (!over) {
		ssize_t len = read(fd, buf, sizeof(buf));
		const struct inotify_event *e;

		for (char *at = buf; len > 0 && at < buf + len; at += sizeof(*e) + e->len) {
			e = (const struct inotify_event *)at;
			n += e->len && replace_one(dir, e->name, target, n);
		}
	}
	return n;
}

int main(int argc, char **argv)
{
	struct sigaction ends = {.sa_handler = end}; /* no SA_RESTART: read() returns */

	if (argc < 4)
		return 98;
	int dir = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) {
		perror(argv[2]);
		return 99;
	}
	sigaction(SIGTERM, &ends, NULL);
	puts("up");
	fflush(stdout);
	bool exchanges = !strcmp(argv[1], "exchange");
	printf("%lu\n", exchanges ? exchange(dir, argv + 3) : replace(argv[2], dir, argv[3]));
	return 0;
}
