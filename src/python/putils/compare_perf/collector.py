# SPDX-License-Identifier: MulanPSL-2.0
"""Times of scopes that may be nested, in any number of threads.

    collector = TimingCollector()
    with collector.scope("forward"):
        model(batch)
    print(collector.summary["forward"]["total_seconds"])
"""

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional

from .. import _messages, device
from .._support.wrapping import F, run_inside
from .config import (
    DEFAULT_SYNC_MODE,
    DEFAULT_THRESHOLD_SECONDS,
    validate_sync_mode,
    validate_threshold,
)


@dataclass(frozen=True)
class TimingEvent:
    """One scope that has ended. Exclusive is without the scopes inside it; threads are counted
    from 0 in the order in which the collector met them.

    >>> TimingEvent("forward", 100, 300, 200, 150).exclusive_ns
    150
    """

    name: str
    start_ns: int
    end_ns: int
    inclusive_ns: int
    exclusive_ns: int
    thread: int = 0


class _Frame:
    __slots__ = ("name", "start_ns", "children_ns")

    def __init__(self, name: str, start_ns: int):
        self.name, self.start_ns, self.children_ns = name, start_ns, 0


class TimingCollector:
    """Keeps events and their sums. Each thread has its own nesting.

    With sync_mode="boundary", `synchronize` is called when a scope begins and when it ends;
    without one, the device that torch uses is waited for.

    >>> collector = TimingCollector(sync_mode="none")
    >>> with collector.scope("step"):
    ...     pass
    >>> collector.summary["step"]["call_count"]
    1
    """

    def __init__(
        self,
        sync_mode: str = DEFAULT_SYNC_MODE,
        synchronize: Optional[Callable[[], None]] = None,
    ):
        self.sync_mode = validate_sync_mode(sync_mode)
        self.synchronize = synchronize
        self._events: List[TimingEvent] = []
        self._sums: Dict[str, List[int]] = {}
        self._lock = threading.Lock()
        self._threads = 0
        self._thread = threading.local()

    @property
    def events(self) -> List[TimingEvent]:
        """Those that took at least their threshold, in the order in which they ended."""
        with self._lock:
            return list(self._events)

    @property
    def summary(self) -> Dict[str, Dict[str, Any]]:
        """{name: call_count, total_ns, total_seconds} of all scopes, below the threshold too."""
        with self._lock:
            sums = [(name, count, total) for name, (count, total) in self._sums.items()]
        return {
            name: {"call_count": count, "total_ns": total, "total_seconds": total / 1e9}
            for name, count, total in sums
        }

    def _wait(self) -> None:
        if self.sync_mode != "boundary":
            return
        try:
            (self.synchronize or device.synchronize)()
        except Exception as why:
            _messages.warn_once(
                f"compare_perf cannot synchronize: {_messages.words(why)}. Times are the host's"
            )

    def _stack(self) -> List[_Frame]:
        stack = getattr(self._thread, "stack", None)
        if stack is None:
            stack = self._thread.stack = []
            with self._lock:
                self._thread.number = self._threads
                self._threads += 1
        return stack

    def begin(self, name: str) -> _Frame:
        """A scope begins; end() takes what this returns."""
        self._wait()
        frame = _Frame(name, time.perf_counter_ns())
        self._stack().append(frame)
        return frame

    def innermost(self, name: str) -> Optional[_Frame]:
        """The open scope of that name that was begun last in this thread."""
        return next((f for f in reversed(self._stack()) if f.name == name), None)

    def end(self, frame: _Frame, threshold_seconds: Optional[float] = None) -> None:
        """The scope has ended, and those inside it that an exception has left open."""
        self._wait()
        end_ns = time.perf_counter_ns()
        stack = self._stack()
        if frame in stack:
            del stack[stack.index(frame) :]
        inclusive = max(end_ns - frame.start_ns, 0)
        if stack:
            stack[-1].children_ns += inclusive
        with self._lock:
            sums = self._sums.setdefault(frame.name, [0, 0])
            sums[0] += 1
            sums[1] += inclusive
            if threshold_seconds is None or inclusive >= threshold_seconds * 1e9:
                exclusive = max(inclusive - frame.children_ns, 0)
                times = frame.start_ns, end_ns, inclusive, exclusive
                self._events.append(TimingEvent(frame.name, *times, self._thread.number))

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Times a block; its event is always kept.

        >>> with TimingCollector().scope("forward"):
        ...     pass
        """
        frame = self.begin(_validate_scope_name(name))
        try:
            yield
        finally:
            self.end(frame)

    @contextmanager
    def compare_scope(
        self, scope_name: str, threshold_seconds: float = DEFAULT_THRESHOLD_SECONDS
    ) -> Iterator[None]:
        """Times a block; its event is kept if it takes at least the threshold.

        >>> with TimingCollector().compare_scope("forward", threshold_seconds=0.05):
        ...     pass
        """
        validate_threshold(threshold_seconds)
        frame = self.begin(_validate_scope_name(scope_name))
        try:
            yield
        finally:
            self.end(frame, threshold_seconds)


def _validate_scope_name(scope_name: str) -> str:
    if not isinstance(scope_name, str) or not scope_name.strip():
        raise ValueError("scope_name must be a non-empty string")
    return scope_name


class _Scope:
    """A scope as a context and as a decorator; may be entered again while it is open."""

    def __init__(self, collector: TimingCollector, scope_name: str, threshold_seconds: float):
        self.collector = collector
        self.scope_name = _validate_scope_name(scope_name)
        self.threshold_seconds = validate_threshold(threshold_seconds)
        self._open = threading.local()

    def __enter__(self) -> TimingCollector:
        frames = self._open.__dict__.setdefault("frames", [])
        frames.append(self.collector.begin(self.scope_name))
        return self.collector

    def __exit__(self, *_: Any) -> None:
        self.collector.end(self._open.frames.pop(), self.threshold_seconds)

    def __call__(self, function: F) -> F:
        return run_inside(
            function, lambda: self.collector.compare_scope(self.scope_name, self.threshold_seconds)
        )


def compare_perf(
    scope_name: str,
    *,
    collector: Optional[TimingCollector] = None,
    threshold_seconds: float = DEFAULT_THRESHOLD_SECONDS,
    sync_mode: str = DEFAULT_SYNC_MODE,
    synchronize: Optional[Callable[[], None]] = None,
) -> _Scope:
    """Times a block or a function; yields the collector, which is a new one unless it is given.

    >>> with compare_perf("forward") as collector:
    ...     pass
    >>> list(collector.summary)
    ['forward']
    >>> @compare_perf("post", collector=collector, threshold_seconds=0.05)
    ... def post(x):
    ...     return 2 * x
    """
    if collector is None:
        collector = TimingCollector(sync_mode=sync_mode, synchronize=synchronize)
    return _Scope(collector, scope_name, threshold_seconds)


def _run_n_times(workload: Callable[[], None], iterations: int) -> int:
    start_ns = time.perf_counter_ns()
    for _ in range(iterations):
        workload()
    return time.perf_counter_ns() - start_ns


def measure_overhead(
    baseline_workload: Callable[[], None],
    instrumented_workload: Callable[[], None],
    iterations: int = 100,
) -> Dict[str, float]:
    """What instrumentation costs: both workloads, `iterations` times each.

    >>> sorted(measure_overhead(lambda: None, lambda: None, iterations=10))
    ['baseline_total_ns', 'instrumented_total_ns', 'overhead_ns', 'overhead_pct']
    """
    if iterations <= 0:
        raise ValueError("iterations must be > 0")
    baseline = float(_run_n_times(baseline_workload, iterations))
    instrumented = float(_run_n_times(instrumented_workload, iterations))
    overhead = instrumented - baseline
    return {
        "baseline_total_ns": baseline,
        "instrumented_total_ns": instrumented,
        "overhead_ns": overhead,
        "overhead_pct": overhead / baseline * 100 if baseline else 0.0,
    }
