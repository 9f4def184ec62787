/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "recorder"
#include "recorder/recorder.h"

#include "activity/trace/python.h"
#include "activity/windows/windows.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "memory/outputs/outputs.h"
#include "memory/outputs/report.h"
#include "memory/track/device_memory.h"
#include "memory/track/track.h"
#include "recorder/drain.h"
#include "recorder/leave_job.h"
#include "recorder/monitor_session.h"
#include "recorder/recording.h"
#include "recorder/session.h"
#include "recorder/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define SCAN_NS (5 * MS) /* between looks for new processes */
#define CHECK_NS (1 * MS) /* between looks who is alive */
#define FLUSH_NS (200 * MS)
#define NAP_MIN_NS (1 * MS)
#define NAP_MAX_NS (50 * MS)
#define MONITOR_NAP_MAX_NS (250 * MS) /* it is told when there is something to write at once */
#define TRACE_NAP_MAX_NS (5 * MS)
#define SWEEP_NS (1000 * MS)
#define LINGER_NS (1000 * MS) /* who was called by a process waits for it, and for the next */
#define EXIT_NS (2000 * MS) /* how long the launched process is kept at its exit at most */
#define FLUSH_WAIT_NS (500 * MS)
#define TRACE_WAIT_NS (8000 * MS) /* who asks for a flush waits a little longer than that */
#define LOCK_WAIT_MS 30000 /* for a former recorder to be through with leaving */

struct recorder {
	char *dir;
	char *ring_dir;
	struct control_page *page;
	struct mem_config cfg;
	struct drain *drain;
	struct recording_writer *out; /* NULL: nothing is kept */
	struct outputs outputs;
	struct activities *activities;
	struct device_memory *devices;
	struct buf batch;
	int lock_fd; /* one recorder per session, whoever starts how many */
	int root_fd; /* pidfd of the launched process, -1 without one */
	bool root_gone;
	uint64_t scanned_ns, checked_ns, flushed_ns, busy_ns, nap_ns;
	uint64_t events;
	uint64_t lost; /* records that the recording could not take */
	uint64_t rows_lost; /* of the dumps, as last told */
	uint32_t known_procs; /* of a former recorder of this session */
	uint64_t unamended; /* files, as last told */
	bool called; /* by a process of the job, not by a launcher */
	bool monitor; /* see monitor_session.h */
	struct monitor_image image;
	uint64_t sweep_ns;
	struct report report;
	bool left; /* nothing more to do, and everybody can see it */
};

/* --- setting up --- */

/* A job without a launcher: the file it was given, or the defaults, and then it starts silent. */
static int config_without_launcher(struct recorder *rec, struct err *err)
{
	const char *given = getenv(MEM_CONFIG_ENV);
	char *copy = xstrdup(rec->dir);
	int r;

	if (given && given[0] == '/' && mem_config_read(given, &rec->cfg, NULL) == 0) {
		r = 0;
	} else {
		const char *compat = getenv(MEM_COMPAT_ENV);

		r = mem_config_init(&rec->cfg, err);
		rec->cfg.mode = MEM_DEFERRED;
		if (compat && mem_compat_find(compat) >= 0)
			rec->cfg.compat = (enum row_compat)mem_compat_find(compat);
	}
	snprintf(rec->cfg.output_dir, sizeof(rec->cfg.output_dir), "%s", dirname(copy));
	free(copy);
	return r;
}

static int load_config(struct recorder *rec, struct err *err)
{
	char *path = xasprintf("%s/" MEM_CONFIG_FILE, rec->dir);
	int r;

	if (access(path, F_OK) == 0) {
		r = mem_config_read(path, &rec->cfg, err);
	} else {
		r = config_without_launcher(rec, err);
		if (r == 0)
			r = mem_config_write(&rec->cfg, path, err);
	}
	free(path);
	return r;
}

static void count_proc(void *arg, const struct frame_proc *p)
{
	struct recorder *rec = arg;

	if (p->proc >= rec->known_procs)
		rec->known_procs = p->proc + 1;
}

static int append(struct recorder *rec, enum frame_type type, const void *payload, size_t bytes)
{
	struct err err = {0};

	if (!rec->out)
		return 0;
	int r = recording_append(rec->out, type, payload, bytes, &err);
	if (r < 0)
		log_err("%s", err.text);
	return r;
}

