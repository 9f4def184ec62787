/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A request as it arrives, here for npu-monitor; the first lines of one that the daemon has passed
 * on are indented, and it has added the last:
 *
 *	NPU_MONITOR_START=true
 *	NPU_MONITOR_STOP=false
 *	REPORT_INTERVAL_S=10
 *	DURATION=0                         seconds; 0: until it is stopped
 *	MSPTI_ACTIVITY_KIND=Kernel,Marker
 *	NPU_MONITOR_LOG_FILE=              empty: metrics for the daemon, else DB or Jsonl there
 *	NPU_MONITOR_EXPORT_TYPE=DB
 *	REQUEST_TRACE_ID=77
 *
 * All of these but the last must be there: dyno sends them all, and one without them is none of
 * dyno's. Keys that begin with SONDE_ are ours, and other programs ignore them.
 */
#include "wire/request.h"

#include "wire/record.h"

#include <string.h>

#define MAX_PATH_BYTES 4096
#define MAX_DURATION_S 1e12
#define NONE                                                                                       \
	{                                                                                          \
		"", 0                                                                              \
	}

static const char *const kind_names[ACTIVITY_KIND_END] = {
	[ACTIVITY_MARKER] = "Marker",
	[ACTIVITY_KERNEL] = "Kernel",
	[ACTIVITY_API] = "API",
	[ACTIVITY_HCCL] = "Hccl",
	[ACTIVITY_MEMORY] = "Memory",
	[ACTIVITY_MEMSET] = "MemSet",
	[ACTIVITY_MEMCPY] = "MemCpy",
	[ACTIVITY_COMMUNICATION] = "Communication",
	[ACTIVITY_ACL_API] = "AclAPI",
	[ACTIVITY_NODE_API] = "NodeAPI",
	[ACTIVITY_RUNTIME_API] = "RuntimeAPI",
};

const char *activity_kind_name(uint32_t kind)
{
	return kind < ACTIVITY_KIND_END ? kind_names[kind] : NULL;
}

uint32_t activity_kind_find(const struct request_text *name)
{
	for (uint32_t i = 0; i < ACTIVITY_KIND_END; i++)
		if (kind_names[i] && strlen(kind_names[i]) == name->len &&
		    !memcmp(kind_names[i], name->at, name->len))
			return i;
	return 0;
}

/* --- the text --- */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static struct request_text trim_text(const char *at, size_t len)
{
	while (len && is_blank(at[0]))
		at++, len--;
	while (len && is_blank(at[len - 1]))
		len--;
	return (struct request_text){at, len};
}

static bool text_equals(const struct request_text *t, const char *word)
{
	return t->len == strlen(word) && !memcmp(t->at, word, t->len);
}

bool request_find(const char *text, size_t len, const char *key, struct request_text *out)
{
	const char *end = text + len;
	bool found = false;

	for (const char *line = text; line < end;) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		size_t n = (size_t)((stop ? stop : end) - line);
		const char *sign = memchr(line, '=', n);

		if (sign) {
			struct request_text k = trim_text(line, (size_t)(sign - line));
			if (text_equals(&k, key)) {
				*out = trim_text(sign + 1, n - (size_t)(sign + 1 - line));
				found = true;
			}
		}
		line += n + 1;
	}
	return found;
}

static char to_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

bool request_is(const struct request_text *t, const char *word)
{
	size_t i = 0;

	while (i < t->len && word[i] && to_lower(t->at[i]) == to_lower(word[i]))
		i++;
	return i == t->len && !word[i];
}

bool request_item(const struct request_text *list, char by, unsigned n, struct request_text *out)
{
	const char *at = list->len ? list->at : "", *end = at + list->len;

	for (;; n--) {
		const char *stop = at < end ? memchr(at, by, (size_t)(end - at)) : NULL;
		if (!n) {
			*out = trim_text(at, (size_t)((stop ? stop : end) - at));
			return true;
		}
		if (!stop)
			return false;
		at = stop + 1;
	}
}

bool request_lists(const struct request_text *list, const char *word, size_t len)
{
	struct request_text item;

	for (unsigned i = 0; request_item(list, ',', i, &item); i++)
		if (item.len == len && !memcmp(item.at, word, len))
			return true;
	return false;
}

