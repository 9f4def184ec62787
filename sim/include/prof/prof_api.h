/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The profiling library between the runtime (which reports) and a profiler (which registers). */
#ifndef SONDE_SIM_PROF_H
#define SONDE_SIM_PROF_H

#include <stddef.h>
#include <stdint.h>

enum msprof_callback {
	MSPROF_CALLBACK_COMPACT = 4, /* int32_t f(uint32_t aging, const void *data, uint32_t len) */
	MSPROF_CALLBACK_API = 9, /* int32_t f(uint32_t aging, const void *api) */
	MSPROF_CALLBACK_HASH = 12, /* uint64_t f(const char *name, size_t len) */
};

#define MSPROF_MAGIC 0x5a5a
#define MSPROF_LEVEL_RUNTIME 5000
#define MSPROF_TYPE_TASK_TRACK 802
#define MSPROF_TYPE_STREAM_EXPAND 804

struct MsprofTaskTrack {
	uint16_t deviceId;
	uint16_t streamId;
	uint32_t taskInfo; /* low half: task id */
	uint64_t taskType;
	uint64_t nameHash;
};

struct MsprofCompactInfo {
	uint16_t magic;
	uint16_t level;
	uint32_t type;
	uint32_t threadId;
	uint32_t dataLen;
	uint64_t timeStamp;
	union {
		uint8_t bytes[40];
		struct MsprofTaskTrack task;
		uint8_t expandStatus;
	} data;
};

struct MsprofApi {
	uint16_t magic;
	uint16_t level;
	uint32_t type;
	uint32_t threadId;
	uint32_t reserve;
	uint64_t beginTime;
	uint64_t endTime;
	uint64_t itemId;
};

#define MSPROF_COMMAND_START 1
#define MSPROF_COMMAND_STOP 2
#define MSPROF_SWITCH_TASK_TIME 0x800ull

struct MsprofCommand {
	uint64_t profSwitch;
	uint64_t profSwitchHi;
	uint32_t devNums;
	uint32_t devIdList[64];
	uint32_t modelId;
	uint32_t type;
	uint32_t cacheFlag;
	uint8_t params[5136];
};

_Static_assert(sizeof(struct MsprofCompactInfo) == 64, "vendor layout");
_Static_assert(offsetof(struct MsprofCompactInfo, data) == 24, "vendor layout");
_Static_assert(offsetof(struct MsprofTaskTrack, nameHash) == 16, "vendor layout");
_Static_assert(offsetof(struct MsprofCommand, devIdList) == 20, "vendor layout");
_Static_assert(offsetof(struct MsprofCommand, modelId) == 276, "vendor layout");
_Static_assert(offsetof(struct MsprofCommand, params) == 288, "vendor layout");
_Static_assert(sizeof(struct MsprofCommand) == 5424, "vendor layout");

int32_t MsprofRegisterProfileCallback(int32_t type, void *fn, uint32_t len);
int32_t profSetProfCommand(void *command, uint32_t len);
int InitInjectionMstx(int (*get_table)(int, void (****)(void), unsigned *));

/* What the runtime calls. */
uint64_t MsprofGetHashId(const char *name, size_t len);
int32_t MsprofReportCompactInfo(uint32_t aging, const void *data, uint32_t len);
int32_t MsprofReportApi(uint32_t aging, const void *api);

/* Not the vendor's: whether task tracks of @device are wanted at all. */
int sim_prof_wants_tasks(int device);

#endif
