/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/stack/messages.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define LOG_AREA "stack"
#include "base/log.h"
#include "base/text/printable.h"

#define LINE_EVERY_NS 500000000u

static bool logging; /* else log_write() would write to stderr a second time */

void stack_say_open(const struct stack_session *s)
{
	char *path = xasprintf("%s.log", s->o->output);
	struct stat st;

	if (stat(s->o->output, &st) < 0 || S_ISREG(st.st_mode)) {
		log_set_level(s->o->verbose ? LOG_DEBUG : LOG_INFO);
		logging = log_open(path, NULL) == 0;
	}
	free(path);
}

void stack_say_close(void)
{
	log_close();
	logging = false;
	log_set_level(LOG_WARN);
}

static void wipe_line(struct stack_session *s)
{
	if (s->line_shown)
		fprintf(stderr, "\r\033[K");
	s->line_shown = false;
}

__attribute__((format(printf, 4, 0))) static void say(struct stack_session *s, bool show,
						      enum log_level level, const char *fmt,
						      va_list ap)
{
	struct buf clean = {0};
	char text[1024];

	vsnprintf(text, sizeof(text), fmt, ap);
	text_add_printable(&clean, text, strlen(text));
	if (show) {
		wipe_line(s);
		fprintf(stderr, "%s: %s\n", s->cmd->spec.name, buf_str(&clean));
	}
	if (logging)
		log_write(level, LOG_AREA, __FILE__, __LINE__, "%s", buf_str(&clean));
	buf_release(&clean);
}

void stack_say(struct stack_session *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(s, !s->o->quiet, LOG_INFO, fmt, ap);
	va_end(ap);
}

void stack_warn(struct stack_session *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(s, true, LOG_WARN, fmt, ap);
	va_end(ap);
}

void stack_detail(struct stack_session *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(s, s->o->verbose && !s->o->quiet, LOG_INFO, fmt, ap);
	va_end(ap);
}

void stack_say_line(struct stack_session *s, uint64_t now_ns)
{
	/* With a job the terminal is the job's. */
	if (now_ns < s->next_line_ns || s->o->quiet || s->job || !isatty(STDERR_FILENO))
		return;
	unsigned open = targets_open(s->targets);
	s->next_line_ns = now_ns + LINE_EVERY_NS;
	s->line_shown = true;
	fprintf(stderr, "\r\033[K%.1f s: %u process%s, %" PRIu64 " round%s, %" PRIu64 " stack%s",
		(double)(now_ns - s->start_ns) / 1e9, open, open == 1 ? "" : "es", s->totals.rounds,
		s->totals.rounds == 1 ? "" : "s", s->totals.samples,
		s->totals.samples == 1 ? "" : "s");
	if (s->totals.skipped)
		fprintf(stderr, ", %" PRIu64 " ticks skipped", s->totals.skipped);
	fflush(stderr);
}
