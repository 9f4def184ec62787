/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities as files have them: texts resolved, times of the wall clock, marks put together to
 * ranges; the words and fields that all formats share. One ops table per format; a file is readable
 * at every moment, even if its writer is killed. A writer belongs to one thread.
 */
#ifndef SONDE_ACTIVITY_FILES_ACTIVITY_H
#define SONDE_ACTIVITY_FILES_ACTIVITY_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "wire/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whose work an activity is: --attribute. Texts as those of an activity; "": none. */
struct activity_owner {
	const char *model; /* its class */
	const char *
		module; /* "transformer.h.3.mlp.c_fc"; "optimizer"; of a model as a whole its class */
	const char *module_class;
	const char *line; /* "train_step (/srv/job/train.py:18)" */
	bool backward; /* its gradients are computed */
};

struct activity {
	uint64_t start_ns, end_ns; /* wall clock; an instantaneous mark: both the same */
	uint64_t correlation; /* of a marker its id */
	uint64_t amount; /* see struct rec_activity */
	uint64_t number; /* `more` where it is none of the texts: address, value */
	/* Never NULL, valid UTF-8, live as long as the process is followed: equal texts of a
	 * process have equal pointers. "" where there is none; of a marker without a domain
	 * "default". */
	const char *name, *detail, *more;
	uint32_t pid, tid; /* of what happened on the host, else 0 */
	uint32_t device, stream; /* of what happened on a device; ACTIVITY_NOWHERE */
	uint8_t kind; /* enum activity_kind */
	uint8_t place; /* enum activity_place */
	uint8_t flag, async;
	uint16_t data_type;
	bool attributed; /* is it known who may own it? */
	const struct activity_owner *owner; /* NULL: nobody, as far as is known */
};

/* Of one that has no texts and no device. */
#define ACTIVITY_EMPTY                                                                             \
	.name = "", .detail = "", .more = "", .device = ACTIVITY_NOWHERE, .stream = ACTIVITY_NOWHERE

/* Whose activities these are. */
struct activity_origin {
	uint32_t pid;
	int32_t rank; /* -1: not known */
	uint64_t start_ns; /* wall clock, of the window: what ended before is not in it */
	/* Another process of this rank was there before it, and still is: workers have the
	 * variables of their rank. */
	bool is_second;
};

struct activity_options {
	uint32_t lines_per_file; /* of Jsonl: 0 the default */
	int32_t files; /* that are kept; 0 or -1: all */
};

/* What is known only at the end. */
struct activity_closing {
	uint64_t end_ns;
	const char *groups; /* parallel_group_info as JSON text; NULL: not known */
	uint64_t lost; /* activities that are missing */
};

struct activity_writer;

struct activity_writer_ops {
	const char *name; /* "DB", "Jsonl" */
	/* Makes dir if need be; the first file appears with the first activity. */
	struct activity_writer *(*open)(const char *dir, const struct activity_origin *who,
					const struct activity_options *options);
	/* -ENOTSUP: the format has no place for this kind. */
	int (*put)(struct activity_writer *w, const struct activity *a, struct err *err);
	/* All that was put is on disk, and readable with what it refers to. */
	int (*flush)(struct activity_writer *w, struct err *err);
	/* Frees w in any case. */
	int (*close)(struct activity_writer *w, const struct activity_closing *c, struct err *err);
	/* Path of the newest file; "" before the first. */
	const char *(*path)(const struct activity_writer *w);
	/* What follows is of this process. NULL: the file is of one, or does not distinguish them.
	 */
	void (*whose)(struct activity_writer *w, const struct activity_origin *who);
};

extern const struct activity_writer_ops activity_db; /* activity/files/db.c */
extern const struct activity_writer_ops activity_jsonl; /* activity/files/jsonl.c */
/* One trace.json for a window: activity/files/chrome.c. dir is that of the trace, the file's name
 * fixed.
 */
extern const struct activity_writer_ops activity_chrome;

