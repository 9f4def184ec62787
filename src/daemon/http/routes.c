/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Who may ask for what, and the answers: the paths, and the API that mirrors the RPC. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text/embed.h"
#include "base/text/number_read.h"
#include "daemon/http/http_impl.h"
#include "daemon/inspect/inspect.h"
#include "daemon/metrics/metrics.h"
#include "daemon/rpc/api.h"

#define API_PREFIX "/api/v1/"
#define REPORT_PREFIX "/report/"
#define HOST_BYTES 256

void http_fail(struct http_reply *out, int status, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_t *o = json_pack("{s:s}", "error", text);
	if (!o) /* the words repeat bytes of the peer that are no text */
		o = json_pack("{s:s}", "error", "the request is no valid UTF-8");
	out->status = status;
	out->content_type = "application/json";
	api_print(o, &out->body);
	json_decref(o);
}

/* --- foreign pages --- */

/*
 * A browser on this machine can reach the loopback port on behalf of any web page. Foreign pages
 * are known by three signs: the name by which they reach us is not ours (a name of theirs that was
 * made to point here), they send another origin, or the browser says that the request crosses
 * sites.
 */

/* ":80" or nothing. A port that is none would hide what a program behind us reads as the host. */
static bool is_port(const char *text)
{
	int64_t number;

	if (!*text)
		return true;
	size_t len = strlen(++text);
	return text[-1] == ':' && len && len <= 5 && strspn(text, "0123456789") == len &&
	       number_read(text, len, &number) && number <= UINT16_MAX;
}

/* Cuts the name out of NAME, NAME:PORT, [ADDRESS] or [ADDRESS]:PORT. False: it is none of them. */
static bool split_host(const char *host, char out[static HOST_BYTES], bool *out_bracketed)
{
	*out_bracketed = *host == '[';
	host += *out_bracketed;
	size_t len = strcspn(host, *out_bracketed ? "]" : ":");
	const char *behind = host + len;

	if (!len || len >= HOST_BYTES || (*out_bracketed && *behind++ != ']') || !is_port(behind))
		return false;
	memcpy(out, host, len);
	out[len] = '\0';
	return true;
}

static bool is_own_v4(const char *name, const struct sockaddr *own)
{
	struct in_addr v4;

	if (inet_pton(AF_INET, name, &v4) != 1)
		return false;
	if ((ntohl(v4.s_addr) >> 24) == 127)
		return true;
	if (own->sa_family == AF_INET)
		return ((const struct sockaddr_in *)own)->sin_addr.s_addr == v4.s_addr;
	if (own->sa_family != AF_INET6)
		return false;
	const struct in6_addr *o = &((const struct sockaddr_in6 *)own)->sin6_addr;
	return IN6_IS_ADDR_V4MAPPED(o) && !memcmp(&o->s6_addr[12], &v4, 4);
}

