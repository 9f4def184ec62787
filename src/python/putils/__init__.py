# SPDX-License-Identifier: MulanPSL-2.0
"""putils: looks at tensors, memory and time from inside a training script.

    from putils.pprint import tprint
    from putils.timer import timer

    with timer("forward"):
        loss = model(batch)
    tprint(loss, "loss")

Numbers
    pprint                  tensors in two lines: statistics, checksum, first values
    accuracy                the same for every module of a model; where two runs first differ
    compare_hooks           logs of two runs or more as a workbook of Excel
    cache                   results that were computed before
Memory and time
    memory, npu_oom_debug   what the allocator and the device hold; why an allocation failed
    timer, event_timer      spans of the host and of the device
    compare_perf            times of two runs, module by module
    profiling, trace_manager    profilers for a part of a program
    MFU                     how much of the chip's peak a model reaches
    burn                    a load for every card; which one is slow
Surroundings
    device, debug, perf, npu_affinity_benchmark     devices, debuggers, processors
    saver, weight, write2file                       files

Most calls print only where the environment has TSJPRINT=1, and print into a file where log_tag is
set. Importing it needs nothing but Python: modules are imported when they are first used, and
torch, debugpy and VizTracer by the calls that need them. Tensors are read by the extension
``sonde._sonde``; without it by torch's own operations, slower.
"""

import sys

if sys.version_info < (3, 8):  # read by older ones up to here
    raise ImportError("putils needs CPython 3.8 or later, this is " + sys.version.split()[0])
del sys

__version__ = "0.1.0"  # of the package whose names these are

__all__ = [
    "MFU",
    "accuracy",
    "burn",
    "cache",
    "compare_hooks",
    "compare_perf",
    "debug",
    "device",
    "event_timer",
    "memory",
    "npu_affinity_benchmark",
    "npu_oom_debug",
    "perf",
    "pprint",
    "profiling",
    "saver",
    "timer",
    "tools",
    "trace_manager",
    "weight",
    "write2file",
]

TYPE_CHECKING = False
if TYPE_CHECKING:  # for those who read types and do not run this
    from . import (
        MFU,
        accuracy,
        burn,
        cache,
        compare_hooks,
        compare_perf,
        debug,
        device,
        event_timer,
        memory,
        npu_affinity_benchmark,
        npu_oom_debug,
        perf,
        pprint,
        profiling,
        saver,
        timer,
        tools,
        trace_manager,
        weight,
        write2file,
    )


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return importlib.import_module("." + name, __name__)


def __dir__():
    return sorted(set(globals()) | set(__all__))
