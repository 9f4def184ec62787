/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Who may ask: the names by which we are reached, and the pages that a browser asks for. */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "daemon/http/http_impl.h"
#include "test.h"

static bool is_from_here(const struct http_request *r, const char *own, bool tls)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	bool is_v4 = inet_pton(AF_INET, own, &v4.sin_addr) == 1;
	const char *why = NULL;

	CHECK(is_v4 || inet_pton(AF_INET6, own, &v6.sin6_addr) == 1);
	struct http_call call = {.request = r,
				 .tls = tls,
				 .own_address =
					 is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6};
	bool here = http_from_here(&call, &why);
	CHECK(here == !why);
	return here;
}

static bool reaches(const char *host, const char *own)
{
	struct http_request r = {.path = "/", .host = host};

	return is_from_here(&r, own, false);
}

TEST(http_routes, names_that_are_ours)
{
	static const char *const ours[] = {
		"localhost",	   "LocalHost",	 "localhost:1779",    "localhost:0",
		"localhost:65535", "127.0.0.1",	 "127.0.0.1:1779",    "127.255.0.9:80",
		"[::1]",	   "[::1]:1779", "[0:0:0:0:0:0:0:1]",
	};

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		if (!reaches(ours[i], "127.0.0.1")) {
			fprintf(stderr, "refused: %s\n", ours[i]);
			CHECK(0);
		}
	CHECK(reaches("10.0.0.5:80", "10.0.0.5") && !reaches("10.0.0.5:80", "10.0.0.6"));
	CHECK(reaches("10.0.0.5", "::ffff:10.0.0.5") && !reaches("10.0.0.5", "::"));
	CHECK(reaches("[fd00::1]:80", "fd00::1") && !reaches("[fd00::1]", "fd00::2"));
}

/* Names of others that were made to point here, and what two programs could read differently. */
TEST(http_routes, names_that_are_not)
{
	static const char *const foreign[] = {
		"",
		":",
		":80",
		"evil.example",
		"evil.example:1779",
		"localhost.evil.example",
		"127.0.0.1.evil.example",
		"localhost.",
		"localhost.:1779",
		".localhost",
		"local host",
		"127.1",
		"127.0.0.1.",
		"2130706433",
		"0x7f.0.0.1",
		"0177.0.0.1",
		"0.0.0.0",
		"0",
		"10.0.0.5",
		/* ports */
		"localhost:",
		"localhost:x",
		"localhost:80x",
		"localhost:+80",
		"localhost:-1",
		"localhost: 80",
		"localhost:65536",
		"localhost:000080",
		"localhost:99999999999999999999",
		"localhost:80:80",
		"localhost:80@evil.example",
		"localhost:@evil.example",
		"localhost:80,evil.example",
		/* what belongs into an address of a page, not into a header */
		"user@localhost",
		"user:word@localhost",
		"http://localhost",
		"localhost/",
		"localhost/x",
		"localhost?x",
		"localhost#x",
		"localhost\\@evil.example",
		"localhost,evil.example",
		"localhost, localhost",
		"localhost%00.evil.example",
		/* brackets */
		"[",
		"[]",
		"[]:80",
		"[::1",
		"::1",
		"::1]",
		"[::1]evil.example",
		"[::1]80",
		"[::1]:",
		"[::1]:x",
		"[::1]::80",
		"[::1].evil.example",
		"[::1]@evil.example",
		"[[::1]]",
		"[localhost]",
		"[127.0.0.1]",
		"[::1%lo]",
		"[::]",
		"[fe80::1]",
	};

	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
		if (reaches(foreign[i], "127.0.0.1")) {
			fprintf(stderr, "taken for ours: '%s'\n", foreign[i]);
			CHECK(0);
		}
	CHECK(!reaches(NULL, "127.0.0.1"));
	char longest[400];
	memset(longest, 'a', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	CHECK(!reaches(longest, "127.0.0.1"));
}

TEST(http_routes, pages_of_others)
{
	static const struct {
		struct http_request r;
		bool tls, here;
	} rows[] = {
		{{.path = "/", .host = "localhost:80", .origin = "http://localhost:80"},
		 false,
		 true},
		{{.path = "/", .host = "localhost:80", .origin = "https://localhost:80"},
		 false,
		 false},
		{{.path = "/", .host = "localhost:80", .origin = "http://localhost:81"},
		 false,
		 false},
		{{.path = "/", .host = "localhost", .origin = "null"}, false, false},
		{{.path = "/", .host = "localhost", .origin = ""}, false, false},
		{{.path = "/", .host = "localhost", .origin = "http://localhost.evil"},
		 false,
		 false},
		{{.path = "/", .host = "a.test:1", .origin = "https://a.test:1"}, true, true},
		{{.path = "/", .host = "a.test:1", .origin = "http://a.test:1"}, true, false},
		{{.path = "/", .origin = "https://a.test"}, true, false},
		{{.path = "/x", .host = "localhost", .fetch_site = "cross-site"}, false, false},
		{{.path = "/x", .host = "localhost", .fetch_site = "same-site"}, false, false},
		{{.path = "/x", .host = "localhost", .fetch_site = ""}, false, false},
		{{.path = "/x", .host = "localhost", .fetch_site = "same-origin"}, false, true},
		{{.path = "/", .host = "localhost", .fetch_site = "cross-site"}, false, true},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (is_from_here(&rows[i].r, "127.0.0.1", rows[i].tls) != rows[i].here) {
			fprintf(stderr, "row %zu\n", i);
			CHECK(0);
		}
}
