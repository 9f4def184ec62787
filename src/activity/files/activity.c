/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/files/activity.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "wire/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAME_TRIES 1000

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

const char *activity_label(const struct activity *a)
{
	static const char *const copies[] = {"memcpy",	    "memcpy HtoH", "memcpy HtoD",
					     "memcpy DtoH", "memcpy DtoD", "memcpy default"};

	switch (a->kind) {
	case ACTIVITY_MEMSET:
		return "memset";
	case ACTIVITY_MEMORY:
		return activity_word(a, FIELD_OPERATION);
	case ACTIVITY_MEMCPY:
		return copies[a->flag < NCOPY_KINDS ? a->flag : 0];
	default:
		return a->name;
	}
}

bool activity_is_api(uint8_t kind)
{
	return kind < ACTIVITY_KIND_END && ACTIVITY_APIS & ACTIVITY_BIT(kind);
}

bool activity_has_device(const struct activity *a)
{
	return !activity_is_api(a->kind) &&
	       (a->kind != ACTIVITY_MARKER || a->place == ACTIVITY_ON_DEVICE);
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

/* --- fields --- */

#define FIELD_ROW(id, key, title, type, member)                                                    \
	[FIELD_##id] = {key, title, FIELD_##type, offsetof(struct activity, member)},
const struct activity_field activity_fields[FIELDS] = {ACTIVITY_FIELDS(FIELD_ROW)};

uint32_t activity_fields_of(uint8_t kind, uint8_t place)
{
	const uint32_t any = FIELD_BIT(KIND) | FIELD_BIT(START) | FIELD_BIT(END);
	const uint32_t mark =
		FIELD_BIT(NAME) | FIELD_BIT(DOMAIN) | FIELD_BIT(ID) | FIELD_BIT(SOURCE);
	const uint32_t host = any | FIELD_BIT(PID) | FIELD_BIT(TID);
	const uint32_t device = any | FIELD_BIT(DEVICE) | FIELD_BIT(STREAM);
	const uint32_t launched = device | FIELD_BIT(CORRELATION);

	switch (kind) {
	case ACTIVITY_MARKER:
		return mark | (place == ACTIVITY_ON_DEVICE ? device : host);
	case ACTIVITY_KERNEL:
		return launched | FIELD_BIT(NAME) | FIELD_BIT(TYPE);
	case ACTIVITY_API:
	case ACTIVITY_ACL_API:
	case ACTIVITY_NODE_API:
	case ACTIVITY_RUNTIME_API:
		return host | FIELD_BIT(CORRELATION) | FIELD_BIT(NAME);
	case ACTIVITY_HCCL:
		return device | FIELD_BIT(NAME) | FIELD_BIT(COMM_NAME) |
		       FIELD_BIT(BYTES_PER_SECOND);
	case ACTIVITY_MEMORY:
		return launched | FIELD_BIT(OPERATION) | FIELD_BIT(ADDRESS) | FIELD_BIT(BYTES);
	case ACTIVITY_MEMSET:
		return launched | FIELD_BIT(VALUE) | FIELD_BIT(BYTES) | FIELD_BIT(ASYNC);
	case ACTIVITY_MEMCPY:
		return launched | FIELD_BIT(COPY_KIND) | FIELD_BIT(BYTES) | FIELD_BIT(ASYNC);
	case ACTIVITY_COMMUNICATION:
		return launched | FIELD_BIT(NAME) | FIELD_BIT(COMM_NAME) | FIELD_BIT(ALG_TYPE) |
		       FIELD_BIT(DATA_TYPE) | FIELD_BIT(COUNT);
	default:
		return 0;
	}
}

const char *activity_owner_text(const struct activity *a, enum activity_field_id id)
{
	const struct activity_owner *o = a->owner;

	if (!o)
		return "";
	switch (id) {
	case FIELD_LINE:
		return o->line;
	case FIELD_MODEL:
		return o->model;
	case FIELD_MODULE:
		return o->module;
	case FIELD_MODULE_CLASS:
		return o->module_class;
	default:
		return o->backward ? "backward" : "forward";
	}
}

uint32_t activity_owner_fields(const struct activity *a)
{
	static const enum activity_field_id texts[] = {FIELD_LINE, FIELD_MODEL, FIELD_MODULE,
						       FIELD_MODULE_CLASS, FIELD_PASS};
	uint32_t fields = 0;

	if (!a->owner)
		return 0;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (activity_owner_text(a, texts[i])[0])
			fields |= 1u << texts[i];
	return fields;
}

const char *activity_word(const struct activity *a, enum activity_field_id id)
{
	switch (id) {
	case FIELD_KIND:
		return activity_kind_name(a->kind);
	case FIELD_SOURCE:
		return a->place == ACTIVITY_ON_DEVICE ? "Device" : "Host";
	case FIELD_DATA_TYPE:
		return activity_data_type(a->data_type);
	case FIELD_COPY_KIND:
		return activity_copy_kind(a->flag);
	default:
		return a->flag ? "release" : "allocate";
	}
}

/* --- names of files --- */

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
		struct err why = {0};
		int fd = fs_open(path, O_RDWR | O_CREAT | O_EXCL, ACTIVITY_FILE_MODE, &why);

		if (fd >= 0) {
			*last_ms = ms;
			*out_path = path;
			return fd;
		}
		/* somebody of this process has begun one in the same millisecond */
		free(path);
		if (fd != -EEXIST || ms == end) {
			if (err)
				*err = why;
			return fd;
		}
	}
}

const char *activity_category(const struct activity *a)
{
	switch (a->kind) {
	case ACTIVITY_KERNEL:
	case ACTIVITY_COMMUNICATION:
		return "kernel";
	case ACTIVITY_MEMCPY:
		return "gpu_memcpy";
	case ACTIVITY_MEMSET:
		return "gpu_memset";
	case ACTIVITY_RUNTIME_API:
		return "cuda_runtime";
	case ACTIVITY_MARKER:
		return a->place == ACTIVITY_ON_DEVICE ? "gpu_user_annotation" : "user_annotation";
	default:
		return activity_is_api(a->kind) ? "cuda_driver" : "cpu_op";
	}
}
