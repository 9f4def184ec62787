/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The libcupti of this process: the one that is loaded, never a second copy beside it. If there is
 * none, one that fits the runtime of the job: beside it, where Python packages have it, where the
 * toolkit has it, where the system has it.
 */
#include "device/cuda/activity/cupti.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1024
#define CALLS 1024

struct seen {
	bool driver;
	char cupti[PATH_BYTES];
	char near[2][PATH_BYTES]; /* folders of the runtime and of PyTorch */
};

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool begins_with(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

static void copy_text(char *out, const char *s, size_t len)
{
	if (len >= PATH_BYTES)
		len = 0;
	memcpy(out, s, len);
	out[len] = '\0';
}

static int check_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct seen *s = arg;
	const char *path = info->dlpi_name ? info->dlpi_name : "", *base = base_of(path);

	(void)size;
	if (begins_with(base, "libcuda.so"))
		s->driver = true;
	else if (begins_with(base, "libcupti.so") && !s->cupti[0])
		copy_text(s->cupti, path, strlen(path));
	else if (begins_with(base, "libcudart.so") && !s->near[0][0])
		copy_text(s->near[0], path, (size_t)(base - path));
	else if (begins_with(base, "libtorch_c") && !s->near[1][0])
		copy_text(s->near[1], path, (size_t)(base - path));
	return 0;
}

static bool is_file(char *out, const char *dir, const char *below, const char *name)
{
	size_t a = strlen(dir), b = strlen(below), c = strlen(name);

	if (!a || a + b + c >= PATH_BYTES)
		return false;
	memcpy(out, dir, a);
	memcpy(out + a, below, b);
	memcpy(out + a + b, name, c + 1);
	return access(out, R_OK) == 0;
}

static const char *const names[] = {"libcupti.so.13", "libcupti.so.12"};

/* Below a folder that ends with '/'. */
static bool is_near(char *out, const char *dir)
{
	static const char *const below[] = {
		"",
		"../../cuda_cupti/lib/", /* Python packages of CUDA 12 … */
		"../../nvidia/cu13/lib/", /* … and 13, from torch/lib */
		"../../nvidia/cuda_cupti/lib/",
		"../extras/CUPTI/lib64/",
		"../../../extras/CUPTI/lib64/", /* from targets/x86_64-linux/lib */
	};

	for (size_t i = 0; i < sizeof(below) / sizeof(below[0]); i++)
		for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
			if (is_file(out, dir, below[i], names[n]))
				return true;
	return false;
}

static bool is_installed(char *out)
{
	static const char *const dirs[] = {
		"/usr/local/cuda/extras/CUPTI/lib64/",
		"/usr/local/cuda/lib64/",
		"/usr/lib/x86_64-linux-gnu/",
		"/usr/lib/aarch64-linux-gnu/",
		"/usr/lib64/",
		"/opt/cuda/extras/CUPTI/lib64/",
	};
	const char *home = getenv("CUDA_HOME");

	for (size_t n = 0; home && n < sizeof(names) / sizeof(names[0]); n++)
		if (is_file(out, home, "/extras/CUPTI/lib64/", names[n]))
			return true;
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++)
			if (is_file(out, dirs[i], "", names[n]))
				return true;
	return false;
}

static bool is_findable(const struct seen *s, char *out)
{
	return is_near(out, s->near[0]) || is_near(out, s->near[1]) || is_installed(out);
}

static const struct cupti *_Atomic instead; /* in tests */

void cupti_use(const struct cupti *fns)
{
	atomic_store(&instead, fns);
}

bool cupti_can_be_found(void)
{
	struct seen s = {0};
	char path[PATH_BYTES];

	if (atomic_load(&instead))
		return true;
	dl_iterate_phdr(check_object, &s);
	return s.driver && (s.cupti[0] || is_findable(&s, path));
}

bool cupti_is_loaded(void)
{
	struct seen s = {0};

	dl_iterate_phdr(check_object, &s);
	return s.driver && s.cupti[0];
}

