/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/discover/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t proc_read(pid_t pid, const char *name, char *out, size_t cap)
{
	char path[64];
	size_t len = 0;
	ssize_t n = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
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

/* Fields 3 to 22, which follow the name. */
static bool parse_fields(const char *text, struct proc_stat *out)
{
	long long parent;
	unsigned long long user, system, start;

	if (sscanf(text,
		   " %c %lld %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d "
		   "%llu",
		   &out->state, &parent, &user, &system, &start) != 5)
		return false;
	if (parent < 0 || parent > INT32_MAX)
		return false;
	out->parent = (pid_t)parent;
	out->user_ticks = user;
	out->system_ticks = system;
	out->start_ticks = start;
	return true;
}

int proc_stat_parse(const char *text, size_t len, struct proc_stat *out)
{
	const char *open = memchr(text, '(', len);
	const char *close = open ? memrchr(open, ')', len - (size_t)(open - text)) : NULL;
	struct proc_stat s = {0};
	char fields[512];

	if (!close)
		return -EPROTO;
	size_t name = (size_t)(close - open - 1);
	if (name >= sizeof(s.comm))
		name = sizeof(s.comm) - 1;
	memcpy(s.comm, open + 1, name);
	size_t rest = len - (size_t)(close + 1 - text);
	if (rest >= sizeof(fields))
		rest = sizeof(fields) - 1;
	memcpy(fields, close + 1, rest);
	fields[rest] = '\0';
	if (!parse_fields(fields, &s))
		return -EPROTO;
	*out = s;
	return 0;
}

int proc_stat_read(pid_t pid, struct proc_stat *out)
{
	char text[1024];
	ssize_t n = proc_read(pid, "stat", text, sizeof(text));

	return n < 0 ? (int)n : proc_stat_parse(text, (size_t)n, out);
}

/* The bytes of the character at the start of the text if it is good UTF-8 and no control
 * character, else 0. */
static size_t printable(const unsigned char *s, size_t len)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t c = s[0];

	if (c < 0x80)
		return c >= ' ' && c != 0x7f;
	size_t n = c >= 0xf0 && c < 0xf8 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 0;
	if (!n || c >= 0xf8 || n > len)
		return 0;
	c &= 0x7fu >> n;
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || (c >= 0x80 && c < 0xa0))
		return 0;
	/* Ends of lines and changes of direction: what follows would not be read as it is. */
	if ((c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069))
		return 0;
	return n;
}

void proc_add_printable(struct buf *out, const char *text, size_t len)
{
	while (len && !text[len - 1])
		len--;
	while (len) {
		size_t n = printable((const unsigned char *)text, len);

		if (n)
			buf_add(out, text, n);
		else
			buf_add_char(out, *text ? '?' : ' ');
		text += n ? n : 1;
		len -= n ? n : 1;
	}
}
