/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Why a call failed, and what to do about it. */
#include <errno.h>
#include <netdb.h>
#include <string.h>

#include "client/client_impl.h"
#include "client/hosts.h"
#include "net/address.h"
#include "net/rpc_frame.h"

#define TLS_ALERT 0x15

const char *client_path_of(const char *host)
{
	const size_t prefix = strlen(HOST_UNIX);

	return strncmp(host, HOST_UNIX, prefix) ? NULL : host + prefix;
}

int client_explain_name(const struct client_attempt *a, int error, struct err *err)
{
	return err_set(err, -EHOSTUNREACH, "cannot find the host '%s': %s; check how it is spelt",
		       a->call->host,
		       error == EAI_SYSTEM ? "error of the system" : gai_strerror(error));
}

int client_explain_connect(const struct client_attempt *a, int error, struct err *err)
{
	bool remote = a->address && !address_is_loopback(a->address->ai_addr);

	if (client_path_of(a->call->host) && (error == ECONNREFUSED || error == ENOENT))
		return err_set(err, -error,
			       "no daemon listens on %s: start one with: sonde daemon "
			       "--enable-ipc-monitor --control-socket %s",
			       a->where, client_path_of(a->call->host));
	if (error == ECONNREFUSED)
		return err_set(err, -error,
			       "connection refused by %s: is the daemon running there? start it "
			       "with: sonde daemon --enable-ipc-monitor%s",
			       a->where,
			       remote ? " (without --certs-dir or --bind it listens to its own "
					"machine alone)"
				      : "");
	if (error == ETIMEDOUT)
		return err_set(err, -error,
			       "no connection to %s in time: is the host up, and does a firewall "
			       "let the port through?",
			       a->where);
	if (error == EMFILE)
		return err_set(err, -error,
			       "no connection to %s: this process may not open more files; raise "
			       "the limit with: ulimit -n",
			       a->where);
	return err_sys(err, -error, "no connection to %s", a->where);
}

int client_explain_late(const struct client_attempt *a, struct err *err)
{
	double seconds = a->run->options->timeout_ms / 1000.0;

	switch (a->phase) {
	case CLIENT_NAMING:
		return err_set(err, -ETIMEDOUT,
			       "the name '%s' was not resolved within %g s: check the name service",
			       a->call->host, seconds);
	case CLIENT_CONNECTING:
		return client_explain_connect(a, ETIMEDOUT, err);
	case CLIENT_GREETING:
		return err_set(err, -ETIMEDOUT,
			       "%s did not finish the TLS handshake within %g s: is it a daemon "
			       "with --certs-dir?",
			       a->where, seconds);
	default:
		return err_set(err, -ETIMEDOUT,
			       "%s took the request but did not answer within %g s: is it a sonde "
			       "daemon, or stopped?",
			       a->where, seconds);
	}
}

int client_explain_closed(const struct client_attempt *a, struct err *err)
{
	const char *fn = json_string_value(json_object_get(a->call->request, "fn"));

	if (!a->run->options->tls && a->in.len && a->in.data[0] == TLS_ALERT)
		return err_set(err, -ECONNRESET,
			       "the daemon at %s wants TLS: say where the certificates are with "
			       "--certs-dir",
			       a->where);
	if (a->in.len)
		return err_set(err, -ECONNRESET,
			       "the daemon at %s ended in the middle of its answer", a->where);
	if (!a->run->options->tls && fn && (!strcmp(fn, "getStatus") || !strcmp(fn, "getVersion")))
		return err_set(err, -ECONNRESET,
			       "%s closed the connection without an answer: it wants TLS "
			       "(--certs-dir), or it is no daemon",
			       a->where);
	return err_set(err, -ECONNRESET,
		       "the daemon at %s closed the connection without an answer: it does not know "
		       "the function '%s' (an older version?)%s",
		       a->where, fn ? fn : "",
		       a->run->options->tls ? "" : ", or it wants TLS (--certs-dir)");
}

int client_explain_no_reply(const struct client_attempt *a, struct err *err)
{
	if (!a->run->options->tls && a->in.len && a->in.data[0] == TLS_ALERT)
		return client_explain_closed(a, err);
	return err_set(err, -EBADMSG,
		       "what %s answered is no reply of a daemon%s%s: check the port", a->where,
		       rpc_frame_foreign(a->in.data, a->in.len) ? ", it speaks " : "",
		       rpc_frame_foreign(a->in.data, a->in.len) ?: "");
}
