/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/http/http_impl.h"

#include "test.h"

static char copy[HTTP_HEAD_MAX];

static int parse(const char *text, struct http_request *out)
{
	const char *why = NULL;

	snprintf(copy, sizeof(copy), "%s", text);
	int status = http_parse(copy, strlen(copy), out, &why);
	CHECK(!status == !why);
	return status;
}

TEST(http_parse, a_request)
{
	struct http_request r;

	CHECK_INT(parse("POST /api/v1/x?a=b&c HTTP/1.1\r\nhost:localhost:1 \r\nORIGIN: \to\r\n"
			"Content-Type: application/json\r\nContent-Length: 12\r\n"
			"Expect: 100-continue\r\nSec-Fetch-Site: none\r\n\r\n",
			&r),
		  0);
	CHECK(r.method == HTTP_POST && r.keep_alive && r.has_body && r.expects_continue);
	CHECK_STR(r.path, "/api/v1/x");
	CHECK_STR(r.query, "a=b&c");
	CHECK_STR(r.host, "localhost:1");
	CHECK_STR(r.origin, "o");
	CHECK_STR(r.content_type, "application/json");
	CHECK_STR(r.fetch_site, "none");
	CHECK_INT(r.content_length, 12);
}

TEST(http_parse, connections_stay_as_the_version_says)
{
	struct http_request r;

	CHECK_INT(parse("GET / HTTP/1.0\r\n\r\n", &r), 0);
	CHECK(!r.keep_alive && !r.host && !r.query && !r.has_body);
	CHECK_INT(parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", &r), 0);
	CHECK(r.keep_alive);
	CHECK_INT(parse("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", &r), 0);
	CHECK(!r.keep_alive);
	CHECK_INT(parse("BREW / HTTP/1.1\r\n\r\n", &r), 0);
	CHECK(r.method == HTTP_OTHER);
}

TEST(http_parse, what_two_programs_could_read_differently_is_refused)
{
	static const struct {
		const char *text;
		int status;
	} bad[] = {
		{"\r\n\r\n", 400},
		{"GET\r\n\r\n", 400},
		{"GET / HTTP/1.1 \r\n\r\n", 400},
		{"GET x HTTP/1.1\r\n\r\n", 400},
		{"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		{"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		{"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
		{"G@T / HTTP/1.1\r\n\r\n", 400},
		{"GET / HTTP/2.0\r\n\r\n", 505},
		{"GET / HTTP/1.1\r\nA b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nA: b\nB: c\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nA: b\rB: c\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nA: \x01\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: localhost\r\nhOsT:\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost:\r\nHost: localhost\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: localhost\r\n .evil.example\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nContent-Length:\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nContent-Length: 18446744073709551617\r\n\r\n", 413},
		{"GET / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", 411},
	};
	struct http_request r;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (parse(bad[i].text, &r) != bad[i].status) {
			fprintf(stderr, "case %zu\n", i);
			CHECK(0);
		}
}

TEST(http_parse, a_head_is_complete_with_its_empty_line)
{
	CHECK_INT(http_head_length("GET / HTTP/1.1\r\n\r\nbody", 22), 18);
	CHECK_INT(http_head_length("GET / HTTP/1.1\r\n\r", 17), 0);
	CHECK_INT(http_head_length("", 0), 0);
}
