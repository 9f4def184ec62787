/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities for the tests of their writers and readers, and a directory for the files. */
#ifndef SONDE_TESTS_UNIT_ACTIVITY_SAMPLES_H
#define SONDE_TESTS_UNIT_ACTIVITY_SAMPLES_H

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activity/files/activity.h"
#include "test.h"

#define T0 1794723775000000000ull

static const struct activity_origin origin = {.pid = 4711, .rank = 3, .start_ns = T0};

static inline struct activity activity_of(uint8_t kind, const char *name, uint64_t start)
{
	return (struct activity){.kind = kind,
				 .name = name,
				 .detail = "",
				 .more = "",
				 .start_ns = T0 + start,
				 .end_ns = T0 + start + 500,
				 .place = ACTIVITY_ON_DEVICE,
				 .device = 1,
				 .stream = 2,
				 .correlation = 103};
}

static inline struct activity kernel_of(const char *name, uint64_t start)
{
	struct activity a = activity_of(ACTIVITY_KERNEL, name, start);

	a.detail = "KERNEL_AICORE";
	return a;
}

static inline void on_host(struct activity *a)
{
	a->place = ACTIVITY_ON_HOST;
	a->pid = 4711;
	a->tid = 88;
	a->device = a->stream = ACTIVITY_NOWHERE;
}

static inline struct activity api_of(uint8_t kind, const char *name, uint64_t start)
{
	struct activity a = activity_of(kind, name, start);

	on_host(&a);
	return a;
}

static inline struct activity mark_of(uint8_t place, uint8_t flag, const char *name, uint64_t id)
{
	struct activity a = activity_of(ACTIVITY_MARKER, name, 0);

	a.place = place;
	a.flag = flag;
	a.detail = "default";
	a.correlation = id;
	if (place == ACTIVITY_ON_HOST)
		on_host(&a);
	if (flag & (ACTIVITY_MARK_INSTANT | ACTIVITY_MARK_INSTANT_DEVICE))
		a.end_ns = a.start_ns;
	return a;
}

static inline struct activity communication_of(const char *name, const char *group)
{
	struct activity a = activity_of(ACTIVITY_COMMUNICATION, name, 0);

	a.detail = group;
	a.more = "RING";
	a.amount = 1024;
	a.data_type = 4;
	a.stream = 9;
	a.correlation = 55;
	return a;
}

/* One of every kind and place. */
#define ALL_KINDS 14
static inline void all_kinds(struct activity *out)
{
	unsigned n = 0;

	out[n++] = mark_of(ACTIVITY_ON_HOST, ACTIVITY_MARK_START, "step 1", 10);
	out[n++] = mark_of(ACTIVITY_ON_DEVICE, ACTIVITY_MARK_START, "step 1", 10);
	out[n++] = mark_of(ACTIVITY_ON_HOST, ACTIVITY_MARK_INSTANT, "here", 11);
	out[n++] = kernel_of("MatMul_1", 10);
	out[n++] = api_of(ACTIVITY_API, "aclnnMatmul", 1);
	out[n++] = api_of(ACTIVITY_ACL_API, "aclrtLaunch", 2);
	out[n++] = api_of(ACTIVITY_NODE_API, "node", 3);
	out[n++] = api_of(ACTIVITY_RUNTIME_API, "rtKernelLaunch", 4);
	out[n++] = communication_of("hcom_allReduce_", "group_name_0");
	out[n] = activity_of(ACTIVITY_HCCL, "hccl_op", 5);
	out[n].detail = "group_name_0";
	out[n].correlation = 0;
	out[n++].amount = 123456789012ull;
	out[n] = activity_of(ACTIVITY_MEMORY, "", 6);
	out[n].number = 0x7f0000001000ull;
	out[n].flag = 1;
	out[n++].amount = 4096;
	out[n] = activity_of(ACTIVITY_MEMSET, "", 7);
	out[n].number = 255;
	out[n].async = 1;
	out[n++].amount = 65536;
	out[n] = activity_of(ACTIVITY_MEMCPY, "", 8);
	out[n].flag = 2;
	out[n].correlation = UINT64_MAX;
	out[n++].amount = 1048576;
	out[n++] = mark_of(ACTIVITY_ON_DEVICE, ACTIVITY_MARK_INSTANT, "here", 11);
	CHECK_INT(n, ALL_KINDS);
}

static inline char *activity_dir(void)
{
	static char dir[64];

	snprintf(dir, sizeof(dir), "/tmp/sonde_activity_XXXXXX");
	CHECK(mkdtemp(dir));
	return dir;
}

/* How many files are in it; removes them if asked to. */
static inline int activity_dir_walk(const char *dir, int remove_them)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	CHECK(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		if (remove_them)
			unlinkat(dirfd(d), e->d_name, 0);
		n++;
	}
	closedir(d);
	return n;
}

static inline int activity_dir_files(const char *dir)
{
	return activity_dir_walk(dir, 0);
}

/* Removes the directory, and says how many files were in it. */
static inline int activity_dir_remove(const char *dir)
{
	int n = activity_dir_walk(dir, 1);

	CHECK_INT(rmdir(dir), 0);
	return n;
}

#endif
