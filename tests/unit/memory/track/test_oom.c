/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Rows about refused memory, and samples of device memory in the stream. */
#include "memory/track/track.h"

#include "rowtext.h"

#define OOM(k) "{\"analysisType\":8,\"collectCpu\":true,\"oomTopK\":" k "}"
#define S 1000000000ull

static struct buf r;

static void feed(void)
{
	rowtext_feed(0, 7, &r);
}

static void done(void)
{
	buf_release(&r);
	rowtext_done();
}

static void oom(uint64_t ns, uint16_t device)
{
	RECORD(&r, REC_OOM, rec_oom, ns, .size_bytes = 99, .flag = 6, .device = device);
}

static void alloc(uint64_t ns, uint64_t addr, uint64_t size, uint8_t pool, uint16_t device)
{
	RECORD(&r, REC_ALLOC, rec_alloc, ns, .addr = addr, .size_bytes = size, .pool = pool,
	       .kind = pool > POOL_HOST ? ALLOC_REGION : ALLOC_PLAIN, .device = device,
	       .module = MODULE_NONE);
}

static void sample(uint64_t ns, uint16_t device, uint64_t used, uint64_t mine)
{
	RECORD(&r, REC_DEVICE, rec_device, ns, .device = device, .total_bytes = 1u << 30,
	       .used_bytes = used, .process_bytes = mine);
}

TEST(track_oom, lists_blocks)
{
	rowtext_begin(OOM("2"), "");
	alloc(1, 0x1000, 50, POOL_PTA, 0);
	alloc(2, 0x2000, 70, POOL_PTA, 1); /* of another device */
	alloc(3, 0x3000, 60, POOL_HAL, 1); /* the driver's count whatever the device */
	alloc(4, 0x4000, 90, POOL_HOST, DEV_HOST); /* malloc does not */
	RECORD(&r, REC_ALLOC, rec_alloc, 5, .addr = 0x5000, .size_bytes = 10, .pool = POOL_HOST,
	       .kind = ALLOC_PINNED, .device = DEV_HOST);
	feed();
	buf_clear(&rowtext);
	oom(6, 0);
	feed();
	ROWS("OOM_DETAIL OOM_TRIGGER OOM_Trigger @6 t7 d0 func:halMemAlloc,req_size:99,flag:6\n"
	     "OOM_DETAIL OOM_RECENT_ALLOC OOM_RecentAlloc @6 t7 d0 "
	     "pool:HOST,ptr:5000,size:10,timestamp:5\n"
	     "OOM_DETAIL OOM_RECENT_ALLOC OOM_RecentAlloc @6 t7 d0 "
	     "pool:HAL,ptr:3000,size:60,timestamp:3\n"
	     "OOM_DETAIL OOM_TOP_ALLOC OOM_TopAlloc @6 t7 d0 "
	     "pool:HAL,ptr:3000,size:60,timestamp:3\n"
	     "OOM_DETAIL OOM_TOP_ALLOC OOM_TopAlloc @6 t7 d0 "
	     "pool:PTA,ptr:1000,size:50,timestamp:1\n");
	done();
}

static size_t count(const char *word)
{
	size_t n = 0;

	for (const char *p = buf_str(&rowtext); (p = strstr(p, word)); p++)
		n++;
	return n;
}

/* A framework that runs dry asks again and again. */
TEST(track_oom, lists_once_in_two_seconds)
{
	rowtext_begin(OOM("5"), "");
	alloc(1, 0x1000, 50, POOL_PTA, 0);
	oom(S, 0);
	oom(S + 1, 0);
	oom(3 * S - 1, 0);
	feed();
	CHECK_INT(count("OOM_Trigger"), 3);
	CHECK_INT(count("OOM_TopAlloc"), 1);
	oom(3 * S, 0);
	oom(1, 0); /* an event told late is no reason to list again */
	feed();
	CHECK_INT(count("OOM_TopAlloc"), 2);
	CHECK_INT(count("OOM_RecentAlloc"), 2);
	done();
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

static int descending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x < y) - (x > y);
}

TEST(track_oom, the_largest_of_many)
{
	enum { N = 5000, K = 50 };
	static uint64_t size[N];
	struct buf want = {0};

	rowtext_begin(OOM("50"), "");
	for (unsigned i = 0; i < N; i++) {
		size[i] = (mix(i + 1) % 1000000) * N + i; /* no two are equal */
		alloc(i + 1, 0x1000 * (i + 1), size[i], i % 2 ? POOL_PTA : POOL_HAL, 0);
	}
	feed();
	buf_clear(&rowtext);
	oom(N + 1, 0);
	feed();
	qsort(size, N, sizeof(size[0]), descending);
	const char *at = strstr(buf_str(&rowtext), "OOM_TOP_ALLOC");
	CHECK_INT(count("OOM_TopAlloc"), K);
	for (unsigned i = 0; i < K; i++) {
		buf_clear(&want);
		buf_addf(&want, "size:%llu,", (unsigned long long)size[i]);
		at = strstr(at, "size:");
		CHECK(at && !strncmp(at, buf_str(&want), want.len));
		at++;
	}
	/* And the newest, newest first. */
	at = buf_str(&rowtext);
	for (unsigned i = 0; i < K; i++) {
		buf_clear(&want);
		buf_addf(&want, "timestamp:%u\n", N - i);
		at = strstr(at, "timestamp:");
		CHECK(at && !strncmp(at, buf_str(&want), want.len));
		at++;
	}
	buf_release(&want);
	done();
}

