/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/screen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text/sparkline.h"
#include "base/text/table.h"

#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"
#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"
#define ESCAPE_MS 25 /* that the rest of a key takes at most */

static volatile sig_atomic_t must_end, must_draw;
static struct termios before;
static bool keys; /* the terminal sends single ones */
static bool ends_at_once;
static int wake[2] = {-1, -1}; /* a signal is noticed even when it comes just before poll() */

static void wake_up(void)
{
	int saved = errno;
	ssize_t n = write(wake[1], "", 1);

	(void)n;
	errno = saved;
}

static void on_resize(int signal_number)
{
	(void)signal_number;
	must_draw = 1;
	wake_up();
}

static void write_text(const char *text)
{
	ssize_t n = write(STDOUT_FILENO, text, strlen(text));

	(void)n;
}

static void set_keys(bool on)
{
	struct termios t = before;

	if (!keys)
		return;
	if (on) {
		t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		t.c_cc[VMIN] = 1;
		t.c_cc[VTIME] = 0;
	}
	tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

static void on_end(int signal_number)
{
	(void)signal_number;
	if (ends_at_once) {
		set_keys(false);
		write_text(LEAVE);
		_exit(0);
	}
	must_end = 1;
	wake_up();
}

/* Ctrl-Z: the shell gets its own terminal back, and we ours when we go on. */
static void on_stop(int signal_number)
{
	int saved = errno;

	(void)signal_number;
	set_keys(false);
	write_text(LEAVE);
	raise(SIGSTOP);
	write_text(ENTER);
	set_keys(true);
	must_draw = 1;
	wake_up();
	errno = saved;
}

static void handle_signal(int signal_number, void (*fn)(int))
{
	struct sigaction now, ours = {.sa_handler = fn};

	/* the program that starts us may want us not to hear it, as nohup does */
	if (sigaction(signal_number, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
		return;
	sigaction(signal_number, &ours, NULL);
}

bool screen_is_able(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(term && !strcmp(term, "dumb"));
}

void screen_signals(bool at_once)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

	if (wake[0] < 0 && pipe2(wake, O_CLOEXEC | O_NONBLOCK) < 0)
		wake[0] = wake[1] = -1;
	ends_at_once = at_once;
	if (!at_once)
		signal(SIGPIPE, SIG_IGN); /* there is something to do at the end */
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		handle_signal(ends[i], on_end);
}

bool screen_must_end(void)
{
	return must_end;
}

void screen_enter(bool with_keys)
{
	/* reading from a terminal in the background would stop us */
	keys = with_keys && isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp() &&
	       tcgetattr(STDIN_FILENO, &before) == 0;
	write_text(ENTER);
	set_keys(true);
	handle_signal(SIGWINCH, on_resize);
	handle_signal(SIGTSTP, on_stop);
}

void screen_leave(void)
{
	signal(SIGTSTP, SIG_DFL);
	set_keys(false);
	write_text(LEAVE);
}

unsigned screen_count_lines(const struct buf *text)
{
	unsigned n = 0;

	for (size_t i = 0; i < text->len; i++)
		n += text->data[i] == '\n';
	return n;
}

bool screen_draw(const struct buf *text)
{
	unsigned rows;
	const struct buf *shown = text;
	struct buf out = {0}, ascii = {0};

	if (!text_is_utf8_locale()) {
		text_add_ascii(&ascii, text->len ? text->data : "", text->len);
		shown = &ascii;
	}
	const char *line = shown->len ? shown->data : "";
	const char *end = line + shown->len;

	terminal_columns(STDOUT_FILENO, &rows);
	buf_add_str(&out, HOME);
	for (unsigned row = 1; line < end && row < rows; row++) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		size_t len = (size_t)((stop ? stop : end) - line);

		buf_addf(&out, CLEAR_LINE "%.*s\n", (int)len, line);
		line += len + 1;
	}
	buf_add_str(&out, CLEAR_BELOW);
	bool good = fwrite(out.data, 1, out.len, stdout) == out.len && fflush(stdout) == 0;
	buf_release(&out);
	buf_release(&ascii);
	return good;
}

/* Bytes that have come: a key of several comes at once, and so do keys that are typed fast. */
static struct {
	unsigned char bytes[64];
	size_t n;
} typed;

static void take_typed(size_t n)
{
	typed.n -= n;
	memmove(typed.bytes, typed.bytes + n, typed.n);
}

/* False: there is nothing now. */
static bool read_typed(int wait_ms)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};

	if (typed.n == sizeof(typed.bytes) || poll(&in, 1, wait_ms) <= 0)
		return false;
	ssize_t n = read(STDIN_FILENO, typed.bytes + typed.n, sizeof(typed.bytes) - typed.n);
	if (n == 0)
		keys = false; /* nobody is there any more */
	typed.n += n > 0 ? (size_t)n : 0;
	return n > 0;
}

/* ESC [ A, ESC O A, ESC [ 5 ~: the last byte of it, and the number in front. */
static int decode_escape(void)
{
	static const struct {
		char number, last;
		int key;
	} known[] = {{0, 'A', SCREEN_UP},	 {0, 'B', SCREEN_DOWN},
		     {'5', '~', SCREEN_PAGE_UP}, {'6', '~', SCREEN_PAGE_DOWN},
		     {0, 'H', SCREEN_HOME},	 {'1', '~', SCREEN_HOME},
		     {'7', '~', SCREEN_HOME},	 {0, 'F', SCREEN_END},
		     {'4', '~', SCREEN_END},	 {'8', '~', SCREEN_END}};
	size_t at = 2;

	if (typed.n < 2)
		(void)read_typed(ESCAPE_MS);
	if (typed.n < 2 || (typed.bytes[1] != '[' && typed.bytes[1] != 'O')) {
		take_typed(1);
		return SCREEN_ESCAPE;
	}
	while (at < typed.n || read_typed(ESCAPE_MS)) {
		if (typed.bytes[at] >= '@' && typed.bytes[at] <= '~')
			break;
		at++;
	}
	char last = at < typed.n ? (char)typed.bytes[at] : 0;
	char number = at > 2 ? (char)typed.bytes[2] : 0;
	take_typed(at < typed.n ? at + 1 : typed.n);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].last == last && known[i].number == number)
			return known[i].key;
	return SCREEN_OTHER;
}

/* The next of what has been typed; 0: nothing has. */
static int next_key(void)
{
	if (!typed.n)
		return 0;
	if (typed.bytes[0] == SCREEN_ESCAPE)
		return decode_escape();
	int key = typed.bytes[0];
	take_typed(1);
	return key;
}

int screen_wait(uint64_t until_ns, bool screen)
{
	uint64_t now;
	int waiting = screen && keys && !must_end ? next_key() : 0;

	if (waiting)
		return waiting;
	while ((now = clock_mono_ns()) < until_ns && !must_end && !must_draw) {
		struct pollfd fds[2] = {
			{.fd = wake[0], .events = POLLIN},
			{.fd = screen && keys ? STDIN_FILENO : -1, .events = POLLIN}};
		char drop[64];
		int key = 0;

		if (poll(fds, 2, (int)((until_ns - now) / 1000000) + 1) <= 0)
			continue;
		if (fds[0].revents)
			while (read(wake[0], drop, sizeof(drop)) > 0)
				continue;
		if (fds[1].revents && read_typed(0))
			key = next_key();
		if (key)
			return key;
	}
	must_draw = 0;
	return 0;
}
