/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "device"
#include "recorder/device_memory.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/ascend/dcmi.h"

#define MS 1000000ull
#define EVERY_NS (500 * MS)
#define SETTLE_NS (200 * MS)
#define MAX_DEVICES 64

struct sample {
	uint32_t device;
	uint64_t time_ns;
	struct ascend_memory memory;
};

/* IDLE → ASKED by the recorder; ASKED → DONE by the thread; DONE → IDLE by the recorder. */
enum state { IDLE, ASKED, DONE, FAILED };

struct device_memory {
	/* The recorder's. */
	uint64_t next_ns;
	struct track_signs seen; /* when the last sample was asked for */
	bool fresh_events;
	pthread_t thread;
	bool started;
	/* Of whoever's turn it is by `state`. */
	_Atomic uint32_t state;
	uint32_t devices[MAX_DEVICES];
	unsigned ndevices;
	struct sample samples[MAX_DEVICES];
	unsigned nsamples;
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

static void take_samples(struct device_memory *m, const struct ascend_dcmi *dcmi, bool *complained)
{
	m->nsamples = 0;
	for (unsigned i = 0; i < m->ndevices; i++) {
		struct sample *s = &m->samples[m->nsamples];
		struct err err = {0};
		if (ascend_dcmi_memory(dcmi, m->devices[i], &s->memory, &err) == 0) {
			s->device = m->devices[i];
			s->time_ns = clock_mono_ns();
			m->nsamples++;
		} else if (!*complained) {
			log_info("device memory is not known: %s", err.text);
			*complained = true;
		}
	}
}

static void *sampler(void *arg)
{
	struct device_memory *m = arg;
	struct ascend_dcmi *dcmi = NULL;
	struct err err = {0};
	bool complained = false;

	if (ascend_dcmi_open(&dcmi, &err) < 0) {
		log_info("device memory is not known: %s", err.text);
		set_state(m, FAILED);
		return NULL;
	}
	while (wait_for_question(m)) {
		uint64_t begin_ns = clock_mono_ns();
		take_samples(m, dcmi, &complained);
		log_debug("%u samples in %.3f ms", m->nsamples,
			  (double)(clock_mono_ns() - begin_ns) / 1e6);
		set_state(m, DONE);
	}
	ascend_dcmi_close(dcmi);
	return NULL;
}

static void start_thread(struct device_memory *m)
{
	sigset_t all, old;

	/* Signals are for the recorder's own thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = pthread_create(&m->thread, NULL, sampler, m);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	m->started = r == 0;
	if (r) {
		struct err err;
		err_sys(&err, -r, "device memory is not known: no thread");
		log_info("%s", err.text);
		atomic_store(&m->state, FAILED);
	}
}

/* --- the recorder's side --- */

struct device_memory *device_memory_new(void)
{
	struct device_memory *m = xcalloc(1, sizeof(*m));
	pthread_condattr_t attr;

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
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
	free(m);
}

static void want_device(void *arg, const struct track_device *d)
{
	struct device_memory *m = arg;

	for (unsigned i = 0; i < m->ndevices; i++)
		if (m->devices[i] == d->device)
			return;
	if (m->ndevices < MAX_DEVICES)
		m->devices[m->ndevices++] = d->device;
}

static void ask(struct device_memory *m, const struct track *t, uint64_t now_ns)
{
	m->seen = track_signs(t);
	m->next_ns = now_ns + EVERY_NS;
	m->fresh_events = false;
	m->ndevices = 0;
	track_devices(t, want_device, m);
	if (!m->ndevices)
		return;
	atomic_store(&m->state, ASKED);
	if (!m->started) {
		start_thread(m);
	} else {
		pthread_mutex_lock(&m->lock);
		pthread_cond_broadcast(&m->changed);
		pthread_mutex_unlock(&m->lock);
	}
}

/* Told in one walk over the processes of the job. */
struct telling {
	const struct device_memory *m;
	const struct track *track;
	struct buf *batch;
};

static const struct sample *sample_of(const struct device_memory *m, uint32_t device)
{
	for (unsigned i = 0; i < m->nsamples; i++)
		if (m->samples[i].device == device)
			return &m->samples[i];
	return NULL;
}

/*
 * Who has what. A process that holds memory and is not in the list has another number there, as in
 * a container; then nothing is known of the others either.
 */
static void share_out(const struct telling *t, const struct track_device *d,
		      const struct ascend_memory *memory, struct rec_device *r)
{
	bool found = false;

	if (!memory->has_processes)
		return;
	uint64_t mine = 0, others = 0;
	for (unsigned i = 0; i < memory->nprocesses; i++) {
		if (memory->processes[i].pid == d->pid) {
			mine = memory->processes[i].bytes;
			found = true;
		} else if (!track_has_pid(t->track, memory->processes[i].pid)) {
			others += memory->processes[i].bytes;
			r->others++;
		}
	}
	if (found || !d->used_bytes) {
		r->process_bytes = mine;
		r->others_bytes = others;
	} else {
		r->others = 0;
	}
}

static void tell_device(void *arg, const struct track_device *d)
{
	struct telling *t = arg;
	const struct sample *s = sample_of(t->m, d->device);

	if (!s)
		return;
	struct rec_device r = {
		.head = {.type = REC_DEVICE, .size = sizeof(r), .time_ns = s->time_ns},
		.total_bytes = s->memory.total_bytes,
		.used_bytes = s->memory.used_bytes,
		.process_bytes = DEVICE_UNKNOWN,
		.others_bytes = DEVICE_UNKNOWN,
		.device = (uint16_t)d->device,
	};
	share_out(t, d, &s->memory, &r);
	struct batch_item it = {BATCH_RUN, sizeof(it) + sizeof(r), d->proc, d->pid};
	buf_add(t->batch, &it, sizeof(it));
	buf_add(t->batch, &r, sizeof(r));
}

static bool tell(struct device_memory *m, const struct track *t, struct buf *batch)
{
	struct telling telling = {m, t, batch};

	track_devices(t, tell_device, &telling);
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
	bool told = false;

	m->fresh_events |= events;
	uint32_t state = atomic_load(&m->state);
	if (state == DONE) {
		told = tell(m, t, batch);
		state = IDLE;
	}
	uint64_t now_ns = clock_mono_ns();
	if (state == IDLE && is_due(m, t, now_ns))
		ask(m, t, now_ns);
	return told;
}

void device_memory_settle(struct device_memory *m, const struct track *t)
{
	if (track_waits_for_device(t) && atomic_load(&m->state) == ASKED)
		wait_for_answer(m);
}
