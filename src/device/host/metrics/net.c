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

struct host_net {
	struct kernel_file dev;
	char *prefixes; /* or NULL */
	struct kernel_rounds rounds;
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
	kernel_rounds_release(&n->rounds);
	free(n);
}

static bool is_wanted(const char *prefixes, const char *name)
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
static bool parse_line(const char *line, size_t len, struct kernel_row *out)
{
	const char *name = line + strspn(line, " \t");
	const char *colon = memchr(line, ':', len);
	uint64_t v;

	if (!colon || colon <= name || colon - name >= NAME_BYTES)
		return false;
	*out = (struct kernel_row){0};
	memcpy(out->name, name, (size_t)(colon - name));
	const char *at = colon + 1;
	for (unsigned column = 0; column < 12; column++) {
		if (!kernel_number(&at, &v))
			return false;
		if (column % 8 < 4)
			out->counts[column / 8 * 4 + column % 8] = v;
	}
	return true;
}

static void parse_interfaces(struct host_net *n, const char *text)
{
	struct kernel_row one;
	const char *line;
	size_t len;

	while (n->rounds.now.n < MAX_INTERFACES && (line = kernel_line(&text, &len)))
		if (parse_line(line, len, &one) && is_wanted(n->prefixes, one.name))
			kernel_rounds_add(&n->rounds, &one);
}

void host_net_read(struct host_net *n, struct metric_list *out)
{
	static const char *const names[NCOUNTS] = {"rx_bytes",	"rx_packets", "rx_errors",
						   "rx_drops",	"tx_bytes",   "tx_packets",
						   "tx_errors", "tx_drops"};
	const char *text = kernel_file_read(&n->dev);

	if (!text)
		return;
	kernel_rounds_begin(&n->rounds);
	parse_interfaces(n, text);
	for (size_t i = 0; n->again && i < n->rounds.now.n; i++) {
		const struct kernel_row *now = &n->rounds.now.list[i];
		const struct kernel_row *was = kernel_rounds_before(&n->rounds, now->name, i);

		for (unsigned k = 0; k < NCOUNTS; k++)
			metric_list_uint(out, names[k], now->name,
					 was ? kernel_counted(now->counts[k], was->counts[k]) : 0);
	}
	n->again = true;
}
