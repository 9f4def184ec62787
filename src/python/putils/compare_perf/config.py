# SPDX-License-Identifier: MulanPSL-2.0
"""Options of a collection, names of its files, and what is said about the run.

    >>> ComparePerfTimingConfig().threshold_seconds
    0.1
"""

import os
import socket
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, Optional, Tuple

from .. import _job

SUPPORTED_SYNC_MODES = ("none", "boundary")
DEFAULT_SYNC_MODE = "none"
SUPPORTED_RANK_STRATEGIES = ("all", "rank0")
DEFAULT_RANK_STRATEGY = "all"
DEFAULT_THRESHOLD_SECONDS = 0.1
DEFAULT_OUTPUT_DIR = "."
UTC_TIMESTAMP_FORMAT = "%Y%m%dT%H%M%S.%fZ"


def _validate_choice(kind: str, value: str, choices: Tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"Invalid {kind}: {value}. Expected one of [{', '.join(choices)}]")
    return value


def validate_sync_mode(sync_mode: str) -> str:
    """"none" or "boundary"; ValueError for anything else.

    >>> validate_sync_mode("boundary")
    'boundary'
    """
    return _validate_choice("sync_mode", sync_mode, SUPPORTED_SYNC_MODES)


def validate_rank_strategy(rank_strategy: str) -> str:
    """"all" or "rank0"; ValueError for anything else.

    >>> validate_rank_strategy("rank0")
    'rank0'
    """
    return _validate_choice("rank_strategy", rank_strategy, SUPPORTED_RANK_STRATEGIES)


def validate_threshold(threshold_seconds: float) -> float:
    """ValueError unless it is more than 0.

    >>> validate_threshold(0.05)
    0.05
    """
    if not threshold_seconds > 0:
        raise ValueError("threshold_seconds must be > 0")
    return threshold_seconds


def should_emit_for_rank(rank: int, rank_strategy: str = DEFAULT_RANK_STRATEGY) -> bool:
    """Whether this rank writes files.

    >>> should_emit_for_rank(3, "rank0")
    False
    """
    return validate_rank_strategy(rank_strategy) == "all" or rank == 0


def format_utc_timestamp(now_utc: Optional[datetime] = None) -> str:
    """A time for names of files; a time without a zone counts as UTC.

    >>> format_utc_timestamp(datetime(2026, 3, 29, 8, 30, 1))
    '20260329T083001.000000Z'
    """
    now = now_utc or datetime.now(timezone.utc)
    if now.tzinfo is not None:
        now = now.astimezone(timezone.utc)
    return now.strftime(UTC_TIMESTAMP_FORMAT)


def make_timestamped_log_filename(
    output_dir: str = DEFAULT_OUTPUT_DIR,
    prefix: str = "compare_perf",
    now_utc: Optional[datetime] = None,
    suffix: str = ".json",
) -> str:
    """A path that no other process and no other call makes.

    >>> make_timestamped_log_filename("logs")  # doctest: +ELLIPSIS
    'logs/compare_perf_...Z_..._....json'
    """
    stamp = format_utc_timestamp(now_utc)
    return os.path.join(output_dir, f"{prefix}_{stamp}_{os.getpid()}_{time.time_ns()}{suffix}")


def _integer_of_environment(name: str, otherwise: int) -> int:
    try:
        return int(os.environ.get(name, otherwise))
    except ValueError:
        return otherwise


def _distributed() -> Tuple[int, int, str]:
    """Rank, size of the world, backend."""
    distributed = getattr(_job.loaded_torch(), "distributed", None)
    try:
        if distributed and distributed.is_available() and distributed.is_initialized():
            return (
                distributed.get_rank(),
                distributed.get_world_size(),
                str(distributed.get_backend()),
            )
    except (AttributeError, RuntimeError, ValueError):
        pass  # half initialised, or being torn down
    return _integer_of_environment("RANK", 0), _integer_of_environment("WORLD_SIZE", 1), "none"


def _device() -> str:
    """What the program computes on; no device is initialised to find that out."""
    torch = _job.loaded_torch()
    for name in ("npu", "cuda"):
        module = getattr(torch, name, None)
        try:
            if module is not None and module.is_available():
                return name
        except Exception:  # a driver that does not answer
            pass
    return "cpu"


def _git_commit() -> str:
    """The commit of the repository around the current directory, read without starting git."""
    try:
        folder = os.getcwd()
        while not os.path.exists(os.path.join(folder, ".git")):
            above = os.path.dirname(folder)
            if above == folder:
                return "unknown"
            folder = above
        return _commit_of(os.path.join(folder, ".git")) or "unknown"
    except (OSError, ValueError):
        return "unknown"


def _read(*names: str) -> str:
    with open(os.path.join(*names), encoding="utf-8", errors="replace") as f:
        return f.read(1 << 20)


def _commit_of(git: str) -> str:
    if os.path.isfile(git):  # a worktree: the file names its directory
        git = os.path.join(os.path.dirname(git), _read(git).split(":", 1)[1].strip())
    head = _read(git, "HEAD").strip()
    if not head.startswith("ref:"):
        return head
    name = head[4:].strip()
    places = [git]
    if os.path.isfile(os.path.join(git, "commondir")):
        places.append(os.path.join(git, _read(git, "commondir").strip()))
    for place in places:
        if os.path.isfile(os.path.join(place, name)):
            return _read(place, name).strip()
    for line in _read(places[-1], "packed-refs").splitlines():
        if line.endswith(" " + name):
            return line.split(" ", 1)[0]
    return ""


def collect_runtime_metadata(now_utc: Optional[datetime] = None) -> Dict[str, Any]:
    """Where and when this runs: backend, device, rank, world_size, host, pid, commit, time.

    >>> collect_runtime_metadata()["world_size"]
    1
    """
    rank, world_size, backend = _distributed()
    return {
        "backend": backend,
        "device": _device(),
        "rank": rank,
        "world_size": world_size,
        "host": socket.gethostname() or "unknown",
        "pid": os.getpid(),
        "commit": _git_commit(),
        "timestamp_utc": format_utc_timestamp(now_utc),
        "timestamp_unix_ns": time.time_ns(),
    }


@dataclass
class ComparePerfTimingConfig:
    """The options of a collection, checked.

    >>> ComparePerfTimingConfig(threshold_seconds=0.25, sync_mode="boundary").sync_mode
    'boundary'
    """

    threshold_seconds: float = DEFAULT_THRESHOLD_SECONDS
    sync_mode: str = DEFAULT_SYNC_MODE
    rank_strategy: str = DEFAULT_RANK_STRATEGY
    output_dir: str = DEFAULT_OUTPUT_DIR

    def __post_init__(self) -> None:
        validate_threshold(self.threshold_seconds)
        validate_sync_mode(self.sync_mode)
        validate_rank_strategy(self.rank_strategy)
