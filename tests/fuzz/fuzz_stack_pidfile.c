/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The file of pids: whatever is in it, only pids of Linux come out. */
#include <stdint.h>

#include "base/mem.h"
#include "sampler/session/background.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct stack_pidfile p;

	if (stack_pidfile_parse((const char *)data, size, &p) < 0)
		return 0;
	BUG_ON(p.job.pid < 0 || p.job.pid > 1 << 22);
	BUG_ON(p.sampler.pid < 0 || p.sampler.pid > 1 << 22);
	BUG_ON(!p.job.pid && !p.sampler.pid);
	return 0;
}
