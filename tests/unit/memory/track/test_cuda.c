/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Blocks of CUDA's driver: virtual memory, contexts, who asked, refusals. */
#include "memory/track/track.h"

#include "rowtext.h"

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

static void alloc(uint64_t ns, uint64_t addr, uint64_t size, uint8_t kind, uint16_t context)
{
	RECORD(&r, REC_ALLOC, rec_alloc, ns, .addr = addr, .size_bytes = size, .pool = POOL_CUDA,
	       .kind = kind, .module = MODULE_NONE, .context = context);
}

static void vmm(uint64_t ns, uint8_t op, uint64_t addr, uint64_t bytes, uint64_t handle)
{
	RECORD(&r, REC_VMM, rec_vmm, ns, .op = op, .addr = addr, .bytes = bytes, .handle = handle);
}

#define MADE "MALLOC CUDA - @1 t7 d0 allocation_id:1,addr:9,size:100,used:100,alloc_type:create\n"

/* Released while it is mapped, it lives on: so do expandable segments of torch. */
TEST(track_cuda, physical_memory_ends_with_its_last_mapping)
{
	rowtext_begin("{}", "");
	alloc(1, 9, 100, ALLOC_CREATE, 0);
	vmm(2, VMM_MAP, 0x1000, 60, 9);
	vmm(3, VMM_MAP, 0x2000, 40, 9);
	vmm(4, VMM_RELEASE, 0, 0, 9);
	vmm(5, VMM_UNMAP, 0x1000, 60, 0);
	feed();
	ROWS(MADE);
	vmm(6, VMM_UNMAP, 0x2000, 40, 0);
	feed();
	ROWS("FREE CUDA - @6 t7 d0 allocation_id:1,addr:9,size:100,used:0,alloc_type:create\n");
	done();
}

TEST(track_cuda, physical_memory_ends_with_its_last_reference)
{
	rowtext_begin("{}", "");
	alloc(1, 9, 100, ALLOC_CREATE, 0);
	vmm(2, VMM_MAP, 0x1000, 100, 9);
	vmm(3, VMM_RETAIN, 0x1010, 0, 9);
	vmm(4, VMM_RELEASE, 0, 0, 9);
	vmm(5, VMM_UNMAP, 0, 0x10000, 0); /* whatever lies there */
	feed();
	ROWS(MADE);
	vmm(6, VMM_RELEASE, 0, 0, 9);
	vmm(7, VMM_RELEASE, 0, 0, 9); /* once too often */
	feed();
	ROWS("FREE CUDA - @6 t7 d0 allocation_id:1,addr:9,size:100,used:0,alloc_type:create\n");
	done();
}

/* What another process shares with this one is that one's. */
TEST(track_cuda, imported_memory_is_no_block)
{
	rowtext_begin("{}", "");
	vmm(1, VMM_IMPORT, 0, 0, 5);
	vmm(2, VMM_MAP, 0x1000, 60, 5);
	vmm(3, VMM_UNMAP, 0x1000, 60, 0);
	vmm(4, VMM_RELEASE, 0, 0, 5);
	vmm(5, VMM_UNMAP, UINT64_MAX - 1, 60, 0);
	feed();
	ROWS("");
	done();
}

/* The driver may give a job's own memory back to it under its name. */
TEST(track_cuda, an_import_of_ones_own_is_a_reference)
{
	rowtext_begin("{}", "");
	alloc(1, 9, 100, ALLOC_CREATE, 0);
	vmm(2, VMM_IMPORT, 0, 0, 9);
	vmm(3, VMM_RELEASE, 0, 0, 9);
	feed();
	ROWS(MADE);
	buf_clear(&rowtext);
	vmm(4, VMM_RELEASE, 0, 0, 9);
	feed();
	ROWS("FREE CUDA - @4 t7 d0 allocation_id:1,addr:9,size:100,used:0,alloc_type:create\n");
	done();
}

/* What the driver's pools have beside the blocks that were cut from them is said with each block. */
TEST(track_cuda, pools_of_the_driver_keep_memory)
{
	rowtext_begin("{}", "");
	alloc(1, 0x1000, 10, ALLOC_ASYNC, 0);
	alloc(2, 0x2000, 20, ALLOC_PLAIN, 0);
	RECORD(&r, REC_HEAP, rec_heap, 3, .addr = 0x77, .bytes = 32, .pool = POOL_CUDA);
	feed();
	buf_clear(&rowtext);
	alloc(4, 0xffff000000000000, 5, ALLOC_GRAPH, 0);
	feed();
	ROWS("MALLOC CUDA - @4 t7 d0 allocation_id:3,addr:ffff000000000000,size:5,used:35,"
	     "total:57,alloc_type:graph\n");
	done();
}