enum request_kind request_kind(const char *text, size_t len)
{
	struct request_text t;

	if (request_find(text, len, "NPU_MONITOR_START", &t))
		return REQUEST_MONITOR;
	if (request_find(text, len, "SONDE_PAUSE", &t))
		return REQUEST_PAUSE;
	if (request_find(text, len, "SONDE_TRACE_STOP", &t) && request_is(&t, "true"))
		return REQUEST_TRACE_STOP;
	if (request_find(text, len, "ACTIVITIES_LOG_FILE", &t))
		return REQUEST_TRACE;
	return REQUEST_NONE;
}

/* --- values; without the C library, whose functions depend on the locale --- */

static bool read_bool(const struct request_text *t, bool *out)
{
	*out = request_is(t, "true");
	return *out || request_is(t, "false");
}

bool request_number(const struct request_text *t, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;

	for (size_t i = 0; i < t->len; i++) {
		if (t->at[i] < '0' || t->at[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(t->at[i] - '0');
		if (v > max)
			return false;
	}
	*out = v;
	return t->len > 0;
}

static bool read_signed(const struct request_text *t, int64_t max, int64_t *out)
{
	struct request_text digits = *t;
	uint64_t v;
	bool minus = t->len && t->at[0] == '-';

	digits.at += minus;
	digits.len -= minus;
	if (!request_number(&digits, (uint64_t)max, &v))
		return false;
	*out = minus ? -(int64_t)v : (int64_t)v;
	return true;
}

/*
 * 12, 0.5, -1, .5
 *
 * By hand: strtod() reads a decimal comma where the locale has one.
 */
static bool read_decimal(const struct request_text *t, double *out)
{
	bool minus = t->len && t->at[0] == '-', any = false;
	double v = 0, unit = 0;

	for (size_t i = minus; i < t->len; i++) {
		char c = t->at[i];

		if (c == '.' && !unit) {
			unit = 1;
			continue;
		}
		if (c < '0' || c > '9')
			return false;
		any = true;
		if (unit)
			v += (c - '0') * (unit /= 10);
		else
			v = v * 10 + (c - '0');
	}
	*out = minus ? -v : v;
	return any;
}

/* --- npu-monitor --- */

static bool read_kinds(const struct request_text *t, uint32_t *out)
{
	struct request_text item;

	*out = 0;
	for (unsigned i = 0; request_item(t, ',', i, &item); i++) {
		uint32_t kind = activity_kind_find(&item);
		if (!kind)
			return false;
		*out |= ACTIVITY_BIT(kind);
	}
	return true;
}

static bool read_duration(const struct request_text *t, uint64_t *out_ms)
{
	double s;

	if (!read_decimal(t, &s) || s > MAX_DURATION_S)
		return false;
	/* One that is not 0 is not rounded to "for ever". */
	*out_ms = s <= 0 ? 0 : s < 0.001 ? 1 : (uint64_t)(s * 1000 + 0.5);
	return true;
}

static bool read_export(const struct request_text *t, const struct request_text *log_file,
			enum request_export *out)
{
	if (!request_is(t, "DB") && !request_is(t, "Jsonl"))
		return false;
	*out = !log_file->len ? REQUEST_METRICS : request_is(t, "DB") ? REQUEST_DB : REQUEST_JSONL;
	return true;
}

/* Wrong ones are as if they had not been said: the defaults count. */
static void read_rotation(const char *text, size_t len, struct monitor_request *out)
{
	struct request_text t;
	uint64_t lines;
	int64_t files;

	if (request_find(text, len, "JSONL_ROTATE_LOG_LINES", &t) &&
	    request_number(&t, UINT32_MAX, &lines))
		out->jsonl_lines = (uint32_t)lines;
	if (request_find(text, len, "JSONL_ROTATE_LOG_FILES", &t) &&
	    read_signed(&t, INT32_MAX, &files) && (files == -1 || files >= 2))
		out->jsonl_files = (int32_t)files;
}

const char *monitor_request_read(const char *text, size_t len, struct monitor_request *out)
{
	struct request_text t;
	uint64_t interval;

	*out = (struct monitor_request){.log_file = NONE, .filter = NONE, .daemon = NONE};
	if (!request_find(text, len, "NPU_MONITOR_START", &t) || !read_bool(&t, &out->start))
		return "NPU_MONITOR_START";
	if (!request_find(text, len, "NPU_MONITOR_STOP", &t) || !read_bool(&t, &out->stop))
		return "NPU_MONITOR_STOP";
	if (!request_find(text, len, "REPORT_INTERVAL_S", &t) ||
	    !request_number(&t, UINT32_MAX, &interval))
		return "REPORT_INTERVAL_S";
	out->interval_s = (uint32_t)interval;
	if (!request_find(text, len, "DURATION", &t) || !read_duration(&t, &out->duration_ms))
		return "DURATION";
	if (!request_find(text, len, "MSPTI_ACTIVITY_KIND", &t) || !read_kinds(&t, &out->kinds))
		return "MSPTI_ACTIVITY_KIND";
	if (!request_find(text, len, "NPU_MONITOR_LOG_FILE", &out->log_file) ||
	    out->log_file.len > MAX_PATH_BYTES)
		return "NPU_MONITOR_LOG_FILE";
	if (!request_find(text, len, "NPU_MONITOR_EXPORT_TYPE", &t) ||
	    !read_export(&t, &out->log_file, &out->format))
		return "NPU_MONITOR_EXPORT_TYPE";
	request_find(text, len, "NPU_MONITOR_FILTER", &out->filter);
	/* "@name": an abstract socket; else a path */
	request_find(text, len, "SONDE_DAEMON", &out->daemon);
	if (request_find(text, len, "SONDE_LEASE", &t) &&
	    (!request_number(&t, INT64_MAX, &out->lease) || !out->lease || !out->duration_ms))
		return "SONDE_LEASE";
	out->attribute = request_find(text, len, "SONDE_ATTRIBUTE", &t) && request_is(&t, "true");
	out->record = request_find(text, len, "SONDE_RECORD", &t) && request_is(&t, "true");
	read_rotation(text, len, out);
	return NULL;
}

/* --- nputrace --- */

static bool is_none(const struct request_text *t)
{
	return !t->len || request_is(t, "None");
}

/* A switch that is missing is off. */
static bool find_flag(const char *text, size_t len, const char *key)
{
	struct request_text t;
	bool on = false;

	return request_find(text, len, key, &t) && read_bool(&t, &on) && on;
}

static struct request_text find_words(const char *text, size_t len, const char *key)
{
	struct request_text t = {"", 0};

	if (!request_find(text, len, key, &t) || is_none(&t))
		return (struct request_text){"", 0};
	return t;
}

static bool read_activities(const char *text, size_t len, uint32_t *out)
{
	struct request_text t, item;

	*out = REQUEST_CPU | REQUEST_DEVICE;
	if (!request_find(text, len, "PROFILE_ACTIVITIES", &t) || is_none(&t))
		return true;
	*out = 0;
	for (unsigned i = 0; request_item(&t, ',', i, &item); i++) {
		if (request_is(&item, "CPU"))
			*out |= REQUEST_CPU;
		else if (request_is(&item, "NPU") || request_is(&item, "CUDA") ||
			 request_is(&item, "GPU"))
			*out |= REQUEST_DEVICE;
		else
			return false;
	}
	return true;
}

static bool read_host_sys(const char *text, size_t len, uint32_t *out)
{
	static const char *const names[] = {"cpu", "mem", "disk", "network", "osrt"};
	struct request_text t = find_words(text, len, "PROFILE_HOST_SYS"), item;

	*out = 0;
	for (unsigned i = 0; t.len && request_item(&t, ',', i, &item); i++) {
		unsigned k = 0;
		while (k < 5 && !request_is(&item, names[k]))
			k++;
		if (k == 5)
			return false;
		*out |= 1u << k;
	}
	return true;
}

/* How long: so many steps, or so many milliseconds where there are none. */
static const char *read_length(const char *text, size_t len, struct trace_request *out)
{
	struct request_text t;

	out->start_step = -1;
	if (request_find(text, len, "PROFILE_START_STEP", &t) &&
	    (!read_signed(&t, INT32_MAX, &out->start_step) || out->start_step < -1))
		return "PROFILE_START_STEP";
	if (request_find(text, len, "ACTIVITIES_ITERATIONS", &t) &&
	    !request_number(&t, INT32_MAX, &out->steps))
		return "ACTIVITIES_ITERATIONS";
	if (request_find(text, len, "ACTIVITIES_DURATION_MSECS", &t) &&
	    !request_number(&t, INT32_MAX, &out->duration_ms))
		return "ACTIVITIES_DURATION_MSECS";
	return out->steps || out->duration_ms ? NULL : "ACTIVITIES_ITERATIONS";
}

const char *trace_request_read(const char *text, size_t len, struct trace_request *out)
{
	struct request_text t;

	*out = (struct trace_request){.gc_ms = -1, .log_file = NONE, .ranks = NONE};
	if (!request_find(text, len, "ACTIVITIES_LOG_FILE", &out->log_file) || !out->log_file.len ||
	    out->log_file.len > MAX_PATH_BYTES)
		return "ACTIVITIES_LOG_FILE";
	const char *wrong = read_length(text, len, out);
	if (wrong)
		return wrong;
	if (!read_activities(text, len, &out->activities))
		return "PROFILE_ACTIVITIES";
	if (!read_host_sys(text, len, &out->host_sys))
		return "PROFILE_HOST_SYS";
	t = find_words(text, len, "PROFILE_GC_DETECT_THRESHOLD");
	if (t.len && (!read_decimal(&t, &out->gc_ms) || out->gc_ms < 0))
		return "PROFILE_GC_DETECT_THRESHOLD";
	t = find_words(text, len, "PROFILE_EXPORT_TYPE");
	out->db = request_is(&t, "Db");
	out->shapes = find_flag(text, len, "PROFILE_RECORD_SHAPES");
	out->memory = find_flag(text, len, "PROFILE_PROFILE_MEMORY");
	out->stack = find_flag(text, len, "PROFILE_WITH_STACK");
	out->analyse = find_flag(text, len, "PROFILE_ANALYSE");
	out->marks = find_flag(text, len, "PROFILE_MSPROF_TX");
	out->domain_include = find_words(text, len, "PROFILE_MSTX_DOMAIN_INCLUDE");
	out->domain_exclude = find_words(text, len, "PROFILE_MSTX_DOMAIN_EXCLUDE");
	if (find_flag(text, len, "PROFILE_IS_RANK"))
		out->ranks = find_words(text, len, "PROFILE_RANK_LIST");
	out->attribute = find_flag(text, len, "SONDE_ATTRIBUTE");
	out->others_left_out = find_flag(text, len, "SONDE_OTHERS_LEFT_OUT");
	return NULL;
}

/* --- the filter --- */

static bool contains_word(const char *name, size_t len, const struct request_text *word)
{
	return word->len && memmem(name, len, word->at, word->len) != NULL;
}

/* Exactly one ':' in a part, and a kind that there is: a part that is wrong counts as absent,
 * and a filter of nothing but wrong parts lets everything through. */
bool request_filter(const struct request_text *filter, uint32_t kind, const char *name, size_t len)
{
	struct request_text part, head, list, word;
	bool any = false;

	if (!filter->len || kind == ACTIVITY_MEMORY || kind == ACTIVITY_MEMSET ||
	    kind == ACTIVITY_MEMCPY)
		return true;
	for (unsigned i = 0; request_item(filter, ';', i, &part); i++) {
		/* exactly one ':' and a kind that there is, or the part says nothing */
		if (!request_item(&part, ':', 1, &list) || request_item(&part, ':', 2, &word))
			continue;
		request_item(&part, ':', 0, &head);
		uint32_t of = activity_kind_find(&head);
		any |= of != 0;
		if (of != kind)
			continue;
		for (unsigned k = 0; request_item(&list, ',', k, &word); k++)
			if (contains_word(name, len, &word))
				return true;
	}
	return !any;
}
