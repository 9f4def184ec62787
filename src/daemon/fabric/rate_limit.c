/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/fabric/fabric_impl.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"

#define NS_PER_S 1000000000u
#define PROCESS_SLOTS 1024u
#define PROCESS_PROBES 8u

struct bucket {
	uint32_t tokens;
	uint32_t rate; /* tokens a second, and as many at most */
	uint64_t filled_ns; /* when tokens were last added */
};

struct fabric_user {
	struct bucket buckets[FABRIC_LIMIT_CLASSES];
};

struct fabric_process {
	pid_t pid;
	uid_t uid;
	struct bucket bucket;
};

static struct bucket full_bucket(uint32_t rate, uint64_t now_ns)
{
	return (struct bucket){.tokens = rate, .rate = rate, .filled_ns = now_ns};
}

/* Whether it would be full again now: as good as a new one. */
static bool is_idle(const struct bucket *b, uint64_t now_ns)
{
	return now_ns - b->filled_ns >= NS_PER_S;
}

/* Adds the tokens of the time since the last call, whole ones, and keeps the rest of the time. */
static void refill_bucket(struct bucket *b, uint64_t now_ns)
{
	uint64_t passed = now_ns > b->filled_ns ? now_ns - b->filled_ns : 0;

	if (passed >= NS_PER_S) {
		*b = full_bucket(b->rate, now_ns);
		return;
	}
	uint32_t earned = (uint32_t)(passed * b->rate / NS_PER_S);
	b->tokens = b->tokens + earned < b->rate ? b->tokens + earned : b->rate;
	b->filled_ns += (uint64_t)earned * NS_PER_S / b->rate;
}

static bool has_token(struct bucket *b, uint64_t now_ns)
{
	if (!b->tokens)
		refill_bucket(b, now_ns);
	return b->tokens;
}

/* --- users --- */

static bool is_trusted(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

static uint32_t rate_of(uid_t uid)
{
	return is_trusted(uid) ? FABRIC_LIMIT_TRUSTED_RATE : FABRIC_LIMIT_RATE;
}

static struct fabric_user *user_new(uint32_t rate, uint64_t now_ns)
{
	struct fabric_user *u = xmalloc(sizeof(*u));

	for (int i = 0; i < FABRIC_LIMIT_CLASSES; i++)
		u->buckets[i] = full_bucket(rate, now_ns);
	return u;
}

static bool is_idle_user(const struct fabric_user *u, uint64_t now_ns)
{
	for (int i = 0; i < FABRIC_LIMIT_CLASSES; i++)
		if (!is_idle(&u->buckets[i], now_ns))
			return false;
	return true;
}

static void forget_idle(struct fabric_limit *l, uint64_t now_ns)
{
	struct hmap kept = {0};
	uint64_t uid, value;

	for (size_t at = 0; hmap_next(&l->users, &at, &uid, &value);) {
		struct fabric_user *u = (void *)(uintptr_t)value;

		if (is_idle_user(u, now_ns))
			free(u);
		else
			hmap_put(&kept, uid, value);
	}
	hmap_release(&l->users);
	l->users = kept;
	l->swept_ns = now_ns;
}

static struct fabric_user *add_user(struct fabric_limit *l, uid_t uid, uint64_t now_ns)
{
	struct fabric_user *u = user_new(rate_of(uid), now_ns);

	hmap_put_ptr(&l->users, uid, u);
	return u;
}

static struct fabric_user *find_user(struct fabric_limit *l, uid_t uid, uint64_t now_ns)
{
	struct fabric_user *u = hmap_get_ptr(&l->users, uid);

	if (u)
		return u;
	if (is_trusted(uid)) /* never among the others, however many there are */
		return add_user(l, uid, now_ns);
	if (l->users.count >= FABRIC_LIMIT_USERS && now_ns - l->swept_ns >= NS_PER_S)
		forget_idle(l, now_ns);
	if (l->users.count >= FABRIC_LIMIT_USERS) {
		if (!l->others)
			l->others = user_new(FABRIC_LIMIT_RATE, now_ns);
		return l->others;
	}
	return add_user(l, uid, now_ns);
}

/* --- processes --- */

/* The bucket of a process. NULL: all its places are taken by others that send now; it has the limit
 * of its user alone, since to share a bucket would let one process silence another. */
static struct bucket *find_process(struct fabric_limit *l, uid_t uid, pid_t pid, uint64_t now_ns)
{
	struct fabric_process *idle = NULL;

	if (!l->processes)
		l->processes = xcalloc(PROCESS_SLOTS, sizeof(*l->processes));
	for (unsigned i = 0; i < PROCESS_PROBES; i++) {
		struct fabric_process *p = &l->processes[((unsigned)pid + i) % PROCESS_SLOTS];

		if (p->pid == pid && p->uid == uid)
			return &p->bucket;
		if (!idle && is_idle(&p->bucket, now_ns))
			idle = p;
	}
	if (!idle)
		return NULL;
	idle->pid = pid;
	idle->uid = uid;
	idle->bucket = full_bucket(rate_of(uid) / FABRIC_LIMIT_PROCESS_PART, now_ns);
	return &idle->bucket;
}

bool fabric_limit_take(struct fabric_limit *l, uid_t uid, pid_t pid, enum fabric_limit_class class,
		       uint64_t now_ns)
{
	struct bucket *of_user = &find_user(l, uid, now_ns)->buckets[class];
	struct bucket *of_process = NULL;

	if (class == FABRIC_LIMIT_CONTROL && pid > 0)
		of_process = find_process(l, uid, pid, now_ns);
	if (!has_token(of_user, now_ns) || (of_process && !has_token(of_process, now_ns)))
		return false;
	of_user->tokens--;
	if (of_process)
		of_process->tokens--;
	return true;
}

void fabric_limit_release(struct fabric_limit *l)
{
	uint64_t uid, value;

	for (size_t at = 0; hmap_next(&l->users, &at, &uid, &value);)
		free((void *)(uintptr_t)value);
	hmap_release(&l->users);
	free(l->others);
	free(l->processes);
}
