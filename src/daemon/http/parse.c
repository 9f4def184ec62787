/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/http/http_impl.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define LENGTH_MAX (1u << 30)

size_t http_head_length(const char *bytes, size_t len)
{
	const char *end = memmem(bytes, len, "\r\n\r\n", 4);

	return end ? (size_t)(end - bytes) + 4 : 0;
}

static int set_refusal(int status, const char *why, const char **out_why)
{
	*out_why = why;
	return status;
}

static bool is_token(const char *s)
{
	if (!*s)
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("!#$%&'*+-.^_`|~", *s))
			return false;
	return true;
}

static enum http_method method_of(const char *word)
{
	if (!strcmp(word, "GET"))
		return HTTP_GET;
	if (!strcmp(word, "HEAD"))
		return HTTP_HEAD;
	return strcmp(word, "POST") ? HTTP_OTHER : HTTP_POST;
}

/* "GET /path?query HTTP/1.1" */
static int request_line(char *line, struct http_request *r, const char **out_why)
{
	char *target = strchr(line, ' ');
	char *version = target ? strchr(target + 1, ' ') : NULL;

	if (!version || strchr(version + 1, ' '))
		return set_refusal(400, "the request line is not 'METHOD /path HTTP/1.1'", out_why);
	*target++ = '\0';
	*version++ = '\0';
	if (!is_token(line) || *target != '/')
		return set_refusal(400, "the request line is not 'METHOD /path HTTP/1.1'", out_why);
	if (!strcmp(version, "HTTP/1.1"))
		r->keep_alive = true;
	else if (strcmp(version, "HTTP/1.0"))
		return set_refusal(505, "only HTTP/1.0 and HTTP/1.1 are spoken here", out_why);
	r->method = method_of(line);
	r->path = target;
	char *query = strchr(target, '?');
	if (query) {
		*query = '\0';
		r->query = query + 1;
	}
	return 0;
}

static int content_length(const char *value, struct http_request *r, const char **out_why)
{
	size_t n = 0;

	if (r->has_body || !*value)
		return set_refusal(400, "Content-Length must be sent once", out_why);
	for (; *value; value++) {
		if (!isdigit((unsigned char)*value))
			return set_refusal(400, "Content-Length is not a number", out_why);
		n = n * 10 + (size_t)(*value - '0');
		if (n > LENGTH_MAX)
			return set_refusal(413, "the body is too long", out_why);
	}
	r->content_length = n;
	r->has_body = true;
	return 0;
}

/* A header that decides something must not be there twice. */
static int set_once(const char **field, const char *value, const char **out_why)
{
	if (*field)
		return set_refusal(400, "Host, Origin and Content-Type may be sent once", out_why);
	*field = value;
	return 0;
}

static int parse_header(const char *name, const char *value, struct http_request *r,
			const char **out_why)
{
	if (!strcasecmp(name, "Host"))
		return set_once(&r->host, value, out_why);
	if (!strcasecmp(name, "Origin"))
		return set_once(&r->origin, value, out_why);
	if (!strcasecmp(name, "Content-Type"))
		return set_once(&r->content_type, value, out_why);
	if (!strcasecmp(name, "Sec-Fetch-Site"))
		return set_once(&r->fetch_site, value, out_why);
	if (!strcasecmp(name, "Content-Length"))
		return content_length(value, r, out_why);
	if (!strcasecmp(name, "Transfer-Encoding"))
		return set_refusal(411, "bodies are sent with Content-Length here", out_why);
	if (!strcasecmp(name, "Expect"))
		r->expects_continue = !strcasecmp(value, "100-continue");
	if (!strcasecmp(name, "Connection")) {
		if (!strcasecmp(value, "close"))
			r->keep_alive = false;
		else if (!strcasecmp(value, "keep-alive"))
			r->keep_alive = true;
	}
	return 0;
}

static int header_line(char *line, struct http_request *r, const char **out_why)
{
	char *colon = strchr(line, ':');

	if (!colon)
		return set_refusal(400, "a header without a colon", out_why);
	*colon = '\0';
	char *value = colon + 1 + strspn(colon + 1, " \t");
	size_t n = strlen(value);
	while (n && (value[n - 1] == ' ' || value[n - 1] == '\t'))
		value[--n] = '\0';
	if (!is_token(line)) /* also continued lines, which begin with a blank */
		return set_refusal(400, "a header whose name is none", out_why);
	return parse_header(line, value, r, out_why);
}

int http_parse(char *head, size_t len, struct http_request *out, const char **out_why)
{
	char *const end = head + len;
	bool first = true;

	*out = (struct http_request){0};
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)head[i] < ' ' && !strchr("\r\n\t", head[i] ? head[i] : 'x'))
			return set_refusal(400, "control characters in the request", out_why);
	for (char *line = head; line < end;) {
		char *next = memmem(line, (size_t)(end - line), "\r\n", 2);

		if (!next || next == line)
			break;
		*next = '\0';
		if (strpbrk(line, "\r\n"))
			return set_refusal(400, "a line that does not end with CR LF", out_why);
		int status =
			first ? request_line(line, out, out_why) : header_line(line, out, out_why);
		if (status)
			return status;
		first = false;
		line = next + 2;
	}
	if (first)
		return set_refusal(400, "an empty request", out_why);
	return 0;
}
