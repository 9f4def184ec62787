/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Replies of guests, and of their recorder about files, to a request with the number 7: any bytes,
 * a line each. The daemon reports them as JSON of bounded length, and `nputrace --stop` makes rows of it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "client/stop_trace.h"
#include "daemon/daemon.h"
#include "daemon/jobs/jobs_impl.h"

#define MOST_WORDS 1600 /* of two guests, 256 bytes each, as JSON escapes them */

#define MOST_FILES (6 * 4400) /* the same of where they are */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Two guests of one process: each reply comes from both. */
static void add_guests(struct jobs *j, const struct jobs_sender *from)
{
	for (int64_t job = 0; job < 2; job++) {
		int code = 0;
		struct jobs_process *p = jobs_register(j, from, job, from->pid, &code);

		BUG_ON(!p || !p->guest);
		jobs_expect_reply(p, &(struct jobs_config){.id = 7, .is_npu_trace = true});
	}
}

static void reply(struct jobs *j, const struct jobs_sender *from, const uint8_t *line, size_t len)
{
	/* In memory of its exact length, so that a step beyond it shows. */
	char *copy = xmalloc(len ? len : 1);

	if (len)
		memcpy(copy, line, len);
	jobs_replied(j, from, copy, len);
	jobs_files(j, from, copy, len);
	free(copy);
	/* the same as the word of a recorder about this process */
	char *files = xasprintf("%d %.*s", (int)from->pid, (int)len, (const char *)line);
	jobs_files(j, from, files, strlen(files));
	free(files);
}

static void check_replies(struct jobs *j)
{
	json_t *request = json_pack("{ss}", "request", "7"),
	       *said = jobs_get_replies(j, NULL, request);
	json_t *reply = json_pack("{s[i]}", "processesMatched", 1);
	size_t n = 0;

	char *text = json_dumps(said, JSON_COMPACT | JSON_ENSURE_ASCII);
	BUG_ON(!text || strlen(text) > 2 * (MOST_WORDS + MOST_FILES) + 512);
	size_t reported = json_array_size(json_object_get(said, "told")) +
			  json_array_size(json_object_get(said, "failed")) +
			  json_array_size(json_object_get(said, "waiting"));
	BUG_ON(reported > 2);
	struct stopped_process *rows = stop_trace_read(reply, said, &n);
	BUG_ON(!n || n > 3);
	for (size_t i = 0; i < n; i++)
		BUG_ON(rows[i].end >= TRACE_ENDS || !rows[i].words);
	free(rows);
	free(text);
	json_decref(request);
	json_decref(said);
	json_decref(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct event_base *base;
	static const struct jobs_address address = {.len = 20};
	struct jobs_sender from = {
		.pid = getpid(), .uid = getuid(), .endpoint = "dir", .guest = &address};

	log_set_level(LOG_ERROR);
	if (!base) {
		base = event_base_new();
		event_base_priority_init(base, DAEMON_PRIORITIES);
	}
	struct jobs *j = jobs_new(base, 16);
	reply(j, &from, data, size); /* nobody is there yet */
	add_guests(j, &from);
	check_replies(j);
	for (size_t at = 0; at < size;) {
		const uint8_t *stop = memchr(data + at, '\n', size - at);
		size_t len = stop ? (size_t)(stop - data) - at : size - at;

		reply(j, &from, data + at, len);
		check_replies(j);
		at += len + 1;
	}
	reply(j, &from, data, size); /* with newlines in it */
	check_replies(j);
	jobs_free(j);
	return 0;
}
