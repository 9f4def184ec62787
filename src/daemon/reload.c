/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/reload.h"

#include <stddef.h>
#include <string.h>

enum field_type { IS_BOOL, IS_UINT, IS_TEXT, IS_TEXTS };

struct field {
	const char *option;
	size_t offset;
	enum field_type type;
	enum reload_part part;
};

#define AT(member) offsetof(struct daemon_config, member)
static const struct field fields[] = {
	{"--port", AT(port), IS_UINT, RELOAD_FIXED},
	{"--bind", AT(binds), IS_TEXTS, RELOAD_FIXED},
	{"--certs-dir", AT(certs_dir), IS_TEXT, RELOAD_FIXED},
	{"--enable-ipc-monitor", AT(enable_ipc_monitor), IS_BOOL, RELOAD_FIXED},
	{"--ipc-socket-dir", AT(ipc_socket_dir), IS_TEXT, RELOAD_FIXED},
	{"--ipc-dir-only", AT(ipc_dir_only), IS_BOOL, RELOAD_FIXED},
	{"--max-processes-per-uid", AT(max_processes_per_uid), IS_UINT, RELOAD_FIXED},
	{"--regression-percent", AT(regression_percent), IS_UINT, RELOAD_JOBS},
	{"--http", AT(http), IS_BOOL, RELOAD_FIXED},
	{"--http-port", AT(http_port), IS_UINT, RELOAD_FIXED},
	{"--use-prometheus", AT(use_prometheus), IS_BOOL, RELOAD_FIXED},
	{"--prometheus-address", AT(prometheus_address), IS_TEXT, RELOAD_FIXED},
	{"--prometheus-port", AT(prometheus_port), IS_UINT, RELOAD_FIXED},
	{"--kernel-monitor-reporting-interval-s", AT(kernel_interval_s), IS_UINT, RELOAD_METRICS},
	{"--enable-perf-monitor", AT(enable_perf_monitor), IS_BOOL, RELOAD_METRICS},
	{"--perf-monitor-reporting-interval-s", AT(perf_interval_s), IS_UINT, RELOAD_METRICS},
	{"--enable-gpu-monitor", AT(gpu_monitor), IS_UINT, RELOAD_METRICS},
	{"--enable-npu-monitor", AT(npu_monitor), IS_UINT, RELOAD_METRICS},
	{"--dcgm-reporting-interval-s", AT(device_interval_s), IS_UINT, RELOAD_METRICS},
	{"--enable-env-var-attribution", AT(env_attribution), IS_BOOL, RELOAD_METRICS},
	{"--filter-nic-interfaces", AT(filter_nics), IS_BOOL, RELOAD_METRICS},
	{"--allow-interface-prefixes", AT(nic_prefixes), IS_TEXT, RELOAD_METRICS},
	{"--use-JSON", AT(use_json), IS_BOOL, RELOAD_METRICS},
	{"--metric-log-dir", AT(metric_log_dir), IS_TEXT, RELOAD_METRICS},
	{"--use-fbrelay", AT(use_fbrelay), IS_BOOL, RELOAD_METRICS},
	{"--fbrelay-address", AT(fbrelay_address), IS_TEXT, RELOAD_METRICS},
	{"--fbrelay-port", AT(fbrelay_port), IS_UINT, RELOAD_METRICS},
	{"--use-otlp", AT(use_otlp), IS_BOOL, RELOAD_METRICS},
	{"--otlp-endpoint", AT(otlp_endpoint), IS_TEXT, RELOAD_METRICS},
	{"--otlp-service-name", AT(otlp_service_name), IS_TEXT, RELOAD_METRICS},
	{"--otlp-headers", AT(otlp_headers), IS_TEXT, RELOAD_METRICS},
	{"--otlp-ssl-ca-cert-path", AT(otlp_ca), IS_TEXT, RELOAD_METRICS},
	{"--otlp-ssl-client-cert-path", AT(otlp_cert), IS_TEXT, RELOAD_METRICS},
	{"--otlp-ssl-client-key-path", AT(otlp_key), IS_TEXT, RELOAD_METRICS},
	{"--otlp-timeout-ms", AT(otlp_timeout_ms), IS_UINT, RELOAD_METRICS},
	{"--otlp-max-queue-size", AT(otlp_max_queue), IS_UINT, RELOAD_METRICS},
	{"--log-file", AT(log_file), IS_TEXT, RELOAD_LOG},
};
#define FIELDS (sizeof(fields) / sizeof(*fields))

static size_t bytes_of(const struct field *f)
{
	switch (f->type) {
	case IS_BOOL:
		return sizeof(bool);
	case IS_UINT:
		return sizeof(unsigned);
	case IS_TEXT:
		return sizeof(const char *);
	case IS_TEXTS:
		return sizeof(((struct daemon_config *)NULL)->binds);
	}
	return 0;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_texts(const char *const *a, const char *const *b)
{
	while (*a && same_text(*a, *b))
		a++, b++;
	return same_text(*a, *b);
}

static bool same_field(const struct field *f, const struct daemon_config *a,
		       const struct daemon_config *b)
{
	const void *x = (const char *)a + f->offset, *y = (const char *)b + f->offset;

	if (f->type == IS_TEXT)
		return same_text(*(const char *const *)x, *(const char *const *)y);
	if (f->type == IS_TEXTS)
		return same_texts(x, y);
	return !memcmp(x, y, bytes_of(f));
}

unsigned reload_compare(const struct daemon_config *now, const struct daemon_config *next,
			struct buf *out_fixed)
{
	unsigned parts = 0;

	for (const struct field *f = fields; f < fields + FIELDS; f++) {
		if (same_field(f, now, next))
			continue;
		parts |= f->part;
		if (f->part == RELOAD_FIXED)
			buf_addf(out_fixed, "%s%s", out_fixed->len ? ", " : "", f->option);
	}
	return parts;
}

void reload_apply(struct daemon_config *now, const struct daemon_config *next, unsigned parts)
{
	for (const struct field *f = fields; f < fields + FIELDS; f++)
		if (f->part & parts)
			memcpy((char *)now + f->offset, (const char *)next + f->offset,
			       bytes_of(f));
}
