/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Calls of other objects come to us instead; see got.c. */
#ifndef SONDE_GUEST_INTERPOSE_GOT_H
#define SONDE_GUEST_INTERPOSE_GOT_H

#include <stdbool.h>
#include <stdint.h>

struct got_patch {
	const char *name; /* of a function that is imported; or */
	void *to;
	bool variable; /* of a pointer to one, which is set if it is NULL */
	const void *
		from; /* only in the place of this one, or of one not looked up yet; NULL: of any */
};
struct got_objects {
	const char *except; /* not in those whose file's name begins so */
	uint64_t first; /* nor in so many that were loaded before */
};
/* In every object that imports one of them but those and our own. How many places were changed. */
unsigned got_redirect(const struct got_patch *patches, unsigned n, const struct got_objects *in);
/* Has anything been loaded since the value that was returned last? */
uint64_t got_loads(void);
/* How many objects there are now. */
uint64_t got_count(void);

#endif
