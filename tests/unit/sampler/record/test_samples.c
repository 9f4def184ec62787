/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/record/samples.h"

#include "base/containers/intern.h"
#include "recorder/consumer.h"
#include "test.h"
#include "wire/record.h"

#define TEXT(s) intern(s, strlen(s))

/* A process of one thread, of which a test says what is on its stack. */
struct world {
	struct samples *samples;
	struct python_process python;
	struct python_thread thread;
	struct stack_frame frames[8];
	struct target target;
	struct buf out;
};

static void world_new(struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->samples = samples_new();
	w->python = (struct python_process){.threads = &w->thread, .nthreads = 1};
	w->thread = (struct python_thread){.serial = 1,
					   .inner_tid = 5,
					   .main = true,
					   .name = TEXT("MainThread"),
					   .frames = w->frames};
	w->target = (struct target){.pid = 41,
				    .serial = 7,
				    .rank = 3,
				    .python = &w->python,
				    .cmdline = (char *)(uintptr_t) "python t.py"};
}

/* "main f g": what its thread is in, of which the first `kept` go on. */
static void look(struct world *w, uint64_t ns, const char *stack, unsigned kept)
{
	unsigned n = 0;

	for (const char *p = stack; *p; n++) {
		size_t len = strcspn(p, " ");

		w->frames[n] = (struct stack_frame){
			.name = intern(p, len), .file = TEXT("t.py"), .first_line = 10 + (int)n};
		p += len + (p[len] == ' ');
	}
	w->thread.nframes = n;
	w->thread.kept = kept;
	w->thread.time_ns = w->python.time_ns = ns;
	samples_add(w->samples, &w->target, &w->out);
}

/* The records so far as text; they are forgotten. */
static const char *told(struct world *w)
{
	static char text[2048];
	char *to = text;

	*to = '\0';
	for (size_t at = 0; at < w->out.len;) {
		const struct rec *r = (const struct rec *)(w->out.data + at);
		const struct rec_frame *f = (const struct rec_frame *)r;
		const struct rec_sample *s = (const struct rec_sample *)r;
		const struct rec_sampled *who = (const struct rec_sampled *)r;
		size_t len;
		const char *words = rec_text(r, &len);

		CHECK(rec_check(r, w->out.len - at));
		if (r->type == REC_FRAME)
			to += sprintf(to, "%u=%s<%u ", f->id, words, f->caller);
		else if (r->type == REC_SAMPLE)
			to += sprintf(to, "%u.%u:%u/%u ", s->pid, s->tid, s->frame,
				      s->flags >> SAMPLE_KEPT_SHIFT);
		else
			to += sprintf(to, "%u.%u(%d)%.*s ", who->pid, who->tid, who->rank, (int)len,
				      words);
		at += r->size;
	}
	buf_clear(&w->out);
	return text;
}

static void world_free(struct world *w)
{
	samples_free(w->samples);
	buf_release(&w->out);
}

/* A stack is its innermost call; what has not changed is told now and then. */
TEST(samples, stacks_are_calls_with_callers)
{
	struct world w;

	world_new(&w);
	look(&w, 1000, "main f", 0);
	CHECK_STR(told(&w), "5.0(3)python t.py 5.5(-1)MainThread 1=main<0 2=f<1 5.5:2/0 ");
	look(&w, 2000, "main f", 2);
	CHECK_STR(told(&w), "");
	look(&w, 3000, "main f", 1); /* called once more */
	CHECK_STR(told(&w), "5.5:2/1 ");
	look(&w, 4000, "main f g", 2);
	CHECK_STR(told(&w), "3=g<2 5.5:3/2 ");
	look(&w, 5000, "main", 1);
	CHECK_STR(told(&w), "5.5:1/1 ");
	look(&w, 2000000000, "main", 1);
	CHECK_STR(told(&w), "5.5:1/1 ");
	world_free(&w);
}

TEST(samples, what_has_ended)
{
	struct world w;

	world_new(&w);
	look(&w, 1000, "main", 0);
	(void)told(&w);
	samples_end_all(w.samples, 2000, &w.out);
	CHECK_STR(told(&w), "5.5:0/0 ");
	look(&w, 3000, "main", 1);
	CHECK_STR(told(&w), "5.5(-1)MainThread 5.5:1/1 ");
	samples_gone(w.samples, &w.target, 4000, &w.out);
	CHECK_STR(told(&w), "5.5:0/0 ");
	world_free(&w);
}

/* Also where no label changes with it; one whose children have ended remains a launcher. */
TEST(samples, a_launcher_remains_one)
{
	struct world w;

	world_new(&w);
	w.target.rank = -1;
	look(&w, 1000, "main", 0);
	(void)told(&w);
	w.target.role = ROLE_LAUNCHER;
	look(&w, 2000, "main", 1);
	CHECK_INT(((const struct rec_sampled *)(const void *)w.out.data)->role, SAMPLED_LAUNCHER);
	CHECK_STR(told(&w), "5.0(-1)python t.py ");
	w.target.role = ROLE_RANK;
	w.target.rank = 0;
	look(&w, 3000, "main", 1);
	CHECK_STR(told(&w), "");
	world_free(&w);
}

static int keep_batch(void *arg, const void *payload, size_t bytes)
{
	const struct batch_item *it = payload;

	CHECK(it->kind == BATCH_RUN && it->proc == PROC_NONE && it->bytes == bytes);
	buf_add(arg, it + 1, bytes - sizeof(*it));
	return 0;
}

/* Behind a cut every call that a sample may name is known, and where each thread was. */
TEST(samples, checkpoint_of_what_is_dropped)
{
	struct world w;
	void *checkpoint = samples_checkpoint.open();
	const char *end;

	world_new(&w);
	look(&w, 1000, "main f", 0);
	look(&w, 2000, "main f g", 2);
	look(&w, 3000, "main", 1);
	for (size_t at = 0; at < w.out.len;) {
		const struct rec *r = (const struct rec *)(w.out.data + at);

		samples_checkpoint.stream->record(checkpoint, PROC_NONE, 0, r);
		at += r->size;
	}
	buf_clear(&w.out);
	CHECK_INT(samples_checkpoint.write(checkpoint, keep_batch, &w.out), 0);
	const char *text = told(&w);
	CHECK(!strncmp(text, "1=main<0 2=f<1 3=g<2 ", 21));
	CHECK(strstr(text, "5.0(3)python t.py ") && strstr(text, "5.5(-1)MainThread "));
	end = text + strlen(text) - strlen("5.5:1/1 ");
	CHECK_STR(end, "5.5:1/1 ");
	samples_checkpoint.close(checkpoint);
	world_free(&w);
}
