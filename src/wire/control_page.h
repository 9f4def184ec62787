/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The control page of one recording: the file `session` in the recording's directory, mapped by
 * the recorder and by every guest process of the tree. The environment variable SONDE_SESSION holds
 * the absolute path of the directory.
 *
 * States:
 *
 *	          the first process creates the file        the recorder has written its settings
 *	(no file) ---------- O_EXCL -----------------> NEW ---------------------------------> LIVE
 *	                                                ^                                      |
 *	                   a guest with an event calls  |                                      |
 *	                   a recorder back (CAS)        |                the recorder leaves   |
 *	                                                +---------- FINISHED <-----------------+
 *
 * Of several processes that need it at once, one creates the file; of several that find it FINISHED
 * one wins the compare-and-swap to NEW and starts a recorder, the others wait for LIVE. In NEW
 * everything is recorded: nobody has said yet what is wanted.
 *
 * Who writes what:
 *
 *	before LIVE      the launcher, or the recorder: every word that has no mark below
 *	"guest"          any process of the tree, by atomic operations only
 *	"recorder"       the recorder
 *
 * Plain words are written before the release store of `state` = LIVE and are constant from then on.
 *
 * Questions and answers are pairs of counters, *_asked and *_done, and futexes: the guest adds 1 to
 * the question and sleeps on the answer until it has caught up or the recorder is gone; the
 * recorder sleeps on exit_asked, so that waking that word wakes the recorder for any reason. Both
 * sides bound their waits: a stopped recorder costs a job seconds, never its end.
 */
#ifndef SONDE_WIRE_CONTROL_PAGE_H
#define SONDE_WIRE_CONTROL_PAGE_H

#include "wire/record.h"

#include <stdatomic.h>
#include <stdint.h>

#define SESSION_ENV "SONDE_SESSION"
#define SESSION_CONFIG_ENV "MSMEMSCOPE_CONFIG_PATH" /* where its SESSION_CONFIG is */
#define SESSION_OUTPUT "memscopeDumpResults" /* output path, if none is named */
#define SESSION_FILE "session"
#define SESSION_RECORDING "events.sonde"
/* <prefix><pid>_<time>: what a directory is called that no launcher made. */
#define SESSION_PREFIX "recording_"
#define SESSION_TRACE_SUFFIX "_sonde" /* of a trace's directory, in which its recording is, too */
#define SESSION_MONITOR_PREFIX "monitor_" /* made by the monitor: nothing of it is kept */
/* + uid: the directory of those, below TMPDIR. + uid + '.' + anything: where another user has taken
 * that name; it goes with the last session in it. */
#define SESSION_MONITOR_PLACE "sonde-monitor-"
#define SESSION_FROZEN "frozen_" /* <n>_<why>: copies of a recording, in its directory */
#define SESSION_ANSWER "answer.json" /* of `sonde record`: its last words */
#define SESSION_REPORT "report.txt"
#define SESSION_CONFIG "config.json"
#define SESSION_LOG "msmemscope.log"
#define SESSION_RING_SUFFIX ".ring" /* <pid>-<pid namespace>-<time>.ring in ring_dir */
#define SESSION_MAGIC 0x314e4f4953534553ull /* "SESSION1" */
#define SESSION_VERSION 1
#define SESSION_BYTES 4096
#define SESSION_NAME_BYTES 256 /* an operator's name and its NUL */
/* Bytes of watched memory, <pid>-<number>; moved to the dumps. */
#define SESSION_WATCH_DIR "watch"

enum session_state {
	SESSION_NEW = 0, /* made by a guest, not configured yet: record everything */
	SESSION_LIVE = 1,
	SESSION_FINISHED = 2, /* the recorder has left; a later event starts another */
	SESSION_COPIED = 3, /* beside a copy of the recording alone: all as it was at that moment */
};

/* What guests are asked to write; anything not listed is always written. */
enum session_want {
	WANT_ALLOC = 1 << 0, /* allocations and frees */
	WANT_ACCESS = 1 << 1,
	WANT_OP = 1 << 2, /* operator launches: level op + events launch */
	WANT_KERNEL = 1 << 3, /* kernel launches: level kernel + events launch */
	WANT_HOST = 1 << 4, /* host memory */
	WANT_DEFERRED = 1 << 5, /* start not tracing; sonde_start() begins */
	WANT_WATCH = 1 << 6, /* samples of watched memory, see watch_* below */
	WANT_TRACE = 1 << 7, /* calls of Python functions */
	WANT_OWNERS = 1 << 8, /* who owns memory: the framework is asked */
	WANT_OBJECTS = 1 << 9, /* blocks of CPython's allocator */
};

#define SESSION_CLOSING_BYTES 1280

/*
 * What a pool of a process holds, as the recorder has counted it, for the process itself to read. The
 * key is 0 while the other words change; of more pools than there is room for the first are here.
 */
#define SESSION_USAGES 28
#define SESSION_USAGE_KEY(pid, device, pool)                                                       \
	((uint64_t)(pid) << 32 | (uint64_t)(device) << 8 | ((uint64_t)(pool) + 1))

struct session_usage {
	_Atomic uint64_t key; /* pid as the process knows it, device, pool; 0: nothing */
	_Atomic uint64_t used_bytes, peak_bytes; /* in blocks */
	_Atomic uint64_t peak_heap_bytes; /* what the pool had taken from the driver */
};

