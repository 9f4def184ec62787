/* SPDX-License-Identifier: MulanPSL-2.0 */
/* --use-fbrelay: records as JSON objects, one after another, over a TCP connection that stays. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/metrics/metrics.h"
#include "daemon/sinks/net.h"
#include "daemon/sinks/outbox.h"
#include "daemon/sinks/text.h"

#define MAX_QUEUE 1000
#define TIMEOUT_MS 5000
#define MAX_SAID 16 /* pieces of what the receiver says that are thrown away at once */

/* Belongs to the thread. */
struct relay {
	char *host;
	char port[8];
	struct net_target target;
	struct net_conn conn;
	struct fbrelay *sink;
};

struct fbrelay {
	struct sink sink;
	struct outbox *outbox;
	char hostname[256];
};

/* Whether the receiver has closed meanwhile: a write would still succeed, into nothing. What it
 * says is of no interest. */
static bool is_closed(const struct relay *r)
{
	char said[4096];
	ssize_t n = 1;

	for (int i = 0; n > 0 && i < MAX_SAID; i++)
		n = recv(r->conn.fd, said, sizeof(said), MSG_DONTWAIT);
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static int deliver(void *arg, const struct outbox_item *items, struct err *err)
{
	struct relay *r = arg;
	int e = 0;

	r->target.end_fd = outbox_end_fd(r->sink->outbox);
	if (r->conn.fd >= 0 && is_closed(r))
		net_close(&r->conn);
	if (r->conn.fd < 0)
		e = net_open(&r->target, &r->conn, err);
	else
		net_restart(&r->conn);
	for (; items && e == 0; items = items->next)
		e = net_write(&r->conn, items->data, items->bytes, err);
	if (e < 0)
		net_close(&r->conn);
	/* a batch of which a part arrived must not come again */
	return e;
}

static void end(void *arg)
{
	struct relay *r = arg;

	net_close(&r->conn);
	free(r->host);
	free(r->sink);
	free(r);
}

static void fbrelay_sample(struct sink *sink, const struct sample *s)
{
	struct fbrelay *f = (struct fbrelay *)sink;
	char time[SINK_TIME_BYTES], module[48];

	sink_time(s->time_ns, time);
	if (s->device == SAMPLE_NO_DEVICE)
		snprintf(module, sizeof(module), "dyno");
	else
		snprintf(module, sizeof(module), "dyno.device%lld", (long long)s->device);
	json_t *o = json_pack("{s:s, s:{s:s, s:s}, s:s, s:i, s:b, s:o}", "@timestamp", time,
			      "agent", "hostname", f->hostname, "type", "dyno", "event.module",
			      module, "backend", 0, "stack_metrics", 0, module, sink_record(s));
	char *text = o ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	if (text)
		outbox_put(f->outbox, text, strlen(text));
	free(text);
	json_decref(o);
}

static struct sink *fbrelay_open(struct daemon *d, bool *out_wanted, struct err *err)
{
	const struct daemon_config *c = d->config;

	*out_wanted = c->use_fbrelay;
	if (!*out_wanted)
		return NULL;
	struct fbrelay *f = xcalloc(1, sizeof(*f));
	struct relay *r = xcalloc(1, sizeof(*r));
	f->sink.ops = &sink_fbrelay;
	gethostname(f->hostname, sizeof(f->hostname) - 1);
	r->host = xstrdup(c->fbrelay_address);
	snprintf(r->port, sizeof(r->port), "%u", c->fbrelay_port);
	r->target = (struct net_target){r->host, r->port, NULL, TIMEOUT_MS, -1};
	r->conn.fd = -1;
	r->sink = f;
	struct outbox_options o = {
		.name = "the relay",
		.max_items = MAX_QUEUE,
		.delivered = &f->sink.delivered,
		.dropped = &f->sink.dropped,
		.deliver = deliver,
		.end = end,
		.arg = r,
	};
	if (outbox_new(&o, &f->outbox, err) == 0)
		return &f->sink;
	end(r);
	return NULL;
}

static void fbrelay_close(struct sink *sink)
{
	struct fbrelay *f = (struct fbrelay *)sink;

	outbox_free(f->outbox);
}

const struct sink_ops sink_fbrelay = {
	.name = "fbrelay",
	.open = fbrelay_open,
	.sample = fbrelay_sample,
	.close = fbrelay_close,
};