static void pass_on(struct recorder *rec, enum frame_type type, const void *payload, size_t bytes)
{
	stream_frame(&track_stream, rec->outputs.track, type, payload, bytes, NULL);
	stream_frame(&activities_stream, rec->activities, type, payload, bytes, NULL);
}

/* Into the recording, then to whoever lives on it. */
static void tell(struct recorder *rec, enum frame_type type, const void *payload, size_t bytes)
{
	append(rec, type, payload, bytes);
	pass_on(rec, type, payload, bytes);
}

/* The configuration and what else a reader of the recording needs to know, as JSON. */
static void tell_session(struct recorder *rec)
{
	char *path = xasprintf("%s/" MEM_CONFIG_FILE, rec->dir);
	char host[256] = "";
	json_t *root = json_load_file(path, 0, NULL);

	if (!root)
		root = json_object();
	gethostname(host, sizeof(host) - 1);
	json_object_set_new(root, "wallMinusMono", json_integer(rec->page->wall_minus_mono_ns));
	json_object_set_new(root, "rootPid", json_integer(rec->page->root_pid));
	json_object_set_new(root, "ringDir", json_string(rec->ring_dir));
	json_object_set_new(root, "host", json_string(host));
	json_object_set_new(root, "version", json_string(SONDE_VERSION));
	char *text = json_dumps(root, JSON_SORT_KEYS);
	if (text)
		tell(rec, FRAME_SESSION, text, strlen(text));
	free(text);
	json_decref(root);
	free(path);
}

static int open_recording(struct recorder *rec, struct err *err)
{
	static const struct stream_ops count = {.proc = count_proc};
	char *path = xasprintf("%s/" SESSION_RECORDING, rec->dir);

	int r = 0;
	if (access(path, F_OK) == 0)
		stream_file(path, &count, rec, NULL, NULL);
	if (!rec->monitor)
		r = recording_create(&rec->out, path, err);
	free(path);
	return r;
}

static int open_session(struct recorder *rec, struct err *err)
{
	int r = session_map(rec->dir, true, &rec->page, err);

	if (r == 0)
		r = rec->lock_fd = session_lock(rec->dir, rec->page, LOCK_WAIT_MS, err);
	if (r >= 0)
		r = load_config(rec, err);
	if (r == 0)
		r = open_recording(rec, err);
	if (r < 0)
		return r;
	session_configure(rec->page, &rec->cfg);
	rec->ring_dir = xstrdup(rec->page->ring_dir[0] ? rec->page->ring_dir : rec->dir);
	rec->drain = drain_new(rec->ring_dir, rec->known_procs);
	rec->root_fd =
		rec->page->root_pid ? (int)syscall(SYS_pidfd_open, rec->page->root_pid, 0) : -1;
	return 0;
}

static void open_outputs(struct recorder *rec)
{
	struct outputs_where where = {rec->cfg.output_dir, rec->dir, DUMPS_AS_CONFIGURED, true};

	outputs_open(&rec->outputs, &where, rec->cfg.format == MEM_DB ? &db_writer : &csv_writer,
		     rec->cfg.compat);
	rec->activities = activities_new();
	trace_python_ask_through(&rec->page->access_denied_pid);
	rec->devices = device_memory_new();
	rec->report.dir = rec->dir;
	rec->report.page = rec->page;
	rec->report.cfg = &rec->cfg;
	tell_session(rec);
}

/* --- the loop --- */

static void on_new_proc(void *arg, const struct frame_proc *p)
{
	struct recorder *rec = arg;

	log_info("process %u joined: %s", p->pid, p->exe);
	tell(rec, FRAME_PROC, p, sizeof(*p));
	if (rec->monitor)
		monitor_image_note(&rec->image, p->pid);
}

/* A monitor's process that has become another program, or goes on in another session. */
static void look_for_leavers(struct recorder *rec, uint64_t now)
{
	if (rec->monitor && now >= rec->sweep_ns) {
		/* Whose recorder was killed says that he has left when he has come to us. */
		if (rec->sweep_ns)
			monitor_session_sweep(rec->dir);
		rec->sweep_ns = now + SWEEP_NS * (rec->sweep_ns ? 60 : 1);
	}
	if (rec->monitor && drain_has_left(rec->drain))
		rec->root_gone = true;
	if (!monitor_image_is_gone(&rec->image, now))
		return;
	struct drain_proc *p = drain_find(rec->drain, rec->image.pid);
	if (p)
		p->dead = true;
	rec->root_gone = true;
	rec->image.pid = 0;
}

