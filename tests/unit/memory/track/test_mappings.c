/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/track/track.h"

#include "rowtext.h"

#include <time.h>

#define HOST "{\"analysisType\":0,\"collectCpu\":true}"

static struct buf r;

static void map(uint64_t ns, uint8_t op, uint64_t addr, uint64_t bytes, uint8_t kind)
{
	RECORD(&r, REC_MAP, rec_map, ns, .op = op, .addr = addr, .bytes = bytes, .kind = kind);
}

static void object(uint64_t ns, uint64_t addr, uint64_t bytes)
{
	RECORD(&r, REC_ALLOC, rec_alloc, ns, .addr = addr, .size_bytes = bytes, .pool = POOL_PYTHON,
	       .device = DEV_HOST, .module = MODULE_NONE);
}

static void feed(void)
{
	rowtext_feed(0, 7, &r);
}

static void done(void)
{
	buf_release(&r);
	rowtext_done();
}

#define ROW(what, ns, id, addr, size, rest)                                                        \
	what " - @" #ns " t7 d10000 allocation_id:" #id ",addr:" #addr ",size:" #size "," rest "\n"

TEST(mappings, are_split_and_replaced)
{
	rowtext_begin(HOST, "");
	map(1, MAP_ADD, 0x1000, 0x4000, ALLOC_MAPPED);
	map(2, MAP_DROP, 0x2000, 0x1000, 0);
	map(3, MAP_ADD, 0x4000, 0x2000, ALLOC_SHARED); /* half of it where something was */
	map(4, MAP_DROP, 0, 0x8000, 0);
	map(5, MAP_DROP, 0, 0x8000, 0); /* nothing is left */
	feed();
	ROWS(ROW("MALLOC HOST", 1, 1, 1000, 16384, "total:16384,alloc_type:mmap") ROW(
		"FREE HOST", 2, 1, 1000, 16384, "total:0,alloc_type:mmap")
		     ROW("MALLOC HOST", 2, 2, 1000, 4096, "total:4096,alloc_type:mmap") ROW(
			     "MALLOC HOST", 2, 3, 3000, 8192, "total:12288,alloc_type:mmap")
			     ROW("FREE HOST", 3, 3, 3000, 8192, "total:4096,alloc_type:mmap") ROW(
				     "MALLOC HOST", 3, 4, 3000, 4096, "total:8192,alloc_type:mmap")
				     ROW("MALLOC HOST", 3, 5, 4000, 8192,
					 "total:16384,alloc_type:shared")
					     ROW("FREE HOST", 4, 5, 4000, 8192,
						 "total:8192,alloc_type:shared")
						     ROW("FREE HOST", 4, 4, 3000, 4096,
							 "total:4096,alloc_type:mmap")
							     ROW("FREE HOST", 4, 2, 1000, 4096,
								 "total:0,alloc_type:mmap"));
	done();
}

TEST(mappings, reserved_ones_count_once_they_are_writable)
{
	rowtext_begin(HOST, "");
	map(1, MAP_ADD, 0x100000, 0x100000, ALLOC_RESERVED);
	map(2, MAP_COMMIT, 0x110000, 0x1000, 0);
	map(3, MAP_COMMIT, 0x110000, 0x2000, 0); /* half of it is already */
	map(4, MAP_DROP, 0x100000, 0, 0); /* what begins there: still reserved */
	map(5, MAP_ADD, 0x110000, 0x1000, ALLOC_RESERVED);
	map(6, MAP_COMMIT, 0x900000, 0x1000, 0); /* nothing is there */
	feed();
	ROWS(ROW("MALLOC HOST", 2, 4, 110000, 4096, "total:4096,alloc_type:mmap")
		     ROW("MALLOC HOST", 3, 6, 111000, 4096, "total:8192,alloc_type:mmap")
			     ROW("FREE HOST", 5, 4, 110000, 4096, "total:4096,alloc_type:mmap"));
	done();
}

