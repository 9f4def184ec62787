/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/options/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/log.h"
#include "wire/control_page.h"
#include "wire/ring.h"

#define MAX_SLASHES 32
#define MAX_COMPONENT 255
#define SEGS_PER_MB (1048576u / ARENA_SEG_SIZE)
#define MIN_SEGS 16u

int mem_path(const char *text, char out[MEM_PATH_BYTES], struct err *err)
{
	struct buf full = {0};
	unsigned slashes = 0;
	int r = 0;

	if (!*text)
		return err_set(err, -EINVAL, "the path is empty");
	if (strlen(text) >= MEM_PATH_BYTES)
		return err_set(err, -ENAMETOOLONG, "the path is longer than %d characters",
			       MEM_PATH_BYTES - 1);
	r = fs_absolute(text, &full, err);
	if (r < 0)
		goto out;
	for (const char *p = buf_str(&full); *p && r == 0; slashes++) {
		size_t len = strcspn(p + 1, "/");

		if (len > MAX_COMPONENT)
			r = err_set(err, -ENAMETOOLONG,
				    "a name in the path is longer than %d characters",
				    MAX_COMPONENT);
		p += len + 1;
	}
	if (r == 0 && full.len >= MEM_PATH_BYTES)
		r = err_set(err, -ENAMETOOLONG, "the absolute path is longer than %d characters",
			    MEM_PATH_BYTES - 1);
	if (r == 0 && slashes > MAX_SLASHES)
		r = err_set(err, -ENAMETOOLONG, "the path is more than %d directories deep",
			    MAX_SLASHES);
	if (r == 0)
		memcpy(out, buf_str(&full), full.len + 1);
out:
	buf_release(&full);
	return r;
}

const char *mem_format_name(enum mem_format format)
{
	return format == MEM_NONE ? "none" : format == MEM_DB ? "db" : "csv";
}

int mem_compat_find(const char *text)
{
	if (!strcmp(text, "current"))
		return ROW_SEED;
	if (!strcmp(text, "26.0") || !strcmp(text, "26.0.0"))
		return ROW_26_0;
	return -EINVAL;
}

int mem_config_init(struct mem_config *c, struct err *err)
{
	*c = (struct mem_config){
		.npu_all = true,
		.npu_slots = UINT32_MAX,
		.level = MEM_LEVEL_OP,
		.dump_events = MEM_ALLOC | MEM_FREE | MEM_LAUNCH,
		.c_depth = MEM_DEFAULT_DEPTH,
		.py_depth = MEM_DEFAULT_DEPTH,
		.analysis = MEM_LEAKS,
		.oom_top = 10,
		.watch = {.output_id = MEM_ALL_OUTPUTS},
		.log_level = LOG_WARN,
		.buffer_mb = 256,
		.wait_ms = 100,
	};
	mem_config_link(c);
	return mem_path(SESSION_OUTPUT, c->output_dir, err);
}

void mem_config_link(struct mem_config *c)
{
	const uint32_t both = MEM_ALLOC | MEM_FREE;

	c->cpu |= c->python_objects;
	if (c->dump_events & (both | MEM_ACCESS))
		c->dump_events |= both;
	c->events = c->dump_events;
	if (c->analysis & (MEM_LEAKS | MEM_OOM))
		c->events |= both;
	if (c->analysis & MEM_DECOMPOSE)
		c->events |= both | MEM_ACCESS;
	if (c->analysis & MEM_INEFFICIENT || c->watch.on)
		c->events |= MEM_EVENTS_ALL;
}

uint32_t mem_config_want(const struct mem_config *c)
{
	uint32_t want = 0;

	if (c->events & (MEM_ALLOC | MEM_FREE))
		want |= WANT_ALLOC;
	if (c->events & MEM_ACCESS)
		want |= WANT_ACCESS;
	if (c->events & MEM_LAUNCH && c->level & MEM_LEVEL_OP)
		want |= WANT_OP;
	if (c->events & MEM_LAUNCH && c->level & MEM_LEVEL_KERNEL)
		want |= WANT_KERNEL;
	if (c->cpu)
		want |= WANT_HOST | (c->python_objects ? WANT_OBJECTS : 0);
	if (c->mode == MEM_DEFERRED)
		want |= WANT_DEFERRED;
	if (c->watch.on)
		want |= WANT_WATCH;
	if (c->traceback)
		want |= WANT_TRACE;
	if (c->analysis & MEM_DECOMPOSE)
		want |= WANT_OWNERS;
	return want;
}

