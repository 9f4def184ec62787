# SPDX-License-Identifier: MulanPSL-2.0
"""The training steps of unmodified PyTorch programs, as reported by their optimizers.

Imported into the program by the code that wants its steps; nothing else is needed. PyTorch may
be imported before or after.

When a training step ends: when an optimizer steps that has already stepped in it. So

    one optimizer                       each of its steps is one
    several, each once per iteration    one per iteration, however many there are
    gradients accumulated over batches  one per step of the optimizer, not per batch
    one that steps five times while     five: the busiest one counts
      another one steps once
    another one from some point on      its steps count from its second one on
    wrappers (ZeRO, of several parts)   those inside and the one outside are one step together

A program that reports its steps itself, by sonde.step(), msmemscope.step() or the C functions, is
believed: from its first step on the optimizers are not listened to any more.
"""

import functools
import sys
import threading
import weakref

from msmemscope import _imports

from . import _monitor

_this_step = {}  # id: weak reference to an optimizer that has stepped in the current step
_told = 0  # steps that are ours
_others = False  # something else reports steps


def _has_stepped(optimizer):
    ref = _this_step.get(id(optimizer))
    return ref is not None and ref() is optimizer


def _stepped(optimizer):
    """An optimizer has stepped: is that the end of a training step?"""
    global _told, _others
    if _others:
        return
    if _monitor.steps() != _told:
        _others = True
        _this_step.clear()
        return
    first = _told == 0
    if first or _has_stepped(optimizer):
        _this_step.clear()
        _told += 1
        _monitor.step()
    _this_step[id(optimizer)] = weakref.ref(optimizer)


def _is_inner(optimizer, frame):
    """A class whose step() calls that of the class above it is reported twice."""
    code, frame = frame.f_code, frame.f_back
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False


def _after_step(optimizer, args, kwargs):
    """torch's global hook, from 2.0 on."""
    try:
        if not _others and not _is_inner(optimizer, sys._getframe(1)):
            _stepped(optimizer)
    except Exception:  # a missed step is harmless, an exception in the job is not
        pass


_after_step._torchdynamo_disable = True  # what is compiled calls it, and does not look into it


# --- before torch 2.0: around step() of every class of optimizers ---

_inside = threading.local()  # .optimizers: whose step() this thread is in


def _around(step):
    @functools.wraps(step)
    def wrapper(self, *args, **kwargs):
        inside = _inside.__dict__.setdefault("optimizers", [])
        if any(o is self for o in inside):
            return step(self, *args, **kwargs)
        inside.append(self)
        try:
            result = step(self, *args, **kwargs)
        finally:
            inside.pop()
        try:
            _stepped(self)
        except Exception:
            pass
        return result

    wrapper._sonde_step = True
    return wrapper


def _wrap(cls):
    step = cls.__dict__.get("step")
    if callable(step) and not getattr(step, "_sonde_step", False):
        cls.step = _around(step)


def _wrap_all(cls):
    for sub in cls.__subclasses__():
        _wrap(sub)
        _wrap_all(sub)


def _wrap_classes(optimizer_class):
    """Those that there are, and each that an optimizer is made of later: torch itself puts
    something around step() of a class when the first one is made, inside of which we stay."""
    made = optimizer_class.__init__

    @functools.wraps(made)
    def init(self, *args, **kwargs):
        for cls in type(self).__mro__:
            if cls is not optimizer_class and issubclass(cls, optimizer_class):
                _wrap(cls)
        return made(self, *args, **kwargs)

    _wrap_all(optimizer_class)
    optimizer_class.__init__ = init


def _listen(module):
    """torch.optim.optimizer is there."""
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is not None:
        register(_after_step)
    else:
        _wrap_classes(module.Optimizer)


_imports.when_imported("torch.optim.optimizer", _listen)
