/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "device"
#include "memory/track/device_memory.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/containers/hmap.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "device/ascend/metrics/dcmi.h"
#include "device/cuda/metrics/nvml.h"
#include "device/metrics_processes.h"

#define MS 1000000ull
#define EVERY_NS (500 * MS)
#define SETTLE_NS (200 * MS)
#define MAX_DEVICES 64
#define MAX_ANCESTORS 64
#define ENVIRON_BYTES (256u << 10)
#define OUTSIDER_MS 1000 /* until then it may be about to record */
#define OUTSIDER_COUNTED (HMAP_NONE - 1)

/* A device, and whose it is: numbers of two vendors say nothing about each other. */
struct wanted {
	uint32_t device;
	bool cuda, part, has_uuid;
	uint8_t uuid[16]; /* the job's numbers may be its own */
};

struct sample {
	struct wanted of;
	uint64_t time_ns;
	uint64_t total_bytes, used_bytes;
	bool has_processes;
	struct device_processes processes; /* the thread's: it releases them */
};

/* The vendors' libraries, opened with the first sample of one of their devices. */
struct libraries {
	struct ascend_dcmi *dcmi;
	struct nvml nvml;
	bool tried_dcmi, tried_nvml;
	bool logged;
};

/* IDLE → ASKED by the recorder; ASKED → DONE by the thread; DONE → IDLE by the recorder. */
enum state { IDLE, ASKED, DONE, FAILED };

struct device_memory {
	/* The recorder's. */
	uint64_t next_ns;
	struct track_signs seen; /* when the last sample was requested */
	bool fresh_events;
	pthread_t thread;
	bool started;
	/* Of the thread while ASKED, else of the recorder. */
	_Atomic uint32_t state;
	struct wanted devices[MAX_DEVICES];
	unsigned ndevices;
	struct sample samples[MAX_DEVICES];
	unsigned nsamples;
	struct hmap recorded; /* pids of the job's processes that are */
	struct hmap kin; /* pids on the devices that are of the job, too */
	char *environment; /* what these have in theirs */
	struct control_page *page;
	struct hmap outsiders; /* pids of those that are not recorded: since when, in ms */
	/* For waiting only. */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool leave;
};

/* --- the thread --- */

static void set_state(struct device_memory *m, enum state state)
{
	pthread_mutex_lock(&m->lock);
	atomic_store(&m->state, state);
	pthread_cond_broadcast(&m->changed);
	pthread_mutex_unlock(&m->lock);
}

static bool wait_for_question(struct device_memory *m)
{
	pthread_mutex_lock(&m->lock);
	while (!m->leave && atomic_load(&m->state) != ASKED)
		pthread_cond_wait(&m->changed, &m->lock);
	bool asked = atomic_load(&m->state) == ASKED;
	pthread_mutex_unlock(&m->lock);
	return asked; /* also when we are to leave: somebody may be waiting for the answer */
}

static void log_once(struct libraries *l, const struct err *err)
{
	if (!l->logged)
		log_info("device memory is unknown: %s", err->text);
	l->logged = true;
}

static int sample_ascend(struct libraries *l, uint32_t device, struct sample *out, struct err *err)
{
	struct ascend_memory m;

	if (!l->tried_dcmi) {
		l->tried_dcmi = true;
		if (ascend_dcmi_open(&l->dcmi, err) < 0)
			log_once(l, err);
	}
	if (!l->dcmi)
		return -ENOENT;
	int r = ascend_dcmi_memory(l->dcmi, device, &m, err);
	if (r < 0)
		return r;
	*out = (struct sample){.total_bytes = m.total_bytes,
			       .used_bytes = m.used_bytes,
			       .has_processes = m.has_processes};
	for (unsigned i = 0; i < m.nprocesses; i++)
		device_processes_add(&out->processes, &(struct device_process){
							      .pid = (pid_t)m.processes[i].pid,
							      .bytes = m.processes[i].bytes,
						      });
	return 0;
}

static int sample_cuda(struct libraries *l, const struct wanted *of, struct sample *out,
		       struct err *err)
{
	struct cuda_memory m;

