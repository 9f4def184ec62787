# SPDX-License-Identifier: MulanPSL-2.0
"""Why an allocation on a device failed: everything that its allocator and its driver say.

    from putils.npu_oom_debug import dump_npu_oom_debug

    try:
        train_step()
    except RuntimeError as error:
        dump_npu_oom_debug("step", error=error)
        raise

How to read it: much inactive memory in small blocks is fragmentation. If after empty_cache() the
probe gets what was requested, the state of the cache was the cause. If the driver has much free
memory and the probe gets little, the limit is that of its mappings: try larger segments.

Works on NPUs (not tried yet) and on GPUs (tried on an H200). Every step is guarded: a
value that cannot be had is {"__error__": why}.
"""

import json
import math
import os
import pickle
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _files, _job, _messages, device

__all__ = ["dump_npu_oom_debug"]

GIB = 1 << 30
FOLDER = "/tmp/npu_oom_debug"
_ENV = (
    "PYTORCH_NPU_ALLOC_CONF",
    "MULTI_STREAM_MEMORY_REUSE",
    "HCCL_BUFFSIZE",
    "ASCEND_VISIBLE_DEVICES",
)
_ENV_CUDA = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUDA_VISIBLE_DEVICES")
_PROBE_STEPS = 8


def _try(function: Callable, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as why:
        return {"__error__": f"{type(why).__name__}: {_messages.words(why)}"}


def _snapshot_summary(snapshot: Any) -> Dict[str, Any]:
    """What the segments of an allocator's snapshot add up to.

    >>> _snapshot_summary(torch.npu.memory_snapshot())["largest_inactive_block_gib"]
    0.5
    """
    segments = snapshot.get("segments", []) if isinstance(snapshot, dict) else snapshot
    states: Dict[str, int] = {}
    active, inactive = [], []
    for segment in segments:
        for block in segment.get("blocks", []):
            state = str(block.get("state", "unknown"))
            states[state] = states.get(state, 0) + 1
            (active if state.startswith("active") else inactive).append(int(block.get("size", 0)))
    total = sum(int(s.get("total_size", 0)) for s in segments)
    largest = max(inactive, default=0)
    return {
        "segment_count": len(segments),
        "segment_total_bytes": total,
        "segment_total_gib": total / GIB,
        "block_count": len(active) + len(inactive),
        "active_blocks": len(active),
        "inactive_blocks": len(inactive),
        "free_blocks": sum(n for state, n in states.items() if state.startswith("free")),
        "active_total_bytes": sum(active),
        "inactive_total_bytes": sum(inactive),
        "largest_inactive_block_bytes": largest,
        "largest_inactive_block_gib": largest / GIB,
        "block_states": states,
    }


def _probe(name: str, requested_bytes: Optional[int]) -> Dict[str, Any]:
    """The largest tensor that can be made now, approximately: eight steps of bisection."""
    torch = sys.modules["torch"]
    low, high = 1.0, float(max(16, math.ceil((requested_bytes or 0) / GIB) + 4))
    found: Dict[str, Any] = {
        "max_ok_gib_approx": 0.0,
        "first_fail_gib_approx": None,
        "last_error": None,
    }
    for _ in range(_PROBE_STEPS):
        middle = (low + high) / 2
        try:
            tensor = torch.empty(int(middle * GIB) // 2, dtype=torch.bfloat16, device=name)
            del tensor
            found["max_ok_gib_approx"] = max(found["max_ok_gib_approx"], middle)
            low = middle
        except RuntimeError as why:
            found["first_fail_gib_approx"] = middle
            found["last_error"] = _messages.words(why)
            high = middle
    return found


def _device() -> Tuple[str, Any]:
    """The kind of device in use and its module; ("cpu", None) if there is none."""
    used = device.accelerators_in_use()
    return used[0] if used else ("cpu", None)


def _memory(name: str, module: Any) -> Dict[str, Any]:
    """What driver and allocator count."""

    def ask(function: str) -> Any:
        if module is None:
            return {"__error__": "no device is in use"}
        return _try(getattr(module, function))

    info = _try(lambda: module.mem_get_info()) if module is not None else ask("")
    if isinstance(info, tuple):
        info = {"free_bytes": info[0], "total_bytes": info[1]}
    return {
        "device": f"{name}:{module.current_device()}" if module is not None else name,
        "mem_get_info": info,
        "memory_allocated": ask("memory_allocated"),
        "memory_reserved": ask("memory_reserved"),
        "max_memory_allocated": ask("max_memory_allocated"),
        "max_memory_reserved": ask("max_memory_reserved"),
        "stats": ask("memory_stats"),
    }


def _snapshot(module: Any) -> Any:
    if module is None:
        return {"__error__": "no device is in use"}
    whole = getattr(getattr(module, "memory", None), "_snapshot", None)
    return _try(whole) if whole else _try(module.memory_snapshot)


def _write(path: str, content: Any) -> Any:
    def write() -> str:
        with _files.open_ours(path, "wb") as f:
            f.write(content() if callable(content) else content)
        return path

    return _try(write)


def _environment(name: str) -> Dict[str, Optional[str]]:
    names = _ENV + (_ENV_CUDA if name == "cuda" else ())
    return {key: os.environ.get(key) for key in names}


def _probes(name: str, module: Any, requested: Optional[int]) -> Dict[str, Any]:
    before = _try(_probe, name, requested)
    _try(module.empty_cache)
    return {
        "probe_before_empty_cache": before,
        "probe_after_empty_cache": _try(_probe, name, requested),
    }


def _line(summary: Dict[str, Any], paths: List[Any]) -> str:
    def gib(value: Any) -> str:
        return f"{value / GIB:.2f} GiB" if isinstance(value, (int, float)) else "unknown"

    driver, blocks = summary["mem_get_info"], summary["snapshot_summary"]
    return (
        f"[OOM rank {summary['rank']}] {summary['tag']}: requested {gib(summary['requested_bytes'])}"
        f", driver_free {gib(driver.get('free_bytes'))}/{gib(driver.get('total_bytes'))}"
        f", reserved {gib(summary['memory_reserved'])}"
        f", allocated {gib(summary['memory_allocated'])}"
        f", largest_inactive {gib(blocks.get('largest_inactive_block_bytes'))}"
        f", inactive_total {gib(blocks.get('inactive_total_bytes'))}"
        f", files: {', '.join(p for p in paths if isinstance(p, str)) or 'none could be written'}"
    )


def dump_npu_oom_debug(
    tag: str,
    requested_bytes: Optional[int] = None,
    error: Any = None,
    dump_dir: Optional[str] = None,
    run_probe: Optional[bool] = None,
) -> Dict[str, Any]:
    """Write npu_oom_rank<R>_<epoch>.json, .txt and .pickle, print one line, return the summary.

    requested_bytes     what could not be allocated, if known
    error               the exception
    dump_dir            the folder; None: $NPU_OOM_DEBUG_DIR, or /tmp/npu_oom_debug
    run_probe           also try how much can be allocated, before and after empty_cache();
                        None: where the environment has NPU_OOM_DEBUG_PROBE=1

    >>> dump_npu_oom_debug("step 3", requested_bytes=8 << 30, error=error)
    """
    rank = _job.rank(0)
    name, module = _device()
    memory = _try(_memory, name, module)
    if "__error__" in memory:
        memory = {"device": name, "mem_get_info": memory, "stats": memory}
    snapshot = _snapshot(module)
    failed = isinstance(snapshot, dict) and "__error__" in snapshot
    blocks = snapshot if failed else _try(_snapshot_summary, snapshot)
    summary: Dict[str, Any] = {
        "tag": str(tag),
        "rank": rank,
        "local_rank": os.environ.get("LOCAL_RANK"),
        "requested_bytes": requested_bytes,
        "requested_gib": requested_bytes / GIB if requested_bytes is not None else None,
        "memory_allocated": None,
        "memory_reserved": None,
        **memory,
        "snapshot_summary": blocks,
        "error": None if error is None else f"{type(error).__name__}: {error}",
        "traceback": _traceback(error),
        "env": _environment(name),
    }
    if run_probe is None:
        run_probe = os.environ.get("NPU_OOM_DEBUG_PROBE") == "1"
    if run_probe and module is not None:
        summary.update(_probes(name, module, requested_bytes))
    paths = _write_files(dump_dir, rank, summary, module, None if failed else snapshot)
    _try(print, _line(summary, paths))
    return summary


def _traceback(error: Any) -> Optional[str]:
    if isinstance(error, BaseException) and error.__traceback__ is not None:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return None


def _write_files(
    dump_dir: Optional[str], rank: int, summary: Dict[str, Any], module: Any, snapshot: Any
) -> List[Any]:
    folder = dump_dir or os.environ.get("NPU_OOM_DEBUG_DIR") or FOLDER
    made = _try(_files.make_folder, folder)
    if isinstance(made, dict) and folder == FOLDER:  # another user was first
        folder = f"{FOLDER}_{os.geteuid()}"
        made = _try(_files.make_folder, folder)
    if not isinstance(made, str):
        _messages.warn(f"nothing is written below '{folder}': {made['__error__']}")
        return []
    start = os.path.join(folder, f"npu_oom_rank{rank}_{int(time.time())}")
    text = _try(module.memory_summary) if module is not None else "no device is in use\n"
    return [
        _write(start + ".json", lambda: json.dumps(summary, indent=2, default=str).encode()),
        _write(start + ".txt", str(text).encode()),
        _write(start + ".pickle", lambda: pickle.dumps(snapshot)),
    ]
