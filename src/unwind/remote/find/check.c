/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <string.h>

#include "unwind/remote/find/find_impl.h"
#include "unwind/remote/find/scan.h"
#include "unwind/remote/find/version.h"

#define MAX_INTERPRETERS 1024
#define CHECK_TRIES 3

int find_not_ready(struct finder *f)
{
	return err_set(&f->err, -EAGAIN, "the Python interpreter of process %d (%s) is not ready",
		       (int)f->remote->pid, f->process.name);
}

int find_not_supported(struct finder *f, uint32_t version)
{
	const char *how = VERSION_SERIES(version) < (3 << 8 | PYTHON_OLDEST)   ? "too old"
			  : VERSION_SERIES(version) > (3 << 8 | PYTHON_NEWEST) ? "too new"
									       : "not known";

	return err_set(&f->err, -ENOTSUP,
		       "process %d: python %u.%u is %s: 3.%u to 3.%u are supported",
		       (int)f->remote->pid, VERSION_MAJOR(version), VERSION_MINOR(version), how,
		       PYTHON_OLDEST, PYTHON_NEWEST);
}

/* --- does it hold together? --- */

static int check_thread(struct finder *f, uint64_t interp, bool *found)
{
	const struct python_layout *l = &f->place.layout;
	uint64_t thread, back;
	int r = remote_read(f->remote, interp + l->interp.threads_head, &thread, sizeof(thread));

	if (r < 0 || thread == 0)
		return r;
	r = remote_read(f->remote, thread + l->tstate.interp, &back, sizeof(back));
	if (r == 0 && back != interp)
		r = -EFAULT;
	if (r == 0)
		*found = true;
	return r;
}

int find_check_threads(struct finder *f)
{
	const struct python_layout *l = &f->place.layout;
	uint64_t at = f->place.runtime + l->runtime.interpreters_head, interp;
	bool found = false;

	for (unsigned i = 0; i < MAX_INTERPRETERS; i++) {
		int r = remote_read(f->remote, at, &interp, sizeof(interp));

		if (r == 0 && interp == 0)
			break;
		if (r == 0)
			r = check_thread(f, interp, &found);
		if (r < 0)
			return r;
		at = interp + l->interp.next;
	}
	return found ? 0 : -EAGAIN;
}

static int check_place(struct finder *f)
{
	int r = -EFAULT;

	/* A thread may end between two reads. */
	for (unsigned i = 0; i < CHECK_TRIES && r == -EFAULT; i++)
		r = find_check_threads(f);
	if (r == -EAGAIN)
		return find_not_ready(f);
	if (r == -EFAULT)
		return err_set(&f->err, -EPROTO,
			       "process %d: what the interpreter in '%s' (python 3.%u) holds makes "
			       "no sense",
			       (int)f->remote->pid, f->place.path, f->place.layout.minor);
	return r;
}

/* --- which version? --- */

/* 0 if it cannot be said (yet). */
static uint32_t find_version(struct finder *f, const struct candidate *c)
{
	struct elf_symbol s;
	uint32_t version;

	if (elf_symbol_find(&c->image, "Py_Version", &s) == 0 &&
	    remote_read(f->remote, s.addr, &version, sizeof(version)) == 0)
		return version;
	if (scan_version(&c->image, &version))
		return version;
	return f->version;
}

static int find_layout_table(struct finder *f, const struct candidate *c)
{
	uint32_t version = find_version(f, c);

	if (version == 0)
		return find_not_ready(f);
	f->version = version;
	if (python_layout_table(version, c->image.arch, &f->place.layout) < 0)
		return find_not_supported(f, version);
	return 0;
}

static int find_layout(struct finder *f, const struct candidate *c)
{
	uint64_t at = f->place.runtime, left = c->image.end - at;
	char bytes[PYTHON_DEBUG_BYTES];
	size_t n = left < sizeof(bytes) ? (size_t)left : sizeof(bytes);
	int r = remote_read(f->remote, at, bytes, n);

	if (r < 0)
		return r == -EFAULT ? -ENOEXEC : r;
	r = python_layout_read(bytes, n, &f->place.layout);
	if (r == -ENOENT)
		return find_layout_table(f, c);
	if (r == -ENOTSUP) {
		uint32_t version = 0;

		if (n >= 12) /* behind the cookie */
			memcpy(&version, bytes + 8, sizeof(version));
		return find_not_supported(f, version);
	}
	if (r < 0)
		return err_set(&f->err, r, "process %d: the layout that '%s' tells makes no sense",
			       (int)f->remote->pid, f->place.path);
	return 0;
}

int find_check(struct finder *f, const struct candidate *c)
{
	int r = find_layout(f, c);

	return r < 0 ? r : check_place(f);
}
