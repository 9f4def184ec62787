/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/profiler_config.h"

#include "test.h"

static const char *gputrace(const struct gputrace_config *c)
{
	static struct buf text;

	buf_clear(&text);
	gputrace_config_text(c, &text);
	return buf_str(&text);
}

TEST(profiler_config, gputrace_for_a_duration)
{
	struct gputrace_config c = {.log_file = "/tmp/t.json",
				    .start_time_ms = 1000,
				    .duration_ms = 42,
				    .iterations = -1,
				    .roundup = 1,
				    .record_shapes = true,
				    .with_modules = true};

	CHECK_STR(gputrace(&c), "ACTIVITIES_LOG_FILE=/tmp/t.json\n"
				"PROFILE_START_TIME=1000\n"
				"ACTIVITIES_DURATION_MSECS=42\n"
				"PROFILE_REPORT_INPUT_SHAPES=true\n"
				"PROFILE_WITH_STACK=false\n"
				"PROFILE_WITH_FLOPS=false\n"
				"PROFILE_WITH_MODULES=true");
}

TEST(profiler_config, gputrace_with_memory)
{
	struct gputrace_config c = {
		.log_file = "t.json", .duration_ms = 500, .profile_memory = true};

	CHECK(strstr(gputrace(&c), "\nPROFILE_REPORT_INPUT_SHAPES=false\n"
				   "PROFILE_PROFILE_MEMORY=true\n"
				   "PROFILE_MEMORY=true\n"
				   "PROFILE_MEMORY_DURATION_MSECS=500\n"
				   "PROFILE_WITH_STACK=false\n"));
}

TEST(profiler_config, gputrace_for_iterations)
{
	struct gputrace_config c = {
		.log_file = "t.json", .duration_ms = 500, .iterations = 3, .roundup = 100};

	CHECK(strstr(gputrace(&c), "ACTIVITIES_LOG_FILE=t.json\n"
				   "PROFILE_START_ITERATION=0\n"
				   "PROFILE_START_ITERATION_ROUNDUP=100\n"
				   "ACTIVITIES_ITERATIONS=3\n"
				   "PROFILE_REPORT_INPUT_SHAPES=false\n"));
}

TEST(profiler_config, gputrace_names_files)
{
	struct buf b = {0};

	CHECK(gputrace_file("/tmp/t.json", 7, &b));
	CHECK_STR(buf_str(&b), "/tmp/t_7.json");
	buf_clear(&b);
	CHECK(gputrace_file("/tmp/t.pt.trace.json", 7, &b));
	CHECK_STR(buf_str(&b), "/tmp/t_7.pt.trace.json");
	buf_clear(&b);
	CHECK(!gputrace_file("/tmp/t", 7, &b));
	CHECK_STR(buf_str(&b), "/tmp/t");
	buf_clear(&b);
	gputrace_log_of_host("/tmp/t.json", "node1", &b);
	CHECK_STR(buf_str(&b), "/tmp/t_node1.json");
	buf_clear(&b);
	gputrace_log_of_host("/tmp/t", "fe80::1%eth0", &b);
	CHECK_STR(buf_str(&b), "/tmp/t_fe80--1-eth0");
	buf_release(&b);
}

#define NPUTRACE_DEFAULT_TAIL                                                                      \
	"PROFILE_RECORD_SHAPES=false\n"                                                            \
	"PROFILE_PROFILE_MEMORY=false\n"                                                           \
	"PROFILE_WITH_STACK=false\n"                                                               \
	"PROFILE_WITH_FLOPS=false\n"                                                               \
	"PROFILE_WITH_MODULES=false\n"                                                             \
	"PROFILE_ACTIVITIES=CPU,NPU\n"                                                             \
	"PROFILE_ANALYSE=false\n"                                                                  \
	"PROFILE_ASYNC_MODE=false\n"                                                               \
	"PROFILE_PROFILER_LEVEL=Level0\n"                                                          \
	"PROFILE_AIC_METRICS=AiCoreNone\n"                                                         \
	"PROFILE_L2_CACHE=false\n"                                                                 \
	"PROFILE_OP_ATTR=false\n"                                                                  \
	"PROFILE_MSPROF_TX=false\n"                                                                \
	"PROFILE_GC_DETECT_THRESHOLD=None\n"                                                       \
	"PROFILE_DATA_SIMPLIFICATION=true\n"                                                       \
	"PROFILE_EXPORT_TYPE=Text\n"                                                               \
	"PROFILE_HOST_SYS=None\n"                                                                  \
	"PROFILE_SYS_IO=false\n"                                                                   \
	"PROFILE_SYS_INTERCONNECTION=false\n"                                                      \
	"PROFILE_MSTX_DOMAIN_INCLUDE=None\n"                                                       \
	"PROFILE_MSTX_DOMAIN_EXCLUDE=None\n"                                                       \
	"PROFILE_IS_RANK=false\n"                                                                  \
	"PROFILE_RANK_LIST=None"

