/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The process: what is opened in which order, signals, the loop, and the way out. */
#define LOG_AREA "daemon"

#include "daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/access.h"
#include "daemon/config_changes.h"
#include "daemon/fabric/fabric.h"
#include "daemon/handshakes.h"
#include "daemon/http/http.h"
#include "daemon/inspect/inspect.h"
#include "daemon/jobs/jobs.h"
#include "daemon/loop.h"
#include "daemon/metrics/metrics.h"
#include "daemon/notify.h"
#include "daemon/process.h"
#include "daemon/rpc/rpc.h"
#include "daemon/sandbox/sandbox.h"
#include "net/tls/tls.h"

#define DRAIN_NS 1000000000u /* how long answers may take once the end is asked for */
#define DRAIN_TICK_US 10000
#define LEAVE_MS 1200 /* for what is on its way to receivers of metrics */
#define SLICE_US 1000 /* of work for connections before the loop polls again */
#define SLICE_CALLBACKS 8

enum { ON_TERM, ON_INT, ON_HUP, ON_HEARTBEAT, ON_DRAIN, EVENTS };

struct process {
	struct daemon d;
	struct daemon_config config; /* in force: d.config points here */
	daemon_reload_fn reload;
	void *reload_arg;
	struct notify_sockets sockets;
	struct event *events[EVENTS];
	uint64_t drain_until_ns; /* 0: nobody asked for the end */
};

/* --- the process --- */

static void raise_file_limit(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur == files.rlim_max)
		return;
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		log_warn("cannot raise the limit of open files: %s", strerror(errno));
}

static void log_start(const struct daemon_config *c)
{
	if (geteuid() == 0 && !c->user)
		log_warn("running as root: an ordinary user is enough, unless jobs of other users "
			 "are to be served; with --user NAME root is needed for the start alone");
	log_info("sonde daemon %s, process %d", SONDE_VERSION, (int)getpid());
}

/* --- signals and timers --- */

/* The end waits for connections that are being answered, but not for ever. */
static void on_drain(evutil_socket_t fd, short what, void *arg)
{
	struct process *p = arg;

	(void)fd, (void)what;
	if (rpc_server_drain(p->d.rpc) == 0 || clock_mono_ns() >= p->drain_until_ns)
		event_base_loopbreak(p->d.base);
}

static void on_end(evutil_socket_t sig, short what, void *arg)
{
	struct process *p = arg;

	(void)what;
	if (p->drain_until_ns) {
		event_base_loopbreak(p->d.base);
		return;
	}
	log_info("ending on signal %d (%s)", (int)sig, strsignal((int)sig));
	notify_send("STOPPING=1\nSTATUS=ending");
	p->drain_until_ns = clock_mono_ns() + DRAIN_NS;
	loop_timer_start(p->events[ON_DRAIN], DRAIN_TICK_US);
	on_drain(-1, 0, p);
}

static void on_heartbeat(evutil_socket_t fd, short what, void *arg)
{
	struct process *p = arg;

	(void)fd, (void)what;
	notify_send("WATCHDOG=1\nSTATUS=%llu processes registered",
		    (unsigned long long)jobs_counts(p->d.jobs).processes);
}

/* --- configuration --- */

/* The new ones first: if they cannot be opened, those that are there go on unchanged. */
static void apply_metrics(struct process *p, const struct daemon_config *next)
{
	struct daemon_config before = p->config;
	struct metrics *metrics = NULL;
	struct err err = {0};

	reload_apply(&p->config, next, RELOAD_METRICS);
	if (metrics_new(&p->d, &metrics, &err) < 0) {
		log_err("the new configuration of metrics cannot be used: %s; going on with the "
			"old one",
			err.text);
		p->config = before;
		return;
	}
	metrics_free(p->d.metrics);
	p->d.metrics = metrics;
	log_info("metrics follow the new configuration");
}