void mem_config_publish(const struct mem_config *c, struct control_page *page)
{
	uint64_t segs = (uint64_t)c->buffer_mb * SEGS_PER_MB;

	atomic_store(&page->want, mem_config_want(c));
	page->c_depth = c->c_stack ? c->c_depth : 0;
	page->py_depth = c->py_stack ? c->py_depth : 0;
	page->oom_depth = MEM_DEFAULT_DEPTH;
	page->wait_ms = c->wait_ms;
	mem_config_get_settings(c, &page->settings);
	page->max_segs = (uint32_t)(segs < MIN_SEGS	    ? MIN_SEGS
				    : segs > ARENA_MAX_SEGS ? ARENA_MAX_SEGS
							    : segs);
	page->watch_output = c->watch.output_id;
	page->watch_content = c->watch.full_content;
	snprintf(page->watch_start, sizeof(page->watch_start), "%s", c->watch.start);
	snprintf(page->watch_end, sizeof(page->watch_end), "%s", c->watch.end);
}

void mem_config_choose_report(const struct mem_config *c, struct control_page *page)
{
	int fd = c->report == MEM_REPORT_STDOUT ? STDOUT_FILENO : STDERR_FILENO;
	struct stat st;

	/* The recorder has a terminal only where stderr is one. */
	bool terminal = isatty(fd) && isatty(STDERR_FILENO);
	if (c->report == MEM_REPORT_OFF || terminal || fstat(fd, &st) < 0)
		return;
	page->report_dev = st.st_dev;
	page->report_ino = st.st_ino;
	page->report_fd = (uint32_t)fd;
	page->closing_asked = c->closing;
}

void mem_config_get_settings(const struct mem_config *c, struct rec_settings *out)
{
	*out = (struct rec_settings){
		.level = c->level,
		.dump_events = c->dump_events,
		.analysis = c->analysis,
		.oom_top = c->oom_top,
		.npu_slots = c->npu_slots,
		.c_depth = c->c_depth,
		.py_depth = c->py_depth,
		.npu_all = c->npu_all,
		.cpu = c->cpu,
		.python_objects = c->python_objects,
		.traceback = c->traceback,
		.format = (uint8_t)c->format,
		.c_stack = c->c_stack,
		.py_stack = c->py_stack,
		.watch = (uint8_t)((c->watch.on ? SETTINGS_WATCH : 0) |
				   (c->watch.host ? SETTINGS_WATCH_HOST : 0) |
				   (c->events_asked ? SETTINGS_EVENTS_ASKED : 0)),
	};
}

void mem_config_set_settings(struct mem_config *c, const struct rec_settings *s)
{
	c->level = s->level & MEM_LEVEL_ALL;
	c->dump_events = s->dump_events & MEM_EVENTS_ALL;
	c->analysis = s->analysis & MEM_ANALYSIS_ALL;
	c->oom_top = s->oom_top < MEM_MAX_OOM ? s->oom_top : MEM_MAX_OOM;
	c->npu_slots = s->npu_slots;
	c->c_depth = s->c_depth < MEM_MAX_DEPTH ? s->c_depth : MEM_MAX_DEPTH;
	c->py_depth = s->py_depth < MEM_MAX_DEPTH ? s->py_depth : MEM_MAX_DEPTH;
	c->npu_all = s->npu_all;
	c->cpu = s->cpu;
	c->python_objects = s->python_objects;
	c->traceback = s->traceback;
	c->format = s->format <= MEM_NONE ? (enum mem_format)s->format : MEM_CSV;
	c->c_stack = s->c_stack;
	c->py_stack = s->py_stack;
	c->watch.on = s->watch & SETTINGS_WATCH;
	c->events_asked = s->watch & SETTINGS_EVENTS_ASKED;
	c->watch.host = s->watch & SETTINGS_WATCH_HOST;
	mem_config_link(c);
}
