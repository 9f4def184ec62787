/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Heads of HTTP requests, and what decides from them who may ask. Every text of the result is
 * touched and must lie inside the head.
 */
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "daemon/http/http_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *s, const char *head, size_t len)
{
	BUG_ON(s && (s < head || s + strlen(s) > head + len));
	BUG_ON(s && strpbrk(s, "\r\n"));
}

/* Of a host that passes: nothing but a name of ours and a port, read another way than by the
 * server. */
static void check_own_host(const char *host)
{
	size_t n = strcspn(host, *host == '[' ? "]" : ":") + (*host == '[');
	const char *port = host + n;

	BUG_ON(n == 0 || n > strlen(host));
	BUG_ON(*host == '['
		       ? n < 5 || strspn(host + 1, "0123456789abcdefABCDEF:.") != n - 2
		       : strncmp(host, "127.", 4) && (n != 9 || strncasecmp(host, "localhost", 9)));
	BUG_ON(*port && (*port != ':' || !port[1] || port[1 + strspn(port + 1, "0123456789")]));
}

static void check_request(const struct http_request *r, const char *head, size_t len)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct http_call call = {.request = r, .own_address = (struct sockaddr *)&own};
	const char *why = NULL;

	BUG_ON(r->path[0] != '/');
	check_text(r->path, head, len);
	check_text(r->query, head, len);
	check_text(r->host, head, len);
	check_text(r->origin, head, len);
	check_text(r->content_type, head, len);
	check_text(r->fetch_site, head, len);
	bool here = http_from_here(&call, &why);
	BUG_ON(!here && !why);
	BUG_ON(here && !r->host);
	if (here)
		check_own_host(r->host);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len = http_head_length((const char *)data, size);
	struct http_request r;
	const char *why = NULL;

	BUG_ON(len > size);
	if (!len)
		return 0;
	char *head = xcalloc(1, len + 1);
	memcpy(head, data, len);
	int status = http_parse(head, len, &r, &why);
	BUG_ON(status ? (status < 400 || status > 505 || !why) : !r.path);
	if (!status)
		check_request(&r, head, len);
	free(head);
	return 0;
}
