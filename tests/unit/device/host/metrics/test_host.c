/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The "kernel" source over files that the test writes. */
#include "device/host/metrics/host.h"

#include "base/fs.h"
#include "test.h"
#include "tmpdir.h"

#include <errno.h>
#include <math.h>

static void put(const char *name, const char *text)
{
	const char *path = tmpfile_path(name);
	char *dir = strdup(path);

	*strrchr(dir, '/') = '\0';
	CHECK_INT(fs_mkdirs(dir, NULL), 0);
	/* In place, as the kernel's files change: they stay open. */
	FILE *f = fopen(path, "w");
	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
	free(dir);
}

static struct metric seen[512];
static char names[512][80];
static size_t nseen;

static void remember(void *arg, const struct sample *s)
{
	(void)arg;
	CHECK_STR(s->source, "kernel");
	CHECK(s->time_ns > 0 && s->device == SAMPLE_NO_DEVICE);
	CHECK(s->n <= 512);
	nseen = s->n;
	for (size_t i = 0; i < s->n; i++) {
		const struct metric *m = &s->metrics[i];

		seen[i] = *m;
		snprintf(names[i], sizeof(names[i]), "%s%s%s", m->name, m->instance ? "." : "",
			 m->instance ? m->instance : "");
	}
}

static const struct metric *find(const char *name)
{
	for (size_t i = 0; i < nseen; i++)
		if (!strcmp(names[i], name))
			return &seen[i];
	return NULL;
}

static void is_int(const char *name, long long want)
{
	const struct metric *m = find(name);

	if (!m)
		fprintf(stderr, "%s is not there\n", name);
	CHECK(m && m->type != METRIC_FLOAT && m->type != METRIC_TEXT);
	CHECK_INT(m->i, want);
}

static void is_float(const char *name, double want)
{
	const struct metric *m = find(name);

	if (!m || m->type != METRIC_FLOAT || fabs(m->f - want) > 1e-6)
		fprintf(stderr, "%s: want %f, is %f\n", name, want, m ? m->f : -1);
	CHECK(m && m->type == METRIC_FLOAT && fabs(m->f - want) < 1e-6);
}

static void *open_it(const struct metrics_options *o)
{
	void *h = NULL;

	CHECK_INT(host_metrics_open_at(tmpdir(), o, &h, NULL), 0);
	return h;
}

static void round_of(void *h)
{
	struct err err = {0};

	nseen = 0;
	CHECK_INT(host_metrics.read(h, remember, NULL, &err), 0);
}

static const struct metrics_options plain;

TEST(host_metrics, gauges_of_the_first_round)
{
	put("proc/uptime", "12345.67 999.00\n");
	put("proc/meminfo", "MemTotal:        2048 kB\nMemFree: 100 kB\nMemAvailable:    512 kB\n"
			    "SwapTotal:  64 kB\nSwapFree:  60 kB\n");
	put("proc/loadavg", "0.25 1.50 12.07 2/345 6789\n");
	put("proc/stat", "cpu  10 0 10 80 0 0 0 0 0 0\n");
	put("proc/net/dev", "h|x\n face |b\n lo: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n");
	void *h = open_it(&plain);

	round_of(h);
	is_int("uptime", 12345);
	is_int("mem_total", 2048 * 1024);
	is_int("mem_available", 512 * 1024);
	is_int("mem_used", 1536 * 1024);
	is_int("swap_total", 64 * 1024);
	is_int("swap_used", 4 * 1024);
	is_float("load_1m", 0.25);
	is_float("load_5m", 1.5);
	is_float("load_15m", 12.07);
	CHECK_INT(nseen, 9); /* nothing that needs a round before */
	host_metrics.close(h);
}

TEST(host_metrics, processor_time)
{
	long hz = sysconf(_SC_CLK_TCK);

	put("proc/uptime", "1.0 1.0\n");
	put("proc/stat", "cpu  1000 100 200 5000 50 5 6 7 8 9\ncpu0 1 1 1 1\nintr 5 6 7\n");
	void *h = open_it(&plain);
	round_of(h);
	/* u+40 n+2 s+20 i+30 w+4 x+1 y+1 z+2 = 100 in all; guest 3 and 1 are in u and n */
	put("proc/stat", "cpu  1040 102 220 5030 54 6 7 9 11 10\ncpu0 1 1 1 1\nintr 5 6 7\n");
	round_of(h);
	is_float("cpu_u", 40);
	is_float("cpu_s", 20);
	is_float("cpu_i", 30);
	is_float("cpu_util", 70);
	is_float("cpu_guest", 3);
	is_float("cpu_guest_nice", 1);
	is_int("cpu_u_ms", 40 * 1000 / hz);
	is_int("cpu_s_ms", 20 * 1000 / hz);
	is_int("cpu_w_ms", 4 * 1000 / hz);
	is_int("cpu_n_ms", 2 * 1000 / hz);
	is_int("cpu_x_ms", 1 * 1000 / hz);
	is_int("cpu_y_ms", 1 * 1000 / hz);
	is_int("cpu_z_ms", 2 * 1000 / hz); /* steal, not guest */
	is_int("cpu_guest_ms", 3 * 1000 / hz);
	is_int("cpu_guest_nice_ms", 1 * 1000 / hz);
	CHECK(!find("cpu_u_node0"));

	round_of(h); /* not a tick later: no percentages of nothing */
	CHECK(!find("cpu_u") && !find("cpu_u_ms") && find("uptime"));

	/* Idle time went back, as kernels let it. */
	put("proc/stat", "cpu  1090 102 270 5000 54 6 7 9 11 10\n");
	round_of(h);
	is_float("cpu_i", 0);
	is_float("cpu_u", 50);
	host_metrics.close(h);
}

