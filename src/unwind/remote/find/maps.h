/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The lines of /proc/PID/maps, one by one. The text is borrowed. */
#ifndef SONDE_UNWIND_REMOTE_FIND_MAPS_H
#define SONDE_UNWIND_REMOTE_FIND_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_line {
	uint64_t start, end;
	uint64_t offset; /* in the file */
	uint64_t inode; /* 0: no file */
	uint64_t device; /* major << 32 | minor */
	bool readable, writable, executable;
	bool deleted; /* the file has no name any more */
	const char *path; /* not ended by NUL; length 0 if there is none */
	size_t path_len; /* without " (deleted)" */
};

/* Takes the next line that makes sense from [*at, end); false when there is none. */
bool maps_next(const char **at, const char *end, struct map_line *out);

#endif
