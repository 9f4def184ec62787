# SPDX-License-Identifier: MulanPSL-2.0
"""What a device's memory holds, and what of it belongs to tensors.

    from putils.memory import report_memory, pmemory

    report_memory("after forward")
    with pmemory("step3"):                      # a snapshot of the allocator, also of an error
        train_step()

allocated <= reserved <= used of the device <= total: tensors, what torch's allocator keeps, what all
processes use, what there is. Peaks are those of the allocator since its start: nothing here resets
them. While a recording runs (msmemscope) each report is a snapshot in it, and peaks are those that
the recorder has counted, where they are higher: somebody else may have reset the allocator's.
Without a device the numbers are those of this process: its memory that is resident, or, where a
recording follows host memory, what it has allocated.
"""

import contextlib
import os
import pickle
import sys
import threading
import time
import traceback
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _files, _job, _messages, _native, _tensors, device, pprint
from .timer import get_formatted_time, get_time_str

__all__ = [
    "get_main_thread_stack",
    "get_tensor_size",
    "pmem_str",
    "pmemory",
    "pmsize",
    "report_memory",
    "start_host_mem_monitor",
]

UNITS = {"GB": 1 << 30, "MB": 1 << 20, "KB": 1 << 10}


FLUSH_MS = 1000  # as long as this a report waits for the recorder to count what has happened


class _Numbers(NamedTuple):
    """Bytes of the current device, or of this process (device "cpu")."""

    device: str
    allocated: int
    max_allocated: int
    reserved: int
    max_reserved: int
    used: int
    total: int


def _fields(path: str) -> Dict[str, int]:
    """{"VmRSS": bytes} of a file of /proc with lines such as "VmRSS:  10 kB"."""
    found = {}
    with open(path, encoding="ascii", errors="replace") as lines:
        for line in lines:
            key, _, rest = line.partition(":")
            words = rest.split()
            if len(words) == 2 and words[1] == "kB" and words[0].isdigit():
                found[key] = int(words[0]) << 10
    return found


def _process_numbers() -> _Numbers:
    own, host = _fields(f"/proc/{os.getpid()}/status"), _fields("/proc/meminfo")
    rss, total = own.get("VmRSS", 0), host.get("MemTotal", 0)
    peak = max(rss, own.get("VmHWM", 0))
    used = total - host.get("MemAvailable", host.get("MemFree", 0))
    return _Numbers("cpu", rss, peak, rss, peak, used, total)


def _recorded(native: Any, number: int, pools: Tuple[int, ...]) -> Optional[Tuple[int, int, int]]:
    """(used, peak, peak of the heap) of the first pool that the recorder knows on this device."""
    native.flush(FLUSH_MS)
    for pool in pools:
        found = native.usage(number, pool)
        if found is not None:
            return found
    return None


def _numbers() -> _Numbers:
    """The device's or the process' own numbers, and where a recording runs the recorder's: its peaks
    are since the beginning of the recording, whoever has reset the allocator's."""
    n = _own_numbers()
    native = _native.get()
    if not native or not native.joined():
        return n
    number = _number_of(native, n.device)
    if n.device == "cpu":
        counted = _recorded(native, number, (native.POOL_HOST,))
        if counted is None:
            return n
        return n._replace(allocated=counted[0], max_allocated=counted[1])
    counted = _recorded(native, number, (native.POOL_TORCH, native.POOL_PTA))
    if counted is None:
        return n
    return n._replace(
        max_allocated=max(n.max_allocated, counted[1]),
        max_reserved=max(n.max_reserved, counted[2]),
    )


def _own_numbers() -> _Numbers:
    used = device.accelerators_in_use()
    if not used:
        return _process_numbers()
    name, module = used[0]
    index = module.current_device()
    free, total = module.mem_get_info(index)
    return _Numbers(
        f"{name}:{index}",
        module.memory_allocated(index),
        module.max_memory_allocated(index),
        module.memory_reserved(index),
        module.max_memory_reserved(index),
        total - free,
        total,
    )


def _number_of(native: Any, name: str) -> int:
    """A device's number on this machine, as recordings have it."""
    from msmemscope import _devices

    kind, _, index = name.partition(":")
    return _devices.number_of(kind, int(index)) if index else native.DEV_HOST


def _record(n: _Numbers, name: str) -> None:
    """The report as a snapshot in the recording, if there is one."""
    native = _native.get()
    if not native or not native.joined():
        return
    native.snapshot(
        _number_of(native, n.device),
        name,
        n.reserved,
        n.max_reserved,
        n.allocated,
        n.max_allocated,
        n.total,
        n.total - n.used,
    )