/* Each byte once: what is page-locked was there before, or the driver has got it from malloc(). */
TEST(track_cuda, registered_memory_of_the_host_counts_once)
{
	rowtext_begin("{\"analysisType\":0,\"collectCpu\":true}", "");
	RECORD(&r, REC_ALLOC, rec_alloc, 1, .addr = 0x1000, .size_bytes = 100, .pool = POOL_HOST,
	       .device = DEV_HOST);
	feed();
	buf_clear(&rowtext);
	RECORD(&r, REC_ALLOC, rec_alloc, 2, .addr = 0x1010, .size_bytes = 50, .pool = POOL_CUDA,
	       .kind = ALLOC_PINNED, .device = DEV_HOST);
	RECORD(&r, REC_FREE, rec_free, 3, .addr = 0x1010, .pool = POOL_CUDA, .kind = ALLOC_PINNED,
	       .device = DEV_HOST);
	feed();
	ROWS("");
	RECORD(&r, REC_ALLOC, rec_alloc, 4, .addr = 0x2000, .size_bytes = 60, .pool = POOL_CUDA,
	       .kind = ALLOC_PINNED, .device = DEV_HOST, .module = MODULE_NONE);
	feed();
	CHECK(strstr(buf_str(&rowtext), "MALLOC CUDA") != NULL);
	done();
}

/* A handle is no address: a block of the same number is another one. */
TEST(track_cuda, handles_and_addresses_are_apart)
{
	rowtext_begin("{}", "");
	alloc(1, 9, 100, ALLOC_CREATE, 0);
	alloc(2, 9, 10, ALLOC_PLAIN, 0);
	RECORD(&r, REC_FREE, rec_free, 3, .addr = 9, .pool = POOL_CUDA, .kind = ALLOC_PLAIN,
	       .device = DEV_NONE);
	feed();
	ROWS(MADE
	     "MALLOC CUDA - @2 t7 d0 allocation_id:2,addr:9,size:10,used:110,alloc_type:alloc\n"
	     "FREE CUDA - @3 t7 d0 allocation_id:2,addr:9,size:10,used:100,alloc_type:alloc\n");
	done();
}

TEST(track_cuda, a_context_ends_with_its_blocks)
{
	rowtext_begin("{}", "");
	alloc(1, 0x1000, 10, ALLOC_ASYNC, 1);
	alloc(2, 0x2000, 20, ALLOC_MANAGED, 2);
	alloc(3, 0x3000, 30, ALLOC_ARRAY, 1);
	feed();
	buf_clear(&rowtext);
	RECORD(&r, REC_CONTEXT, rec_context, 4, .context = 1, .op = CONTEXT_END);
	RECORD(&r, REC_CONTEXT, rec_context, 5, .context = 0, .op = CONTEXT_END); /* none */
	RECORD(&r, REC_CONTEXT, rec_context, 6, .context = 2, .op = CONTEXT_BEGIN);
	feed();
	ROWS("FREE CUDA - @4 t7 d0 allocation_id:1,addr:1000,size:10,used:50,alloc_type:async\n"
	     "FREE CUDA - @4 t7 d0 allocation_id:3,addr:3000,size:30,used:20,alloc_type:array\n");
	done();
}

static void library(uint16_t number, const char *path)
{
	char room[256] = {0};
	struct rec_library *l = (struct rec_library *)room;

	*l = (struct rec_library){
		.head = {.type = REC_LIBRARY,
			 .size = rec_size(sizeof(*l), strlen(path)),
			 .time_ns = 1},
		.number = number,
		.len = (uint16_t)strlen(path),
	};
	memcpy(l->text, path, strlen(path));
	buf_add(&r, room, l->head.size);
}

TEST(track_cuda, says_who_asked)
{
	static const char *const paths[] = {"/opt/nvidia/nccl/lib/libnccl.so.2",
					    "/x/torch/lib/libc10_cuda.so", "/data/me/my,lib@.so.3",
					    "/data/me/train", "/x/cupy_backends/runtime.so"};
	static const char *const names[] = {"NCCL", "torch", "my_lib_", "train", "CuPy"};
	char want[4096] = "";

	rowtext_begin("{}", "");
	for (unsigned i = 0; i < 5; i++) {
		library((uint16_t)(i + 1), paths[i]);
		RECORD(&r, REC_ALLOC, rec_alloc, 2, .addr = 0x1000 * (i + 1), .size_bytes = 1,
		       .pool = POOL_CUDA, .module = (uint8_t)(i + 1));
		snprintf(want + strlen(want), sizeof(want) - strlen(want),
			 "MALLOC CUDA - @2 t7 d0 allocation_id:%u,addr:%x,size:1,used:%u,"
			 "owner:CUDA@%s,alloc_type:alloc\n",
			 i + 1, 0x1000 * (i + 1), i + 1, names[i]);
	}
	feed();
	ROWS(want);
	done();
}

TEST(track_cuda, a_refusal_of_the_driver)
{
	rowtext_begin("{\"analysisType\":8}", "");
	RECORD(&r, REC_OOM, rec_oom, 2, .size_bytes = 99, .flag = 50, .pool = POOL_CUDA,
	       .kind = ALLOC_CREATE);
	RECORD(&r, REC_OOM, rec_oom, 3, .size_bytes = 98, .flag = OOM_UNKNOWN, .pool = POOL_CUDA,
	       .kind = ALLOC_ASYNC);
	feed();
	ROWS("OOM_DETAIL OOM_TRIGGER OOM_Trigger @2 t7 d0 "
	     "func:cuMemCreate,req_size:99,flag:0,free_mem:50\n"
	     "OOM_DETAIL OOM_TRIGGER OOM_Trigger @3 t7 d0 "
	     "func:cuMemAllocAsync,req_size:98,flag:0\n");
	done();
}
