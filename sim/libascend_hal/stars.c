/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The STARS channel: streams write task records, one reader per device takes them in blocks. */
#include "hal/ascend_hal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/state.h"

#define RING_BYTES (4u << 20)
#define READ_WAIT_NS 20000000l

/* A full ring drops records, as the hardware's does. */
struct channel {
	pthread_mutex_t lock;
	pthread_cond_t more;
	_Atomic int on;
	int task_records;
	unsigned record_bytes;
	char *ring;
	uint64_t head; /* bytes read */
	uint64_t tail; /* bytes written */
	unsigned count;
};

static struct channel channels[SIM_MAX_DEVICES] = {
	[0 ... SIM_MAX_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER,
				       .more = PTHREAD_COND_INITIALIZER},
};

/* A child has no reader and no streams, and may have inherited a lock that nobody will release. */
static void after_fork_in_child(void)
{
	for (int i = 0; i < SIM_MAX_DEVICES; i++) {
		atomic_store(&channels[i].on, 0);
		pthread_mutex_init(&channels[i].lock, NULL);
		pthread_cond_init(&channels[i].more, NULL);
	}
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, after_fork_in_child);
}

static struct channel *find_channel(unsigned device, unsigned channel)
{
	if (device >= (unsigned)sim_device_count() || channel != HAL_CHANNEL_STARS)
		return NULL;
	return &channels[device];
}

int prof_drv_start(unsigned device, unsigned channel, struct prof_start_para *para)
{
	struct channel *ch = find_channel(device, channel);
	if (!ch || !para)
		return DRV_ERROR_INVALID_DEVICE;
	int new_chip = strstr(sim_soc_name(), "950") || strstr(sim_soc_name(), "960");
	const struct stars_config *cfg = para->user_data;
	if (!cfg || para->user_data_size != (new_chip ? 44u : 36u))
		return DRV_ERROR_PARA_ERROR;

	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&ch->lock);
	if (!ch->ring)
		ch->ring = malloc(RING_BYTES);
	ch->task_records = cfg->acsq_task == 1;
	ch->record_bytes = new_chip ? 32 : 64;
	ch->head = ch->tail = 0;
	int ok = ch->ring != NULL;
	atomic_store(&ch->on, ok);
	pthread_mutex_unlock(&ch->lock);
	return ok ? DRV_ERROR_NONE : DRV_ERROR_OUT_OF_MEMORY;
}

int prof_stop(unsigned device, unsigned channel)
{
	struct channel *ch = find_channel(device, channel);
	if (!ch)
		return DRV_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&ch->lock);
	atomic_store(&ch->on, 0);
	pthread_cond_broadcast(&ch->more);
	pthread_mutex_unlock(&ch->lock);
	return DRV_ERROR_NONE;
}

int prof_channel_read(unsigned device, unsigned channel, char *out_buf, unsigned size)
{
	struct channel *ch = find_channel(device, channel);
	if (!ch || !out_buf)
		return -1;
	pthread_mutex_lock(&ch->lock);
	if (ch->head == ch->tail && atomic_load(&ch->on)) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += READ_WAIT_NS;
		if (until.tv_nsec >= 1000000000l) {
			until.tv_nsec -= 1000000000l;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&ch->more, &ch->lock, &until);
	}
	uint64_t n = ch->tail - ch->head;
	if (n > size)
		n = size;
	if (ch->record_bytes)
		n -= n % ch->record_bytes;
	uint64_t at = ch->head % RING_BYTES;
	uint64_t first = n < RING_BYTES - at ? n : RING_BYTES - at;
	if (n) {
		memcpy(out_buf, ch->ring + at, first);
		memcpy(out_buf + first, ch->ring, n - first);
	}
	ch->head += n;
	int r = n || atomic_load(&ch->on) ? (int)n : HAL_PROF_STOPPED;
	pthread_mutex_unlock(&ch->lock);
	return r;
}

static void put_record(struct channel *ch, int type, int stream_id, int task_id, uint64_t ns)
{
	if (RING_BYTES - (ch->tail - ch->head) < ch->record_bytes)
		return;
	struct stars_record rec = {.func_type = (uint32_t)type & 0x3f,
				   .count = ch->count++ & 0xf,
				   .magic = 0x6bd3,
				   .stream_id = (uint16_t)stream_id,
				   .task_id = (uint16_t)task_id};
	uint64_t counter = sim_hal_counter(ns);
	rec.counter_lo = (uint32_t)counter;
	rec.counter_hi = (uint32_t)(counter >> 32);
	const void *bytes = &rec;
	struct stars_record_short brief = {.counter = counter};
	if (ch->record_bytes == 32) {
		memcpy(&brief.head, &rec, 4);
		brief.task_id = (uint32_t)task_id;
		bytes = &brief;
	}
	memcpy(ch->ring + ch->tail % RING_BYTES, bytes, ch->record_bytes);
	ch->tail += ch->record_bytes;
}

void sim_stars_task(int device, int stream_id, int task_id, uint64_t begin_ns, uint64_t end_ns)
{
	struct channel *ch = &channels[device];
	if (!atomic_load_explicit(&ch->on, memory_order_relaxed))
		return;
	pthread_mutex_lock(&ch->lock);
	if (atomic_load(&ch->on) && ch->task_records) {
		put_record(ch, 0, stream_id, task_id, begin_ns);
		put_record(ch, 1, stream_id, task_id, end_ns);
		pthread_cond_signal(&ch->more);
	}
	pthread_mutex_unlock(&ch->lock);
}
