/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A process with a monitor, as the recorder hears it, and a daemon that takes its reports. */
#ifndef SONDE_TESTS_UNIT_ACTIVITIES_H
#define SONDE_TESTS_UNIT_ACTIVITIES_H

#include "activity/windows/windows.h"
#include "records.h"
#include "test.h"
#include "tmpdir.h"
#include "wire/fabric.h"

#include <dirent.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define WALL 1700000000000000000ll /* minus the monotonic clock */
#define AT(ns) (WALL + (ns))

struct stage {
	struct activities *a;
	struct buf recs; /* not yet told */
	int fd; /* the daemon's */
	char where[64];
	char type[32], payload[FABRIC_MAX_BYTES + 1]; /* of the last datagram */
};

static inline void stage_frame(struct stage *s, uint32_t type, const void *payload, size_t n)
{
	CHECK(stream_frame(&activities_stream, s->a, type, payload, n, NULL) == 0);
}

static inline void stage_proc(struct stage *s, uint32_t number, uint32_t pid)
{
	struct frame_proc p = {.proc = number, .pid = pid, .shown_pid = pid};

	stage_frame(s, FRAME_PROC, &p, sizeof(p));
}

/* The socket of a daemon that is there, or there again. */
static inline int stage_listen(const struct stage *s)
{
	struct sockaddr_un address;
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);

	CHECK(fabric_abstract_address(s->where + 1, &address, &len) == 0);
	CHECK(bind(fd, (struct sockaddr *)&address, len) == 0);
	return fd;
}

static inline void stage_open(struct stage *s)
{
	char session[64];

	memset(s, 0, sizeof(*s));
	s->a = activities_new();
	snprintf(s->where, sizeof(s->where), "@sonde-unit-%d", (int)getpid());
	s->fd = stage_listen(s);
	snprintf(session, sizeof(session), "{\"wallMinusMono\":%lld}", WALL);
	stage_frame(s, FRAME_SESSION, session, strlen(session));
	stage_proc(s, 0, 77);
}

/* Tells what has been added to recs. */
static inline void stage_tell(struct stage *s)
{
	struct buf batch = {0};

	if (!s->recs.len)
		return;
	add_run(&batch, 0, 7, &s->recs);
	stage_frame(s, FRAME_BATCH, batch.data, batch.len);
	buf_release(&batch);
	buf_clear(&s->recs);
}

static inline void stage_name(struct stage *s, uint64_t hash, const char *text)
{
	TEXT_RECORD(&s->recs, REC_NAME, rec_name, 1, text, strlen(text), .hash = hash);
}

static inline void stage_monitor(struct stage *s, uint64_t ns, uint8_t kind_, uint64_t window_,
				 const char *text)
{
	TEXT_RECORD(&s->recs, REC_MONITOR, rec_monitor, ns, text, strlen(text), .kind = kind_,
		    .window = window_, .rank = 3);
}

/* An order for a monitor; `more` are lines of it, too, and the last of a key counts. */
static inline const char *stage_order(const struct stage *s, const char *kinds, const char *more)
{
	static char text[4096];

	snprintf(text, sizeof(text),
		 "NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false\nREPORT_INTERVAL_S=1\n"
		 "DURATION=0\nMSPTI_ACTIVITY_KIND=%s\nNPU_MONITOR_LOG_FILE=\n"
		 "NPU_MONITOR_EXPORT_TYPE=DB\nSONDE_DAEMON=%s\n%s",
		 kinds, s->where, more);
	return text;
}

/* Steps 5 and 6 are traced into tmpdir(); `more` are lines of the order, too. */
static inline void stage_trace(struct stage *s, uint64_t ns, const char *more)
{
	char order[4096];

	snprintf(order, sizeof(order),
		 "    ACTIVITIES_LOG_FILE=%s/out\nPROFILE_START_STEP=5\nACTIVITIES_ITERATIONS=2\n"
		 "PROFILE_ACTIVITIES=CPU,NPU\n%s\n    REQUEST_TRACE_ID=4711\n",
		 tmpdir(), more);
	stage_monitor(s, ns, MONITOR_START, 1, order);
	stage_tell(s);
}

