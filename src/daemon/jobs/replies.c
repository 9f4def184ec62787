/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What guests say to the orders they were given: done, or why not. Frameworks never say anything;
 * who gave an order asks for this some moments later.
 */
#include <stdlib.h>
#include <string.h>

#define LOG_AREA "jobs"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"

#define MAX_WORDS 256
#define MAX_COMPLAINTS 4 /* about one order that are worth a line: anybody can say anything */

/* Of a text from outside, what can be shown. */
static char *words_of(const char *text, size_t len)
{
	size_t n = len < MAX_WORDS ? len : MAX_WORDS;

	/* not in the middle of a character */
	for (int i = 0; n < len && n && i < 3 && ((unsigned char)text[n] & 0xc0) == 0x80; i++)
		n--;
	char *words = xstrndup(text, n);
	for (char *p = words; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	/* JSON takes nothing that is no text */
	json_t *valid = json_string(words);
	if (!valid)
		for (char *p = words; *p; p++)
			if ((unsigned char)*p >= 0x80)
				*p = '?';
	json_decref(valid);
	return words;
}

static void note(struct jobs_process *p, uint64_t id, const char *words, size_t len)
{
	struct jobs_guest *g = p->guest;

	if (!g || !id || g->asked_id != id)
		return;
	free(g->said);
	g->said = NULL;
	g->said_id = id;
	g->did = !len || *words == '+';
	if (!len)
		return;
	g->said = words_of(words + g->did, len - g->did);
	if (g->did || g->complaints == MAX_COMPLAINTS)
		return;
	g->complaints++;
	log_warn("process %d did not carry out its order: %s", (int)p->pid, g->said);
}

bool jobs_said(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len)
{
	const char *space = memchr(text, ' ', len);

	if (!from->guest || !from->pid || !space || space - text > 20)
		return false;
	char digits[24] = "";
	memcpy(digits, text, (size_t)(space - text));
	uint64_t id = strtoull(digits, NULL, 10);
	size_t rest = len - (size_t)(space + 1 - text);
	struct jobs_peer *peer = hmap_get_ptr(&j->peers, (uint64_t)from->pid);
	for (struct jobs_process *p = peer ? peer->first : NULL; p; p = p->peer_next)
		note(p, id, space + 1, rest);
	return peer != NULL;
}

void jobs_asked(struct jobs_process *p, uint64_t id)
{
	if (!p->guest)
		return;
	p->guest->asked_id = id;
	p->guest->complaints = 0;
}

struct answers {
	json_int_t done;
	json_t *failed, *waiting, *told;
};

static void add(const struct jobs_process *p, uint64_t id, struct answers *out)
{
	const struct jobs_guest *g = p->guest;

	if (!g || g->asked_id != id)
		return;
	if (g->said_id != id) {
		json_array_append_new(out->waiting, json_integer(p->pid));
		return;
	}
	out->done += g->did;
	if (g->said)
		json_array_append_new(g->did ? out->told : out->failed,
				      json_pack("{sIss}", "pid", (json_int_t)p->pid,
						g->did ? "what" : "why", g->said));
}

json_t *jobs_answers(const struct jobs *j, const json_t *request)
{
	const char *text = json_string_value(json_object_get(request, "request"));
	struct answers all = {
		.failed = json_array(), .waiting = json_array(), .told = json_array()};
	uint64_t id = text ? strtoull(text, NULL, 10) : 0, key, value;
	size_t at = 0;

	while (id && hmap_next(&j->processes, &at, &key, &value))
		for (const struct jobs_process *p = (struct jobs_process *)(uintptr_t)value; p;
		     p = p->hash_next)
			add(p, id, &all);
	return json_pack("{sIsososo}", "done", all.done, "failed", all.failed, "told", all.told,
			 "waiting", all.waiting);
}
