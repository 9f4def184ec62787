/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who does a rank's work, and who only helps it. One process alone does not show that: workers of
 * data loaders, and whatever else a rank starts, have its environment, and those that fork made its
 * process group, too; launchers may have the number of one of their ranks. Beside its parents and
 * children it shows.
 */
#ifndef SONDE_SAMPLER_ROUNDS_ROLES_H
#define SONDE_SAMPLER_ROUNDS_ROLES_H

#include "sampler/rounds/targets.h"

/*
 * Sets role, rank and counts of all targets: among those that are open,
 *
 *	launcher	its children have ranks, other than its own if it has one, or are what
 *			torch.multiprocessing.spawn started
 *	helper		started by a process of the same rank, a worker of a DataLoader, or one without
 *			a rank below a rank; its rank is that of the process it helps
 *	rank		the others that have a rank. Also those without one that a launcher has
 *			started with the same function as ranks: they have not got so far
 *	other		what is left
 *
 * Ranks count. In a job without ranks, others count, but no processes of multiprocessing's own; if
 * that is nobody, all count.
 */
void roles_assign(struct targets *s);

/* What the process is called, as in targets.h; the caller frees it. */
char *role_label(const struct target *t);
const char *role_name(enum target_role role); /* "rank", "helper", "launcher", "other" */

#endif