TEST(host_metrics, an_old_kernel_tells_fewer_columns)
{
	put("proc/uptime", "1.0 1.0\n");
	put("proc/stat", "cpu  10 0 10 80\n");
	void *h = open_it(&plain);
	round_of(h);
	put("proc/stat", "cpu  20 0 20 160\n");
	round_of(h);
	is_float("cpu_util", 20);
	is_int("cpu_z_ms", 0);
	host_metrics.close(h);
}

TEST(host_metrics, memory_nodes)
{
	put("proc/uptime", "1.0 1.0\n");
	put("sys/devices/system/node/online", "0,2-3\n");
	put("sys/devices/system/node/node0/cpulist", "0,2\n");
	put("sys/devices/system/node/node2/cpulist", "1,3-3\n");
	put("sys/devices/system/node/node3/cpulist", "\n"); /* memory only */
	put("proc/stat", "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0\n"
			 "cpu3 0 0 0 0\nctxt 1\n");
	void *h = open_it(&plain);
	round_of(h);
	put("proc/stat", "cpu  60 0 20 320 0 0 0 0\ncpu0 50 0 10 40\ncpu1 10 0 10 80\n"
			 "cpu2 0 0 0 100\ncpu3 0 0 0 100\nctxt 1\n");
	round_of(h);
	is_float("cpu_u_node0", 25);
	is_float("cpu_s_node0", 5);
	is_float("cpu_i_node0", 70);
	is_float("cpu_u_node2", 5);
	is_float("cpu_i_node2", 90);
	CHECK(!find("cpu_u_node3") && !find("cpu_u_node1"));
	host_metrics.close(h);
}

#define NET_HEAD                                                                                   \
	"Inter-|   Receive                            |  Transmit\n"                               \
	" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n"

TEST(host_metrics, interfaces)
{
	put("proc/uptime", "1.0 1.0\n");
	put("proc/net/dev", NET_HEAD "    lo: 100 10 1 0 0 0 0 0 100 10 1 0 0 0 0 0\n"
				     "  eth0:5000 50 2 3 0 0 0 0 900 9 0 4 0 0 0 0\n"
				     "  an_interface_too_long: 1 1 1 1 0 0 0 0 1 1 1 1 0 0 0 0\n");
	void *h = open_it(&plain);
	round_of(h);
	CHECK(!find("rx_bytes.lo"));
	put("proc/net/dev", NET_HEAD "  eth1: 77 7 0 0 0 0 0 0 77 7 0 0 0 0 0 0\n"
				     "    lo: 90 11 1 0 0 0 0 0 150 12 2 5 0 0 0 0\n"
				     "  eth0:6000 60 2 4 0 0 0 0 1000 10 0 4 0 0 0 0\n"
				     "  an_interface_too_long: 2 2 2 2 0 0 0 0 2 2 2 2 0 0 0 0\n");
	round_of(h);
	is_int("rx_bytes.eth0", 1000);
	is_int("rx_packets.eth0", 10);
	is_int("rx_errors.eth0", 0);
	is_int("rx_drops.eth0", 1);
	is_int("tx_bytes.eth0", 100);
	is_int("tx_packets.eth0", 1);
	is_int("tx_errors.eth0", 0);
	is_int("tx_drops.eth0", 0);
	is_int("rx_bytes.lo", 0); /* was set back */
	is_int("tx_drops.lo", 5);
	is_int("rx_bytes.eth1", 0); /* just appeared */
	CHECK(!find("rx_bytes.an_interface_too_long") && !find("rx_bytes.an_interface_to"));
	host_metrics.close(h);
}

TEST(host_metrics, only_the_interfaces_asked_for)
{
	const struct metrics_options o = {.filter_nics = true, .nic_prefixes = "eno,,eth"};

	put("proc/uptime", "1.0 1.0\n");
	put("proc/net/dev", " lo: 1 1 1 1 0 0 0 0 1 1 1 1 0 0 0 0\n"
			    " eth0: 1 1 1 1 0 0 0 0 1 1 1 1 0 0 0 0\n"
			    " eno7: 1 1 1 1 0 0 0 0 1 1 1 1 0 0 0 0\n");
	void *h = open_it(&o);
	round_of(h);
	round_of(h);
	CHECK(find("rx_bytes.eth0") && find("tx_drops.eno7") && !find("rx_bytes.lo"));
	host_metrics.close(h);
}

