# SPDX-License-Identifier: MulanPSL-2.0
"""Records of MSPTI as tests/targets/mspti_consumer.h prints them."""

import os

MARKER, KERNEL, API, HCCL, MEMORY, MEMSET, MEMCPY = range(1, 8)
EXTERNAL, COMMUNICATION, ACL, NODE, RUNTIME = range(8, 13)
ALL = ",".join(map(str, range(1, 13)))
NOTHING = 0xFFFFFFFF  # no device, no stream

FOREIGN = ("SIM_", "LD_PRELOAD", "MSTX_", "HCCL_", "RANK", "WORLD_SIZE")


def machine(tmp_path):
    """The environment of a machine of its own, with nothing preloaded."""
    e = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    e["SIM_NPU_STATE"] = str(tmp_path / "npu")
    return e


def of_kind(records, *kinds):
    return [r for r in records if r.get("kind") in kinds]
