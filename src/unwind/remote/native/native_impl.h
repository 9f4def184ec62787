/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the parts of unwind/remote/native/native.h share.
 *
 * Who owns what: a native_process owns its modules, copies, places and merged stacks. A module owns
 * its symbol table (symbol_file, whose names and debug information are libdwfl's, so it goes after
 * the module was dropped there and is not looked at any more) and its image, if it was read from
 * memory. The Elf files are shared between processes and counted (native_files_use()).
 */
#ifndef SONDE_UNWIND_REMOTE_NATIVE_NATIVE_IMPL_H
#define SONDE_UNWIND_REMOTE_NATIVE_NATIVE_IMPL_H

#include <elfutils/libdwfl.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "unwind/remote/find/process.h"
#include "unwind/remote/native/native.h"
#include "unwind/remote/native/stop.h"

#define NATIVE_MAX_DEPTH 16384

/*
 * A thread as it stood: its registers and its stack from a little below SP on.
 *
 *	map_end	+---------------------+  end of the stack's mapping
 *		| outermost frames    |
 *		| …                   |
 *	sp	| innermost frame     |
 *		| red zone, 128 bytes |  in use below SP on x86-64
 *	addr	+---------------------+  bytes[0]
 *
 * A copy belongs to one tid until it is unwound (`taken`); the room is used again.
 */
struct native_copy {
	pid_t tid;
	bool taken; /* unwound already: the room may be used again */
	struct stopped_regs regs;
	uint64_t addr; /* of the first byte */
	uint64_t map_end; /* where the stack's mapping ends; 0 if unknown */
	size_t len;
	uint8_t *bytes; /* room for as much as is ever copied */
};

/*
 * A program or library that the process has mapped.
 *
 * `kept` is cleared before the maps are read again and set by each line: what is still clear
 * afterwards was unmapped.
 */
struct native_module {
	uint64_t start, end;
	const char *path; /* interned, as the process names it */
	const char *name; /* interned: what is shown of the path */
	struct native_process *process;
	char *key; /* with device and inode: what dwfl knows it by */
	uint64_t map_end; /* of the first mapping: what /proc/PID/map_files calls it */
	uint64_t device, inode;
	bool deleted;
	bool kept; /* in the maps that were read last */
	void *image; /* read from memory where there is no file */
	Dwfl_Module *dwfl;
	/* unwind/remote/native/cold.c: if it holds the interpreter, the part of its loop that has
	 * no name.
	 */
	bool cold_tried;
	uint64_t cold_start, cold_end;
	struct symbol_file *symbols; /* NULL: not asked for yet */
	uint64_t bias; /* of its addresses, set with the symbols */
};

struct native_stack_map {
	uint64_t start, end;
};

/*
 * What is known about one instruction.
 *
 * Kept for every instruction that was ever asked for, until the maps change or there are MAX_PLACES
 * of them: stacks of one program meet the same few thousand.
 */
struct native_place {
	const char *name, *file;
	int32_t line;
	const struct native_module *module;
};

/*
 * A thread that was asked for.
 *
 * Between the two steps of a round: which threads were asked for, and whether they could be copied.
 */
struct native_candidate {
	pid_t tid;
	uint64_t tstate;
	bool copied;
};

struct native_process {
	pid_t pid;
	struct remote remote;
	struct native_counts counts;
	Dwfl *dwfl;
	/* unwind/remote/native/modules.c */
	struct buf maps; /* the text that was read last */
	uint64_t maps_ns; /* when */
	struct native_module **module; /* in order of address */
	size_t nmodule, cap_module;
	struct native_stack_map *stack; /* writable mappings, in order */
	size_t nstack, cap_stack;
	/* unwind/remote/native/symbol.c */
	struct hmap place_at; /* instruction -> index */
	struct native_place *place;
	size_t nplace, cap_place;
	/* copies of threads */
	struct native_copy *copy;
	size_t ncopy, cap_copy;
	const struct native_copy *unwinding;
	unsigned far_reads; /* reads outside the copy that are still allowed */
	/* unwind/remote/native/process.c: what was asked for, and the merged stacks by thread */
	struct native_candidate *candidates;
	size_t ncandidates, cap_candidates;
	struct merged *merged;
	size_t nmerged, cap_merged;
};

/* Reads /proc/PID/maps again if it may have changed; `now` at once. True if it has. */
bool native_modules_refresh(struct native_process *p, bool now);
struct native_module *native_module_at(const struct native_process *p, uint64_t addr);
/* The end of the writable mapping that addr lies in, 0 if there is none known. */
uint64_t native_stack_end(const struct native_process *p, uint64_t addr);
void native_modules_release(struct native_process *p);
extern const Dwfl_Callbacks native_dwfl_callbacks;

int native_dwfl_attach(struct native_process *p, Elf *machine);

/* The shared ELF files live while there are users. */
void native_files_use(void);
void native_files_done(void);
/* Opens what the process has mapped as this module; NULL if that is unavailable. */
Elf *native_module_open(struct native_process *p, struct native_module *m);

/* The place of an instruction; valid until the next call. */
const struct native_place *native_place_of(struct native_process *p, uint64_t addr);
void native_places_forget(struct native_process *p);

/* Bytes of the process. */
struct native_bytes {
	const uint8_t *data;
	size_t n;
	uint64_t addr;
};

/* The function of an exception table (.eh_frame_hdr) into which this code jumps more often than
 * into any other; a negative errno if there is none. */
int native_cold_part(const struct native_bytes *table, const struct native_bytes *code,
		     uint64_t *out_start, uint64_t *out_end);
/* The same for the interpreter's loop, [start, end): fills in cold_start and cold_end. */
void native_find_cold_loop(struct native_process *p, struct native_module *m, uint64_t start,
			   uint64_t end);

#endif
