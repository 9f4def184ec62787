/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>

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

bool address_is_loopback(const struct sockaddr *a)
{
	if (a->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 ==
		       IN_LOOPBACKNET;
	return a->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}
