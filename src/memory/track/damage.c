/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Parts of a recording that cannot be read: what is known about them, and how it is said. */
#include "memory/track/track_impl.h"

/* The rest of a base may be in it. */
static void leave_bases(struct track *t)
{
	for (size_t i = 0; i < t->nprocs; i++)
		if (t->procs[i])
			base_release(t->procs[i]);
}

void damage_found(void *arg, uint64_t bytes)
{
	struct track *t = arg;

	t->damage.places++;
	t->damage.bytes += bytes;
	leave_bases(t);
}

bool track_is_read(const struct track *t)
{
	return !t->damage.places && !t->refused;
}

uint64_t track_unread(const struct track *t)
{
	return t->damage.bytes;
}

bool track_loss_is_known(const struct track *t)
{
	return !t->damage.orphans;
}

void track_damage_words(const struct track *t, void (*note)(void *arg, const char *text), void *arg)
{
	const struct damage *d = &t->damage;
	struct buf text = {0};

	if (!d->places)
		return;
	buf_addf(&text,
		 "The recording is damaged: %llu bytes in %llu place%s cannot be read and were "
		 "passed over. The events in them count as lost, and call stacks that were there "
		 "are shown as unknown.",
		 (unsigned long long)d->bytes, (unsigned long long)d->places,
		 d->places == 1 ? "" : "s");
	note(arg, buf_str(&text));
	if (d->orphans) {
		buf_clear(&text);
		buf_addf(&text,
			 "%llu events are left out: of which process they are was in a damaged "
			 "part.",
			 (unsigned long long)d->orphans);
		note(arg, buf_str(&text));
	}
	if (!d->has_session)
		note(arg, "What was asked for and the time of day were in a damaged part: times "
			  "count from the start of the machine.");
	buf_release(&text);
}
