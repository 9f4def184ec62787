/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/fabric_queue.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
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

unsigned fabric_queue_raise(void)
{
	unsigned n = read_length();

	if (!n || n >= FABRIC_QUEUE_WANTED)
		return 0;
	if (write_length(FABRIC_QUEUE_WANTED))
		return n;
	log_info("net.unix.max_dgram_qlen is %u: processes that ask at the same moment may have to "
		 "try again; %u is better",
		 n, FABRIC_QUEUE_WANTED);
	return 0;
}

void fabric_queue_restore(unsigned previous)
{
	if (previous && !write_length(previous))
		log_warn("cannot set net.unix.max_dgram_qlen back to %u", previous);
}