TEST(mappings, of_malloc_are_not_reserved_any_more)
{
	rowtext_begin(HOST, "");
	map(1, MAP_ADD, 0x10000, 0x10000, ALLOC_RESERVED);
	add_alloc(&r, 2, 0x10010, 16, POOL_HOST);
	map(3, MAP_COMMIT, 0x10000, 0x10000, 0);
	map(4, MAP_DROP, 0x10000, 0x10000, 0);
	map(5, MAP_COMMIT, 0x10000, 0x10000, 0);
	feed();
	ROWS(ROW("MALLOC HOST", 2, 2, 10010, 16, "total:16"));
	done();
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Records that touch everything cost as much as others, however many mappings there are. */
TEST(mappings, cost_nothing_where_nothing_is_reserved)
{
	enum { N = 8000 };

	rowtext_begin("{\"analysisType\":0}", "");
	for (unsigned i = 1; i <= N; i++)
		map(i, MAP_ADD, i * 0x2000ull, 0x1000, ALLOC_FILE);
	uint64_t begin = cpu_ns();
	feed();
	uint64_t added = cpu_ns() - begin;
	buf_clear(&r);
	map(N, MAP_ADD, 0x1000, 0x1000, ALLOC_RESERVED); /* one is, far below the others */
	for (unsigned i = 1; i <= N; i++)
		map(N + i, MAP_COMMIT, 0x2000, 1ull << 40, 0);
	begin = cpu_ns();
	feed();
	CHECK(cpu_ns() - begin < 20 * added);
	done();
}

TEST(mappings, move_with_their_kind)
{
	rowtext_begin(HOST, "");
	map(1, MAP_ADD, 0x1000, 0x1000, ALLOC_FILE);
	map(2, MAP_LEAVE, 0x1000, 0x1000, 0);
	map(3, MAP_ARRIVE, 0x8000, 0x2000, 0);
	map(4, MAP_ARRIVE, 0x20000, 0x1000, 0); /* of what nobody knows */
	feed();
	ROWS(ROW("MALLOC HOST", 1, 1, 1000, 4096, "total:4096,alloc_type:file")
		     ROW("FREE HOST", 2, 1, 1000, 4096, "total:0,alloc_type:file") ROW(
			     "MALLOC HOST", 3, 2, 8000, 8192, "total:8192,alloc_type:file")
			     ROW("MALLOC HOST", 4, 3, 20000, 4096, "total:4096,alloc_type:mmap"));
	done();
}

TEST(mappings, give_way_to_blocks_of_malloc)
{
	rowtext_begin(HOST, "");
	map(1, MAP_ADD, 0x10000, 0x10000, ALLOC_MAPPED);
	add_alloc(&r, 2, 0x9000, 8, POOL_HOST); /* beside it */
	add_alloc(&r, 3, 0x10010, 16, POOL_HOST);
	add_alloc(&r, 4, 0x10020, 16, POOL_HOST);
	map(5, MAP_DROP, 0x10000, 0x10000, 0);
	map(6, MAP_ADD, 0x9000, 0x1000, ALLOC_MAPPED);
	feed();
	ROWS(ROW("MALLOC HOST", 1, 1, 10000, 65536, "total:65536,alloc_type:mmap")
		     ROW("MALLOC HOST", 2, 2, 9000, 8, "total:65544")
			     ROW("FREE HOST", 3, 1, 10000, 65536, "total:8,alloc_type:mmap")
				     ROW("MALLOC HOST", 3, 3, 10010, 16, "total:24")
					     ROW("MALLOC HOST", 4, 4, 10020, 16, "total:40")
						     ROW("MALLOC HOST", 6, 5, 9000, 4096,
							 "total:4136,alloc_type:mmap"));
	done();
}

TEST(mappings, hold_objects_of_python)
{
	rowtext_begin(HOST, "");
	map(1, MAP_ADD, 0x10000, 0x10000, ALLOC_MAPPED);
	object(2, 0x10100, 100);
	add_alloc(&r, 3, 0x9000, 600, POOL_HOST);
	object(4, 0x9000, 500); /* shrunk in place: malloc's, which counts */
	object(5, 0x500000, 10); /* in memory that nobody has seen */
	add_free(&r, 6, 0x10100, POOL_PYTHON);
	map(7, MAP_DROP, 0x10000, 0x10000, 0);
	add_free(&r, 8, 0x500000, POOL_PYTHON);
	feed();
	ROWS(ROW("MALLOC HOST", 1, 1, 10000, 65536, "total:65536,alloc_type:mmap") ROW(
		"MALLOC PYTHON", 2, 2, 10100, 100,
		"used:100,total:65536") ROW("MALLOC HOST", 3, 3, 9000, 600, "total:66136")
		     ROW("MALLOC HOST", 5, 5, 500000, 10,
			 "total:66146") ROW("FREE PYTHON", 6, 2, 10100, 100, "used:0,total:65536")
			     ROW("FREE HOST", 7, 1, 10000, 65536, "total:610,alloc_type:mmap")
				     ROW("FREE HOST", 8, 5, 500000, 10, "total:600"));
	done();
}

TEST(mappings, that_cannot_be_are_passed_over)
{
	rowtext_begin(HOST, "");
	map(1, MAP_ADD, UINT64_MAX - 0xfff, 0x2000, ALLOC_MAPPED);
	map(2, MAP_ADD, 0x1000, 0, ALLOC_MAPPED);
	map(3, MAP_ADD, 0x1000, 0x1000, ALLOC_PLAIN);
	map(4, MAP_ADD, 0x1000, 0x1000, 200);
	map(5, MAP_OP_END, 0x1000, 0x1000, ALLOC_MAPPED);
	RECORD(&r, REC_ALLOC, rec_alloc, 6, .addr = 0x1000, .size_bytes = 1, .pool = POOL_HOST,
	       .device = DEV_HOST, .kind = ALLOC_MAPPED);
	feed();
	ROWS("");
	done();
}
