/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/watch.h"

#include "base/clock.h"

static int ask_round(struct client_group *g, bool ranks, struct client_round *r, struct err *err)
{
	json_t *list = json_pack("{s:s, s:i}", "fn", "listProcesses", "limit",
				 ranks || g->hosts->n == 1 ? WATCH_PROCESSES_MAX : 0);

	r->status = client_answers_new(g);
	r->processes = client_answers_new(g);
	int first = client_ask_all(g, json_pack("{s:s}", "fn", "getStatus"), r->status, err);
	int second = client_ask_all(g, list, r->processes, first == 0 ? err : NULL);
	if (ranks) {
		r->top = client_answers_new(g);
		(void)client_ask_all(g, json_pack("{s:s, s:i}", "fn", "getTop", "limit", 1), r->top,
				     NULL);
	}
	return first < 0 ? first : second;
}

int client_watch(struct client_group *g, const struct client_watch *w, struct err *err)
{
	bool more = true;
	int code = 0;

	for (unsigned i = 1; more && code == 0; i++) {
		uint64_t next = clock_mono_ns() + w->interval_s * 1000000000ull;
		struct client_round r = {0};

		code = ask_round(g, w->ranks, &r, err);
		more = code == 0 && w->show(w->arg, &r);
		client_answers_free(g, r.status);
		client_answers_free(g, r.processes);
		client_answers_free(g, r.top);
		more = more && i != w->rounds && w->wait(w->arg, next);
	}
	return code;
}
