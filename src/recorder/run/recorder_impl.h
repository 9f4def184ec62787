/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the files of a recorder's life share: rounds, pauses between them, and the end. */
#ifndef SONDE_RECORDER_RUN_RECORDER_IMPL_H
#define SONDE_RECORDER_RUN_RECORDER_IMPL_H

#include "base/containers/buf.h"
#include "recorder/consumers.h"
#include "recorder/drain.h"
#include "recorder/recording.h"
#include "recorder/rotate/rotate.h"
#include "recorder/session.h"

#include <stdbool.h>
#include <stdint.h>

#define MS 1000000ull
#define IDLE_MIN_NS (1 * MS)

struct recorder {
	char *dir;
	char *ring_dir;
	struct control_page *page;
	struct drain *drain;
	struct recording_writer *out; /* NULL: nothing is kept */
	struct rotate *rotate; /* NULL: it may have any size */
	struct consumers consumers;
	struct buf batch;
	size_t round_bytes; /* of the rings in the last round */
	int lock_fd; /* one recorder per session, however many are started */
	int root_fd; /* pidfd of the launched process, -1 without one */
	bool root_gone;
	uint64_t scanned_ns, scan_after_ns, checked_ns, busy_ns, idle_ns;
	uint64_t events; /* that were read */
	uint64_t dropped; /* of them: the recording could not take them */
	struct buf
		owed; /* frames that have to come before any other, see recorder_append_frame() */
	bool failing; /* the last attempt to write to the recording was in vain */
	bool logged; /* … and the log has it */
	uint64_t logged_ns; /* when it was last said */
	struct consumer_losses losses; /* that the page has */
	bool called; /* by a process of the job, not by a launcher */
	bool monitor; /* see session.h */
	uint64_t images_ns; /* when it was checked what programs its processes run */
	uint64_t sweep_ns;
	bool terminal; /* our stderr is one */
	bool reported; /* to the user, at the end of the first process */
	uint64_t shown_ns; /* when its user was last told why it waits */
	uint64_t most_unread; /* bytes, while it waits */
	bool left; /* nothing more to do, and everybody can see it */
};

/* --- recorder.c: rounds --- */

/* One round over everything; true if there was something to read. */
bool recorder_run_once(struct recorder *rec);
/* The next round searches for new processes, however long that takes. */
void recorder_ask_for_scan(struct recorder *rec);
void recorder_add_process(void *arg, const struct frame_proc *p);
int recorder_append_frame(struct recorder *rec, enum frame_type type, const void *payload,
			  size_t bytes);

/* --- pace.c: pauses between rounds --- */

/* Has the launched process ended? Without one: yes. */
bool recorder_root_is_gone(struct recorder *rec);
/* After a round without events; asked: what exit_asked was before it. */
void recorder_wait_idle(struct recorder *rec, uint32_t asked);
/* After a round with events. */
void recorder_pace_rounds(struct recorder *rec, uint32_t asked);

/* --- leave.c: the end --- */

/* The launched process is at its end and waits; sets rec->left. */
void recorder_answer_exit(struct recorder *rec, uint32_t asked);
/* Tells the user of a process that has waited for a while. */
void recorder_show_if_slow(struct recorder *rec);
void recorder_report(struct recorder *rec, bool running);
/* True: nobody is left, and the session is finished. */
bool recorder_try_finish(struct recorder *rec);

#endif
