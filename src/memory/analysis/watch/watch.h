/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who wrote where it should not: memory corruption between operators.
 *
 * Watched blocks are sampled (a checksum of their bytes) when operators begin and end. A block that
 * differs between two samples was written in between. If an operator that ran then announces such
 * a write, all is well and the change is counted; if none does, that is a finding, and the operator
 * that ran, with what it writes beside the block, is the suspect.
 *
 * Rows say which operators run and which tensors they use; samples come beside them, both in order
 * of time. Without ACCESS rows nothing is known about tensors: then every change is reported as a
 * change only, and the answer says what was missing.
 */
#ifndef SONDE_MEMORY_ANALYSIS_WATCH_WATCH_H
#define SONDE_MEMORY_ANALYSIS_WATCH_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/record.h"

struct analysis;

/* One sample of a watched block. Texts are borrowed for the call. */
struct watch_sample {
	uint64_t time_ns; /* since the epoch */
	uint32_t tid;
	uint32_t device; /* as in struct row */
	uint32_t watch; /* number of the watched block: a new one each time a watch begins */
	uint32_t seq; /* of the samples of that block, from 1 */
	uint64_t addr;
	uint64_t size_bytes;
	uint64_t checksum;
	uint64_t content; /* its bytes are in a file of this number; 0: they are not */
	uint32_t error; /* not 0: it could not be read; a code of the device's library */
	int content_errno; /* not 0: why its bytes are not in a file, though they were asked for */
	uint32_t output; /* which output of the operator `watched`; WATCH_NO_OUTPUT */
	uint32_t watched_call; /* of that operator */
	uint32_t call; /* of the operator `op`, counted per thread from 1; 0: not known */
	bool after; /* at the end of the operator, else at its beginning */
	bool last; /* the watch was begun for so many samples, and ends with this one */
	const char *op;
	size_t op_len;
	const char *watched; /* operator, or the name that the program gave */
	size_t watched_len;
};

/* Takes rows and answers as every analysis does. */
struct analysis *watch_new(void);

/* Samples, among the rows. pid is that of the process. */
void watch_add(struct analysis *a, uint32_t pid, const struct watch_sample *s);

/*
 * The text of a watch_dump_data_check_sum_<time>.csv instead of rows and samples: names and
 * checksums alone. Lines that are not understood are passed over and counted; a file without its
 * header is -EINVAL.
 */
int watch_read_csv(struct analysis *a, const char *text, size_t len, struct err *err);

/* The first line of that file. */
#define WATCH_CSV_HEADER "Tensor info,Check data sum"

#endif
