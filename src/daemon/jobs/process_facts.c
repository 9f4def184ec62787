/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Threads take questions until there are none and end. One that has been with the same question
 * for long counts as hanging, and the next question starts another, up to a few, and fewer for one
 * user: processes of his that hang their readers do not cost others theirs. What the threads
 * and the loop share is counted, and freed by the last to leave.
 */
#include "daemon/jobs/jobs_impl.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "base/background.h"
#include "base/broker.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/text/printable.h"
#include "unwind/remote/rank.h"
#include "wire/rank_env.h"

#define THREADS_MAX 8
#define THREADS_AT_ONCE 3 /* that get on; one takes some milliseconds for a process */
#define QUESTIONS_EACH 2 /* more than that for each thread: another one helps */
#define THREADS_PER_USER 3 /* that may hang with one user's processes */
#define NOBODY ((uid_t)-1)
#define WAIT_NS 15000000u /* clients of the fabric give up after 50 ms */
#define HANGS_NS 15000000u
#define COMMAND_BYTES 512
#define ENVIRON_BYTES 65536

struct question {
	STAILQ_ENTRY(question) next;
	pid_t pid;
	uid_t uid;
	uint64_t id;
	struct jobs_facts *facts;
};

STAILQ_HEAD(questions, question);

struct jobs_proc {
	pthread_mutex_t lock;
	pthread_cond_t answers;
	struct questions asked, answered;
	/* What each thread is reading: since when, 0: there is no such thread; and whose. */
	uint64_t began_ns[THREADS_MAX];
	uid_t uids[THREADS_MAX];
	unsigned unanswered; /* asked, or being read */
	unsigned since_wait; /* of these, asked since jobs_proc_wait() */
	unsigned users; /* the threads, and the loop */
	bool closed; /* the loop has left */
};

struct reader {
	struct jobs_proc *proc;
	unsigned slot; /* in began_ns */
};

/* --- reading --- */

/* Words separated by blanks; what a terminal would not show becomes '?'. */
static void add_command(struct buf *out, const char *command, size_t len)
{
	char words[COMMAND_BYTES + 1];

	while (len && !command[len - 1])
		len--;
	if (len > sizeof(words))
		len = sizeof(words);
	for (size_t i = 0; i < len; i++)
		words[i] = command[i] ? command[i] : ' ';
	text_add_printable(out, words, len);
}

struct jobs_facts *jobs_facts_new(const char *command, size_t len, const char *env, size_t env_len)
{
	struct buf words = {0};

	add_command(&words, command, len);
	struct jobs_facts *f = xmalloc(sizeof(*f) + words.len + 1);
	f->read_ms = 0;
	f->command_len = words.len;
	memcpy(f->command, buf_str(&words), words.len + 1);
	f->rank = rank_env_find(RANK_ENV_RANK, env, env_len);
	f->local_rank = rank_env_find(RANK_ENV_LOCAL_RANK, env, env_len);
	buf_release(&words);
	return f;
}

static struct jobs_facts *read_facts(pid_t pid)
{
	char command[COMMAND_BYTES + 1];
	char *env = xmalloc(ENVIRON_BYTES);
	ssize_t len = -1, env_len = -1;

	if (proc_is_ours()) { /* else the number is another's there */
		len = proc_read(pid, "cmdline", command, sizeof(command));
		env_len = proc_read(pid, "environ", env, ENVIRON_BYTES);
	}

	struct jobs_facts *f = jobs_facts_new(command, len > 0 ? (size_t)len : 0, env,
					      env_len > 0 ? (size_t)env_len : 0);
	free(env);
	return f;
}

/*
 * What the process knows itself: as `sonde snap` asks it (unwind/remote/rank.h). In the sandbox, and
 * of whom the kernel does not let us read, there is nothing more. NULL: that.
 */
static struct jobs_facts *read_live(pid_t pid, const struct jobs_facts *start)
{
	struct process_rank rank;

	if (!proc_is_ours() || broker_lives())
		return NULL;
	process_rank_find(pid, &rank);
	if (rank.rank == start->rank && rank.local_rank == start->local_rank)
		return NULL;
	size_t size = sizeof(*start) + start->command_len + 1;
	struct jobs_facts *f = xmalloc(size);
	memcpy(f, start, size);
	f->rank = rank.rank;
	f->local_rank = rank.local_rank;
	return f;
}

/* --- threads --- */

static void questions_free(struct questions *list)
{
	struct question *q;

	while ((q = STAILQ_FIRST(list))) {
		STAILQ_REMOVE_HEAD(list, next);
		free(q->facts);
		free(q);
	}
}

