/* SPDX-License-Identifier: MulanPSL-2.0 */
/* steady.c with malloc() and free() in place of the driver's memory. */
#define COUNTED_HOST
#include "steady.c"
