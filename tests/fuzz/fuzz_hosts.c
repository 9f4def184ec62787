/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Host lists, files of them, and the pods of a kubectl answer. What is taken must be a name or an
 * address with a port, and all of it must be taken again when it is written out as a list.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "client/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_list(const struct host_list *h, struct buf *out)
{
	for (size_t i = 0; i < h->n; i++) {
		const char *name = h->v[i].name;

		BUG_ON(!*name || !*h->v[i].label || !h->v[i].port || h->v[i].port > 65535);
		bool is_unix = !strncmp(name, HOST_UNIX, strlen(HOST_UNIX));

		BUG_ON(strpbrk(name, " ,[]\n") || (!is_unix && strchr(name, '/')));
		if (is_unix)
			buf_addf(out, "%s%s", i ? "," : "", name);
		else
			buf_addf(out, strchr(name, ':') ? "%s[%s]:%u" : "%s%s:%u", i ? "," : "",
				 name, h->v[i].port);
	}
}

/* Checks and releases. */
static void check(struct host_list *h, int r, const struct err *err)
{
	struct host_list again = {0};
	struct buf list = {0};
	struct err why = {0};

	BUG_ON((r < 0) != (err->code < 0));
	BUG_ON(h->n > HOST_LIST_MAX);
	write_list(h, &list);
	if (h->n) {
		BUG_ON(host_list_add(&again, buf_str(&list), 1, &why) < 0);
		BUG_ON(again.n != h->n);
	}
	host_list_release(&again);
	host_list_release(h);
	buf_release(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = xstrndup((const char *)data, size);
	struct host_list list = {0}, lines = {0}, pods = {0};
	struct err err[3] = {0};

	int r = host_list_add(&list, text, 1778, &err[0]);
	check(&list, r, &err[0]);
	r = host_list_add_lines(&lines, (const char *)data, size, 1778, &err[1]);
	check(&lines, r, &err[1]);
	r = host_list_add_pods(&pods, (const char *)data, size, 1778, &err[2]);
	check(&pods, r, &err[2]);
	free(text);
	return 0;
}
