/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/track/process_memory.h"

#include "test.h"
#include "tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(process_memory, status)
{
	struct rec_usage u;

	CHECK(process_memory_parse("Name:\tVmRSS:\nVmHWM:\t  12 kB\nVmRSS:\t  10 kB\n"
				   "RssAnon:\t 7 kB\nRssFile:\t 2 kB\nRssShmem:\t 1 kB\n"
				   "VmSwap:\t 3 kB\n",
				   &u));
	CHECK_INT(u.rss_bytes, 10 << 10);
	CHECK_INT(u.peak_rss_bytes, 12 << 10);
	CHECK_INT(u.anon_bytes + u.file_bytes + u.shared_bytes, 10 << 10);
	CHECK_INT(u.swap_bytes, 3 << 10);
	CHECK(u.heap_bytes == USAGE_UNKNOWN);
	CHECK(!process_memory_parse("Name:\tzombie\nState:\tZ\n", &u));
	CHECK(process_memory_parse("VmRSS: 1 kB\n", &u));
	CHECK(u.anon_bytes == USAGE_UNKNOWN && u.peak_rss_bytes == 1024);
}

/* A mapping with so many KiB of anonymous pages. */
static void mapping(struct smaps *s, const char *head, unsigned kib)
{
	char line[64];

	smaps_line(s, head);
	snprintf(line, sizeof(line), "Rss:      %u kB\n", kib);
	smaps_line(s, line);
	snprintf(line, sizeof(line), "Anonymous:      %u kB\n", kib);
	smaps_line(s, line);
	smaps_line(s, "Pss:     1 kB\n");
}

TEST(process_memory, parts)
{
	struct smaps s = {0};
	struct rec_usage u = {0};

	mapping(&s, "400000-500000 rw-p 00000000 08:01 77 /usr/lib/libc.so.6\n", 1);
	mapping(&s, "600000-700000 rw-p 00000000 00:00 0                  [heap]\n", 2);
	mapping(&s, "7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \n", 4); /* an arena */
	mapping(&s, "7f0000100000-7f0004000000 ---p 00000000 00:00 0 \n", 0);
	mapping(&s, "7f1000000000-7f1000001000 ---p 00000000 00:00 0 \n", 0);
	mapping(&s, "7f1000001000-7f1000801000 rw-p 00000000 00:00 0 \n", 8); /* of a thread */
	mapping(&s, "7f1100000000-7f1100801000 rw-p 00000000 00:00 0 \n", 16); /* anybody's */
	mapping(&s, "7f1200000000-7f1200801000 rw-s 00000000 08:01 5 /o/12-4-99.ring\n", 32);
	mapping(&s, "7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0 [stack]\n", 64);
	smaps_line(&s, "nonsense\n");
	smaps_line(&s, "");
	smaps_end(&s, &u);
	CHECK_INT(u.heap_bytes, 6 << 10);
	CHECK_INT(u.stack_bytes, 72 << 10);
	CHECK_INT(u.copied_bytes, 33 << 10);
	CHECK_INT(u.sonde_bytes, 32 << 10);
	CHECK_INT(u.pss_bytes, 9 << 10);
}

TEST(process_memory, of_a_process)
{
	int dir = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
	size_t bytes = 8 << 20;
	struct rec_usage before, after;
	struct memory_group group;
	struct memory_group_state state;

	CHECK_INT(process_memory_read(dir, &before), 0);
	char *p = malloc(bytes);
	memset(p, 1, bytes);
	CHECK_INT(process_memory_read(dir, &after), 0);
	CHECK_INT(process_memory_read_detail(dir, &after), 0);
	CHECK(after.rss_bytes >= before.rss_bytes + bytes / 2 && after.heap_bytes);
	CHECK(after.copied_bytes && after.stack_bytes && after.pss_bytes <= after.rss_bytes);
	free(p);
	memory_group_find(dir, &group);
	memory_group_read(&group, &state);
	CHECK(group.path[0] || state.limit_bytes == USAGE_UNKNOWN);
	close(dir);
	CHECK(process_memory_read(dir, &after) < 0);
}

static const char *group(const char *text, const char *controller)
{
	static char path[32];

	return memory_group_parse(text, controller, path, sizeof(path)) ? path : "-";
}

TEST(process_memory, lines_of_groups)
{
	static const char mixed[] = "12:name=x:/0::/evil\n10:name=memory:/:memory:/evil\n"
				    "9:memoryless,cpu:/no\n4:cpu,memory:/a/b:c\n0::/new\n";

	CHECK_STR(group(mixed, "memory"), "/a/b:c");
	CHECK_STR(group(mixed, ""), "/new");
	CHECK_STR(group("10::/x\n0::/y\n", ""), "/y");
	CHECK_STR(group("4:memory:/\n", "memory"), "/");
	CHECK_STR(group("4:memory:/\n", ""), "-");
	CHECK_STR(group("0::/../other\n", ""), "-");
	CHECK_STR(group("0::/a/..\n", ""), "-");
	CHECK_STR(group("0::/a..b/...\n", ""), "/a..b/...");
	CHECK_STR(group("0::relative\n", ""), "-");
	CHECK_STR(group("0::/cut", ""), "-");
	CHECK_STR(group("0::/longer-than-there-is-room-for-it\n", ""), "-");
	CHECK_STR(group("nonsense\n:\n::\n\n", ""), "-");
}

/* Never waits for somebody who writes to it. */
TEST(process_memory, reads_files_alone)
{
	struct rec_usage u;

	CHECK_INT(mkfifo(tmpfile_path("status"), 0600), 0);
	int dir = open(tmpdir(), O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK_INT(process_memory_read(dir, &u), -EINVAL);
	close(dir);
}
