# SPDX-License-Identifier: MulanPSL-2.0
"""Calls of Python functions, and of the functions of C that they call (``events="traceback"``).

From 3.12 on the interpreter reports them to a tool (``sys.monitoring``), before that to the profile
function of each thread. Either way no call passes through Python code.
"""

import os
import sys
import threading

import sonde

from . import _control, _fork, _messages

# Ids that no well-known kind of tool has: 0 is for debuggers, 1 for coverage, 2 for profilers.
TOOLS = (3, 4, 5)
NAME = "msmemscope"
# Nothing inside their functions is the program's.
MUTE = [
    "__init__.py",
    "_collectors.py",
    "_control.py",
    "_fork.py",
    "_messages.py",
    "_trace.py",
    "tracer.py",
]

_tool = None  # an id of sys.monitoring's
_on = False
_pid = None


def wanted(settings):
    return settings["traceback"]


def is_on():
    return _on


def _threads():
    """What the kernel calls each thread that the interpreter knows."""
    # Not threading.enumerate(): its lock may be ours already, below a signal handler.
    known = list(getattr(threading, "_active", {}).values())
    tids = {t.ident: t.native_id for t in known if t.ident and getattr(t, "native_id", None)}
    tids[threading.get_ident()] = threading.get_native_id()
    return tids


def _directories():
    return [os.path.dirname(fn.__code__.co_filename) for fn in (wanted, sonde.program)]


def _take_tool(native):
    global _tool
    monitoring = sys.monitoring
    for tool in TOOLS:
        try:
            monitoring.use_tool_id(tool, NAME)
        except ValueError:
            continue  # somebody else's
        _tool = tool
        break
    else:
        raise RuntimeError("every tool id of sys.monitoring is in use")
    events = monitoring.events
    callbacks = {
        events.PY_START: native.trace_on_begin,
        events.PY_RESUME: native.trace_on_begin,
        events.PY_THROW: native.trace_on_begin,
        events.PY_RETURN: native.trace_on_end,
        events.PY_YIELD: native.trace_on_end,
        events.PY_UNWIND: native.trace_on_end,
        events.CALL: native.trace_on_call,
        events.C_RETURN: native.trace_on_c_end,
        events.C_RAISE: native.trace_on_c_end,
    }
    mask = 0
    for event, callback in callbacks.items():
        monitoring.register_callback(_tool, event, callback)
        mask |= event
    return mask


def _give_tool_back():
    global _tool
    monitoring, tool = sys.monitoring, _tool
    _tool = None
    for name in dir(monitoring.events):
        event = getattr(monitoring.events, name)
        if isinstance(event, int) and event and not event & (event - 1):
            monitoring.register_callback(tool, event, None)
    monitoring.free_tool_id(tool)


def enable(settings):
    global _on, _pid
    native = _control.native()
    native.trace_packages(_directories(), MUTE)
    if hasattr(sys, "monitoring"):
        mask = _take_tool(native)
        try:
            native.trace_start(_threads(), sys.monitoring.set_events, (_tool, mask))
        except BaseException:
            sys.monitoring.set_events(_tool, 0)
            _give_tool_back()
            raise
    else:
        if getattr(threading, "_profile_hook", None) is None:
            threading.setprofile(native.trace_on_thread)
        _say_others(native.trace_start(_threads(), None, None))
    _on, _pid = True, os.getpid()


def _say_others(count):
    if count:
        _messages.warn_once(
            "a profiler is at work: calls are not traced in the threads that it profiles"
        )


def disable():
    global _on
    if not _on:
        return
    _on = False
    native = _control.native()
    if _tool is not None:
        native.trace_stop(sys.monitoring.set_events, (_tool, 0))
        _give_tool_back()
    else:
        native.trace_stop(None, None)
        if getattr(threading, "_profile_hook", None) is native.trace_on_thread:
            threading.setprofile(None)


def before_step():
    """A thread may have lost its profile function to a profiler that has left since."""
    if _on and _tool is None:
        _say_others(_control.native().trace_arm())


@_fork.in_child
def _after_fork():
    """A child's calls are its own: what runs in it began before it was there."""
    global _pid
    if _on and _pid != os.getpid():
        _pid = os.getpid()
        try:
            _control.native().trace_open({threading.get_ident(): threading.get_native_id()})
        except Exception:  # of no use to the job
            pass
