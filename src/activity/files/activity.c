/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/files/activity.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_MODE 0640
#define NAME_TRIES 1000
#define ADDRESS_BYTES 6
#define MAX_ADDRESSES 256
#define LOCALLY_ADMINISTERED 2 /* bit of the first byte */

static const struct {
	uint16_t type;
	const char *name;
} data_types[] = {
	{0, "INT8"},	 {1, "INT16"},	  {2, "INT32"},
	{3, "FP16"},	 {4, "FP32"},	  {5, "INT64"},
	{6, "UINT64"},	 {7, "UINT8"},	  {8, "UINT16"},
	{9, "UINT32"},	 {10, "FP64"},	  {11, "BFP16"},
	{12, "INT128"},	 {14, "HIF8"},	  {15, "FP8E4M3"},
	{16, "FP8E5M2"}, {17, "FP8E8M0"}, {65535, "INVALID_TYPE"},
};
#define NDATA_TYPES (sizeof(data_types) / sizeof(data_types[0]))

static const char *const copy_kinds[] = {"UNKNOWN", "HtoH", "HtoD", "DtoH", "DtoD", "DEFAULT"};
#define NCOPY_KINDS (sizeof(copy_kinds) / sizeof(copy_kinds[0]))

bool activity_data_type_at(unsigned i, uint16_t *out_type, const char **out_name)
{
	if (i >= NDATA_TYPES)
		return false;
	*out_type = data_types[i].type;
	*out_name = data_types[i].name;
	return true;
}

const char *activity_data_type(uint16_t type)
{
	for (unsigned i = 0; i < NDATA_TYPES; i++)
		if (data_types[i].type == type)
			return data_types[i].name;
	return "INVALID_TYPE";
}

bool activity_data_type_find(const char *name, uint16_t *out)
{
	for (unsigned i = 0; i < NDATA_TYPES; i++) {
		if (strcmp(data_types[i].name, name))
			continue;
		*out = data_types[i].type;
		return true;
	}
	return false;
}

const char *activity_copy_kind(uint8_t flag)
{
	return copy_kinds[flag < NCOPY_KINDS ? flag : 0];
}

bool activity_copy_kind_find(const char *name, uint8_t *out)
{
	for (uint8_t i = 0; i < NCOPY_KINDS; i++) {
		if (strcmp(copy_kinds[i], name))
			continue;
		*out = i;
		return true;
	}
	return false;
}

bool activity_is_api(uint8_t kind)
{
	return kind < ACTIVITY_KIND_END && ACTIVITY_APIS & ACTIVITY_BIT(kind);
}

bool activity_is_instant(const struct activity *a)
{
	return a->kind == ACTIVITY_MARKER &&
	       a->flag & (ACTIVITY_MARK_INSTANT | ACTIVITY_MARK_INSTANT_DEVICE);
}

uint64_t activity_ns(const struct activity *a)
{
	return a->end_ns > a->start_ns ? a->end_ns - a->start_ns : 0;
}

uint64_t activity_hash(const char *s)
{
	uint32_t high = 0, low = 0;

	for (; *s; s++) {
		uint32_t c = (uint32_t)(int32_t)(signed char)*s;

		high = high * 29 + c;
		low = low * 131 + c;
	}
	return (uint64_t)high << 32 | low;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

typedef char address_text[2 * ADDRESS_BYTES + 1];

/* Those of one kind, each interface once. */
static unsigned addresses(const struct ifaddrs *list, bool local, address_text *out)
{
	unsigned n = 0;

	for (const struct ifaddrs *i = list; i && n < MAX_ADDRESSES; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_PACKET ||
		    i->ifa_flags & IFF_LOOPBACK)
			continue;
		struct sockaddr_ll ll;
		memcpy(&ll, i->ifa_addr, sizeof(ll));
		if (ll.sll_halen != ADDRESS_BYTES ||
		    local != ((ll.sll_addr[0] & LOCALLY_ADMINISTERED) != 0))
			continue;
		for (unsigned b = 0; b < ADDRESS_BYTES; b++)
			snprintf(out[n] + 2 * b, 3, "%02x", ll.sll_addr[b]);
		n++;
	}
	qsort(out, n, sizeof(*out), by_text);
	return n;
}

uint64_t activity_host_uid(void)
{
	address_text *all = xcalloc(MAX_ADDRESSES, sizeof(*all));
	struct ifaddrs *list = NULL;
	struct buf joined = {0};

	if (getifaddrs(&list) < 0)
		list = NULL;
	unsigned n = addresses(list, false, all);
	if (!n)
		n = addresses(list, true, all);
	for (unsigned i = 0; i < n; i++)
		buf_addf(&joined, "%s%s", i ? "-" : "", all[i]);
	uint64_t uid = activity_hash(buf_str(&joined));
	buf_release(&joined);
	freeifaddrs(list);
	free(all);
	return uid;
}

void activity_host_name(struct buf *out)
{
	char name[256];

	if (gethostname(name, sizeof(name)) < 0)
		name[0] = '\0';
	name[sizeof(name) - 1] = '\0';
	buf_add_str(out, name);
}

