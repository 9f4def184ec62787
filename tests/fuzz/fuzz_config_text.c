/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Texts of configs, as anybody may send them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/jobs_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	size_t len = 0;

	memcpy(text, data, size);
	text[size] = '\0';
	(void)config_kind(text);
	const char *value = config_value(text, "DURATION", &len);
	if (value && (value < text || value + len > text + strlen(text)))
		abort();
	if (config_monitor_ms(text) < 0)
		abort();
	free(text);
	return 0;
}
