/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Marks and ranges of programs on GPUs; a tool gets them, if there is one. */
#ifndef SONDE_SIM_NVTX_H
#define SONDE_SIM_NVTX_H

#include <stddef.h>

void nvtxMarkA(const char *message);
/* How deep it is; -2: nobody counts. */
int nvtxRangePushA(const char *message);
int nvtxRangePop(void);

#endif
