/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The parts of a recording that is followed. Nobody else includes this. */
#ifndef SONDE_MEMORY_LIVE_LIVE_IMPL_H
#define SONDE_MEMORY_LIVE_LIVE_IMPL_H

#include "base/containers/hmap.h"
#include "memory/live/live.h"
#include "memory/track/track.h"
#include "recorder/recording.h"

/* Blocks that have all of this in common. */
struct live_site {
	uint32_t pool, stack, owner, layer; /* numbers of struct blocks */
	uint32_t next; /* of the same hash; index + 1 */
	struct live_count n;
};

struct live {
	char *path, *dir; /* of the recording */
	struct recording_reader *reader;
	struct track *track;
	struct blocks *blocks;
	struct processes processes;
	struct loss loss;
	bool ended; /* it says so itself */
	enum live_state state;
	uint64_t newest_ns;

	uint32_t *pids; /* by the numbers of the recording */
	size_t cap_pids;
	struct stream_losses *losses; /* by the same */
	size_t cap_losses;

	struct live_site *sites;
	size_t nsites, cap_sites;
	struct hmap by_hash;
	const struct block_pool **pools; /* by number */
	size_t cap_pools;

	struct live_course **courses;
	size_t ncourses, cap_courses;
	uint64_t first_ns, bin_ns;
	unsigned last_bin; /* of any course */

	char **names; /* of call stacks; NULL: not known yet */
	size_t cap_names, stacks_named;
};

/* sites.c */
void live_site_row(struct live *l, const struct block_change *c);
void live_sites_release(struct live *l);
/* courses.c */
void live_course_row(struct live *l, const struct block_change *c, uint64_t time_ns);
void live_courses_release(struct live *l);

#endif
