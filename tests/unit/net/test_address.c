/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include "net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static struct sockaddr_storage v4(const char *text, unsigned port)
{
	struct sockaddr_storage room = {0};
	struct sockaddr_in *a = (struct sockaddr_in *)&room;

	a->sin_family = AF_INET;
	a->sin_port = htons((uint16_t)port);
	CHECK(inet_pton(AF_INET, text, &a->sin_addr) == 1);
	return room;
}

static struct sockaddr_storage v6(const char *text, unsigned port)
{
	struct sockaddr_storage room = {0};
	struct sockaddr_in6 *a = (struct sockaddr_in6 *)&room;

	a->sin6_family = AF_INET6;
	a->sin6_port = htons((uint16_t)port);
	CHECK(inet_pton(AF_INET6, text, &a->sin6_addr) == 1);
	return room;
}

static void check(struct sockaddr_storage a, socklen_t len, const char *text, bool loopback)
{
	const struct sockaddr *any = (const struct sockaddr *)&a;
	char out[ADDRESS_TEXT_BYTES];

	CHECK(address_text(any, len, out));
	CHECK_STR(out, text);
	CHECK_INT(address_port(any), 1778);
	CHECK(address_is_loopback(any) == loopback);
}

TEST(address, both_families)
{
	check(v4("127.0.0.1", 1778), sizeof(struct sockaddr_in), "127.0.0.1:1778", true);
	check(v4("127.9.9.9", 1778), sizeof(struct sockaddr_in), "127.9.9.9:1778", true);
	check(v4("10.0.0.7", 1778), sizeof(struct sockaddr_in), "10.0.0.7:1778", false);
	check(v6("::1", 1778), sizeof(struct sockaddr_in6), "[::1]:1778", true);
	check(v6("::", 1778), sizeof(struct sockaddr_in6), "[::]:1778", false);
}

TEST(address, of_no_such_family)
{
	struct sockaddr a = {.sa_family = AF_UNIX};
	char out[ADDRESS_TEXT_BYTES] = "as it was";

	CHECK(!address_text(&a, sizeof(a), out) && !address_port(&a) && !address_is_loopback(&a));
	CHECK_STR(out, "as it was");
}
