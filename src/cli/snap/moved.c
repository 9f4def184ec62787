/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/snap/moved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/sparkline.h"

static uint64_t mix(uint64_t hash, uint64_t v)
{
	return (hash ^ v) * 0x9e3779b97f4a7c15ull + (hash >> 29);
}

/* A call that began or ended, or another instruction, is another place. */
static uint64_t find_place(const struct snap_thread *t)
{
	uint64_t hash = t->nframes;

	for (unsigned i = 0; i < t->nframes; i++) {
		hash = mix(hash, t->frames[i].code ^ t->frames[i].address);
		hash = mix(hash, (uint64_t)t->frames[i].lasti << 32 | (uint32_t)t->frames[i].line);
	}
	return hash;
}

static const struct moved_process *find_before(const struct moved *m, pid_t pid)
{
	for (unsigned i = 0; i < m->nbefore; i++)
		if (m->before[i].pid == pid)
			return &m->before[i];
	return NULL;
}

void moved_note(struct moved *m, const struct snapshot *s)
{
	struct moved_process *now = xcalloc(s->nprocesses + 1, sizeof(*now));
	unsigned n = 0;

	m->n = m->of = 0;
	for (unsigned i = 0; i < s->nprocesses; i++) {
		const struct snap_process *p = &s->processes[i];

		if (!p->counts || p->first_thread == SNAP_NONE)
			continue;
		now[n] = (struct moved_process){p->pid, find_place(&s->threads[p->first_thread]),
						p->steps};
		const struct moved_process *was = find_before(m, p->pid);
		m->of += was != NULL;
		m->n += was && (was->place != now[n].place || was->steps != now[n].steps);
		n++;
	}
	free(m->before);
	m->before = now;
	m->nbefore = n;
	if (!m->of)
		return;
	if (m->rounds == MOVED_ROUNDS)
		memmove(m->permille, m->permille + 1, --m->rounds * sizeof(m->permille[0]));
	m->permille[m->rounds++] = 1000ull * m->n / m->of;
}

void moved_add_line(const struct moved *m, unsigned width, struct buf *out)
{
	char words[64];
	int len = snprintf(words, sizeof(words), "%u of %u moved since the snapshot before: ", m->n,
			   m->of);
	unsigned room = width > (unsigned)len + 1 ? width - (unsigned)len - 1 : 0;
	size_t shown = m->rounds < room ? m->rounds : room;

	if (!m->of || !shown)
		return;
	buf_add_str(out, words);
	text_add_sparkline(out, m->permille + m->rounds - shown, shown, room, 1000);
	buf_add_char(out, '\n');
}

void moved_release(struct moved *m)
{
	free(m->before);
}
