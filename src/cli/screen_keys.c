/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/screen_keys.h"

#include <stdint.h>
#include <string.h>

#include "base/text/printable.h"
#include "cli/screen.h"

static void scroll_by(size_t *first, int64_t lines)
{
	if (lines < 0)
		*first = *first > (size_t)-lines ? *first - (size_t)-lines : 0;
	else
		*first += (size_t)lines;
}

bool screen_scroll_key(size_t *first, size_t room, int key)
{
	int64_t page = room > 1 ? (int64_t)room - 1 : 1;

	if (key == SCREEN_UP || key == SCREEN_DOWN)
		scroll_by(first, key == SCREEN_UP ? -1 : 1);
	else if (key == SCREEN_PAGE_UP || key == SCREEN_PAGE_DOWN)
		scroll_by(first, key == SCREEN_PAGE_UP ? -page : page);
	else if (key == SCREEN_HOME || key == SCREEN_END)
		*first = key == SCREEN_HOME ? 0 : SIZE_MAX / 2;
	else
		return false;
	return true;
}

void screen_filter_key(struct screen_filter *f, int key)
{
	size_t len = strlen(f->text);

	if (key == '\n' || key == '\r')
		f->typing = false;
	else if (key == SCREEN_ESCAPE) {
		f->typing = false;
		*f->text = '\0';
	} else if (key == 127 || key == 8) {
		while (len && ((unsigned char)f->text[--len] & 0xc0) == 0x80)
			continue; /* a character of several bytes */
		f->text[len] = '\0';
	} else if (key >= ' ' && key < 256 && len < SCREEN_FILTER_MAX) {
		f->text[len] = (char)key;
		f->text[len + 1] = '\0';
	}
}

void screen_filter_describe(const struct screen_filter *f, struct buf *out)
{
	if (!f->typing && !*f->text)
		return;
	buf_add_str(out, f->typing ? "filter (Enter, Esc): " : "filter '");
	text_add_printable(out, f->text, strlen(f->text));
	buf_add_str(out, f->typing ? "_; " : "', Esc: none; ");
}

const char screen_list_help[] = "  up, down         scroll; also page up, page down, home, end\n"
				"  s                sort by the next column\n"
				"  i                invert the order\n"
				"  /                show only names with a text; Esc: all\n"
				"  p, space         pause; again: go on\n"
				"  h, ?             this; any key ends it\n"
				"  q                end\n";

static bool change_list(struct screen_list *l, int key)
{
	if (key == 's') {
		l->sort = (l->sort + 1) % l->sorts;
		l->first = 0;
	} else if (key == 'i')
		l->inverted = !l->inverted;
	else if (key == 'p' || key == ' ')
		l->paused = !l->paused;
	else if (key == '/')
		l->filter.typing = true;
	else if (key == SCREEN_ESCAPE)
		*l->filter.text = '\0';
	else
		return false;
	return true;
}

enum screen_did screen_list_key(struct screen_list *l, int key)
{
	if (key == 4) /* Ctrl-D */
		return SCREEN_QUIT;
	if (l->help) {
		l->help = false; /* q closes the help first */
		return SCREEN_DONE;
	}
	if (screen_scroll_key(&l->first, l->room, key))
		return SCREEN_DONE;
	if (l->filter.typing) {
		screen_filter_key(&l->filter, key);
		l->first = 0;
		return SCREEN_DONE;
	}
	if (key == 'q' || key == 'Q')
		return SCREEN_QUIT;
	if (key == 'h' || key == '?') {
		l->help = true;
		return SCREEN_DONE;
	}
	return change_list(l, key) ? SCREEN_DONE : SCREEN_IGNORED;
}

size_t screen_list_fit(struct screen_list *l, size_t n, size_t room)
{
	size_t shown = n < room ? n : room;

	l->room = shown;
	if (l->first > n - shown)
		l->first = n - shown;
	return shown;
}