static void beat(struct recorder *rec, uint64_t now)
{
	atomic_store(&rec->page->beat_ns, now);
	atomic_store(&rec->page->progress, rec->events);
	atomic_store(&rec->page->activities_written, activities_written(rec->activities));
}

/* Samples of device memory, if some have come: part of the recording like everything else. */
static void sample_devices(struct recorder *rec, bool events)
{
	buf_clear(&rec->batch);
	if (device_memory_poll(rec->devices, rec->outputs.track, events, &rec->batch) &&
	    append(rec, FRAME_BATCH, rec->batch.data, rec->batch.len) == 0)
		pass_on(rec, FRAME_BATCH, rec->batch.data, rec->batch.len);
}

/* One look at everything; true if there was something to do. */
static bool work(struct recorder *rec)
{
	struct err err = {0};
	uint64_t now = clock_mono_ns();

	beat(rec, now);
	if (now - rec->scanned_ns >= SCAN_NS) {
		rec->scanned_ns = now;
		if (drain_scan(rec->drain, on_new_proc, rec, &err) < 0)
			log_debug("%s", err.text);
	}
	/* Dead first, emptied after: what a process wrote before it died is there to be read. */
	if (now - rec->checked_ns >= CHECK_NS) {
		rec->checked_ns = now;
		drain_check_alive(rec->drain, false);
		look_for_leavers(rec, now);
	}
	buf_clear(&rec->batch);
	uint32_t n = drain_round(rec->drain, &rec->batch);
	if (rec->batch.len) {
		if (append(rec, FRAME_BATCH, rec->batch.data, rec->batch.len) == 0) {
			drain_commit(rec->drain);
		} else {
			rec->lost += n;
			drain_drop(rec->drain);
		}
		pass_on(rec, FRAME_BATCH, rec->batch.data, rec->batch.len);
		rec->events += n;
	}
	sample_devices(rec, n > 0);
	for (struct drain_proc *p; (p = drain_next_dead(rec->drain));) {
		struct frame_proc_end end;
		uint32_t pid = p->pid;
		device_memory_settle(rec->devices, rec->outputs.track);
		sample_devices(rec, false);
		drain_finish(rec->drain, p, true, &end);
		end.lost_events += rec->lost;
		rec->lost = 0;
		log_info("process %u ended", pid);
		rec->scanned_ns = 0; /* what it became by exec() comes next */
		tell(rec, FRAME_PROC_END, &end, sizeof(end));
	}
	if (now - rec->flushed_ns >= FLUSH_NS) {
		rec->flushed_ns = now;
		outputs_flush(&rec->outputs);
	}
	activities_tick(rec->activities, now);
	return n > 0;
}

static double seconds_of(const struct rusage *use)
{
	return (double)(use->ru_utime.tv_sec + use->ru_stime.tv_sec) +
	       (double)(use->ru_utime.tv_usec + use->ru_stime.tv_usec) / 1e6;
}

static void finish(struct recorder *rec)
{
	struct err why = {0};

	drain_sweep(rec->drain);
	append(rec, FRAME_END, NULL, 0);
	outputs_flush(&rec->outputs);
	activities_flush(rec->activities);
	uint64_t lost = dumps_lost(rec->outputs.dumps, &why);
	atomic_fetch_add(&rec->page->rows_lost, lost - rec->rows_lost);
	rec->rows_lost = lost;
	if (lost)
		log_warn("%llu rows could not be written: %s", (unsigned long long)lost, why.text);
	uint64_t unamended = diagnose_unamended(rec->outputs.diagnose);
	atomic_fetch_add(&rec->page->unamended, unamended - rec->unamended);
	rec->unamended = unamended;
	struct rusage own, copies;
	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &copies);
	/* bench/recorder_rate reads this line. */
	log_info("%llu events in %.3f s of processor time, at most %ld KiB of memory",
		 (unsigned long long)rec->events, seconds_of(&own) + seconds_of(&copies),
		 own.ru_maxrss);
}

/*
 * Nobody is left: everything goes to disk, then the session is FINISHED, then one more look. A
 * process that joins at this very moment is seen by it, or sees FINISHED and calls a recorder.
 */
