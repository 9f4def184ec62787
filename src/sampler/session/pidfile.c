/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/pidfile.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/text/number.h"
#include "sampler/discover/discover.h"

#define FILE_BYTES 4096
#define MOST_PID (1 << 22)

static void take_line(const char *line, size_t len, struct stack_pidfile *out)
{
	const struct {
		const char *name;
		struct stack_tracked *who;
		bool start;
	} keys[] = {{"main_pid", &out->job, false},
		    {"sniffer_pid", &out->sampler, false},
		    {"main_start", &out->job, true},
		    {"sniffer_start", &out->sampler, true}};
	const char *eq = memchr(line, '=', len);
	int64_t v = 0;

	if (!eq || !number_read(eq + 1, len - (size_t)(eq + 1 - line), &v) || v < 1)
		return;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		size_t n = strlen(keys[i].name);

		if (n != (size_t)(eq - line) || memcmp(keys[i].name, line, n))
			continue;
		if (keys[i].start)
			keys[i].who->start_ticks = (uint64_t)v;
		else if (v <= MOST_PID)
			keys[i].who->pid = (pid_t)v;
	}
}

int stack_pidfile_parse(const char *text, size_t len, struct stack_pidfile *out)
{
	struct stack_pidfile p = {0};

	for (size_t at = 0; at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - (text + at)) : len - at;

		take_line(text + at, n && text[at + n - 1] == '\r' ? n - 1 : n, &p);
		at += n + 1;
	}
	if (!p.job.pid && !p.sampler.pid)
		return -EPROTO;
	*out = p;
	return 0;
}

int stack_pidfile_read(const char *path, struct stack_pidfile *out, struct err *err)
{
	struct buf text = {0};
	int r = fs_read_file(path, FILE_BYTES, &text, err);

	if (r >= 0 && stack_pidfile_parse(text.data ? text.data : "", text.len, out) < 0)
		r = err_set(err, -EPROTO, "'%s' names no process", path);
	buf_release(&text);
	return r < 0 ? r : 0;
}

static void add(struct buf *out, const char *who, const struct stack_tracked *t)
{
	if (t->pid)
		buf_addf(out, "%s_pid=%d\n", who, (int)t->pid);
}

int stack_pidfile_write(const char *path, const struct stack_pidfile *p, struct err *err)
{
	struct buf text = {0};

	add(&text, "main", &p->job);
	add(&text, "sniffer", &p->sampler);
	if (p->job.pid)
		buf_addf(&text, "main_start=%" PRIu64 "\n", p->job.start_ticks);
	buf_addf(&text, "sniffer_start=%" PRIu64 "\n", p->sampler.start_ticks);
	int r = fs_write_atomic(path, &text, 0644, err);
	buf_release(&text);
	return r;
}

bool stack_tracked_runs(const struct stack_tracked *t)
{
	struct process_facts f = {0};

	if (!t->pid || process_facts(t->pid, &f, NULL) < 0)
		return false;
	bool runs = f.state != 'Z' && f.state != 'X' && t->start_ticks == f.start_ticks;
	process_facts_release(&f);
	return runs;
}
