# SPDX-License-Identifier: MulanPSL-2.0
"""`IPCMonitor_C.monitor`: the functions below Monitor, for programs that call them directly.

Wrong types are TypeErrors. What was recorded is read with every call.
"""

from collections.abc import Sequence
from typing import Any, List, Set

from ._monitor import Monitor
from ._records import API, ActivityKind, Communication, Kernel, Marker

__all__ = [
    "API",
    "ActivityKind",
    "Communication",
    "Kernel",
    "Marker",
    "get_acl_api_data",
    "get_api_data",
    "get_communication_data",
    "get_kernel_data",
    "get_kinds",
    "get_marker_data",
    "get_node_api_data",
    "get_runtime_api_data",
    "start_monitor",
    "stop_monitor",
]


def start_monitor(kinds: "Sequence[ActivityKind]") -> None:
    """Begins to record these kinds: Monitor().start(kinds)."""
    if isinstance(kinds, (str, bytes)) or not isinstance(kinds, Sequence):
        raise TypeError(f"kinds must be a list of ActivityKind, not {type(kinds).__name__}")
    for kind in kinds:
        if not isinstance(kind, ActivityKind):
            raise TypeError(f"kinds must be a list of ActivityKind: {kind!r} is none")
    Monitor().start(list(kinds))


def stop_monitor() -> None:
    """Ends recording."""
    Monitor().stop()


def get_kinds() -> Set[ActivityKind]:
    """Those that start_monitor() began to record; none before."""
    return set(Monitor()._kinds)


def _data(kind: ActivityKind) -> List[Any]:
    return Monitor().get_result().get(kind, []) if get_kinds() else []


def get_api_data() -> List[API]:
    return _data(ActivityKind.API)


def get_acl_api_data() -> List[API]:
    return _data(ActivityKind.AclAPI)


def get_node_api_data() -> List[API]:
    return _data(ActivityKind.NodeAPI)


def get_runtime_api_data() -> List[API]:
    return _data(ActivityKind.RuntimeAPI)


def get_kernel_data() -> List[Kernel]:
    return _data(ActivityKind.Kernel)


def get_communication_data() -> List[Communication]:
    return _data(ActivityKind.Communication)


def get_marker_data() -> List[Marker]:
    return _data(ActivityKind.Marker)
