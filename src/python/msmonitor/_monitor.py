# SPDX-License-Identifier: MulanPSL-2.0
"""Monitor: records activities in the program itself, without a daemon."""

import atexit
import os
import threading
from typing import Any, Dict, List, Optional, Union

from . import _native, _proxy, _results, _messages
from ._records import ActivityKind

FLUSH_MS = 30000
INTERVAL_S = 1
LINES_PER_FILE = 500000


def _order(kinds: List[ActivityKind], directory: str, start: bool) -> str:
    names = ",".join(kind.name for kind in kinds)
    return "\n".join(
        (
            f"NPU_MONITOR_START={'true' if start else 'false'}",
            f"NPU_MONITOR_STOP={'false' if start else 'true'}",
            f"REPORT_INTERVAL_S={INTERVAL_S}",
            "DURATION=0",
            f"MSPTI_ACTIVITY_KIND={names}",
            f"NPU_MONITOR_LOG_FILE={directory}",
            "NPU_MONITOR_EXPORT_TYPE=Jsonl",
            f"JSONL_ROTATE_LOG_LINES={LINES_PER_FILE}",
            "JSONL_ROTATE_LOG_FILES=-1",
            "NPU_MONITOR_FILTER=",
        )
    )


def _complaint(kinds: Any) -> str:
    """Why these are no kinds; "" if they are."""
    if not isinstance(kinds, (list, tuple)) or not kinds:
        return f"a list of ActivityKind is needed, not {kinds!r}"
    for kind in kinds:
        if not isinstance(kind, ActivityKind):
            names = ", ".join(k.name for k in ActivityKind)
            return f"{kind!r} is no ActivityKind: there are {names}"
    return ""


