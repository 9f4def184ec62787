# SPDX-License-Identifier: MulanPSL-2.0
"""The names of the extension module that msmemscope had before, for wrappers that import them.

>>> from msmemscope import _msmemscope
>>> _msmemscope._report_cpu_tensor(tensor.data_ptr(), tensor.nbytes, True)
True

Programs use the functions of ``msmemscope`` itself.
"""

import msmemscope

from . import _control, describe
from ._control import config, start, step, stop
from ._sanitizer import enable_npu_sanitizer as _enable_npu_sanitizer
from ._watch import watcher as _watcher

__all__ = ["config", "start", "step", "stop"]


def __getattr__(name):
    if name == "_tracer":
        return msmemscope.tracer
    if name == "_record_function":
        return msmemscope.RecordFunction
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _first(values, *names):
    for name in names:
        if values.get(name) is not None:
            return int(values[name])
    return 0


def _take_snapshot(values):
    """One SNAPSHOT row of numbers that the caller has gathered: a dict.

    device, name; reserved, max_reserved, allocated, max_allocated, total, free: bytes. The names of
    torch's own functions (memory_reserved, …) are taken as well.
    """
    if not isinstance(values, dict):
        raise TypeError("_take_snapshot() takes a dict")
    sonde = _control.native()
    if sonde.begin():
        sonde.snapshot(
            _first(values, "device", "device_id"),
            str(values.get("name", "Memory Snapshot")),
            _first(values, "reserved", "memory_reserved"),
            _first(values, "max_reserved", "max_memory_reserved", "peak_reserved"),
            _first(values, "allocated", "memory_allocated"),
            _first(values, "max_allocated", "max_memory_allocated", "peak_allocated"),
            _first(values, "total", "total_mem", "total_memory"),
            _first(values, "free", "free_mem", "free_memory"),
        )


def _report_cpu_tensor(ptr, size, is_alloc, stack=None):
    """A CPU tensor's memory comes or goes; True if that is recorded. Stacks are our own."""
    sonde = _control.native()
    if not sonde.tracing() or not ptr:
        return False
    report = sonde.block_alloc if is_alloc else sonde.block_free
    report(ptr, size, sonde.DEV_HOST, sonde.POOL_HOST)
    return True


class _Describer:
    """Labels of this thread, and of addresses."""

    describe_label = staticmethod(describe.describe_label)
    undescribe_label = staticmethod(describe.undescribe_label)

    @staticmethod
    def describe(owner):
        describe.describer(owner=owner).__enter__()

    @staticmethod
    def undescribe(owner):
        describe.describer(owner=owner).__exit__(None, None, None)

    @staticmethod
    def describe_addr(addr, labels):
        """Labels: an owner, or [(label, level), …]."""
        if isinstance(labels, str):
            labels = [(labels, describe.USER_DEFINED_1)]
        describe.describe_addr(addr, labels)


_describer = _Describer()
