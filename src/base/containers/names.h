/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Texts that come again and again, each kept once and known by a number from 0 on. Texts may hold
 * any byte. Zero-initialise and release.
 */
#ifndef SONDE_BASE_CONTAINERS_NAMES_H
#define SONDE_BASE_CONTAINERS_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"

struct names {
	struct buf text; /* all of them, one behind the other */
	size_t *ends;
	size_t count, cap;
	struct hmap by_hash;
};

/* The number of the text; equal texts have equal numbers. */
uint32_t names_of(struct names *s, const char *text, size_t len);

/* The text behind a number; good until the next names_of(). */
const char *names_get(const struct names *s, uint32_t number, size_t *out_len);

void names_release(struct names *s);

#endif