/*
 * The same ops for one file of any name, for people who convert what was recorded: `dir` is the
 * path of the file, which is replaced if it exists.
 */
extern const struct activity_writer_ops activity_chrome_file;
/* One table, a row per activity: docs/activity.md. */
extern const struct activity_writer_ops activity_csv_file;
/*
 * A workbook with a sheet per kind, and further sheets where one is full; the file exists when it
 * is closed, and not before. ".xlsx" is added to a path without it. Needs little memory, and the
 * room of the file once more in the directory for temporary files. -ENOTSUP by put and close if the
 * program was built without libxlsxwriter.
 */
extern const struct activity_writer_ops activity_xlsx_file;

/* A time in µs as Python prints the float. Room for 32 bytes. */
void activity_us_text(uint64_t ns, char *out);

/* --- more in a Chrome trace than activities --- */

struct chrome_trace;

/* Members of the trace's object, "\"a\":1,\"b\":2": before the first activity. */
void activity_chrome_about(struct activity_writer *w, const char *members);

/* The trace, made if it does not exist yet: events may be added to it. Their times count from
 * *out_base_ns. NULL: it cannot be made. */
struct chrome_trace *activity_chrome_trace(struct activity_writer *w, int64_t *out_base_ns,
					   struct err *err);

/* What a thread is called, instead of its number alone: before its first activity. */
void activity_chrome_thread(struct activity_writer *w, int64_t pid, int64_t tid, const char *name);

/* --- fields: what files say about an activity --- */

/*
 * One row per field, in the alphabetical order of the keys of Jsonl: its key, its title in a
 * workbook, how it is written, and the member of struct activity.
 */
#define ACTIVITY_FIELDS(X)                                                                         \
	X(ADDRESS, "address", "Address", NUMBER, number)                                           \
	X(ALG_TYPE, "algType", "AlgType", TEXT, more)                                              \
	X(ASYNC, "async", "Async", BOOL, async)                                                    \
	X(BYTES, "bytes", "Bytes", NUMBER, amount)                                                 \
	X(BYTES_PER_SECOND, "bytesPerSecond", "Bytes/s", NUMBER, amount)                           \
	X(COMM_NAME, "commName", "CommName", TEXT, detail)                                         \
	X(COPY_KIND, "copyKind", "Copy Kind", WORD, flag)                                          \
	X(CORRELATION, "correlationId", "Correlation ID", NUMBER, correlation)                     \
	X(COUNT, "count", "Count", NUMBER, amount)                                                 \
	X(DATA_TYPE, "dataType", "DataType", WORD, data_type)                                      \
	X(DEVICE, "deviceId", "Device ID", NUMBER_32, device)                                      \
	X(DOMAIN, "domain", "Domain", TEXT, detail)                                                \
	X(END, "endNs", "End(us)", NUMBER, end_ns)                                                 \
	X(ID, "id", "ID", NUMBER, correlation)                                                     \
	X(KIND, "kind", "Kind", WORD, kind)                                                        \
	X(LINE, "line", "Line", OWNER, owner)                                                      \
	X(MODEL, "model", "Model", OWNER, owner)                                                   \
	X(MODULE, "module", "Module", OWNER, owner)                                                \
	X(MODULE_CLASS, "moduleClass", "Module Class", OWNER, owner)                               \
	X(NAME, "name", "Name", TEXT, name)                                                        \
	X(OPERATION, "operation", "Operation", WORD, flag)                                         \
	X(PASS, "pass", "Pass", OWNER, owner)                                                      \
	X(PID, "processId", "Pid", NUMBER_32, pid)                                                 \
	X(SOURCE, "sourceKind", "SourceKind", WORD, place)                                         \
	X(START, "startNs", "Start(us)", NUMBER, start_ns)                                         \
	X(STREAM, "streamId", "Stream ID", NUMBER_32, stream)                                      \
	X(TID, "threadId", "Tid", NUMBER_32, tid)                                                  \
	X(TYPE, "type", "Type", TEXT, detail)                                                      \
	X(VALUE, "value", "Value", NUMBER, number)

