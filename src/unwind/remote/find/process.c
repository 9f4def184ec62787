/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/remote/find/process.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/proc.h"
#include "unwind/remote/find/find.h"

#define STAT_CAP 8192
#define MAPS_CAP (64u << 20)
#define FLAG_KERNEL_THREAD 0x00200000 /* PF_KTHREAD in /proc/PID/stat */

/* Other namespaces than the machine's own have other numbers. */
static bool in_pid_namespace(void)
{
	static const char outermost[] = "pid:[4026531836]";
	char link[64];
	ssize_t n = readlink("/proc/self/ns/pid", link, sizeof(link));

	return n > 0 && ((size_t)n != strlen(outermost) || memcmp(link, outermost, (size_t)n) != 0);
}

int remote_explain_esrch(pid_t pid, struct err *err)
{
	if (in_pid_namespace())
		return err_set(
			err, -ESRCH,
			"there is no process %d here: a container sees only its own, unless it "
			"is started with 'docker run --pid=host' (Kubernetes: hostPID: true)",
			(int)pid);
	return err_set(err, -ESRCH, "there is no process %d", (int)pid);
}

void remote_make_printable(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 127)
			*text = '?';
}

static int read_stat(pid_t pid, struct remote_process *out, struct err *err)
{
	struct proc_stat s;
	int r = proc_stat_read(pid, &s);

	if (r == -ESRCH)
		return remote_explain_esrch(pid, err);
	if (r == -EPROTO)
		return err_set(err, r, "cannot understand '/proc/%d/stat'", (int)pid);
	if (r < 0)
		return err_sys(err, r, "cannot read '/proc/%d/stat'", (int)pid);
	snprintf(out->name, sizeof(out->name), "%s", s.name);
	remote_make_printable(out->name);
	if (proc_stat_ended(&s))
		return err_set(err, -ESRCH,
			       "process %d (%s) has ended, its parent has not noticed yet",
			       (int)pid, out->name);
	if (s.flags & FLAG_KERNEL_THREAD)
		return err_set(err, -ENOEXEC,
			       "process %d (%s) is a thread of the kernel, no Python process",
			       (int)pid, out->name);
	return 0;
}

static void read_exe(pid_t pid, struct remote_process *out)
{
	static const char deleted[] = " (deleted)";
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, out->exe, sizeof(out->exe) - 1);
	if (n < 0)
		n = 0;
	if ((size_t)n >= sizeof(deleted) - 1 &&
	    memcmp(out->exe + n - (sizeof(deleted) - 1), deleted, sizeof(deleted) - 1) == 0)
		n -= sizeof(deleted) - 1;
	out->exe[n] = 0;
}

int remote_process_open(pid_t pid, struct remote_process *out, struct buf *maps, struct err *err)
{
	char path[64];
	int r = read_stat(pid, out, err);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	r = fs_read_file(path, MAPS_CAP, maps, NULL);
	if (r == -EACCES || r == -EPERM)
		return remote_explain_eperm(pid, err);
	if (r == -ENOENT || r == -ESRCH)
		return remote_explain_esrch(pid, err);
	if (r < 0)
		return err_sys(err, r, "cannot read '%s'", path);
	if (maps->len == 0)
		return err_set(err, -EAGAIN, "process %d (%s) is just ending or starting", (int)pid,
			       out->name);
	read_exe(pid, out);
	return 0;
}
