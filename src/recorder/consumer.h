/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the recorder hands records to. The recorder only moves bytes: from the rings into the
 * recording, and from there, frame by frame, to each consumer of the table in consumers.c. A
 * subject (memory/, activity/) implements one struct consumer_ops, and the recorder includes no
 * header of a subject.
 *
 * All functions are called by the recorder's one thread; any but open() and close() may be NULL.
 */
#ifndef SONDE_RECORDER_CONSUMER_H
#define SONDE_RECORDER_CONSUMER_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "recorder/stream.h"
#include "wire/control_page.h"

#include <stdbool.h>
#include <stdint.h>

/* What a consumer may know of the session. Borrowed: valid until close(). */
struct recorder_session {
	const char *dir;
	struct control_page *page;
	bool terminal; /* our stderr is one */
};

/* Output that could not be produced since open(). */
struct consumer_losses {
	uint64_t rows; /* that no file could take */
	uint64_t unamended; /* files that lack findings */
	int error; /* errno: why rows are missing; 0: not known */
};

/* A process that has ended, whose end comes next in the stream. */
struct dead_process {
	uint32_t proc, pid; /* as in the recording */
	uint32_t shown_pid; /* as in struct drain_proc */
	int pidfd; /* negative: none; borrowed */
	bool replaced; /* by another program of the same process, or moved: it has not ended */
	int32_t rank; /* as its environment said at last; -1: not known */
	uint64_t peak_rss_bytes; /* as it said at its exit; 0: it did not */
};

/* How far a recording is when its user hears about it. */
struct consumer_report {
	uint64_t events; /* in the recording */
	bool removed; /* somebody has deleted it */
	int error; /* errno: why others are not in it; 0: all are */
	bool running; /* processes of the job go on */
	bool writing; /* files are not complete yet */
};

/*
 * What the oldest part of a recording comes to, for a recorder that drops it. `stream` listens to
 * that part; then write() gives batches that say the same about all processes which have not ended,
 * in fewer words. The recorder itself takes care of all other frames, cursors and counts. Each
 * consumer may have one; only that of memory knows steps and describes the cut.
 */
struct checkpoint_ops {
	void *(*open)(void);
	void (*close)(void *state);
	const struct stream_ops *stream;
	/* Steps that have ended so far, of all processes together. */
	uint64_t (*steps)(const void *state);
	/* Fills in which steps they were. */
	void (*describe)(const void *state, struct frame_cut *out);
	int (*write)(void *state, int (*batch)(void *arg, const void *payload, size_t bytes),
		     void *arg);
};

/* An open consumer. */
struct consumer {
	const struct consumer_ops *ops;
	void *state;
	const struct stream_ops
		*stream; /* what it listens to; open() may leave it NULL: ops->stream */
	void *listener; /* argument of its functions */
	/* How much of the recording is kept; 0: any number. open() may set them, if there is a
	 * checkpoint. */
	uint64_t max_bytes, keep_ns;
	const struct checkpoint_ops *checkpoint;
};

struct consumer_ops {
	const char *name;
	const struct stream_ops *stream;

	/*
	 * Reads its configuration from the session's directory (and makes it, if it is missing),
	 * fills in its part of the control page, sets out->state and out->listener. Comes before
	 * the recording and the log file exist. After a failure close() is not called.
	 */
	int (*open)(const struct recorder_session *s, struct consumer *out, struct err *err);
	void (*close)(void *state);

	/* Timed work that is due; now is CLOCK_MONOTONIC. Comes with every round, so it is cheap.
	 */
	void (*tick)(void *state, uint64_t now_ns);
	/* Are ticks needed every few milliseconds? */
	bool (*is_urgent)(void *state);

	/*
	 * Records of its own for the recording: true if a FRAME_BATCH payload was added to batch.
	 * had_events: the job has written something in this round.
	 */
	bool (*poll)(void *state, bool had_events, struct buf *batch);
	/* The end of a process comes next: waits, a fraction of a second at most, until poll() has
	 * what belongs before it. */
	void (*settle)(void *state, const struct dead_process *p);

	/* Brings everything to its files. */
	void (*flush)(void *state);
	/* Does what flush() began go on beside us? A process that asked for a flush waits for it.
	 */
	bool (*is_flushing)(void *state);
	/* Are finished files still being brought into their last form? The session waits for it. */
	bool (*is_amending)(void *state);
	/* Must nothing of the recording be dropped right now to keep it as short as was asked for?
	 * Not for long: it grows meanwhile. */
	bool (*is_holding)(void *state);
	void (*add_losses)(void *state, struct consumer_losses *total); /* after a flush */

	/* The launched process waits for its files, longer than people expect. Comes several times
	 * a second, with the bytes that were in the buffers and those that have been read. */
	void (*show_slow)(void *state, uint64_t read_bytes, uint64_t all_bytes);
	/* The launched process has ended: reports to the user what is new. Comes again when
	 * everybody has ended. Not for a session that keeps nothing. */
	void (*report)(void *state, const struct consumer_report *r);

	/*
	 * Without open(): writes its files anew from a recording whose last FRAME_SESSION is
	 * `session` (JSON), and adds a sentence about it to report. Nothing outside of the
	 * directory `below` (a path without links) is changed, whatever recording and session say.
	 */
	int (*rewrite)(const char *recording, const struct buf *session, const char *below,
		       struct buf *report, struct err *err);
};

extern const struct consumer_ops memory_consumer; /* memory/outputs/consumer.c */
extern const struct consumer_ops activity_consumer; /* activity/windows/consumer.c */
extern const struct consumer_ops flight_consumer; /* recorder/flight/flight.c */
extern const struct consumer_ops clocks_consumer; /* recorder/peer_clocks.c */
extern const struct consumer_ops sampler_consumer; /* sampler/record/consumer.c */

#endif
