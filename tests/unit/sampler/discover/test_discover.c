/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which processes rules mean, and what /proc says of them. */
#include "sampler/discover/discover.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/proc.h"
#include "device/cuda/metrics/nvidia_smi.h"
#include "sampler/discover/finder.h"
#include "test.h"
#include "tmpdir.h"

/* --- texts --- */

TEST(discover, container_ids)
{
	static const char v1[] =
		"12:memory:/docker/"
		"3f2a9c0d1e55aabbccddeeff00112233445566778899aabbccddeeff00112233\n"
		"11:cpu,cpuacct:/docker/"
		"3f2a9c0d1e55aabbccddeeff00112233445566778899aabbccddeeff00\n";
	static const char v2[] = "0::/kubepods.slice/kubepods-burstable.slice/"
				 "kubepods-pod7c.slice/cri-containerd-3f2a9c0d1e55aabb.scope\n";

	CHECK(cgroup_names_container(v1, "3f2a9c0d1e55"));
	CHECK(cgroup_names_container(v2, "3f2a9c0d1e55"));
	CHECK(!cgroup_names_container(v1, "2a9c0d1e55")); /* not its beginning */
	CHECK(!cgroup_names_container(v1, "3f2a"));
	CHECK(!cgroup_names_container(v2, "docker/3f2a9c0d1e55"));
	CHECK(!cgroup_names_container("0::/\n", "3f2a9c0d1e55"));
	CHECK(!cgroup_names_container("", ""));
}

TEST(discover, nvidia_smi_apps)
{
	struct device_processes d = {0};
	static const char text[] = "12345, 4096\r\n777, [N/A]\n[N/A], 5\n  9 ,7 \n\nNo running "
				   "processes found\n12, 99999999999999999999\n0, 5\n-4, 5\n42";

	nvidia_smi_parse_apps(text, strlen(text), &d);
	CHECK_INT(d.n, 5);
	CHECK_INT(d.list[0].pid, 12345);
	CHECK_INT(d.list[0].bytes, 4096ll << 20);
	CHECK_INT(d.list[0].device, -1);
	CHECK_INT(d.list[1].pid, 777);
	CHECK(d.list[1].bytes == UINT64_MAX);
	CHECK_INT(d.list[2].pid, 9);
	CHECK_INT(d.list[2].bytes, 7 << 20);
	CHECK(d.list[3].pid == 12 && d.list[3].bytes == UINT64_MAX);
	CHECK(d.list[4].pid == 42 && d.list[4].bytes == UINT64_MAX);
	device_processes_release(&d);
}

TEST(discover, nvidia_smi_gpus)
{
	struct nvidia_smi_gpu g[4];
	static const char text[] = "0, 37, 12, 4096, 81559\n1, [N/A], [Not Supported], 5, 81559\n"
				   "2, 101, 3, 9, 8\nx, 1, 2, 3, 4\n3\n4, 1, 1, 1, 1\n";

	CHECK_INT(nvidia_smi_parse_gpus(text, strlen(text), g, 4), 4);
	CHECK(g[0].index == 0 && g[0].utilization == 37 && g[0].memory_utilization == 12);
	CHECK(g[0].memory_used_mb == 4096 && g[0].memory_total_mb == 81559);
	CHECK(g[1].index == 1 && g[1].utilization == -1 && g[1].memory_utilization == -1);
	CHECK(g[1].memory_used_mb == 5);
	CHECK(g[2].index == 2 && g[2].utilization == -1 && g[2].memory_used_mb == -1);
	CHECK(g[3].index == 3 && g[3].memory_utilization == -1 && g[3].memory_total_mb == -1);
	CHECK_INT(nvidia_smi_parse_gpus(NULL, 0, g, 4), 0);
}

/* --- processes --- */

static void wait_in(int fd)
{
	char c;

	while (read(fd, &c, 1) < 0)
		;
	_exit(0);
}

/* Nobody else has it, not even the same test in another build. */
static const char *family_name(void)
{
	static char name[16];

	if (!name[0])
		snprintf(name, sizeof(name), "kin%d", (int)getpid());
	return name;
}

/* A child of that name with two children, the first of which has one, too. All end when the pipe is
 * closed. */
static pid_t family(int pipe_fds[2], int depth)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_NAME, family_name());
	close(pipe_fds[1]);
	if (depth < 2)
		family((int[2]){pipe_fds[0], dup(0)}, depth + 1);
	if (depth == 0 && !fork())
		wait_in(pipe_fds[0]);
	wait_in(pipe_fds[0]);
	return 0;
}

static unsigned find(const struct discover_rules *rules)
{
	struct discovery d = {0};
	struct err err = {0};

	CHECK_INT(discover(rules, &d, &err), 0);
	unsigned n = d.n;
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < i; k++)
			CHECK(d.list[i].pid != d.list[k].pid && d.list[i].pid != getpid());
	discovery_release(&d);
	return n;
}

/* Until the tree has grown. */
static void find_so_many(const struct discover_rules *rules, unsigned n)
{
	for (int i = 0; i < 1000 && find(rules) != n; i++)
		usleep(5000);
	CHECK_INT(find(rules), n);
}

