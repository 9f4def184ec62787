# SPDX-License-Identifier: MulanPSL-2.0
"""msmemscope records the memory of AI jobs and finds out who holds it.

    import msmemscope

    msmemscope.config(call_stack="python:10", analysis="leaks,decompose")
    msmemscope.start()
    for batch in loader:
        train(batch)
        msmemscope.step()
    msmemscope.stop()

Recording
    config, start, stop, step           what is recorded, and when
    take_snapshot, TakeSnapshot         what a device and the framework's pool hold right now
    RecordFunction, tracer              spans of your own, and calls of Python functions
    watcher                             who writes where it should not
    describe.describer                  labels of your own: who owns memory
    init_framework_hooks, cleanup_framework_hooks
                                        labels and snapshots of vLLM-Ascend, FSDP, verl, MindSpeed
    enable_npu_sanitizer                data races of operators, with torch_npu

Afterwards, from the files
    check_leaks, check_inefficient      memory that leaks, memory that nobody uses
    analyzer, analyze, list_analyzers, get_analyzer_config
                                        the same by name

Importing it needs nothing but Python, and starts nothing by itself. `sonde mem --help` lists the
commands that read what was recorded.
"""

import sys

if sys.version_info < (3, 8):  # read by older ones up to here
    raise ImportError("msmemscope needs CPython 3.8 or later, this is " + sys.version.split()[0])
del sys

from . import _control
from ._control import config, start, step, stop
from .snapshot import TakeSnapshot, take_snapshot

__version__ = getattr(_control._sonde, "__version__", "unknown")
__all__ = [
    "config",
    "start",
    "stop",
    "step",
    "take_snapshot",
    "TakeSnapshot",
    "RecordFunction",
    "tracer",
    "watcher",
    "describe",
    "analyzer",
    "list_analyzers",
    "get_analyzer_config",
    "analyze",
    "check_leaks",
    "check_inefficient",
    "init_framework_hooks",
    "cleanup_framework_hooks",
    "enable_npu_sanitizer",
]

# What takes a moment to import is imported when it is used.
_LAZY = {
    "RecordFunction": ("tracer", "RecordFunction"),
    "analyze": ("analyzer", "analyze"),
    "analyzer": ("analyzer", None),
    "check_inefficient": ("analyzer", "check_inefficient"),
    "check_leaks": ("analyzer", "check_leaks"),
    "cleanup_framework_hooks": ("_frameworks", "cleanup_framework_hooks"),
    "describe": ("describe", None),
    "enable_npu_sanitizer": ("_sanitizer", "enable_npu_sanitizer"),
    "get_analyzer_config": ("analyzer", "get_analyzer_config"),
    "hijacker": ("hijacker", None),
    "init_framework_hooks": ("_frameworks", "init_framework_hooks"),
    "list_analyzers": ("analyzer", "list_analyzers"),
    "tracer": ("tracer", None),
    "watcher": ("_watch", "watcher"),
}

TYPE_CHECKING = False
if TYPE_CHECKING:  # for those who read types and do not run this
    from . import analyzer, describe, hijacker, tracer
    from ._frameworks import cleanup_framework_hooks, init_framework_hooks
    from ._sanitizer import enable_npu_sanitizer
    from ._watch import watcher
    from .analyzer import (
        analyze,
        check_inefficient,
        check_leaks,
        get_analyzer_config,
        list_analyzers,
    )
    from .tracer import RecordFunction


def __getattr__(name):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, what = _LAZY[name]
    found = importlib.import_module("." + module, __name__)
    found = getattr(found, what) if what else found
    globals()[name] = found
    return found


def __dir__():
    return sorted(set(globals()) | set(_LAZY))


# Under `msmemscope -- python …` a recording may be under way already.
_control._resume()
