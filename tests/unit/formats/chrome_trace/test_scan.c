/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/chrome_trace/scan.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "test.h"

struct seen {
	struct buf events, members;
	const char *text;
};

static int take_event(void *arg, uint64_t offset, const char *text, size_t len)
{
	struct seen *s = arg;

	CHECK(!memcmp(s->text + offset, text, len));
	buf_add(&s->events, text, len);
	buf_add_char(&s->events, '|');
	return 0;
}

static int take_member(void *arg, const char *key, size_t key_len, const char *text, size_t len)
{
	struct seen *s = arg;

	buf_add(&s->members, key, key_len);
	buf_add_char(&s->members, '=');
	buf_add(&s->members, text, len);
	buf_add_char(&s->members, '|');
	return 0;
}

static int scan(const char *text, struct seen *s, struct chrome_scan_result *out)
{
	struct chrome_scan_sink sink = {take_event, take_member, s};
	int fd = memfd_create("trace", MFD_CLOEXEC), r;

	*s = (struct seen){.text = text};
	CHECK_INT(write(fd, text, strlen(text)), (long)strlen(text));
	lseek(fd, 0, SEEK_SET);
	r = chrome_scan(fd, &sink, out, NULL);
	close(fd);
	return r;
}

static void check_scan(const char *text, const char *events, const char *members, bool cut)
{
	struct chrome_scan_result r;
	struct seen s;

	CHECK_INT(scan(text, &s, &r), 0);
	CHECK_STR(buf_str(&s.events), events);
	CHECK_STR(buf_str(&s.members), members);
	CHECK_INT(r.cut, cut);
	buf_release(&s.events);
	buf_release(&s.members);
}

TEST(chrome_scan, object_and_array)
{
	check_scan("{\"a\":1,\"traceEvents\":[{\"x\":1},{\"y\":{\"z\":[]}}],\"b\":{\"c\":2}}",
		   "{\"x\":1}|{\"y\":{\"z\":[]}}|", "a=1|b={\"c\":2}|", false);
	check_scan("  [{\"x\":1}, {}]\n", "{\"x\":1}|{}|", "", false);
	check_scan("{\"traceEvents\":[]}", "", "", false);
}

TEST(chrome_scan, brackets_in_strings_are_text)
{
	check_scan("[{\"n\":\"}]{\\\"\\\\\"},{}]", "{\"n\":\"}]{\\\"\\\\\"}|{}|", "", false);
	check_scan("{\"k\":\"a,b}\",\"traceEvents\":[{}]}", "{}|", "k=\"a,b}\"|", false);
}

TEST(chrome_scan, a_file_that_was_cut)
{
	check_scan("[{\"x\":1},{\"y\":", "{\"x\":1}|", "", true);
	check_scan("{\"traceEvents\":[{\"x\":1}", "{\"x\":1}|", "", true);
	check_scan("", "", "", false);
}

TEST(chrome_scan, what_is_no_trace)
{
	struct chrome_scan_result r;
	struct seen s;

	CHECK_INT(scan("hello", &s, &r), -EBADMSG);
	CHECK_INT(scan("]", &s, &r), -EBADMSG);
	CHECK_INT(scan("[[{}]]", &s, &r), 0); /* objects deeper than events are none */
	CHECK_INT(r.events, 0);
}
