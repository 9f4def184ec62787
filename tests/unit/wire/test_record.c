/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "wire/record.h"

#include "base/mem.h"
#include "records.h"
#include "test.h"

static const struct {
	uint8_t type;
	uint16_t fixed;
	uint16_t len_at; /* 0: no text */
} types[] = {
	{REC_THREAD, sizeof(struct rec_thread), 0},
	{REC_ALLOC, sizeof(struct rec_alloc), 0},
	{REC_FREE, sizeof(struct rec_free), 0},
	{REC_HEAP, sizeof(struct rec_heap), 0},
	{REC_ACCESS, sizeof(struct rec_access), offsetof(struct rec_access, len)},
	{REC_OP, sizeof(struct rec_op), offsetof(struct rec_op, len)},
	{REC_KERNEL, sizeof(struct rec_kernel), 0},
	{REC_NAME, sizeof(struct rec_name), offsetof(struct rec_name, len)},
	{REC_MARK, sizeof(struct rec_mark), offsetof(struct rec_mark, len)},
	{REC_SYSTEM, sizeof(struct rec_system), 0},
	{REC_LABEL, sizeof(struct rec_label), offsetof(struct rec_label, len)},
	{REC_OOM, sizeof(struct rec_oom), 0},
	{REC_MODULE, sizeof(struct rec_module), offsetof(struct rec_module, len)},
	{REC_WATCH, sizeof(struct rec_watch), offsetof(struct rec_watch, len)},
	{REC_DEVICE, sizeof(struct rec_device), 0},
	{REC_PYTHON, sizeof(struct rec_python), offsetof(struct rec_python, len)},
	{REC_CONFIG, sizeof(struct rec_config), offsetof(struct rec_config, len)},
	{REC_SNAPSHOT, sizeof(struct rec_snapshot), offsetof(struct rec_snapshot, len)},
	{REC_CALL, sizeof(struct rec_call), 0},
	{REC_ACTIVITY, sizeof(struct rec_activity), 0},
	{REC_MONITOR, sizeof(struct rec_monitor), offsetof(struct rec_monitor, len)},
	{REC_MAP, sizeof(struct rec_map), 0},
	{REC_USAGE, sizeof(struct rec_usage), 0},
	{REC_PROCESS, sizeof(struct rec_process), 0},
	{REC_BLOCK, sizeof(struct rec_block), offsetof(struct rec_block, len)},
	{REC_STATE, sizeof(struct rec_state), 0},
	{REC_LAYER, sizeof(struct rec_layer), 0},
	{REC_VMM, sizeof(struct rec_vmm), 0},
	{REC_CONTEXT, sizeof(struct rec_context), 0},
	{REC_GPU, sizeof(struct rec_gpu), offsetof(struct rec_gpu, len)},
	{REC_LIBRARY, sizeof(struct rec_library), offsetof(struct rec_library, len)},
	{REC_WORK, sizeof(struct rec_work), 0},
	{REC_LAUNCH, sizeof(struct rec_launch), 0},
	{REC_FRAME, sizeof(struct rec_frame), offsetof(struct rec_frame, len)},
	{REC_SAMPLE, sizeof(struct rec_sample), 0},
	{REC_SAMPLED, sizeof(struct rec_sampled), offsetof(struct rec_sampled, len)},
	{REC_COUNTER, sizeof(struct rec_counter), offsetof(struct rec_counter, len)},
};

#define NTYPES (sizeof(types) / sizeof(types[0]))

/* A record of type i with `len` bytes of text, in a heap block of exactly its size. */
static struct rec *make(size_t i, size_t len)
{
	uint16_t size = rec_size(types[i].fixed, len);
	struct rec *r = xcalloc(1, size);

	*r = (struct rec){.type = types[i].type, .size = size, .time_ns = 1};
	if (types[i].len_at) {
		uint16_t n = (uint16_t)len;
		memcpy((char *)r + types[i].len_at, &n, sizeof(n));
	}
	memset((char *)r + types[i].fixed, 'x', len);
	return r;
}

TEST(record, every_type_is_listed)
{
	CHECK_INT(NTYPES, REC_TYPE_END - 1);
}