TEST(profiler_config, nputrace_by_default)
{
	struct nputrace_config c = {.log_file = "/tmp/p", .start_step = 10, .iterations = 2};
	struct buf text = {0};

	nputrace_config_text(&c, &text);
	CHECK_STR(buf_str(&text), "ACTIVITIES_LOG_FILE=/tmp/p\n"
				  "PROFILE_START_ITERATION=0\n"
				  "PROFILE_START_STEP=10\n"
				  "ACTIVITIES_ITERATIONS=2\n" NPUTRACE_DEFAULT_TAIL);
	buf_release(&text);
}

TEST(profiler_config, nputrace_with_everything)
{
	struct nputrace_config c = {.log_file = "p",
				    .start_step = -1,
				    .iterations = 1,
				    .record_shapes = true,
				    .activities = 3,
				    .analyse = true,
				    .profiler_level = 3,
				    .aic_metrics = 8,
				    .gc_given = true,
				    .gc_threshold_ms = 0.1f,
				    .data_simplification = 1,
				    .export_type = 1,
				    .host_sys = "cpu,mem",
				    .domain_include = "a,b",
				    .rank_list = "0,8"};
	struct buf text = {0};

	nputrace_config_text(&c, &text);
	const char *s = buf_str(&text);
	CHECK(strstr(s, "\nPROFILE_START_STEP=-1\n"));
	CHECK(strstr(s, "\nPROFILE_RECORD_SHAPES=true\n"));
	CHECK(strstr(s, "\nPROFILE_ACTIVITIES=NPU\nPROFILE_ANALYSE=true\n"));
	CHECK(strstr(s, "\nPROFILE_PROFILER_LEVEL=Level_none\nPROFILE_AIC_METRICS=MemoryAccess\n"));
	CHECK(strstr(s, "\nPROFILE_GC_DETECT_THRESHOLD=0.1\nPROFILE_DATA_SIMPLIFICATION=false\n"
			"PROFILE_EXPORT_TYPE=Db\nPROFILE_HOST_SYS=cpu,mem\n"));
	CHECK(strstr(s, "\nPROFILE_MSTX_DOMAIN_INCLUDE=a,b\nPROFILE_MSTX_DOMAIN_EXCLUDE=None\n"
			"PROFILE_IS_RANK=true\nPROFILE_RANK_LIST=0,8"));
	buf_release(&text);
}

TEST(profiler_config, npu_monitor)
{
	struct npu_monitor_config c = {
		.start = true, .report_interval_s = 60, .log_file = "", .filter = ""};
	struct buf text = {0};

	npu_monitor_config_text(&c, &text);
	CHECK_STR(buf_str(&text), "NPU_MONITOR_START=true\n"
				  "NPU_MONITOR_STOP=false\n"
				  "REPORT_INTERVAL_S=60\n"
				  "DURATION=0\n"
				  "MSPTI_ACTIVITY_KIND=Marker\n"
				  "NPU_MONITOR_LOG_FILE=\n"
				  "NPU_MONITOR_EXPORT_TYPE=DB\n"
				  "JSONL_ROTATE_LOG_LINES=\n"
				  "JSONL_ROTATE_LOG_FILES=\n"
				  "NPU_MONITOR_FILTER=");
	buf_release(&text);
}

TEST(profiler_config, floats_are_as_short_as_can_be)
{
	static const struct {
		float v;
		const char *text;
	} rows[] = {{0, "0"},
		    {30, "30"},
		    {0.1f, "0.1"},
		    {2.5f, "2.5"},
		    {100, "100"},
		    {1e20f, "100000000000000000000"},
		    {1e-5f, "0.00001"},
		    {16777216.0f, "16777216"},
		    {0.3333333f, "0.3333333"}};
	struct buf b = {0};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		buf_clear(&b);
		config_add_float(&b, rows[i].v);
		CHECK_STR(buf_str(&b), rows[i].text);
		CHECK(strtof(buf_str(&b), NULL) == rows[i].v);
	}
	buf_release(&b);
}
