/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Orders: any text is read or refused, and nothing outside it is looked at. */
#include <stddef.h>
#include <stdint.h>

#include "wire/record.h"
#include "wire/request.h"

static size_t sum; /* so that what is pointed to is read */

static void touch(const struct request_text *t)
{
	for (size_t i = 0; i < t->len; i++)
		sum += (unsigned char)t->at[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct monitor_request m;
	struct trace_request t;

	(void)request_kind(text, size);
	if (!monitor_request_read(text, size, &m)) {
		touch(&m.log_file);
		touch(&m.filter);
		for (uint32_t kind = 0; kind < ACTIVITY_KIND_END; kind++)
			sum += request_filter(&m.filter, kind, "MatMul", 6);
	}
	if (!trace_request_read(text, size, &t)) {
		touch(&t.log_file);
		touch(&t.domain_include);
		sum += request_lists(&t.ranks, "3", 1);
	}
	return 0;
}
