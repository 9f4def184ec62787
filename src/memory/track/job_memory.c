/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/track/job_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "base/proc.h"
#include "memory/track/process_memory.h"
#include "wire/rank_env.h"

#define MS 1000000ull
#define FIRST_NS (100 * MS)
#define LAST_NS (1000 * MS)
#define AGE_SHARE 30 /* between two samples passes one part of so many of the process' age */
#define DETAIL_NS (500 * MS)
#define DETAIL_SHARE 100 /* a list of mappings takes at most one part of so many of the time */
#define DETAIL_MAX_BYTES (4ull << 30) /* the kernel keeps the job from mapping while it lists */
#define DETAIL_GROWTH (4ull << 20)
#define REFUSED_NS (50 * MS)
#define ENVIRON_BYTES (256u << 10)

struct process {
	uint32_t proc, pid;
	int dir; /* of /proc/PID; -1: it is not there */
	uint64_t since_ns, next_ns;
	uint64_t detail_after_ns, detail_rss;
	struct rec_usage last; /* its details are those of the last list of mappings */
	struct memory_group group;
	struct memory_group_state at_start;
	bool samples; /* its host memory is recorded */
	uint64_t round; /* in which it was seen */
};

struct job_memory {
	struct hmap processes; /* number: struct process */
	uint64_t seen, ooms; /* of the track: processes, refusals */
	uint64_t round_ns; /* when everybody was looked at */
	uint64_t next_ns, round;
	struct buf ended; /* records about processes that have ended, for the next batch */
	struct buf *batch; /* while a round lasts */
	uint64_t now_ns;
	bool now;
};

struct job_memory *job_memory_new(void)
{
	return xcalloc(1, sizeof(struct job_memory));
}

static void process_free(struct process *p)
{
	if (p->dir >= 0)
		close(p->dir);
	free(p);
}

void job_memory_free(struct job_memory *h)
{
	uint64_t key, value;
	size_t at = 0;

	if (!h)
		return;
	while (hmap_next(&h->processes, &at, &key, &value))
		process_free((struct process *)(uintptr_t)value);
	hmap_release(&h->processes);
	buf_release(&h->ended);
	free(h);
}

static void add_record(struct buf *batch, const struct process *p, const struct rec *r)
{
	struct batch_item it = {BATCH_RUN, (uint32_t)(sizeof(it) + r->size), p->proc, p->pid};

	buf_add(batch, &it, sizeof(it));
	buf_add(batch, r, r->size);
}

/* --- a process appears --- */

static int32_t rank_of(int dir)
{
	char *text = xmalloc(ENVIRON_BYTES);
	int fd = openat(dir, "environ", O_RDONLY | O_CLOEXEC);
	ssize_t n = 0;
	size_t len = 0;

	while (fd >= 0 && len < ENVIRON_BYTES &&
	       (n = read(fd, text + len, ENVIRON_BYTES - len)) > 0)
		len += (size_t)n;
	int32_t rank = rank_env_find(RANK_ENV_RANK, text, len);
	if (fd >= 0)
		close(fd);
	free(text);
	return rank;
}

static struct process *add_process(struct job_memory *h, const struct track_process *of)
{
	struct process *p = xcalloc(1, sizeof(*p));
	char path[32];

	snprintf(path, sizeof(path), "/proc/%u", of->shown_pid);
	*p = (struct process){.proc = of->proc, .pid = of->pid, .since_ns = h->now_ns};
	p->dir = of->shown_pid ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	p->last.copied_bytes = p->last.stack_bytes = USAGE_UNKNOWN;
	hmap_put_ptr(&h->processes, of->proc, p);
	if (p->dir < 0)
		return p;
	struct rec_process r = {
		.head = {.type = REC_PROCESS, .size = sizeof(r), .time_ns = h->now_ns},
		.rank = rank_of(p->dir),
	};
	if (r.rank >= 0)
		add_record(h->batch, p, &r.head);
	memory_group_find(p->dir, &p->group);
	memory_group_read(&p->group, &p->at_start);
	return p;
}

/* --- samples --- */

static bool is_detail_due(const struct job_memory *h, const struct process *p,
			  const struct rec_usage *u)
{
	if (u->rss_bytes > DETAIL_MAX_BYTES || h->now_ns < p->detail_after_ns)
		return false;
	return h->now || u->rss_bytes > p->detail_rss + p->detail_rss / 10 + DETAIL_GROWTH ||
	       h->now_ns - p->detail_after_ns >= 10 * DETAIL_NS;
}

/* Jobs, and who manages them, move processes to other groups. */
static void renew_group(struct process *p)
{
	struct memory_group now;

	memory_group_find(p->dir, &now);
	if (!strcmp(now.path, p->group.path))
		return;
	p->group = now;
	memory_group_read(&p->group, &p->at_start);
}

static void read_detail(struct process *p, struct rec_usage *u)
{
	uint64_t begin_ns = clock_mono_ns();

	renew_group(p);
	if (process_memory_read_detail(p->dir, u) < 0)
		return;
	uint64_t now_ns = clock_mono_ns(), pause_ns = DETAIL_SHARE * (now_ns - begin_ns);
	p->detail_after_ns = now_ns + (pause_ns > DETAIL_NS ? pause_ns : DETAIL_NS);
	p->detail_rss = u->rss_bytes;
}

