/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What is answered to which request: the table of paths, and the API that mirrors the RPC. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text/number.h"
#include "daemon/http/http_impl.h"
#include "daemon/metrics/metrics.h"
#include "daemon/rpc/api.h"

#define API_PREFIX "/api/v1/"

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

/* --- the API --- */

/* A function that only tells: a link or a reload of a page may call it. */
static bool only_tells(const char *fn)
{
	return !strncmp(fn, "get", 3) || !strncmp(fn, "list", 4) || !strncmp(fn, "explain", 7);
}

static bool is_known(const char *fn)
{
	for (const char *const *n = api_names(); *n; n++)
		if (!strcmp(*n, fn))
			return true;
	return false;
}

/* "pid=12&job_id=3": numbers become numbers, all else text. */
static json_t *query_object(const char *query)
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
static json_t *arguments(const struct http_call *call, struct http_reply *out)
{
	json_error_t error;

	if (call->request->method != HTTP_POST)
		return query_object(call->request->query);
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
	json_t *request = arguments(call, out);

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
	json_t *reply = api_call(call->d, request);
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

	if (!call->trusted) {
		http_fail(out, 403, "this call needs a client certificate of the daemon's CA");
		return;
	}
	if (!is_known(fn)) {
		http_fail(out, 404, "no function '%.64s'", fn);
		return;
	}
	if (r->method != HTTP_POST && !only_tells(fn)) {
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
	const struct page_file *f = page_find(call->request->path);

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
	} else {
		route_page(call, out);
	}
}
