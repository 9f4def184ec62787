/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/proc.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/broker.h"
#include "base/text/printable.h"

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
