/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which processes a request names, and numbers of every kind that JSON has. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"

#define NO_PID INT32_MIN

static const char *kind_of(const json_t *v)
{
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return "object";
	case JSON_ARRAY:
		return "array";
	case JSON_STRING:
		return "string";
	case JSON_INTEGER:
	case JSON_REAL:
		return "number";
	case JSON_TRUE:
	case JSON_FALSE:
		return "boolean";
	default:
		return "null";
	}
}

json_t *jobs_type_fault(const char *wanted, const json_t *got)
{
	return json_pack("{s:o}", "status",
			 json_sprintf("failed with exception = [json.exception.type_error.302] "
				      "type must be %s, but is %s",
				      wanted, kind_of(got)));
}

json_t *jobs_read_int(const json_t *value, int64_t *out)
{
	if (json_is_integer(value))
		*out = json_integer_value(value);
	else if (json_is_boolean(value))
		*out = json_is_true(value);
	else if (!json_is_real(value))
		return jobs_type_fault("number", value);
	else if (json_real_value(value) >= -0x1p63 && json_real_value(value) < 0x1p63)
		*out = (int64_t)json_real_value(value);
	else
		return json_pack("{s:s}", "status",
				 "failed with exception = [json.exception.out_of_range.406] number "
				 "does not fit into 64 bits");
	return NULL;
}

static int by_number(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return x < y ? -1 : x > y;
}

static json_t *read_pids(const json_t *pids, struct jobs_target *t)
{
	json_t *fault = NULL, *pid;
	size_t i;

	if (!json_is_array(pids))
		return jobs_type_fault("array", pids);
	t->pids = xcalloc(json_array_size(pids) + 1, sizeof(*t->pids));
	json_array_foreach(pids, i, pid)
	{
		int64_t n;

		fault = jobs_read_int(pid, &n);
		if (fault)
			return fault;
		/* cut to 32 bits it would be another's, or 0, which is everybody's */
		t->pids[t->npids++] = n >= INT32_MIN && n <= INT32_MAX ? (int32_t)n : NO_PID;
	}
	t->all = !t->npids || (t->npids == 1 && t->pids[0] == 0);
	qsort(t->pids, t->npids, sizeof(*t->pids), by_number);
	return NULL;
}

void jobs_target_release(struct jobs_target *t)
{
	free(t->pids);
}

bool jobs_target_read(const json_t *request, bool need_pids, struct jobs_target *out,
		      json_t **out_fault)
{
	const json_t *job = json_object_get(request, "job_id");
	const json_t *pids = json_object_get(request, "pids");
	json_t *fault = NULL;

	*out = (struct jobs_target){.all = !pids};
	if (!pids && need_pids)
		fault = json_pack("{s:s}", "status", "failed");
	if (!fault && job)
		fault = jobs_read_int(job, &out->job_id);
	if (!fault && pids)
		fault = read_pids(pids, out);
	if (!fault)
		return true;
	jobs_target_release(out);
	*out_fault = fault;
	return false;
}

bool jobs_target_names(const struct jobs_target *t, int32_t pid)
{
	return bsearch(&pid, t->pids, t->npids, sizeof(*t->pids), by_number);
}

/* By the pid that it has here, which it cannot choose. A process of a container calls itself by
 * another one, but this is what npu-smi and nvidia-smi show. */
bool jobs_target_names_here(const struct jobs_target *t, const struct jobs_process *p)
{
	return p->peer && !(p->heard & JOBS_FOR_ANOTHER) && jobs_target_names(t, p->peer->pid);
}

bool jobs_target_matches(const struct jobs_target *t, const struct jobs_process *p)
{
	if (t->all || jobs_target_names_here(t, p))
		return true;
	for (unsigned i = 0; i < p->npids; i++)
		if (jobs_target_names(t, p->pids[i]))
			return true;
	return false;
}