/* What `sonde record` asks for besides memory. */
struct session_record {
	uint32_t on; /* not 0: it is one */
	/* Activities that every process reports from its start on: ACTIVITY_BIT() each; 0: none. */
	uint32_t kinds;
	uint32_t first_step, last_step; /* … and samples, about in these steps; 0: always */
	uint32_t stacks_us; /* between two samples of Python's stacks; 0: none */
	uint32_t counters_ms; /* between two samples of counters; 0: none */
	uint32_t last_s; /* so much is kept; 0: everything */
	uint32_t duration_ms; /* 0: as long as the job runs */
	_Atomic uint32_t over; /* recorder: that time is over */
	_Atomic uint32_t freeze_asked; /* anybody: +1 for a copy of what there is now */
	_Atomic uint32_t freeze_done; /* recorder: = freeze_asked when it is there, or cannot be */
	_Atomic uint32_t frozen; /* recorder: how many copies there are */
	uint32_t hang_s; /* without a step or work of a device: the job hangs; 0: it never does */
};

struct control_page {
	uint64_t magic;
	uint32_t version;
	_Atomic uint32_t state;
	_Atomic uint32_t want;
	uint32_t c_depth; /* native frames per event, 0 = none */
	uint32_t py_depth;
	uint32_t oom_depth; /* native frames when the driver refuses memory, if that is more */
	int64_t wall_minus_mono_ns;
	uint32_t root_pid; /* the launched process; without a launcher the first one of the tree */
	_Atomic uint32_t recorder_pid;
	_Atomic uint64_t heartbeat_ns; /* recorder: its heartbeat, CLOCK_MONOTONIC */
	uint32_t max_segs; /* ring budget of one process, in segments */
	uint32_t wait_ms; /* how long a hook may wait for ring space, 0 = never */
	_Atomic uint32_t exit_asked; /* guest: +1 (futex) when the root process reaches its end */
	_Atomic uint32_t exit_done; /* recorder: = exit_asked (futex) when all is on disk */
	_Atomic uint64_t progress; /* recorder: events handled so far */
	_Atomic uint64_t unrecorded; /* guest: processes that could not make an arena */
	char ring_dir[1024]; /* where arenas are made; empty = the session directory */
	_Atomic uint64_t rows_lost; /* recorder: rows that the dump files could not take */
	_Atomic uint32_t joined; /* guest: processes that made an arena */
	/* Memory to watch: outputs of operator `start` until operator `end` is through. */
	uint32_t watch_output; /* which output; UINT32_MAX: every one */
	uint32_t watch_content; /* not 0: keep the bytes too, in SESSION_WATCH_DIR */
	char watch_start[SESSION_NAME_BYTES]; /* empty: only what the program itself names */
	char watch_end[SESSION_NAME_BYTES];
	/* Where the report is written at the root's end: this descriptor, if it still is that
	 * file. */
	uint32_t report_fd; /* 0: nowhere */
	_Atomic uint32_t report_ready; /* recorder: SESSION_REPORT is complete */
	uint64_t report_dev, report_ino;
	_Atomic uint64_t
		unamended; /* recorder: dump files that lack findings, as amending failed */
	struct rec_settings settings; /* what `want` and the depths were made of */
	_Atomic uint32_t flush_asked; /* guest: +1 when files are to hold all that happened */
	_Atomic uint32_t flush_done; /* recorder: = flush_asked (futex) when they do */
	_Atomic uint64_t activities_written; /* recorder: of the monitor, and where they belong */
	/* recorder: the process whose memory it may not read; guest: 0, after it has let it in
	 * (guest_grant_ptrace_access()) */
	_Atomic uint32_t access_denied_pid;
	/* guest: processes that have limited their system calls, and go on with what they had; and
	 * those in which there was nothing to go on with, so that they are not recorded */
	_Atomic uint32_t sealed, sealed_out;
	_Atomic uint32_t detached; /* guest: processes that put memory of their own over ours */
	_Atomic uint32_t unseen_heaps; /* guest: processes whose malloc is not behind our hooks */
	uint32_t filters; /* of system calls, that the job had from the start: not its own */
	/* Inodes of pid namespaces: where root_pid and recorder_pid count; 0: not known. */
	uint64_t root_ns;
	_Atomic uint64_t recorder_ns;
	int64_t made_s; /* when this page was made, in seconds since 1970: root_pid is older */
	uint64_t exit_asked_ns; /* guest: when exit_asked was, CLOCK_MONOTONIC */
	/* recorder: events that the recording could not take, and why; why dump files lack rows */
	_Atomic uint64_t unwritten;
	_Atomic uint32_t write_errno, dump_errno;
	uint32_t terminal; /* recorder: it has one, so a job without events waits for its words */
	uint32_t closing_asked; /* launcher: a last line is wanted, even if all went well */
	char closing[SESSION_CLOSING_BYTES]; /* recorder: that line, for report_fd; empty: none */
	struct session_usage usages[SESSION_USAGES]; /* recorder: at each flush */
	struct session_record record; /* launcher */
	/* recorder: processes of the job that use a device and are not recorded, and of them the
	 * one that has most there */
	_Atomic uint32_t outsiders, outsider_pid, outsider_kib, outsider_device;
};

_Static_assert(sizeof(struct control_page) <= SESSION_BYTES, "control_page outgrew its page");

#endif
