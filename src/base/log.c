/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/log.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_AREAS 16
#define LOG_LINE_MAX (1 << 20) /* longer ones are cut */

struct area_level {
	char area[24];
	enum log_level level;
};

/* Set up before threads start, read by all of them. */
static struct area_level areas[MAX_AREAS];
static int nareas;
static _Atomic int default_level = LOG_WARN;
static _Atomic int log_fd = STDERR_FILENO;

void log_set_level(enum log_level level)
{
	default_level = (int)level;
}

int log_level_find(const char *name)
{
	static const char *const names[] = {"debug", "info", "warning", "error"};

	for (int i = 0; i < 4; i++)
		if (!strcmp(name, names[i]))
			return i;
	return strcmp(name, "warn") ? -EINVAL : LOG_WARN;
}

static int configure_one(const char *item, struct err *err)
{
	const char *eq = strchr(item, '=');
	int level = log_level_find(eq ? eq + 1 : item);

	if (level < 0)
		return err_set(
			err, -EINVAL,
			"invalid log level '%s': expected [area=]debug, info, warning or error",
			item);
	if (!eq) {
		log_set_level((enum log_level)level);
		return 0;
	}
	size_t len = (size_t)(eq - item);
	if (nareas == MAX_AREAS || len >= sizeof(areas[0].area))
		return err_set(err, -E2BIG, "too many or too long log areas at '%s'", item);
	memcpy(areas[nareas].area, item, len);
	areas[nareas].area[len] = '\0';
	areas[nareas++].level = (enum log_level)level;
	return 0;
}

int log_configure(const char *text, struct err *err)
{
	char item[64];

	while (*text) {
		size_t len = strcspn(text, ",");

		if (len >= sizeof(item))
			return err_set(err, -EINVAL, "invalid log level '%s'", text);
		memcpy(item, text, len);
		item[len] = '\0';
		int r = len ? configure_one(item, err) : 0;
		if (r < 0)
			return r;
		text += len + (text[len] == ',');
	}
	return 0;
}

int log_open(const char *path, struct err *err)
{
	int fd = fs_open_output(path, O_APPEND | O_CREAT, 0600, err);

	if (fd < 0)
		return fd;
	int old = atomic_load(&log_fd);
	if (old == STDERR_FILENO) {
		atomic_store(&log_fd, fd);
		return 0;
	}
	/* In the place of the old one: a thread may be writing to that number just now. */
	int r = dup3(fd, old, O_CLOEXEC) < 0 ? -errno : 0;
	close(fd);
	return r < 0 ? err_sys(err, r, "cannot use log file '%s'", path) : 0;
}

void log_close(void)
{
	int old = atomic_exchange(&log_fd, STDERR_FILENO);

	if (old != STDERR_FILENO)
		close(old);
}

static enum log_level level_of(const char *area)
{
	for (int i = nareas - 1; i >= 0; i--)
		if (!strcmp(areas[i].area, area))
			return areas[i].level;
	return (enum log_level)default_level;
}

/* Adds the words behind the `n` bytes of text, in memory of its own if they are many; *n is the
 * new length, with a newline. A line is cut where there is no memory for it. */
__attribute__((format(printf, 4, 0))) static char *add_words(char *text, size_t room, size_t *n,
							     const char *fmt, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	int got = vsnprintf(text + *n, room - *n, fmt, ap);
	size_t bytes = got > 0 ? (size_t)got : 0;
	if (bytes >= room - *n) {
		char *longer = bytes < LOG_LINE_MAX ? malloc(*n + bytes + 1) : NULL;

		if (longer) {
			memcpy(longer, text, *n);
			vsnprintf(longer + *n, bytes + 1, fmt, again);
			text = longer;
		} else {
			bytes = room - *n - 1;
		}
	}
	va_end(again);
	*n += bytes;
	text[(*n)++] = '\n'; /* in the place of the NUL */
	return text;
}

/* Words may hold names that others chose: none of them begins a line of its own or moves a cursor.
 */
static void keep_on_one_line(char *words, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (((unsigned char)words[i] < ' ' && words[i] != '\t') || words[i] == 0x7f)
			words[i] = '?';
}

void log_write(enum log_level level, const char *area, const char *file, int line, const char *fmt,
	       ...)
{
	static const char *const marks[] = {"[DEBUG]", "[INFO] ", "[WARN] ", "[ERROR]"};
	char text[2048];
	const char *base = strrchr(file, '/');
	int saved = errno;
	struct tm tm = {0};
	va_list ap;

	if (level < level_of(area))
		return;
	time_t now = time(NULL);
	localtime_r(&now, &tm);
	size_t n = strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	n += (size_t)snprintf(text + n, sizeof(text) - n, " %s [%.64s:%d] %.32s%s", marks[level],
			      base ? base + 1 : file, line, area, *area ? ": " : "");
	size_t words = n;
	va_start(ap, fmt);
	char *whole = add_words(text, sizeof(text), &n, fmt, ap);
	va_end(ap);
	keep_on_one_line(whole + words, n - words - 1);
	if (write(log_fd, whole, n) < 0)
		errno = saved; /* a log that cannot be written is nobody's failure */
	if (whole != text)
		free(whole);
	errno = saved;
}
