/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Runner::Execute and what a tool asks a runner. SIM_ATB_ABI=0 makes it the old string ABI's
 * library. */
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/rt.h"

static bool old_abi(void)
{
	const char *abi = getenv("SIM_ATB_ABI");
	return abi && *abi == '0';
}

/* A std::string that never uses its inline buffer: its owner's destructor frees the data. */
static struct cxx11_string make_string(const char *text)
{
	struct cxx11_string s = {.size = strlen(text)};
	s.capacity = s.size < 16 ? 16 : s.size;
	s.data = malloc(s.capacity + 1);
	if (!s.data)
		abort();
	memcpy(s.data, text, s.size + 1);
	return s;
}

/* The old ABI's string is a pointer to the characters, with this in front of them. */
struct old_string_head {
	size_t size;
	size_t capacity;
	int references; /* other owners */
};

static void *make_old_string(const char *text)
{
	size_t n = strlen(text);
	struct old_string_head *h = malloc(sizeof(*h) + n + 1);
	if (!h)
		abort();
	*h = (struct old_string_head){n, n, 0};
	return memcpy(h + 1, text, n + 1);
}

static void free_old_string(void *chars)
{
	free((struct old_string_head *)chars - 1);
}

bool _ZNK3atb6Runner12IsSaveTensorEv(const struct atb_runner *self)
{
	(void)self;
	return false;
}

void *_ZNK3atb6Runner16GetExecuteStreamEPNS_7ContextE(const struct atb_runner *self, void *context)
{
	(void)self;
	return *(void **)context; /* a wrong context crashes here, as it would in ATB */
}

struct cxx11_string _ZNK3atb6Runner16GetOperationNameB5cxx11Ev(const struct atb_runner *self)
{
	return make_string(self->call->name);
}

struct cxx11_string _ZNK3atb6Runner16GetSaveTensorDirB5cxx11Ev(const struct atb_runner *self)
{
	return make_string(self->dir);
}

#ifdef __x86_64__
void *_ZNK3atb6Runner16GetOperationNameEv(void **out, const struct atb_runner *self)
{
	*out = make_old_string(self->call->name);
	return out;
}

void *_ZNK3atb6Runner16GetSaveTensorDirEv(void **out, const struct atb_runner *self)
{
	*out = make_old_string(self->dir);
	return out;
}
#endif

static void save_params(const struct atb_runner *self, const char *when)
{
	char dir[320];
	snprintf(dir, sizeof(dir), "%s/0_%s/%s", self->dir, self->call->kernel_name, when);
	if (old_abi()) {
		void *text = make_old_string(dir);
		_ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKSs(self->call->stream,
									       self->param, &text);
		free_old_string(text);
		return;
	}
	struct cxx11_string text = make_string(dir);
	_ZN3atb9StoreUtil15SaveLaunchParamEPvRKN3Mki11LaunchParamERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(
		self->call->stream, self->param, &text);
	free(text.data);
}

static bool wants_tensors(const struct atb_runner *self)
{
	if (!_ZN3atb5Probe21IsExecuteCountInRangeEm(self->execute_count))
		return false;
	const void *ids[3] = {NULL, NULL, NULL}; /* an empty std::vector */
	if (old_abi()) {
		void *name = make_old_string(self->call->name);
		bool want = _ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKSs(ids, &name);
		free_old_string(name);
		return want;
	}
	struct cxx11_string name = make_string(self->call->name);
	bool want =
		_ZN3atb5Probe16IsTensorNeedSaveERKSt6vectorIlSaIlEERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE(
			ids, &name);
	free(name.data);
	return want;
}

int32_t _ZN3atb6Runner7ExecuteERNS_17RunnerVariantPackE(struct atb_runner *self,
							struct atb_variant_pack *pack)
{
	(void)pack;
	const struct sim_atb_call *c = self->call;
	bool want = wants_tensors(self);
	if (want && _ZN3atb5Probe18IsSaveTensorBeforeEv())
		save_params(self, "before");
	struct rtArgsEx ex = {.args = (void *)(uintptr_t)c->args,
			      .argsSize = (uint32_t)c->args_bytes};
	int r = rtKernelLaunchWithHandleV2(c->kernel, 0, 8, &ex, NULL, c->stream, NULL);
	if (want && _ZN3atb5Probe17IsSaveTensorAfterEv())
		save_params(self, "after");
	return r;
}