static bool leave(struct recorder *rec)
{
	struct err err = {0};

	finish(rec);
	atomic_store(&rec->page->state, SESSION_FINISHED);
	if (drain_scan(rec->drain, on_new_proc, rec, &err) <= 0) {
		close(rec->lock_fd);
		rec->lock_fd = -1;
		return true;
	}
	atomic_store(&rec->page->state, SESSION_LIVE);
	return false;
}

/* Every process that ended is read to its last record. */
static void work_off_the_dead(struct recorder *rec, uint64_t until_ns)
{
	const struct timespec step = {0, 200000};

	while (drain_has_dead(rec->drain) && clock_mono_ns() < until_ns)
		if (!work(rec))
			nanosleep(&step, NULL);
}

/*
 * Everybody has ended and been told to the end, and the files are in their last form. Who is found
 * dead only now is told first.
 */
static bool nobody_is_left(struct recorder *rec, uint64_t until_ns)
{
	while (!drain_check_alive(rec->drain, false)) {
		if (!drain_has_dead(rec->drain))
			return !diagnose_is_amending(rec->outputs.diagnose);
		if (clock_mono_ns() >= until_ns)
			return false;
		work_off_the_dead(rec, until_ns);
	}
	return false;
}

/*
 * The launched process is at its end and waits: read everything, write the rows of what it leaves
 * behind, and let it go. Its files are complete when whoever waits for it goes on. Processes that
 * live on may hold the last microseconds back for a moment (drain.c), hence the loop.
 */
