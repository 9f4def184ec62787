/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Requests to a group of hosts, all at once, and their answers: the control's view of client.h.
 * Each array has an element for every host of the group. Functions fail only if no host could be
 * asked; a host that fails has an answer without a reply.
 */
#ifndef SONDE_CLIENT_CALL_HOSTS_H
#define SONDE_CLIENT_CALL_HOSTS_H

#include <jansson.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "client/hosts.h"

struct client_group {
	const struct host_list *hosts;
	SSL_CTX *tls; /* NULL: plain */
	unsigned timeout_ms;
	/* Called as answers come in; may be NULL. */
	void (*progress)(void *arg, size_t done, size_t total);
	void *arg;
	unsigned
		max_in_flight; /* hosts that are asked at a time; 0: as many as there may be files */
};

struct client_answer {
	json_t *reply; /* an object; NULL: it failed */
	char *raw; /* the same as it came, in one line and fit for a terminal */
	size_t raw_bytes; /* as they came */
	struct err err; /* why it failed */
	double seconds;
	uint64_t asked_ns, answered_ns; /* as of struct client_call */
};

struct client_answer *client_answers_new(const struct client_group *g);
/* Those of client_answers_new(); NULL is allowed. */
void client_answers_free(const struct client_group *g, struct client_answer *answers);

/* Whether the object has this text at the key. */
bool client_text_is(const json_t *o, const char *key, const char *text);
/* How many processes that were asked for belong to other users and were left out of the reply. */
size_t client_count_others(const json_t *reply);

/* requests[i] is for host i, NULL for one that is left out, whose answer stays as it is. */
int client_ask(struct client_group *g, json_t *const *requests, struct client_answer *answers,
	       struct err *err);
/* The same request for all; takes the reference. */
int client_ask_all(struct client_group *g, json_t *request, struct client_answer *answers,
		   struct err *err);

/*
 * All processes of all hosts, page by page. lists[i] becomes the array of host i, NULL where it
 * failed; `answers` holds the last page of each. `filter` (taken) has the keys that narrow it.
 */
int client_list_processes(struct client_group *g, json_t *filter, json_t **lists,
			  struct client_answer *answers, struct err *err);

/*
 * What processes reply to the requests that `answers` name, for at most `ms`: libraries of ours
 * reply within moments, and only they do. replies[i] has no reply where no process got a request.
 */
int client_wait_replies(struct client_group *g, unsigned ms, const struct client_answer *answers,
			struct client_answer *replies, struct err *err);

#endif
