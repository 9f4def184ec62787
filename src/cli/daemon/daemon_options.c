/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "daemon"

#include "cli/daemon/daemon_options.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "daemon/config_changes.h"
#include "wire/rpc.h"

#define MAX_INTERVAL_S 86400
#define MAX_PROCESSES 1000000
#define NIC_PREFIXES "eno,ens,enp,enx,eth"

void daemon_options_release(struct daemon_options *o)
{
	free(o->binds);
	o->binds = NULL;
}

/* --bind replaces an earlier one, like every other option. */
static int parse_binds(struct args *a, const struct opt *opt, const char *value, struct err *err)
{
	struct daemon_options *o = a->target;
	const char **binds = o->config.binds;
	int n = 0;

	free(o->binds);
	o->binds = xstrdup(value);
	memset(o->config.binds, 0, sizeof(o->config.binds));
	for (char *at = o->binds, *next; at; at = next) {
		next = strchr(at, ',');
		if (next)
			*next++ = '\0';
		if (!*at)
			return err_set(err, -EINVAL,
				       "invalid value '%s' for '--%s': expected addresses with a "
				       "comma between them, such as 127.0.0.1,::1",
				       value, opt->name);
		if (n == DAEMON_MAX_BINDS)
			return err_set(err, -EINVAL, "more than %d addresses for '--%s'",
				       DAEMON_MAX_BINDS, opt->name);
		binds[n++] = at;
	}
	return 0;
}

/* --- the table --- */

#define CONFIG(member) offsetof(struct daemon_options, config.member)
#define OWN(member) offsetof(struct daemon_options, member)

#define FLAG(n, member, text) .name = n, .kind = OPT_FLAG, .offset = CONFIG(member), .help = text
#define SWITCH(n, member, text)                                                                    \
	.name = n, .kind = OPT_SWITCH, .arg = "true|false|auto", .offset = CONFIG(member),         \
	.default_text = "auto", .help = text
#define TEXT(n, value, member, dflt, text)                                                         \
	.name = n, .kind = OPT_TEXT, .arg = value, .offset = CONFIG(member), .default_text = dflt, \
	.help = text
#define NUMBER(n, value, member, low, high, dflt, text)                                            \
	.name = n, .kind = OPT_UINT, .arg = value, .offset = CONFIG(member), .min = low,           \
	.max = high, .default_text = dflt, .help = text
#define SECONDS(n, member, dflt, text) NUMBER(n, "S", member, 1, MAX_INTERVAL_S, dflt, text)

/* Known by name only; the help says why there is no effect. */
#define FOREIGN(n, i, why)                                                                         \
	.name = n, .kind = OPT_TEXT, .arg = "VALUE", .offset = OWN(foreign[i]), .hidden = true,    \
	.help = why
#define FOREIGN_FLAG(n, member, why)                                                               \
	.name = n, .kind = OPT_FLAG, .offset = OWN(member), .hidden = true, .help = why
#define WITH_NVML "metrics of GPUs come from NVML, which needs no settings"
#define NO_SERVICE "the service it belongs to is not open to others"
#define NO_TPU "TPUs are not supported"
#define NO_PODS "jobs are distinguished by the environment of their processes"
#define OWN_LOG "--log-file and the variable SONDE_LOG say where the log goes and how much of it"
#define ALL_SAMPLES "every sample goes to every destination under its own name"

static const char *const json_names[] = {"use-json", NULL};
static const char *const device_interval_names[] = {"device-reporting-interval-s", NULL};