TEST(discover, parents_and_names_and_groups)
{
	int fds[2];

	CHECK(family_name() && pipe(fds) == 0);
	pid_t pid = family(fds, 0);
	find_so_many(&(struct discover_rules){.parents = &pid, .nparents = 1}, 4);
	find_so_many(&(struct discover_rules){.pids = &pid, .npids = 1, .children = true}, 4);
	CHECK_INT(find(&(struct discover_rules){.pids = &pid, .npids = 1}), 1);
	/* The same again, and rules that add up. */
	pid_t twice[] = {pid, pid, getpid(), 0, -5};
	CHECK_INT(find(&(struct discover_rules){.pids = twice, .npids = 5}), 1);
	const char *name[] = {family_name()};
	find_so_many(&(struct discover_rules){.names = name, .nnames = 1}, 4);
	CHECK_INT(find(&(struct discover_rules){
			  .names = name, .nnames = 1, .parents = &pid, .nparents = 1}),
		  4);
	const char *nobody[] = {"no-such-name-anywhere", ""};
	CHECK_INT(find(&(struct discover_rules){.names = nobody, .nnames = 2}), 0);
	/* A group is a directory with a file of pids, and with groups in it. */
	const char *group = tmpfile_path("group"), *inner = tmpfile_path("group/inner");
	CHECK(mkdir(group, 0700) == 0 && mkdir(inner, 0700) == 0);
	FILE *f = fopen(tmpfile_path("group/cgroup.procs"), "w");
	CHECK(f && fprintf(f, "%d\n0\n%d\n", (int)pid, (int)getpid()) > 0 && fclose(f) == 0);
	f = fopen(tmpfile_path("group/inner/cgroup.procs"), "w");
	CHECK(f && fprintf(f, "1\n%d\n", (int)pid) > 0 && fclose(f) == 0);
	group = tmpfile_path("group");
	CHECK_INT(find(&(struct discover_rules){.cgroups = &group, .ncgroups = 1}), 2);
	close(fds[1]);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

TEST(discover, who_has_a_device_open)
{
	struct discovery d = {0};
	struct finder f = {.rules = &(struct discover_rules){0}, .out = &d};
	FILE *one = fopen(tmpfile_path("card7"), "w"), *other = fopen(tmpfile_path("card7x"), "w");

	CHECK(one && other);
	find_by_open_file(&f, tmpfile_path("car"));
	CHECK_INT(d.n, 0);
	find_by_open_file(&f, tmpfile_path("card"));
	CHECK_INT(d.n, 1);
	CHECK(d.list[0].pid == getpid() && d.list[0].device == 7);
	hmap_release(&f.seen);
	pid_list_release(&f.all);
	discovery_release(&d);
}

TEST(discover, facts)
{
	struct process_facts f = {0};
	struct err err = {0};
	int fds[2];

	CHECK(pipe(fds) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fds[0], 0);
		close(fds[1]);
		char *argv[] = {(char *)"cat", (char *)"-", NULL};
		char *env[] = {(char *)"RANK=x",  (char *)"SLURM_PROCID=3", (char *)"LOCAL_RANK=1",
			       (char *)"XRANK=8", (char *)"WORLD_SIZE=16",  NULL};
		execve("/bin/cat", argv, env);
		_exit(1);
	}
	for (int i = 0; i < 1000; i++) {
		CHECK_INT(process_facts(pid, NULL, &f, &err), 0);
		if (!strcmp(f.cmdline, "cat -"))
			break;
		process_facts_release(&f);
		usleep(5000);
	}
	CHECK_STR(f.cmdline, "cat -");
	CHECK_INT(f.rank.rank, 3);
	CHECK_INT(f.rank.local_rank, 1);
	CHECK_INT(f.parent, getpid());
	CHECK(f.start_ticks && f.start_ticks == process_start_ticks(pid));
	process_facts_release(&f);
	close(fds[1]);
	while (process_facts(pid, NULL, &f, &err) == 0) { /* a zombie is none */
		process_facts_release(&f);
		usleep(5000);
	}
	waitpid(pid, NULL, 0);
	CHECK_INT(process_facts(pid, NULL, &f, &err), -ESRCH);
	CHECK_INT(process_start_ticks(pid), 0);
}

TEST(discover, no_device)
{
	struct discovery d = {0};
	struct err err = {0};

	setenv("PATH", "/nonexistent", 1);
	if (discover(&(struct discover_rules){.devices = DISCOVER_NPU}, &d, &err) < 0) {
		CHECK_INT(err.code, -ENOENT);
		CHECK(strstr(err.text, "libdcmi.so") && strstr(err.text, "npu-smi"));
	}
	discovery_release(&d);
	if (discover(&(struct discover_rules){.devices = DISCOVER_GPU}, &d, &err) < 0) {
		CHECK_INT(err.code, -ENOENT);
		CHECK(strstr(err.text, "libnvidia-ml.so.1") && strstr(err.text, "nvidia-smi"));
	}
	discovery_release(&d);
	CHECK_INT(discover(&(struct discover_rules){.devices = DISCOVER_AUTO}, &d, &err), 0);
	CHECK(d.found_by[0]);
	discovery_release(&d);
}
