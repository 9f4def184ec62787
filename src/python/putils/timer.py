# SPDX-License-Identifier: MulanPSL-2.0
"""How long parts of a program take.

    from putils.timer import timer

    with timer("forward"):
        loss = model(batch)

    [2026-11-18 07:12:40.123] [INFO] [Rank 0] forward: 12.345 ms

The device is waited for before and after, if one is in use. While a recording runs (msmemscope, or
the monitor) each span is on its timeline, too. `timer.TIMER_VERBOSE = False` prints nothing.
"""

import datetime
import sys
import time
from typing import Any, Callable, Optional, TypeVar

from . import _job, _messages, _native, device
from ._support.wrapping import run_inside
from .event_timer import CUDAEVENT_TIMER, event_timer

__all__ = [
    "CUDAEVENT_TIMER",
    "TIMER_VERBOSE",
    "event_timer",
    "get_formatted_time",
    "get_time_str",
    "mprint",
    "timer",
    "timer_decorator",
    "to_filename_safe",
]

TIMER_VERBOSE = True

_F = TypeVar("_F", bound=Callable)
_STEP = "step start"  # a range of this name would count as a step


def get_formatted_time() -> str:
    """Now, to the millisecond.

    >>> get_formatted_time()
    '2026-11-18 07:12:40.123'
    """
    now = datetime.datetime.now()
    return f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03d}"


def to_filename_safe(s: str) -> str:
    """A time as part of a file's name: without - and :, a space as _, the point as _ms.

    >>> to_filename_safe("2026-11-18 07:12:40.123")
    '20261118_071240_ms123'
    """
    return s.replace("-", "").replace(":", "").replace(" ", "_").replace(".", "_ms")


def get_time_str() -> str:
    """Now, as part of a file's name.

    >>> get_time_str()
    '20261118_071240_ms123'
    """
    return to_filename_safe(get_formatted_time())


def mprint(msg: object, level: str = "INFO") -> str:
    """Print a message with the time and a level; returns the time as part of a file's name.

    >>> mprint("checkpoint is written")
    [2026-11-18 07:12:40.123] [INFO] checkpoint is written
    '20261118_071240_ms123'
    """
    now = get_formatted_time()
    try:
        print(f"[{now}] [{level}] {msg}", flush=True)
    except (OSError, ValueError):  # stdout is closed
        pass
    return to_filename_safe(now)


class timer:
    """A span: with timer("name"), or as a decorator. Printed on rank 0 alone unless told otherwise.

    Afterwards `elapsed_ms` is how long it took. Of a coroutine or a generator the whole run is timed:
    of a generator from the first item that is asked for to its end, with what is done in between.

    >>> with timer("load batch") as span:
    ...     batch = next(loader)
    >>> span.elapsed_ms
    12.345
    """

    def __init__(self, name: str = "", print_rank0_only: bool = True) -> None:
        self.name = str(name)
        self.print_rank0_only = print_rank0_only
        self.elapsed_ms = 0.0
        self._range = 0
        self._began = 0

    def __enter__(self) -> "timer":
        _wait()
        native = _native.get()
        if native:
            name = self.name or "timer"
            self._range = native.range_start(f"{name} (timer)" if name == _STEP else name)
        self._began = time.perf_counter_ns()
        return self

    def __exit__(self, *_: Any) -> None:
        _wait()
        self.elapsed_ms = (time.perf_counter_ns() - self._began) / 1e6
        if self._range:
            _native.get().range_end(self._range)
            self._range = 0
        rank = _job.rank()
        if sys.modules[__name__].TIMER_VERBOSE and (rank <= 0 or not self.print_rank0_only):
            mprint(f"[Rank {rank}] {self.name}: {self.elapsed_ms:.3f} ms")

    def __call__(self, function: _F) -> _F:
        return run_inside(function, lambda: timer(self.name, self.print_rank0_only))


def _wait() -> None:
    try:
        device.synchronize()
    except Exception as why:  # a device that has failed: the program hears of it itself
        _messages.warn_once(f"timer: the device cannot be waited for: {_messages.words(why)}")


def timer_decorator(name: Optional[str] = None, print_rank0_only: bool = True) -> Any:
    """A decorator that times each call; the function's own name, if none is given.

    >>> @timer_decorator()
    ... def evaluate(model): ...
    """
    if callable(name):  # @timer_decorator without brackets
        return timer_decorator()(name)

    def wrap(function: _F) -> _F:
        label = name or getattr(function, "__qualname__", type(function).__name__)
        return timer(label, print_rank0_only)(function)

    return wrap
