/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The text of a config: lines of KEY=VALUE, blanks around both ignored. The daemon hands it on as
 * it is; it looks inside only to learn what the text is for.
 */
#ifndef SONDE_DAEMON_JOBS_CONFIG_TEXT_H
#define SONDE_DAEMON_JOBS_CONFIG_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum config_kind {
	CONFIG_KINETO, /* a trace by PyTorch's own profiler */
	CONFIG_NPU_TRACE,
	CONFIG_NPU_MONITOR,
};

enum config_kind config_kind(const char *text);

/* The value of the last line with this key, not ended by a NUL; NULL if there is none. */
const char *config_value(const char *text, const char *key, size_t *out_len);

bool config_is_true(const char *text, const char *key);

/* How long after its delivery PyTorch's profiler is busy with this text at the latest, or has been;
 * `now_ms` is since the epoch. */
int64_t config_trace_begins_ms(const char *text, int64_t now_ms);

/* How long the monitor runs that this text starts or renews, in milliseconds; 0: without end, or it
 * does neither. */
int64_t config_monitor_ms(const char *text);

#endif
