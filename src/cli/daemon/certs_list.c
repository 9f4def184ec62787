/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/daemon/certs_list.h"

#include <jansson.h>
#include <stdlib.h>

#include "net/tls/certificate.h"

static int add_issued(void *arg, const struct certs_issued *i, struct err *err)
{
	char until[TLS_TIME_BYTES];
	struct buf hosts = {0};

	(void)err;
	tls_hosts_of(i->x, ",", &hosts);
	tls_time_text(X509_get0_notAfter(i->x), until);
	const char *state = i->revoked						 ? "revoked"
			    : X509_cmp_time(X509_get0_notAfter(i->x), NULL) <= 0 ? "expired"
										 : "valid";
	json_array_append_new(arg, json_pack("{s:s, s:s, s:s, s:s}", "set", i->set, "state", state,
					     "not_after", until, "hosts", buf_str(&hosts)));
	buf_release(&hosts);
	return 0;
}

static void list_text(const json_t *list, struct buf *text)
{
	const json_t *v;
	size_t at;

	json_array_foreach(list, at, v)
	{
		const char *hosts = json_string_value(json_object_get(v, "hosts"));

		buf_addf(text, "%-24s %-8s until %s%s%s\n",
			 json_string_value(json_object_get(v, "set")),
			 json_string_value(json_object_get(v, "state")),
			 json_string_value(json_object_get(v, "not_after")), *hosts ? "  " : "",
			 hosts);
	}
}

int certs_list(struct certs *c, bool json, struct buf *out, struct err *err)
{
	json_t *all = json_array();

	int r = certs_each_issued(c, add_issued, all, err);
	if (r == 0 && json) {
		char *dump = json_dumps(all, JSON_INDENT(2));

		buf_addf(out, "%s\n", dump ? dump : "[]");
		free(dump);
	} else if (r == 0) {
		list_text(all, out);
	}
	json_decref(all);
	return r;
}
