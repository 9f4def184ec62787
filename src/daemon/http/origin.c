/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A browser on this machine can reach the loopback port on behalf of any web page. Pages of others
 * are known by three signs: the name by which they reach us is not ours (a name of theirs that was
 * made to point here), they tell another origin, or the browser says that the request crosses
 * sites.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "daemon/http/http_impl.h"

#define HOST_BYTES 256

/* The host without its port and brackets. */
static bool host_name(const char *host, char out[static HOST_BYTES])
{
	size_t len;

	if (*host == '[') {
		host++;
		len = strcspn(host, "]");
		if (host[len] != ']')
			return false;
	} else {
		len = strcspn(host, ":");
	}
	if (!len || len >= HOST_BYTES)
		return false;
	memcpy(out, host, len);
	out[len] = '\0';
	return true;
}

static bool is_own_address(const char *name, const struct sockaddr *own)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (inet_pton(AF_INET, name, &v4) == 1) {
		if ((ntohl(v4.s_addr) >> 24) == 127)
			return true;
		if (own->sa_family == AF_INET)
			return ((const struct sockaddr_in *)own)->sin_addr.s_addr == v4.s_addr;
		if (own->sa_family != AF_INET6)
			return false;
		const struct in6_addr *o = &((const struct sockaddr_in6 *)own)->sin6_addr;
		return IN6_IS_ADDR_V4MAPPED(o) && !memcmp(&o->s6_addr[12], &v4, 4);
	}
	if (inet_pton(AF_INET6, name, &v6) != 1)
		return false;
	if (IN6_IS_ADDR_LOOPBACK(&v6))
		return true;
	return own->sa_family == AF_INET6 &&
	       !memcmp(&((const struct sockaddr_in6 *)own)->sin6_addr, &v6, sizeof(v6));
}

static bool host_is_ours(const struct http_call *call)
{
	char name[HOST_BYTES];

	if (!call->request->host || !host_name(call->request->host, name))
		return false;
	return !strcasecmp(name, "localhost") || is_own_address(name, call->own_address);
}

static bool origin_is_host(const struct http_call *call)
{
	const char *origin = call->request->origin, *host = call->request->host;
	const char *scheme = call->tls ? "https://" : "http://";

	return host && !strncasecmp(origin, scheme, strlen(scheme)) &&
	       !strcasecmp(origin + strlen(scheme), host);
}

bool http_from_here(const struct http_call *call, const char **out_why)
{
	const struct http_request *r = call->request;

	if (call->metrics_only) /* tells numbers only, and may have any name */
		return true;
	/* with TLS the certificate holds the names that are ours */
	if (!call->tls && !host_is_ours(call)) {
		*out_why = "the Host header names another machine: use localhost";
		return false;
	}
	if (r->origin && !origin_is_host(call)) {
		*out_why = "the request comes from a page of another origin";
		return false;
	}
	if (r->fetch_site && strcasecmp(r->fetch_site, "same-origin") &&
	    strcasecmp(r->fetch_site, "none") && strcmp(r->path, "/")) {
		*out_why = "the request comes from a page of another site";
		return false;
	}
	return true;
}