TEST(record, plain_types)
{
	for (size_t i = 0; i < NTYPES; i++) {
		struct rec *r = make(i, 0);
		CHECK(rec_check(r, r->size));
		CHECK(rec_check(r, r->size + 100u));
		for (size_t avail = 0; avail < types[i].fixed; avail++)
			CHECK(!rec_check(r, avail));
		free(r);
	}
}

TEST(record, text_is_found_and_bounded)
{
	static const size_t lens[] = {1, 7, 8, 9, 100, REC_MAX_TEXT};

	for (size_t i = 0; i < NTYPES; i++) {
		for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]) && types[i].len_at; k++) {
			struct rec *r = make(i, lens[k]);
			size_t len;
			CHECK(rec_check(r, r->size));
			const char *text = rec_text(r, &len);
			CHECK_INT(len, lens[k]);
			CHECK(text == (char *)r + types[i].fixed);
			CHECK_INT(text[len - 1], 'x');
			CHECK(!rec_check(r, r->size - 8u));
			free(r);
		}
	}
}

TEST(record, no_text_where_there_is_none)
{
	for (size_t i = 0; i < NTYPES; i++) {
		struct rec *r = make(i, 0);
		size_t len = 7;
		if (!types[i].len_at)
			CHECK(!rec_text(r, &len));
		else
			CHECK(rec_text(r, &len) == (char *)r + types[i].fixed);
		CHECK_INT(len, 0);
		free(r);
	}
}

/* Every size that is not the one of the type and its text is refused. */
TEST(record, wrong_sizes)
{
	static char room[65536] __attribute__((aligned(8)));

	for (size_t i = 0; i < NTYPES; i++) {
		struct rec *r = make(i, types[i].len_at ? 20 : 0);
		for (unsigned size = 0; size <= UINT16_MAX; size++) {
			memset(room, 0, types[i].fixed + 32u);
			memcpy(room, r, r->size);
			((struct rec *)room)->size = (uint16_t)size;
			CHECK_INT(rec_check((struct rec *)room, sizeof(room)), size == r->size);
		}
		free(r);
	}
}

/* Every length that does not fit the size is refused; a sum that wraps around included. */
TEST(record, wrong_text_lengths)
{
	for (size_t i = 0; i < NTYPES; i++) {
		if (!types[i].len_at)
			continue;
		for (size_t len = 0; len < 32; len += 5) {
			struct rec *r = make(i, len);
			for (unsigned n = 0; n <= UINT16_MAX; n++) {
				uint16_t claimed = (uint16_t)n;
				memcpy((char *)r + types[i].len_at, &claimed, sizeof(claimed));
				bool fits = n + types[i].fixed <= r->size &&
					    n + types[i].fixed + 7u >= r->size;
				if (rec_check(r, r->size) !=
				    (fits && rec_size(types[i].fixed, n) == r->size)) {
					fprintf(stderr, "type %u size %u len %u\n", types[i].type,
						r->size, n);
					CHECK(0);
				}
			}
			free(r);
		}
	}
}

TEST(record, unknown_types)
{
	struct rec_alloc r = {.head = {.size = sizeof(r)}};

	for (unsigned type = 0; type < 256; type++) {
		r.head.type = (uint8_t)type;
		CHECK(rec_check(&r.head, sizeof(r)) == (type == REC_ALLOC || type == REC_HEAP ||
							type == REC_OOM || type == REC_ACCESS ||
							type == REC_MONITOR || type == REC_MAP ||
							type == REC_LAUNCH || type == REC_COUNTER));
	}
}

TEST(record, garbage)
{
	uint64_t words[8], seed = 1;

	for (int i = 0; i < 1000000; i++) {
		for (size_t k = 0; k < 8; k++)
			words[k] = seed = seed * 6364136223846793005u + 1442695040888963407u;
		const struct rec *r = (const struct rec *)words;
		size_t len;
		if (!rec_check(r, sizeof(words)))
			continue;
		CHECK(r->size <= sizeof(words));
		const char *text = rec_text(r, &len);
		CHECK(!text || text + len <= (const char *)words + r->size);
	}
}