TEST(host_metrics, disks)
{
	put("proc/uptime", "1.0 1.0\n");
	put("sys/block/sda/size", "1\n");
	put("sys/block/cciss!c0d0/size", "1\n");
	put("proc/diskstats", "   8 0 sda 10 0 100 5 20 0 200 5 0 1000 10\n"
			      "   8 1 sda1 10 0 100 5 20 0 200 5 0 1000 10\n"
			      " 104 0 cciss/c0d0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
			      "   7 0 loop0 1 0 8 0 0 0 0 0 0 0 0\n");
	void *h = open_it(&plain);
	round_of(h);
	CHECK(!find("disk_read_bytes.sda"));
	put("proc/diskstats", "   8 0 sda 11 0 108 5 21 0 216 5 0 99999999 10\n"
			      "   8 1 sda1 11 0 108 5 21 0 216 5 0 99999999 10\n"
			      " 104 0 cciss/c0d0 0 0 2 0 0 0 0 0 0 0 0 0 0 0\n"
			      "   7 0 loop0 2 0 16 0 0 0 0 0 0 0 0\n");
	round_of(h);
	is_int("disk_read_bytes.sda", 8 * 512);
	is_int("disk_write_bytes.sda", 16 * 512);
	is_float("disk_util.sda", 100);
	is_int("disk_read_bytes.cciss/c0d0", 1024);
	is_float("disk_util.cciss/c0d0", 0);
	CHECK(!find("disk_read_bytes.sda1") && !find("disk_read_bytes.loop0"));
	host_metrics.close(h);
}

TEST(host_metrics, odd_files_hurt_nobody)
{
	static const char *const files[] = {"proc/uptime",
					    "proc/stat",
					    "proc/net/dev",
					    "proc/meminfo",
					    "proc/diskstats",
					    "proc/loadavg",
					    "sys/devices/system/node/online",
					    NULL};
	static const char *const oddities[] = {
		"",
		"\n",
		"\n\n\n",
		"cpu",
		"cpu \n",
		"cpu0\n",
		"cpu99999999999999999999 1 2 3 4\n",
		"cpu 1 2 3",
		"cpu 18446744073709551616 1 1 1\n",
		":",
		":::\n",
		" x:\n",
		"x: 1 2 3",
		"8 0",
		"8 0 sda\n",
		"8 0 .. 1 2 3 4 5 6 7 8 9 10 11\n",
		"MemTotal:\nMemAvailable:",
		"MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n",
		"0-",
		"0-99999999999,",
		"5-1,1-5",
		"1.",
		"1.234 5.67",
		"-1.0 2.0",
		"\xff\xfe\xfd",
		"a b c d e f g h\n"};

	for (size_t i = 0; i < sizeof(oddities) / sizeof(oddities[0]); i++) {
		for (int k = 0; files[k]; k++)
			put(files[k], oddities[i]);
		void *h = open_it(&plain);

		for (int n = 0; n < 2; n++) {
			int r = host_metrics.read(h, remember, NULL, NULL);
			CHECK(r == 0 || r == -EIO);
		}
		host_metrics.close(h);
	}
}

TEST(host_metrics, files_that_are_not_there)
{
	struct err err = {0};
	void *h = NULL;

	CHECK_INT(host_metrics_open_at(tmpdir(), &plain, &h, &err), -ENOENT);
	CHECK(strstr(err.text, "/proc/uptime"));
	put("proc/uptime", "5.0 5.0\n");
	h = open_it(&plain);
	round_of(h);
	CHECK_INT(nseen, 1);
	put("proc/loadavg", "1.00 2.00 3.00 1/2 3\n"); /* appears later */
	round_of(h);
	CHECK_INT(nseen, 4);
	CHECK(unlink(tmpfile_path("proc/uptime")) == 0); /* still open: goes on */
	round_of(h);
	CHECK_INT(nseen, 4);
	host_metrics.close(h);
}

TEST(host_metrics, this_machine)
{
	void *h = NULL;

	CHECK_INT(host_metrics.open(&h, &plain, NULL), 0);
	round_of(h);
	round_of(h);
	CHECK(find("uptime") && find("mem_total"));
	host_metrics.close(h);
}

TEST(perf_metrics, counts_or_says_why_not)
{
	struct err err = {0};
	void *p = NULL;
	int r = perf_metrics.open(&p, &plain, &err);

	if (r < 0) {
		CHECK(r == -ENOENT || r == -EACCES);
		CHECK(strstr(err.text, "counters") || strstr(err.text, "CAP_PERFMON"));
		NEEDS(false, "perf-counters", err.text);
	}
	perf_metrics.close(p);
}
