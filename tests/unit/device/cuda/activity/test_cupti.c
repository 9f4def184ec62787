/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The CUPTI source against a library made of this file: records of every version, and who has what.
 */
#include "device/cuda/activity/cupti.h"

#include "test.h"

#include <errno.h>
#include <stdbool.h>

/* --- what is told --- */

#define TOLD 256

static struct {
	struct collect_activity a;
	char name[128], detail[64], more[32];
} told[TOLD];
static unsigned ntold;

static void copy(char *out, size_t cap, const char *s)
{
	snprintf(out, cap, "%s", s ? s : "(none)");
}

static void on_told(const struct collect_activity *a)
{
	if (ntold == TOLD)
		return;
	told[ntold].a = *a;
	copy(told[ntold].name, sizeof(told[0].name), a->name);
	copy(told[ntold].detail, sizeof(told[0].detail), a->detail);
	copy(told[ntold].more, sizeof(told[0].more), a->more_text);
	ntold++;
}

/* --- a library --- */

static struct {
	uint32_t version;
	size_t kernel, memcpy, memset, memory; /* bytes of records */
	cupti_request_fn request;
	cupti_complete_fn complete;
	cupti_clock_fn clock;
	uint64_t on;
	unsigned registered, flushes, forced;
	unsigned runs; /* so many flushes that are not forced find that something runs */
	int thread_ids;
	size_t dropped;
	cupti_result refuses;
	uint8_t *buffer; /* handed out, with `used` bytes in it */
	size_t size, used;
} lib;

static size_t bytes_of(uint32_t kind)
{
	switch (kind) {
	case CUPTI_KERNEL:
		return lib.kernel;
	case CUPTI_MEMCPY:
		return lib.memcpy;
	case CUPTI_MEMCPY2:
		return 96;
	case CUPTI_MEMSET:
		return lib.memset;
	case CUPTI_MEMORY2:
		return lib.memory;
	case CUPTI_RUNTIME:
	case CUPTI_DRIVER:
		return 40;
	default:
		return 16; /* of kinds that nobody here knows */
	}
}

static cupti_result fake_version(uint32_t *out)
{
	*out = lib.version;
	return CUPTI_OK;
}

static cupti_result fake_register(cupti_request_fn request, cupti_complete_fn complete)
{
	if (lib.refuses)
		return lib.refuses;
	lib.request = request;
	lib.complete = complete;
	lib.registered++;
	return CUPTI_OK;
}

static cupti_result fake_enable(uint32_t kind)
{
	lib.on |= 1ull << kind;
	return CUPTI_OK;
}

static cupti_result fake_disable(uint32_t kind)
{
	lib.on &= ~(1ull << kind);
	return CUPTI_OK;
}

static cupti_result fake_flush(uint32_t flag)
{
	uint8_t *b = lib.buffer;

	lib.flushes++;
	lib.forced += flag & 1;
	if (!lib.complete)
		return 7;
	if (lib.runs && !(flag & 1)) {
		lib.runs--;
		return CUPTI_OK;
	}
	lib.buffer = NULL;
	if (b)
		lib.complete(NULL, 0, b, lib.size, lib.used);
	return CUPTI_OK;
}

static cupti_result fake_next(uint8_t *buffer, size_t valid, void **record)
{
	size_t at = 0;
	uint32_t kind;

	if (*record) {
		memcpy(&kind, *record, 4);
		at = (size_t)((uint8_t *)*record - buffer) + bytes_of(kind);
	}
	if (at + 8 > valid)
		return 12;
	*record = buffer + at;
	return CUPTI_OK;
}

static cupti_result fake_dropped(void *context, uint32_t stream, size_t *out)
{
	(void)context;
	(void)stream;
	*out = lib.dropped;
	lib.dropped = 0;
	return CUPTI_OK;
}

static cupti_result fake_name(int domain, uint32_t cbid, const char **out)
{
	if (cbid == 999)
		return 1;
	*out = domain == CUPTI_DOMAIN_RUNTIME ? "cudaLaunchKernel_v7000" : "cuMemcpyDtoH_v2";
	return CUPTI_OK;
}

static cupti_result fake_finalize(void)
{
	return CUPTI_OK;
}

static cupti_result fake_get_ids(int *out)
{
	*out = lib.thread_ids;
	return CUPTI_OK;
}