	if (!l->tried_nvml) {
		l->tried_nvml = true;
		if (nvml_open(&l->nvml, err) < 0)
			log_once(l, err);
	}
	if (!l->nvml.library)
		return -ENOENT;
	const struct cuda_gpu_name name = {of->device, of->part, of->has_uuid ? of->uuid : NULL};
	int r = cuda_memory_read(&l->nvml, &name, &m, err);
	if (r < 0)
		return r;
	*out = (struct sample){.total_bytes = m.total_bytes,
			       .used_bytes = m.used_bytes,
			       .has_processes = m.has_processes,
			       .processes = m.processes};
	return 0;
}

/* What any process may claim, so it has to be of this user. */
static bool has_environment(pid_t pid, const char *wanted)
{
	char path[32], *text;
	struct stat st;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (!wanted || stat(path, &st) < 0 || st.st_uid != geteuid())
		return false;
	text = xmalloc(ENVIRON_BYTES);
	ssize_t n = proc_read(pid, "environ", text, ENVIRON_BYTES);
	for (const char *p = text; !found && n > 0 && p < text + n; p += strlen(p) + 1)
		found = !strcmp(p, wanted);
	free(text);
	return found;
}

/* One without our libraries: a static program, an environment of its own. */
static bool is_of_job(const struct device_memory *m, pid_t pid)
{
	struct proc_stat st;
	pid_t of = pid;

	for (unsigned i = 0; i < MAX_ANCESTORS && proc_stat_read(of, &st) == 0; i++) {
		of = (pid_t)st.parent;
		if (of <= 0)
			break;
		if ((m->page && (uint32_t)of == m->page->root_pid) ||
		    hmap_get(&m->recorded, (uint64_t)of) != HMAP_NONE)
			return true;
	}
	return has_environment(pid, m->environment);
}

static void find_kin(struct device_memory *m, const struct device_processes *ps)
{
	for (size_t i = 0; i < ps->n; i++) {
		pid_t pid = ps->list[i].pid;

		if (hmap_get(&m->recorded, (uint64_t)pid) == HMAP_NONE && is_of_job(m, pid))
			hmap_put(&m->kin, (uint64_t)pid, 1);
	}
}

static void release_samples(struct device_memory *m)
{
	for (unsigned i = 0; i < m->nsamples; i++)
		device_processes_release(&m->samples[i].processes);
	m->nsamples = 0;
}

static void take_samples(struct device_memory *m, struct libraries *l)
{
	release_samples(m);
	hmap_release(&m->kin);
	for (unsigned i = 0; i < m->ndevices; i++) {
		struct wanted of = m->devices[i];
		struct sample *s = &m->samples[m->nsamples];
		struct err err = {0};
		int r = of.cuda ? sample_cuda(l, &of, s, &err)
				: sample_ascend(l, of.device, s, &err);

		if (r < 0) {
			log_once(l, &err);
			continue;
		}
		s->of = of;
		s->time_ns = clock_mono_ns();
		find_kin(m, &s->processes);
		m->nsamples++;
	}
}

static void *run_sampler(void *arg)
{
	struct device_memory *m = arg;
	struct libraries l = {0};

	while (wait_for_question(m)) {
		uint64_t begin_ns = clock_mono_ns();
		take_samples(m, &l);
		log_debug("%u samples in %.3f ms", m->nsamples,
			  (double)(clock_mono_ns() - begin_ns) / 1e6);
		set_state(m, DONE);
	}
	ascend_dcmi_close(l.dcmi);
	nvml_close(&l.nvml);
	return NULL;
}

