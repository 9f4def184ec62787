/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Where libmspti.so is. The thread of the monitor looks, and may wait for the loader. */
#include "device/ascend/activity/mspti.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libmspti.so"
#define MARK "msptiSubscribe" /* who has this is it */

static const struct mspti *_Atomic used;

void mspti_use(const struct mspti *fns)
{
	atomic_store(&used, fns);
}

/* Where it is in the process already; from now on it stays. */
static bool find_here(void **out)
{
	void *kept = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);

	*out = dlsym(RTLD_DEFAULT, MARK) ? RTLD_DEFAULT : kept;
	return dlsym(RTLD_DEFAULT, MARK) || (kept && dlsym(kept, MARK));
}

static bool home_path(char *path, size_t cap)
{
	static const char rest[] = "/lib64/" LIBRARY;
	const char *home = getenv("ASCEND_HOME_PATH");

	if (!home || !*home || strlen(home) + sizeof(rest) > cap)
		return false;
	strcpy(path, home);
	strcat(path, rest);
	return true;
}

/* Not for everybody to see: what the job binds later must stay what it was. */
static bool load_library(void **out)
{
	char path[1024];

	*out = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!*out && home_path(path, sizeof(path)))
		*out = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	return *out && dlsym(*out, MARK);
}

/* Is it in a directory that the loader searches? */
static bool is_on_path(void)
{
	const char *dirs = getenv("LD_LIBRARY_PATH");
	char path[1024];

	while (dirs && *dirs) {
		size_t n = strcspn(dirs, ":;");
		if (n && n + sizeof("/" LIBRARY) <= sizeof(path)) {
			memcpy(path, dirs, n);
			memcpy(path + n, "/" LIBRARY, sizeof("/" LIBRARY));
			if (access(path, R_OK) == 0)
				return true;
		}
		dirs += n + (dirs[n] != '\0');
	}
	return false;
}

/* Without keeping it there. */
static bool is_loaded(const char *library)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);

	if (handle)
		dlclose(handle);
	return handle;
}

/* Is there anything in this process that it could report about? */
static bool is_used_with_ascend(void)
{
	/* The next one: the first is ours (src/guest/monitor/entry.c). */
	return dlsym(RTLD_NEXT, "aclInit") || is_loaded("libruntime.so") ||
	       is_loaded("libascendcl.so") || is_loaded("libacl_rt.so");
}

bool mspti_can_be_found(void)
{
	char path[1024];

	if (atomic_load(&used) || dlsym(RTLD_DEFAULT, MARK) || is_loaded(LIBRARY))
		return true;
	if (!is_used_with_ascend())
		return false;
	return is_on_path() || (home_path(path, sizeof(path)) && access(path, R_OK) == 0);
}

static bool take_functions(void *handle, struct mspti *out)
{
	struct {
		void *to;
		const char *name;
		bool optional;
	} wanted[] = {
		{&out->subscribe, "msptiSubscribe", false},
		{&out->unsubscribe, "msptiUnsubscribe", false},
		{&out->register_callbacks, "msptiActivityRegisterCallbacks", false},
		{&out->enable, "msptiActivityEnable", false},
		{&out->disable, "msptiActivityDisable", false},
		{&out->next, "msptiActivityGetNextRecord", false},
		{&out->flush, "msptiActivityFlushAll", false},
		{&out->enable_call, "msptiEnableCallback", true},
		{&out->enable_domain, "msptiActivityEnableMarkerDomain", true},
		{&out->disable_domain, "msptiActivityDisableMarkerDomain", true},
		{&out->dropped, "msptiActivityGetNumDroppedRecords", true},
	};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *fn = dlsym(handle, wanted[i].name);
		if (!fn && !wanted[i].optional)
			return false;
		memcpy(wanted[i].to, &fn, sizeof(fn));
	}
	return true;
}

const struct mspti *mspti_find(void)
{
	static struct mspti found;
	void *handle;

	if (atomic_load(&used))
		return atomic_load(&used);
	if (!found.flush &&
	    !((find_here(&handle) || load_library(&handle)) && take_functions(handle, &found)))
		return NULL;
	return &found;
}
