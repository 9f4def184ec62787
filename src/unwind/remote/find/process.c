/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What /proc says about a process, before its memory is read. A line of its maps:
 *
 *	7f2a10000000-7f2a10021000 r-xp 00026000 08:01 1835027    /usr/lib/libpython3.11.so (deleted)
 *	start        end          mode offset   dev   inode      path, as the process named it
 *
 * A path may hold anything but a NUL; the kernel writes new lines in it as \012, and adds the mark
 * of a deleted file itself.
 */
#include "unwind/remote/find/process.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/proc.h"
#include "unwind/remote/find/find.h"

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

/* The kernel says of one that /proc hides that it is not ours, and of none that there is none. */
static int explain_hidden(pid_t pid, struct err *err)
{
	return err_set(err, -ESRCH,
		       "process %d is another user's, and /proc hides it: it is mounted with "
		       "hidepid; do this as root, or as the user of the process",
		       (int)pid);
}

int remote_explain_esrch(pid_t pid, struct err *err)
{
	if (kill(pid, 0) < 0 && errno == EPERM && proc_hides_processes())
		return explain_hidden(pid, err);
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
			       "process %d (%s) is a thread of the kernel, not a Python process",
			       (int)pid, out->name);
	return 0;
}

/* As the kernel has it: the path at the time of exec(), in the process' own mount namespace. */
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

/* A kernel thread has no memory, a zombie none any more, and a process in the middle of exec()
 * none yet: maps is empty in all three. */
int remote_process_open(pid_t pid, struct remote_process *out, struct buf *maps, struct err *err)
{
	char path[64];
	int r = 0;

	if (!proc_is_ours())
		return err_set(err, -EXDEV,
			       "/proc is that of another pid namespace: its numbers mean other "
			       "processes here. Mount one of your own, as 'unshare --mount-proc' "
			       "does");
	r = read_stat(pid, out, err);
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

#define DELETED " (deleted)"
#define DELETED_LEN (sizeof(DELETED) - 1)

struct line {
	const char *at, *end;
};

/*
 * A hexadecimal (or decimal) number and the character behind it.
 *
 * strtoull() would take signs, blanks and 0x.
 */
static bool take_number(struct line *l, unsigned base, char behind, uint64_t *out)
{
	const char *first = l->at;
	uint64_t v = 0;

	for (; l->at < l->end; l->at++) {
		char c = *l->at;
		unsigned digit = c >= '0' && c <= '9'	? (unsigned)(c - '0')
				 : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
							: 99;

		if (digit >= base)
			break;
		if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, digit, &v))
			return false;
	}
	if (l->at == first || l->at >= l->end || *l->at != behind)
		return false;
	l->at++;
	*out = v;
	return true;
}

static bool take_modes(struct line *l, struct map_line *out)
{
	if (l->end - l->at < 5 || l->at[4] != ' ')
		return false;
	out->readable = l->at[0] == 'r';
	out->writable = l->at[1] == 'w';
	out->executable = l->at[2] == 'x';
	l->at += 5;
	return true;
}

static void take_path(struct line *l, struct map_line *out)
{
	while (l->at < l->end && *l->at == ' ')
		l->at++;
	out->path = l->at;
	out->path_len = (size_t)(l->end - l->at);
	out->deleted = out->path_len > DELETED_LEN &&
		       memcmp(l->end - DELETED_LEN, DELETED, DELETED_LEN) == 0;
	if (out->deleted)
		out->path_len -= DELETED_LEN;
}

static bool read_line(struct line *l, struct map_line *out)
{
	uint64_t major, minor;

	if (!take_number(l, 16, '-', &out->start) || !take_number(l, 16, ' ', &out->end) ||
	    !take_modes(l, out) || !take_number(l, 16, ' ', &out->offset) ||
	    !take_number(l, 16, ':', &major) || !take_number(l, 16, ' ', &minor) ||
	    !take_number(l, 10, ' ', &out->inode))
		return false;
	out->device = major << 32 | (minor & 0xffffffff);
	take_path(l, out);
	return out->start < out->end;
}

/* A line that makes no sense is skipped, not an error: maps is read while it changes. */
bool maps_next(const char **at, const char *end, struct map_line *out)
{
	while (*at < end) {
		const char *newline = memchr(*at, '\n', (size_t)(end - *at));
		struct line l = {.at = *at, .end = newline ? newline : end};

		*at = newline ? newline + 1 : end;
		if (read_line(&l, out))
			return true;
	}
	return false;
}
