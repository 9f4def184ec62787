/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The head of an HTTP/1.x request: bytes to checked fields. Strict where laxness lets two programs
 * read one request differently; no I/O.
 */
#ifndef SONDE_DAEMON_HTTP_PARSE_H
#define SONDE_DAEMON_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>

#define HTTP_HEAD_MAX 8192 /* bytes of the request line and all headers */

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_OTHER };

/* Texts lead into the head, which http_parse() cuts into strings. */
struct http_request {
	enum http_method method;
	const char *path; /* "/metrics"; not decoded */
	const char *query; /* behind the '?'; NULL: none */
	const char *host, *origin, *content_type, *fetch_site; /* NULL: not sent */
	size_t content_length;
	bool has_body; /* Content-Length was sent */
	bool keep_alive;
	bool expects_continue;
};

/* How many bytes the head has, the empty line behind it included; 0: it is not complete yet. */
size_t http_head_length(const char *bytes, size_t len);

/* Parses a complete head, writing into it. 0, or the HTTP status that says what is wrong with it;
 * *out_why then has words. */
int http_parse(char *head, size_t len, struct http_request *out, const char **out_why);

#endif
