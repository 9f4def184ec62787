# SPDX-License-Identifier: MulanPSL-2.0
"""What the job's frameworks know about it: which rank this process is, and the parallel groups.

Nothing is imported: who has not imported a framework does not use it. Whatever a framework raises
means that it does not know.
"""

import json
import os
import sys
from typing import Any, Dict, Optional

DEFAULT_GROUP = "default_group"
MAX_RANK = (1 << 31) - 1


def _number(text: Optional[str]) -> int:
    """Of plain decimal digits; -1 for anything else."""
    if text and text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_RANK:
        return int(text)
    return -1


def _distributed() -> Any:
    """torch.distributed, if it is in use."""
    dist = sys.modules.get("torch.distributed")
    try:
        if dist is not None and dist.is_available() and dist.is_initialized():
            return dist
    except Exception:
        pass
    return None


def _mindspore_rank() -> int:
    communication = sys.modules.get("mindspore.communication")
    try:
        return int(communication.get_rank())  # type: ignore[union-attr]
    except Exception:  # not in use, or not initialised
        return -1


def torch_rank() -> int:
    """$RANK, or what torch.distributed says; -1 if neither does."""
    found = _number(os.environ.get("RANK"))
    if found >= 0:
        return found
    dist = _distributed()
    try:
        return int(dist.get_rank()) if dist is not None else -1
    except Exception:
        return -1


def mindspore_rank() -> int:
    """$RANK_ID, or what MindSpore says; -1 if neither does."""
    found = _number(os.environ.get("RANK_ID"))
    return found if found >= 0 else _mindspore_rank()


def rank() -> int:
    """Of this process, -1 if unknown: $RANK, torch.distributed, $RANK_ID, MindSpore."""
    found = torch_rank()
    return found if found >= 0 else mindspore_rank()


def _comm_name(torch: Any, group: Any, group_rank: int) -> str:
    """What the activities of a group on an NPU are marked with; "" before its first one."""
    try:
        backend = group._get_backend(torch.device("npu"))
        try:
            return str(backend.get_hccl_comm_name(group_rank, init_comm=False))
        except TypeError:  # older: would make a communicator that there is none of yet
            return ""
    except Exception:
        return ""


def _world_of(dist: Any) -> Any:
    c10d = sys.modules.get("torch.distributed.distributed_c10d", dist)
    return getattr(c10d, "_world", c10d)


def _ranks_of(dist: Any, world: Any, group: Any) -> Any:
    """{rank in the job: rank in the group}, in order."""
    maps = getattr(world, "pg_group_ranks", None) or getattr(world, "_pg_group_ranks", None) or {}
    found = maps.get(group) or {}
    if not found:  # older: of the default group it says nothing
        found = {r: r for r in range(dist.get_world_size(group))}
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


def _is_default(dist: Any, world: Any, group: Any) -> bool:
    default = getattr(world, "default_pg", None) or getattr(world, "_default_pg", None)
    if default is None:
        default = getattr(getattr(dist, "group", None), "WORLD", None)
    return group is default


def _describe(dist: Any, world: Any, group: Any) -> Optional[Dict[str, Any]]:
    names = getattr(world, "pg_names", None) or getattr(world, "_pg_names", None) or {}
    ranks = _ranks_of(dist, world, group)
    mine = ranks.get(dist.get_rank(), -1)
    if mine < 0:
        return None  # this process is not in it
    name = str(names.get(group, ""))
    desc = getattr(group, "group_desc", None)
    shown = DEFAULT_GROUP if _is_default(dist, world, group) else str(desc or name)
    if shown == "undefined":
        shown = name
    comm = _comm_name(sys.modules.get("torch"), group, mine)
    return {
        "comm": comm or name or shown,
        "group_name": shown,
        "group_rank": mine,
        "global_ranks": list(ranks),
    }


def mindspore_groups() -> Optional[Dict[str, Dict[str, Any]]]:
    comm = sys.modules.get("mindspore.communication")
    helper: Any = sys.modules.get("mindspore.communication._comm_helper")
    try:
        if not comm.GlobalComm.INITED:  # type: ignore[union-attr]
            return None
        return {
            str(comm.get_comm_name(name)): {  # type: ignore[union-attr]
                "group_name": str(name),
                "group_rank": int(comm.get_local_rank(name)),  # type: ignore[union-attr]
                "global_ranks": list(comm.get_process_group_ranks(name)),  # type: ignore
            }
            for name in list(helper._get_group_map())
            if comm.get_comm_name(name)  # type: ignore[union-attr]
        }
    except Exception:  # not in use, or of another version
        return None


def torch_groups() -> Optional[Dict[str, Dict[str, Any]]]:
    """On an NPU the name of a communicator is HCCL's; elsewhere it is the one torch has given to
    the group."""
    dist = _distributed()
    if dist is None:
        return None
    found: Dict[str, Dict[str, Any]] = {}
    try:
        world = _world_of(dist)
        known = getattr(world, "pg_map", None) or getattr(world, "_pg_map", None) or {}
        for group in list(known):
            what = _describe(dist, world, group)
            if what is not None:
                found[what.pop("comm")] = what
    except Exception:  # these parts of torch are its own affair and change
        pass
    return found


def groups() -> Optional[Dict[str, Dict[str, Any]]]:
    """The groups that this process is in, by the name of their communicator: group_name,
    group_rank, global_ranks. None if neither torch.distributed nor MindSpore's are in use.
    """
    return torch_groups() or mindspore_groups()


def text_of(found: Optional[Dict[str, Dict[str, Any]]]) -> str:
    """As JSON, "" if there is nothing to say."""
    return json.dumps(found, sort_keys=True) if found else ""


def groups_text() -> str:
    return text_of(groups())
