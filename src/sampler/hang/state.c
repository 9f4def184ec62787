/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a loop may change that keeps nothing in variables: attributes of the objects whose methods
 * run (`self.step += 1`), and the variables of the script itself.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sampler/discover/proc.h"
#include "sampler/hang/hang_impl.h"
#include "unwind/remote/objects/objects.h"

#define OBJECTS_MAX 4 /* frames, from the innermost on, whose objects are looked at */

static uint64_t first_local(struct python_process *p, const struct stack_frame *f)
{
	const struct python_layout *l = &p->place.layout;
	uint64_t word = 0;

	if (remote_read(&p->remote, f->address + l->frame.locals, &word, sizeof(word)) < 0)
		return 0;
	return word & ~(uint64_t)l->tagged;
}

uint64_t still_state(struct still_one *one, struct python_process *p, const struct python_thread *t)
{
	unsigned own = stack_own_part(t->frames, t->nframes), looked = 0;
	uint64_t stamp = 0;

	if (!one->main_module && !one->main_looked)
		remote_main_module(&p->remote, &p->place, t->tstate, &one->main_module);
	one->main_looked = true;
	if (one->main_module)
		stamp = remote_attributes_stamp(&p->remote, &p->place, one->main_module);
	for (unsigned i = own; i-- > 0 && looked < OBJECTS_MAX; looked++) {
		uint64_t object =
			t->frames[i].kind == STACK_PYTHON ? first_local(p, &t->frames[i]) : 0;

		if (object)
			stamp = stamp * 31 + remote_attributes_stamp(&p->remote, &p->place, object);
	}
	return stamp;
}

uint64_t still_run_ns(pid_t pid, pid_t tid)
{
	char name[40], text[128];

	snprintf(name, sizeof(name), "task/%d/schedstat", tid);
	ssize_t n = proc_read(pid, name, text, sizeof(text) - 1);
	if (n <= 0)
		return UINT64_MAX;
	text[n] = '\0';
	return strtoull(text, NULL, 10);
}
