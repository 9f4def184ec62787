/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The least that a job on the simulated stack does. For programs of one file. */
#ifndef TESTS_MSPTI_JOB_H
#define TESTS_MSPTI_JOB_H

#include <stdlib.h>

#include "acl/acl.h"
#include "sim/kernel.h"

static inline void *open_stream(int device)
{
	void *stream = NULL;
	(void)aclInit(NULL);
	if (aclrtSetDevice(device) || aclrtCreateStream(&stream))
		exit(3);
	return stream;
}

static inline void launch(const char *name, uint64_t ns, void *stream)
{
	if (aclrtLaunchKernel(sim_kernel_register(name, ns, NULL), 1, NULL, 0, stream))
		exit(3);
}

#endif
