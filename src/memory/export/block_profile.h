/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What was alive at a moment, by call stack and weighted by bytes, as profiles that other viewers
 * open (formats/profile). An analysis that answers with a file.
 */
#ifndef SONDE_MEMORY_EXPORT_BLOCK_PROFILE_H
#define SONDE_MEMORY_EXPORT_BLOCK_PROFILE_H

#include "formats/profile/profile.h"
#include "memory/analysis/owners/owners.h"

struct block_profile_options {
	struct owners_at at;
	enum profile_format format;
	const char *title;
};

/* What was written. */
struct export_sums {
	uint64_t bytes, blocks; /* alive at the moment */
	uint64_t events; /* of a trace */
	unsigned devices;
};

struct analysis *block_profile_new(const struct block_profile_options *o);
/* -ENODATA: no row reached the moment. */
int block_profile_write(struct analysis *a, const char *path, struct export_sums *out,
			struct err *err);

#endif