static bool look_up_symbols(struct cupti *c, void *lib)
{
	const struct {
		const char *name;
		void *at;
		bool needed;
	} calls[] = {
		{"cuptiGetVersion", &c->version, true},
		{"cuptiActivityRegisterCallbacks", &c->register_callbacks, true},
		{"cuptiActivityEnable", &c->enable, true},
		{"cuptiActivityDisable", &c->disable, true},
		{"cuptiActivityFlushAll", &c->flush, true},
		{"cuptiActivityGetNextRecord", &c->next, true},
		{"cuptiActivityGetNumDroppedRecords", &c->dropped, true},
		{"cuptiGetCallbackName", &c->callback_name, true},
		{"cuptiFinalize", &c->finalize, false},
		{"cuptiGetThreadIdType", &c->get_thread_ids, false},
		{"cuptiSetThreadIdType", &c->set_thread_ids, false},
		{"cuptiActivityRegisterTimestampCallback", &c->register_clock, false},
		{"cuptiActivityEnableRuntimeApi", &c->runtime_call, false},
		{"cuptiActivityEnableDriverApi", &c->driver_call, false},
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		void *fn = dlsym(lib, calls[i].name);
		if (!fn && calls[i].needed)
			return false;
		memcpy(calls[i].at, &fn, sizeof(fn));
	}
	return true;
}

/* NULL: there is none, or it does not load. */
static void *open_library(void)
{
	struct seen s = {0};
	char path[PATH_BYTES];

	dl_iterate_phdr(check_object, &s);
	if (s.cupti[0])
		return dlopen(s.cupti, RTLD_LAZY | RTLD_NOLOAD);
	return s.driver && is_findable(&s, path) ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
}

const struct cupti *cupti_find(const char **why)
{
	static struct cupti found;
	static bool done;
	const struct cupti *other = atomic_load(&instead);

	*why = "";
	if (other)
		return other;
	if (done)
		return &found;
	void *lib = open_library();
	if (!lib) {
		*why = "there is no libcupti.so.12 or .13 in this process or near its CUDA "
		       "runtime: "
		       "install CUPTI (package nvidia-cuda-cupti), or preload it";
		return NULL;
	}
	if (!look_up_symbols(&found, lib)) {
		*why = "libcupti.so lacks calls that the monitor needs";
		return NULL;
	}
	done = true;
	return &found;
}

/* cudaLaunchKernel_v7000 is what people call cudaLaunchKernel. */
static size_t plain_length(const char *name)
{
	size_t len = strlen(name), n = len;

	while (n && name[n - 1] >= '0' && name[n - 1] <= '9')
		n--;
	return n < len && n > 2 && name[n - 1] == 'v' && name[n - 2] == '_' ? n - 2 : len;
}

/* As it is if there is nothing to cut, or no room. */
static const char *plain_name(const char *name)
{
	static char texts[CALLS * 32];
	static _Atomic uint32_t used;
	size_t len = plain_length(name);

	if (!name[len] || atomic_load(&used) > sizeof(texts) - 256 || len >= 255)
		return name;
	uint32_t at = atomic_fetch_add(&used, (uint32_t)len + 1);
	if (at > sizeof(texts) - 256)
		return name;
	memcpy(texts + at, name, len);
	return texts + at;
}

const char *cupti_call_name(const struct cupti *fns, int domain, uint32_t cbid)
{
	static const char *_Atomic known[2][CALLS];
	_Atomic(const char *) *slot = NULL;
	const char *name = NULL;

	if (cbid < CALLS && (domain == CUPTI_DOMAIN_DRIVER || domain == CUPTI_DOMAIN_RUNTIME)) {
		slot = &known[domain == CUPTI_DOMAIN_RUNTIME][cbid];
		name = atomic_load_explicit(slot, memory_order_relaxed);
	}
	if (name)
		return name;
	if (fns->callback_name(domain, cbid, &name) != CUPTI_OK || !name)
		return "";
	if (slot && domain == CUPTI_DOMAIN_RUNTIME)
		name = plain_name(name);
	if (slot)
		atomic_store_explicit(slot, name, memory_order_relaxed);
	return name;
}
