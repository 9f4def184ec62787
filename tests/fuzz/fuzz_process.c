/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Texts of /proc, of which a process chooses its names: stat, command line, cgroup, and meminfo. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/proc.h"
#include "sampler/counters/host.h"
#include "sampler/discover/finder.h"
#include "wire/rank_env.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Nothing of it moves a terminal's cursor, and what is shown once can be shown again. */
static void check_printable(const char *text, size_t size)
{
	struct buf once = {0}, twice = {0};

	proc_add_printable(&once, text, size);
	BUG_ON(once.len > size);
	for (size_t i = 0; i < once.len; i++)
		BUG_ON((unsigned char)once.data[i] < ' ' || once.data[i] == 0x7f);
	proc_add_printable(&twice, once.data, once.len);
	BUG_ON(twice.len != once.len || (once.len && memcmp(once.data, twice.data, once.len)));
	buf_release(&once);
	buf_release(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct proc_stat s;
	struct meminfo m;

	if (!size)
		return 0;
	if (proc_stat_parse(text, size, &s))
		BUG_ON(s.parent > INT32_MAX || !memchr(s.name, 0, sizeof(s.name)));
	for (int what = RANK_ENV_RANK; what <= RANK_ENV_LOCAL_WORLD_SIZE; what++)
		BUG_ON(rank_env_find((enum rank_env)what, text, size) < RANK_ENV_UNKNOWN);
	if (meminfo_parse(text, size, &m) == 0)
		BUG_ON(!m.total_bytes || m.available_bytes > m.total_bytes);
	check_printable(text, size);
	char *copy = xstrndup(text, size);
	size_t half = strlen(copy) / 2;
	char *id = xstrndup(copy + half, strnlen(copy + half, 12));
	BUG_ON(strlen(id) < 6 && cgroup_names_container(copy, id));
	free(id);
	free(copy);
	return 0;
}
