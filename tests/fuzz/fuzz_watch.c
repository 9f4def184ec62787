/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The reader of watch_dump_data_check_sum_*.csv. Input that does not start like a header gets one,
 * so that the lines are reached; then the answer is made in both forms.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/watch/watch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const char *text, size_t size)
{
	struct analysis *a = watch_new();
	struct analysis_style style = {.top = 5};
	struct buf out = {0};
	struct err err;

	if (watch_read_csv(a, text, size, &err) == 0) {
		a->ops->text(a, &style, &out);
		json_decref(a->ops->json(a, 5));
		BUG_ON(a->ops->findings(a)); /* a file alone gives no judgement */
	}
	buf_release(&out);
	analysis_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char header[] = WATCH_CSV_HEADER "\n";
	size_t n = sizeof(header) - 1;
	char *text = xmalloc(n + size + 1);

	memcpy(text, header, n);
	if (size)
		memcpy(text + n, data, size);
	read_all((const char *)data, size);
	read_all(text, n + size);
	free(text);
	return 0;
}