static inline void stage_start(struct stage *s, uint64_t ns, const char *kinds, const char *more)
{
	stage_monitor(s, ns, MONITOR_START, 1, stage_order(s, kinds, more));
	stage_tell(s);
}

static inline void stage_stop(struct stage *s, uint64_t ns)
{
	stage_monitor(s, ns, MONITOR_STOP, 1, "");
	stage_tell(s);
}

#define ON_DEVICE(device_, stream_) .place = ACTIVITY_ON_DEVICE, .where = {device_, stream_}
#define ON_HOST(pid_, tid_) .place = ACTIVITY_ON_HOST, .where = {pid_, tid_}
/* ACTIVITY(&s, ACTIVITY_KERNEL, from, to, .name = 1, ON_DEVICE(0, 2)) */
#define ACTIVITY(s, kind_, from, to, ...)                                                          \
	RECORD(&(s)->recs, REC_ACTIVITY, rec_activity, (to) + 10, .kind = kind_, .start_ns = from, \
	       .end_ns = to, __VA_ARGS__)
/* One moment of a mark. */
#define MARK(s, flag_, ns, id, ...)                                                                \
	ACTIVITY(s, ACTIVITY_MARKER, ns, ns, .flag = flag_, .correlation = id, __VA_ARGS__)

/* The next datagram of any type; false: there is none. */
static inline bool stage_take(struct stage *s)
{
	static _Alignas(8) char datagram[FABRIC_MAX_BYTES];
	struct fabric_message m;
	ssize_t n = recv(s->fd, datagram, sizeof(datagram), 0);

	if (n < 0)
		return false;
	CHECK(fabric_parse(datagram, (size_t)n, &m) == FABRIC_OK);
	snprintf(s->type, sizeof(s->type), "%s", m.type);
	memcpy(s->payload, m.payload, m.payload_bytes);
	s->payload[m.payload_bytes] = 0;
	return true;
}

/* The next one of this type; "" if there is none. */
static inline const char *stage_next(struct stage *s, const char *type)
{
	while (stage_take(s))
		if (!strcmp(s->type, type))
			return s->payload;
	return "";
}

/* What the last sondeTop that waits says. */
static inline json_t *stage_top(struct stage *s)
{
	json_t *top = json_loads(stage_next(s, FABRIC_TOP), 0, NULL);

	CHECK(top != NULL);
	return top;
}

static inline long long number_in(const json_t *o, const char *key)
{
	CHECK(json_is_integer(json_object_get(o, key)));
	return json_integer_value(json_object_get(o, key));
}

static inline void stage_end(struct stage *s)
{
	struct frame_proc_end e = {.time_ns = 1};

	stage_frame(s, FRAME_PROC_END, &e, sizeof(e));
}

static inline void stage_close(struct stage *s)
{
	activities_free(s->a);
	buf_release(&s->recs);
	close(s->fd);
}

/* The only entry of out/ in the test's directory whose name ends so; NULL: there is none. */
static inline const char *stage_left(const char *suffix)
{
	static char path[2048];
	DIR *d = opendir(tmpfile_path("out"));
	struct dirent *e;
	bool found = false;

	while (d && (e = readdir(d))) {
		size_t len = strlen(e->d_name), n = strlen(suffix);

		if (len < n || strcmp(e->d_name + len - n, suffix))
			continue;
		CHECK(!found);
		found = true;
		snprintf(path, sizeof(path), "%s/%s", tmpfile_path("out"), e->d_name);
	}
	if (d)
		closedir(d);
	return found ? path : NULL;
}

/* A file of the trace that it left. */
static inline json_t *stage_load(const char *name)
{
	char path[4096];
	json_error_t why;

	CHECK(stage_left("_sonde"));
	snprintf(path, sizeof(path), "%s/%s", stage_left("_sonde"), name);
	json_t *o = json_load_file(path, 0, &why);
	if (!o)
		fprintf(stderr, "%s: %s\n", path, why.text);
	CHECK(o);
	return o;
}

#endif
