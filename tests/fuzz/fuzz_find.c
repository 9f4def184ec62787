/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What squeue, scontrol and kubectl print. The first byte says which of them fail; a line of "%%"
 * ends what squeue says, and the others say all of it. Hosts that are found have names or addresses
 * and ports, and a failure has words.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/subprocess.h"
#include "client/hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define END_OF_SQUEUE "\n%%\n"

static struct {
	unsigned failing;
	const char *text;
	size_t len;
} said;

/* In place of the one that runs programs. */
int run_program(const char *const *argv, const struct run_options *o, struct buf *out,
		struct err *err)
{
	static const char *const names[] = {"squeue", "scontrol", "kubectl"};
	size_t which = 0, len = said.len;

	(void)o;
	while (strcmp(argv[0], names[which]))
		which++;
	if (said.failing & 1u << which)
		return err_set(err, -EIO, "'%s' failed", argv[0]);
	const char *end = len ? memmem(said.text, len, END_OF_SQUEUE, strlen(END_OF_SQUEUE)) : NULL;
	if (which == 0 && end)
		len = (size_t)(end - said.text);
	buf_add(out, said.text, len);
	return 0;
}

static void find(const struct host_source *f)
{
	struct host_list hosts = {0};
	struct err err = {0};

	int r = host_list_find(f, &hosts, &err);
	BUG_ON(r > 0 || (r < 0) != (err.code < 0) || (r < 0 && !*err.text));
	BUG_ON(r == 0 && !hosts.n);
	BUG_ON(hosts.n > HOST_LIST_MAX);
	for (size_t i = 0; i < hosts.n; i++) {
		const struct host_entry *h = &hosts.v[i];

		BUG_ON(!*h->name || !*h->label || !h->port || h->port > 65535);
		BUG_ON(strpbrk(h->name, " ,[]/\r\n"));
	}
	host_list_release(&hosts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	said.failing = data[0];
	said.text = (const char *)data + 1;
	said.len = size - 1;
	find(&(struct host_source){.slurm_job = "4711", .port = 1778, .timeout_s = 1});
	find(&(struct host_source){.k8s_selector = "app=x", .port = 1778, .timeout_s = 1});
	return 0;
}
