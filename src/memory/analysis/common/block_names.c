/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What pools and devices are called in answers, and which modules share a block. */
#include "memory/analysis/common/blocks.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
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

void blocks_put_parts(struct blocks *b, struct block *block, const struct row *row)
{
	block->parts = 0;
	if (!row->nparts || row->nparts > UINT32_MAX - b->nparts - 1)
		return;
	block->parts = (uint32_t)b->nparts + 1;
	b->parts = xgrow(b->parts, &b->cap_parts, b->nparts + row->nparts, sizeof(*b->parts));
	for (uint32_t i = 0; i < row->nparts; i++) {
		const struct row_part *part = &row->parts[i];

		b->parts[b->nparts++] = (struct block_part){
			.bytes = part->bytes,
			.layer = text_numbers_find(&b->layers, part->layer, strlen(part->layer),
						   UINT32_MAX),
			.left = row->nparts - 1 - i};
	}
}
