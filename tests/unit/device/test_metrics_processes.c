/* SPDX-License-Identifier: MulanPSL-2.0 */
/* For whom a device works, from environments. */
#include "device/metrics.h"
#include "device/metrics_processes.h"

#include "test.h"

#include <unistd.h>

static struct device_owner o;

#define PARSE(text) device_owner_parse(text, sizeof(text) - 1, &o)

TEST(metrics_owner, takes_what_it_knows)
{
	PARSE("PATH=/bin\0SLURM_JOB_ID=1234\0USER=alice\0XUSER=bob\0SLURM_JOB_ACCOUNT=lab\0"
	      "SLURM_JOB_PARTITION=gpu\0SLURM_JOB_IDS=9\0");
	CHECK_STR(o.job_id, "1234");
	CHECK_STR(o.username, "alice");
	CHECK_STR(o.slurm_account, "lab");
	CHECK_STR(o.slurm_partition, "gpu");
}

TEST(metrics_owner, odd_environments)
{
	PARSE("");
	CHECK_STR(o.username, "");
	PARSE("USER=");
	CHECK_STR(o.username, "");
	PARSE("\0\0\0USER=eve");
	CHECK_STR(o.username, "eve");
	PARSE("USER=e\nve\0SLURM_JOB_ID=\x1b[2J\0"); /* would upset a log */
	CHECK_STR(o.username, "");
	CHECK_STR(o.job_id, "");
	char text[400] = "USER=";
	memset(text + 5, 'x', sizeof(text) - 5);
	device_owner_parse(text, sizeof(text), &o);
	CHECK_STR(o.username, "");
}

TEST(metrics_owner, nobody)
{
	const uint32_t none[] = {0x7fffffff, 0};
	struct metric_list l = {0};

	device_owner_find(none, 2, &o);
	device_owner_add(&o, &l);
	CHECK_INT(l.n, 0);
	metric_list_release(&l);
}
