/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One heap per device plus one for pinned host memory.
 *
 *   heap h:   [ shard 0 | shard 1 | ... | shard 7 ]     1 TiB of addresses, 128 GiB each
 *   shard:    data in 4 KiB granules + one 8-byte struct block per granule (only the first counts)
 *
 * A thread allocates from its own shard, so that threads do not meet; a block is given back to the
 * shard it lies in. Free blocks wait in one list per size class and are reused newest first: the
 * same address comes back soon, as on a device. Nothing is merged; a heap has far more addresses
 * than memory instead.
 */
#ifndef SONDE_SIM_HEAP_H
#define SONDE_SIM_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* Not part of any interface: other libraries of a process may use the same names. */
#pragma GCC visibility push(hidden)

enum heap_kind { HEAP_ALLOC = 1, HEAP_CREATE = 2 };

/* Returns a drvError code. @page_bytes is 4 KiB, 2 MiB or 1 GiB. */
int heap_alloc(int heap, uint64_t size, uint64_t page_bytes, enum heap_kind kind, void **out_ptr);
int heap_free(void *ptr, enum heap_kind kind);

#pragma GCC visibility pop

#endif