TEST(track_oom, samples_in_rows)
{
	rowtext_begin("{\"analysisType\":0}", "");
	alloc(S, 0x1000, 5, POOL_HAL, 0);
	sample(S, 0, 1000, 10);
	sample(S, DEV_NONE, 1000, 10); /* no device at all */
	alloc(2 * S, 0x1000, 6, POOL_PTA, 0);
	alloc(2 * S, 0x2000, 7, POOL_HAL, 1); /* of this one nothing is known */
	add_free(&r, 6 * S, 0x1000, POOL_HAL);
	add_free(&r, 6 * S + 1, 0x1000, POOL_PTA); /* too old by now */
	sample(7 * S, 0, 2000, DEVICE_UNKNOWN);
	alloc(7 * S, 0x1000, 8, POOL_HAL, 0);
	RECORD(&r, REC_DEVICE, rec_device, 8 * S, .total_bytes = 1u << 30, .used_bytes = 9000,
	       .process_bytes = 10, .job_kib = 3);
	add_free(&r, 8 * S, 0x1000, POOL_HAL);
	feed();
	ROWS("MALLOC HAL - @1000000000 t7 d0 allocation_id:1,addr:1000,size:5,used:5,"
	     "page_type:normal,alloc_type:alloc\n"
	     "MALLOC PTA - @2000000000 t7 d0 allocation_id:2,addr:1000,size:6,used:6,total:0,"
	     "process_used:10,device_used:1000\n"
	     "MALLOC HAL - @2000000000 t7 d1 allocation_id:3,addr:2000,size:7,used:7,"
	     "page_type:normal,alloc_type:alloc\n"
	     "FREE HAL - @6000000000 t7 d0 allocation_id:1,addr:1000,size:5,used:0,"
	     "process_used:10,device_used:1000\n"
	     "FREE PTA - @6000000001 t7 d0 allocation_id:2,addr:1000,size:6,used:0,total:0\n"
	     "MALLOC HAL - @7000000000 t7 d0 allocation_id:4,addr:1000,size:8,used:8,"
	     "device_used:2000,page_type:normal,alloc_type:alloc\n"
	     "FREE HAL - @8000000000 t7 d0 allocation_id:4,addr:1000,size:8,used:0,"
	     "process_used:10,device_used:9000,job_used:3072\n");
	done();
}

/* What START_TRACE says: free and total of the first device that is known. */
TEST(track_oom, start_of_tracing)
{
	rowtext_begin("{\"analysisType\":0,\"collectMode\":1}", "");
	sample(S, 3, 1000, 10);
	sample(S, 2, 24, 10);
	RECORD(&r, REC_SYSTEM, rec_system, S + 1, .kind = SYSTEM_START_TRACE, .device = DEV_NONE);
	feed();
	ROWS("SYSTEM START_TRACE - @1000000001 t7 d9999 free:1073741800,total:1073741824\n");
	done();
}

#define SNAPSHOT(time, free, part)                                                                 \
	"SNAPSHOT SNAPSHOT OOM_Snapshot @" time " t7 d0 reserved:4194304,peak_reserved:4194304,"   \
	"allocated:4194304,peak_allocated:4194304,total_mem:1073741824,free_mem:" free             \
	",device_utilization:" part ",pt_utilization:100.000000\n"

/* What others have is of the sample, what this process has is of this moment. */
TEST(track_oom, snapshot)
{
	rowtext_begin(OOM("1"), "");
	sample(S, 0, 600u << 20, 100u << 20);
	alloc(S, 0x1000, 4u << 20, POOL_HAL, 0);
	feed();
	buf_clear(&rowtext);
	oom(S + 1, 0);
	feed();
	const char *first = SNAPSHOT("1000000001", "545259520", "49.218750");
	CHECK(!strncmp(buf_str(&rowtext), first, strlen(first)));
	done();
}

/* Refused before the first sample came: then it is told with the sample. */
TEST(track_oom, snapshot_afterwards)
{
	rowtext_begin(OOM("1"), "");
	alloc(S, 0x1000, 4u << 20, POOL_HAL, 0);
	oom(S + 1, 0);
	oom(S + 2, 0);
	feed();
	CHECK_INT(count("SNAPSHOT"), 0);
	CHECK(track_waits_for_device(rowtext_track));
	CHECK_INT(track_signs(rowtext_track).ooms, 2);
	buf_clear(&rowtext);
	sample(S + 500, 0, 600u << 20, 100u << 20);
	sample(S + 501, 0, 600u << 20, 100u << 20);
	rowtext_feed(0, 7, &r);
	CHECK(!track_waits_for_device(rowtext_track));
	CHECK_INT(count("OOM_Snapshot @1000000002 t100 d0"), 1);
	CHECK_INT(count("SNAPSHOT SNAPSHOT"), 1);
	done();
}
