/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include <string.h>

#include "wire/record.h"
#include "wire/request.h"

static const char golden[] =
	"NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false\nREPORT_INTERVAL_S=60\n"
	"DURATION=0\nMSPTI_ACTIVITY_KIND=Marker\nNPU_MONITOR_LOG_FILE=\n"
	"NPU_MONITOR_EXPORT_TYPE=DB\nJSONL_ROTATE_LOG_LINES=\n"
	"JSONL_ROTATE_LOG_FILES=\nNPU_MONITOR_FILTER=";

/* The golden text with one line replaced, or left out where value is NULL. */
static const char *with(const char *key, const char *value)
{
	static char out[2048];
	size_t n = strlen(key);

	out[0] = '\0';
	for (const char *line = golden; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		size_t len = strcspn(line, "\n");
		if (strncmp(line, key, n) != 0 || line[n] != '=')
			strncat(out, line, len);
		else if (value)
			strcat(strcat(strcat(out, key), "="), value);
		strcat(out, "\n");
	}
	return out;
}

static const char *read_with(const char *key, const char *value, struct monitor_request *o)
{
	const char *text = with(key, value);

	return monitor_request_read(text, strlen(text), o);
}

static bool text_is(const struct request_text *t, const char *want)
{
	return t->len == strlen(want) && !memcmp(t->at, want, t->len);
}

TEST(request, monitor_golden)
{
	struct monitor_request o;

	CHECK_INT(request_kind(golden, strlen(golden)), REQUEST_MONITOR);
	CHECK(!monitor_request_read(golden, strlen(golden), &o));
	CHECK(o.start && !o.stop && o.interval_s == 60 && o.duration_ms == 0);
	CHECK_INT(o.kinds, ACTIVITY_BIT(ACTIVITY_MARKER));
	CHECK_INT(o.format, REQUEST_METRICS);
	CHECK(!o.log_file.len && !o.filter.len && !o.jsonl_lines && !o.jsonl_files);
}

TEST(request, monitor_values)
{
	struct monitor_request o;

	CHECK(!read_with("MSPTI_ACTIVITY_KIND", "Kernel, RuntimeAPI ,MemSet", &o));
	CHECK_INT(o.kinds, ACTIVITY_BIT(ACTIVITY_KERNEL) | ACTIVITY_BIT(ACTIVITY_RUNTIME_API) |
				   ACTIVITY_BIT(ACTIVITY_MEMSET));
	CHECK(!read_with("DURATION", "1.5", &o) && o.duration_ms == 1500);
	CHECK(!read_with("DURATION", "0.0001", &o) && o.duration_ms == 1);
	CHECK(!read_with("DURATION", "-3", &o) && o.duration_ms == 0);
	CHECK(!read_with("NPU_MONITOR_START", " TRUE ", &o) && o.start);
	CHECK(!read_with("NPU_MONITOR_LOG_FILE", "/a=b/c", &o) && text_is(&o.log_file, "/a=b/c"));
	CHECK_INT(o.format, REQUEST_DB);
	CHECK(!read_with("NPU_MONITOR_EXPORT_TYPE", "jsonl", &o));
	CHECK_INT(o.format, REQUEST_METRICS); /* nowhere to write */
	CHECK(!read_with("JSONL_ROTATE_LOG_LINES", "500", &o) && o.jsonl_lines == 500);
	CHECK(!read_with("JSONL_ROTATE_LOG_FILES", "-1", &o) && o.jsonl_files == -1);
	CHECK(!read_with("JSONL_ROTATE_LOG_FILES", "1", &o) && o.jsonl_files == 0);
	CHECK(!read_with("NPU_MONITOR_FILTER", NULL, &o) && !o.filter.len);
}

TEST(request, monitor_faults)
{
	static const char *const wrong[][2] = {
		{"NPU_MONITOR_START", "1"},
		{"NPU_MONITOR_STOP", NULL},
		{"REPORT_INTERVAL_S", "-1"},
		{"REPORT_INTERVAL_S", "4294967296"},
		{"REPORT_INTERVAL_S", ""},
		{"DURATION", "inf"},
		{"DURATION", "1e3"},
		{"DURATION", "."},
		{"DURATION", "1.2.3"},
		{"DURATION", ""},
		{"MSPTI_ACTIVITY_KIND", "Kernels"},
		{"MSPTI_ACTIVITY_KIND", "Kernel,,API"},
		{"MSPTI_ACTIVITY_KIND", ""},
		{"NPU_MONITOR_LOG_FILE", NULL},
		{"NPU_MONITOR_EXPORT_TYPE", "Text"},
	};
	struct monitor_request o;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK_STR(read_with(wrong[i][0], wrong[i][1], &o), wrong[i][0]);
}

TEST(request, a_lease_has_a_number_and_an_end)
{
	static const char *const wrong[] = {"", "0", "-1", "x", "9223372036854775808"};
	struct monitor_request o;

	CHECK(!read_with("DURATION", "12\nSONDE_LEASE = 9223372036854775807", &o));
	CHECK(o.lease == INT64_MAX && o.duration_ms == 12000);
	CHECK(!read_with("DURATION", "12", &o) && !o.lease);
	CHECK_STR(read_with("DURATION", "0\nSONDE_LEASE=7", &o), "SONDE_LEASE");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char text[64];

		snprintf(text, sizeof(text), "12\nSONDE_LEASE=%s", wrong[i]);
		CHECK_STR(read_with("DURATION", text, &o), "SONDE_LEASE");
	}
}