static cupti_result fake_set_ids(int type)
{
	lib.thread_ids = type;
	return CUPTI_OK;
}

static cupti_result fake_clock(cupti_clock_fn clock)
{
	lib.clock = clock;
	return CUPTI_OK;
}

static const struct cupti fake = {
	.version = fake_version,
	.register_callbacks = fake_register,
	.enable = fake_enable,
	.disable = fake_disable,
	.flush = fake_flush,
	.next = fake_next,
	.dropped = fake_dropped,
	.callback_name = fake_name,
	.finalize = fake_finalize,
	.get_thread_ids = fake_get_ids,
	.set_thread_ids = fake_set_ids,
	.register_clock = fake_clock,
};

static void use(uint32_t version, size_t kernel, size_t copy_bytes, size_t set, size_t memory)
{
	memset(&lib, 0, sizeof(lib));
	lib.version = version;
	lib.kernel = kernel;
	lib.memcpy = copy_bytes;
	lib.memset = set;
	lib.memory = memory;
	ntold = 0;
	cupti_emit = on_told;
	cupti_use(&fake);
}

static void use_13(void)
{
	use(130001, 216, 96, 88, 128);
}

/* --- records --- */

static uint8_t *put(uint32_t kind)
{
	size_t max = 1;

	if (!lib.buffer && lib.request) {
		lib.request(&lib.buffer, &lib.size, &max);
		lib.used = 0;
		CHECK(max == 0);
	}
	CHECK(lib.buffer != NULL);
	uint8_t *r = lib.buffer + lib.used;
	CHECK(lib.used + bytes_of(kind) <= lib.size);
	memset(r, 0xee, bytes_of(kind)); /* what we do not read is full of something */
	memcpy(r, &kind, 4);
	lib.used += bytes_of(kind);
	return r;
}

static void put_kernel(const char *name, uint64_t start, uint64_t end)
{
	struct cupti_kernel *r = (struct cupti_kernel *)put(CUPTI_KERNEL);

	r->start = start;
	r->end = end;
	r->device = 3;
	r->stream = 7;
	r->correlation = 42;
	r->name = name;
}

static void put_copy(uint32_t kind, uint8_t copy_kind, uint8_t flags)
{
	struct cupti_copy_record *r = (struct cupti_copy_record *)put(kind);
	uint32_t id = 43;

	r->copy_kind = copy_kind;
	r->flags = flags;
	r->bytes = 4096;
	r->start = 100;
	r->end = 150;
	r->device = 1;
	r->stream = 2;
	memcpy((uint8_t *)r + (kind == CUPTI_MEMCPY ? 44 : 60), &id, 4);
}

static void put_set(void)
{
	struct cupti_memset *r = (struct cupti_memset *)put(CUPTI_MEMSET);

	r->value = 9;
	r->bytes = 64;
	r->start = 200;
	r->end = 201;
	r->device = 1;
	r->stream = 2;
	r->correlation = 44;
	r->flags = 0;
}

static void put_memory(uint32_t operation, uint32_t memory_kind)
{
	struct cupti_memory *r = (struct cupti_memory *)put(CUPTI_MEMORY2);

	r->operation = operation;
	r->memory_kind = memory_kind;
	r->correlation = 45;
	r->address = 0x7f0000000000;
	r->bytes = 1 << 20;
	r->time = 300;
	r->process = 77;
	r->device = 1;
	r->stream = 5;
	r->async = 0;
}

static void put_call(uint32_t kind, uint32_t cbid)
{
	struct cupti_api *r = (struct cupti_api *)put(kind);

	r->cbid = cbid;
	r->start = 400;
	r->end = 410;
	r->process = 77;
	r->thread = 78;
	r->correlation = 42;
}

#define ALL                                                                                        \
	(ACTIVITY_BIT(ACTIVITY_KERNEL) | ACTIVITY_BIT(ACTIVITY_MEMCPY) |                           \
	 ACTIVITY_BIT(ACTIVITY_MEMSET) | ACTIVITY_BIT(ACTIVITY_MEMORY) |                           \
	 ACTIVITY_BIT(ACTIVITY_RUNTIME_API) | ACTIVITY_BIT(ACTIVITY_API))

