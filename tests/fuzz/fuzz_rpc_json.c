/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The text of a request: parsed, carried out if there is such a function, answered. What is parsed
 * and printed again is parsed to the same.
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "daemon/jobs/jobs.h"
#include "daemon/rpc/api.h"
#include "wire/rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct daemon *make_daemon(void)
{
	static struct daemon_config config;
	static struct daemon d;

	if (d.base)
		return &d;
	d.base = event_base_new();
	BUG_ON(!d.base);
	d.config = &config;
	d.jobs = jobs_new(d.base, 16);
	return &d;
}

/* The deepest level, by descending: the parser counted bytes. */
static unsigned depth_of(json_t *value)
{
	unsigned deepest = 0, depth;
	json_t *member;
	const char *key;
	size_t i;

	if (!json_is_array(value) && !json_is_object(value))
		return 0;
	json_array_foreach(value, i, member) deepest =
		(depth = depth_of(member)) > deepest ? depth : deepest;
	json_object_foreach(value, key, member) deepest =
		(depth = depth_of(member)) > deepest ? depth : deepest;
	return deepest + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct daemon *d = make_daemon();
	struct buf text = {0}, again = {0};
	struct err err = {0};

	if (size > RPC_REQUEST_MAX)
		return 0;
	json_t *request = api_parse((const char *)data, size, &err);
	if (!request) {
		BUG_ON(!err.code || !err.text[0]);
		return 0;
	}
	BUG_ON(!json_object_get(request, "fn") || depth_of(request) > RPC_DEPTH_MAX);
	api_print(request, &text);
	json_t *copy = api_parse(text.data, text.len, &err);
	BUG_ON(!copy);
	api_print(copy, &again);
	BUG_ON(text.len != again.len || memcmp(text.data, again.data, text.len));
	const struct access_grant who = {.right = (enum access_right)(size % 4),
					 .uid = 1,
					 .command_lines = size & 4,
					 .why = "nobody",
					 .self = 1};
	json_t *reply = api_call(d, &who, request);
	if (reply) {
		buf_clear(&text);
		api_print(reply, &text);
		BUG_ON(!text.len);
	}
	json_decref(reply);
	json_decref(copy);
	json_decref(request);
	buf_release(&text);
	buf_release(&again);
	return 0;
}
