/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/rounds/step_track.h"

#include <inttypes.h>
#include <stdio.h>

#define STEPS_TID (1 << 24) /* of no thread: Linux gives smaller numbers, and so do events */
#define SORT_INDEX (-2) /* above the main thread */

void step_track_name(const struct step_track *s, struct chrome_trace *into, int64_t pid)
{
	struct chrome_arg name = {.key = "name",
				  .type = CHROME_TEXT,
				  .text = s->guessed ? "steps, as samples show them" : "steps"};
	struct chrome_arg index = {.key = "sort_index", .type = CHROME_INT, .i = SORT_INDEX};

	if (!s->named)
		return;
	chrome_meta(into, pid, STEPS_TID, "thread_name", &name, 1);
	chrome_meta(into, pid, STEPS_TID, "thread_sort_index", &index, 1);
}

/* Several may have ended between two rounds: nobody knows when each of them did. */
static void write_bar(const struct step_track *s, struct chrome_trace *into, int64_t pid,
		      int64_t ended, int64_t ts_ns)
{
	int64_t first = s->ended + 1;
	char name[64];
	struct chrome_arg args[] = {
		{.key = "step", .type = CHROME_INT, .i = first},
		{.key = "steps", .type = CHROME_INT, .i = ended - s->ended},
	};

	if (s->guessed)
		snprintf(name, sizeof(name), "between two optimizer steps");
	else if (first == ended)
		snprintf(name, sizeof(name), "step %" PRId64, first);
	else
		snprintf(name, sizeof(name), "steps %" PRId64 " to %" PRId64, first, ended);
	chrome_complete(into, s->since_ns, ts_ns - s->since_ns, pid, STEPS_TID,
			s->guessed ? "sampled step" : "step", name, args, s->guessed ? 0 : 2);
}

void step_track_add(struct step_track *s, struct chrome_trace *into, int64_t pid, int64_t ended,
		    int64_t ts_ns)
{
	bool goes_on = s->known && ended > s->ended && ts_ns > s->since_ns;

	if (s->known && ended == s->ended)
		return;
	if (goes_on && s->bars) {
		if (!s->named) {
			s->named = true;
			step_track_name(s, into, pid);
		}
		write_bar(s, into, pid, ended, ts_ns);
	}
	/* Of a count that begins anew, or is new, nothing is known before it; what samples show has
	 * just ended. */
	s->bars = goes_on || s->guessed;
	s->known = true;
	s->ended = ended;
	s->since_ns = ts_ns;
}