static void start_thread(struct device_memory *m)
{
	sigset_t all, old;

	/* Signals are for the recorder's own thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = pthread_create(&m->thread, NULL, run_sampler, m);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	m->started = r == 0;
	if (r) {
		struct err err;
		err_sys(&err, -r, "device memory is unknown: no thread");
		log_info("%s", err.text);
		atomic_store(&m->state, FAILED);
	}
}

/* --- the recorder's side --- */

struct device_memory *device_memory_new(const char *dir, struct control_page *page)
{
	struct device_memory *m = xcalloc(1, sizeof(*m));
	pthread_condattr_t attr;

	m->environment = dir ? xasprintf(SESSION_ENV "=%s", dir) : NULL;
	m->page = page;
	pthread_mutex_init(&m->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&m->changed, &attr);
	pthread_condattr_destroy(&attr);
	return m;
}

/* Until no question is open; whether it came to that. */
static bool wait_for_answer(struct device_memory *m)
{
	uint64_t until_ns = clock_mono_ns() + SETTLE_NS;
	struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
	int r = 0;

	pthread_mutex_lock(&m->lock);
	while (r == 0 && atomic_load(&m->state) == ASKED)
		r = pthread_cond_timedwait(&m->changed, &m->lock, &until);
	pthread_mutex_unlock(&m->lock);
	return atomic_load(&m->state) != ASKED;
}

void device_memory_free(struct device_memory *m)
{
	if (!m)
		return;
	if (m->started) {
		pthread_mutex_lock(&m->lock);
		m->leave = true;
		pthread_cond_broadcast(&m->changed);
		pthread_mutex_unlock(&m->lock);
		if (!wait_for_answer(m)) {
			pthread_detach(m->thread);
			return;
		}
		pthread_join(m->thread, NULL);
	}
	release_samples(m);
	hmap_release(&m->recorded);
	hmap_release(&m->kin);
	hmap_release(&m->outsiders);
	free(m->environment);
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static bool is_wanted(const struct wanted *w, const struct track_device *d)
{
	return w->device == d->device && w->cuda == d->cuda && w->has_uuid == (d->uuid != NULL) &&
	       (!d->uuid || !memcmp(w->uuid, d->uuid, sizeof(w->uuid)));
}

static void want_device(void *arg, const struct track_device *d)
{
	struct device_memory *m = arg;

	for (unsigned i = 0; i < m->ndevices; i++)
		if (is_wanted(&m->devices[i], d))
			return;
	if (m->ndevices == MAX_DEVICES)
		return;
	struct wanted *w = &m->devices[m->ndevices++];
	*w = (struct wanted){d->device, d->cuda, d->part, d->uuid != NULL, {0}};
	if (d->uuid)
		memcpy(w->uuid, d->uuid, sizeof(w->uuid));
}

static void note_recorded(void *arg, const struct track_process *p)
{
	struct device_memory *m = arg;

	hmap_put(&m->recorded, p->shown_pid ? p->shown_pid : p->pid, 1);
}

static void request_samples(struct device_memory *m, const struct track *t, uint64_t now_ns)
{
	m->seen = track_signs(t);
	m->next_ns = now_ns + EVERY_NS;
	m->fresh_events = false;
	m->ndevices = 0;
	track_devices(t, want_device, m);
	if (!m->ndevices)
		return;
	hmap_release(&m->recorded);
	track_processes(t, note_recorded, m);
	atomic_store(&m->state, ASKED);
	if (!m->started) {
		start_thread(m);
	} else {
		pthread_mutex_lock(&m->lock);
		pthread_cond_broadcast(&m->changed);
		pthread_mutex_unlock(&m->lock);
	}
}

/* One walk over the processes of the job. */
struct emission {
	const struct device_memory *m;
	const struct track *track;
	struct buf *batch;
};

static const struct sample *sample_of(const struct device_memory *m, const struct track_device *d)
{
	for (unsigned i = 0; i < m->nsamples; i++)
		if (is_wanted(&m->samples[i].of, d))
			return &m->samples[i];
	return NULL;
}

/*
 * Who has what. A process that holds memory and is not in the list has another number there, as in
 * a container; then nothing is known of the others either.
 */
static void share_out(const struct emission *t, const struct track_device *d,
		      const struct sample *s, struct rec_device *r)
{
	bool found = false;

	if (!s->has_processes)
		return;
	uint64_t mine = 0, others = 0, job = 0;
	for (size_t i = 0; i < s->processes.n; i++) {
		const struct device_process *p = &s->processes.list[i];

		if (p->bytes == UINT64_MAX) /* it is there, and its share is unknown */
			return;
		if ((uint32_t)p->pid == d->pid) {
			mine = p->bytes;
			found = true;
		} else if (track_has_pid(t->track, (uint32_t)p->pid) ||
			   hmap_get(&t->m->kin, (uint64_t)p->pid) != HMAP_NONE) {
			job += p->bytes;
		} else {
			others += p->bytes;
			r->others++;
		}
	}
	if (found || !d->used_bytes) {
		r->process_bytes = mine;
		r->others_bytes = others;
		r->job_kib = job >> 10 > UINT32_MAX ? UINT32_MAX : (uint32_t)(job >> 10);
	} else {
		r->others = 0;
	}
}

static void emit_device(void *arg, const struct track_device *d)
{
	struct emission *t = arg;
	const struct sample *s = sample_of(t->m, d);

	if (!s)
		return;
	struct rec_device r = {
		.head = {.type = REC_DEVICE, .size = sizeof(r), .time_ns = s->time_ns},
		.total_bytes = s->total_bytes,
		.used_bytes = s->used_bytes,
		.process_bytes = DEVICE_UNKNOWN,
		.others_bytes = DEVICE_UNKNOWN,
		.device = (uint16_t)d->device,
	};
	share_out(t, d, s, &r);
	struct batch_item it = {BATCH_RUN, sizeof(it) + sizeof(r), d->proc, d->pid};
	buf_add(t->batch, &it, sizeof(it));
	buf_add(t->batch, &r, sizeof(r));
}

static void note_outsider(struct device_memory *m, const struct sample *s,
			  const struct device_process *p)
{
	uint64_t now_ms = s->time_ns / MS, since = hmap_get(&m->outsiders, (uint64_t)p->pid);
	uint64_t kib = p->bytes == UINT64_MAX ? 0 : p->bytes >> 10;

	if (since == HMAP_NONE)
		hmap_put(&m->outsiders, (uint64_t)p->pid, now_ms);
	if (since == HMAP_NONE || (since != OUTSIDER_COUNTED && now_ms - since < OUTSIDER_MS))
		return;
	if (since != OUTSIDER_COUNTED) {
		hmap_put(&m->outsiders, (uint64_t)p->pid, OUTSIDER_COUNTED);
		atomic_fetch_add(&m->page->outsiders, 1);
	}
	if (kib < atomic_load(&m->page->outsider_kib))
		return;
	atomic_store(&m->page->outsider_kib, kib > UINT32_MAX ? UINT32_MAX : (uint32_t)kib);
	atomic_store(&m->page->outsider_pid, (uint32_t)p->pid);
	atomic_store(&m->page->outsider_device, s->of.device);
}

/* In a container the driver may list the numbers of the host, and what has one of ours is a stranger. */
static bool has_our_numbers(const struct device_memory *m, const struct device_processes *ps)
{
	for (size_t i = 0; i < ps->n; i++)
		if (hmap_get(&m->recorded, (uint64_t)ps->list[i].pid) != HMAP_NONE)
			return true;
	return false;
}

/* Processes of the job on its devices of which nothing comes. */
static void note_outsiders(struct device_memory *m, const struct track *t)
{
	for (unsigned i = 0; m->page && i < m->nsamples; i++) {
		const struct device_processes *ps = &m->samples[i].processes;

		for (size_t k = 0; has_our_numbers(m, ps) && k < ps->n; k++)
			if (hmap_get(&m->kin, (uint64_t)ps->list[k].pid) != HMAP_NONE &&
			    !track_has_pid(t, (uint32_t)ps->list[k].pid))
				note_outsider(m, &m->samples[i], &ps->list[k]);
	}
}

static bool emit_samples(struct device_memory *m, const struct track *t, struct buf *batch)
{
	struct emission emission = {m, t, batch};

	track_devices(t, emit_device, &emission);
	note_outsiders(m, t);
	atomic_store(&m->state, IDLE);
	return batch->len > 0;
}

static bool is_due(const struct device_memory *m, const struct track *t, uint64_t now_ns)
{
	struct track_signs now = track_signs(t);

	if (now.ooms != m->seen.ooms || now.users != m->seen.users)
		return true;
	return m->fresh_events && now_ns >= m->next_ns;
}

bool device_memory_poll(struct device_memory *m, const struct track *t, bool events,
			struct buf *batch)
{
	bool emitted = false;

	m->fresh_events |= events;
	uint32_t state = atomic_load(&m->state);
	if (state == DONE) {
		emitted = emit_samples(m, t, batch);
		state = IDLE;
	}
	uint64_t now_ns = clock_mono_ns();
	if (state == IDLE && is_due(m, t, now_ns))
		request_samples(m, t, now_ns);
	return emitted;
}

void device_memory_settle(struct device_memory *m, const struct track *t)
{
	if (track_waits_for_device(t) && atomic_load(&m->state) == ASKED)
		wait_for_answer(m);
}
