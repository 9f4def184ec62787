/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Looks at watched memory, from the record to whoever wants them. */
#include "memory/track/track_impl.h"

#include "memory/analysis/watch/watch.h"

#include <string.h>

void watch_record(struct proc *p, uint32_t tid, const struct rec_watch *r)
{
	const struct track_sink *sink = &p->track->sink;
	size_t len;
	const char *text = rec_text(&r->head, &len);
	const char *nul = memchr(text, 0, len);
	struct watch_sample s = {
		.time_ns = r->head.time_ns + (uint64_t)p->track->wall_minus_mono_ns,
		.tid = tid,
		.device = physical_device(p, r->device),
		.watch = r->watch,
		.seq = r->seq,
		.addr = r->addr,
		.size_bytes = r->size_bytes,
		.checksum = r->checksum,
		.content = r->content,
		.error = r->error,
		.content_errno = r->content_errno,
		.output = r->output,
		.watched_call = r->watched_call,
		.call = r->call,
		.after = r->after != 0,
		.last = r->last != 0,
		.op = text,
		.op_len = nul ? (size_t)(nul - text) : len,
		.watched = nul ? nul + 1 : "",
		.watched_len = nul ? len - (size_t)(nul - text) - 1 : 0,
	};

	if (sink->watch && p->window && rows_wanted(p, s.device))
		sink->watch(sink->arg, p->info.proc, &s);
}
