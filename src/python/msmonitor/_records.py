# SPDX-License-Identifier: MulanPSL-2.0
"""Kinds of activities, and what is known about one."""

import enum
import operator
from typing import Any, Dict, Optional, Tuple


class ActivityKind(enum.IntEnum):
    """What is recorded. The numbers are MSPTI's.

    >>> ActivityKind.Kernel, int(ActivityKind.Communication)
    (<ActivityKind.Kernel: 2>, 9)
    """

    Marker = 1
    Kernel = 2
    API = 3
    Communication = 9
    AclAPI = 10
    NodeAPI = 11
    RuntimeAPI = 12

    __str__ = enum.Enum.__str__  # "ActivityKind.Kernel" in every version of Python


class _Record:
    """Attributes are in __slots__, in the order of to_tuple(); `_keys` names them in a line of
    Jsonl where they are called something else there."""

    __slots__ = ()
    _keys: Tuple[str, ...] = ()

    def to_tuple(self) -> Tuple[Any, ...]:
        """Everything, in the order of the columns of save(); times in microseconds.

        >>> API("aclrtMalloc", 1500, 2500, 7, 8, 1).to_tuple()
        ('aclrtMalloc', 1.5, 2.5, 7, 8, 1)
        """
        return tuple(
            value / 1000 if name in ("startNs", "endNs") else value
            for name, value in zip(self.__slots__, self._values())
        )

    def _values(self) -> Tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={v!r}" for n, v in zip(self.__slots__, self._values()))
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()  # type: ignore

    def __hash__(self) -> int:
        return hash(self._values())


class API(_Record):
    """A call of a function: of the kinds API, AclAPI, NodeAPI and RuntimeAPI.

    name, startNs, endNs, pid, tid, correlationId. Times are nanoseconds since 1970.
    """

    __slots__ = ("name", "startNs", "endNs", "pid", "tid", "correlationId")
    _keys = ("name", "startNs", "endNs", "processId", "threadId", "correlationId")

    def __init__(
        self,
        name: str = "",
        startNs: int = 0,
        endNs: int = 0,
        pid: int = 0,
        tid: int = 0,
        correlationId: int = 0,
    ) -> None:
        self.name = name
        self.startNs = startNs
        self.endNs = endNs
        self.pid = pid
        self.tid = tid
        self.correlationId = correlationId


class Kernel(_Record):
    """What a device executed.

    name, startNs, endNs, deviceId, streamId, correlationId, type. The call that launched it has
    the same correlationId.
    """

    __slots__ = ("name", "startNs", "endNs", "deviceId", "streamId", "correlationId", "type")
    _keys = __slots__

    def __init__(
        self,
        name: str = "",
        startNs: int = 0,
        endNs: int = 0,
        deviceId: int = 0,
        streamId: int = 0,
        correlationId: int = 0,
        type: str = "",
    ) -> None:
        self.name = name
        self.startNs = startNs
        self.endNs = endNs
        self.deviceId = deviceId
        self.streamId = streamId
        self.correlationId = correlationId
        self.type = type


class Communication(_Record):
    """A collective operation, or a message between two devices.

    name, startNs, endNs, deviceId, streamId, count, dataType, commName, algType, correlationId
    """

    __slots__ = (
        "name", "startNs", "endNs", "deviceId", "streamId", "count", "dataType", "commName",
        "algType", "correlationId",
    )  # fmt: skip
    _keys = __slots__

    def __init__(
        self,
        name: str = "",
        startNs: int = 0,
        endNs: int = 0,
        deviceId: int = 0,
        streamId: int = 0,
        count: int = 0,
        dataType: str = "",
        commName: str = "",
        algType: str = "",
        correlationId: int = 0,
    ) -> None:
        self.name = name
        self.startNs = startNs
        self.endNs = endNs
        self.deviceId = deviceId
        self.streamId = streamId
        self.count = count
        self.dataType = dataType
        self.commName = commName
        self.algType = algType
        self.correlationId = correlationId


class Marker(_Record):
    """A mark, or a range between two of them; of a mark startNs and endNs are the same.

    name, sourceKind ("Host" or "Device"), domain, id, startNs, endNs, pid, tid, deviceId,
    streamId. A range that a stream passes, too, is there twice with the same id; what does not
    apply is 0.
    """

    __slots__ = (
        "name", "sourceKind", "domain", "id", "startNs", "endNs", "pid", "tid", "deviceId",
        "streamId",
    )  # fmt: skip
    _keys = (
        "name", "sourceKind", "domain", "id", "startNs", "endNs", "processId", "threadId",
        "deviceId", "streamId",
    )  # fmt: skip

    def __init__(
        self,
        name: str = "",
        sourceKind: str = "",
        domain: str = "",
        id: int = 0,
        startNs: int = 0,
        endNs: int = 0,
        pid: int = 0,
        tid: int = 0,
        deviceId: int = 0,
        streamId: int = 0,
    ) -> None:
        self.name = name
        self.sourceKind = sourceKind
        self.domain = domain
        self.id = id
        self.startNs = startNs
        self.endNs = endNs
        self.pid = pid
        self.tid = tid
        self.deviceId = deviceId
        self.streamId = streamId


_TEXTS = {"name", "sourceKind", "domain", "type", "dataType", "commName", "algType"}
_CLASSES = {
    "API": API,
    "AclAPI": API,
    "NodeAPI": API,
    "RuntimeAPI": API,
    "Kernel": Kernel,
    "Communication": Communication,
    "Marker": Marker,
}


def _reader(kind, cls):
    """A function that makes a record of a line. Runs a million times: as little as can be."""
    values = operator.itemgetter(*cls._keys)
    plan = tuple((k, "" if n in _TEXTS else 0) for n, k in zip(cls.__slots__, cls._keys))

    def read(line):
        try:
            return cls(*values(line))
        except KeyError:  # a mark is of the host or of a device, and has no place in the other
            return cls(*[line.get(key, default) for key, default in plan])

    return kind, read


_READERS = {name: _reader(ActivityKind[name], cls) for name, cls in _CLASSES.items()}


def from_line(line: Dict[str, Any]) -> Optional[Tuple[ActivityKind, Any]]:
    """(kind, record) of a line of Jsonl; None for what is no activity."""
    found = _READERS.get(line.get("kind", ""))
    return (found[0], found[1](line)) if found else None