static void put_all(void)
{
	put_kernel("gemm", 1000, 1500);
	put_copy(CUPTI_MEMCPY, CUPTI_COPY_HTOD, 1);
	put(17); /* OVERHEAD: somebody else wanted it */
	put_copy(CUPTI_MEMCPY2, CUPTI_COPY_PTOP, 0);
	put_set();
	put_memory(CUPTI_MEMORY_ALLOCATED, 3);
	put_memory(CUPTI_MEMORY_RELEASED, 2);
	put_call(CUPTI_RUNTIME, 211);
	put_call(CUPTI_DRIVER, 307);
}

static void check_device(unsigned i, uint8_t kind, uint64_t start, uint64_t end, uint64_t id,
			 uint32_t device, uint32_t stream)
{
	const struct collect_activity *a = &told[i].a;

	CHECK_INT(a->kind, kind);
	CHECK_INT(a->start_ns, start);
	CHECK_INT(a->end_ns, end);
	CHECK_INT(a->correlation, id);
	CHECK_INT(a->place, ACTIVITY_ON_DEVICE);
	CHECK_INT(a->where[0], device);
	CHECK_INT(a->where[1], stream);
}

static void check_all(void)
{
	CHECK_INT(ntold, 8);
	check_device(0, ACTIVITY_KERNEL, 1000, 1500, 42, 3, 7);
	CHECK_STR(told[0].name, "gemm");
	check_device(1, ACTIVITY_MEMCPY, 100, 150, 43, 1, 2);
	CHECK(told[1].a.amount == 4096 && told[1].a.flag == 2 && told[1].a.async == 1);
	check_device(2, ACTIVITY_MEMCPY, 100, 150, 43, 1, 2);
	CHECK(told[2].a.flag == 4 && told[2].a.async == 0);
	check_device(3, ACTIVITY_MEMSET, 200, 201, 44, 1, 2);
	CHECK(told[3].a.amount == 64 && told[3].a.more == 9 && !told[3].a.async);
	check_device(4, ACTIVITY_MEMORY, 300, 300, 45, 1, 5);
	CHECK(told[4].a.amount == 1 << 20 && told[4].a.more == 0x7f0000000000);
	CHECK_INT(told[4].a.flag, 0);
	/* Pinned memory is the host's. */
	CHECK(told[5].a.place == ACTIVITY_ON_HOST && told[5].a.where[0] == 77);
	CHECK_INT(told[5].a.flag, 1);
	CHECK_INT(told[6].a.kind, ACTIVITY_RUNTIME_API);
	CHECK_STR(told[6].name, "cudaLaunchKernel");
	CHECK(told[6].a.where[0] == 77 && told[6].a.where[1] == 78);
	CHECK_INT(told[7].a.kind, ACTIVITY_API);
	CHECK_STR(told[7].name, "cuMemcpyDtoH_v2");
}

TEST(cupti, reads_every_version)
{
	static const struct {
		uint32_t version;
		size_t kernel, memcpy, memset, memory;
	} versions[] = {
		{18, 208, 88, 88, 120},
		{22, 208, 88, 88, 120},
		{28, 208, 96, 88, 128},
		{130001, 216, 96, 88, 128},
		{130401, 248, 112, 104, 128},
		{150000, 256, 128, 104, 136}, /* not known: longer is all that can be */
	};

	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		use(versions[i].version, versions[i].kernel, versions[i].memcpy, versions[i].memset,
		    versions[i].memory);
		CHECK_INT(cupti_source.start(ALL), 0);
		put_all();
		cupti_source.stop();
		check_all();
		CHECK_INT(cupti_source.lost(), 0);
		CHECK_STR(cupti_problem(), "");
	}
}

TEST(cupti, an_old_library_is_refused)
{
	use(17, 208, 88, 88, 120);
	CHECK_INT(cupti_source.start(ALL), -ENOTSUP);
	CHECK(strstr(cupti_problem(), "older") != NULL);
	CHECK(!lib.registered && !lib.on);
}

TEST(cupti, an_unknown_version_with_shorter_records_tells_nothing_of_them)
{
	use(150000, 120, 96, 104, 128);
	CHECK_INT(cupti_source.start(ALL), 0);
	put_kernel("gemm", 1, 2);
	put_copy(CUPTI_MEMCPY, CUPTI_COPY_HTOD, 1);
	put_call(CUPTI_RUNTIME, 211);
	cupti_source.flush();
	CHECK_INT(ntold, 1);
	CHECK_INT(told[0].a.kind, ACTIVITY_RUNTIME_API);
	CHECK_INT(cupti_source.lost(), 2);
	CHECK(strstr(cupti_problem(), "newer") != NULL);
	cupti_source.stop();
}

