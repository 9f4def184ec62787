/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * From events to rows: follows every process of a recording (live blocks, pools, steps, labels,
 * names, stacks) and makes the rows of the dumps. Fed by the event stream (stream.h), so it does
 * the same for a running job and for a recording of last year.
 *
 * Memory is bounded by what is alive at one time, not by what ever happened; that of a recording by
 * the size of its file, too (memory/track/budget.c).
 */
#ifndef SONDE_MEMORY_TRACK_TRACK_H
#define SONDE_MEMORY_TRACK_TRACK_H

#include "memory/dump/row.h"
#include "memory/options/config.h"
#include "recorder/consumer.h"
#include "recorder/stream.h"

struct track;
struct trace_row; /* memory/dump/calls.h */
struct watch_sample; /* memory/analysis/watch/watch.h */

#define TRACK_MAX_PROCS (1u << 20) /* processes with a higher number are not followed */

/* The most that a process has had of a pool at once. */
struct track_peak {
	uint32_t device;
	enum row_type type;
	uint64_t bytes;
	uint64_t time_ns; /* since the epoch */
};

/* What comes out. Rows are borrowed for the call; `proc` is the number used in the recording. */
struct track_sink {
	void (*session)(void *arg, const struct mem_config *cfg);
	void (*proc)(void *arg, const struct frame_proc *p);
	/* Optional: a process has changed its own configuration, which lives until the next time.
	 */
	void (*config)(void *arg, uint32_t proc, const struct mem_config *cfg);
	void (*row)(void *arg, uint32_t proc, const struct row *row);
	/* Optional: the owner of a block has changed after its MALLOC row. */
	void (*relabel)(void *arg, uint32_t proc, uint32_t pid, uint64_t allocation_id,
			const char *owner);
	/* Optional: a sample of watched memory. */
	void (*watch)(void *arg, uint32_t proc, const struct watch_sample *s);
	/* Optional: what a process has in memory at time_ns (since the epoch), with the blocks of
	 * that moment; fading: freed so lately that their pages may still be there. Who it is. */
	void (*usage)(void *arg, uint32_t proc, uint64_t time_ns, const struct rec_usage *u,
		      uint64_t fading_bytes);
	void (*process)(void *arg, uint32_t proc, const struct rec_process *r);
	/* Optional: a process has initialised CUDA, or tried to. */
	void (*gpu)(void *arg, uint32_t proc, const struct rec_gpu *r);
	/* Optional: a function has ended. NULL: no more of them for now, what there is should be
	 * in its files. */
	void (*call)(void *arg, uint32_t proc, const struct trace_row *row);
	/* Optional: what the process has had at most, before the part that is there: more than in
	 * it. */
	void (*earlier_peak)(void *arg, uint32_t proc, const struct track_peak *peak);
	void (*proc_end)(void *arg, const struct frame_proc_end *e);
	/* Optional: the recording is over, and the ends that follow are not in it. */
	void (*cut)(void *arg);
	void *arg;
};

/* The configuration comes with the stream; until then the defaults count. */
struct track *track_new(const struct track_sink *sink);
void track_free(struct track *t);

/* The listener: pass it to stream_frame() or stream_file() with the track as argument. */
extern const struct stream_ops track_stream;

/*
 * All of a recording. Processes without an end in it, since it is cut off or still being written,
 * end with its newest record. *out_torn (may be NULL): it ends in the middle of a frame.
 */
int track_file(struct track *t, const char *recording, bool *out_torn, struct err *err);
/* The same; others (NULL: nobody) hear it, too. */
int track_file_beside(struct track *t, const char *recording, const struct stream_listener *others,
		      bool *out_torn, struct err *err);

/*
 * For who reads a file frame by frame while it is written: how much may be kept follows its size,
 * as in track_file(). To be called when it has grown.
 */
void track_file_grows(struct track *t, const char *recording);

/* After track_file(): the recorder left in order, and so did all processes before it. */
bool track_is_whole(const struct track *t);

/*
 * Of a recording that lacks its oldest part: what that was, and how far the rest reaches. Times are
 * since the epoch. False: nothing was dropped.
 */
struct track_cut {
	struct frame_cut cut;
	uint64_t newest_ns;
	uint64_t last_step; /* that has ended */
};
bool track_cut(const struct track *t, struct track_cut *out);

/* For a recorder that drops the oldest part: recorder/consumer.h. */
extern const struct checkpoint_ops track_checkpoint;

/*
 * After track_file(): sentences about parts of the file that could not be read, if there are any.
 * The events that were in them count as lost events of their processes, stacks as lost stacks.
 */
void track_damage_words(const struct track *t, void (*note)(void *arg, const char *text),
			void *arg);
/* Nothing was damaged or left out: what is missing was never in the file. */
bool track_is_read(const struct track *t);
uint64_t track_unread(const struct track *t); /* bytes of the file that were damaged */
bool track_loss_is_known(const struct track *t);

/* Records that were left out since there was no room for what they say, which counts as lost events
 * of their processes; and the bytes there are room for. */
uint64_t track_refused(const struct track *t, uint64_t *out_bytes);

/* What the pools of the processes that live hold: calls fn for each one that was ever used. */
struct track_usage {
	uint32_t pid, device, pool;
	uint64_t used, peak, peak_total;
};
void track_usages(const struct track *t, void (*fn)(void *arg, const struct track_usage *u),
		  void *arg);

/*
 * For device_memory.c, which samples the memory of devices. Numbers that only grow: how often
 * memory was refused, how often a process used a device for the first time.
 */
struct track_signs {
	uint64_t ooms;
	uint64_t users;
	uint64_t processes; /* that have appeared or ended */
};
struct track_signs track_signs(const struct track *t);

/* What a process has of a device: the number of the driver, and the driver's blocks on it. */
struct track_device {
	uint32_t proc, pid;
	uint32_t device;
	uint64_t used_bytes;
	bool cuda; /* of NVIDIA: the number is as its own libraries count */
	bool part; /* of a device (MIG) */
	const uint8_t *uuid; /* 16 bytes, which say which one it is; NULL: the number does */
};
void track_devices(const struct track *t, void (*fn)(void *arg, const struct track_device *d),
		   void *arg);
bool track_has_pid(const struct track *t, uint32_t pid);
/* For job_memory.c: every process that has not ended. */
struct track_process {
	uint32_t proc, pid;
	uint32_t shown_pid; /* in our /proc, 0: not there */
	bool host; /* its host memory is recorded */
};
void track_processes(const struct track *t, void (*fn)(void *arg, const struct track_process *p),
		     void *arg);
/* Was memory refused on a device of which no sample has come yet? */
bool track_waits_for_device(const struct track *t);

const struct mem_config *track_config(const struct track *t);
int64_t track_wall_minus_mono(const struct track *t);

#endif
