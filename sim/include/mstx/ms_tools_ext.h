/* SPDX-License-Identifier: MulanPSL-2.0 */
/* mstx: marks, ranges and memory pools that a program announces to whatever tool injected itself.
 */
#ifndef SONDE_SIM_MSTX_H
#define SONDE_SIM_MSTX_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t mstxRangeId;
typedef struct mstxDomain *mstxDomainHandle_t;
typedef struct mstxMemHeap *mstxMemHeapHandle_t;
typedef struct mstxMemRegion *mstxMemRegionHandle_t;

typedef struct mstxMemVirtualRangeDesc {
	uint32_t deviceId;
	const void *ptr;
	int64_t size;
} mstxMemVirtualRangeDesc_t;

typedef struct mstxMemHeapDesc {
	int32_t usage; /* 0: sub-allocator */
	int32_t type; /* 0: virtual address range */
	const void *typeSpecificDesc;
} mstxMemHeapDesc_t;

typedef struct mstxMemRegionsRegisterBatch {
	mstxMemHeapHandle_t heap;
	int32_t regionType;
	size_t regionCount;
	const void *regionDescArray;
	mstxMemRegionHandle_t *regionHandleArrayOut;
} mstxMemRegionsRegisterBatch_t;

typedef struct mstxMemRegionRef {
	int32_t refType; /* 0 pointer, 1 handle */
	union {
		const void *pointer;
		mstxMemRegionHandle_t handle;
	};
} mstxMemRegionRef_t;

typedef struct mstxMemRegionsUnregisterBatch {
	size_t refCount;
	const mstxMemRegionRef_t *refArray;
} mstxMemRegionsUnregisterBatch_t;

_Static_assert(sizeof(mstxMemVirtualRangeDesc_t) == 24, "vendor layout");
_Static_assert(sizeof(mstxMemHeapDesc_t) == 16, "vendor layout");
_Static_assert(sizeof(mstxMemRegionsRegisterBatch_t) == 40, "vendor layout");
_Static_assert(sizeof(mstxMemRegionRef_t) == 16, "vendor layout");
_Static_assert(sizeof(mstxMemRegionsUnregisterBatch_t) == 16, "vendor layout");

/* What an injected tool is given: table[id] is the address of the function pointer to overwrite. */
typedef void (*MstxFuncPointer)(void);
typedef MstxFuncPointer **MstxFuncTable;
typedef int (*MstxGetModuleFuncTable)(int module, MstxFuncTable *outTable, unsigned *outSize);
typedef int (*MstxInitInjection)(MstxGetModuleFuncTable getTable);

enum mstx_module { MSTX_MODULE_CORE = 1, MSTX_MODULE_DOMAIN = 2, MSTX_MODULE_MEMORY = 3 };

void mstxMarkA(const char *message, void *stream);
mstxRangeId mstxRangeStartA(const char *message, void *stream);
void mstxRangeEnd(mstxRangeId id);
mstxDomainHandle_t mstxDomainCreateA(const char *name);
void mstxDomainDestroy(mstxDomainHandle_t domain);
void mstxDomainMarkA(mstxDomainHandle_t domain, const char *message, void *stream);
mstxRangeId mstxDomainRangeStartA(mstxDomainHandle_t domain, const char *message, void *stream);
void mstxDomainRangeEnd(mstxDomainHandle_t domain, mstxRangeId id);
mstxMemHeapHandle_t mstxMemHeapRegister(mstxDomainHandle_t domain, const mstxMemHeapDesc_t *desc);
void mstxMemHeapUnregister(mstxDomainHandle_t domain, mstxMemHeapHandle_t heap);
void mstxMemRegionsRegister(mstxDomainHandle_t domain, const mstxMemRegionsRegisterBatch_t *batch);
void mstxMemRegionsUnregister(mstxDomainHandle_t domain,
			      const mstxMemRegionsUnregisterBatch_t *batch);

#endif