static void apply_config(struct process *p, const struct daemon_config *next)
{
	struct buf fixed = {0};
	unsigned changed = reload_compare(&p->config, next, &fixed);

	if (fixed.len)
		log_warn("changed but in force only after a restart: %s", buf_str(&fixed));
	buf_release(&fixed);
	if (changed & RELOAD_METRICS)
		apply_metrics(p, next);
}

static void open_log(const struct process *p)
{
	struct err err = {0};

	if (!p->config.log_file)
		log_close();
	else if (log_open(p->config.log_file, &err) < 0)
		log_err("%s; going on as before", err.text);
}

static void on_reload(evutil_socket_t sig, short what, void *arg)
{
	struct process *p = arg;
	struct err err = {0};

	(void)sig, (void)what;
	notify_send("RELOADING=1\nMONOTONIC_USEC=%llu",
		    (unsigned long long)(clock_mono_ns() / 1000));
	const struct daemon_config *next = p->reload ? p->reload(p->reload_arg, &err) : NULL;
	if (next && sandbox_check_config(p->d.sandbox, next, &err) < 0)
		next = NULL;
	/* The log first: what follows belongs into the new file. */
	if (next) {
		reload_apply(&p->config, next, RELOAD_LOG);
		reload_apply(&p->config, next, RELOAD_JOBS | RELOAD_ACCESS);
		jobs_set_regression(p->d.jobs, p->config.regression_percent);
	}
	open_log(p);
	if (next)
		apply_config(p, next);
	else if (p->reload)
		log_err("%s; going on with the old configuration", err.text);
	access_reload(p->d.access, &p->config);
	if (p->d.tls && tls_server_reload(p->d.tls, &err) < 0)
		log_err("certificates not loaded again: %s; going on with the old ones", err.text);
	log_info("reloaded");
	notify_send("READY=1");
}

/* --- beginning and end --- */

static int open_base(struct process *p, struct err *err)
{
	const struct timeval slice = {.tv_usec = SLICE_US};
	struct event_config *config = event_config_new();

	if (config) {
		/* Not EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST: it is wrong for a descriptor that
		 * lives on in a copy, and a child that is being started has one for a moment. */
		event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV);
		/* Or all connections that are ready would be served before the fabric is looked at.
		 */
		event_config_set_max_dispatch_interval(config, &slice, SLICE_CALLBACKS,
						       DAEMON_PRIORITY_RPC);
		p->d.base = event_base_new_with_config(config);
		event_config_free(config);
	}
	if (!p->d.base || event_base_priority_init(p->d.base, DAEMON_PRIORITIES) < 0)
		return err_set(err, -ENOMEM, "cannot make an event loop");
	return 0;
}

static void open_events(struct process *p)
{
	static const struct {
		int sig;
		event_callback_fn fn;
	} signals[] = {[ON_TERM] = {SIGTERM, on_end},
		       [ON_INT] = {SIGINT, on_end},
		       [ON_HUP] = {SIGHUP, on_reload}};
	struct event_base *base = p->d.base;

	for (int i = ON_TERM; i <= ON_HUP; i++) {
		p->events[i] = loop_event_new(base, signals[i].sig, EV_SIGNAL | EV_PERSIST,
					      DAEMON_PRIORITY_FABRIC, signals[i].fn, p);
		event_add(p->events[i], NULL);
	}
	p->events[ON_HEARTBEAT] =
		loop_event_new(base, -1, EV_PERSIST, DAEMON_PRIORITY_FABRIC, on_heartbeat, p);
	p->events[ON_DRAIN] =
		loop_event_new(base, -1, EV_PERSIST, DAEMON_PRIORITY_FABRIC, on_drain, p);
	if (notify_watchdog_us())
		loop_timer_start(p->events[ON_HEARTBEAT], notify_watchdog_us());
}

/* The fabric lives longer than the metrics, which a reload may replace. */
static void on_data(void *arg, uid_t uid, const json_t *record)
{
	struct process *p = arg;

	if (p->d.metrics)
		metrics_data(p->d.metrics, uid, record);
}

