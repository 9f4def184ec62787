/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The kernel's table of sockets gives an inode; the process is the one that has it open. */
#include "daemon/rpc/peer_owner.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTENING 0x0a /* state in /proc/net/tcp */

/* The inode of a socket that listens on the port; 0: none in this table. */
static unsigned long listening_inode(const char *table, unsigned port)
{
	FILE *f = fopen(table, "re");
	unsigned long inode, found = 0;
	unsigned local, state;
	char line[512];

	while (f && !found && fgets(line, sizeof(line), f))
		if (sscanf(line, " %*u: %*[0-9A-F]:%x %*s %x %*s %*s %*s %*u %*u %lu", &local,
			   &state, &inode) == 3 &&
		    local == port && state == LISTENING)
			found = inode;
	if (f)
		fclose(f);
	return found;
}

static bool has_open(const char *pid, const char *socket)
{
	char path[300], target[64];
	struct dirent *e;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	DIR *fds = opendir(path);
	while (fds && !found && (e = readdir(fds))) {
		ssize_t n = readlinkat(dirfd(fds), e->d_name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = '\0';
		found = !strcmp(target, socket);
	}
	if (fds)
		closedir(fds);
	return found;
}

static void tell(const char *pid, char *out, size_t size)
{
	char path[300], name[32] = "";

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	FILE *f = fopen(path, "re");
	if (f && fgets(name, sizeof(name), f))
		name[strcspn(name, "\n")] = '\0';
	if (f)
		fclose(f);
	snprintf(out, size, "%s%sprocess %s", name, *name ? ", " : "", pid);
}

void rpc_owner(unsigned port, char *out, size_t size)
{
	unsigned long inode = listening_inode("/proc/self/net/tcp", port);
	char socket[64];
	struct dirent *e;

	snprintf(out, size, "another process");
	if (!inode)
		inode = listening_inode("/proc/self/net/tcp6", port);
	if (!inode)
		return;
	snprintf(socket, sizeof(socket), "socket:[%lu]", inode);
	DIR *proc = opendir("/proc");
	while (proc && (e = readdir(proc))) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || !has_open(e->d_name, socket))
			continue;
		tell(e->d_name, out, size);
		break;
	}
	if (proc)
		closedir(proc);
}