const struct opt daemon_option_table[] = {
	COMMAND_HELP_OPTION,
	{.name = "version", .kind = OPT_STOP, .help = "Show the version and exit."},
	{.name = "flagfile",
	 .kind = OPT_FLAGFILE,
	 .arg = "FILE",
	 .help = "Read options from FILE, one on each line, as if they were on the command line. "
		 "Lines that begin with # are ignored."},
	{TEXT("log-file", "FILE", log_file, NULL,
	      "Append the log to FILE, not to stderr. On SIGHUP the daemon reopens the file.")},
	{TEXT("user", "NAME", user, NULL,
	      "Go on as this user, in a sandbox: root opens the sockets, then the daemon keeps no "
	      "capability, can start no program, and writes only below the directories that "
	      "--log-file, --metric-log-dir and --ipc-socket-dir name. It serves the jobs of all "
	      "users as before. A number is a user without an account.")},

	{.group = "Control",
	 NUMBER("port", "PORT", port, 0, 65535, "1778",
		"Port of the control RPC, for dyno and sonde ctl. 0: any that is free, the log "
		"says which.")},
	OPTION_CALL("bind", "ADDRESS[,ADDRESS...]", parse_binds, CONFIG(binds), NULL,
		    "Addresses to listen on, IPv4 or IPv6. Without it: loopback, and with "
		    "certificates every address."),
	{TEXT("certs-dir", "DIR", certs_dir, DAEMON_NO_CERTS,
	      "Accept only TLS connections, and only from clients with a certificate of the same "
	      "authority. DIR "
	      "holds ca.crt, server.crt, server.key and perhaps ca.crl; `sonde certs` makes "
	      "them.")},

	{TEXT("control-socket", "PATH", control_socket, NULL,
	      "Also listen on a UNIX socket at PATH, for dyno --hostname unix:PATH. Every user may "
	      "connect; no certificate is asked for, because the kernel says who it is.")},

	{.group = "Who may do what",
	 TEXT("admin-group", "GROUP", admin_group, NULL,
	      "Members of this group may trace, monitor and list the processes of all users, as "
	      "root and the daemon's own user may. Other users reach their own processes alone.")},
	{TEXT("access-file", "FILE", access_file, NULL,
	      "What clients with certificates may do: a line for each name, with operator "
	      "(everything), viewer (reads everything) or user=NAME (as that user); the name * is "
	      "for all others. Without it, every certificate may do everything.")},
	{FLAG("trust-local-users", trust_local_users,
	      "Everybody who can connect without a certificate may do everything.")},

	{.group = "Jobs",
	 FLAG("enable-ipc-monitor", enable_ipc_monitor,
	      "Let jobs on this node register with the daemon and fetch their requests (nputrace, "
	      "gputrace, npu-monitor) from it.")},
	{TEXT("ipc-socket-dir", "DIR", ipc_socket_dir, NULL,
	      "Also serve jobs by a socket in DIR, which containers can share; their "
	      "KINETO_IPC_SOCKET_DIR names the same directory. Default: the value of "
	      "KINETO_IPC_SOCKET_DIR in the daemon's environment.")},
	{FLAG("ipc-dir-only", ipc_dir_only,
	      "Serve jobs by that socket alone, so that several daemons can live on one machine.")},
	{NUMBER("max-processes-per-uid", "N", max_processes_per_uid, 1, MAX_PROCESSES, "16384",
		"How many processes one user may register.")},
	{NUMBER("regression-percent", "N", regression_percent, 0, 10000, "20",
		"A kernel that takes this many percent longer than before in three reports of the "
		"monitor "
		"in a row is a regression: it is logged and shown by 'sonde top'. 0: never.")},

	{.group = "HTTP",
	 FLAG("http", http,
	      "Serve the status page, /metrics, /healthz and /api on the loopback address; on "
	      "unless --nohttp.")},
	{NUMBER("http-port", "PORT", http_port, 0, 65535, "1779",
		"Port of the status page and the other pages of --http. 0: any free port.")},
	{TEXT("http-socket", "PATH", http_socket, NULL,
	      "Serve these pages on a UNIX socket at PATH, too, for curl --unix-socket PATH.")},
	{FLAG("use-prometheus", use_prometheus,
	      "Serve /metrics on a port of its own, which may be reachable from other hosts.")},
	{NUMBER("prometheus-port", "PORT", prometheus_port, 0, 65535, "8080", "That port.")},
	{TEXT("prometheus-address", "ADDRESS", prometheus_address, "127.0.0.1", "Its address.")},

	{.group = "Metrics",
	 SECONDS("kernel-monitor-reporting-interval-s", kernel_interval_s, "60",
		 "Seconds between samples of processors, memory, disks and network.")},
	{FLAG("enable-perf-monitor", enable_perf_monitor,
	      "Count instructions and cycles of all processors.")},
	{SECONDS("perf-monitor-reporting-interval-s", perf_interval_s, "60",
		 "Seconds between samples of these.")},
	{SWITCH("enable-gpu-monitor", gpu_monitor,
		"Sample NVIDIA GPUs through NVML. auto: if there are any, from the time when "
		"somebody first looks at the metrics.")},
	{SWITCH("enable-npu-monitor", npu_monitor,
		"Sample Ascend NPUs through DCMI or npu-smi. auto: as for GPUs.")},
	{.aliases = device_interval_names,
	 SECONDS("dcgm-reporting-interval-s", device_interval_s, "10",
		 "Seconds between samples of GPUs and NPUs.")},
	{FLAG("enable-env-var-attribution", env_attribution,
	      "Add job, user and partition of the process on a device, from its environment; on "
	      "unless --noenable-env-var-attribution.")},
	{FLAG("filter-nic-interfaces", filter_nics,
	      "Only network interfaces that --allow-interface-prefixes names.")},
	{TEXT("allow-interface-prefixes", "LIST", nic_prefixes, NIC_PREFIXES,
	      "How names of these interfaces begin.")},

	{.group = "Where metrics go",
	 .aliases = json_names,
	 FLAG("use-JSON", use_json, "Write every sample to the log, as JSON.")},
	{TEXT("metric-log-dir", "DIR", metric_log_dir, NULL,
	      "Write every sample, and what monitors of NPU jobs send, as TensorBoard files "
	      "below DIR.")},
	{FLAG("use-fbrelay", use_fbrelay, "Send samples as JSON over TCP.")},
	{TEXT("fbrelay-address", "ADDRESS", fbrelay_address, "127.0.0.1", "Where to.")},
	{NUMBER("fbrelay-port", "PORT", fbrelay_port, 1, 65535, "10000", "Where to.")},
	{FLAG("use-otlp", use_otlp, "Send samples to an OpenTelemetry collector, OTLP over HTTP.")},
	{TEXT("otlp-endpoint", "URL", otlp_endpoint, DAEMON_OTLP_ENDPOINT, "Its address.")},
	{TEXT("otlp-service-name", "NAME", otlp_service_name, "dynolog", "Value of service.name.")},
	{TEXT("otlp-headers", "LIST", otlp_headers, NULL, "Further headers: name=value,...")},
	{NUMBER("otlp-timeout-ms", "MS", otlp_timeout_ms, 1, 600000, "30000",
		"How long one request may take.")},
	{NUMBER("otlp-max-queue-size", "N", otlp_max_queue, 1, 1000000, "1000",
		"Samples to keep while the collector is away.")},
	{TEXT("otlp-ssl-ca-cert-path", "FILE", otlp_ca, NULL, "Authorities to trust.")},
	{TEXT("otlp-ssl-client-cert-path", "FILE", otlp_cert, NULL, "Certificate to show.")},
	{TEXT("otlp-ssl-client-key-path", "FILE", otlp_key, NULL, "Its key.")},
	OPTION_FLAG("use-otel", OWN(use_otel), "Another name of --use-otlp."),
	OPTION_TEXT("otel-endpoint", "URL", OWN(otel_endpoint), NULL,
		    "Another name of --otlp-endpoint."),

	{FOREIGN_FLAG("use-ODS", refused_flags[0], NO_SERVICE)},
	{FOREIGN_FLAG("use-scuba", refused_flags[1], NO_SERVICE)},
	{FOREIGN_FLAG("enable-tpu-monitor", refused_flags[2], NO_TPU)},
	{FOREIGN_FLAG("enable-pod-resources-attribution", refused_flags[3], NO_PODS)},
	{FOREIGN_FLAG("use-otel-for-kernel-monitor", foreign_flags[0], ALL_SAMPLES)},
	{FOREIGN_FLAG("logtostderr", foreign_flags[1], OWN_LOG)},
	{FOREIGN_FLAG("alsologtostderr", foreign_flags[2], OWN_LOG)},
	{FOREIGN("dcgm-lib-path", 0, WITH_NVML)},
	{FOREIGN("dcgm-fields", 1, WITH_NVML)},
	{FOREIGN("dcgm-major-version", 2, WITH_NVML)},
	{FOREIGN("dcgm-standalone-address", 3, WITH_NVML)},
	{FOREIGN("env-attribution-mappings-file", 4, "the variables of SLURM are known")},
	{FOREIGN("category-id", 5, NO_SERVICE)},
	{FOREIGN("ods-entity-prefix", 6, NO_SERVICE)},
	{FOREIGN("scribe-category", 7, NO_SERVICE)},
	{FOREIGN("access-token", 8, NO_SERVICE)},
	{FOREIGN("certificate-path", 9, NO_SERVICE)},
	{FOREIGN("otel-resource-env-file", 10, ALL_SAMPLES)},
	{FOREIGN("otel-resource-attrs", 11, ALL_SAMPLES)},
	{FOREIGN("otel-metric-mappings-file", 12, ALL_SAMPLES)},
	{FOREIGN("tpu-device-plugin-url", 13, NO_TPU)},
	{FOREIGN("tpu-reporting-interval-s", 14, NO_TPU)},
	{FOREIGN("tpu-scrape-timeout-ms", 15, NO_TPU)},
	{FOREIGN("pod-resources-socket", 16, NO_PODS)},
	{FOREIGN("pod-resources-gpu-resource", 17, NO_PODS)},
	{FOREIGN("pod-resources-tpu-resource", 18, NO_PODS)},
	{FOREIGN("minloglevel", 19, OWN_LOG)},
	{FOREIGN("stderrthreshold", 20, OWN_LOG)},
	{FOREIGN("log-dir", 21, OWN_LOG)},
	{FOREIGN("v", 22, OWN_LOG)},
	OPT_END,
};

