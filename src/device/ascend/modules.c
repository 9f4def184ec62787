/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/ascend/modules.h"

#include <stddef.h>

/* Spelt as the driver spells them, the last one included. */
static const char *const names[] = {
	[0] = "SLOG",	      [1] = "IDEDD",
	[2] = "IDEDH",	      [3] = "HCCL",
	[4] = "FMK",	      [5] = "HIAIENGINE",
	[6] = "DVPP",	      [7] = "RUNTIME",
	[8] = "CCE",	      [9] = "HDC",
	[10] = "DRV",	      [11] = "MDCFUSION",
	[12] = "MDCLOCATION", [13] = "MDCPERCEPTION",
	[14] = "MDCFSM",      [15] = "MDCCOMMON",
	[16] = "MDCMONITOR",  [17] = "MDCBSWP",
	[18] = "MDCDEFAULT",  [19] = "MDCSC",
	[20] = "MDCPNC",      [21] = "MLL",
	[22] = "DEVMM",	      [23] = "KERNEL",
	[24] = "LIBMEDIA",    [25] = "CCECPU",
	[26] = "ASCENDDK",    [27] = "ROS",
	[28] = "HCCP",	      [29] = "ROCE",
	[30] = "TEFUSION",    [31] = "PROFILING",
	[32] = "DP",	      [33] = "APP",
	[34] = "TS",	      [35] = "TSDUMP",
	[36] = "AICPU",	      [37] = "LP",
	[38] = "TDT",	      [39] = "FE",
	[40] = "MD",	      [41] = "MB",
	[42] = "ME",	      [43] = "IMU",
	[44] = "IMP",	      [45] = "GE",
	[46] = "MDCFUSA",     [47] = "CAMERA",
	[48] = "ASCENDCL",    [49] = "TEEOS",
	[50] = "ISP",	      [51] = "SIS",
	[52] = "HSM",	      [53] = "DSS",
	[54] = "PROCMGR",     [55] = "BBOX",
	[56] = "AIVECTOR",    [57] = "TBE",
	[58] = "FV",	      [59] = "MDCMAP",
	[60] = "TUNE",	      [61] = "HSS",
	[62] = "FFTS",	      [63] = "OP",
	[64] = "UDF",	      [65] = "HICAID",
	[66] = "TSYNC",	      [67] = "AUDIO",
	[68] = "TPRT",	      [69] = "ASCENDCKERNEL",
	[70] = "ASYS",	      [71] = "ATRACE",
	[72] = "RTC",	      [73] = "SYSMONITOR",
	[74] = "AML",	      [75] = "INVLID_MOUDLE_ID",
};

const char *ascend_module_name(uint8_t id)
{
	return id < sizeof(names) / sizeof(names[0]) ? names[id] : "UNKNOWN";
}
