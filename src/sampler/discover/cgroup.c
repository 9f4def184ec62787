/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/proc.h"
#include "sampler/discover/finder.h"

#define ROOT "/sys/fs/cgroup"
#define PROCS_BYTES (4u << 20)
#define CGROUP_BYTES 16384 /* of /proc/PID/cgroup: a line for each hierarchy */
#define MAX_DEPTH 16
#define MAX_GROUPS 4096
#define SHORTEST_ID 6 /* people write the first twelve digits */

/* The pids in a cgroup.procs; those of other pid namespaces are 0. */
static void add_procs(struct finder *f, const char *group)
{
	struct buf path = {0}, text = {0};

	buf_addf(&path, "%s/cgroup.procs", group);
	if (fs_read_file(buf_str(&path), PROCS_BYTES, &text, NULL) == 0) {
		const char *at = buf_str(&text);
		char *next;

		for (long pid; (pid = strtol(at, &next, 10), next > at); at = next)
			if (pid > 0 && pid <= INT32_MAX)
				finder_add_pid(f, (pid_t)pid);
	}
	buf_release(&path);
	buf_release(&text);
}

/* A group and those inside of it, of which containers make use. */
static void add_group(struct finder *f, const char *group, unsigned depth, unsigned *left)
{
	struct dirent *e;

	if (!*left || depth > MAX_DEPTH)
		return;
	--*left;
	add_procs(f, group);
	DIR *d = opendir(group);
	while (d && (e = readdir(d))) {
		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		char *inner = xasprintf("%s/%s", group, e->d_name);
		add_group(f, inner, depth + 1, left);
		free(inner);
	}
	if (d)
		closedir(d);
}

static bool try_group(struct finder *f, const char *group)
{
	char *procs = xasprintf("%s/cgroup.procs", group);
	unsigned left = MAX_GROUPS;
	bool there = access(procs, R_OK) == 0;

	if (there)
		add_group(f, group, 0, &left);
	free(procs);
	return there;
}

/* Below the root, or below one of the hierarchies of the first version. */
static bool find_path(struct finder *f, const char *name)
{
	struct dirent *e;

	if (name[0] == '/' && try_group(f, name))
		return true;
	while (*name == '/')
		name++;
	char *path = xasprintf("%s/%s", ROOT, name);
	bool found = *name && try_group(f, path);
	free(path);
	DIR *d = found || !*name ? NULL : opendir(ROOT);
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		path = xasprintf("%s/%s/%s", ROOT, e->d_name, name);
		found |= try_group(f, path);
		free(path);
	}
	if (d)
		closedir(d);
	return found;
}

/* Lines are "number:controllers:path"; the id is in a part of the path: docker/ID,
 * docker-ID.scope, cri-containerd-ID.scope, kubepods/…/ID. */
bool cgroup_names_container(const char *text, const char *id)
{
	size_t len = strlen(id);

	if (len < SHORTEST_ID || strchr(id, '\n'))
		return false;
	for (const char *at = text; (at = strstr(at, id)); at++) {
		char before = at > text ? at[-1] : '\n';

		if (strchr("/-:_.", before))
			return true;
	}
	return false;
}

static void find_container(struct finder *f, const char *id)
{
	const struct pid_list *all = finder_all(f);
	char *text = xmalloc(CGROUP_BYTES);

	for (size_t i = 0; i < all->n; i++)
		if (proc_read(all->v[i], "cgroup", text, CGROUP_BYTES) > 0 &&
		    cgroup_names_container(text, id))
			finder_add_pid(f, all->v[i]);
	free(text);
}

void find_cgroup(struct finder *f, const char *name)
{
	if (!find_path(f, name))
		find_container(f, name);
}
