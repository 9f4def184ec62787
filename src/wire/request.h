/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Requests: the config texts that dyno makes, the daemon hands on and monitors carry out. Lines
 * KEY=VALUE; blanks around both do not count, nor do lines without '='; of a key that comes twice
 * the last line counts. Read here for everybody: the guest, the recorder, the Python module.
 *
 *	dyno -- RPC --> daemon -- "req" --> guest: control_execute()
 *	                                      |  the text as it came, in pieces (REC_MONITOR)
 *	                                      v
 *	                                    recorder: opens the window, names the files
 *
 * Pure code: no allocation, no locale, no system calls; what is read points into the text. A value
 * that is missing or wrong is named by its key, and nothing of the request is carried out.
 */
#ifndef SONDE_WIRE_REQUEST_H
#define SONDE_WIRE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_MAX_BYTES 16384

struct request_text {
	const char *at;
	size_t len;
};

/* The value of the last line with this key; false: there is none. */
bool request_find(const char *text, size_t len, const char *key, struct request_text *out);
bool request_is(const struct request_text *t, const char *word); /* in any case of letters */
bool request_number(const struct request_text *t, uint64_t max, uint64_t *out); /* digits only */
/* The n-th item of a list that is separated by `by`, without blanks; false: there are not so many.
 */
bool request_item(const struct request_text *list, char by, unsigned n, struct request_text *out);

enum request_kind {
	REQUEST_NONE,
	REQUEST_MONITOR,
	REQUEST_TRACE,
	REQUEST_PAUSE,
	REQUEST_TRACE_STOP
};
/* NPU_MONITOR_START: monitor; SONDE_PAUSE: pause; SONDE_TRACE_STOP=true: the trace that waits or
 * runs ends now; ACTIVITIES_LOG_FILE: trace. */
enum request_kind request_kind(const char *text, size_t len);

enum request_export { REQUEST_METRICS, REQUEST_DB, REQUEST_JSONL };

/* npu-monitor */
struct monitor_request {
	bool start, stop;
	uint32_t interval_s; /* 0: as before, at first 60 */
	uint64_t duration_ms; /* 0: until it is stopped */
	uint32_t kinds; /* ACTIVITY_BIT() each */
	enum request_export format;
	struct request_text log_file; /* empty: REQUEST_METRICS */
	struct request_text filter;
	uint32_t jsonl_lines; /* per file; 0: not said */
	int32_t jsonl_files; /* kept, -1 all of them; 0: not said */
	bool attribute; /* SONDE_ATTRIBUTE: to modules and lines */
	bool record; /* SONDE_RECORD: activities stay in the recording, and make no other file */
	uint64_t lease; /* SONDE_LEASE: who renews the duration, or lets it end; 0: nobody */
	struct request_text daemon; /* SONDE_DAEMON: where metrics go, as the guest adds it; see
				     wire/request.c */
};

/* nputrace */
enum request_activities { REQUEST_CPU = 1, REQUEST_DEVICE = 2 };
struct trace_request {
	struct request_text log_file;
	int64_t start_step; /* -1: the next one */
	uint64_t steps;
	uint64_t duration_ms; /* instead of steps, if those are 0 */
	uint32_t activities; /* enum request_activities */
	bool shapes, memory, stack, analyse, marks;
	bool db; /* the DB was asked for; a Chrome trace there is always */
	double gc_ms; /* < 0: not asked for */
	uint32_t host_sys; /* enum request_host_sys */
	struct request_text domain_include, domain_exclude; /* empty: all */
	struct request_text ranks; /* empty: all */
	bool attribute; /* SONDE_ATTRIBUTE: to modules and lines */
	bool others_left_out; /* SONDE_OTHERS_LEFT_OUT: not every process was asked */
};
enum request_host_sys {
	REQUEST_HOST_CPU = 1,
	REQUEST_HOST_MEM = 2,
	REQUEST_HOST_DISK = 4,
	REQUEST_HOST_NETWORK = 8,
	REQUEST_HOST_OSRT = 16,
};

/* Why a request is invalid: the key that is missing or wrong, NULL if all is well. */
const char *monitor_request_read(const char *text, size_t len, struct monitor_request *out);
const char *trace_request_read(const char *text, size_t len, struct trace_request *out);

/* The names that dyno gives to kinds of activities; NULL, 0: there is no such kind. */
const char *activity_kind_name(uint32_t kind);
uint32_t activity_kind_find(const struct request_text *name);

/*
 * "Kind:name[,name…][;Kind:name…]". An empty filter lets everything through; else a kind that is
 * not in it goes, except memory, memset and memcpy, and a name must contain one of its words.
 */
bool request_filter(const struct request_text *filter, uint32_t kind, const char *name, size_t len);

/* Is the word one of the comma-separated list? */
bool request_lists(const struct request_text *list, const char *word, size_t len);

#endif
