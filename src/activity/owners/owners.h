/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Time of devices by whose work it is: by module of a model, equal layers as one (transformer.h.*.mlp),
 * or by line of the user's program. What nobody is known to own is a group of its own.
 */
#ifndef SONDE_ACTIVITY_OWNERS_OWNERS_H
#define SONDE_ACTIVITY_OWNERS_OWNERS_H

#include "activity/files/activity.h"
#include "base/containers/hmap.h"

#define OWNERS_MAX 65536u /* that are told apart; the others count as nobody's */
#define OWNERS_NOBODY "(not attributed)"
#define OWNERS_NO_MODULE "(no module)"
#define OWNERS_NO_LINE "(no line)"

struct owner_time {
	const struct activity_owner *owner; /* NULL: nobody */
	uint64_t calls, total_ns;
};

/* Zero-initialise and release. Owners live as long as what added them. */
struct owner_times {
	struct owner_time *list; /* the first is nobody */
	size_t n, cap;
	struct hmap by_owner;
	bool asked; /* somebody wanted to know */
};

/* Only work of devices counts. */
void owner_times_add(struct owner_times *t, const struct activity *a);
bool owner_is_work(uint8_t kind); /* of a device */
void owner_times_count(struct owner_times *t, const struct activity_owner *owner, uint64_t ns);
void owner_times_clear(struct owner_times *t);
void owner_times_release(struct owner_times *t);

/* An owner with these texts, which live as long as the program and are equal if their pointers are:
 * the same pointer for the same owner. */
const struct activity_owner *owner_find(const struct activity_owner *like);

enum owners_by { OWNERS_BY_NONE, OWNERS_BY_MODULE, OWNERS_BY_LINE };
extern const char *const owners_by_names[]; /* "name", "module", "line", ended by NULL */

struct owner_group {
	char *name; /* "transformer.h.*.mlp", "train_step (train.py:18)" */
	const char *module_class; /* "": none, or several */
	bool is_nobody;
	uint64_t count; /* equal modules that it stands for */
	uint64_t calls, total_ns, forward_ns, backward_ns;
	struct hmap parts; /* of the modules; released when the groups are complete */
};

/* Zero-initialise and release. */
struct owner_groups {
	struct owner_group *list; /* the most time first */
	size_t n, cap;
	struct hmap by_name;
	uint64_t total_ns, nobody_ns;
};

/* depth: parts of a module's path; 0: all. */
void owner_groups_build(struct owner_groups *g, const struct owner_times *t, enum owners_by by,
			unsigned depth);
void owner_groups_release(struct owner_groups *g);

#endif