static char *file_path(const char *dir, const struct activity_origin *who, uint64_t ms,
		       const char *suffix)
{
	time_t seconds = (time_t)(ms / 1000);
	char text[32] = "";
	struct tm tm;

	if (localtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y%m%d%H%M%S", &tm);
	return xasprintf("%s/" ACTIVITY_FILE_PREFIX "%u_%s%03u_%d.%s", dir, who->pid, text,
			 (unsigned)(ms % 1000), who->rank, suffix);
}

int activity_file_new(const char *dir, const struct activity_origin *who, const char *suffix,
		      uint64_t *last_ms, char **out_path, struct err *err)
{
	uint64_t ms = (uint64_t)clock_real_ns() / 1000000;
	int r = fs_mkdirs(dir, err);

	if (r < 0)
		return r;
	ms = ms > *last_ms ? ms : *last_ms + 1;
	for (uint64_t end = ms + NAME_TRIES;; ms++) {
		char *path = file_path(dir, who, ms, suffix);
		int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);

		if (fd >= 0) {
			*last_ms = ms;
			*out_path = path;
			return fd;
		}
		/* somebody of this process has begun one in the same millisecond */
		if (errno != EEXIST || ms == end)
			r = err_sys(err, -errno, "cannot create '%s'", path);
		free(path);
		if (r < 0)
			return r;
	}
}

#define AT(member) offsetof(struct activity, member)
#define KIND                                                                                       \
	{                                                                                          \
		"kind", FIELD_KIND, AT(kind)                                                       \
	}
#define START                                                                                      \
	{                                                                                          \
		"startNs", FIELD_U64, AT(start_ns)                                                 \
	}
#define END                                                                                        \
	{                                                                                          \
		"endNs", FIELD_U64, AT(end_ns)                                                     \
	}
#define DEVICE                                                                                     \
	{                                                                                          \
		"deviceId", FIELD_U32, AT(device)                                                  \
	}
#define STREAM                                                                                     \
	{                                                                                          \
		"streamId", FIELD_U32, AT(stream)                                                  \
	}
#define NAME                                                                                       \
	{                                                                                          \
		"name", FIELD_TEXT, AT(name)                                                       \
	}
#define CORRELATION                                                                                \
	{                                                                                          \
		"correlationId", FIELD_U64, AT(correlation)                                        \
	}
#define BYTES                                                                                      \
	{                                                                                          \
		"bytes", FIELD_U64, AT(amount)                                                     \
	}
#define ASYNC                                                                                      \
	{                                                                                          \
		"async", FIELD_BOOL, AT(async)                                                     \
	}
#define LAST                                                                                       \
	{                                                                                          \
		NULL, FIELD_U64, 0                                                                 \
	}

static const struct activity_field api[] = {
	CORRELATION,
	END,
	KIND,
	NAME,
	{"processId", FIELD_U32, AT(pid)},
	START,
	{"threadId", FIELD_U32, AT(tid)},
	LAST,
};
static const struct activity_field kernel[] = {
	CORRELATION, DEVICE, END, KIND, NAME, START, STREAM, {"type", FIELD_TEXT, AT(detail)}, LAST,
};
static const struct activity_field communication[] = {
	{"algType", FIELD_TEXT, AT(more)},
	{"commName", FIELD_TEXT, AT(detail)},
	CORRELATION,
	{"count", FIELD_U64, AT(amount)},
	{"dataType", FIELD_DATA_TYPE, AT(data_type)},
	DEVICE,
	END,
	KIND,
	NAME,
	START,
	STREAM,
	LAST,
};
static const struct activity_field host_mark[] = {
	{"domain", FIELD_TEXT, AT(detail)},
	END,
	{"id", FIELD_U64, AT(correlation)},
	KIND,
	NAME,
	{"processId", FIELD_U32, AT(pid)},
	{"sourceKind", FIELD_SOURCE, AT(place)},
	START,
	{"threadId", FIELD_U32, AT(tid)},
	LAST,
};
static const struct activity_field device_mark[] = {
	DEVICE,
	{"domain", FIELD_TEXT, AT(detail)},
	END,
	{"id", FIELD_U64, AT(correlation)},
	KIND,
	NAME,
	{"sourceKind", FIELD_SOURCE, AT(place)},
	START,
	STREAM,
	LAST,
};
static const struct activity_field hccl[] = {
	{"bytesPerSecond", FIELD_U64, AT(amount)},
	{"commName", FIELD_TEXT, AT(detail)},
	DEVICE,
	END,
	KIND,
	NAME,
	START,
	STREAM,
	LAST,
};
static const struct activity_field memory[] = {
	{"address", FIELD_U64, AT(number)},	  BYTES, CORRELATION, DEVICE, END, KIND,
	{"operation", FIELD_OPERATION, AT(flag)}, START, STREAM,      LAST,
};
static const struct activity_field set[] = {
	ASYNC,	BYTES,	CORRELATION,
	DEVICE, END,	KIND,
	START,	STREAM, {"value", FIELD_U64, AT(number)},
	LAST,
};
static const struct activity_field copy[] = {
	ASYNC,	     BYTES,  {"copyKind", FIELD_COPY_KIND, AT(flag)},
	CORRELATION, DEVICE, END,
	KIND,	     START,  STREAM,
	LAST,
};

const struct activity_field *activity_fields(uint8_t kind, uint8_t place)
{
	switch (kind) {
	case ACTIVITY_MARKER:
		return place == ACTIVITY_ON_DEVICE ? device_mark : host_mark;
	case ACTIVITY_KERNEL:
		return kernel;
	case ACTIVITY_API:
	case ACTIVITY_ACL_API:
	case ACTIVITY_NODE_API:
	case ACTIVITY_RUNTIME_API:
		return api;
	case ACTIVITY_HCCL:
		return hccl;
	case ACTIVITY_MEMORY:
		return memory;
	case ACTIVITY_MEMSET:
		return set;
	case ACTIVITY_MEMCPY:
		return copy;
	case ACTIVITY_COMMUNICATION:
		return communication;
	default:
		return NULL;
	}
}