def _wait() -> None:
    try:
        device.synchronize()
    except Exception as why:  # a device that has failed: the program hears of it itself
        _messages.warn_once(f"memory: the device cannot be waited for: {_messages.words(why)}")


def _get_current_mem_info(
    unit: str = "GB", precision: int = 2
) -> Tuple[str, str, str, str]:
    """Allocated, reserved, used and total of the current device, as text.

    >>> _get_current_mem_info("MB", 0)
    ('1024', '2048', '4096', '81920')
    """
    if unit not in UNITS:
        raise ValueError(f"there is no unit '{unit}': expected GB, MB or KB")
    try:
        n = _numbers()
    except Exception as why:
        word = _messages.words(why)
        return word, word, word, word
    found = [f"{v / UNITS[unit]:.{precision}f}" for v in (n.allocated, n.reserved, n.used, n.total)]
    return found[0], found[1], found[2], found[3]


def pmem_str() -> str:
    """What the allocator has on the current device, after waiting for it.

    >>> pmem_str()
    'allocated 1.00 GiB, max allocated 1.50 GiB, reserved 2.00 GiB, max reserved 2.00 GiB'
    """
    _wait()
    try:
        n = _numbers()
    except Exception as why:
        return f"memory is unknown: {_messages.words(why)}"
    gib = float(UNITS["GB"])
    return (
        f"allocated {n.allocated / gib:.2f} GiB, max allocated {n.max_allocated / gib:.2f} GiB, "
        f"reserved {n.reserved / gib:.2f} GiB, max reserved {n.max_reserved / gib:.2f} GiB"
    )


def report_memory(name: str, print_rank0_only: bool = True) -> None:
    """Print a line about the memory of the current device, after waiting for it.

    >>> report_memory("after forward")
    [Rank 0 Device cuda:0] after forward memory (MB) | 4096.00/81920.00 | allocated 1024.00 max ...
    """
    rank = _job.rank()
    if print_rank0_only and rank > 0:
        return
    _wait()
    try:
        n = _numbers()
        _record(n, f"report_memory {name}")
    except Exception as why:
        _messages.warn_once(f"no report of the memory at '{name}': {_messages.words(why)}")
        return
    mb = float(UNITS["MB"])
    pprint.log_or_print(
        f"[Rank {rank} Device {n.device}] {name} memory (MB) | {n.used / mb:.2f}/{n.total / mb:.2f}"
        f" | allocated {n.allocated / mb:.2f} max {n.max_allocated / mb:.2f}"
        f" reserved {n.reserved / mb:.2f} max {n.max_reserved / mb:.2f}"
    )


# Snapshots of the allocator


class _History:
    """torch's notes of allocations, switched on for a while, unless somebody else uses them."""

    def __init__(self) -> None:
        used = device.accelerators_in_use()
        self.module = getattr(used[0][1], "memory", None) if used else None
        self.ours = False

    def begin(self) -> None:
        if self.module is None or not hasattr(self.module, "_record_memory_history"):
            return
        torch = sys.modules["torch"]
        enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        if enabled is not None and enabled():
            return
        self.module._record_memory_history(True)
        self.ours = True

    def end(self) -> None:
        if self.ours and self.module is not None:
            self.ours = False
            try:
                self.module._record_memory_history(None)
            except TypeError:  # PyTorch up to 2.0
                self.module._record_memory_history(False)

    def dump(self, tag: str, ending: str) -> Optional[str]:
        if self.module is None:
            _messages.warn_once("pmemory: no snapshot: no device is in use")
            return None
        n = _numbers()
        index = n.device.partition(":")[2]
        path = (
            f"{tag}_oom_snapshot_rank_{_job.rank()}_device_{index}_{get_time_str()}"
            f"_pick{n.max_allocated / UNITS['GB']:.2f}GB{ending}.pickle"
        )
        if os.path.dirname(path):
            _files.make_folder(os.path.dirname(path))
        with _files.open_ours(path, "wb") as f:
            pickle.dump(self.module._snapshot(), f)
        return path


