/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "recorder"
#include "memory/outputs/report.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE 512u
#define PATIENCE_MS 500

void report_say(const struct report *r, const char *text, size_t len)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

	while (r->terminal && len && poll(&p, 1, PATIENCE_MS) > 0) {
		ssize_t n = write(STDERR_FILENO, text, len < PIECE ? len : PIECE);
		if (n <= 0)
			return;
		text += n;
		len -= (size_t)n;
	}
}

static bool save(const struct report *r, struct buf *text)
{
	char *path = xasprintf("%s/" SESSION_REPORT, r->dir);
	struct err err = {0};
	/* The job may be reading the former one. */
	int result = fs_write_atomic(path, text, 0600, &err);

	if (result < 0)
		log_err("%s", err.text);
	free(path);
	return result == 0;
}

void report_tell(struct report *r, struct diagnose *d)
{
	bool on_terminal = r->terminal && r->cfg->report != MEM_REPORT_OFF;
	bool alarms = diagnose_alarms(d);
	bool is_news = !r->told || (alarms && !r->alarmed);
	bool shown = is_news && (r->cfg->report_asked || alarms || on_terminal);
	struct buf text = {0};

	diagnose_text(d, false, &text);
	bool saved = text.len && save(r, &text);
	if (shown && saved && r->page->report_fd) {
		atomic_store(&r->page->report_ready, 1);
	} else if (shown && on_terminal) {
		buf_clear(&text);
		diagnose_text(d, true, &text);
		report_say(r, text.data, text.len);
	}
	r->told = true;
	r->alarmed |= alarms;
	buf_release(&text);
}
