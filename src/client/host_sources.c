/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/hosts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/subprocess.h"

#define HOSTS_FILE_MAX (16u << 20)

static int from_file(const struct host_source *f, struct host_list *out, struct err *err)
{
	const char *path = !strcmp(f->hosts_file, "-") ? "/dev/stdin" : f->hosts_file;
	struct buf text = {0};
	struct err why = {0};

	int r = fs_read_file(path, HOSTS_FILE_MAX, &text, err);
	if (r == 0 && host_list_add_lines(out, buf_str(&text), text.len, f->port, &why) < 0)
		r = err_set(err, why.code, "hosts file '%s': %s", f->hosts_file, why.text);
	buf_release(&text);
	return r;
}

/* Adds nodes as Slurm writes them, "node[1-4]", unless there are none yet. */
static void add_nodes(struct buf *nodes, const char *text, size_t len)
{
	while (len && (text[len - 1] == ' ' || text[len - 1] == '\r'))
		len--;
	if (!len || (len == 6 && !strncmp(text, "(null)", 6)))
		return;
	if (nodes->len)
		buf_add_char(nodes, ',');
	buf_add(nodes, text, len);
}

/* What a program says about it: a thousand pods are a few MiB. */
static int run_query(const char *const *argv, const struct host_source *f, struct buf *out,
		     struct err *err)
{
	const struct run_options o = {.timeout_ms = f->timeout_s * 1000, .max_bytes = 64u << 20};

	return run_program(argv, &o, out, err);
}

/* Nothing while the job waits. Each task of an array has a line of its own. */
static int slurm_nodes(const struct host_source *f, struct buf *nodes, struct err *err)
{
	const char *squeue[] = {"squeue", "-h", "-j", f->slurm_job, "-o", "%N", NULL};
	const char *scontrol[] = {"scontrol", "show", "job", "-o", f->slurm_job, NULL};
	static const char key[] = " NodeList=";
	struct buf output = {0};
	struct err why = {0};

	int r = run_query(squeue, f, &output, &why);
	for (const char *at = buf_str(&output); r == 0 && *at; at += *at == '\n') {
		size_t len = strcspn(at, "\n");

		add_nodes(nodes, at, len);
		at += len;
	}
	buf_clear(&output);
	/* a job that has just ended is gone from the queue, but still known */
	if (!nodes->len && run_query(scontrol, f, &output, NULL) == 0) {
		const char *at = buf_str(&output);

		r = 0;
		while ((at = strstr(at, key))) {
			at += strlen(key);
			add_nodes(nodes, at, strcspn(at, " \n"));
		}
	}
	buf_release(&output);
	return r < 0 ? err_set(err, r, "%s", why.text) : 0;
}

static int from_slurm(const struct host_source *f, struct host_list *out, struct err *err)
{
	struct buf nodes = {0};
	struct err why = {0};

	if (!*f->slurm_job || strspn(f->slurm_job, "0123456789_+.") != strlen(f->slurm_job))
		return err_set(err, -EINVAL, "'%s' is not the number of a Slurm job", f->slurm_job);
	int r = slurm_nodes(f, &nodes, err);
	if (r == 0 && !nodes.len)
		r = err_set(err, -ENOENT, "Slurm job %s has no nodes now: is it running?",
			    f->slurm_job);
	else if (r == 0 && host_list_add(out, buf_str(&nodes), f->port, &why) < 0)
		r = err_set(err, -EIO, "nodes of Slurm job %s: %s", f->slurm_job, why.text);
	buf_release(&nodes);
	return r;
}

static int from_kubernetes(const struct host_source *f, struct host_list *out, struct err *err)
{
	char *selector = xasprintf("--selector=%s", f->k8s_selector);
	char *namespace = f->k8s_namespace ? xasprintf("--namespace=%s", f->k8s_namespace) : NULL;
	const char *argv[] = {"kubectl", "get", "pods", "-o", "json", selector, namespace, NULL};
	struct buf output = {0};
	struct err why = {0};
	size_t before = out->n;

	int r = run_query(argv, f, &output, err);
	r = r ?: host_list_add_pods(out, buf_str(&output), output.len, f->port, &why);
	if (r < 0 && why.code)
		r = err_set(err, -EIO, "pods with '%s': %s", f->k8s_selector, why.text);
	if (r == 0 && out->n == before)
		r = err_set(err, -ENOENT, "no running pod with an address matches '%s'",
			    f->k8s_selector);
	buf_release(&output);
	free(selector);
	free(namespace);
	return r;
}

int host_list_find(const struct host_source *f, struct host_list *out, struct err *err)
{
	int r = 0;

	if (f->hostname)
		r = host_list_add(out, f->hostname, f->port, err);
	if (r == 0 && f->hosts_file)
		r = from_file(f, out, err);
	if (r == 0 && f->slurm_job)
		r = from_slurm(f, out, err);
	if (r == 0 && f->k8s_selector)
		r = from_kubernetes(f, out, err);
	if (r == 0 && !out->n && f->hosts_file)
		r = err_set(err, -ENOENT, "hosts file '%s' names no host", f->hosts_file);
	if (r == 0 && !out->n)
		r = host_list_add(out, "localhost", f->port, err);
	return r;
}
