/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/hosts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#include "base/mem.h"
#include "base/text/args.h"

#define NAME_MAX_BYTES 253u /* of a DNS name */
#define ITEM_MAX_BYTES 4096u
#define MAX_BRACKETS 8

void host_list_release(struct host_list *h)
{
	for (size_t i = 0; i < h->n; i++) {
		free(h->v[i].name);
		free(h->v[i].label);
	}
	free(h->v);
	hmap_release(&h->seen);
	*h = (struct host_list){0};
}

static uint64_t host_hash(const char *name, unsigned port)
{
	uint64_t x = 14695981039346656037u ^ port;

	for (; *name; name++)
		x = (x ^ (unsigned char)tolower((unsigned char)*name)) * 1099511628211u;
	return x;
}

static bool is_unix(const char *name)
{
	return !strncmp(name, HOST_UNIX, strlen(HOST_UNIX));
}

static char *make_label(const struct host_list *h, const char *label, unsigned port)
{
	if (port == h->usual_port || is_unix(label))
		return xstrdup(label);
	return xasprintf(strchr(label, ':') ? "[%s]:%u" : "%s:%u", label, port);
}

static int add_host(struct host_list *h, const char *name, const char *label, unsigned port,
		    struct err *err)
{
	if (h->written++ >= HOST_LIST_MAX)
		return err_set(err, -E2BIG, "more than %u hosts", HOST_LIST_MAX);
	uint64_t key = host_hash(name, port);
	uint64_t at = hmap_get(&h->seen, key);
	if (at != HMAP_NONE && h->v[at].port == port &&
	    !(is_unix(name) ? strcmp : strcasecmp)(h->v[at].name, name))
		return 0;
	h->v = xgrow(h->v, &h->cap, h->n + 1, sizeof(*h->v));
	h->v[h->n] = (struct host_entry){xstrdup(name), make_label(h, label, port), port};
	hmap_put(&h->seen, key, h->n++);
	return 0;
}

static bool name_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '.' || c == '-' || c == '_';
}

/* One host whose ranges are spelt out. */
static int add_name(struct host_list *h, const char *name, size_t len, unsigned port,
		    struct err *err)
{
	char text[NAME_MAX_BYTES + 1];

	if (!len || len > NAME_MAX_BYTES)
		return err_set(err, -EINVAL, "a host name has 1 to %u characters", NAME_MAX_BYTES);
	for (size_t i = 0; i < len; i++)
		if (!name_char(name[i]))
			return err_set(err, -EINVAL, "'%.*s' is not a host name", (int)len, name);
	if (name[0] == '-')
		return err_set(err, -EINVAL, "'%.*s' is not a host name", (int)len, name);
	memcpy(text, name, len);
	text[len] = '\0';
	return add_host(h, text, text, port, err);
}

/* A range inside brackets: "7" or "01-16". */
struct range {
	unsigned from, to;
	int width; /* of the first number, as zeros in front count */
};

static bool take_number(const char **p, const char *end, unsigned *out, int *out_width)
{
	const char *s = *p;
	unsigned n = 0;

	while (s < end && *s >= '0' && *s <= '9' && s - *p < 9)
		n = n * 10 + (unsigned)(*s++ - '0');
	*out_width = (int)(s - *p);
	*out = n;
	*p = s;
	return *out_width > 0;
}

static bool take_range(const char **p, const char *end, struct range *out)
{
	int width;

	if (!take_number(p, end, &out->from, &out->width))
		return false;
	out->to = out->from;
	if (*p < end && **p == '-') {
		(*p)++;
		if (!take_number(p, end, &out->to, &width))
			return false;
	}
	return out->to >= out->from && (*p == end || **p == ',');
}

/* What expand_pattern() has put together so far, and what is left of the pattern. */
struct pattern {
	char made[NAME_MAX_BYTES + 1];
	size_t len;
	const char *rest, *end;
	unsigned port;
};

static int expand_pattern(struct host_list *h, struct pattern p, int depth, struct err *err);

static int expand_range(struct host_list *h, const struct pattern *p, struct range r, int depth,
			struct err *err)
{
	for (unsigned i = r.from;; i++) {
		struct pattern next = *p;
		int n = snprintf(next.made + p->len, sizeof(next.made) - p->len, "%0*u", r.width,
				 i);

		if (n < 0 || (size_t)n >= sizeof(next.made) - p->len)
			return err_set(err, -EINVAL, "a host name has 1 to %u characters",
				       NAME_MAX_BYTES);
		next.len += (size_t)n;
		int status = expand_pattern(h, next, depth + 1, err);
		if (status < 0 || i == r.to)
			return status;
	}
}

