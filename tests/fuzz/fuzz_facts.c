/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The command line and the environment of somebody's process, as /proc has them; a newline lies
 * between the two. What is told of them is text without control characters, and a number only where
 * a variable of that kind is set.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"
#include "wire/rank_env.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const struct jobs_facts *f)
{
	json_t *text = jobs_command_line(f);
	const char *s = json_string_value(text);

	BUG_ON(!text || json_is_null(text) != !f->command_len);
	BUG_ON(s && json_string_length(text) != strlen(s));
	for (; s && *s; s++)
		BUG_ON((unsigned char)*s < ' ' || *s == 0x7f);
	json_decref(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
	size_t command_len = end ? (size_t)(end - data) : size;
	size_t env_len = end ? size - command_len - 1 : 0;
	char *command = xcalloc(1, command_len ? command_len : 1), *env = xcalloc(1, env_len + 1);

	memcpy(command, data, command_len);
	memcpy(env, data + size - env_len, env_len);
	struct jobs_facts *f = jobs_facts_new(command, command_len, env, env_len);
	/* a byte that is no text becomes a character of three */
	BUG_ON(f->command_len > 3 * command_len || strlen(f->command) != f->command_len);
	check_text(f);
	BUG_ON(f->rank != RANK_ENV_UNKNOWN && !memmem(env, env_len, "RANK", 4) &&
	       !memmem(env, env_len, "SLURM_PROCID=", 13));
	BUG_ON(f->local_rank != RANK_ENV_UNKNOWN && !memmem(env, env_len, "LOCAL", 5));
	free(f);
	free(command);
	free(env);
	return 0;
}
