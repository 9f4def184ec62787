/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/python/origin.h"

#include "test.h"

static enum python_origin origin(const char *file)
{
	return python_origin(file, strlen(file));
}

TEST(origin, files_of_the_job)
{
	static const char *const files[] = {
		"train.py",
		"/srv/job/train.py",
		"/srv/job/python3/lib/model.py", /* a folder of that name is no installation */
		"/mnt/lib/python3x/model.py",
		"<stdin>",
		"<ipython-input-3-1f2e>",
		"/tmp/ipykernel_7/12.py",
		"",
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		CHECK_INT(origin(files[i]), ORIGIN_USER);
}

TEST(origin, files_of_others)
{
	CHECK_INT(origin("/usr/lib/python3/dist-packages/torch/nn/modules/linear.py"),
		  ORIGIN_PACKAGE);
	CHECK_INT(origin("/venv/lib/python3.11/site-packages/numpy/core.py"), ORIGIN_PACKAGE);
	CHECK_INT(origin("/tmp/torchinductor_me/ab/cab.py"), ORIGIN_PACKAGE);
	CHECK_INT(origin("<eval_with_key>.5"), ORIGIN_PACKAGE);
	CHECK_INT(origin("<__array_function__ internals>"), ORIGIN_PACKAGE);
	CHECK_INT(origin("/venv/lib/python3.9/site-packages/torch/distributed/run.py"),
		  ORIGIN_LAUNCHER);
	CHECK_INT(origin("/usr/bin/torchrun"), ORIGIN_LAUNCHER);
	CHECK_INT(origin("/usr/lib/python3.11/threading.py"), ORIGIN_STANDARD);
	CHECK_INT(origin("/opt/py/lib/python3.13t/queue.py"), ORIGIN_STANDARD);
	CHECK_INT(origin("<frozen importlib._bootstrap>"), ORIGIN_STANDARD);
	CHECK_INT(origin("<string>"), ORIGIN_STANDARD);
}

TEST(origin, paths_without_their_beginning)
{
	static const struct {
		const char *file;
		enum python_origin origin;
	} cut[] = {
		{"torch/nn/modules/linear.py", ORIGIN_PACKAGE},
		{"threading.py", ORIGIN_STANDARD},
		{"train.py", ORIGIN_USER},
		{"models/torch/net.py", ORIGIN_USER},
		{"/srv/job/threading.py", ORIGIN_USER},
		{"/srv/torch/net.py", ORIGIN_USER},
		{"", ORIGIN_USER},
	};

	for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++)
		CHECK_INT(python_origin_cut(cut[i].file, strlen(cut[i].file)), cut[i].origin);
	CHECK_INT(origin("threading.py"), ORIGIN_USER);
}

TEST(origin, files_of_ours)
{
	static const char *const ours[] = {
		"/srv/sonde/build/python/msmemscope/_collectors.py",
		"/usr/local/lib/python/sonde/_steps/__init__.py",
		"/venv/lib/python3.11/site-packages/msmonitor/_job.py",
		"/usr/lib/python3/dist-packages/msmemscope/__init__.py",
	};

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
		CHECK(python_is_own(ours[i], strlen(ours[i])));
		CHECK_INT(origin(ours[i]), ORIGIN_STANDARD);
	}
	CHECK_INT(origin("/data/me/sonde/train.py"), ORIGIN_USER);
	CHECK_INT(origin("/data/me/python/sonde_model/train.py"), ORIGIN_USER);
	CHECK(!python_is_own("/usr/local/lib/python/sonde/x.py", 23));
}

TEST(origin, nothing_behind_the_end_is_read)
{
	CHECK_INT(python_origin("/a/site-packages/x.py", 8), ORIGIN_USER);
	CHECK_INT(python_origin("<stdin>", 3), ORIGIN_PACKAGE);
}

TEST(origin, short_paths)
{
	const char *file = "/usr/lib/python3.11/asyncio/base_events.py";

	CHECK_STR(python_short_path(file, strlen(file)), "asyncio/base_events.py");
	file = "/venv/lib/python3.11/site-packages/torch/x.py";
	CHECK_STR(python_short_path(file, strlen(file)), "torch/x.py");
	CHECK_STR(python_short_path("/a/b.py", 7), "/a/b.py");
}
