/* SPDX-License-Identifier: MulanPSL-2.0 */
/* sonde snap --watch and --hang: looks again and again. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/snap/run.h"
#include "sampler/hang/hang.h"
#include "sampler/session/signals.h"

#define CLEAR_SCREEN "\033[H\033[2J"
#define HANG_INTERVAL_NS 50000000ull /* 20 looks per second */
#define HANG_SPREAD_NS 20000000u /* more or less, at random */
#define GRACE_MAX_NS 2000000000ull

/* Until then, or until a signal wants us to end. */
static void sleep_until(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u),
			     .tv_nsec = (long)(ns % 1000000000u)};

	while (!stack_signals_stop() &&
	       clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static bool is_over(const struct snap_look *l, uint64_t begin_ns)
{
	if (!targets_open(l->targets) && !targets_waiting(l->targets))
		return true;
	return stack_signals_stop() || (l->o->for_ns && clock_mono_ns() - begin_ns >= l->o->for_ns);
}

static void add_clock(struct buf *out)
{
	time_t now = time(NULL);
	struct tm tm;
	char text[32];

	localtime_r(&now, &tm);
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	buf_add_str(out, text);
}

static int print_line_json(const struct command *cmd, json_t *o)
{
	char *made = o ? json_dumps(o, JSON_COMPACT) : NULL;
	struct buf text = {0};

	json_decref(o);
	buf_addf(&text, "%s\n", made ? made : "null");
	free(made);
	int status = command_print(cmd, &text);
	buf_release(&text);
	return status;
}

/* What does not fit on the screen would push the first line, the answer, off it. */
static void cut_to_screen(struct buf *text)
{
	struct winsize w = {0};
	size_t at = 0;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_row < 4)
		return;
	for (unsigned lines = 1; lines < w.ws_row; lines++) {
		const char *end = memchr(text->data + at, '\n', text->len - at);

		if (!end)
			return;
		at = (size_t)(end - text->data) + 1;
	}
	text->len = at;
}

static int print_look(const struct command *cmd, struct snap_look *l, const struct snapshot *s,
		      bool screen)
{
	struct buf text = {0};

	if (l->o->json)
		return print_line_json(cmd, snapshot_json(s));
	if (screen)
		buf_add_str(&text, CLEAR_SCREEN);
	add_clock(&text);
	buf_add_char(&text, '\n');
	snapshot_text(s, &text);
	if (screen)
		cut_to_screen(&text);
	else
		buf_add_char(&text, '\n');
	int status = command_print(cmd, &text);
	buf_release(&text);
	return status;
}

int snap_watch(const struct command *cmd, struct snap_look *l)
{
	bool screen = isatty(STDOUT_FILENO) && !l->o->json;
	uint64_t begin_ns = clock_mono_ns(), next_ns = begin_ns, shown = 0;
	int status = EXIT_DONE;

	while (status == EXIT_DONE && !is_over(l, begin_ns)) {
		if (snap_look_round(l)) {
			struct snapshot *s = snap_look_take(l, screen);
			uint64_t hash = snapshot_hash(s);

			if (screen || hash != shown)
				status = print_look(cmd, l, s, screen);
			shown = hash;
			snapshot_free(s);
		}
		uint64_t now_ns = clock_mono_ns();
		next_ns += l->o->interval_ns;
		if (next_ns < now_ns)
			next_ns = now_ns; /* behind: no looks are made up for */
		sleep_until(next_ns);
		targets_refresh(l->targets, false, NULL);
	}
	return status;
}

/* --- --hang --- */

static int print_hang(const struct command *cmd, struct snap_look *l, const struct hang *hang,
		      uint64_t now_ns)
{
	bool color = isatty(STDOUT_FILENO) && !l->o->json;
	json_t *list = json_array();
	struct buf text = {0};
	int status;

	hang_report(hang, l->o->hang_ns, now_ns, &text, list);
	struct snapshot *s = snap_look_take(l, color);
	if (l->o->json) {
		status = command_print_json(cmd, json_pack("{s:b, s:O, s:o}", "hang", 1, "still",
							   list, "snapshot", snapshot_json(s)));
	} else {
		buf_add_char(&text, '\n');
		snapshot_text(s, &text);
		status = command_print(cmd, &text);
	}
	snapshot_free(s);
	json_decref(list);
	buf_release(&text);
	return status == EXIT_DONE ? EXIT_FINDING : status;
}

static int print_no_hang(const struct command *cmd, const struct snap_look *l, bool ended)
{
	struct buf text = {0};

	if (l->o->json)
		return command_print_json(cmd, json_pack("{s:b, s:[]}", "hang", 0, "still"));
	buf_addf(&text, "no hang of %.1f s was seen%s\n", (double)l->o->hang_ns / 1e9,
		 ended ? "; the processes have ended" : "");
	int status = command_print(cmd, &text);
	buf_release(&text);
	return status;
}

/*
 * When the first one has stood still for long enough, the others of the job get a little time to
 * run into their waits: then all of them are told about together.
 */
int snap_hang(const struct command *cmd, struct snap_look *l)
{
	uint64_t begin_ns = clock_mono_ns(), next_ns = begin_ns, found_ns = 0;
	uint64_t grace_ns = l->o->hang_ns / 4 < GRACE_MAX_NS ? l->o->hang_ns / 4 : GRACE_MAX_NS;
	struct hang *hang = hang_new();
	int status = -1;

	while (status < 0) {
		snap_look_round(l);
		if (is_over(l, begin_ns)) {
			status = print_no_hang(cmd, l, !targets_open(l->targets));
			break;
		}
		uint64_t now_ns = clock_mono_ns();
		hang_round(hang, l->targets, now_ns);
		if (!hang_count(hang, l->o->hang_ns, now_ns))
			found_ns = 0;
		else if (!found_ns)
			found_ns = now_ns;
		if (found_ns && now_ns - found_ns >= grace_ns)
			status = print_hang(cmd, l, hang, now_ns);
		/* Not in step with the job: else it would always be found at the same place. */
		next_ns += HANG_INTERVAL_NS - HANG_SPREAD_NS +
			   (uint64_t)random() % (2 * HANG_SPREAD_NS);
		if (next_ns < now_ns)
			next_ns = now_ns; /* behind: no looks are made up for */
		if (status < 0)
			sleep_until(next_ns);
		targets_refresh(l->targets, false, NULL);
	}
	hang_free(hang);
	return status;
}
