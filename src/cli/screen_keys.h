/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Keys that mean the same on every screen: scrolling, and typing a filter. */
#ifndef SONDE_CLI_SCREEN_KEYS_H
#define SONDE_CLI_SCREEN_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/containers/buf.h"

#define SCREEN_FILTER_MAX 64

struct screen_filter {
	char text[SCREEN_FILTER_MAX + 1];
	bool typing;
};

/* True: the key was for it. first: the line that is shown first; drawing keeps it within bounds. */
bool screen_scroll_key(size_t *first, size_t room, int key);
/* While it is being typed, each key is for it. */
void screen_filter_key(struct screen_filter *f, int key);
/* "filter 'x', Esc: none; ", if there is one. */
void screen_filter_describe(const struct screen_filter *f, struct buf *out);

/* What a screen with one table knows about it. */
struct screen_list {
	struct screen_filter filter;
	size_t first, room;
	unsigned sort, sorts; /* and how many orders there are */
	bool inverted, paused, help;
};

enum screen_did {
	SCREEN_IGNORED, /* the key is the caller's */
	SCREEN_DONE,
	SCREEN_QUIT,
};
/* Scrolling, "/", s, i, p, h and q. */
enum screen_did screen_list_key(struct screen_list *l, int key);
/* Keeps `first` within n lines, of which `room` are shown. Returns how many those are. */
size_t screen_list_fit(struct screen_list *l, size_t n, size_t room);
/* The lines about those keys, for a help. */
extern const char screen_list_help[];

#endif
