/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Samples of device memory. Where the vendor's library is found (LD_LIBRARY_PATH=build/sim) they
 * are looked at; elsewhere the point is that there are none and nothing waits.
 */
#include "memory/track/device_memory.h"

#include "base/clock.h"
#include "device/ascend/metrics/dcmi.h"
#include "rowtext.h"

#include <errno.h>
#include <unistd.h>

static struct buf r;

static void device(uint32_t number)
{
	RECORD(&r, REC_ALLOC, rec_alloc, 1, .addr = 0x1000 * (number + 1), .size_bytes = 1,
	       .pool = POOL_HAL, .device = (uint16_t)number, .module = MODULE_NONE);
	rowtext_feed(0, 7, &r);
}

/* Looks until something arrives, at most a second. */
static bool wait_for_samples(struct device_memory *m, struct buf *batch)
{
	uint64_t until_ns = clock_mono_ns() + 1000000000;

	while (clock_mono_ns() < until_ns) {
		if (device_memory_poll(m, rowtext_track, true, batch))
			return true;
		usleep(1000);
	}
	return false;
}

static unsigned told;

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *rec)
{
	const struct rec_device *d = (const struct rec_device *)rec;

	(void)arg;
	(void)tid;
	CHECK_INT(proc, 0);
	CHECK_INT(rec->type, REC_DEVICE);
	CHECK(d->used_bytes <= d->total_bytes && d->total_bytes > 0);
	CHECK(d->device < 2);
	/* Process 100 holds memory here and is not known there. */
	CHECK(d->process_bytes == DEVICE_UNKNOWN && d->others_bytes == DEVICE_UNKNOWN);
	told++;
}

TEST(device_memory, samples_or_none)
{
	static const struct stream_ops ops = {.record = on_record};
	struct device_memory *m = device_memory_new(NULL, NULL);
	struct ascend_dcmi *dcmi = NULL;
	struct buf batch = {0};

	rowtext_begin("{}", "");
	bool there = ascend_dcmi_open(&dcmi, NULL) == 0;
	CHECK(!device_memory_poll(m, rowtext_track, true, &batch)); /* nobody uses a device */
	device(0);
	device(1);
	CHECK_INT(wait_for_samples(m, &batch), there);
	CHECK_INT(batch.len > 0, there);
	if (there)
		CHECK_INT(stream_frame(&ops, NULL, FRAME_BATCH, batch.data, batch.len, NULL), 0);
	CHECK_INT(told, there ? 2 : 0);
	if (there) {
		struct ascend_memory memory;
		CHECK_INT(ascend_dcmi_memory(dcmi, 4242, &memory, NULL), -ENODEV);
	}
	device_memory_settle(m, rowtext_track); /* nothing was refused: does not wait */
	device_memory_free(m);
	ascend_dcmi_close(dcmi);
	buf_release(&batch);
	rowtext_done();
	buf_release(&r);
}

/* At the end of the recorder a question may be open. */
TEST(device_memory, free_at_any_time)
{
	struct buf batch = {0};

	device_memory_free(NULL);
	device_memory_free(device_memory_new(NULL, NULL));
	for (unsigned i = 0; i < 20; i++) {
		struct device_memory *m = device_memory_new(NULL, NULL);
		rowtext_begin("{}", "");
		device(0);
		device_memory_poll(m, rowtext_track, true, &batch);
		usleep(i * 50);
		device_memory_free(m);
	}
	buf_release(&batch);
	rowtext_done();
	buf_release(&r);
}