/* With the lock held, which is gone afterwards. */
static void release_user(struct jobs_proc *p)
{
	bool last = --p->users == 0;

	pthread_mutex_unlock(&p->lock);
	if (!last)
		return;
	questions_free(&p->asked);
	questions_free(&p->answered);
	pthread_cond_destroy(&p->answers);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static unsigned threads_of(const struct jobs_proc *p, uid_t uid)
{
	unsigned n = 0;

	for (int i = 0; i < THREADS_MAX; i++)
		n += p->began_ns[i] && p->uids[i] == uid;
	return n;
}

/* The next question; those of a user whose processes hang all threads that he may have wait. With
 * the lock held; NULL: none. */
static struct question *take_question(struct jobs_proc *p)
{
	struct question *q;

	STAILQ_FOREACH(q, &p->asked, next)
	if (threads_of(p, q->uid) < THREADS_PER_USER) {
		STAILQ_REMOVE(&p->asked, q, question, next);
		return q;
	}
	return NULL;
}

/* With the lock held. */
static void put_answer(struct jobs_proc *p, const struct question *q, struct jobs_facts *facts)
{
	struct question *a = xmalloc(sizeof(*a));

	*a = *q;
	a->facts = facts;
	STAILQ_INSERT_TAIL(&p->answered, a, next);
	pthread_cond_signal(&p->answers);
}

/* What /proc says comes first: it is there at once. */
static void answer_question(struct jobs_proc *p, const struct question *q)
{
	struct jobs_facts *facts = read_facts(q->pid);
	struct jobs_facts *copy = xmalloc(sizeof(*facts) + facts->command_len + 1);

	memcpy(copy, facts, sizeof(*facts) + facts->command_len + 1);
	pthread_mutex_lock(&p->lock);
	put_answer(p, q, copy);
	pthread_mutex_unlock(&p->lock);
	struct jobs_facts *live = read_live(q->pid, facts);
	pthread_mutex_lock(&p->lock);
	if (live)
		put_answer(p, q, live);
	p->unanswered--;
	pthread_cond_signal(&p->answers);
	pthread_mutex_unlock(&p->lock);
	free(facts);
}

static void answer_questions(void *arg)
{
	struct reader *r = arg;
	struct jobs_proc *p = r->proc;
	struct question *q;

	pthread_mutex_lock(&p->lock);
	/* between two questions it is nobody's */
	while (p->uids[r->slot] = NOBODY, !p->closed && (q = take_question(p))) {
		p->began_ns[r->slot] = clock_mono_ns();
		p->uids[r->slot] = q->uid;
		pthread_mutex_unlock(&p->lock);
		answer_question(p, q);
		free(q);
		pthread_mutex_lock(&p->lock);
	}
	p->began_ns[r->slot] = 0;
	free(r);
	release_user(p);
}

/* A slot for another thread. -1: there is none, or there are threads enough that get on. */
static int free_slot(const struct jobs_proc *p, uint64_t now_ns)
{
	unsigned busy = 0;
	int slot = -1;

	for (int i = 0; i < THREADS_MAX; i++)
		if (!p->began_ns[i])
			slot = slot < 0 ? i : slot;
		else if (now_ns - p->began_ns[i] < HANGS_NS)
			busy++;
	return busy < THREADS_AT_ONCE && p->unanswered > busy * QUESTIONS_EACH ? slot : -1;
}

/* With the lock held. */
static void start_thread(struct jobs_proc *p)
{
	uint64_t now = clock_mono_ns();
	int slot = free_slot(p, now);

	if (slot < 0)
		return;
	struct reader *r = xmalloc(sizeof(*r));
	*r = (struct reader){p, (unsigned)slot};
	p->began_ns[slot] = now;
	p->uids[slot] = NOBODY;
	p->users++;
	if (background_run("reading of processes", answer_questions, r) < 0) {
		p->began_ns[slot] = 0;
		p->users--;
		free(r);
	}
}

static bool all_hang(const struct jobs_proc *p, uint64_t now_ns)
{
	for (int i = 0; i < THREADS_MAX; i++)
		if (p->began_ns[i] && now_ns - p->began_ns[i] < HANGS_NS)
			return false;
	return true;
}

/* --- the loop's side --- */

struct jobs_proc *jobs_proc_new(void)
{
	struct jobs_proc *p = xcalloc(1, sizeof(*p));
	pthread_condattr_t attr;

	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->answers, &attr);
	pthread_condattr_destroy(&attr);
	STAILQ_INIT(&p->asked);
	STAILQ_INIT(&p->answered);
	p->users = 1;
	return p;
}

void jobs_proc_free(struct jobs_proc *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->closed = true;
	release_user(p);
}

void jobs_proc_ask(struct jobs_proc *p, pid_t pid, uid_t uid, uint64_t id)
{
	struct question *q = xcalloc(1, sizeof(*q));

	q->pid = pid;
	q->uid = uid;
	q->id = id;
	pthread_mutex_lock(&p->lock);
	STAILQ_INSERT_TAIL(&p->asked, q, next);
	p->unanswered++;
	p->since_wait++;
	start_thread(p);
	pthread_mutex_unlock(&p->lock);
}

void jobs_proc_wait(struct jobs_proc *p)
{
	uint64_t now = clock_mono_ns(), end = now + WAIT_NS;
	struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};

	pthread_mutex_lock(&p->lock);
	if (!STAILQ_EMPTY(&p->asked))
		start_thread(p); /* the one that had them may hang by now */
	unsigned before = p->unanswered > p->since_wait ? p->unanswered - p->since_wait : 0;
	while (p->unanswered > before && !all_hang(p, clock_mono_ns()))
		if (pthread_cond_timedwait(&p->answers, &p->lock, &until))
			break;
	p->since_wait = 0;
	pthread_mutex_unlock(&p->lock);
}

struct jobs_facts *jobs_proc_take(struct jobs_proc *p, pid_t *out_pid, uint64_t *out_id)
{
	struct jobs_facts *facts = NULL;

	pthread_mutex_lock(&p->lock);
	struct question *q = STAILQ_FIRST(&p->answered);
	if (q) {
		STAILQ_REMOVE_HEAD(&p->answered, next);
		facts = q->facts;
		*out_pid = q->pid;
		*out_id = q->id;
	}
	pthread_mutex_unlock(&p->lock);
	free(q);
	return facts;
}
