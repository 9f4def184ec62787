/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/hosts.h"

#include <errno.h>

#include "base/containers/buf.h"
#include "test.h"

/* The list as text: "a:1 b:2". */
static const char *told(const struct host_list *h)
{
	static struct buf text;

	buf_clear(&text);
	for (size_t i = 0; i < h->n; i++)
		buf_addf(&text, "%s%s:%u", i ? " " : "", h->v[i].name, h->v[i].port);
	return buf_str(&text);
}

static void check_list(const char *text, const char *want)
{
	struct host_list h = {0};
	struct err err = {0};

	if (host_list_add(&h, text, 1778, &err) < 0)
		fprintf(stderr, "'%s': %s\n", text, err.text);
	CHECK_INT(err.code, 0);
	CHECK_STR(told(&h), want);
	host_list_release(&h);
}

TEST(host_list, lists)
{
	check_list("a", "a:1778");
	check_list("a,b.example.org:17", "a:1778 b.example.org:17");
	check_list("a, b ,a", "a:1778 b:1778");
	check_list("a,a:1778,a:2", "a:1778 a:2");
	check_list("10.0.0.1:5", "10.0.0.1:5");
}

TEST(host_list, a_socket_or_a_host_called_unix)
{
	check_list("unix:/run/s", "unix:/run/s:1778");
	check_list("unix:17", "unix:17");
	check_list("unix", "unix:1778");
}

TEST(host_list, ranges)
{
	check_list("n[1-3]", "n1:1778 n2:1778 n3:1778");
	check_list("n[08-10,2]x:9", "n08x:9 n09x:9 n10x:9 n2x:9");
	check_list("r[1-2]n[1-2]", "r1n1:1778 r1n2:1778 r2n1:1778 r2n2:1778");
	check_list("n[5]", "n5:1778");
	check_list("a,n[1,3],b", "a:1778 n1:1778 n3:1778 b:1778");
}

TEST(host_list, ipv6)
{
	check_list("fe80::1", "fe80::1:1778");
	check_list("[fe80::1]", "fe80::1:1778");
	check_list("[::1]:5,::1", "::1:5 ::1:1778");
	check_list("fe80::1%eth0", "fe80::1%eth0:1778");
}

TEST(host_list, labels)
{
	struct host_list h = {0};

	CHECK_INT(host_list_add(&h, "a,a:1,[::1]:1,[::1]", 1778, NULL), 0);
	CHECK_STR(h.v[0].label, "a");
	CHECK_STR(h.v[1].label, "a:1");
	CHECK_STR(h.v[2].label, "[::1]:1");
	CHECK_STR(h.v[3].label, "::1");
	host_list_release(&h);
}

TEST(host_list, refuses)
{
	static const char *const bad[] = {
		"",	   ",",	       "a,",	      "a,,b",	    "a b",
		"a:0",	   "a:65536",  "a:x",	      "n[1-3",	    "n[3-1]",
		"n[]",	   "n[a]",     "n[1-]",	      "n[1,]",	    "[::1",
		"[::1]x",  "[::1]5",   "1:2:3",	      "[1:2:3]",    "-x",
		"a/b",	   "a\nb",     "n[1]]",	      "n[1-70000]", "n[1234567890]",
		"[1-2]:x", "fe80::1%", "fe80::1%a b", "$(x)",	    "\xff"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct host_list h = {0};
		struct err err = {0};

		if (host_list_add(&h, bad[i], 1778, &err) == 0)
			fprintf(stderr, "'%s' was taken\n", bad[i]);
		CHECK(err.code < 0 && err.text[0]);
		host_list_release(&h);
	}
}

TEST(host_list, many_at_once)
{
	struct host_list h = {0};
	struct err err = {0};

	CHECK_INT(host_list_add(&h, "n[1-65536]", 1, &err), 0);
	CHECK_INT(h.n, 65536);
	CHECK_STR(h.v[65535].name, "n65536");
	CHECK(host_list_add(&h, "one-more", 1, &err) < 0);
	host_list_release(&h);
}

TEST(host_list, files)
{
	static const char text[] = "# nodes\n\nn[1-2] slots=8 max-slots=8\n  b:7 # last\r\nn1\nc,d";
	struct host_list h = {0};
	struct err err = {0};

	CHECK_INT(host_list_add_lines(&h, text, sizeof(text) - 1, 1, &err), 0);
	CHECK_STR(told(&h), "n1:1 n2:1 b:7 c:1 d:1");
	CHECK(host_list_add_lines(&h, "a\nb c\n", 6, 1, &err) < 0);
	CHECK_STR(err.text, "line 2: unexpected 'c' behind the host");
	CHECK(host_list_add_lines(&h, "a\0b", 3, 1, &err) < 0);
	CHECK_INT(host_list_add_lines(&h,
				      "\xef\xbb\xbf"
				      "N1\r\ne\r\n",
				      10, 1, &err),
		  0);
	CHECK_STR(told(&h), "n1:1 n2:1 b:7 c:1 d:1 a:1 e:1");
	host_list_release(&h);
}

TEST(host_list, pods)
{
	static const char text[] =
		"{\"items\":["
		"{\"metadata\":{\"name\":\"p1\"},\"spec\":{\"nodeName\":\"n1\"},"
		"\"status\":{\"phase\":\"Running\",\"podIP\":\"10.1.0.1\",\"hostIP\":\"10.0.0.1\"}}"
		","
		"{\"metadata\":{\"name\":\"p2\"},\"status\":{\"phase\":\"Pending\",\"podIP\":\"1.1."
		"1.1\"}},"
		"{\"metadata\":{\"name\":\"p3\"},\"status\":{\"hostIP\":\"fd00::3\"}},"
		"{\"status\":7}, 8]}";
	struct host_list h = {0};
	struct err err = {0};

	CHECK_INT(host_list_add_pods(&h, text, sizeof(text) - 1, 2, &err), 0);
	CHECK_STR(told(&h), "10.1.0.1:2 fd00::3:2");
	CHECK_STR(h.v[0].label, "n1");
	CHECK_STR(h.v[1].label, "p3");
	CHECK(host_list_add_pods(&h, "{", 1, 2, &err) < 0);
	CHECK(host_list_add_pods(&h, "{\"items\":7}", 11, 2, &err) < 0);
	CHECK_INT(
		host_list_add_pods(&h, "{\"items\":[{\"status\":{\"podIP\":\"\"}}]}", 35, 2, &err),
		0);
	CHECK_INT(h.n, 2);
	CHECK(host_list_add_pods(&h, "{\"items\":[{\"status\":{\"podIP\":\"$(x)\"}}]}", 39, 2,
				 &err) < 0);
	host_list_release(&h);
}
