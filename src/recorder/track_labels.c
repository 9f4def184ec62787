/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Owner labels: those a thread has pushed go with what it allocates, others are given to a block.
 */
#include "base/mem.h"
#include "recorder/track_proc.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LABELS 64 /* of one thread at a time */
#define NLEVELS 8

char *labels_owner(struct proc *p, uint32_t tid)
{
	struct thread *th = omap_get(&p->threads, tid);
	struct buf out = {0};

	if (!th || !th->nlabels)
		return NULL;
	for (unsigned level = 0; level < NLEVELS; level++)
		for (size_t i = 0; i < th->nlabels; i++)
			if (th->labels[i].level == level)
				buf_addf(&out, "%s%s", out.len ? "@" : "", th->labels[i].text);
	char *text = out.len ? xstrndup(out.data, out.len) : NULL;
	buf_release(&out);
	return text;
}

static struct thread *thread_of(struct proc *p, uint32_t tid)
{
	struct thread *th = omap_get(&p->threads, tid);

	if (!th) {
		th = xcalloc(1, sizeof(*th));
		omap_put(&p->threads, tid, th);
	}
	return th;
}

static void label_pop(struct thread *th, const char *text)
{
	for (size_t i = th->nlabels; i > 0; i--) {
		struct label *l = &th->labels[i - 1];
		if (strcmp(l->text, text) != 0)
			continue;
		free(l->text);
		memmove(l, l + 1, (th->nlabels - i) * sizeof(*l));
		th->nlabels--;
		return;
	}
}

/* As an attribute can hold it: a comma would begin the next one. */
static char *label_text(const char *text, size_t len)
{
	char *copy = xstrndup(text, len);

	for (char *c = copy; *c; c++)
		if (*c == ',' || (unsigned char)*c < ' ')
			*c = ';';
	return copy;
}

/* Takes text. The block that a pool cut out comes before the driver's block around it. */
static void label_block(struct proc *p, uint64_t addr, char *text)
{
	struct block *b = NULL;

	for (unsigned m = POOL_HAL + 1; !b && m < NMAPS; m++)
		b = block_around(p, m, addr);
	if (!b)
		b = block_around(p, POOL_HAL, addr);
	if (!b) {
		free(text);
		return;
	}
	free(b->owner);
	b->owner = text;
	b->labelled_late = b->written;
}

void labels_record(struct proc *p, uint32_t tid, const struct rec_label *r)
{
	size_t len;
	const char *raw = rec_text(&r->head, &len);
	char *text = label_text(raw, len);
	struct thread *th = thread_of(p, tid);

	if (r->kind == LABEL_PUSH && th->nlabels < MAX_LABELS) {
		th->labels =
			xgrow(th->labels, &th->cap_labels, th->nlabels + 1, sizeof(*th->labels));
		th->labels[th->nlabels++] = (struct label){r->level, text};
		text = NULL;
	} else if (r->kind == LABEL_POP) {
		label_pop(th, text);
	} else if (r->kind == LABEL_ADDR) {
		label_block(p, r->addr, text);
		text = NULL;
	}
	free(text);
}

static void free_thread(uint64_t key, void *value, void *arg)
{
	struct thread *th = value;

	(void)key;
	(void)arg;
	for (size_t i = 0; i < th->nlabels; i++)
		free(th->labels[i].text);
	free(th->labels);
	free(th);
}

void labels_release(struct proc *p)
{
	omap_each(&p->threads, free_thread, NULL);
	omap_release(&p->threads);
}
