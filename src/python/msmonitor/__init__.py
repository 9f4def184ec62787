# SPDX-License-Identifier: MulanPSL-2.0
"""msmonitor: what the device executes, recorded while the program runs.

    from msmonitor import Monitor, ActivityKind

    with Monitor([ActivityKind.Kernel, ActivityKind.Communication]) as monitor:
        train()
    for kernel in monitor.get_result()[ActivityKind.Kernel]:
        print(kernel.name, kernel.endNs - kernel.startNs)
    monitor.save("step.xlsx")

In the program itself
    Monitor, ActivityKind               start, stop, get_result, save
    API, Kernel, Communication, Marker  what get_result() gives

For frameworks that talk with the daemon themselves (torch_npu, MindSpore)
    PyDynamicMonitorProxy               registers, asks for orders, carries them out

The same is importable as IPCMonitor and mindstudio_monitor. Importing it needs nothing but Python,
starts nothing and loads no library; mistakes of the surroundings (no daemon, no device) are said
on stderr and never raised.
"""

import sys

if sys.version_info < (3, 8):  # read by older ones up to here
    raise ImportError("msmonitor needs CPython 3.8 or later, this is " + sys.version.split()[0])
del sys

from ._records import API, Communication, Kernel, Marker
from .dynamic_monitor_proxy import PyDynamicMonitorProxy
from .monitor import ActivityKind, Monitor

__all__ = [
    "API",
    "ActivityKind",
    "Communication",
    "Kernel",
    "Marker",
    "Monitor",
    "PyDynamicMonitorProxy",
]
