/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/subprocess.h"
#include "device/ascend/metrics/npu_smi.h"

#define MAX_OUTPUT (1u << 20)

int npu_smi_run(struct npu_smi *s, unsigned timeout_ms, struct buf *out, struct err *err)
{
	static const char *const argv[] = {"npu-smi", "info", NULL};
	const struct run_options o = {.timeout_ms = timeout_ms,
				      .max_bytes = MAX_OUTPUT,
				      .apart = true,
				      .hanging = &s->hanging};

	return run_program(argv, &o, out, err);
}
