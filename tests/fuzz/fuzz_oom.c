/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Rows of a CSV file through the out-of-memory analysis, with both kinds of answer. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/dump_bytes.h"
#include "base/mem.h"
#include "memory/analysis/oom/oom.h"
#include "memory/dump/cell.h"
#include "memory/input/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void answer(struct analysis *a)
{
	struct analysis_style styles[] = {{.top = 3, .colour = true}, {.top = 0, .console = true}};
	struct buf out = {0};

	for (size_t i = 0; i < 2; i++)
		a->ops->text(a, &styles[i], &out);
	json_t *json = a->ops->json(a, 3);
	BUG_ON(!json);
	size_t incidents = json_array_size(json_object_get(json, "incidents"));
	BUG_ON(a->ops->findings(a) < incidents && !out.len);
	json_decref(json);
	buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char header[] = CELL_COLUMNS "\n";
	size_t n = sizeof(header) - 1;
	char *text = xmalloc(n + size + 1);
	struct analysis *a = oom_new();
	struct dump *d;
	struct row row;
	struct err err;

	memcpy(text, header, n);
	if (size)
		memcpy(text + n, data, size);
	if (dump_open_bytes(text, n + size, DUMP_SKIP_BAD, &d, &err) == 0) {
		while (dump_next(d, &row, &err) > 0)
			a->ops->row(a, &row);
		dump_close(d);
	}
	answer(a);
	analysis_free(a);
	free(text);
	return 0;
}