/* As the daemon hands it on: indented, with its own line behind. */
TEST(request, trace)
{
	static const char text[] =
		"\n            ACTIVITIES_LOG_FILE=/tmp/p\nPROFILE_START_ITERATION=0\n"
		"PROFILE_START_STEP=10\nACTIVITIES_ITERATIONS=2\nPROFILE_RECORD_SHAPES=false\n"
		"PROFILE_PROFILE_MEMORY=true\nPROFILE_ACTIVITIES=NPU\nPROFILE_ANALYSE=true\n"
		"PROFILE_GC_DETECT_THRESHOLD=1.25\nPROFILE_EXPORT_TYPE=Db\n"
		"PROFILE_HOST_SYS=cpu,network\nPROFILE_MSTX_DOMAIN_INCLUDE=a,b\n"
		"PROFILE_MSTX_DOMAIN_EXCLUDE=None\nPROFILE_IS_RANK=true\nPROFILE_RANK_LIST=0,3\n"
		"            REQUEST_TRACE_ID=77\n";
	struct trace_request o;

	CHECK_INT(request_kind(text, strlen(text)), REQUEST_TRACE);
	CHECK(!trace_request_read(text, strlen(text), &o));
	CHECK(text_is(&o.log_file, "/tmp/p") && o.start_step == 10 && o.steps == 2);
	CHECK(o.memory && o.analyse && o.db && !o.shapes && !o.stack && !o.marks);
	CHECK_INT(o.activities, REQUEST_DEVICE);
	CHECK(o.gc_ms == 1.25 && o.host_sys == (REQUEST_HOST_CPU | REQUEST_HOST_NETWORK));
	CHECK(text_is(&o.domain_include, "a,b") && !o.domain_exclude.len);
	CHECK(request_lists(&o.ranks, "3", 1) && !request_lists(&o.ranks, "1", 1));
	CHECK(!o.others_left_out);
	CHECK(!trace_request_read("ACTIVITIES_LOG_FILE=/x\nACTIVITIES_ITERATIONS=2\n"
				  "SONDE_OTHERS_LEFT_OUT=true\n",
				  73, &o) &&
	      o.others_left_out);
	CHECK_STR(trace_request_read("ACTIVITIES_LOG_FILE=/x", 22, &o), "ACTIVITIES_ITERATIONS");
	CHECK_STR(trace_request_read("ACTIVITIES_ITERATIONS=2", 23, &o), "ACTIVITIES_LOG_FILE");
	CHECK_STR(trace_request_read("ACTIVITIES_LOG_FILE=/x\nPROFILE_START_STEP=-2", 44, &o),
		  "PROFILE_START_STEP");
}

static bool passes(const char *filter, uint32_t kind, const char *name)
{
	struct request_text f = {filter, strlen(filter)};

	return request_filter(&f, kind, name, strlen(name));
}

TEST(request, filter)
{
	CHECK(passes("", ACTIVITY_KERNEL, "MatMul"));
	CHECK(passes("Kernel:Mat", ACTIVITY_KERNEL, "MatMul"));
	CHECK(passes("Kernel:Add,Mul", ACTIVITY_KERNEL, "MatMul"));
	CHECK(!passes("Kernel:mat", ACTIVITY_KERNEL, "MatMul"));
	CHECK(!passes("Kernel:Mat", ACTIVITY_API, "MatMul"));
	CHECK(!passes("Kernel:Mat", ACTIVITY_HCCL, "MatMul"));
	CHECK(passes("Kernel:Mat", ACTIVITY_MEMCPY, "x"));
	CHECK(passes("API:x;Kernel:Mat", ACTIVITY_KERNEL, "MatMul"));
	CHECK(passes("Nothing:x", ACTIVITY_KERNEL, "MatMul")); /* says nothing */
	CHECK(passes("Kernel:a:b", ACTIVITY_KERNEL, "MatMul"));
	CHECK(!passes("Kernel:", ACTIVITY_KERNEL, "MatMul"));
}

TEST(request, the_end_of_a_trace)
{
	static const char given[] = "SONDE_TRACE_STOP=true\nREQUEST_TRACE_ID=7";

	CHECK_INT(request_kind(given, strlen(given)), REQUEST_TRACE_STOP);
	CHECK_INT(request_kind("SONDE_TRACE_STOP=false", 22), REQUEST_NONE);
	CHECK_INT(request_kind("SONDE_TRACE_STOP=", 17), REQUEST_NONE);
}

TEST(request, pause)
{
	CHECK_INT(request_kind("SONDE_PAUSE=true", 16), REQUEST_PAUSE);
	CHECK_INT(request_kind("", 0), REQUEST_NONE);
	CHECK_INT(request_kind("hello\nworld", 11), REQUEST_NONE);
}
