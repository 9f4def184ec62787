/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Parts of a recording that cannot be read: what is known about them, and how it is said. */
#include "memory/track/track_impl.h"

/* The rest of a checkpoint may be in it. */
static void leave_checkpoints(struct track *t)
{
	for (size_t i = 0; i < t->nprocs; i++)
		if (t->procs[i])
			checkpoint_release(t->procs[i]);
}

void damage_found(void *arg, uint64_t bytes)
{
	struct track *t = arg;

	t->damage.places++;
	t->damage.bytes += bytes;
	leave_checkpoints(t);
}

static bool lacks_session(const struct track *t)
{
	return !t->damage.has_session && (t->signs.processes || t->damage.orphans);
}

static bool lacks_cut(const struct track *t)
{
	return t->damage.version >= RECORDING_VERSION && !t->was_cut;
}

/* Its frames are whole, but some are missing. One that is there twice takes nothing away; those
 * that are not in their places count as missing. */
static bool lacks_frames(const struct track *t)
{
	const struct damage *d = &t->damage;

	return d->orphans || d->checkpoints || lacks_session(t) || lacks_cut(t);
}

bool track_is_read(const struct track *t)
{
	return !t->damage.places && !t->refused && !lacks_frames(t);
}

uint64_t track_unread(const struct track *t)
{
	return t->damage.bytes;
}

bool track_loss_is_known(const struct track *t)
{
	return !lacks_frames(t);
}

struct words {
	void (*note)(void *arg, const char *text);
	void *arg;
};

/* A sentence that begins with a number, unless that is 0. */
static void note_number(const struct words *w, uint64_t n, const char *one, const char *many)
{
	struct buf text = {0};

	buf_addf(&text, "%llu %s", (unsigned long long)n, n == 1 ? one : many);
	if (n)
		w->note(w->arg, buf_str(&text));
	buf_release(&text);
}

static void note_places(const struct words *w, const struct damage *d)
{
	struct buf text = {0};

	buf_addf(&text,
		 "The recording is damaged: %llu bytes in %llu place%s cannot be read and were "
		 "passed over. The events in them count as lost, and call stacks that were there "
		 "are shown as unknown.",
		 (unsigned long long)d->bytes, (unsigned long long)d->places,
		 d->places == 1 ? "" : "s");
	w->note(w->arg, buf_str(&text));
	buf_release(&text);
}

void track_damage_words(const struct track *t, void (*note)(void *arg, const char *text), void *arg)
{
	const struct damage *d = &t->damage;
	const struct words w = {note, arg};

	if (d->places)
		note_places(&w, d);
	if (d->places)
		note_number(
			&w, d->orphans,
			"event is left out: of which process it is was in a damaged part.",
			"events are left out: of which process they are was in a damaged part.");
	else
		note_number(&w, d->orphans,
			    "event is left out: the recording does not say of which process it is.",
			    "events are left out: the recording does not say of which process they "
			    "are.");
	note_number(&w, d->repeated,
		    "batch of events is in the recording twice, or not in its place, and was "
		    "passed over: the recording is damaged.",
		    "batches of events are in the recording twice, or not in their places, and "
		    "were passed over: the recording is damaged.");
	if (d->places && !d->has_session)
		note(arg, "What was asked for and the time of day were in a damaged part: times "
			  "count from the start of the machine.");
	else if (lacks_session(t))
		note(arg, "The recording does not say what was asked for, nor the time of day: it "
			  "is damaged, and times count from the start of the machine.");
	if (lacks_cut(t))
		note(arg, "The oldest part of the recording was dropped, and what is known about "
			  "it is missing: the recording is damaged, and blocks from before are not "
			  "included.");
	note_number(&w, d->checkpoints,
		    "process lacks the blocks that it had when the oldest part of the recording "
		    "was dropped: the recording is damaged.",
		    "processes lack the blocks that they had when the oldest part of the recording "
		    "was dropped: the recording is damaged.");
}
