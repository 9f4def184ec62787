/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What is watched without being named: what the program said itself, or else what the recording was
 * started with. Two places, used in turn: a thread may be reading the one while the other is
 * filled.
 */
#include "guest/watch/watch.h"

#include <string.h>

static struct own {
	struct watch_settings w;
	char start[SESSION_NAME_BYTES], end[SESSION_NAME_BYTES];
} own[2];
static _Atomic(struct own *) said;

static void copy_name(char out[SESSION_NAME_BYTES], const char *name)
{
	size_t n = strnlen(name, SESSION_NAME_BYTES - 1);

	memset(out, 0, SESSION_NAME_BYTES);
	memcpy(out, name, n);
}

void collect_watch_configure(const char *start, uint32_t output, const char *end, bool content)
{
	struct own *o = &own[atomic_load(&said) == &own[0]];

	copy_name(o->start, start);
	copy_name(o->end, end);
	o->w = (struct watch_settings){o->start, o->end, output, content};
	atomic_store(&said, o);
}

struct watch_settings watch_settings(void)
{
	const struct own *o = atomic_load_explicit(&said, memory_order_acquire);
	const struct control_page *p = guest.page;

	if (o)
		return o->w;
	return (struct watch_settings){p->watch_start, p->watch_end, p->watch_output,
				       p->watch_content != 0};
}
