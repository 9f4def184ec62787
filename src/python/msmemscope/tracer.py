# SPDX-License-Identifier: MulanPSL-2.0
"""Calls of Python functions, from here to there.

    msmemscope.tracer.start()
    train()
    msmemscope.tracer.stop()

The same as ``config(events="…,traceback")`` and ``start()``: for each thread a file
``python_trace_<tid>_<time>.csv`` with the begin and the end of every call, on the clock of the
memory events.

:class:`RecordFunction` names a span of the program itself, beside the calls of its functions.
"""

import functools
import threading

from . import _control, _generators, _messages, _trace

_EVENTS = ("alloc", "free", "launch", "access")

_began = False  # recording is under way for this alone


def _configure(traceback):
    native = _control.native()
    bits = native.settings()["dump_events"]
    words = [word for word in _EVENTS if bits & getattr(native, "EVENT_" + word.upper())]
    words += ["traceback"] if traceback else []
    _control.config(events=",".join(words) or "none")


def start() -> None:
    """Trace the calls of all threads from now on; begins to record if nothing is recorded yet.

    >>> msmemscope.tracer.start()
    """
    global _began
    native = _control.native()
    with _control._lock:
        if native.tracing() and _trace.is_on():
            _messages.warn("Python calls are being traced already.")
            return
        _configure(True)
        if not native.tracing():
            _control.start()
            _began = native.tracing()


def stop() -> None:
    """The end of it. Recording goes on if it had begun before.

    >>> msmemscope.tracer.stop()
    """
    global _began
    with _control._lock:
        if not _trace.is_on():
            _messages.warn("Python calls are not being traced.")
            return
        _configure(False)
        if _began:
            _control.stop()
        _began = False


MAX_NAME = 128


class RecordFunction:
    """A row of its own in the trace of calls, for a block of code or for each call of a function.

    Recorded between start() and stop(), whether calls are traced or not. The name has at most 128
    characters.

    >>> with msmemscope.RecordFunction("forward"):
    ...     loss = model(batch)

    >>> @msmemscope.RecordFunction("evaluate")
    ... def evaluate(model):
    ...     ...

    Of a generator or a coroutine it is the time from its first step to its end.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a RecordFunction is a str, not {type(name).__name__}")
        if not name or len(name) > MAX_NAME:
            raise ValueError(
                f"the name of a RecordFunction has 1 to {MAX_NAME} characters, not {len(name)}"
            )
        self.name = name
        self._open = threading.local()

    def __repr__(self):
        return f"RecordFunction({self.name!r})"

    def __enter__(self):
        ids = self._open.__dict__.setdefault("ids", [])
        ids.append(_begin(self.name))
        return self

    def __exit__(self, *why):
        ids = self._open.__dict__.get("ids")
        if ids:
            _end(ids.pop())
        return False

    def __call__(self, function):
        if not callable(function):
            raise TypeError(f"RecordFunction({self.name!r}) decorates functions, not {function!r}")
        made = _generators.in_steps(function, functools.partial(_Span, self.name))
        return made if made is not None else _around_function(self.name, function)


def _begin(name):
    try:
        # Half of a surrogate pair has no UTF-8, and is no reason to end a job.
        return _control.native().note_begin(name.encode("utf-8", "replace").decode())
    except RuntimeError:  # no extension: said elsewhere
        return 0


def _end(note):
    if note:
        _control.native().note_end(note)


class _Span(_generators.Around):
    def __init__(self, name, args, kwargs):
        super().__init__(args, kwargs)
        self._name, self._note = name, 0

    def __enter__(self):
        self._note = _begin(self._name)
        return self

    def __exit__(self, *error):
        _end(self._note)
        return False


def _around_function(name, function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        note = _begin(name)
        try:
            return function(*args, **kwargs)
        finally:
            _end(note)

    return wrapper
