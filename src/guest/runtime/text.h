/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Text put together in a buffer of fixed size, and written to a descriptor of the job's: without
 * heap, stdio or the C library's locale. A text that does not fit is dropped as a whole: `at` is
 * NULL from then on, and every later piece is ignored, so that only the end has to be checked.
 */
#ifndef SONDE_GUEST_RUNTIME_TEXT_H
#define SONDE_GUEST_RUNTIME_TEXT_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

struct text {
	char *at, *end; /* at NULL: it did not fit */
};

static inline void text_add(struct text *t, const char *s, size_t n)
{
	if (!t->at || n >= (size_t)(t->end - t->at)) {
		t->at = NULL;
		return;
	}
	memcpy(t->at, s, n);
	t->at += n;
	*t->at = '\0';
}

static inline void text_str(struct text *t, const char *s)
{
	text_add(t, s, strlen(s));
}

static inline void text_number(struct text *t, int64_t v)
{
	char tmp[24];
	size_t i = sizeof(tmp);
	uint64_t left = v < 0 ? -(uint64_t)v : (uint64_t)v;

	do {
		tmp[--i] = (char)('0' + left % 10);
		left /= 10;
	} while (left);
	if (v < 0)
		tmp[--i] = '-';
	text_add(t, tmp + i, sizeof(tmp) - i);
}

/*
 * Around write() to a descriptor of the job's. A reader that is gone (SIGPIPE) or a limit of file
 * sizes (SIGXFSZ) must not kill the job for a line of ours: both are blocked, and one that our own
 * write has raised is taken away before they are unblocked. One that was pending before stays.
 */
struct quiet_write {
	sigset_t ours, before;
};

static inline void quiet_write_begin(struct quiet_write *q)
{
	sigset_t pending;

	sigemptyset(&q->ours);
	sigaddset(&q->ours, SIGPIPE);
	sigaddset(&q->ours, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &q->ours, &q->before);
	sigpending(&pending);
	if (sigismember(&pending, SIGPIPE))
		sigdelset(&q->ours, SIGPIPE);
	if (sigismember(&pending, SIGXFSZ))
		sigdelset(&q->ours, SIGXFSZ);
}

static inline void quiet_write_end(const struct quiet_write *q)
{
	const struct timespec none = {0};

	(void)sigtimedwait(&q->ours, NULL, &none);
	pthread_sigmask(SIG_SETMASK, &q->before, NULL);
}

#endif
