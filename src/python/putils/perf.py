# SPDX-License-Identifier: MulanPSL-2.0
"""Processors and priority of a rank: near its device, away from the other ranks.

    from putils.perf import DistAffinityPriority

    with DistAffinityPriority():
        train()
"""

import os
import threading
from contextlib import ContextDecorator
from typing import Any, List, NamedTuple, Optional, Sequence, Set

from . import _job, _messages
from ._support import topology


class Share(NamedTuple):
    """The processors of a rank, and why these."""

    cpus: List[int]
    why: str


def _number(name: str) -> Optional[int]:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return None


def local_rank() -> int:
    """The number of this process on its node; 0 if nobody says.

    >>> local_rank()
    0
    """
    for name in ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"):
        found = _number(name)
        if found is not None and found >= 0:
            return found
    rank = _job.rank()
    if rank < 0:
        rank = max(_number("RANK") or 0, 0)
    return rank % max(len(topology.accelerators()), 1) if rank else 0


def local_world_size() -> int:
    """How many ranks there are on this node; at least one more than local_rank().

    >>> local_world_size()
    1
    """
    names = ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
    said = next((n for n in map(_number, names) if n), 1)
    return max(said, local_rank() + 1)


def _part(cpus: Sequence[int], index: int, count: int) -> List[int]:
    """The index-th of `count` parts that differ by one at most; all have at least one processor,
    and share if there are too few."""
    if len(cpus) < count:
        return [cpus[index % len(cpus)]] if cpus else []
    return list(cpus[index * len(cpus) // count : (index + 1) * len(cpus) // count])


def _beside_device(rank: int, ranks: int, allowed: Set[int]) -> Optional[Share]:
    """A part of the NUMA node that the rank's device is attached to; None if that is not known."""
    everywhere = topology.accelerators()
    seen = topology.visible(everywhere)
    if not seen:
        return None
    # Each rank may see its own device alone.
    mine = seen[rank] if rank < len(seen) else seen[0]
    used = seen[:ranks] if len(seen) >= ranks else everywhere
    if mine.node is None:
        return None
    cpus = [c for c in topology.numa_nodes().get(mine.node, []) if c in allowed]
    if not cpus:
        return None
    neighbours = [a for a in used if a.node == mine.node] if ranks > 1 else [mine]
    index = neighbours.index(mine) if mine in neighbours else 0
    part = _part(topology.by_core(cpus), index, len(neighbours))
    return Share(part, f"NUMA node {mine.node}, beside device {mine.address}")


def plan_cpus(
    total_cpus: Optional[int] = None, total_ranks: Optional[int] = None, rank: Optional[int] = None
) -> Share:
    """The processors for a rank of this node, out of those that this process may use now.

    With both numbers: total_cpus // total_ranks processors, one rank after the other. Without:
    those beside the rank's device, else an even part; threads of one core stay together.

    >>> plan_cpus(total_cpus=192, total_ranks=32, rank=1).cpus
    [6, 7, 8, 9, 10, 11]
    """
    rank = local_rank() if rank is None else rank
    allowed = set(os.sched_getaffinity(0))
    if total_cpus and total_ranks:
        each = max(total_cpus // total_ranks, 1)
        part = [c for c in range(rank * each, (rank + 1) * each) if c in allowed]
        return Share(part, f"{each} processors for each rank")
    ranks = max(total_ranks or local_world_size(), rank + 1)
    found = _beside_device(rank, ranks, allowed)
    if found is not None:
        return found
    return Share(_part(topology.by_core(allowed), rank, ranks), f"part {rank + 1} of {ranks}")


def _own_threads() -> List[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return []


class _Before(NamedTuple):
    cpus: Set[int]
    nice: int
    threads: Set[int]


class DistAffinityPriority(ContextDecorator):
    """Binds the calling thread, and the threads it starts, to the processors of its rank and raises
    its priority; both are as before afterwards. For a block, or as a decorator.

    Without numbers the rank gets processors beside its device (plan_cpus()). A priority that the
    user may not set is left as it is, which is said once.

    >>> with DistAffinityPriority(high_priority=0):
    ...     train()
    >>> @DistAffinityPriority(total_cpus=192, total_ranks=32)
    ... def train():
    ...     pass
    """

    def __init__(
        self,
        total_cpus: Optional[int] = None,
        total_ranks: Optional[int] = None,
        high_priority: Optional[int] = -10,
    ):
        self.total_cpus = total_cpus
        self.total_ranks = total_ranks
        self.high_priority = high_priority
        self._before = threading.local()

    def _bind(self) -> None:
        share = plan_cpus(self.total_cpus, self.total_ranks)
        if not share.cpus:
            _messages.warn_once(
                f"no processor of '{share.why}' is one that this process may use: it is not bound"
            )
            return
        os.sched_setaffinity(0, share.cpus)

    def __enter__(self) -> "DistAffinityPriority":
        before = _Before(
            set(os.sched_getaffinity(0)),
            os.getpriority(os.PRIO_PROCESS, threading.get_native_id()),
            set(_own_threads()),
        )
        stack = self._before.__dict__.setdefault("stack", [])
        stack.append(before)
        try:
            if len(stack) == 1:  # a decorated function that calls itself keeps what it has
                self._bind()
        except (OSError, ValueError) as why:
            _messages.warn_once(f"processors cannot be chosen: {_messages.words(why)}")
        if self.high_priority is not None:
            _set_nice(threading.get_native_id(), self.high_priority)
        return self

    def __exit__(self, *_: Any) -> None:
        before = self._before.stack.pop()
        me = threading.get_native_id()
        mine = set(os.sched_getaffinity(0))
        for thread in [me] + [t for t in _own_threads() if t not in before.threads]:
            try:
                # Threads that were started inside and have been bound elsewhere since stay there.
                if set(os.sched_getaffinity(thread)) == mine:
                    os.sched_setaffinity(thread, before.cpus)
                    if self.high_priority is not None:
                        _set_nice(thread, before.nice)
            except (ProcessLookupError, PermissionError):
                pass  # it has ended
            except (OSError, ValueError) as why:
                _messages.warn_once(f"processors cannot be given back: {_messages.words(why)}")


def _set_nice(thread: int, value: int) -> None:
    try:
        if os.getpriority(os.PRIO_PROCESS, thread) != value:
            os.setpriority(os.PRIO_PROCESS, thread, value)
    except ProcessLookupError:
        pass
    except OSError as why:
        _messages.warn_once(f"the priority {value} cannot be set: {_messages.words(why)}")
