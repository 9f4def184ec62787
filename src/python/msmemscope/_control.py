# SPDX-License-Identifier: MulanPSL-2.0
"""config(), start(), stop(), step(): the life of a recording."""

import atexit
import os

from . import _collectors, _fork, _messages

try:
    from sonde import _sonde
except ImportError as why:  # an interpreter without the stable ABI, or half an installation
    _sonde, _why_not = None, why

KEYS = (
    "call_stack",
    "level",
    "events",
    "device",
    "python_objects",
    "format",
    "output_path",
    "analysis",
    "watch",
)
OTHER_KEYS = {"data_format": "format", "output": "output_path"}
ONCE = ("format", "output_path", "watch")
FLUSH_MS = 2000
LEAVE_S = 5

_lock = _fork.lock(globals())
_effective = False  # what may be set once has been set
_moved = False  # config() has said where files go
_tried = False  # start() has been called
_told_first = False  # what start() says once


def native():
    """The extension, or an exception that says why there is none."""
    if _sonde is None:
        raise RuntimeError(f"msmemscope cannot record in this interpreter: {_why_not}")
    return _sonde


def _check(options):
    checked = {}
    for key, value in options.items():
        if isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value):
            value = ",".join(value)
        if not isinstance(value, str):
            raise TypeError(f"Value for argument '{key}' must be a string (use quotes)")
        if key in OTHER_KEYS:
            key = OTHER_KEYS[key]
        if key not in KEYS:
            raise ValueError(
                f"Set msmemscope trace config failed! There is no '{key}'; "
                f"expected {', '.join(KEYS)}"
            )
        checked[key] = value
    return checked


def config(*args: object, **options: str) -> None:
    """Say what is to be recorded. Every value is a string, as on the command line.

    call_stack   "c", "python", "c:10,python:5": stacks of memory events, and how deep
    level        "op", "kernel" (also "0", "1")
    events       "alloc", "free", "launch", "access", "traceback"; "" for none
    device       "npu", "npu:0", "gpu", "gpu:0", "cpu"
    python_objects  "true", "false": blocks of CPython's allocator, with host memory
    analysis     "leaks", "decompose", "inefficient", "oom"; "" for none
    format       "csv" or "db"                    with the first config() only; also data_format
    output_path  where files go                   with the first config() only; also output
    watch        "first_op,last_op,full-content"  with the first config() only

    What is not named stays as it is; config() alone changes nothing. Nothing is recorded before
    start(). A mistake is a ValueError that says what was expected, and nothing is changed.

    >>> import msmemscope
    >>> msmemscope.config(events="alloc,free", call_stack="python:10", analysis="leaks")
    """
    global _effective, _moved
    if args:
        raise TypeError("config() takes no positional arguments")
    sonde = native()
    with _lock:
        options = _check(options)
        if _effective or sonde.launched():
            late = [key for key in ONCE if key in options]
            if late:
                _say_late(sonde, late)
            options = {k: v for k, v in options.items() if k not in late}
        try:
            notices = sonde.configure(options)
        except ValueError as why:
            raise ValueError(f"Set msmemscope trace config failed! {why}") from None
        for line in notices.splitlines():
            _messages.warn(line)
        _effective = True
        _moved = _moved or "output_path" in options
        if sonde.tracing():
            _collectors.refresh(sonde.settings())


def start() -> None:
    """Begin recording, with what config() said or the defaults.

    May be called again after stop(): every window goes into the same files.

    >>> msmemscope.start()
    >>> train()
    >>> msmemscope.stop()
    """
    global _tried
    sonde = native()
    with _lock:
        _collectors.load()
        _tried = True
        already = sonde.tracing()
        if not sonde.start():
            if sonde.must_wait():
                _messages.error(
                    "nothing is recorded: something has killed the recorders of npu-monitor, "
                    "again and again; call start() again in half a minute"
                )
                return
            _messages.error(
                "nothing is recorded: the recorder could not be started. Is "
                f"'{sonde.session()}' a place where files can be made?"
            )
            return
        if already:
            _messages.info_once(f"already recording into {_output(sonde)}")
        else:
            _messages.info("Start tracing.")
        _say_first(sonde)
        _collectors.refresh(sonde.settings())


def stop() -> None:
    """End recording. The files hold everything up to here when this returns.

    Memory is still followed, at little cost, so that the next start() knows what is in use.

    >>> msmemscope.stop()
    """
    sonde = native()
    with _lock:
        if not sonde.tracing():
            _say_nothing_is_recorded(sonde)
            return
        _collectors.refresh(None)
        sonde.stop()
        _messages.info("Stop tracing.")
        if not sonde.flush(FLUSH_MS):
            _messages.warn(f"the files are still being written; see {sonde.session()}")


def step() -> None:
    """The end of a training step, and the beginning of the next; counted from 1.

    >>> for batch in loader:
    ...     train(batch)
    ...     msmemscope.step()
    """
    sonde = native()
    if sonde.tracing():
        _collectors.before_step()
        sonde.step()
    elif not _tried:  # steps between two windows are nothing to talk about
        _say_nothing_is_recorded(sonde)


def _output(sonde):
    """Where the files go. A process that joins a recording gets no message, but the path is the same."""
    return sonde.settings()["output_path"] if _moved else os.path.dirname(sonde.session())


def _say_late(sonde, late):
    by = "the values of the first call are used"
    if sonde.launched():
        by = "the options of the msmemscope command are used"
    _messages.warn(
        'Config:"format","output_path","watch" can only be set once. '
        f"Ignored: {', '.join(late)} ({by}); files go to {_output(sonde)}"
    )


def _say_first(sonde):
    global _told_first
    if not _told_first:
        _told_first = True
        session = _messages.quoted(sonde.session())
        _messages.info(f"recording into {_output(sonde)} (look at it with: sonde mem show {session})")
        _collectors.say_what_is_missing(sonde)


def _say_nothing_is_recorded(sonde):
    if sonde.joined() or not _tried:  # else start() has said why
        _messages.info_once("nothing is being recorded: call start() first")


def _resume():
    """Imported while a recording is under way: by the command, or by a parent's recording."""
    if _sonde is None:
        return
    if _sonde.launched():
        _sonde.begin()  # a process joins with its first event, and there may have been none yet
    if _sonde.tracing():
        # Who imports us in the middle of an import that we need as well tries again later.
        _collectors.load(careful=False)
        _collectors.refresh(_sonde.settings())


@atexit.register
def _leave():
    """The interpreter ends: nothing of ours runs while it is taken apart."""
    # Wait for a thread inside start() or stop(), but not for one that hangs there.
    if _sonde is not None and _sonde.joined() and _lock.acquire(timeout=LEAVE_S):
        try:
            _collectors.refresh(None)
        finally:
            _lock.release()