/* --- before and afterwards --- */

/* The defaults are those that the help shows; two flags are on. */
void daemon_options_init(struct daemon_options *o)
{
	*o = (struct daemon_options){
		.config = {.options = daemon_option_table, .http = true, .env_attribution = true}};
	for (const struct opt *row = daemon_option_table; row->name; row++) {
		char *at = (char *)o + row->offset;

		if (row->default_text && row->kind == OPT_UINT)
			*(unsigned *)at = (unsigned)strtoul(row->default_text, NULL, 10);
		else if (row->default_text && row->kind == OPT_TEXT)
			*(const char **)at = row->default_text;
		else if (row->kind == OPT_SWITCH)
			*(unsigned *)at = DAEMON_AUTO;
	}
}

static bool was_given(const struct daemon_options *o, const struct opt *row)
{
	const char *at = (const char *)o + row->offset;

	return row->kind == OPT_FLAG ? *(const bool *)at : *(const char *const *)at != NULL;
}

static bool is_refused(const struct opt *row)
{
	size_t first = OWN(refused_flags);

	return row->hidden && row->offset >= first &&
	       row->offset < first + sizeof(((struct daemon_options *)NULL)->refused_flags);
}

int daemon_options_check(struct daemon_options *o, struct err *err)
{
	struct daemon_config *c = &o->config;

	for (const struct opt *row = daemon_option_table; row->name; row++)
		if (is_refused(row) && was_given(o, row))
			return err_set(err, -ENOTSUP, "option '--%s' is not supported: %s",
				       row->name, row->help);
	if (o->use_otel)
		c->use_otlp = true;
	if (o->otel_endpoint)
		c->otlp_endpoint = o->otel_endpoint;
	if (!c->otlp_cert != !c->otlp_key)
		return err_set(err, -EINVAL,
			       "--otlp-ssl-client-cert-path and --otlp-ssl-client-key-path need "
			       "each other");
	return 0;
}

void daemon_options_log(const struct daemon_options *o)
{
	for (const struct opt *row = daemon_option_table; row->name; row++)
		if (row->hidden && was_given(o, row))
			log_info("--%s has no effect: %s", row->name, row->help);
}

bool daemon_options_same(const struct daemon_options *a, const struct daemon_options *b)
{
	struct buf names = {0};
	unsigned parts = reload_compare(&a->config, &b->config, &names);

	buf_release(&names);
	return !parts;
}
