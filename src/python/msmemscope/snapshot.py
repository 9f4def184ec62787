# SPDX-License-Identifier: MulanPSL-2.0
"""take_snapshot(), TakeSnapshot: how much memory a device has, and what the framework has of it."""

import functools
import operator
import os

from . import _collectors, _devices, _messages, _program_errors
from ._control import native

NAME = "Memory Snapshot"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence, Union

    Mask = Union[int, Sequence[int], None]

_KB = 1024
_peak = 0  # bytes of this process, seen by a snapshot


def take_snapshot(device_mask: "Mask" = None, name: str = NAME) -> None:
    """Write one row for each device: what the framework's pool holds, and what the device has.

    device_mask   a device's number, or a list or tuple of them; None: every device in use
    name          the Name of the rows

    Works at any time, also before start(). With no accelerator in use it reports the memory of
    this process itself (device cpu).

    >>> import msmemscope
    >>> msmemscope.take_snapshot(name="model is loaded")
    >>> msmemscope.take_snapshot(0, "after the first batch")
    """
    sonde = native()
    name = str(name)
    wanted = _numbers(device_mask)
    if not sonde.begin():
        _messages.warn_once("no snapshot: there is no recording, and none could be started")
        return
    _collectors.sync()
    found = _devices.accelerators()
    if not found:
        _process_snapshot(sonde, name)
    for accelerator in found:
        for index in _chosen(accelerator, wanted):
            try:
                _device_snapshot(sonde, accelerator, index, name)
            except Exception as why:  # a device that has failed: that is the job's affair
                _program_errors.pass_on(why)
                _messages.warn_once(f"no snapshot of {accelerator.name}:{index}: {_messages.describe(why)}")


class TakeSnapshot:
    """Snapshots before and after: ``<name> Start`` and ``<name> End``, whatever happens between.

    >>> with msmemscope.TakeSnapshot(name="forward"):
    ...     loss = model(batch)

    >>> @msmemscope.TakeSnapshot(0, "evaluate")
    ... def evaluate(model): ...
    """

    def __init__(self, device_mask: "Mask" = None, name: str = NAME) -> None:
        self.device_mask = device_mask
        self.name = name

    def __enter__(self):
        take_snapshot(self.device_mask, f"{self.name} Start")
        return self

    def __exit__(self, kind, value, traceback):
        take_snapshot(self.device_mask, f"{self.name} End")
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def inside(*args, **kwargs):
            with type(self)(self.device_mask, self.name):
                return function(*args, **kwargs)

        return inside


CURRENT = object()  # only the device that the thread works on


def _numbers(mask):
    """A set of device numbers; None: all; CURRENT where the mask makes no sense."""
    if mask is None:
        return None
    try:
        several = mask if isinstance(mask, (list, tuple)) else [mask]
        if not any(isinstance(one, bool) for one in several):
            return {operator.index(one) for one in several}
    except TypeError:
        pass
    _messages.line("[msmemscope]: Invalid device mask, using current device!")
    return CURRENT


def _chosen(accelerator, wanted):
    used = accelerator.used()
    if wanted is None:
        return used
    if wanted is CURRENT:
        return [accelerator.current()]
    for index in sorted(wanted - set(used)):
        _messages.warn_once(
            f"no snapshot of {accelerator.name}:{index}: this process does not use it. In use: "
            + (", ".join(f"{accelerator.name}:{i}" for i in used) or "none")
        )
    return sorted(wanted & set(used))


def _device_snapshot(sonde, accelerator, index, name):
    torch = accelerator.module
    free, total = torch.mem_get_info(index)
    sonde.snapshot(
        accelerator.number(index),
        name,
        torch.memory_reserved(index),
        torch.max_memory_reserved(index),
        torch.memory_allocated(index),
        torch.max_memory_allocated(index),
        total,
        free,
    )


def _fields(path):
    """{"VmRSS": bytes, …} of a file of /proc with lines such as "VmRSS:  10 kB"."""
    found = {}
    with open(path, encoding="ascii", errors="replace") as lines:
        for line in lines:
            key, _, rest = line.partition(":")
            words = rest.split()
            if len(words) == 2 and words[1] == "kB" and words[0].isdigit():
                found[key] = int(words[0]) * _KB
    return found


def _process_snapshot(sonde, name):
    _messages.info_once(
        "no accelerator is in use (torch is not imported, or nothing is on a device yet): "
        "snapshots report the memory of this process"
    )
    try:
        own, host = _fields(f"/proc/{os.getpid()}/status"), _fields("/proc/meminfo")
    except OSError as why:
        _messages.warn_once(f"no snapshot of this process: {_messages.describe(why)}")
        return
    global _peak
    used = own.get("VmRSS", 0)
    _peak = max(_peak, used, own.get("VmHWM", 0))  # the kernel's own count lags a little
    total = host.get("MemTotal", 0)
    sonde.snapshot(
        sonde.DEV_HOST,
        name,
        used,
        _peak,
        used,
        _peak,
        total,
        host.get("MemAvailable", host.get("MemFree", 0)),
    )