TEST(cupti, a_record_that_is_too_short_is_not_read)
{
	use(130001, 96, 96, 88, 128); /* its name would lie behind its end */
	CHECK_INT(cupti_source.start(ALL), 0);
	put_call(CUPTI_RUNTIME, 211);
	uint8_t *r = put(CUPTI_KERNEL);
	(void)r;
	cupti_source.stop();
	CHECK_INT(ntold, 1);
	CHECK_INT(cupti_source.lost(), 1);
}

/* --- a library that moves wrongly --- */

static uintptr_t moves_to;

static cupti_result wrong_next(uint8_t *buffer, size_t valid, void **record)
{
	(void)valid;
	*record = (void *)((uintptr_t)buffer + (*record ? moves_to : 0));
	return CUPTI_OK;
}

TEST(cupti, a_walk_ends)
{
	static const uintptr_t wrong[] = {0, 4, 12, 4096, (uintptr_t)-8, 1u << 30};
	static uint8_t buffer[4096] __attribute__((aligned(8)));
	struct cupti strange = fake;

	strange.next = wrong_next;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct cupti_walk w = {.fns = &strange, .kinds = ALL, .emit = on_told};
		moves_to = wrong[i];
		CHECK(!cupti_walk_buffer(&w, buffer, sizeof(buffer)));
	}
}

/* --- what is lost --- */

TEST(cupti, what_has_no_times_is_lost_and_counted)
{
	use_13();
	CHECK_INT(cupti_source.start(ALL), 0);
	put_kernel("runs", 1000, 0);
	put_kernel("never", 0, 0);
	put_kernel("ran", 1000, 1000);
	cupti_source.flush();
	CHECK_INT(ntold, 1);
	CHECK_STR(told[0].name, "ran");
	CHECK_INT(cupti_source.lost(), 2);
	lib.dropped = 5;
	cupti_source.flush();
	CHECK_INT(cupti_source.lost(), 7);
	cupti_source.stop();
	CHECK_INT(cupti_source.start(ALL), 0); /* counted anew */
	CHECK_INT(cupti_source.lost(), 0);
	cupti_source.stop();
}

TEST(cupti, buffers_are_bounded)
{
	static uint8_t *b[CUPTI_BUFFERS];
	uint8_t foreign[8];

	for (unsigned i = 0; i < CUPTI_BUFFERS; i++) {
		b[i] = cupti_buffer_take();
		CHECK(b[i] && (uintptr_t)b[i] % 8 == 0);
		b[i][CUPTI_BUFFER_BYTES - 1] = 1;
	}
	CHECK(!cupti_buffer_take());
	CHECK_INT(cupti_buffers_out(), CUPTI_BUFFERS);
	CHECK(!cupti_buffer_is_ours(foreign) && cupti_buffer_is_ours(b[3]));
	cupti_buffer_return(foreign, true);
	cupti_buffer_return(b[3], true);
	CHECK(!cupti_buffer_is_ours(b[3]));
	CHECK(cupti_buffer_take() == b[3]);
	for (unsigned i = 0; i < CUPTI_BUFFERS; i++)
		cupti_buffer_return(b[i], i & 1);
	cupti_buffers_free();
	CHECK_INT(cupti_buffers_out(), 0);
	CHECK(cupti_buffer_take() != NULL);
}

/* --- having it, and giving it back --- */

TEST(cupti, off_nothing_is_held)
{
	use_13();
	CHECK(cupti_source.is_there());
	CHECK(!lib.registered && !lib.on && !lib.flushes && !lib.clock);
	CHECK_INT(cupti_source.start(ACTIVITY_BIT(ACTIVITY_KERNEL)), 0);
	CHECK_INT(lib.on, 1ull << CUPTI_KERNEL);
	CHECK(lib.registered == 1 && lib.clock && lib.thread_ids == CUPTI_THREAD_ID_SYSTEM);
	put_kernel("gemm", 10, 20);
	cupti_source.stop();
	CHECK_INT(ntold, 1);
	CHECK(!lib.on && lib.thread_ids == CUPTI_THREAD_ID_DEFAULT);
	CHECK_INT(cupti_buffers_out(), 0);
	unsigned flushes = lib.flushes;
	cupti_source.flush();
	CHECK_INT(lib.flushes, flushes);
	CHECK_INT(cupti_source.change(ALL), -ENOTSUP);
	cupti_source.stop();
	CHECK_INT(lib.registered, 1);
}

