/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The IPC fabric between the daemon and the processes of a node: single datagrams over AF_UNIX,
 * as PyTorch's libkineto and the NPU frameworks send them. Layouts and their checks; no I/O.
 *
 * A datagram is a header of 40 bytes and its payload, in host byte order:
 *
 *	0          8                                40
 *	+----------+--------------------------------+------------------------ - -
 *	| size     | type, ended by a NUL           | payload of `size` bytes
 *	+----------+--------------------------------+------------------------ - -
 *
 * One exchange is two datagrams; nothing is acknowledged, nothing is sent again by itself:
 *
 *	process                                         daemon
 *	   | "ctxt" {gpu, pid, job}          ----------->  registers it
 *	   |                                 <-----------  "ctxt" {how many of that job}
 *	   | "req"  {mask, pid, ancestors…}  ----------->  every 2 to 5 s
 *	   |                                 <-----------  "req"  {config text, or nothing}
 *	   | "npuTraceStatus" {state, steps} ----------->
 *	   |                                 <-----------  "sondePoke": ask now (our guests only)
 *
 * The answer goes to the address that the question came from; a process that does not answer within
 * 50 to 100 ms is taken for absent by libkineto, and so are we. Receivers trust nothing:
 * fabric_parse() is the only way from bytes to a message, and who sent it is what the kernel says
 * (SCM_CREDENTIALS), never a pid inside the payload.
 */
#ifndef SONDE_WIRE_FABRIC_H
#define SONDE_WIRE_FABRIC_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define FABRIC_TYPE_BYTES 32
#define FABRIC_MAX_BYTES 65536 /* a whole datagram; what is longer is dropped */
#define FABRIC_MAX_PIDS 64 /* of one request; libkineto sends up to 11 */

/* Names of endpoints. An abstract name has a NUL in front and one behind, and both count. */
#define FABRIC_ABSTRACT_NAME "dynolog"
#define FABRIC_ABSTRACT_DATA_NAME "dynolog_data"
#define FABRIC_HOME_FILE "dynolog.sock"
#define FABRIC_HOME_DATA_FILE "dynolog_data.sock"
#define FABRIC_DIR_FILE "dynolog"
#define FABRIC_CLIENT_NAME "dynoconfigclient" /* + a UUID */
/* + a UUID: a guest library of ours, so that the daemon can tell it from the framework in the same
 * process */
#define FABRIC_GUEST_NAME "sondeclient"

/*
 * Types of our own, beside those that everybody knows:
 *	sondeCan   guest to daemon: the config keys that it supports, separated by spaces
 *	sondeSaid  guest to daemon, for each request: its REQUEST_TRACE_ID, and, behind a space, why
 *	           it was not carried out; nothing behind it: it was; '+' and words: it was, and
 *	           this is the outcome
 *	sondePoke  daemon to guest, no payload: there is something to ask for
 *	sondeTop   recorder to daemon: what took the time of an interval, as JSON (docs/top.md)
 *	sondeFiles recorder to daemon, for each trace: the pid of its process, its REQUEST_TRACE_ID
 *	           and, each behind a space, '+' and where it is written, or why it is not
 */
#define FABRIC_CAN "sondeCan"
#define FABRIC_RECORDED "SONDE_RECORD" /* a word of it: the monitor is that of `sonde record` */
#define FABRIC_SAID "sondeSaid"
#define FABRIC_POKE "sondePoke"
#define FABRIC_TOP "sondeTop"
#define FABRIC_FILES "sondeFiles"

struct fabric_header {
	uint64_t size; /* of the payload */
	char type[FABRIC_TYPE_BYTES]; /* ended by a NUL */
};
static_assert(sizeof(struct fabric_header) == 40, "wire layout");

/* "ctxt": a process registers. Answered by "ctxt" with an int32, how many there are. */
struct fabric_context {
	int32_t gpu;
	int32_t pid;
	int64_t job_id;
};
static_assert(sizeof(struct fabric_context) == 16, "wire layout");

/* "req": a process asks for a config. Answered by "req" with its text, or nothing. */
enum fabric_mask { FABRIC_EVENTS = 1, FABRIC_ACTIVITIES = 2 };

struct fabric_request {
	int32_t mask; /* enum fabric_mask: what the process can take now */
	int32_t npids; /* the leaf, then its ancestors */
	int64_t job_id;
	int32_t pids[];
};
static_assert(sizeof(struct fabric_request) == 16, "wire layout");

/* "npuTraceStatus", "npuMonitorStatus": what the profiler or the monitor of a process does. */
enum fabric_state {
	FABRIC_UNINITIALIZED = -1,
	FABRIC_IDLE = 0,
	FABRIC_RUNNING = 1,
	FABRIC_READY = 2,
};

struct fabric_status {
	int32_t state; /* enum fabric_state, or anything */
	int32_t current_step, start_step, stop_step;
	int32_t pid;
	int32_t pad; /* not defined by senders */
	int64_t job_id;
};
static_assert(sizeof(struct fabric_status) == 32, "wire layout");

/* The same before November 2025. */
struct fabric_status_short {
	int32_t state;
	int32_t pid;
	int64_t job_id;
};
static_assert(sizeof(struct fabric_status_short) == 16, "wire layout");

enum fabric_kind {
	FABRIC_OTHER, /* a well-formed datagram of a type that we do not know */
	FABRIC_CONTEXT,
	FABRIC_REQUEST,
	FABRIC_TRACE_STATUS,
	FABRIC_MONITOR_STATUS,
	FABRIC_DATA, /* JSON text, not parsed here */
};

/* A checked message. Pointers lead into the datagram, which must be aligned to 8 bytes. */
struct fabric_message {
	enum fabric_kind kind;
	const char *type; /* as sent, ended by a NUL */
	const char *payload;
	size_t payload_bytes;
	union {
		struct fabric_context context;
		struct {
			const struct fabric_request *request;
			unsigned npids; /* 1 to FABRIC_MAX_PIDS; a longer list is cut */
		};
		struct fabric_status status; /* of the short form: steps -1 */
	};
};

/* Why a datagram is none. Words for people in fabric_fault_text(). */
enum fabric_fault {
	FABRIC_OK,
	FABRIC_TOO_SHORT, /* less than a header */
	FABRIC_WRONG_SIZE, /* claims another size than it has */
	FABRIC_BAD_TYPE, /* no NUL in the type */
	FABRIC_BAD_PAYLOAD, /* too short for its type, no pids, … */
	FABRIC_FAULTS
};

enum fabric_fault fabric_parse(const void *datagram, size_t len, struct fabric_message *out);
const char *fabric_fault_text(enum fabric_fault fault);

/* Fills a header; type is at most 31 characters. */
void fabric_header_init(struct fabric_header *h, const char *type, size_t payload_bytes);

/* An address and its exact length. Negative errno: the name is too long. */
int fabric_abstract_address(const char *name, struct sockaddr_un *out, socklen_t *out_len);
int fabric_path_address(const char *path, struct sockaddr_un *out, socklen_t *out_len);

#endif
