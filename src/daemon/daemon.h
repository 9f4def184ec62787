/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The node daemon: one process, one thread, one libevent loop. Everything that can be waited for is
 * an event; nothing sleeps and nothing polls. Work that may block (drivers, receivers of metrics,
 * the memory of other processes) is done by threads (background.h), for which the loop never waits
 * longer than a moment.
 *
 * Each module has a struct of its own, made by X_new() or X_open() and ended by X_free(); this
 * header holds what they share. Priorities: the fabric first (clients give up after 50 ms), then
 * RPC and HTTP, then metrics.
 */
#ifndef SONDE_DAEMON_DAEMON_H
#define SONDE_DAEMON_DAEMON_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum daemon_priority {
	DAEMON_PRIORITY_FABRIC,
	DAEMON_PRIORITY_RPC,
	DAEMON_PRIORITY_METRICS,
	DAEMON_PRIORITIES
};

#define DAEMON_NO_CERTS "NO_CERTS"
#define DAEMON_MAX_BINDS 16
#define DAEMON_OTLP_ENDPOINT "http://localhost:4318" /* where none is given */

enum daemon_auto { DAEMON_NO, DAEMON_YES, DAEMON_AUTO };

struct opt;

/* What the options say. Strings belong to the caller of daemon_run() and outlive the daemon. */
struct daemon_config {
	const char *user; /* NULL: goes on as who started it, without a sandbox */
	/* control RPC */
	unsigned port; /* 0: the kernel chooses, the log says which */
	/* Empty: loopback, every address with certificates. Ends with NULL. */
	const char *binds[DAEMON_MAX_BINDS + 1];
	const char *certs_dir; /* DAEMON_NO_CERTS: plain */
	const char *control_socket; /* NULL: none */
	/* who may do what (access.h); can change while the daemon runs */
	bool trust_local_users;
	const char *admin_group, *access_file; /* NULL: none */
	/* fabric */
	bool enable_ipc_monitor;
	const char *ipc_socket_dir; /* NULL: $KINETO_IPC_SOCKET_DIR, if set */
	bool ipc_dir_only; /* neither abstract names nor the home directory */
	unsigned max_processes_per_uid;
	unsigned regression_percent; /* a kernel that takes so much longer is reported; 0: none */
	/* http */
	bool http;
	unsigned http_port; /* 0: the kernel chooses */
	const char *http_socket; /* NULL: none */
	bool use_prometheus; /* also on prometheus_address:prometheus_port */
	const char *prometheus_address;
	unsigned prometheus_port;
	/* metrics */
	unsigned kernel_interval_s;
	bool enable_perf_monitor;
	unsigned perf_interval_s;
	unsigned gpu_monitor, npu_monitor; /* enum daemon_auto */
	unsigned device_interval_s;
	bool env_attribution;
	bool filter_nics;
	const char *nic_prefixes; /* comma list */
	/* sinks */
	bool use_json;
	const char *metric_log_dir; /* TensorBoard; NULL: none */
	bool use_fbrelay;
	const char *fbrelay_address;
	unsigned fbrelay_port;
	bool use_otlp;
	const char *otlp_endpoint, *otlp_service_name, *otlp_headers;
	const char *otlp_ca, *otlp_cert, *otlp_key;
	unsigned otlp_timeout_ms, otlp_max_queue;
	/* log; what stands between the metrics and it can change while the daemon runs */
	const char *log_file; /* NULL: stderr */
	/* The table of options that describes the members above, for reloads. */
	const struct opt *options;
};

struct jobs;
struct fabric;
struct rpc_server;
struct http_server;
struct metrics;
struct tls_server;
struct sandbox;
struct access;
struct handshakes;
struct inspect;

struct daemon {
	struct event_base *base;
	const struct daemon_config *config;
	struct tls_server *tls; /* NULL: plain */
	struct handshakes *handshakes; /* NULL: plain */
	struct access *access;
	struct jobs *jobs;
	struct fabric *fabric; /* NULL: no IPC monitor */
	struct rpc_server *rpc;
	struct http_server *http; /* NULL: none */
	struct metrics *metrics;
	struct sandbox *sandbox; /* NULL: none */
	struct inspect *inspect;
	int64_t started_ns; /* CLOCK_REALTIME */
};

/*
 * Runs until SIGTERM or SIGINT. SIGHUP asks `reload` (if any) for a new configuration, opens the
 * log file anew and loads the certificates again; what cannot change while running is logged.
 */
typedef const struct daemon_config *(*daemon_reload_fn)(void *arg, struct err *err);
int daemon_run(const struct daemon_config *config, daemon_reload_fn reload, void *arg,
	       struct err *err);

#endif