static void take_sample(struct job_memory *h, struct process *p)
{
	uint64_t pause_ns = (h->now_ns - p->since_ns) / AGE_SHARE;
	struct memory_group_state group;
	struct rec_usage u;

	p->next_ns = h->now_ns + (pause_ns < FIRST_NS  ? FIRST_NS
				  : pause_ns > LAST_NS ? LAST_NS
						       : pause_ns);
	if (process_memory_read(p->dir, &u) < 0) {
		p->next_ns = UINT64_MAX; /* it has ended, or may not be looked at */
		return;
	}
	u.head = (struct rec){.type = REC_USAGE, .size = sizeof(u), .time_ns = clock_mono_ns()};
	if (is_detail_due(h, p, &u))
		read_detail(p, &u);
	memory_group_read(&p->group, &group);
	u.group_bytes = group.bytes;
	u.group_limit_bytes = group.limit_bytes;
	add_record(h->batch, p, &u.head);
}

static void visit_process(void *arg, const struct track_process *of)
{
	struct job_memory *h = arg;
	struct process *p = hmap_get_ptr(&h->processes, of->proc);

	if (!p)
		p = add_process(h, of);
	p->round = h->round;
	p->samples = of->host;
	if (!p->samples || p->dir < 0)
		return;
	if (p->next_ns != UINT64_MAX && (h->now || h->now_ns >= p->next_ns))
		take_sample(h, p);
	if (p->next_ns < h->next_ns)
		h->next_ns = p->next_ns;
}

/* Those that the track knows no more. */
static void forget_processes(struct job_memory *h)
{
	uint64_t key, value;
	size_t at = 0;

	while (hmap_next(&h->processes, &at, &key, &value)) {
		struct process *p = (struct process *)(uintptr_t)value;

		if (p->round == h->round)
			continue;
		hmap_remove(&h->processes, key);
		process_free(p);
		at = 0;
	}
}

bool job_memory_poll(struct job_memory *h, const struct track *t, bool now, struct buf *batch)
{
	struct track_signs signs = track_signs(t);
	uint64_t seen = signs.processes;
	size_t had = batch->len;

	buf_add(batch, h->ended.data, h->ended.len);
	buf_clear(&h->ended);
	h->now_ns = clock_mono_ns();
	/* Memory was refused: what there was then may be gone soon. */
	now |= signs.ooms != h->ooms && h->now_ns - h->round_ns >= REFUSED_NS;
	if (!now && seen == h->seen && h->now_ns < h->next_ns)
		return batch->len > had;
	h->seen = seen;
	h->ooms = signs.ooms;
	h->round_ns = h->now_ns;
	h->round++;
	h->next_ns = UINT64_MAX;
	h->batch = batch;
	h->now = now;
	track_processes(t, visit_process, h);
	forget_processes(h);
	return batch->len > had;
}

/* --- a process ends --- */

/* struct pidfd_info of the kernel (6.13; the status since 6.15), as far as it is needed. */
struct end_info {
	uint64_t mask;
	uint64_t cgroupid;
	uint32_t pid, tgid, ppid;
	uint32_t ids[8];
	int32_t exit_code;
};
#define END_INFO_EXIT (1ull << 3)
#define END_INFO_GET _IOWR(0xFF, 11, struct end_info)
_Static_assert(sizeof(struct end_info) == 64, "the first version of struct pidfd_info");

/* How it ended, as wait() would say: whoever its parent is, the kernel knows it. */
static bool read_status(const struct dead_process *dead, uint32_t *out)
{
	struct end_info info = {.mask = END_INFO_EXIT};
	char text[PROC_STAT_BYTES];

	if (dead->pidfd >= 0 && ioctl(dead->pidfd, END_INFO_GET, &info) == 0 &&
	    info.mask & END_INFO_EXIT) {
		*out = (uint32_t)info.exit_code;
		return true;
	}
	/* An older kernel: as long as nobody has waited for it, its last field is the status. */
	ssize_t n = dead->shown_pid ? proc_read((pid_t)dead->shown_pid, "stat", text, sizeof(text))
				    : -1;
	const char *name_end = n > 0 ? strrchr(text, ')') : NULL;
	const char *last = name_end ? strrchr(text, ' ') : NULL;
	if (!last || strncmp(name_end, ") Z", 3))
		return false;
	*out = (uint32_t)strtoul(last + 1, NULL, 10);
	return true;
}

void job_memory_ended(struct job_memory *h, const struct dead_process *dead)
{
	struct process unknown = {.proc = dead->proc, .pid = dead->pid};
	struct process *p = hmap_get_ptr(&h->processes, dead->proc);
	struct rec_process r = {
		.head = {.type = REC_PROCESS, .size = sizeof(r), .time_ns = clock_mono_ns()},
		.rank = dead->rank,
		.peak_rss_bytes = dead->peak_rss_bytes,
	};

	if (!dead->replaced && read_status(dead, &r.status))
		r.flags |= PROCESS_ENDED;
	if (p && r.flags & PROCESS_ENDED && WIFSIGNALED(r.status) &&
	    WTERMSIG(r.status) == SIGKILL) {
		struct memory_group_state group;

		memory_group_read(&p->group, &group);
		r.group_limit_bytes = group.limit_bytes;
		if (group.kills > p->at_start.kills)
			r.flags |= PROCESS_GROUP_KILLED;
	}
	if (r.flags || r.rank >= 0 || r.peak_rss_bytes)
		add_record(&h->ended, p ? p : &unknown, &r.head);
}
