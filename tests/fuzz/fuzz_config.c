/* SPDX-License-Identifier: MulanPSL-2.0 */
/* config.json, which anybody may have written by hand. What is accepted can be written and read
 * back, and is the same then. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "memory/options/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];

static void forget(void)
{
	unlink(path);
}

static bool is_text(const char *s, size_t size)
{
	return memchr(s, 0, size) != NULL;
}

static void check_limits(const struct mem_config *c)
{
	BUG_ON(c->nsteps > MEM_MAX_STEPS || c->level > MEM_LEVEL_ALL);
	BUG_ON(c->c_depth > MEM_MAX_DEPTH || c->py_depth > MEM_MAX_DEPTH);
	BUG_ON(c->events > MEM_EVENTS_ALL || c->dump_events & ~c->events);
	BUG_ON(c->buffer_mb > MEM_MAX_BUFFER_MB || c->wait_ms > MEM_MAX_WAIT_MS);
	BUG_ON(c->output_dir[0] != '/' || !is_text(c->output_dir, sizeof(c->output_dir)));
	BUG_ON(!is_text(c->watch.start, sizeof(c->watch.start)));
	BUG_ON(!is_text(c->watch.end, sizeof(c->watch.end)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct mem_config c, again;
	struct err err = {0};

	if (!path[0]) {
		snprintf(path, sizeof(path), "/tmp/sonde-fuzz-config-%d", getpid());
		atexit(forget);
	}
	c.nsteps = 77;
	if (mem_config_parse((const char *)data, size, &c, &err) < 0) {
		BUG_ON(!err.text[0] || c.nsteps != 77);
		return 0;
	}
	check_limits(&c);
	(void)mem_config_want(&c);
	BUG_ON(mem_config_write(&c, path, &err) < 0);
	BUG_ON(mem_config_read(path, &again, &err) < 0);
	check_limits(&again);
	BUG_ON(again.events != c.events || again.nsteps != c.nsteps || again.mode != c.mode);
	BUG_ON(strcmp(again.output_dir, c.output_dir) != 0);
	return 0;
}
