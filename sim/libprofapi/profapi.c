/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "prof/prof_api.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

typedef int32_t (*compact_fn)(uint32_t, const void *, uint32_t);
typedef int32_t (*api_fn)(uint32_t, const void *);
typedef uint64_t (*hash_fn)(const char *, size_t);

static _Atomic(compact_fn) compact_cb;
static _Atomic(api_fn) api_cb;
static _Atomic(hash_fn) hash_cb;
static _Atomic uint64_t task_devices; /* bit n: a start command named device n */

/* Tells a tool how stream ids are packed; SIM_NPU_STREAM_EXPAND=1 simulates the expanded form. */
static void report_stream_form(void)
{
	const char *expand = getenv("SIM_NPU_STREAM_EXPAND");
	struct MsprofCompactInfo rec = {.magic = MSPROF_MAGIC,
					.level = MSPROF_LEVEL_RUNTIME,
					.type = MSPROF_TYPE_STREAM_EXPAND,
					.threadId = (uint32_t)gettid(),
					.dataLen = 1};
	rec.data.expandStatus = expand && *expand == '1';
	(void)MsprofReportCompactInfo(0, &rec, sizeof(rec));
}

int32_t MsprofRegisterProfileCallback(int32_t type, void *fn, uint32_t len)
{
	if (len != sizeof(void *))
		return -1;
	switch (type) {
	case MSPROF_CALLBACK_COMPACT:
		atomic_store(&compact_cb, (compact_fn)fn);
		if (fn)
			report_stream_form();
		return 0;
	case MSPROF_CALLBACK_API:
		atomic_store(&api_cb, (api_fn)fn);
		return 0;
	case MSPROF_CALLBACK_HASH:
		atomic_store(&hash_cb, (hash_fn)fn);
		return 0;
	default:
		return 0; /* the kinds that this runtime never reports */
	}
}

int32_t profSetProfCommand(void *command, uint32_t len)
{
	const struct MsprofCommand *cmd = command;
	if (!cmd || len != sizeof(*cmd) || cmd->devNums > 64)
		return -1;
	uint64_t mask = 0;
	for (uint32_t i = 0; i < cmd->devNums; i++)
		if (cmd->devIdList[i] < 64)
			mask |= 1ull << cmd->devIdList[i];
	if (cmd->type == MSPROF_COMMAND_START && cmd->profSwitch & MSPROF_SWITCH_TASK_TIME)
		atomic_fetch_or(&task_devices, mask);
	else if (cmd->type == MSPROF_COMMAND_STOP)
		atomic_fetch_and(&task_devices, ~mask);
	return 0;
}

/* One started device switches all of them on, unless SIM_NPU_PROF_STRICT=1 asks for per-device. */
int sim_prof_wants_tasks(int device)
{
	if (!atomic_load_explicit(&compact_cb, memory_order_relaxed))
		return 0;
	uint64_t mask = atomic_load_explicit(&task_devices, memory_order_relaxed);
	static _Atomic int strict; /* 0 not read yet, 1 no, 2 yes */
	int s = atomic_load_explicit(&strict, memory_order_relaxed);
	if (!s) {
		const char *text = getenv("SIM_NPU_PROF_STRICT");
		s = text && *text == '1' ? 2 : 1;
		atomic_store(&strict, s);
	}
	return s == 2 ? (int)(mask >> device & 1) : mask != 0;
}

uint64_t MsprofGetHashId(const char *name, size_t len)
{
	hash_fn cb = atomic_load_explicit(&hash_cb, memory_order_acquire);
	if (cb)
		return cb(name, len);
	uint32_t hi = 0;
	uint32_t lo = 0;
	for (size_t i = 0; i < len; i++) {
		hi = hi * 29 + (uint32_t)(int)name[i];
		lo = lo * 131 + (uint32_t)(int)name[i];
	}
	return (uint64_t)hi << 32 | lo;
}

int32_t MsprofReportCompactInfo(uint32_t aging, const void *data, uint32_t len)
{
	compact_fn cb = atomic_load_explicit(&compact_cb, memory_order_acquire);
	return cb ? cb(aging, data, len) : 0;
}

int32_t MsprofReportApi(uint32_t aging, const void *api)
{
	api_fn cb = atomic_load_explicit(&api_cb, memory_order_acquire);
	return cb ? cb(aging, api) : 0;
}

/*
 * The vendor's library exports this name too, so an injector that is not preloaded loses to it.
 * Here it declines, which turns every mstx call of the process into a no-op.
 */
int InitInjectionMstx(int (*get_table)(int, void (****)(void), unsigned *))
{
	(void)get_table;
	return 1;
}
