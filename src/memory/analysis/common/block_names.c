/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What pools and devices are called in answers. */
#include "memory/analysis/common/blocks.h"

#include <stdio.h>

#include "wire/record.h"

const char *blocks_pool_name(enum row_type type)
{
	static const char *const names[TYPE_END] = {
		[TYPE_PTA] = "Pytorch Caching memory pool",
		[TYPE_PTA_WORKSPACE] = "Pytorch Workspace memory pool",
		[TYPE_ATB] = "ATB memory pool",
		[TYPE_MINDSPORE] = "Mindspore memory pool",
		[TYPE_TORCH] = "Pytorch Caching memory pool",
		[TYPE_CUDA] = "CUDA memory",
		[TYPE_HAL] = "HAL memory",
		[TYPE_HOST] = "Host memory",
		[TYPE_PYTHON] = "Python objects",
	};

	return type < TYPE_END && names[type] ? names[type] : "memory";
}

const char *blocks_device_name(uint32_t device, char text[16])
{
	if (device == DEV_HOST)
		return "cpu";
	if (device == DEV_NONE)
		return "N/A";
	snprintf(text, 16, "%u", device);
	return text;
}