static bool is_own_v6(const char *name, const struct sockaddr *own)
{
	struct in6_addr v6;

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
	bool bracketed;

	if (!call->request->host || !split_host(call->request->host, name, &bracketed))
		return false;
	if (bracketed)
		return is_own_v6(name, call->own_address);
	return !strcasecmp(name, "localhost") || is_own_v4(name, call->own_address);
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

	if (call->metrics_only) /* it has numbers only, and may have any name */
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

/* --- the API --- */

static bool is_known(const char *fn)
{
	for (const char *const *n = api_names(); *n; n++)
		if (!strcmp(*n, fn))
			return true;
	return false;
}

/* "pid=12&job_id=3": numbers become numbers, all else text. */
static json_t *read_query(const char *query)
{
	json_t *o = json_object();

	while (query && *query) {
		size_t len = strcspn(query, "&"), name = strcspn(query, "=&");
		char key[64], value[128];
		int64_t number;

		if (name < len && name < sizeof(key) && len - name - 1 < sizeof(value)) {
			memcpy(key, query, name);
			key[name] = '\0';
			memcpy(value, query + name + 1, len - name - 1);
			value[len - name - 1] = '\0';
			json_object_set_new(o, key,
					    number_read(value, len - name - 1, &number)
						    ? json_integer(number)
						    : json_string(value));
		}
		query += len + (query[len] == '&');
	}
	return o;
}

/* The arguments as they came; NULL with the reply filled. */
static json_t *read_arguments(const struct http_call *call, struct http_reply *out)
{
	json_error_t error;

	if (call->request->method != HTTP_POST)
		return read_query(call->request->query);
	if (!call->body_bytes)
		return json_object();
	json_t *o = json_loadb(call->body, call->body_bytes, JSON_REJECT_DUPLICATES, &error);
	if (!json_is_object(o)) {
		http_fail(out, 400, "the body is no JSON object: %s",
			  o ? "it is something else" : error.text);
		json_decref(o);
		return NULL;
	}
	return o;
}

/* The request passes the same checks as one that came by RPC. */
static void call_api(const struct http_call *call, const char *fn, struct http_reply *out)
{
	struct err err = {0};
	struct buf text = {0};
	json_t *request = read_arguments(call, out);

	if (!request)
		return;
	json_object_set_new(request, "fn", json_string(fn));
	api_print(request, &text);
	json_decref(request);
	request = api_parse(text.data, text.len, &err);
	buf_release(&text);
	if (!request) {
		http_fail(out, 400, "%s", err.text);
		return;
	}
	json_t *reply = api_call(call->d, &call->who, request);
	json_decref(request);
	if (!reply) {
		http_fail(out, 404, "no function '%.64s'", fn);
		return;
	}
	out->status = 200;
	out->content_type = "application/json";
	api_print(reply, &out->body);
	json_decref(reply);
}

static void route_api(const struct http_call *call, const char *fn, struct http_reply *out)
{
	const struct http_request *r = call->request;
	const char *type = r->content_type ? r->content_type : "";

	const char *refusal;

	if (call->who.right == ACCESS_NONE) {
		http_fail(out, 403, "%s", call->who.why);
		return;
	}
	if (!is_known(fn)) {
		http_fail(out, 404, "no function '%.64s'", fn);
		return;
	}
	if ((refusal = api_refusal(&call->who, fn))) {
		http_fail(out, 403, "%s", refusal);
		return;
	}
	if (r->method != HTTP_POST && !api_is_read_only(fn)) {
		out->allow = "POST";
		http_fail(out, 405, "'%s' changes something: call it with POST", fn);
		return;
	}
	if (r->method == HTTP_POST && (strncasecmp(type, "application/json", 16) ||
				       (type[16] && type[16] != ';' && type[16] != ' '))) {
		http_fail(out, 415, "send the arguments as Content-Type: application/json");
		return;
	}
	call_api(call, fn, out);
}

/* --- the status page: files of src/web inside the program --- */

EMBED(html, "src/web/status.html");
EMBED(css, "src/web/status.css");
EMBED(js, "src/web/status.js");
EMBED(tools, "src/web/tools.js");
EMBED(charts, "src/web/charts.js");
EMBED(job, "src/web/job.js");
EMBED(orders, "src/web/profiler_request.js");
EMBED(hosts, "src/web/hosts.js");

#define SCRIPT(name_, file_)                                                                       \
	{                                                                                          \
		"/" file_, "text/javascript; charset=utf-8", embedded_##name_,                     \
			embedded_##name_##_end                                                     \
	}

static const struct page_file {
	const char *path, *content_type;
	const char *bytes, *end;
} files[] = {
	{"/", "text/html; charset=utf-8", embedded_html, embedded_html_end},
	{"/status.css", "text/css; charset=utf-8", embedded_css, embedded_css_end},
	SCRIPT(js, "status.js"),
	SCRIPT(tools, "tools.js"),
	SCRIPT(charts, "charts.js"),
	SCRIPT(job, "job.js"),
	SCRIPT(orders, "profiler_request.js"),
	SCRIPT(hosts, "hosts.js"),
};

static const struct page_file *find_page_file(const char *path)
{
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (!strcmp(files[i].path, path))
			return &files[i];
	return NULL;
}

/* --- the rest --- */

static void route_metrics(const struct http_call *call, struct http_reply *out)
{
	if (!call->d->metrics) {
		http_fail(out, 503, "there are no metrics at the moment");
		return;
	}
	out->status = 200;
	out->content_type = "text/plain; version=0.0.4; charset=utf-8";
	metrics_open_found_devices(call->d->metrics);
	metrics_prometheus(call->d->metrics, &out->body);
}

static void route_health(struct http_reply *out)
{
	out->status = 200;
	out->content_type = "text/plain; charset=utf-8";
	buf_add_str(&out->body, "ok\n");
}

static void route_page(const struct http_call *call, struct http_reply *out)
{
	const struct page_file *f = find_page_file(call->request->path);

	if (!f) {
		http_fail(out, 404, "nothing here: try / , /metrics, /healthz or %s<function>",
			  API_PREFIX);
		return;
	}
	out->status = 200;
	out->content_type = f->content_type;
	out->page = true;
	buf_add(&out->body, f->bytes, (size_t)(f->end - f->bytes));
}

/* What getReport has named. */
static void route_report(const struct http_call *call, const char *number, struct http_reply *out)
{
	struct evbuffer *page = NULL;
	int64_t n;

	if (call->who.right != ACCESS_NONE && number_read(number, strlen(number), &n) && n > 0)
		page = inspect_report_page(call->d->inspect, &call->who, (uint64_t)n);
	if (!page) {
		http_fail(out, 404, "no such report: it may have been deleted");
		return;
	}
	out->status = 200;
	out->content_type = "text/html; charset=utf-8";
	out->report = page;
}

void http_route(const struct http_call *call, struct http_reply *out)
{
	const struct http_request *r = call->request;
	bool api = !strncmp(r->path, API_PREFIX, strlen(API_PREFIX));
	const char *why;

	if (!http_from_here(call, &why)) {
		http_fail(out, 403, "%s", why);
	} else if (r->method == HTTP_OTHER || (r->method == HTTP_POST && !api)) {
		out->allow = api ? "GET, HEAD, POST" : "GET, HEAD";
		http_fail(out, 405, "no such method here");
	} else if (!strcmp(r->path, "/metrics")) {
		route_metrics(call, out);
	} else if (!strcmp(r->path, "/healthz")) {
		route_health(out);
	} else if (call->metrics_only) {
		http_fail(out, 404, "this address has /metrics and /healthz only");
	} else if (api) {
		route_api(call, r->path + strlen(API_PREFIX), out);
	} else if (!strcmp(r->path, "/api/top")) {
		route_api(call, "getTop", out);
	} else if (!strncmp(r->path, REPORT_PREFIX, strlen(REPORT_PREFIX))) {
		route_report(call, r->path + strlen(REPORT_PREFIX), out);
	} else {
		route_page(call, out);
	}
}