/* The page and /metrics are there by default; only who asked for them must have them. */
static int open_http(struct process *p, struct err *err)
{
	const struct daemon_config *c = &p->config;
	struct err why = {0};

	if (!c->http && !c->http_socket && !c->use_prometheus && !p->sockets.nhttp)
		return 0;
	int r = http_server_new(&p->d, p->sockets.http, p->sockets.nhttp, &p->d.http, &why);
	if (r >= 0)
		return 0;
	if (c->use_prometheus || c->http_socket || p->sockets.nhttp)
		return err_set(err, r, "%s", why.text);
	log_err("no HTTP: %s; --http-port chooses another port, --nohttp is for none", why.text);
	return 0;
}

/* Sockets first, since they may need root; then the sandbox, in which files of metrics are made. */
static int open_modules(struct process *p, struct err *err)
{
	const struct daemon_config *c = &p->config;
	struct daemon *d = &p->d;
	int r = 0;

	d->jobs = jobs_new(d->base, c->max_processes_per_uid);
	jobs_set_regression(d->jobs, c->regression_percent);
	if (c->enable_ipc_monitor)
		r = fabric_open(d, on_data, p, &d->fabric, err);
	if (r >= 0)
		r = rpc_server_new(d, p->sockets.rpc, p->sockets.nrpc, &d->rpc, err);
	if (r >= 0)
		r = open_http(p, err);
	if (r >= 0)
		r = sandbox_enter(d->sandbox, err);
	if (r >= 0)
		r = metrics_new(d, &d->metrics, err);
	if (r >= 0)
		d->inspect = inspect_new(d);
	return r;
}

static void close_all(struct process *p)
{
	struct daemon *d = &p->d;

	http_server_free(d->http);
	rpc_server_free(d->rpc);
	fabric_free(d->fabric);
	inspect_free(d->inspect);
	metrics_free(d->metrics);
	background_wait(NULL, LEAVE_MS);
	jobs_free(d->jobs);
	access_free(d->access);
	handshakes_free(d->handshakes);
	tls_server_free(d->tls);
	sandbox_free(d->sandbox);
	for (int i = 0; i < EVENTS; i++)
		loop_event_free(p->events[i]);
	if (d->base)
		event_base_free(d->base);
}

static int set_up(struct process *p, struct err *err)
{
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a file at its limit is a write that fails */
	raise_file_limit();
	log_start(&p->config);
	int r = open_base(p, err);
	/* Before signals are ours: it may ask for a passphrase, and Ctrl-C is an answer. */
	if (r >= 0 && strcmp(p->config.certs_dir, DAEMON_NO_CERTS))
		r = tls_server_new(p->config.certs_dir, &p->d.tls, err);
	if (r >= 0)
		r = access_new(&p->config, &p->d.access, err);
	if (r < 0)
		return r;
	if (p->d.tls)
		p->d.handshakes = handshakes_new(&p->d);
	open_events(p);
	return open_modules(p, err);
}

int daemon_run(const struct daemon_config *config, daemon_reload_fn reload, void *arg,
	       struct err *err)
{
	struct process p = {.config = *config, .reload = reload, .reload_arg = arg};

	process_prepare();
	p.d.config = &p.config;
	p.d.started_ns = clock_real_ns();
	notify_init(&p.sockets);
	process_become_init();
	int r = sandbox_prepare(&p.config, &p.d.sandbox, err);
	if (r >= 0)
		r = set_up(&p, err);
	if (r >= 0) {
		log_info("ready");
		notify_send("READY=1\nSTATUS=ready");
		process_release_startup_memory();
		if (event_base_dispatch(p.d.base) < 0)
			r = err_set(err, -EIO, "the event loop failed");
	}
	close_all(&p);
	if (r >= 0)
		log_info("ended");
	return r;
}
