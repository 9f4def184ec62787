/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Searching for processes beside the samples: a thread does it, for it takes as long as npu-smi
 * does, or as a node has processes. All functions are for the thread of the sampler.
 */
#ifndef SONDE_SAMPLER_ROUNDS_SEARCH_H
#define SONDE_SAMPLER_ROUNDS_SEARCH_H

#include "base/err.h"
#include "sampler/discover/discover.h"

struct search;

struct search *search_new(const struct discover_rules *rules); /* copies them */
void search_free(struct search *s); /* does not wait */

/*
 * 1 and *out if there is an answer: always when `now`, which waits for it; else when one that was
 * due has come. 0 if there is none yet. `empty`: no process is being sampled.
 */
int search_take(struct search *s, bool now, bool empty, struct discovery *out, struct err *err);

/* Where the rules want descendants: those of this process, too, even when its parent has
 * ended. Between search_take() and the next. */
void search_follow(struct search *s, pid_t pid, uint64_t start_ticks);

#endif
