/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The terminal of a command that draws the same screen again and again, and may listen to keys.
 * Whatever ends it, the terminal is as it was. One of a process.
 */
#ifndef SONDE_CLI_SCREEN_H
#define SONDE_CLI_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"

/* Standard output is a terminal that can draw. */
bool screen_is_able(void);

/* Signals that end us are to be noticed (screen_must_end()). `at_once`: they end us as ever, but
 * leave the screen first; the exit status is 0. */
void screen_signals(bool at_once);
bool screen_must_end(void);

/* with_keys: the terminal sends single keys. */
void screen_enter(bool with_keys);
void screen_leave(void);

/* Shows the text from the first line on, as many lines as there is room for; they are no longer
 * than the terminal is wide. False: it cannot be written. */
bool screen_draw(const struct buf *text);

unsigned screen_count_lines(const struct buf *text);

/* Keys that are no character. */
#define SCREEN_ESCAPE 27
enum screen_key {
	SCREEN_UP = 256,
	SCREEN_DOWN,
	SCREEN_PAGE_UP,
	SCREEN_PAGE_DOWN,
	SCREEN_HOME,
	SCREEN_END,
	SCREEN_OTHER
};

/* Waits for a key, the time, or another reason to draw again. The key; 0: none. `screen`: there is
 * one, with keys. */
int screen_wait(uint64_t until_ns, bool screen);

#endif
