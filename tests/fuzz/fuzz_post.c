/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a receiver of metrics answers to a POST. Only HTTP with a status of 200 to 299 is success,
 * and every failure has words. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "daemon/sinks/receiver.h"
#include "peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct post *make_post(unsigned port)
{
	static struct post *post;
	char endpoint[64];
	struct post_options o = {.endpoint = endpoint, .path = "/v1/metrics", .timeout_ms = 60000};

	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", port);
	if (!post)
		BUG_ON(post_new(&o, &post, NULL) < 0);
	return post;
}

static bool is_success(const uint8_t *data, size_t size)
{
	return size >= 12 && !memcmp(data, "HTTP/1.", 7) && data[8] == ' ' && data[9] == '2';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct peer_answer answer = {(const char *)data, size};
	struct peer *peer = peer_get();
	struct buf body = {0};
	struct err err = {0};

	buf_add_str(&body, "{}");
	peer_describe(peer, &answer, 1);
	int r = post_send(make_post(peer->port), &body, -1, &err);
	BUG_ON(r == 0 && !is_success(data, size));
	BUG_ON(r < 0 && (!err.code || !*err.text));
	BUG_ON(r > 0 || r == -ECANCELED); /* nobody has asked it to end */
	peer_describe(peer, NULL, 0);
	buf_release(&body);
	return 0;
}