static int expand_pattern(struct host_list *h, struct pattern p, int depth, struct err *err)
{
	const char *open = memchr(p.rest, '[', (size_t)(p.end - p.rest));
	size_t plain = (size_t)((open ? open : p.end) - p.rest);

	if (plain > NAME_MAX_BYTES - p.len)
		return err_set(err, -EINVAL, "a host name has 1 to %u characters", NAME_MAX_BYTES);
	memcpy(p.made + p.len, p.rest, plain);
	p.len += plain;
	if (!open)
		return add_name(h, p.made, p.len, p.port, err);
	const char *close = memchr(open, ']', (size_t)(p.end - open));
	if (!close || depth == MAX_BRACKETS)
		return err_set(err, -EINVAL, "unclosed or too many '[' in '%.*s'",
			       (int)(p.end - p.rest), p.rest);
	p.rest = close + 1;
	for (const char *at = open + 1;; at++) {
		struct range r;

		if (!take_range(&at, close, &r))
			return err_set(err, -EINVAL,
				       "'%.*s' is not a list of numbers such as [1-8,12]",
				       (int)(close + 1 - open), open);
		int status = expand_range(h, &p, r, depth, err);
		if (status < 0 || at == close)
			return status;
	}
}

/* The port behind the last colon of an item, which is cut off. */
static int take_port(const char *item, size_t *len, unsigned *port, struct err *err)
{
	const char *colon = memrchr(item, ':', *len);
	size_t digits = (size_t)(item + *len - colon - 1);

	if (!args_number(colon + 1, digits, 1, 65535, port))
		return err_set(err, -EINVAL, "'%.*s' is not a port: expected 1 to 65535",
			       (int)digits, colon + 1);
	*len = (size_t)(colon - item);
	return 0;
}

static bool is_ipv6(const char *text, size_t len)
{
	char name[INET6_ADDRSTRLEN];
	struct in6_addr a;
	const char *zone = memchr(text, '%', len);
	size_t n = zone ? (size_t)(zone - text) : len;

	if (n >= sizeof(name))
		return false;
	for (const char *c = zone ? zone + 1 : text + len; c < text + len; c++)
		if (!name_char(*c))
			return false;
	memcpy(name, text, n);
	name[n] = '\0';
	return (!zone || zone + 1 < text + len) && inet_pton(AF_INET6, name, &a) == 1;
}

static int add_ipv6(struct host_list *h, const char *text, size_t len, unsigned port,
		    struct err *err)
{
	if (len > NAME_MAX_BYTES || !is_ipv6(text, len))
		return err_set(err, -EINVAL, "'%.*s' is not a host name or address", (int)len,
			       text);
	char *name = xstrndup(text, len);
	int r = add_host(h, name, name, port, err);
	free(name);
	return r;
}

/* A path has no ranges and no port. */
static int add_unix(struct host_list *h, const char *text, size_t len, unsigned port,
		    struct err *err)
{
	const size_t prefix = strlen(HOST_UNIX);
	size_t path = len - prefix;
	int r = 0;

	if (!path || path >= sizeof(((struct sockaddr_un *)NULL)->sun_path) || text[prefix] != '/')
		return err_set(err, -EINVAL,
			       "'%.*s' is not the path of a socket: expected " HOST_UNIX
			       "/…, at most %zu characters",
			       (int)(len < 200 ? len : 200), text,
			       sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] <= ' ' || strchr("[]", text[i]) || text[i] == 0x7f)
			return err_set(err, -EINVAL,
				       "the path of a socket has no blanks, brackets and control "
				       "characters");
	char *name = xstrndup(text, len);
	r = add_host(h, name, name, port, err);
	free(name);
	return r;
}

static size_t count_char(const char *text, size_t len, char c)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += text[i] == c;
	return n;
}

/* One item of a list. */
static int add_item(struct host_list *h, const char *item, size_t len, unsigned port,
		    struct err *err)
{
	const char *close = len && item[0] == '[' ? memchr(item, ']', len) : NULL;
	size_t inside = close ? (size_t)(close - item - 1) : 0;
	int r = 0;

	if (!len)
		return err_set(err, -EINVAL, "a name is missing in the list of hosts");
	if (len > ITEM_MAX_BYTES)
		return err_set(err, -EINVAL, "a host name has 1 to %u characters", NAME_MAX_BYTES);
	/* A host may be called unix, too, and have a port. */
	const size_t prefix = strlen(HOST_UNIX);
	if (len >= prefix && is_unix(item) &&
	    (len == prefix || !isdigit((unsigned char)item[prefix])))
		return add_unix(h, item, len, port, err);
	if (close && memchr(item + 1, ':', inside)) {
		if (close + 1 < item + len) {
			r = close[1] == ':' ? take_port(item, &len, &port, err) : -EINVAL;
			if (r < 0 || close + 1 != item + len)
				return err_set(err, -EINVAL, "'%.*s' is not [address]:port",
					       (int)len, item);
		}
		return add_ipv6(h, item + 1, inside, port, err);
	}
	size_t colons = count_char(item, len, ':');
	if (colons > 1)
		return add_ipv6(h, item, len, port, err);
	if (colons)
		r = take_port(item, &len, &port, err);
	if (r < 0)
		return r;
	struct pattern p = {.rest = item, .end = item + len, .port = port};
	return expand_pattern(h, p, 0, err);
}

