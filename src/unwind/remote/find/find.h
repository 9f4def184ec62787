/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Finds the interpreter in a process: which binary it is in (the program itself or a libpython),
 * where _PyRuntime is, which version it is and how its structures are laid out. Works with
 * stripped and deleted binaries, in other mount and pid namespaces.
 *
 *	/proc/PID/maps        which binaries are mapped                     process.c
 *	ELF image in memory   exported symbols: _PyRuntime, Py_Version       elf.c
 *	  no such symbol?     the file's symbol table, .PyRuntime, the       hidden.c
 *	                      cookie, the shape of the interpreter list
 *	version               Py_Version, or the text of sys.version         version.c
 *	layout                from the interpreter (3.13 on), or a table     unwind/python
 *	check                 interpreters have threads, and those point     find.c
 *	                      back to them
 */
#ifndef SONDE_UNWIND_REMOTE_FIND_FIND_H
#define SONDE_UNWIND_REMOTE_FIND_FIND_H

#include "unwind/python/layout.h"
#include "unwind/remote/memory.h"

struct python_place {
	uint64_t runtime; /* _PyRuntime */
	uint64_t code_type; /* PyCode_Type; 0 if it was not found */
	uint64_t eval_start, eval_end; /* _PyEval_EvalFrameDefault; 0 if it was not found */
	struct python_layout layout;
	char path[256]; /* of the binary that holds it, as the process names it */
};

/*
 *	-ESRCH	there is no such process, or it has ended
 *	-EPERM	we may not read it; err says what to do about it
 *	-ENOEXEC	it is no Python process
 *	-EAGAIN	it is one, but the interpreter is not ready yet
 *	-ENOTSUP	a version that is not known; err names it
 *	-EPROTO	what it holds makes no sense
 */
int python_find(struct remote *r, struct python_place *out, struct err *err);

/*
 * Why process_vm_readv() or ptrace() of the process fails with EPERM, and what to do about it:
 * another user, Yama's ptrace_scope, a process that is not dumpable, a container without
 * CAP_SYS_PTRACE, another user namespace. Returns -EPERM.
 */
int remote_explain_eperm(pid_t pid, struct err *err);

/* That there is no such process, and, in a container, how to see those outside; or that /proc hides
 * it. Returns -ESRCH. */
int remote_explain_esrch(pid_t pid, struct err *err);

#endif
