/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/fabric/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"

#define LOG_AREA "fabric"
#include "base/log.h"

static const char path[] = "/proc/sys/net/unix/max_dgram_qlen";

static unsigned read_length(void)
{
	struct buf text = {0};
	unsigned n = 0;

	if (!fs_read_file(path, 64, &text, NULL))
		n = (unsigned)strtoul(buf_str(&text), NULL, 10);
	buf_release(&text);
	return n;
}

static bool write_length(unsigned n)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u\n", n);
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	bool good = write(fd, text, (size_t)len) == len;
	close(fd);
	return good;
}

/* What was there, to be put back; 0: nothing was changed. */
static unsigned raise_length(void)
{
	static bool told;
	unsigned n = read_length();

	if (!n || n >= FABRIC_QUEUE_WANTED)
		return 0;
	if (write_length(FABRIC_QUEUE_WANTED))
		return n;
	if (!told)
		log_info("net.unix.max_dgram_qlen is %u: processes that ask at the same moment may "
			 "have to try again; %u is better",
			 n, FABRIC_QUEUE_WANTED);
	told = true;
	return 0;
}

/* Unless somebody has set another number meanwhile. */
static void restore_length(unsigned n)
{
	if (n && read_length() == FABRIC_QUEUE_WANTED && !write_length(n))
		log_warn("cannot set net.unix.max_dgram_qlen back to %u", n);
}

int fabric_queue_socket(void)
{
	unsigned before = raise_length();
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r = fd < 0 ? -errno : fd;

	restore_length(before);
	return r;
}
