/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/idle/host_calls.h"

#include "test.h"

static enum idle_why why(enum host_kind kind, const char *name)
{
	struct host_calls calls = {0};
	enum idle_why found = host_call_find(&calls, kind, name, 0)->why;

	host_calls_release(&calls);
	return found;
}

static const char *shown(enum host_kind kind, const char *name)
{
	static struct buf out;
	struct host_calls calls = {0};

	buf_clear(&out);
	host_call_add(host_call_find(&calls, kind, name, 0), 0, &out);
	host_calls_release(&calls);
	return buf_str(&out);
}

TEST(host_calls, what_python_does)
{
	static const char *const loader =
		"/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py(628): __next__";

	CHECK_INT(why(HOST_PYTHON, loader), IDLE_DATA);
	CHECK_INT(why(HOST_PYTHON, "torch/utils/data/_utils/fetch.py(50): fetch"), IDLE_DATA);
	CHECK_INT(why(HOST_PYTHON, "torch/serialization.py(401): save"), IDLE_CHECKPOINT);
	CHECK_INT(why(HOST_PYTHON, "<garbage collection>"), IDLE_COLLECTOR);
	CHECK_INT(why(HOST_PYTHON, "torch/cuda/memory.py(121): empty_cache"), IDLE_ALLOCATION);
	CHECK_INT(why(HOST_PYTHON, "torch/cuda/memory.py(200): memory_stats"), IDLE_UNKNOWN);
	CHECK_INT(why(HOST_PYTHON, "/usr/lib/python3.11/threading.py(295): wait"), IDLE_LOCK);
	CHECK_INT(why(HOST_PYTHON, "threading.py(1002): _bootstrap"), IDLE_UNKNOWN);
	CHECK_INT(why(HOST_PYTHON, "<built-in method acquire of _thread.lock object at 0x7f12ab>"),
		  IDLE_LOCK);
	/* the user's own are not what they are called */
	CHECK_INT(why(HOST_PYTHON, "/srv/job/queue.py(12): get"), IDLE_UNKNOWN);
	CHECK_INT(why(HOST_PYTHON, "/srv/torch/utils/data/mine.py(3): f"), IDLE_UNKNOWN);
	CHECK_INT(why(HOST_PYTHON, "/srv/ray/data/mine.py(3): f"), IDLE_UNKNOWN);
	CHECK_INT(why(HOST_PYTHON, "train.py(31): main"), IDLE_UNKNOWN);
}

TEST(host_calls, what_libraries_do)
{
	CHECK_INT(why(HOST_CALL, "cudaMalloc"), IDLE_ALLOCATION);
	CHECK_INT(why(HOST_CALL, "cuMemCreate"), IDLE_ALLOCATION);
	CHECK_INT(why(HOST_CALL, "aclrtMallocImpl"), IDLE_ALLOCATION);
	CHECK_INT(why(HOST_CALL, "rtStreamSynchronize"), IDLE_SYNC);
	CHECK_INT(why(HOST_CALL, "cudaMemcpyAsync"), IDLE_UNKNOWN);
	CHECK_INT(why(HOST_CALL, "cudaLaunchKernel"), IDLE_UNKNOWN);
	CHECK_INT(why(HOST_RANGE, "aten::item"), IDLE_SYNC);
	CHECK_INT(why(HOST_RANGE, "enumerate(DataLoader)#_MultiProcessing.__next__"), IDLE_DATA);
}

TEST(host_calls, names_as_they_are_shown)
{
	CHECK_STR(shown(HOST_PYTHON, "/srv/job/train.py(18): train"), "train (train.py:18)");
	CHECK_STR(shown(HOST_PYTHON, "/srv/models/__init__.py(3): build"),
		  "build (models/__init__.py:3)");
	CHECK_STR(shown(HOST_PYTHON,
			"/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py(6): f"),
		  "f (torch/utils/data/dataloader.py:6)");
	CHECK_STR(shown(HOST_PYTHON, "<built-in method acquire of lock object at 0x7f>"),
		  "<built-in method acquire of lock>");
	CHECK_STR(shown(HOST_CALL, "cudaMalloc"), "cudaMalloc");
	/* names that only look like it */
	CHECK_STR(shown(HOST_PYTHON, "(12): f"), "(12): f");
	CHECK_STR(shown(HOST_PYTHON, "a.py(): f"), "a.py(): f");
	CHECK_STR(shown(HOST_PYTHON, "a.py(99999999999): f"), "a.py(99999999999): f");
	CHECK_STR(shown(HOST_PYTHON, ""), "");
}
