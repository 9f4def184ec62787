/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Records of monitors, one JSON object a line, and what /metrics makes of them: every line must be
 * a comment or NAME{LABELS} VALUE, whatever the texts were.
 */
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "daemon/metrics/metrics_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const char *line, size_t len)
{
	bool quoted = false;

	BUG_ON(len < 4 || (*line != '#' && !isalpha((unsigned char)*line)));
	for (size_t i = 0; i < len; i++) {
		if (quoted && line[i] == '\\')
			i++;
		else if (line[i] == '"')
			quoted = !quoted;
	}
	BUG_ON(quoted && *line != '#');
}

static void check_text(struct buf *text)
{
	const char *at = text->data, *end = text->data + text->len;

	while (at < end) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));

		BUG_ON(!line_end);
		check_line(at, (size_t)(line_end - at));
		at = line_end + 1;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct daemon_config config = {.kernel_interval_s = 60};
	struct daemon d = {.config = &config};
	struct metrics m = {.d = &d};
	struct buf text = {0};

	log_set_level(LOG_ERROR);
	for (size_t at = 0; at < size;) {
		const uint8_t *end = memchr(data + at, '\n', size - at);
		size_t len = end ? (size_t)(end - data) - at : size - at;
		json_t *record = json_loadb((const char *)data + at, len, 0, NULL);

		if (record)
			metrics_data(&m, (uid_t)(at & 3), record);
		json_decref(record);
		at += len + 1;
	}
	metrics_prometheus(&m, &text);
	check_text(&text);
	json_decref(metrics_latest(&m, NULL));
	buf_release(&text);
	store_release(&m.store);
	return 0;
}
