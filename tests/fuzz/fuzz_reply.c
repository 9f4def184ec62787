/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The control and a daemon that means harm: the client of the RPC, then what is made of its replies
 * for people and programs. An odd first byte: the rest is what the daemon sends to the first
 * connection. An even one: each line of it is the JSON of a reply, in a frame, to one connection.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ctl/request.h"
#include "net/rpc_frame.h"
#include "peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_BYTES 65536
#define MAX_REPLIES 8 /* that are followed; the next connection gets none */

/* --- what the daemon says --- */

struct script {
	struct buf bytes[MAX_REPLIES];
	struct peer_answer answers[MAX_REPLIES];
	size_t n;
};

static void script_add(struct script *s, const char *text, size_t len, bool framed)
{
	struct buf *b = &s->bytes[s->n];
	size_t begin = framed ? rpc_frame_begin(b) : 0;

	buf_add(b, text, len);
	if (framed)
		rpc_frame_end(b, begin);
	s->answers[s->n++] = (struct peer_answer){b->data, b->len};
}

static void script_read(struct script *s, const char *text, size_t len, bool framed)
{
	const char *const end = text + len;

	if (!framed)
		script_add(s, text, len, false);
	while (framed && text < end && s->n < MAX_REPLIES) {
		const char *line_end = memchr(text, '\n', (size_t)(end - text));

		line_end = line_end ? line_end : end;
		script_add(s, text, (size_t)(line_end - text), true);
		text = line_end + 1;
	}
}

static void script_release(struct script *s)
{
	for (size_t i = 0; i < s->n; i++)
		buf_release(&s->bytes[i]);
}

/* --- what is made of it --- */

/* Nothing that a terminal obeys, except the ends of lines. */
static void check_printable(const char *text, size_t len, bool lines)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		BUG_ON((c < ' ' && !(lines && c == '\n')) || c == 0x7f);
		BUG_ON(c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] < 0xa0);
	}
}

static void check_answer(const struct ctl *c, const struct client_answer *a)
{
	json_t *row = ctl_answer_json(c, 0, a);

	BUG_ON(!row);
	BUG_ON(!a->reply && (!a->err.code || !*a->err.text));
	BUG_ON(a->reply && (!json_is_object(a->reply) || !a->raw));
	if (a->raw)
		check_printable(a->raw, strlen(a->raw), false);
	json_decref(row);
}

static void check_outcome(const json_t *reply)
{
	struct profiler_outcome o = profiler_outcome_read(reply);
	struct buf words = {0};

	BUG_ON(o.state >= PROFILER_STATES || !profiler_state_names[o.state]);
	BUG_ON((o.state == PROFILER_FAILED) != !reply);
	for (int kind = PROFILER_GPUTRACE;
	     kind <= PROFILER_NPU_MONITOR && o.state != PROFILER_TRIGGERED; kind++) {
		buf_clear(&words);
		ctl_outcome_why((enum profiler_kind)kind, &o, reply, reply, "dyno", &words);
		json_t *note = json_stringn(buf_str(&words), words.len);
		BUG_ON(!note);
		json_decref(note);
	}
	ctl_outcome_rest(&o, 3, &words);
	buf_release(&words);
}

static void ask_once(struct ctl *c)
{
	struct client_answer *answers = client_answers_new(&c->group);
	struct err err = {0};

	BUG_ON(client_ask_all(&c->group, json_pack("{s:s}", "fn", "getStatus"), answers, &err) < 0);
	check_answer(c, answers);
	check_outcome(answers->reply);
	client_answers_free(&c->group, answers);
}

static void list_processes(struct ctl *c)
{
	struct client_answer *answers = client_answers_new(&c->group);
	const char *titles[TABLE_COLUMNS + 1];
	struct table t = {.titles = titles};
	json_t *list = NULL, *process;
	struct buf text = {0};
	struct err err = {0};
	size_t i;

	ctl_set_titles(ctl_process_columns, false, false, titles);
	BUG_ON(client_list_processes(&c->group, json_object(), &list, answers, &err) < 0);
	check_answer(c, answers);
	BUG_ON(!list != !answers->reply);
	json_array_foreach(list, i, process) ctl_add_process(c, 0, process, &t);
	table_print(&t, 0, &text);
	table_print(&t, 40, &text);
	check_printable(text.data, text.len, true);
	table_release(&t);
	buf_release(&text);
	json_decref(list);
	client_answers_free(&c->group, answers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct ctl_common common = {.timeout_s = 60};
	static struct ctl c = {.common = &common,
			       .group = {.hosts = &c.hosts, .timeout_ms = 60000}};
	struct peer *peer = peer_get();
	struct script s = {0};

	if (!size || size > MAX_BYTES)
		return 0;
	if (!c.hosts.n)
		BUG_ON(host_list_add(&c.hosts, "127.0.0.1", peer->port, NULL) < 0);
	script_read(&s, (const char *)data + 1, size - 1, !(data[0] & 1));
	peer_describe(peer, s.answers, s.n);
	ask_once(&c);
	peer_describe(peer, s.answers, s.n);
	list_processes(&c);
	peer_describe(peer, NULL, 0);
	script_release(&s);
	return 0;
}
