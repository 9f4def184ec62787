/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/proc.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/broker.h"
#include "base/text/printable.h"

#define STATUS_BYTES 4096 /* of /proc/PID/status */
#define NAMESPACES_MAX 33 /* that the kernel nests, and the first */

ssize_t proc_read(pid_t pid, const char *name, char *out, size_t cap)
{
	char path[64];
	size_t len = 0;
	ssize_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	int fd = broker_open(path);
	if (fd < 0)
		return fd == -ENOENT ? -ESRCH : fd;
	while (len < cap - 1 && (n = read(fd, out + len, cap - 1 - len)) > 0)
		len += (size_t)n;
	if (n < 0)
		n = -errno;
	close(fd);
	if (n < 0)
		return n;
	out[len] = '\0';
	return (ssize_t)len;
}

int proc_stat_read(pid_t pid, struct proc_stat *out)
{
	char text[PROC_STAT_BYTES];
	ssize_t n = proc_read(pid, "stat", text, sizeof(text));

	if (n < 0)
		return (int)n;
	return proc_stat_parse(text, (size_t)n, out) ? 0 : -EPROTO;
}

uint64_t proc_pid_namespace(const char *pid)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%.20s/ns/pid", pid);
	return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* The numbers of a process, from the namespace of /proc to its own one; how many, 0: not known. */
static unsigned read_numbers(const char *pid, uint32_t out[NAMESPACES_MAX])
{
	char path[64], text[STATUS_BYTES];
	unsigned n = 0;

	snprintf(path, sizeof(path), "/proc/%.20s/status", pid);
	FILE *f = fopen(path, "re");
	while (f && !n && fgets(text, sizeof(text), f)) {
		char *at = NULL;
		if (strncmp(text, "NSpid:", 6) != 0)
			continue;
		for (char *word = strtok_r(text + 6, " \t\n", &at); word && n < NAMESPACES_MAX;
		     word = strtok_r(NULL, " \t\n", &at))
			out[n++] = (uint32_t)strtoul(word, NULL, 10);
	}
	if (f)
		fclose(f);
	return n;
}

static int open_pidfd(uint32_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : fd;
}

bool proc_is_ours(void)
{
	char shown[24] = "", own[24];

	snprintf(own, sizeof(own), "%d", (int)getpid());
	return readlink("/proc/self", shown, sizeof(shown) - 1) < 0 || !strcmp(shown, own);
}

pid_t proc_number(int pidfd)
{
	char path[64], line[128];
	long pid = 0;

	/* The kernel writes the number that counts in this /proc. */
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Pid: %ld", &pid) == 1)
			break;
	if (f)
		fclose(f);
	return pid > 0 ? (pid_t)pid : 0;
}

/* `shown`: its number in /proc; `depth`: how far our own namespace is below that of /proc. */
static int open_shown(const char *shown, const uint32_t *numbers, unsigned depth)
{
	int fd = open_pidfd(numbers[depth]);

	/* It may have ended meanwhile, and its number be another's. */
	if (fd >= 0 && proc_number(fd) != (pid_t)strtol(shown, NULL, 10)) {
		close(fd);
		fd = -ESRCH;
	}
	return fd;
}

int proc_open_in_namespace(uint64_t pid_namespace, uint32_t pid)
{
	uint32_t numbers[NAMESPACES_MAX];

	if (!pid_namespace || pid_namespace == proc_pid_namespace("self"))
		return open_pidfd(pid);
	unsigned own = read_numbers("self", numbers);
	DIR *d = own ? opendir("/proc") : NULL;
	int found = d ? -ESRCH : -ENOENT;
	for (struct dirent *e = d ? readdir(d) : NULL; e && found < 0; e = readdir(d)) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		unsigned n = read_numbers(e->d_name, numbers);
		if (n <= own || numbers[n - 1] != pid)
			continue;
		errno = 0;
		uint64_t its = proc_pid_namespace(e->d_name);
		if (its == pid_namespace)
			found = open_shown(e->d_name, numbers, own - 1);
		else if (!its && (errno == EACCES || errno == EPERM))
			found = -EACCES; /* it may be this one */
	}
	if (d)
		closedir(d);
	return found;
}

bool proc_has_mapping(pid_t pid, uint64_t from, uint64_t to)
{
	char path[96];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)pid,
		 (unsigned long long)from, (unsigned long long)to);
	return lstat(path, &st) == 0;
}

int proc_has_mapped(pid_t pid, uint64_t from, const char *name)
{
	char path[64], start[24], *line = NULL;
	int found = -ENOENT; /* one whose first thread has ended shows nothing */
	size_t cap = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	int n = snprintf(start, sizeof(start), "%08llx-", (unsigned long long)from);
	FILE *f = fopen(path, "re");
	if (!f)
		return -errno;
	while (found != 1 && getline(&line, &cap, f) > 0) {
		const char *slash = strrchr(line, '/');
		found = !strncmp(line, start, (size_t)n) && slash &&
			!strncmp(slash + 1, name, strlen(name));
	}
	free(line);
	fclose(f);
	return found;
}

void proc_add_printable(struct buf *out, const char *text, size_t len)
{
	while (len && !text[len - 1])
		len--;
	while (len) {
		size_t n = text_shown_len(text, len);

		if (n)
			buf_add(out, text, n);
		else
			buf_add_char(out, *text ? '?' : ' ');
		text += n ? n : 1;
		len -= n ? n : 1;
	}
}

/* The mount that has /proc last, as mounts can hide each other. */
bool proc_hides_processes(void)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t cap = 0;
	bool hides = false;

	while (f && getline(&line, &cap, f) > 0) {
		const char *type = strstr(line, " - proc ");

		if (type && strstr(line, " /proc "))
			hides = strstr(type, "hidepid=") && !strstr(type, "hidepid=0") &&
				!strstr(type, "hidepid=off");
	}
	free(line);
	if (f)
		fclose(f);
	return hides;
}