TEST(cupti, a_flush_is_forced_only_at_the_end)
{
	use_13();
	CHECK_INT(cupti_source.start(ALL), 0);
	unsigned forced = lib.forced;
	put_kernel("a", 10, 20);
	cupti_source.flush();
	CHECK_INT(ntold, 1);
	CHECK_INT(lib.forced, forced);
	put_kernel("b", 10, 20);
	cupti_source.stop();
	CHECK_INT(ntold, 2);
	CHECK_INT(lib.forced, forced + 1);
}

/* Every flush of the last ones is followed by 2 ms of waiting. */
TEST(cupti, the_end_waits_for_what_runs)
{
	use_13();
	CHECK_INT(cupti_source.start(ALL), 0);
	put_kernel("long", 10, 20);
	unsigned flushes = lib.flushes, forced = lib.forced;
	lib.runs = 300;
	cupti_source.stop();
	CHECK_INT(ntold, 1);
	CHECK_INT(cupti_source.lost(), 0);
	CHECK_INT(lib.flushes, flushes + 302);
	CHECK_INT(lib.forced, forced + 1);
}

TEST(cupti, the_end_waits_no_longer_than_it_may)
{
	use_13();
	CHECK_INT(cupti_source.start(ALL), 0);
	put_kernel("endless", 10, 0);
	lib.runs = 100000;
	cupti_source.stop();
	CHECK(lib.runs < 99000 && lib.runs > 96000);
	CHECK_INT(ntold, 0);
	CHECK_INT(cupti_source.lost(), 1);
	/* Nothing is in the buffer that is out: nothing runs. */
	size_t max;
	CHECK_INT(cupti_source.start(ALL), 0);
	lib.request(&lib.buffer, &lib.size, &max);
	lib.used = 0;
	lib.runs = 100000;
	cupti_source.stop();
	CHECK(lib.runs > 99800);
	/* Nobody waits for long when the process ends. */
	CHECK_INT(cupti_source.start(ALL), 0);
	put_kernel("endless", 10, 0);
	lib.runs = 100000;
	cupti_hurry();
	cupti_source.stop();
	CHECK(lib.runs > 99800);
}

TEST(cupti, a_library_that_keeps_buffers_is_waited_for_once)
{
	use_13();
	for (unsigned i = 0; i < 2; i++) {
		CHECK_INT(cupti_source.start(ALL), 0);
		put_kernel("ended", 10, 20);
		lib.runs = 100000;
		cupti_source.stop();
		CHECK_INT(ntold, i + 1);
		CHECK_INT(cupti_source.lost(), 0);
		CHECK(i ? lib.runs > 99800 : lib.runs < 99000);
	}
}

TEST(cupti, kinds_change_while_it_is_on)
{
	use_13();
	CHECK_INT(cupti_source.start(ACTIVITY_BIT(ACTIVITY_KERNEL)), 0);
	put_kernel("before", 10, 20);
	CHECK_INT(cupti_source.change(ACTIVITY_BIT(ACTIVITY_MEMCPY)), 0);
	CHECK_INT(ntold, 1); /* of a kind that is off now, but was on then */
	CHECK_INT(lib.on, 1ull << CUPTI_MEMCPY | 1ull << CUPTI_MEMCPY2);
	CHECK_INT(cupti_source.change(ACTIVITY_BIT(ACTIVITY_MARKER)), 0);
	CHECK_INT(lib.on, 0); /* marks need no library */
	CHECK(!cupti_source.is_paused());
	CHECK_INT(cupti_source.change(ACTIVITY_BIT(ACTIVITY_COMMUNICATION)), 0);
	CHECK_INT(lib.on, 1ull << CUPTI_KERNEL);
	cupti_source.stop();
	CHECK_INT(lib.on, 0);
}

