/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Host memory that was refused: malloc() or mmap() had none. Rare, so it may ask which limit of the
 * process is the reason; those of its control group the recorder knows.
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"
#include "guest/runtime/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { STATM_SIZE = 0, STATM_DATA = 5 }; /* fields of /proc/self/statm */

static uint64_t limit_of(int resource)
{
	struct rlimit64 limit = {RLIM64_INFINITY, RLIM64_INFINITY};

	if (guest_syscall(SYS_prlimit64, 0, resource, NULL, &limit) < 0)
		return UINT64_MAX;
	return limit.rlim_cur;
}

/* Field n, from 0, of /proc/self/statm in bytes; 0: not known. */
static uint64_t read_statm(unsigned n)
{
	char text[160];
	int fd = (int)guest_syscall(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY | O_CLOEXEC);
	long len = fd < 0 ? -1 : guest_syscall(SYS_read, fd, text, sizeof(text) - 1);
	uint64_t pages = 0;
	long i = 0;

	if (fd >= 0)
		guest_syscall(SYS_close, fd);
	for (; i < len && n; i++)
		n -= text[i] == ' ';
	for (; i < len && text[i] >= '0' && text[i] <= '9'; i++)
		pages = pages * 10 + (uint64_t)(text[i] - '0');
	return pages * getauxval(AT_PAGESZ);
}

static uint32_t machine_mib(void)
{
	struct sysinfo info = {0};

	if (guest_syscall(SYS_sysinfo, &info) < 0)
		return 0;
	return (uint32_t)(((uint64_t)info.totalram + info.totalswap) * info.mem_unit >> 20);
}

/* What the process has already of what is limited, and what the machine has. */
static void put_host_memory(uint8_t limit)
{
	uint64_t used = read_statm(limit == OOM_LIMIT_DATA ? STATM_DATA : STATM_SIZE);
	struct put p = put_begin(REC_SYSTEM, sizeof(struct rec_system), NULL);
	struct rec_system *r = p.rec;

	if (r) {
		r->value = used;
		r->device = DEV_HOST;
		r->kind = SYSTEM_HOST_MEMORY;
		r->machine_mib = machine_mib();
	}
	put_end(&p);
}

void collect_host_refusal(uint64_t size, const void *caller)
{
	uint32_t need = WANT_ALLOC | WANT_HOST;
	int saved = errno;

	if (guest_mode() != GUEST_RECORD ||
	    (atomic_load_explicit(&guest.want, memory_order_relaxed) & need) != need)
		goto out;
	uint64_t space = limit_of(RLIMIT_AS), data = limit_of(RLIMIT_DATA);
	uint64_t least = space <= data ? space : data;
	uint8_t limit = least == UINT64_MAX ? OOM_NO_LIMIT
			: least == space    ? OOM_LIMIT_SPACE
					    : OOM_LIMIT_DATA;
	put_host_memory(limit);
	struct put p = put_begin_depth(REC_OOM, sizeof(struct rec_oom), caller,
				       oom_depth(guest.c_depth), oom_depth(guest.py_depth));
	struct rec_oom *r = p.rec;
	if (r) {
		r->size_bytes = size;
		r->flag = least == UINT64_MAX ? 0 : least;
		r->limit = limit;
		r->device = DEV_HOST;
		r->kind = ALLOC_PLAIN;
	}
	put_end(&p);
out:
	errno = saved;
}
