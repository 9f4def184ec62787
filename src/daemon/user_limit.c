/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "limits"

#include "daemon/user_limit.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/containers/hmap.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/loop.h"

#define NS_PER_S 1000000000u
#define REPORT_US 60000000
#define USERS_MAX 1024 /* with buckets of their own; the others share one */

struct bucket {
	uid_t uid;
	uint64_t credit_ns; /* time that was saved up: a token costs cost_ns of it */
	uint64_t filled_ns;
	uint64_t suppressed; /* not logged yet */
};

struct user_limit {
	const char *what;
	uint64_t cost_ns, most_ns;
	unsigned per_second, at_once;
	struct hmap buckets; /* by uid */
	struct bucket others; /* of all users beyond USERS_MAX */
	struct event *report;
	uint64_t suppressed;
};

static void log_suppressed(const struct user_limit *l, struct bucket *b)
{
	if (b->suppressed && b == &l->others)
		log_warn("%llu %s of further users suppressed", (unsigned long long)b->suppressed,
			 l->what);
	else if (b->suppressed)
		log_warn("%llu %s of user %u suppressed", (unsigned long long)b->suppressed,
			 l->what, (unsigned)b->uid);
	b->suppressed = 0;
}

static void refill_bucket(const struct user_limit *l, struct bucket *b, uint64_t now_ns)
{
	uint64_t passed = now_ns - b->filled_ns;

	b->credit_ns = passed < l->most_ns - b->credit_ns ? b->credit_ns + passed : l->most_ns;
	b->filled_ns = now_ns;
}

/* Logs what there is, and forgets users who are as good as new. */
static void report_all(struct user_limit *l)
{
	struct hmap kept = {0};
	uint64_t uid, value, now = clock_mono_ns();

	for (size_t at = 0; hmap_next(&l->buckets, &at, &uid, &value);) {
		struct bucket *b = (struct bucket *)(uintptr_t)value;

		log_suppressed(l, b);
		refill_bucket(l, b, now);
		if (b->credit_ns == l->most_ns)
			free(b);
		else
			hmap_put(&kept, uid, value);
	}
	hmap_release(&l->buckets);
	l->buckets = kept;
	log_suppressed(l, &l->others);
}

static void on_report(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	report_all(arg);
}

struct user_limit *user_limit_new(struct event_base *base, const char *what, unsigned per_second,
				  unsigned at_once)
{
	struct user_limit *l = xcalloc(1, sizeof(*l));

	*l = (struct user_limit){.what = what, .per_second = per_second, .at_once = at_once};
	l->cost_ns = NS_PER_S / per_second;
	l->most_ns = l->cost_ns * at_once;
	l->others = (struct bucket){.uid = (uid_t)-1, .credit_ns = l->most_ns};
	l->report = loop_event_new(base, -1, 0, DAEMON_PRIORITY_METRICS, on_report, l);
	return l;
}

void user_limit_free(struct user_limit *l)
{
	uint64_t uid, value;

	if (!l)
		return;
	report_all(l);
	for (size_t at = 0; hmap_next(&l->buckets, &at, &uid, &value);)
		free((void *)(uintptr_t)value);
	hmap_release(&l->buckets);
	event_free(l->report);
	free(l);
}

static struct bucket *find_bucket(struct user_limit *l, uid_t uid, uint64_t now_ns)
{
	struct bucket *b = hmap_get_ptr(&l->buckets, uid);

	if (b)
		return b;
	if (l->buckets.count >= USERS_MAX)
		return &l->others;
	b = xmalloc(sizeof(*b));
	*b = (struct bucket){.uid = uid, .credit_ns = l->most_ns, .filled_ns = now_ns};
	hmap_put_ptr(&l->buckets, uid, b);
	/* also to be forgotten */
	if (!event_pending(l->report, EV_TIMEOUT, NULL))
		loop_timer_start(l->report, REPORT_US);
	return b;
}

bool user_limit_take(struct user_limit *l, uid_t uid)
{
	uint64_t now = l ? clock_mono_ns() : 0;
	struct bucket *b = l ? find_bucket(l, uid, now) : NULL;

	if (!b)
		return true;
	refill_bucket(l, b, now);
	if (b->credit_ns >= l->cost_ns) {
		b->credit_ns -= l->cost_ns;
		return true;
	}
	if (!b->suppressed++)
		log_warn("user %u causes too many %s: more than %u at once, or %u a second, are "
			 "suppressed",
			 (unsigned)uid, l->what, l->at_once, l->per_second);
	l->suppressed++;
	if (!event_pending(l->report, EV_TIMEOUT, NULL))
		loop_timer_start(l->report, REPORT_US);
	return false;
}

uint64_t user_limit_suppressed(const struct user_limit *l)
{
	return l ? l->suppressed : 0;
}