/* Up to the next comma that is not inside brackets. */
static size_t item_length(const char *text, size_t len)
{
	bool inside = false;
	size_t i = 0;

	for (; i < len && (inside || text[i] != ','); i++)
		inside = text[i] == '[' || (inside && text[i] != ']');
	return i;
}

static int add_list(struct host_list *h, const char *text, size_t len, unsigned port,
		    struct err *err)
{
	while (true) {
		size_t n = item_length(text, len);
		size_t from = 0, to = n;

		while (from < to && text[from] == ' ')
			from++;
		while (to > from && text[to - 1] == ' ')
			to--;
		int r = add_item(h, text + from, to - from, port, err);
		if (r < 0 || n == len)
			return r;
		text += n + 1;
		len -= n + 1;
	}
}

int host_list_add(struct host_list *h, const char *text, unsigned port, struct err *err)
{
	h->usual_port = port;
	return add_list(h, text, strlen(text), port, err);
}

static size_t span_not(const char *text, size_t len, const char *stop)
{
	size_t i = 0;

	while (i < len && text[i] && !strchr(stop, text[i]))
		i++;
	return i;
}

/* The list is the first word; what may follow is for other programs. */
static int add_line(struct host_list *h, const char *line, size_t len, unsigned port,
		    struct err *err)
{
	len = span_not(line, len, "#");
	while (len && strchr(" \t\r", *line)) {
		line++;
		len--;
	}
	size_t n = span_not(line, len, " \t\r");
	for (size_t at = n; at < len;) {
		size_t word = span_not(line + at, len - at, " \t\r");

		if (word && !memchr(line + at, '=', word))
			return err_set(err, -EINVAL, "unexpected '%.*s' behind the host",
				       (int)(word < 100 ? word : 100), line + at);
		at += word + 1;
	}
	return n ? add_list(h, line, n, port, err) : 0;
}

int host_list_add_lines(struct host_list *h, const char *text, size_t len, unsigned port,
			struct err *err)
{
	struct err why = {0};

	h->usual_port = port;
	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) { /* as editors of Windows begin files */
		text += 3;
		len -= 3;
	}
	if (memchr(text, '\0', len))
		return err_set(err, -EINVAL, "it is not a text file");
	for (unsigned number = 1; len; number++) {
		size_t n = span_not(text, len, "\n");

		if (add_line(h, text, n, port, &why) < 0)
			return err_set(err, why.code, "line %u: %s", number, why.text);
		n += n < len;
		text += n;
		len -= n;
	}
	return 0;
}

static const char *text_at(const json_t *o, const char *section, const char *key)
{
	return json_string_value(json_object_get(json_object_get(o, section), key));
}

/* Whether a name can be shown, and be part of the names of files. */
static bool is_label(const char *text)
{
	size_t n = 0;

	while (text && n <= NAME_MAX_BYTES && name_char(text[n]))
		n++;
	return n && n <= NAME_MAX_BYTES && !text[n];
}

static int add_pod(struct host_list *h, const json_t *pod, unsigned port, struct err *err)
{
	const char *phase = text_at(pod, "status", "phase");
	const char *address = text_at(pod, "status", "podIP");
	const char *label = text_at(pod, "spec", "nodeName");

	if (phase && strcmp(phase, "Running"))
		return 0;
	if (!address || !*address)
		address = text_at(pod, "status", "hostIP");
	if (!label)
		label = text_at(pod, "metadata", "name");
	if (!address || !*address)
		return 0;
	if (!is_ipv6(address, strlen(address)) && strspn(address, "0123456789.") != strlen(address))
		return err_set(err, -EINVAL, "'%.100s' is not the address of a pod", address);
	return add_host(h, address, is_label(label) ? label : address, port, err);
}

int host_list_add_pods(struct host_list *h, const char *json, size_t len, unsigned port,
		       struct err *err)
{
	json_error_t why;
	json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &why);
	json_t *pod;
	size_t i;
	int r = 0;

	h->usual_port = port;
	if (!root)
		return err_set(err, -EINVAL, "kubectl did not answer with JSON: %s", why.text);
	if (!json_is_array(json_object_get(root, "items")))
		r = err_set(err, -EINVAL, "kubectl did not answer with a list of pods");
	json_array_foreach(json_object_get(root, "items"), i, pod)
	{
		r = r ?: add_pod(h, pod, port, err);
	}
	json_decref(root);
	return r;
}
