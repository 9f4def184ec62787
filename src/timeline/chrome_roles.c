/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "timeline/chrome_roles.h"

#include <stdlib.h>
#include <string.h>

#include "activity/steps/step_split.h"
#include "base/containers/intern.h"

static bool is_category(const char *cat, const char *prefix)
{
	return cat && !strncmp(cat, prefix, strlen(prefix));
}

static enum timeline_role device_role(const char *name, const char *cat, const json_t *args)
{
	const char *kind = json_string_value(json_object_get(args, "kind"));

	if (kind && (!strcmp(kind, "Communication") || !strcmp(kind, "Hccl")))
		return ROLE_COMM;
	if (is_category(cat, "kernel"))
		return split_part_of_kernel(name) == SPLIT_COMM ? ROLE_COMM : ROLE_COMPUTE;
	return is_category(cat, "gpu_mem") ? ROLE_COPY : ROLE_NONE;
}

static enum timeline_role host_role(const char *cat, bool without_end)
{
	if (is_category(cat, "python_function") || without_end)
		return ROLE_PYTHON;
	if (is_category(cat, "cuda_"))
		return ROLE_CALL;
	return is_category(cat, "cpu_op") || is_category(cat, "user_annotation") ? ROLE_RANGE
										 : ROLE_NONE;
}

/* A trace of `sonde stack` has the parts of the name in its arguments, but for the line of the
 * function: "wait_here (src/data.py:15)". */
static const char *full_name(const char *shown, const json_t *args)
{
	const char *file = json_string_value(json_object_get(args, "file"));
	const char *function = json_string_value(json_object_get(args, "function"));
	const char *colon = strrchr(shown, ':');
	long line = colon ? strtol(colon + 1, NULL, 10) : 0;
	struct buf text = {0};

	if (!file || !*file || !function || line < 0 || line > INT32_MAX)
		return NULL;
	buf_addf(&text, "%s(%ld): %s", file, line, function);
	const char *name = intern(text.data, text.len);
	buf_release(&text);
	return name;
}

void chrome_role_of_device(const char *cat, const json_t *args, uint32_t device,
			   struct timeline_event *out)
{
	const json_t *number = json_object_get(args, "device");

	out->role = device_role(out->name, cat, args);
	out->device = json_is_integer(number) ? (uint32_t)json_integer_value(number) : device;
}

void chrome_role_of_host(const char *cat, bool without_end, const json_t *args, uint64_t thread,
			 struct timeline_event *out)
{
	json_int_t line = json_integer_value(json_object_get(args, "caller line"));

	out->role = host_role(cat, without_end);
	out->thread = thread;
	if (out->role != ROLE_PYTHON)
		return;
	out->full_name = full_name(out->name, args);
	out->caller_line = line > 0 && line <= INT32_MAX ? (int32_t)line : 0;
}
