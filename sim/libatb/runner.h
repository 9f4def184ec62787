/* SPDX-License-Identifier: MulanPSL-2.0 */
#ifndef SONDE_SIM_RUNNER_H
#define SONDE_SIM_RUNNER_H

#include "atb/atb.h"

struct mki_launch_param {
	struct mki_tensors in;
	struct mki_tensors out;
};

struct atb_runner {
	const struct sim_atb_call *call;
	uint64_t execute_count;
	char dir[160]; /* <device>_<thread>/<count>_<operation> */
	struct mki_launch_param *param;
};

#endif