#define ACTIVITY_FIELD_ID(id, key, title, type, member) FIELD_##id,
enum activity_field_id { ACTIVITY_FIELDS(ACTIVITY_FIELD_ID) FIELDS };
#define FIELD_BIT(id) (1u << FIELD_##id)

/* WORD: one of a few words, see activity_word(). */
/* OWNER: a text about whose work it is, see activity_owner_text(). */
enum field_type { FIELD_NUMBER, FIELD_NUMBER_32, FIELD_TEXT, FIELD_WORD, FIELD_BOOL, FIELD_OWNER };

struct activity_field {
	const char *key, *title;
	enum field_type type;
	size_t offset; /* in struct activity */
};

extern const struct activity_field activity_fields[FIELDS];

/* The FIELD_BIT()s of a kind, of a marker on the host or on a device; 0: there is no such kind. */
uint32_t activity_fields_of(uint8_t kind, uint8_t place);
/* Those that say whose work it is; of one that is nobody's there are none. */
uint32_t activity_owner_fields(const struct activity *a);
const char *activity_owner_text(const struct activity *a, enum activity_field_id id);

/* Of a NUMBER, NUMBER_32 or a byte; of a TEXT. */
static inline uint64_t activity_number(const struct activity *a, enum activity_field_id id)
{
	const void *at = (const char *)a + activity_fields[id].offset;

	switch (activity_fields[id].type) {
	case FIELD_NUMBER:
		return *(const uint64_t *)at;
	case FIELD_NUMBER_32:
		return *(const uint32_t *)at;
	default:
		return *(const uint8_t *)at;
	}
}

static inline const char *activity_text(const struct activity *a, enum activity_field_id id)
{
	return *(const char *const *)(const void *)((const char *)a + activity_fields[id].offset);
}

/* Of a WORD: "Kernel", "Host" or "Device", "FP32", "HtoD", "allocate" or "release". */
const char *activity_word(const struct activity *a, enum activity_field_id id);

/* --- words --- */

/* As MSPTI names them: FP32 …; "INVALID_TYPE". */
const char *activity_data_type(uint16_t type);
/* Every data type in the order of its number; false behind the last one. */
bool activity_data_type_at(unsigned i, uint16_t *out_type, const char **out_name);
bool activity_data_type_find(const char *name, uint16_t *out);

/* Kinds of copies, "HtoD" …; "UNKNOWN". */
const char *activity_copy_kind(uint8_t flag);
bool activity_copy_kind_find(const char *name, uint8_t *out);

/* The name, or what stands for it where a kind has none: "memcpy HtoD", "memset", "release". The
 * same pointer for the same text. */
const char *activity_label(const struct activity *a);

/* As PyTorch's profiler calls such events: "kernel", "gpu_memcpy" …; readers of its traces go by that. */
const char *activity_category(const struct activity *a);

bool activity_is_api(uint8_t kind);
/* Of a kind and at a place that has a device. */
bool activity_has_device(const struct activity *a);
bool activity_is_instant(const struct activity *a); /* a mark without an extent */
uint64_t activity_ns(const struct activity *a); /* 0 if it ends before it begins */

/* The tool's hash of texts: two 32-bit polynomials of the (signed) characters, factors 29 and 131.
 */
uint64_t activity_hash(const char *s);

/* --- names of files --- */

#define ACTIVITY_FILE_PREFIX "msmonitor_"
#define ACTIVITY_FILE_MODE 0640 /* others have no business with what a job does */

/*
 * A new file "<dir>/msmonitor_<pid>_<YYYYmmddHHMMSSmmm, local time>_<rank>.<suffix>", 0640, in a
 * directory that is made if need be. Its time is now, but later than *last_ms by 1 ms at least.
 * Returns a descriptor, or a negative errno; out_path is the caller's.
 */
int activity_file_new(const char *dir, const struct activity_origin *who, const char *suffix,
		      uint64_t *last_ms, char **out_path, struct err *err);

#endif
