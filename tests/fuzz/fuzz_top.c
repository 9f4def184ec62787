/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Messages of guests and recorders of ours: a line is a report of what takes time, or, if it begins
 * with '+', the keys that a guest supports. The daemon's reply can be printed and read by `sonde
 * top`, and memory is bounded whatever was sent.
 */
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/top/text.h"
#include "daemon/daemon.h"
#include "daemon/jobs/jobs.h"
#include "daemon/metrics/prometheus_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Everybody is the same process, as reports name it in the seeds. */
static struct jobs *make_jobs(struct event_base *base, const struct jobs_sender *from)
{
	struct jobs *j = jobs_new(base, 16);

	jobs_set_regression(j, 20);
	for (int32_t pid = 1; pid < 4; pid++)
		jobs_context(j, from, &(struct fabric_context){.pid = pid});
	return j;
}

static void show_reply(const char *text, size_t len)
{
	struct host_entry host = {.name = (char *)"h", .label = (char *)"h"};
	struct ctl_common common = CTL_COMMON_DEFAULTS;
	struct ctl c = {.hosts = {.v = &host, .n = 1}, .common = &common};
	struct client_group group = {.hosts = &c.hosts};
	struct client_answer answer = {.reply = json_loadb(text, len, 0, NULL)};
	struct top_view view = {.sort = {3, 2}, .filter = {.text = "k"}};
	struct top_display how = {
		.view = &view, .lines = 20, .width = 60, .rows = 9, .colours = true};
	struct buf out = {0};
	struct top_model m;

	top_model_make(&m, &group, &answer, "");
	top_text_answer(&m, &c, &how, &out);
	top_text_tables(&m, &c, &how, &out);
	json_t *o = top_text_json(&m, &c, &answer, &how);
	BUG_ON(!o);
	json_decref(o);
	top_model_release(&m);
	buf_release(&out);
	json_decref(answer.reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct event_base *base;
	static const struct jobs_address address = {.len = 20};
	struct jobs_sender from = {.endpoint = "dir", .guest = &address};
	struct buf lines = {0};
	struct prom_text e;

	log_set_level(LOG_ERROR);
	if (!base) {
		base = event_base_new();
		event_base_priority_init(base, DAEMON_PRIORITIES);
	}
	struct jobs *j = make_jobs(base, &from);
	for (size_t at = 0; at < size;) {
		const uint8_t *stop = memchr(data + at, '\n', size - at);
		size_t len = stop ? (size_t)(stop - data) - at : size - at;
		const char *line = (const char *)data + at;

		if (len && *line == '+')
			jobs_can(j, &from, line + 1, len - 1);
		else
			jobs_top(j, &from, line, len);
		at += len + 1;
	}
	json_t *request = json_object(), *reply = jobs_get_top(j, NULL, request);
	char *text = json_dumps(reply, JSON_COMPACT);
	BUG_ON(!text);
	show_reply(text, strlen(text));
	show_reply((const char *)data, size); /* a daemon that tells anything */
	prom_init(&e);
	jobs_add_top_metrics(j, &e);
	prom_print(&e, &lines);
	prom_release(&e);
	buf_release(&lines);
	free(text);
	json_decref(reply);
	json_decref(request);
	jobs_free(j);
	return 0;
}
