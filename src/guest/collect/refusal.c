/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Host memory that was refused: malloc() or mmap() had none. Rare, so it may ask which limit of the
 * process is the reason; those of its control group the recorder knows.
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"
#include "guest/runtime/guest.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t limit_of(int resource)
{
	struct rlimit64 limit = {RLIM64_INFINITY, RLIM64_INFINITY};

	if (guest_syscall(SYS_prlimit64, 0, resource, NULL, &limit) < 0)
		return UINT64_MAX;
	return limit.rlim_cur;
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
	struct put p = put_begin_depth(REC_OOM, sizeof(struct rec_oom), caller,
				       oom_depth(guest.c_depth), oom_depth(guest.py_depth));
	struct rec_oom *r = p.rec;
	if (r) {
		r->size_bytes = size;
		r->flag = least == UINT64_MAX ? 0 : least;
		r->limit = least == UINT64_MAX ? OOM_NO_LIMIT
			   : least == space    ? OOM_LIMIT_SPACE
					       : OOM_LIMIT_DATA;
		r->device = DEV_HOST;
		r->kind = ALLOC_PLAIN;
	}
	put_end(&p);
out:
	errno = saved;
}
