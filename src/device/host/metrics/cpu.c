/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Processor time of /proc/stat: in percent of all ticks between two rounds, and in milliseconds; by
 * memory node, too, where there are several.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text/number_words.h"
#include "device/host/metrics/file.h"
#include "device/host/metrics/host.h"

#define MAX_CPUS 8192
#define MAX_NODES 64
#define NO_NODE 0xff

/* In the order of the file. The guest's ticks are in user and nice, too. */
enum tick { USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL, GUEST, GUEST_NICE, NTICKS };

struct ticks {
	uint64_t of[NTICKS];
};

struct node {
	unsigned number;
	struct ticks before, now;
	char user[24], system[24], idle[24]; /* names of its metrics */
};

struct host_cpu {
	struct kernel_file stat;
	struct ticks before;
	bool again; /* there was a round */
	uint64_t ticks_per_s;
	struct node *nodes; /* none: there is but one */
	unsigned nnodes;
	uint8_t node_of[MAX_CPUS]; /* index in nodes */
};

static void add_node(void *arg, unsigned number)
{
	struct host_cpu *c = arg;

	if (c->nnodes == MAX_NODES)
		return;
	struct node *n = &c->nodes[c->nnodes++];
	n->number = number;
	snprintf(n->user, sizeof(n->user), "cpu_u_node%u", number);
	snprintf(n->system, sizeof(n->system), "cpu_s_node%u", number);
	snprintf(n->idle, sizeof(n->idle), "cpu_i_node%u", number);
}

struct placing {
	struct host_cpu *cpu;
	unsigned node;
};

static void place_cpu(void *arg, unsigned number)
{
	struct placing *p = arg;

	p->cpu->node_of[number] = (uint8_t)p->node;
}

static void find_nodes(struct host_cpu *c, const char *root)
{
	char *online = kernel_text(root, "/sys/devices/system/node/online");
	char path[64];

	memset(c->node_of, NO_NODE, sizeof(c->node_of));
	c->nodes = xcalloc(MAX_NODES, sizeof(*c->nodes));
	if (online)
		kernel_list_each(online, UINT16_MAX, add_node, c);
	free(online);
	if (c->nnodes < 2)
		c->nnodes = 0;
	for (unsigned i = 0; i < c->nnodes; i++) {
		struct placing p = {.cpu = c, .node = i};

		snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist",
			 c->nodes[i].number);
		char *list = kernel_text(root, path);
		if (list)
			kernel_list_each(list, MAX_CPUS, place_cpu, &p);
		free(list);
	}
}

struct host_cpu *host_cpu_new(const char *root)
{
	struct host_cpu *c = xcalloc(1, sizeof(*c));
	long hz = sysconf(_SC_CLK_TCK);

	c->ticks_per_s = hz > 0 ? (uint64_t)hz : 100;
	kernel_file_init(&c->stat, root, "/proc/stat");
	find_nodes(c, root);
	return c;
}

void host_cpu_free(struct host_cpu *c)
{
	if (!c)
		return;
	kernel_file_release(&c->stat);
	free(c->nodes);
	free(c);
}

/* Old kernels end their lines earlier: what is not there stays 0. */
static bool take_ticks(const char *at, struct ticks *out)
{
	unsigned n = 0;

	*out = (struct ticks){0};
	while (n < NTICKS && kernel_number(&at, &out->of[n]))
		n++;
	return n > IDLE;
}

static void add_ticks(struct ticks *to, const struct ticks *t)
{
	for (unsigned i = 0; i < NTICKS; i++)
		to->of[i] += t->of[i];
}

/* Adds the lines "cpu0 …" to their nodes. */
static void count_cpu(struct host_cpu *c, const char *line)
{
	uint64_t number;
	struct ticks t;

	if (!kernel_number(&line, &number) || number >= MAX_CPUS || c->node_of[number] == NO_NODE ||
	    !take_ticks(line, &t))
		return;
	add_ticks(&c->nodes[c->node_of[number]].now, &t);
}

static bool parse_stat(struct host_cpu *c, const char *text, struct ticks *all)
{
	bool found = false;
	const char *line;
	size_t len;

	for (unsigned i = 0; i < c->nnodes; i++)
		c->nodes[i].now = (struct ticks){0};
	while ((line = kernel_line(&text, &len)) && !strncmp(line, "cpu", 3)) {
		if (line[3] == ' ')
			found = take_ticks(line + 3, all);
		else if (c->nnodes)
			count_cpu(c, line + 3);
	}
	return found;
}

/* What was added since `before`, without the guest's, which were counted already. */
static uint64_t difference(const struct ticks *now, const struct ticks *before, struct ticks *out)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < NTICKS; i++) {
		out->of[i] = kernel_counted(now->of[i], before->of[i]);
		if (i < GUEST)
			total += out->of[i];
	}
	return total;
}

static void emit_all(const struct host_cpu *c, const struct ticks *d, uint64_t total,
		     struct metric_list *out)
{
	static const struct {
		const char *name;
		enum tick tick;
	} times[] = {
		{"cpu_u_ms", USER},  {"cpu_s_ms", SYSTEM},    {"cpu_w_ms", IOWAIT},
		{"cpu_n_ms", NICE},  {"cpu_x_ms", IRQ},	      {"cpu_y_ms", SOFTIRQ},
		{"cpu_z_ms", STEAL}, {"cpu_guest_ms", GUEST}, {"cpu_guest_nice_ms", GUEST_NICE}};

	metric_list_float(out, "cpu_u", NULL, percent_of(d->of[USER], total));
	metric_list_float(out, "cpu_s", NULL, percent_of(d->of[SYSTEM], total));
	metric_list_float(out, "cpu_i", NULL, percent_of(d->of[IDLE], total));
	metric_list_float(out, "cpu_util", NULL, 100 - percent_of(d->of[IDLE], total));
	metric_list_float(out, "cpu_guest", NULL, percent_of(d->of[GUEST], total));
	metric_list_float(out, "cpu_guest_nice", NULL, percent_of(d->of[GUEST_NICE], total));
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		double ms = (double)d->of[times[i].tick] * 1000 / (double)c->ticks_per_s;

		metric_list_int(out, times[i].name, NULL, ms < 1e18 ? (int64_t)ms : INT64_MAX);
	}
}

static void emit_node(const struct node *n, struct metric_list *out)
{
	struct ticks d;
	uint64_t total = difference(&n->now, &n->before, &d);

	if (!total) /* a node without processors */
		return;
	metric_list_float(out, n->user, NULL, percent_of(d.of[USER], total));
	metric_list_float(out, n->system, NULL, percent_of(d.of[SYSTEM], total));
	metric_list_float(out, n->idle, NULL, percent_of(d.of[IDLE], total));
}

void host_cpu_read(struct host_cpu *c, struct metric_list *out)
{
	const char *text = kernel_file_read(&c->stat);
	struct ticks now, d;

	if (!text || !parse_stat(c, text, &now))
		return;
	uint64_t total = difference(&now, &c->before, &d);
	if (c->again && total) /* not if asked twice within a tick */
		emit_all(c, &d, total, out);
	for (unsigned i = 0; i < c->nnodes; i++) {
		if (c->again)
			emit_node(&c->nodes[i], out);
		c->nodes[i].before = c->nodes[i].now;
	}
	c->before = now;
	c->again = true;
}
