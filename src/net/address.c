/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

bool address_text(const struct sockaddr *a, socklen_t len, char out[ADDRESS_TEXT_BYTES])
{
	char host[64], port[8];

	if ((a->sa_family != AF_INET && a->sa_family != AF_INET6) ||
	    getnameinfo(a, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return false;
	snprintf(out, ADDRESS_TEXT_BYTES, a->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
		 port);
	return true;
}

unsigned address_port(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)a)->sin_port);
	return a->sa_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)a)->sin6_port) : 0;
}

void address_set_port(struct sockaddr *a, unsigned port)
{
	if (a->sa_family == AF_INET)
		((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
	else if (a->sa_family == AF_INET6)
		((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
}

bool address_parse(const char *text, unsigned port, struct sockaddr_storage *out,
		   socklen_t *out_len)
{
	memset(out, 0, sizeof(*out));
	bool v4 = inet_pton(AF_INET, text, &((struct sockaddr_in *)out)->sin_addr) == 1;
	if (!v4 && inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)out)->sin6_addr) != 1)
		return false;
	out->ss_family = v4 ? AF_INET : AF_INET6;
	*out_len = v4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	address_set_port((struct sockaddr *)out, port);
	return true;
}

bool address_is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 ==
		       IN_LOOPBACKNET;
	return a->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

bool address_is_same_host(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 &&
	       IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
				  &((const struct sockaddr_in6 *)b)->sin6_addr);
}