def _guard(what: str, function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as why:
        _messages.warn(f"pmemory: {what}: {_messages.words(why)}")
        return None


@contextlib.contextmanager
def pmemory(tag: str) -> Iterator[None]:
    """Report the memory before and after, and dump a snapshot of the allocator for memory_viz.

    One file, <tag>_oom_snapshot_rank_<r>_device_<d>_<time>_pick<peak>GB.pickle, whose name ends with
    _EXC if an exception ends the block; it goes on. The allocator's notes are switched off again.

    >>> with pmemory("step3"):
    ...     train_step()
    """
    history = _History()
    _guard("allocations are not noted", history.begin)
    report_memory(f"{tag} before", False)
    ending = ""
    try:
        yield
    except BaseException:
        ending = "_EXC"
        raise
    finally:
        report_memory(f"{tag} {'exception' if ending else 'after'}", False)
        _guard("no snapshot", history.dump, tag, ending)
        _guard("allocations are still noted", history.end)


# Sizes


def get_tensor_size(t: Any) -> float:
    """The size of a tensor's numbers in GB (2^30 bytes); 0 of what is no tensor.

    >>> get_tensor_size(torch.zeros(1 << 28))
    1.0
    """
    try:
        return t.numel() * t.element_size() / UNITS["GB"] if _tensors.is_tensor(t) else 0.0
    except Exception:  # of a kind that has no such thing
        return 0.0


def pmsize(model: Any) -> None:
    """Print each parameter and the size of each module; on rank 0, with TSJPRINT=1.

    >>> pmsize(model)
    """
    if not _job.ifdebug() or _job.rank() > 0:
        return
    try:
        lines, sizes = _sizes(model)
    except Exception as why:
        _messages.warn(f"pmsize: no parameters in {type(model).__name__}: {_messages.words(why)}")
        return
    total = sizes.pop("", 0.0)
    lines += [f"module {name}: {size:.6f} GB" for name, size in sizes.items()]
    pprint.log_or_print("\n".join(lines + [f"{type(model).__name__}: {total:.6f} GB"]))


def _sizes(model: Any) -> Tuple[List[str], Dict[str, float]]:
    lines, sizes = [], {name: 0.0 for name, _ in model.named_modules()}
    for name, p in model.named_parameters():
        size = get_tensor_size(p)
        lines.append(f"parameter {name}: {tuple(p.shape)} {p.dtype} {p.device} {size:.6f} GB")
        module = name
        while module:
            module = module.rpartition(".")[0]
            sizes[module] = sizes.get(module, 0.0) + size
    return lines, sizes


# The host


def get_main_thread_stack() -> str:
    """Where the main thread is, as text.

    >>> print(get_main_thread_stack())
      File "train.py", line 12, in <module>
    """
    frame = sys._current_frames().get(threading.main_thread().ident)  # type: ignore
    if frame is sys._getframe():
        frame = frame.f_back
    return "".join(traceback.format_stack(frame)) if frame else "the main thread has ended\n"


class HostMemoryMonitor(threading.Thread):
    """Appends the memory of this process to a file; stop() ends it.

    Reading the proportional share (PSS) of a large process takes a while. Where it takes more than
    a hundredth of the time, it is read less often.
    """

    def __init__(self, path: str, interval: float) -> None:
        super().__init__(name="putils host memory", daemon=True)
        self.path, self.interval = path, max(0.01, float(interval))
        self._end = threading.Event()
        self._pss = "?"
        self._pss_due = 0.0

    def stop(self) -> None:
        """The last line is written before this returns."""
        self._end.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join()

    def run(self) -> None:
        while True:
            try:
                self._write()
            except (OSError, ValueError) as why:
                _messages.warn(f"host memory is no longer noted: {_messages.words(why)}")
                return
            if self._end.wait(self.interval):
                return

    def _read_pss(self) -> str:
        if time.monotonic() >= self._pss_due:
            began = time.monotonic()
            try:
                found = _fields("/proc/self/smaps_rollup").get("Pss")
                self._pss = "?" if found is None else f"{found / UNITS['MB']:.2f}"
            except OSError:  # an old kernel
                self._pss = "?"
            self._pss_due = time.monotonic() + 100 * (time.monotonic() - began)
        return self._pss

    def _write(self) -> None:
        n, mb = _process_numbers(), float(UNITS["MB"])
        line = (
            f"[{get_formatted_time()}] rss {n.allocated / mb:.2f} MB | peak rss "
            f"{n.max_allocated / mb:.2f} MB | pss {self._read_pss()} MB | host "
            f"{n.used / mb:.2f}/{n.total / mb:.2f} MB\n"
        )
        with _files.open_ours(self.path) as f:
            f.write(line)


def start_host_mem_monitor(unique: str, print_interval: float = 5) -> HostMemoryMonitor:
    """Append the memory of this process to <unique>_<pid>_hostmem.log, every so many seconds.

    RSS, PSS and the host's memory are read from /proc, which costs the program nothing; for the
    lines of code that allocate use `sonde mem record --device=cpu`. The thread ends with the
    program, or with its stop().

    >>> monitor = start_host_mem_monitor("/tmp/run1", 10)
    """
    monitor = HostMemoryMonitor(f"{unique}_{os.getpid()}_hostmem.log", print_interval)
    monitor.start()
    return monitor