TEST(cupti, refused_it_says_why)
{
	use_13();
	lib.refuses = CUPTI_MULTIPLE_SUBSCRIBERS;
	CHECK_INT(cupti_source.start(ALL), -EBUSY);
	CHECK(strstr(cupti_problem(), "another profiler") != NULL);
	CHECK(!lib.on && !cupti_source.is_paused());
	CHECK_INT(cupti_source.start(0), -ENOTSUP);
}

TEST(cupti, calls_of_the_driver_are_told_once)
{
	static const struct {
		uint32_t kinds;
		uint8_t told_as;
	} cases[] = {
		{ACTIVITY_BIT(ACTIVITY_NODE_API), ACTIVITY_NODE_API},
		{ACTIVITY_BIT(ACTIVITY_NODE_API) | ACTIVITY_BIT(ACTIVITY_ACL_API),
		 ACTIVITY_ACL_API},
		{ACTIVITY_APIS, ACTIVITY_API},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		use_13();
		CHECK_INT(cupti_source.start(cases[i].kinds), 0);
		put_call(CUPTI_DRIVER, 999);
		cupti_source.stop();
		CHECK_INT(ntold, 1);
		CHECK_INT(told[0].a.kind, cases[i].told_as);
		CHECK_STR(told[0].name, "");
		CHECK((strstr(cupti_problem(), "reported once") != NULL) == (i > 0));
	}
}

/* --- NCCL --- */

static const char mangled[] =
	"_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";

TEST(cupti, names_of_nccl)
{
	static const struct {
		const char *name, *function, *algorithm;
		uint16_t type;
	} cases[] = {
		{mangled, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "RING", 4},
		{"ncclKernel_AllGather_TREE_LL128_Sum_int8_t(ncclDevComm*, unsigned long)",
		 "ncclKernel_AllGather_TREE_LL128_Sum_int8_t", "TREE", 0},
		{"ncclDevKernel_Generic", "ncclDevKernel_Generic", "", 65535},
		{"ncclDevKernel_ReduceScatter_Sum_bf16_PAT_SIMPLE<4096>",
		 "ncclDevKernel_ReduceScatter_Sum_bf16_PAT_SIMPLE", "PAT", 11},
		{"_Z9999ncclKernel_X", "ncclKernel_X", "", 65535},
	};
	struct nccl_kernel n;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CHECK(nccl_kernel_read(cases[i].name, &n));
		CHECK_STR(n.name, cases[i].function);
		CHECK_STR(n.algorithm, cases[i].algorithm);
		CHECK_INT(n.data_type, cases[i].type);
	}
	CHECK(!nccl_kernel_read("", &n) && !nccl_kernel_read("_Z", &n));
	CHECK(!nccl_kernel_read("_Z4gemmv", &n) && !nccl_kernel_read("my_ncclDevKernel", &n));
}

TEST(cupti, communication_is_a_kernel_unless_it_is_asked_for)
{
	static const struct {
		uint32_t kinds;
		unsigned told;
		uint8_t first;
	} cases[] = {
		{ACTIVITY_BIT(ACTIVITY_KERNEL), 2, ACTIVITY_KERNEL},
		{ACTIVITY_BIT(ACTIVITY_COMMUNICATION), 1, ACTIVITY_COMMUNICATION},
		{ACTIVITY_BIT(ACTIVITY_COMMUNICATION) | ACTIVITY_BIT(ACTIVITY_KERNEL), 2,
		 ACTIVITY_COMMUNICATION},
		{ACTIVITY_BIT(ACTIVITY_HCCL), 1, ACTIVITY_HCCL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		use_13();
		CHECK_INT(cupti_source.start(cases[i].kinds), 0);
		put_kernel(mangled, 10, 20);
		put_kernel("gemm", 20, 30);
		cupti_source.stop();
		CHECK_INT(ntold, cases[i].told);
		CHECK_INT(told[0].a.kind, cases[i].first);
	}
	use_13();
	cupti_source.start(ACTIVITY_BIT(ACTIVITY_COMMUNICATION));
	put_kernel(mangled, 10, 20);
	cupti_source.stop();
	CHECK_STR(told[0].name, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
	CHECK_STR(told[0].detail, "");
	CHECK_STR(told[0].more, "RING");
	CHECK_INT(told[0].a.data_type, 4);
}
