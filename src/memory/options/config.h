/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a memory recording was asked to do: the options of `msmemscope` as values, and the same as
 * `config.json` in the recording's directory, where the recorder, the Python module and `mem show`
 * read it back. The numbers are those that the file has always had.
 *
 * Two event masks: `dump_events` is what is written out, `events` what must be collected for that
 * and for the analyses. mem_config_link() derives the second; call it after every change.
 *
 * A plain value: copy it freely, nothing to release. Depends on base/ and memory/dump/row.h only.
 */
#ifndef SONDE_MEMORY_OPTIONS_CONFIG_H
#define SONDE_MEMORY_OPTIONS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "memory/dump/row.h"
#include "wire/record.h"
#include "wire/recording.h"

#define MEM_COMPAT_ENV "SONDE_COMPAT"

#define MEM_MAX_STEPS 5
#define MEM_MAX_DEVICES 32
#define MEM_MAX_DEPTH 1000
#define MEM_DEFAULT_DEPTH 50
#define MEM_MAX_OOM 1000
#define MEM_MAX_BUFFER_MB 65536
#define MEM_MAX_WAIT_MS 60000
#define MEM_MIN_KIB 1024u /* that a recording may be limited to */
#define MEM_PATH_BYTES 4097 /* longest path and its NUL */
#define MEM_NAME_BYTES 255 /* longest operator name of --watch and its NUL */
#define MEM_COMMAND_BYTES 256 /* longer ones end in "…" */
#define MEM_ALL_OUTPUTS UINT32_MAX

enum mem_event {
	MEM_ALLOC = 1 << 0,
	MEM_FREE = 1 << 1,
	MEM_LAUNCH = 1 << 2,
	MEM_ACCESS = 1 << 3,
	MEM_EVENTS_ALL = 15,
};

enum mem_level { MEM_LEVEL_OP = 1 << 0, MEM_LEVEL_KERNEL = 1 << 1, MEM_LEVEL_ALL = 3 };

enum mem_analysis {
	MEM_LEAKS = 1 << 0,
	MEM_DECOMPOSE = 1 << 1,
	MEM_INEFFICIENT = 1 << 2,
	MEM_OOM = 1 << 3,
	MEM_ANALYSIS_ALL = 15,
};

/* Where the report of the analyses goes at the end of the job. */
enum mem_report { MEM_REPORT_STDERR = 0, MEM_REPORT_STDOUT = 1, MEM_REPORT_OFF = 2 };
/* MEM_NONE: the recording alone, which every question can be put to. */
enum mem_format { MEM_CSV = 0, MEM_DB = 1, MEM_NONE = 2 };
const char *mem_format_name(enum mem_format format); /* csv, db, none */
enum mem_mode { MEM_IMMEDIATE = 0, MEM_DEFERRED = 1 };

/* The program that was launched; where nothing can be preloaded, nothing is recorded. */
enum mem_program { MEM_PROGRAM_ANY = 0, MEM_PROGRAM_STATIC = 1, MEM_PROGRAM_PRIVILEGED = 2 };

/* Who started the job; NONE: nobody, it began by itself (or a version that did not say it). */
enum mem_tool {
	MEM_TOOL_NONE,
	MEM_TOOL_MSMEMSCOPE,
	MEM_TOOL_MEM_RECORD,
	MEM_TOOL_RECORD,
	MEM_TOOL_TRACE = RECORDING_TOOL_TRACE, /* `dyno nputrace` of a job that ran already */
};

/* What the launcher saw of the machine, or of the container: why nothing was recorded. */
enum mem_driver { MEM_DRIVER_UNKNOWN = 0, MEM_DRIVER_FOUND = 1, MEM_DRIVER_MISSING = 2 };
struct mem_machine {
	enum mem_driver cuda; /* libcuda.so.1, where the loader looks; UNKNOWN: so is all below */
	uint32_t gpus, npus; /* NVIDIA's and Ascend's, by the files in /dev */
};

struct mem_watch {
	bool on;
	bool host; /* memory of the host, too: the program has named some */
	bool full_content;
	uint32_t output_id; /* MEM_ALL_OUTPUTS: every one */
	char start[MEM_NAME_BYTES]; /* may be empty */
	char end[MEM_NAME_BYTES];
};

