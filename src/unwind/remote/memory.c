/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/remote/memory.h"

#include <errno.h>
#include <sys/uio.h>

static int read_as_reader(const struct python_reader *reader, uint64_t addr, void *out, size_t n)
{
	return remote_read((struct remote *)reader, addr, out, n);
}

void remote_init(struct remote *r, pid_t pid)
{
	*r = (struct remote){.reader = {read_as_reader}, .pid = pid};
}

int remote_read(struct remote *r, uint64_t addr, void *out, size_t n)
{
	struct remote_span span = {addr, out, n};
	int done = remote_readv(r, &span, 1);

	return done < 0 ? done : done == 1 ? 0 : -EFAULT;
}

/* EFAULT means that the very first span could not be read: none came whole. Fewer bytes than
 * asked for: the span in which they end did not. */
int remote_readv(struct remote *r, const struct remote_span *spans, unsigned n)
{
	struct iovec here[REMOTE_SPANS], there[REMOTE_SPANS];

	if (!n || n > REMOTE_SPANS)
		return n ? -EINVAL : 0;
	unsigned i = 0;
	do {
		here[i] = (struct iovec){spans[i].out, spans[i].n};
		there[i] = (struct iovec){(void *)(uintptr_t)spans[i].addr, spans[i].n};
	} while (++i < n);
	r->calls++;
	ssize_t got = process_vm_readv(r->pid, here, n, there, n, 0);
	if (got < 0)
		return errno == EFAULT ? 0 : -errno;
	unsigned whole = 0;
	for (size_t left = (size_t)got; whole < n && spans[whole].n <= left; whole++)
		left -= spans[whole].n;
	return (int)whole;
}