static void answer_exit(struct recorder *rec, uint32_t asked)
{
	const struct timespec step = {0, 500000};

	rec->scanned_ns = 0;
	work(rec); /* its arena may be that young */
	struct drain_proc *p = drain_find(rec->drain, rec->page->root_pid);
	if (p)
		p->dead = true;
	uint64_t until_ns = clock_mono_ns() + EXIT_NS;
	work_off_the_dead(rec, until_ns);
	while (diagnose_is_amending(rec->outputs.diagnose) && clock_mono_ns() < until_ns)
		if (!work(rec))
			nanosleep(&step, NULL);
	outputs_flush(&rec->outputs);
	activities_flush(rec->activities);
	report_tell(&rec->report, rec->outputs.diagnose);
	rec->left = nobody_is_left(rec, until_ns) && leave(rec);
	atomic_store(&rec->page->exit_done, asked);
	syscall(SYS_futex, &rec->page->exit_done, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Somebody wants to read the files: what had happened when he asked is in them. */
static void answer_flush(struct recorder *rec, uint32_t asked)
{
	const struct timespec step = {0, 200000};
	uint64_t until_ns = clock_mono_ns() + FLUSH_WAIT_NS;

	rec->scanned_ns = 0;
	for (unsigned quiet = 0; quiet < 2 && clock_mono_ns() < until_ns;) {
		quiet = work(rec) ? 0 : quiet + 1;
		if (quiet == 1)
			nanosleep(&step, NULL);
	}
	outputs_flush(&rec->outputs);
	activities_flush(rec->activities);
	until_ns = clock_mono_ns() + TRACE_WAIT_NS;
	while (activities_are_writing(rec->activities) && clock_mono_ns() < until_ns)
		if (!work(rec))
			nanosleep(&step, NULL);
	atomic_store(&rec->page->flush_done, asked);
	syscall(SYS_futex, &rec->page->flush_done, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static bool root_is_gone(struct recorder *rec)
{
	struct pollfd p = {.fd = rec->root_fd, .events = POLLIN};

	if (rec->root_gone || !rec->page->root_pid)
		return true;
	if (rec->root_fd >= 0)
		rec->root_gone = poll(&p, 1, 0) > 0;
	else
		rec->root_gone = kill((pid_t)rec->page->root_pid, 0) < 0 && errno == ESRCH;
	return rec->root_gone;
}

/* Sleeps until the next look; the end of the launched process wakes us at once. */
static void nap(struct recorder *rec, uint32_t asked)
{
	uint64_t max_ns = rec->monitor ? MONITOR_NAP_MAX_NS : NAP_MAX_NS;

	if (activities_are_tracing(rec->activities))
		max_ns = TRACE_NAP_MAX_NS;
	if (rec->nap_ns > max_ns)
		rec->nap_ns = max_ns;
	struct timespec t = {0, (long)rec->nap_ns};
	long r = syscall(SYS_futex, &rec->page->exit_asked, FUTEX_WAIT, asked, &t, NULL, 0);
	/* What we were woken for may be too young to be read right now. */
	rec->nap_ns = r == 0 ? NAP_MIN_NS : rec->nap_ns * 2;
}

static bool try_finish(struct recorder *rec)
{
	if (!root_is_gone(rec) || drain_check_alive(rec->drain, false))
		return false;
	if (rec->called && clock_mono_ns() - rec->busy_ns < LINGER_NS)
		return false;
	rec->scanned_ns = 0;
	work(rec);
	return nobody_is_left(rec, UINT64_MAX) && leave(rec);
}

static void loop(struct recorder *rec)
{
	rec->nap_ns = NAP_MIN_NS;
	rec->busy_ns = clock_mono_ns();
	for (;;) {
		uint32_t asked = atomic_load(&rec->page->exit_asked);
		uint32_t flush = atomic_load(&rec->page->flush_asked);
		if (flush != atomic_load(&rec->page->flush_done))
			answer_flush(rec, flush);
		if (work(rec)) {
			rec->nap_ns = NAP_MIN_NS;
			rec->busy_ns = clock_mono_ns();
			continue;
		}
		if (asked != atomic_load(&rec->page->exit_done)) {
			answer_exit(rec, asked);
			if (rec->left)
				return;
			rec->nap_ns = NAP_MIN_NS;
			continue;
		}
		if (try_finish(rec))
			return;
		/* Others may go on for hours: what there is to say about the job is said now. */
		if (!rec->report.told && !rec->called && root_is_gone(rec))
			report_tell(&rec->report, rec->outputs.diagnose);
		nap(rec, asked);
	}
}

static void say_goodbye(struct recorder *rec)
{
	report_tell(&rec->report, rec->outputs.diagnose);
	char *text = xasprintf("[msmemscope] Info: %llu events recorded; read them with: sonde mem "
			       "show %s\n",
			       (unsigned long long)rec->events, rec->dir);
	report_say(&rec->report, text, strlen(text));
	free(text);
	if (strcmp(rec->ring_dir, rec->dir) != 0)
		rmdir(rec->ring_dir);
}

static void report_ready(int fd, int r, const struct err *err)
{
	if (fd < 0)
		return;
	if (r < 0)
		dprintf(fd, "%s", err->text);
	else
		(void)!write(fd, "ok", 2);
	close(fd);
}

int recorder_main(const char *session_dir)
{
	struct recorder rec = {.dir = xstrdup(session_dir), .root_fd = -1};
	const char *ready_text = getenv("SONDE_READY_FD");
	int ready = ready_text ? atoi(ready_text) : -1;
	struct err err = {0};

	rec.called = ready < 0;
	rec.monitor = is_monitor_session(rec.dir);
	leave_the_job(ready, &rec.report.terminal);
	int r = open_session(&rec, &err);
	if (r == 0) {
		char *log = xasprintf("%s/" MEM_LOG_FILE, rec.dir);
		log_set_level(rec.cfg.log_level);
		log_open(log, NULL);
		free(log);
		open_outputs(&rec);
		atomic_store(&rec.page->recorder_pid, (uint32_t)getpid());
		beat(&rec, clock_mono_ns());
		atomic_store(&rec.page->state, SESSION_LIVE);
	}
	/* A guest that called us must not wait for what will not come. */
	uint32_t called = SESSION_NEW;
	if (r < 0 && rec.page)
		atomic_compare_exchange_strong(&rec.page->state, &called, SESSION_FINISHED);
	report_ready(ready, r, &err);
	if (r == 0) {
		loop(&rec);
		if (!rec.monitor)
			say_goodbye(&rec);
	}
	device_memory_free(rec.devices);
	if (rec.activities)
		activities_free(rec.activities);
	if (rec.outputs.track)
		outputs_close(&rec.outputs);
	recording_close(rec.out);
	drain_free(rec.drain);
	session_unmap(rec.page);
	buf_release(&rec.batch);
	if (r == 0 && rec.monitor)
		monitor_session_remove(rec.dir);
	if (r == 0 && rec.monitor && strcmp(rec.ring_dir, rec.dir) != 0)
		rmdir(rec.ring_dir);
	free(rec.ring_dir);
	free(rec.dir);
	return r;
}