struct mem_config {
	bool effective; /* written by a launcher, not made of defaults */
	uint32_t nsteps; /* 0: every step */
	uint32_t steps[MEM_MAX_STEPS];
	bool npu_all;
	uint32_t npu_slots; /* bit n: npu:n; all ones when npu_all */
	bool cpu;
	bool python_objects; /* with cpu: blocks of CPython's allocator, too */
	uint32_t level; /* enum mem_level */
	uint32_t dump_events; /* enum mem_event: what is written */
	uint32_t events; /* what is collected */
	bool events_asked; /* dump_events was asked for, and is no default; not in config.json */
	bool traceback; /* Python trace events asked for */
	bool c_stack, py_stack;
	uint32_t c_depth, py_depth; /* count only if c_stack, py_stack; 0: no frames */
	enum mem_mode mode;
	uint32_t analysis; /* enum mem_analysis */
	uint32_t oom_top;
	enum mem_format format;
	enum mem_report report;
	bool report_asked; /* --report was given: written even if nothing was found */
	bool closing; /* for the launcher: a last line is written where the report goes */
	struct mem_watch watch;
	char output_dir[MEM_PATH_BYTES]; /* absolute */
	uint32_t log_level; /* enum log_level */
	bool compare;
	char inputs[2][MEM_PATH_BYTES]; /* absolute; empty without compare */
	enum row_compat compat;
	enum mem_program program;
	enum mem_tool tool;
	/* With whose clocks ours is compared, and with which certificates, as `sonde ctl` takes them;
	 * empty: nobody's, none. */
	char clock_hosts[MEM_NAME_BYTES], clock_certs[MEM_PATH_BYTES];
	char command[MEM_COMMAND_BYTES]; /* of the job, as in a shell; empty: not known */
	struct mem_machine machine;
	uint32_t buffer_mb; /* ring memory of one process */
	uint32_t max_kib; /* of the recording; 0: any size */
	uint32_t wait_ms; /* how long a full ring may delay the job */
};

/* The defaults; output_dir is below the current directory. */
int mem_config_init(struct mem_config *c, struct err *err);

/* python_objects brings cpu. Widens both masks: alloc and free go together and access needs them; then `events` alone by what
 * the analyses need. */
void mem_config_link(struct mem_config *c);

/* The job's command, for messages that say how to record it otherwise. What cannot be shown, or is
 * too long, is left out. */
void mem_config_keep_command(struct mem_config *c, char *const argv[]);

struct control_page;
/* Copies what guests need to know to the control page (wire/control_page.h). */
void mem_config_publish(const struct mem_config *c, struct control_page *page);
/*
 * For a launcher: says on the page which of its descriptors gets the report at the end of the job.
 * The job itself writes it, as a copy of its stderr in the recorder would keep the reader of a
 * pipe waiting for as long as the recorder is held up. A terminal has no reader that waits: there
 * the recorder writes it, also for a job that was killed.
 */
void mem_config_choose_report(const struct mem_config *c, struct control_page *page);

/* The bits of enum session_want for the guests. */
uint32_t mem_config_want(const struct mem_config *c);

/* The part that a process may change for itself while it runs; both ways. Values out of range are
 * cut; mem_config_link() is called. */
void mem_config_get_settings(const struct mem_config *c, struct rec_settings *out);
void mem_config_set_settings(struct mem_config *c, const struct rec_settings *s);

/* config.json: sorted keys, four spaces, replaced in one step, mode 0640. */
int mem_config_write(const struct mem_config *c, const char *path, struct err *err);

/* Reads it back. Missing keys keep their default, unknown ones are ignored, depths are cut to the
 * limit; a wrong type or a number out of range is -EINVAL. out_c is untouched on failure. */
int mem_config_read(const char *path, struct mem_config *out_c, struct err *err);

/* The same from text in memory. */
int mem_config_parse(const char *text, size_t len, struct mem_config *out_c, struct err *err);

/* "26.0" or "current"; negative if it is neither. */
int mem_compat_find(const char *text);

/* Makes a path absolute and checks it against the limits on length, depth and names. */
int mem_path(const char *text, char out[MEM_PATH_BYTES], struct err *err);

#endif
