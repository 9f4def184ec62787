/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "recorder"
#include "recorder/session.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_BYTES 65536

static bool is_page(const struct control_page *page)
{
	return page->magic == SESSION_MAGIC && page->version == SESSION_VERSION;
}

static int page_open(const char *path, bool make, struct err *err)
{
	int fd = fs_open(path, O_RDWR | (make ? O_CREAT : 0), 0600, err);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) == 0 && st.st_size < SESSION_BYTES) {
		/* Real blocks, so that nobody meets SIGBUS on a full disk. */
		int r = make ? -posix_fallocate(fd, 0, SESSION_BYTES) : -EINVAL;
		if (r < 0) {
			close(fd);
			return err_sys(err, r, "cannot make '%s'", path);
		}
	}
	return fd;
}

int session_map(const char *dir, bool make, struct control_page **out, struct err *err)
{
	char *path = xasprintf("%s/" SESSION_FILE, dir);
	int r = page_open(path, make, err);
	void *p = MAP_FAILED;

	if (r >= 0) {
		p = mmap(NULL, SESSION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, r, 0);
		close(r);
		r = p == MAP_FAILED ? err_sys(err, -errno, "cannot map '%s'", path) : 0;
	}
	struct control_page *page = p;
	if (r == 0 && make && !page->magic) {
		page->made_s = time(NULL);
		page->version = SESSION_VERSION;
		page->magic = SESSION_MAGIC;
	}
	if (r == 0 && !is_page(page)) {
		munmap(p, SESSION_BYTES);
		r = err_set(err, -EINVAL, "'%s' is not a session of this version of sonde", path);
	}
	free(path);
	if (r == 0)
		*out = page;
	return r;
}

int session_read(const char *dir, struct control_page *out, struct err *err)
{
	char *path = xasprintf("%s/" SESSION_FILE, dir);
	int fd = fs_open(path, O_RDONLY, 0, err);
	int r = fd < 0 ? fd : 0;

	if (r == 0 &&
	    (fs_read_at(fd, out, sizeof(*out), 0) != (ssize_t)sizeof(*out) || !is_page(out)))
		r = err_set(err, -EINVAL, "'%s' is not a session of this version of sonde", path);
	if (fd >= 0)
		close(fd);
	free(path);
	return r;
}

void session_unmap(struct control_page *page)
{
	if (page)
		munmap(page, SESSION_BYTES);
}

void session_set_clock(struct control_page *page)
{
	struct timespec wall, mono;

	if (page->wall_minus_mono_ns)
		return;
	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_MONOTONIC, &mono);
	page->wall_minus_mono_ns =
		(wall.tv_sec - mono.tv_sec) * 1000000000ll + (wall.tv_nsec - mono.tv_nsec);
}

/* The lock says it, not the process number, which a zombie or a stranger may have, and which means
 * nothing in another pid namespace. */
bool session_is_live(const char *dir, const struct control_page *page)
{
	if (!atomic_load(&page->recorder_pid))
		return false;
	int fd = session_lock(dir, page, 0, NULL);
	if (fd >= 0)
		close(fd);
	return fd == -EBUSY;
}

int session_lock(const char *dir, const struct control_page *page, unsigned wait_ms,
		 struct err *err)
{
	const struct timespec step = {0, 2000000};
	char *path = xasprintf("%s/" SESSION_FILE, dir);
	int fd = fs_open(path, O_RDONLY, 0, err);
	int r = fd;

	free(path);
	for (unsigned waited = 0; r >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0; waited += 2) {
		if (errno != EWOULDBLOCK)
			break; /* a file system without locks: we do without */
		if (waited >= wait_ms || atomic_load(&page->state) != SESSION_NEW) {
			close(fd);
			r = err_set(err, -EBUSY, "another recorder is at work on '%s'", dir);
		} else {
			nanosleep(&step, NULL);
		}
	}
	return r;
}

#define PRINT_PIECE 512u
#define PRINT_WAIT_MS 500

void session_print(const char *text, size_t len)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

	while (len && poll(&p, 1, PRINT_WAIT_MS) > 0) {
		ssize_t n = write(STDERR_FILENO, text, len < PRINT_PIECE ? len : PRINT_PIECE);
		if (n <= 0)
			return;
		text += n;
		len -= (size_t)n;
	}
}

void session_add_line(struct control_page *page, bool terminal, const struct buf *text,
		      bool missing)
{
	size_t n = strnlen(page->closing, sizeof(page->closing));

	if (terminal)
		session_print(text->data, text->len);
	else if (page->report_fd && (missing || page->closing_asked) &&
		 n + text->len < sizeof(page->closing))
		memcpy(page->closing + n, text->data, text->len); /* what is behind it is 0 */
}

void session_answer(const char *dir, json_t *keys)
{
	char *path = xasprintf("%s/%s", dir, SESSION_ANSWER);
	struct buf text = {0};
	struct err err = {0};
	json_t *all = NULL;

	if (fs_read_file(path, ANSWER_BYTES, &text, NULL) == 0)
		all = json_loadb(text.data, text.len, 0, NULL);
	if (!json_is_object(all)) {
		json_decref(all);
		all = json_object();
	}
	json_object_update(all, keys);
	char *dumped = json_dumps(all, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	buf_clear(&text);
	buf_addf(&text, "%s\n", dumped ? dumped : "{}");
	if (fs_write_atomic(path, &text, 0640, &err) < 0)
		log_warn("%s", err.text);
	free(dumped);
	json_decref(all);
	json_decref(keys);
	buf_release(&text);
	free(path);
}
