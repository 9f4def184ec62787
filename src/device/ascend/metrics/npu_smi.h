/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The table of `npu-smi info`, for machines where the library cannot be loaded. The program may
 * hang with its driver: it gets a deadline, and is not started again while it still hangs.
 */
#ifndef SONDE_DEVICE_ASCEND_METRICS_NPU_SMI_H
#define SONDE_DEVICE_ASCEND_METRICS_NPU_SMI_H

#include <sys/types.h>

#include "base/containers/buf.h"
#include "device/ascend/metrics/dcmi.h"

#define NPU_SMI_CHIPS 64

/* Fills at most cap chips from the text; gives how many. Whatever is not as expected is left out.
 */
unsigned npu_smi_parse(const char *text, size_t len, struct ascend_chip *out, unsigned cap);

/* Zero-initialise. */
struct npu_smi {
	pid_t hanging; /* was killed and is still there */
};

/* Adds what the program says to out. -ENOENT: there is none; -ETIMEDOUT; -EFBIG. */
int npu_smi_run(struct npu_smi *s, unsigned timeout_ms, struct buf *out, struct err *err);

#endif