class Monitor:
    """Records what the device executes, and the calls and marks around it.

    >>> monitor = Monitor()
    >>> monitor.start([ActivityKind.Kernel, ActivityKind.Marker])
    >>> train_one_step()
    >>> monitor.stop()
    >>> sum(k.endNs - k.startNs for k in monitor.get_result()[ActivityKind.Kernel])
    >>> monitor.save("step.xlsx")

    Or, with the kinds given beforehand:

    >>> with Monitor([ActivityKind.Kernel]) as monitor:
    ...     train_one_step()

    There is one in a process: Monitor() is the same object everywhere. It is not alone, though:
    what the daemon has started runs in the same place, and keeps start() from starting. What is
    recorded lies in files until the next start() or the end of the program. Nothing is raised:
    what goes wrong is said on stderr.
    """

    _only: "Optional[Monitor]" = None

    def __new__(cls, kinds: Optional[List[ActivityKind]] = None) -> "Monitor":
        if cls._only is None:
            only = super().__new__(cls)
            only._kinds = []
            only._asked = []
            only._results = None
            only._running = False
            only._started_here = []
            only._lock = threading.RLock()
            cls._only = only
        return cls._only

    def __init__(self, kinds: Optional[List[ActivityKind]] = None) -> None:
        self._kinds: List[ActivityKind]
        self._asked: List[ActivityKind]  # of the last start(), whether it could be or not
        self._results: Optional[_results.Results]
        self._running: bool
        self._started_here: List[bool]  # of each `with` that we are in
        self._wanted = kinds

    def __enter__(self) -> "Monitor":
        starts = self._wanted is not None and not self._is_on()
        if starts:
            self.start(self._wanted)  # type: ignore[arg-type]
        self._started_here.append(starts)
        return self

    def __exit__(self, *error: object) -> None:
        if self._started_here.pop() and self._is_on():
            self.stop()

    @property
    def running(self) -> bool:
        """Between start() and stop(), and nothing else has stopped it."""
        native = _native.get() if self._is_on() else None
        return native is not None and native.running()

    def start(self, kinds: List[ActivityKind]) -> None:
        """Begins to record; what an earlier start() has recorded is forgotten.

        >>> monitor.start([ActivityKind.Kernel, ActivityKind.Communication])
        """
        complaint = _complaint(kinds)
        if complaint:
            _messages.error(f"Monitor.start(): {complaint}")
            return
        self._asked = sorted(set(kinds))
        native = _native.get()
        if native is None:
            return
        with self._lock:
            if native.running():
                _messages.warn(
                    "Monitor.start(): a monitor runs already in this process; stop it first "
                    "(Monitor.stop(), or dyno npu-monitor --npu-monitor-stop)"
                )
                return
            self._forget()
            kinds = self._asked
            try:
                results = _results.Results()
            except OSError as why:
                _messages.error(f"Monitor.start(): no place for what is recorded: {why}")
                return
            if _proxy.give(native, _order(kinds, results.dir, True), "Monitor.start()"):
                self._kinds, self._results, self._running = kinds, results, True
            else:
                results.remove()

    def stop(self) -> None:
        """Ends recording. All that has ended on the device by now is in the result."""
        native = _native.get()
        if native is None:
            return
        with self._lock:
            results = self._results
            if results is None or not self._is_on():
                _messages.warn("Monitor.stop(): nothing runs; call start() first")
                return
            self._running = False
            if native.running():
                order = _order(self._kinds, results.dir, False)
                _proxy.give(native, order, "Monitor.stop()")
            self._flush(native)

    def get_result(self) -> Dict[ActivityKind, List[Any]]:
        """What was recorded, by kind: lists of API, Kernel, Communication and Marker.

        Also while recording: what has arrived so far, at most a second old. Every kind that
        start() was given is there, with an empty list if there is nothing of it, even if nothing
        could be recorded here.

        >>> for call in monitor.get_result()[ActivityKind.API]:
        ...     print(call.name, call.endNs - call.startNs)
        """
        with self._lock:
            results = self._started("get_result")
            found: Dict[ActivityKind, List[Any]] = {kind: [] for kind in self._asked}
            if results is None:
                return found
            for kind in self._kinds:
                found[kind] = []
            try:
                for kind, record in results.records():
                    found.setdefault(kind, []).append(record)
            except (OSError, ValueError) as why:
                _messages.error(f"Monitor.get_result(): the result is not complete: {why}")
            return found

    def save(self, file_path: "Union[str, os.PathLike[str]]") -> None:
        """Writes a workbook with a sheet per kind; .xlsx is added to the name if need be.

        A file of that name is replaced, a symbolic link refused. Directories that are missing are
        made.

        >>> monitor.save("out/step.xlsx")
        """
        try:
            path = os.fspath(file_path)
        except TypeError:
            path = None  # type: ignore[assignment]
        if not isinstance(path, str) or not path or "\0" in path:
            _messages.error(f"Monitor.save(): the name of a file is needed, not {file_path!r}")
            return
        with self._lock:
            results = self._started("save")
            if results is None:
                return
            try:
                _results.save(results, path)
            except (OSError, RuntimeError, ValueError) as why:
                _messages.error(f"Monitor.save(): nothing was saved: {why}")

    def _started(self, what: str) -> Optional[_results.Results]:
        if self._results is None:
            why = "start() has not succeeded" if self._asked else "call start() first"
            _messages.warn(f"Monitor.{what}(): nothing was recorded; {why}")
            return None
        native = _native.get() if self._is_on() else None
        if native is not None:
            self._flush(native)
        return self._results

    def _is_on(self) -> bool:
        return self._running and self._results is not None and self._results.is_ours()

    def _flush(self, native: Any) -> None:
        if not native.flush(FLUSH_MS):
            _messages.warn("the recorder is not done yet: the end of what was recorded may be missing")

    def _forget(self) -> None:
        results, self._results, self._running = self._results, None, False
        if results is not None:
            results.remove()


@atexit.register
def _leave() -> None:
    """The program ends: nothing goes on recording into a directory that is about to go."""
    monitor = Monitor._only
    if monitor is not None:
        if monitor.running:
            monitor.stop()
        monitor._forget()
