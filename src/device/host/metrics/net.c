/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Traffic of each network interface since the round before, from /proc/net/dev. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/host/metrics/file.h"
#include "device/host/metrics/host.h"

#define NAME_BYTES 16 /* the kernel's own limit, with the NUL */
#define MAX_INTERFACES 4096

/* bytes, packets, errors, drops: received, then sent */
#define NCOUNTS 8

struct interface {
	char name[NAME_BYTES];
	uint64_t of[NCOUNTS];
};

struct interfaces {
	struct interface *list;
	size_t n, cap;
};

struct host_net {
	struct kernel_file dev;
	char *prefixes; /* or NULL */
	struct interfaces before, now;
	bool again;
};

struct host_net *host_net_new(const char *root, const char *prefixes)
{
	struct host_net *n = xcalloc(1, sizeof(*n));

	kernel_file_init(&n->dev, root, "/proc/net/dev");
	n->prefixes = prefixes ? xstrdup(prefixes) : NULL;
	return n;
}

void host_net_free(struct host_net *n)
{
	if (!n)
		return;
	kernel_file_release(&n->dev);
	free(n->prefixes);
	free(n->before.list);
	free(n->now.list);
	free(n);
}

static bool wanted(const char *prefixes, const char *name)
{
	if (!prefixes)
		return true;
	while (*prefixes) {
		size_t len = strcspn(prefixes, ",");

		if (len && !strncmp(name, prefixes, len))
			return true;
		prefixes += len + (prefixes[len] == ',');
	}
	return false;
}

/* "  eth0: rx bytes packets errs drop fifo frame compressed multicast tx bytes …" */
static bool parse_line(const char *line, size_t len, struct interface *out)
{
	const char *name = line + strspn(line, " \t");
	const char *colon = memchr(line, ':', len);
	uint64_t v;

	if (!colon || colon <= name || colon - name >= NAME_BYTES)
		return false;
	*out = (struct interface){0};
	memcpy(out->name, name, (size_t)(colon - name));
	const char *at = colon + 1;
	for (unsigned column = 0; column < 12; column++) {
		if (!kernel_number(&at, &v))
			return false;
		if (column % 8 < 4)
			out->of[column / 8 * 4 + column % 8] = v;
	}
	return true;
}

static void parse(struct host_net *n, const char *text)
{
	struct interface one;
	const char *line;
	size_t len;

	n->now.n = 0;
	while (n->now.n < MAX_INTERFACES && (line = kernel_line(&text, &len))) {
		if (!parse_line(line, len, &one) || !wanted(n->prefixes, one.name))
			continue;
		n->now.list = xgrow(n->now.list, &n->now.cap, n->now.n + 1, sizeof(one));
		n->now.list[n->now.n++] = one;
	}
}

/* Interfaces seldom come and go: nearly always it is in the same place. */
static const struct interface *find_nic(const struct interfaces *in, const char *name, size_t guess)
{
	if (guess < in->n && !strcmp(in->list[guess].name, name))
		return &in->list[guess];
	for (size_t i = 0; i < in->n; i++)
		if (!strcmp(in->list[i].name, name))
			return &in->list[i];
	return NULL;
}

void host_net_read(struct host_net *n, struct metric_list *out)
{
	static const char *const names[NCOUNTS] = {"rx_bytes",	"rx_packets", "rx_errors",
						   "rx_drops",	"tx_bytes",   "tx_packets",
						   "tx_errors", "tx_drops"};
	const char *text = kernel_file_read(&n->dev);

	if (!text)
		return;
	struct interfaces old = n->before;
	n->before = n->now;
	n->now = old;
	parse(n, text);
	for (size_t i = 0; n->again && i < n->now.n; i++) {
		const struct interface *now = &n->now.list[i];
		const struct interface *was = find_nic(&n->before, now->name, i);

		for (unsigned k = 0; k < NCOUNTS; k++)
			metric_list_uint(out, names[k], now->name,
					 was ? kernel_counted(now->of[k], was->of[k]) : 0);
	}
	n->again = true;
}
