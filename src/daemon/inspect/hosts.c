/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Several hosts on one page: the other daemons are asked by our own program as the user who asks here,
 * with the certificate that this user names and can read. So each of them decides what that user may see,
 * and this daemon lends nobody a right of its own.
 */
#include "daemon/inspect/inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/inspect/inspect_impl.h"
#include "wire/rpc.h"

#define HOSTS_BYTES 2000 /* of their names */
#define PATH_BYTES 1000

static const char *text_of(const json_t *request, const char *key)
{
	const char *text = json_string_value(json_object_get(request, key));

	return text ? text : "";
}

/* Words that are no names of hosts are refused by the program; these are not even passed on. */
const char *inspect_hosts_fault(const struct access_grant *who, const json_t *request)
{
	const char *hosts = text_of(request, "hosts"), *certs = text_of(request, "certs_dir");

	if (who->self == (uid_t)-1)
		return "other hosts are called with your rights, but it is not known which user of "
		       "this machine you are: open the page on the node, or through ssh -L";
	if (!*hosts || strlen(hosts) > HOSTS_BYTES)
		return "name the hosts: node1,node2,node[3-8]";
	if (*certs && (*certs != '/' || strlen(certs) > PATH_BYTES))
		return "the directory with your certificate is an absolute path on this machine";
	return NULL;
}

void inspect_hosts_words(const json_t *request, struct hosts_words *out)
{
	const char *certs = text_of(request, "certs_dir");
	json_int_t port = json_integer_value(json_object_get(request, "port"));

	if (port <= 0 || port > 65535)
		port = RPC_PORT;
	out->list[0] = xasprintf("--hostname=%s", text_of(request, "hosts"));
	out->list[1] = xasprintf("--port=%d", (int)port);
	out->list[2] = *certs ? xasprintf("--certs-dir=%s", certs) : NULL;
}

json_t *inspect_hosts(struct inspect *i, const struct access_grant *who, const json_t *request)
{
	const char *fault = inspect_hosts_fault(who, request);
	json_t *not_here = inspect_not_here(i);
	struct hosts_words w;
	struct err err = {0};
	struct run *r;

	if (not_here || fault)
		return not_here ? not_here : inspect_refuse(fault);
	inspect_hosts_words(request, &w);
	char *about = xasprintf("%s\n%s\n%s", w.list[0], w.list[1], w.list[2] ? w.list[2] : "");
	for (r = i->runs; r; r = r->next)
		if (r->kind == INSPECT_HOSTS && r->uid == who->self && !strcmp(r->about, about) &&
		    (r->fd >= 0 || !inspect_may_try_again(r)))
			break;
	struct inspect_start s = {.words = {"ctl", "watch", "--json", "--ranks", "--interval=2",
					    w.list[0], w.list[1], w.list[2]},
				  .uid = who->self};
	struct run like = {.kind = INSPECT_HOSTS, .uid = who->self, .about = about};
	if (!r)
		r = inspect_run(i, &like, &s, &err);
	for (size_t k = 0; k < HOSTS_WORDS; k++)
		free(w.list[k]);
	free(about);
	if (!r)
		return inspect_refuse(err.text);
	r->asked_ns = clock_mono_ns();
	return inspect_state(r, "hosts", inspect_answer(r), true);
}
