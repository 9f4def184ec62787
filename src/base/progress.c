/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/progress.h"

#include "base/clock.h"

#include <stdio.h>
#include <unistd.h>

void progress_show(struct progress *p, const char *what, uint64_t done, uint64_t total)
{
	if (p->calls++ % 64 || !total)
		return;
	uint64_t now = clock_mono_ns();
	if (!p->begin_ns) {
		p->begin_ns = now;
		p->next_ns = now + 1000000000u;
	}
	if (now < p->next_ns || !isatty(STDERR_FILENO))
		return;
	p->next_ns = now + 200000000u;
	p->shown = 1;
	fprintf(stderr, "\r%s: %3.0f %%", what, 100.0 * (double)done / (double)total);
	fflush(stderr);
}

void progress_done(struct progress *p)
{
	if (p->shown)
		fprintf(stderr, "\r\033[K");
	p->shown = 0;
}
