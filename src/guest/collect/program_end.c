/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The moment at which the program itself has ended, and its teardown begins. What memory is left is
 * asked of this moment: the interpreter and destructors free nearly everything behind it.
 *
 *	C, C++	main() has returned, or exit() was called (guest/interpose/program_end.c)
 *	Python	its atexit callbacks are through. Nothing of ours can be put in front of what comes
 *		then, so the first free asks the interpreter.
 *
 * A process that is killed, or calls _exit(), has no such moment: its last state counts.
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"
#include "guest/runtime/guest.h"

#include <errno.h>
#include <string.h>

extern int Py_IsFinalizing(void) __attribute__((weak)); /* from 3.13 */
extern int _Py_IsFinalizing(void) __attribute__((weak)); /* up to 3.12 */

_Atomic(python_ends_fn) python_ends;

/* Only where Python is the program: one that it is embedded in may go on without it. */
void program_await_python_end(void)
{
	if (!strncmp(program_invocation_short_name, "python", strlen("python")))
		atomic_store(&python_ends, Py_IsFinalizing ? Py_IsFinalizing : _Py_IsFinalizing);
}

void program_ask_python(void)
{
	python_ends_fn fn = atomic_load(&python_ends);

	if (!fn || !fn())
		return;
	atomic_store(&python_ends, NULL);
	collect_program_end();
}

void collect_program_end(void)
{
	static _Atomic uint32_t said; /* in this epoch: a child that is forked here has another */

	if (!guest_has_joined() || guest_mode() < GUEST_SHADOW ||
	    !(atomic_load_explicit(&guest.want, memory_order_relaxed) & WANT_HOST) ||
	    atomic_exchange(&said, guest_epoch_now()) == guest_epoch_now())
		return;
	struct put p = put_begin(REC_SYSTEM, sizeof(struct rec_system), NULL);
	struct rec_system *r = p.rec;
	if (r) {
		r->device = DEV_HOST;
		r->kind = SYSTEM_EXIT;
	}
	put_end(&p);
}
