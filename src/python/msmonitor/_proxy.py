# SPDX-License-Identifier: MulanPSL-2.0
"""PyDynamicMonitorProxy: what torch_npu and MindSpore call."""

import os
from typing import Any, Dict, Mapping, Optional

from . import _job, _native, _messages

# What an order is made of; all other keys of the map are the framework's own.
KEYS = (
    "NPU_MONITOR_START",
    "NPU_MONITOR_STOP",
    "REPORT_INTERVAL_S",
    "DURATION",
    "MSPTI_ACTIVITY_KIND",
    "NPU_MONITOR_LOG_FILE",
    "NPU_MONITOR_EXPORT_TYPE",
    "JSONL_ROTATE_LOG_LINES",
    "JSONL_ROTATE_LOG_FILES",
    "NPU_MONITOR_FILTER",
    "REQUEST_TRACE_ID",  # tells an order that is given once more from the same one, repeated
)
GROUPS_KEY = "parallel_group_info"
STATUS_KEYS = ("profiler_status", "current_step", "start_step", "stop_step")
UNINITIALIZED = -1
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1


def _int32(name: str, value: Any) -> int:
    """An int, or what says that it is one (numpy's); never a float."""
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None
    if not INT32_MIN <= number <= INT32_MAX:
        raise TypeError(f"{name} does not fit: {number}")
    return number


def _texts(name: str, given: Any) -> Dict[str, str]:
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be a dict of str, not {type(given).__name__}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(
                f"{name} must be a dict of str: {key!r} is {type(value).__name__} {value!r}"
            )
    return dict(given)


def _step(text: Optional[str]) -> int:
    """Decimal, with a sign or without; -1 for what is missing or is none."""
    text = (text or "").strip()
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return -1
    number = int(text)
    return number if INT32_MIN <= number <= INT32_MAX else -1


def tell_job(native: Any) -> None:
    """The rank may become known late: said before whatever has it in its name."""
    rank = _job.rank()
    if rank >= 0:  # else other variables of the environment may say
        native.set_rank(rank)


def _carry_out(native: Any, order: str) -> str:
    """Has an order carried out; why not, if it cannot be."""
    tell_job(native)
    try:
        status, why = native.order(order)
    except UnicodeError:
        return "ignored, there are characters in it that are none"
    return (why or os.strerror(-status)) if status < 0 else ""


def give(native: Any, order: str, what: str) -> bool:
    """Has an order carried out; if it cannot be, that is said."""
    complaint = _carry_out(native, order)
    if complaint:
        _messages.error(f"{what}: {complaint}")
    return not complaint


class PyDynamicMonitorProxy:
    """Between a framework and the daemon: one of a process, however often it is made.

    The process that talks with the daemon registers and asks; every rank carries out orders.
    Wrong types are TypeErrors; everything else that goes wrong is said on stderr, and in a file
    below $MSMONITOR_LOG_PATH if that is set.

    >>> proxy = PyDynamicMonitorProxy()
    >>> if proxy.init_dyno(0):
    ...     order = proxy.poll_dyno()
    """

    _only: "Optional[PyDynamicMonitorProxy]" = None
    _refused: "Optional[tuple[Optional[str], str]]" = None

    def __new__(cls) -> "PyDynamicMonitorProxy":
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def init_dyno(self, npu_id: int) -> bool:
        """Registers with the daemon; both states are then Idle. False: there is no daemon."""
        device = _int32("npu_id", npu_id)
        native = _native.get()
        if native is None:
            return False
        tell_job(native)
        status = native.register(device)
        if status < 0:
            _messages.error(
                f"cannot register with the daemon: {os.strerror(-status)}. Is it running, as this "
                "user? It is started with: dynolog --enable-ipc-monitor"
            )
        return status >= 0

    def poll_dyno(self) -> str:
        """Asks once: the text of an order, "" if there is none.

        >>> dict(line.split("=", 1) for line in proxy.poll_dyno().splitlines() if "=" in line)
        """
        native = _native.get()
        found = native.poll() if native is not None else ""
        if isinstance(found, str):
            return found
        _messages.warn_once(f"the daemon does not answer: {os.strerror(-found)}")
        return ""

    def enable_dyno_npu_monitor(self, config_map: Dict[str, str]) -> None:
        """Carries out an order of `dyno npu-monitor`: starts, changes or stops the monitor.

        >>> proxy.enable_dyno_npu_monitor({
        ...     "NPU_MONITOR_START": "true", "NPU_MONITOR_STOP": "false",
        ...     "REPORT_INTERVAL_S": "10", "DURATION": "0", "MSPTI_ACTIVITY_KIND": "Kernel",
        ...     "NPU_MONITOR_LOG_FILE": "", "NPU_MONITOR_EXPORT_TYPE": "DB"})
        """
        given = _texts("config_map", config_map)
        native = _native.get()
        if native is None:
            return
        if KEYS[0] not in given:
            _messages.error(f"npu-monitor: ignored, {KEYS[0]} is missing")
            return
        lines = []
        for key in KEYS:
            value = given.get(key)
            if value is not None:
                if any(c in value for c in "\n\r\0"):
                    _messages.error(f"npu-monitor: ignored, {key} has a line break or a NUL in it")
                    return
                lines.append(f"{key}={value}")
        if given.get("NPU_MONITOR_STOP", "").strip().lower() in ("true", "1"):
            self._tell_groups(native)
        complaint = _carry_out(native, "\n".join(lines))
        refused = (given.get("REQUEST_TRACE_ID"), complaint) if complaint else None
        if refused and refused != self._refused:  # once, of an order that comes at every step
            _messages.error(f"npu-monitor: {complaint}")
        self._refused = refused

    def finalize_dyno(self) -> None:
        """Stops what runs and says good-bye to the daemon."""
        native = _native.get()
        if native is not None:
            native.end()

    def update_profiler_status(self, status: Dict[str, str]) -> None:
        """What the framework's own profiler does.

        profiler_status (-1 gone, 0 idle, 1 running, 2 ready), current_step, start_step and
        stop_step, as decimal texts; what is missing or no number counts as -1.
        """
        given = _texts("status", status)
        native = _native.get()
        if native is not None:
            native.tell_trace(*(_step(given.get(key)) for key in STATUS_KEYS))

    def set_cluster_config_data(self, cluster_config: Dict[str, str]) -> None:
        """parallel_group_info: JSON that goes into the files; other keys are ignored."""
        given = _texts("cluster_config", cluster_config)
        native = _native.get()
        if native is not None and GROUPS_KEY in given:
            self._set_groups(native, given[GROUPS_KEY])

    def _tell_groups(self, native: Any) -> None:
        text = _job.groups_text()
        if text:
            self._set_groups(native, text)

    def _set_groups(self, native: Any, text: str) -> None:
        try:
            native.set_groups(text)
        except UnicodeError:
            _messages.error("parallel_group_info: ignored, there are characters in it that are none")
