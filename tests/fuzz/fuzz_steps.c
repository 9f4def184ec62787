/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The summary of a rank that somebody left in a directory: read or refused, told, and read again.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "activity/steps/job_summary.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct split_rank *read_again(const struct split_rank *r)
{
	json_t *o = split_rank_json(r);
	char *text = json_dumps(o, 0);
	struct err err = {0};

	BUG_ON(!text);
	struct split_rank *again = split_rank_read(text, strlen(text), &err);
	BUG_ON(!again || again->nsteps != r->nsteps || again->ndevices != r->ndevices ||
	       again->nkernels != r->nkernels || again->rank != r->rank);
	free(text);
	json_decref(o);
	return again;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = {0};
	struct split_rank *r = split_rank_read((const char *)data, size, &err);
	struct split_job job = {0};
	struct buf text = {0};

	if (!r) {
		BUG_ON(err.code >= 0 || !err.text[0]);
		return 0;
	}
	split_job_add(&job, r);
	r = read_again(r);
	r->rank = 7;
	split_job_add(&job, r);
	split_job_judge(&job);
	split_job_text(&job, 10, &text);
	json_decref(split_job_json(&job));
	buf_release(&text);
	split_job_release(&job);
	return 0;
}
