# SPDX-License-Identifier: MulanPSL-2.0
"""Calls of Python functions, from here to there.

    msmemscope.tracer.start()
    train()
    msmemscope.tracer.stop()

The same as ``config(events="…,traceback")`` and ``start()``: for each thread a file
``python_trace_<tid>_<time>.csv`` with the begin and the end of every call, on the clock of the
memory events.
"""

from . import _control, _say, _trace

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
            _say.warn("Python calls are being traced already.")
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
            _say.warn("Python calls are not being traced.")
            return
        _configure(False)
        if _began:
            _control.stop()
        _began = False
