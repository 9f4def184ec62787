/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Marks and ranges of programs on GPUs; a tool gets them, if there is one. */
#ifndef SONDE_SIM_NVTX_H
#define SONDE_SIM_NVTX_H

#include <stddef.h>
#include <stdint.h>

void nvtxMarkA(const char *message);
/* How deep it is; -2: nobody counts. */
int nvtxRangePushA(const char *message);
int nvtxRangePop(void);
/* Its id; 0: nobody counts. Any thread may end it. */
uint64_t nvtxRangeStartA(const char *message);
void nvtxRangeEnd(uint64_t id);

typedef struct {
	uint16_t version, size;
	uint32_t category;
	int32_t colorType;
	uint32_t color;
	int32_t payloadType, reserved0;
	uint64_t payload;
	int32_t messageType; /* 1: text */
	const char *message;
} nvtxEventAttributes_t;

void *nvtxDomainCreateA(const char *name);
int nvtxDomainRangePushEx(void *domain, const nvtxEventAttributes_t *event);
int nvtxDomainRangePop(void *domain);

#endif
