/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Where activities come from in this process. */
#include "monitor/impl.h"

static const struct activity_source *const sources[] = {&mspti_source, &cupti_source};

const struct activity_source *source_find(void)
{
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
		if (sources[i]->is_there())
			return sources[i];
	return NULL;
}

const char *monitor_source(void)
{
	const struct activity_source *s = source_find();

	return s ? s->name : "";
}
