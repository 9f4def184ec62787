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
#include "daemon/sinks/receiver.h"
#include "daemon/sinks/sink.h"

#define MAX_QUEUE 1000
#define TIMEOUT_MS 5000
#define MAX_IGNORED 16 /* pieces of what the receiver sends that are dropped at once */

struct fbrelay {
	struct sink sink;
	char hostname[256];
	/* of the thread */
	char *host;
	char port[8];
	struct receiver target;
	struct receiver_conn conn;
};

/* Whether the receiver has closed meanwhile: a write would still succeed, into nothing. What it
 * sends is ignored. */
static bool is_closed(const struct fbrelay *f)
{
	char received[4096];
	ssize_t n = 1;

	for (int i = 0; n > 0 && i < MAX_IGNORED; i++)
		n = recv(f->conn.fd, received, sizeof(received), MSG_DONTWAIT);
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static int deliver_samples(void *arg, const struct outbox_item *items, struct err *err)
{
	struct fbrelay *f = arg;
	int e = 0;

	f->target.end_fd = outbox_end_fd(f->sink.outbox);
	if (f->conn.fd >= 0 && is_closed(f))
		receiver_close(&f->conn);
	if (f->conn.fd < 0)
		e = receiver_connect(&f->target, &f->conn, err);
	else
		receiver_restart(&f->conn);
	for (; items && e == 0; items = items->next)
		e = receiver_write(&f->conn, items->data, items->bytes, err);
	if (e < 0)
		receiver_close(&f->conn);
	/* a batch of which a part arrived must not come again */
	return e;
}

static void end_fbrelay(void *arg)
{
	struct fbrelay *f = arg;

	receiver_close(&f->conn);
	free(f->host);
	free(f);
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
		outbox_put(f->sink.outbox, text, strlen(text));
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
	f->sink.ops = &sink_fbrelay;
	gethostname(f->hostname, sizeof(f->hostname) - 1);
	f->host = xstrdup(c->fbrelay_address);
	snprintf(f->port, sizeof(f->port), "%u", c->fbrelay_port);
	f->target = (struct receiver){f->host, f->port, NULL, TIMEOUT_MS, -1};
	f->conn.fd = -1;
	struct outbox_options o = {.name = "the relay",
				   .max_items = MAX_QUEUE,
				   .deliver = deliver_samples,
				   .end = end_fbrelay};
	return sink_start(&f->sink, o, err);
}

const struct sink_ops sink_fbrelay = {
	.name = "fbrelay",
	.open = fbrelay_open,
	.sample = fbrelay_sample,
};
