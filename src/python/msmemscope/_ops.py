# SPDX-License-Identifier: MulanPSL-2.0
"""Operators of torch, and the tensors they use.

A dispatch mode whose body is written in C (_sonde/ops.c). One object serves the whole process; it
is on the stack of every thread whose operators are reported: of the one that called start(), of
those that are started from then on, and of torch's own threads that work for them.
"""

import functools
import sys
import threading

from sonde import _sonde

from . import _devices, _imports, _tensors

_mode = None
_enabled = False
_waiting = None  # for torch


def wanted(settings):
    events = settings["events"]
    watch = settings["watch"] or _sonde.wants(_sonde.WANT_WATCH)
    if not (settings["cpu"] or watch or _devices.may_be_used()):
        return False
    launch = events & _sonde.EVENT_LAUNCH and settings["level"] & _sonde.LEVEL_OP
    access = events & _sonde.EVENT_ACCESS
    # Each costs some microseconds. On GPUs the command records them if they were asked for: owners
    # ask for accesses as well, and modules say more about a block than `ops` does.
    asked = settings["events_asked"] or settings["cpu"] or "torch_npu" in sys.modules
    if not asked and _sonde.launched():
        launch = access = False
    return bool(launch or access or watch or _tensors.wanted(settings))


def enable(settings):
    global _enabled, _waiting
    _enabled = True
    _waiting = _imports.when_imported("torch", lambda torch: _begin(torch, settings))


def disable():
    global _enabled
    _enabled = False
    if _waiting is not None:
        _waiting.cancel()
    _sonde.op_live(False)
    _tensors.disable()
    _threads(False)
    if _mode is not None:
        _take_off()


def before_step():
    _tensors.before_step()


def _begin(torch, settings):
    global _mode
    if not _enabled or not wanted(settings):
        return
    if _mode is None:
        from torch.utils import _python_dispatch as modes

        # Before 2.0 the stack is handled in Python: no other code may touch it between two lines.
        in_python = hasattr(modes, "_TorchDispatchStackMode")
        retire = None if in_python else _take_off
        _sonde.op_setup(torch, retire, threading.main_thread().ident)
        _mode = _make_mode(torch)
        if in_python:
            _mend_as_subclass(torch)
    _tensors.enable(torch, settings)
    _sonde.op_live(True)
    _put_on()
    _threads(True)


def _mend_as_subclass(torch):
    """Before 2.0 it fails below any mode, and so do all functions of tensors of a class with
    __torch_function__. It stays: threads may have our mode for longer than we are enabled."""
    original = torch.Tensor.as_subclass

    @functools.wraps(original)
    def as_subclass(self, cls):
        stack = _stack()
        if len(stack) != 1 or stack[0] is not _mode:
            return original(self, cls)
        _take_off()
        try:
            return original(self, cls)
        finally:
            _put_on()

    torch.Tensor.as_subclass = as_subclass


def _make_mode(torch):
    from torch.utils._python_dispatch import TorchDispatchMode

    class MemscopeMode(TorchDispatchMode):
        # Operators that are made of others are reported as what they are.
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls):
            return True  # compiled code is left as it is; what it calls is reported

    mode = MemscopeMode()
    # Without a Python frame in between: torch asks the object, not its class.
    mode.__torch_dispatch__ = _sonde.op_bound(mode)
    return mode


# The stack belongs to the thread. We are below all modes of the program: they end by taking off
# what is on top, and what we see is what they let through. Its lowest layer is used, not `with`:
# that keeps flags of torch's in order only where modes end in the opposite order of their
# beginnings.


def _stack():
    """What may be taken off and put back; modes of torch's own that have a place of theirs are not
    among them."""
    from torch.utils import _python_dispatch as modes

    stack = modes._get_current_dispatch_mode_stack()
    return [m for m in stack if getattr(m, "_mode_key", None) is None]


def _change(want):
    """Puts the mode below the stack of this thread, or takes it out; the others stay."""
    from torch.utils import _python_dispatch as modes

    stack = _stack()
    if any(m is _mode for m in stack) == want:
        return
    for _ in stack:
        modes._pop_mode()
    for mode in [_mode] + stack if want else [m for m in stack if m is not _mode]:
        modes._push_mode(mode)


def _put_on():
    _change(True)


def _take_off():
    _change(False)


# Threads of the program's.

_bootstrap = None


def _threads(on):
    """Threads that begin from now on have the mode, too."""
    global _bootstrap
    if on and _bootstrap is None:
        begin = getattr(threading.Thread, "_bootstrap_inner", None)
        if begin is None:
            return

        def _bootstrap_inner(self):
            try:
                if _enabled and _mode is not None:
                    _put_on()
            except Exception:  # torch is being taken apart
                pass
            try:
                begin(self)
            finally:
                try:
                    if _mode is not None:
                        _take_off()
                except Exception:
                    pass

        _bootstrap = (_bootstrap_inner, begin)
        threading.Thread._bootstrap_inner = _bootstrap_inner
    elif not on and _bootstrap is not None:
        if threading.Thread._bootstrap_inner is _bootstrap[0]:
            threading.Thread._bootstrap_inner = _bootstrap[1]
            _bootstrap = None
