/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * steady_kernels COUNTER PACE_US: launches one kernel after the other, PACE_US apart, five in a step,
 * until its standard input ends. Nothing else is called, so correlation ids have no gaps.
 */
#include "counted.h"
#include "mspti_job.h"
#include "sonde/sonde.h"

#include <poll.h>

#define STEP_KERNELS 5

int main(int argc, char **argv)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};

	if (argc != 3)
		return 98;
	counted_open(argv[1]);
	useconds_t pace = (useconds_t)atoi(argv[2]);
	void *stream = open_stream(0);
	for (unsigned long i = 0; i % STEP_KERNELS || poll(&in, 1, 0) == 0; i++) {
		if (i % STEP_KERNELS == 0)
			sonde_step();
		launch("Add", 20000, stream);
		atomic_fetch_add_explicit(&counted[0], 1, memory_order_relaxed);
		usleep(pace);
	}
	if (aclrtSynchronizeStream(stream))
		return 3;
	puts("done");
	return 0;
}
