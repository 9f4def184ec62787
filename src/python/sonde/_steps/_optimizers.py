# SPDX-License-Identifier: MulanPSL-2.0
"""Steps of training, as optimizers make them: those of any class, fused or not, on any device.

Of an optimizer inside another one's step(), as wrappers have it (ZeRO, FSDP, Accelerate), the
outermost counts. DeepSpeed calls its inner optimizer for each group of parameters: there the engine
counts, once for each of its steps. Gradients that are accumulated over batches make one step, since
the optimizer steps once.
"""

import functools
import sys
import threading

from . import _pattern

pattern = _pattern.Pattern()

_tell = None  # who is told; None: nobody
_hook = None  # of torch
_engine = (0, 0)  # id and step of the engine of DeepSpeed that has stepped last


def listen(torch, tell):
    """tell(optimizer, what Pattern.call() says) from now on."""
    global _tell, _hook
    if _tell is not None:
        return
    _tell = tell
    module = sys.modules["torch.optim.optimizer"]
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is not None:
        _hook = register(_after_step)
    elif not getattr(module.Optimizer.__init__, "_sonde_step", False):
        _wrap_classes(module.Optimizer)


def leave():
    global _tell, _hook
    _tell = None
    if _hook is not None:
        _hook.remove()
        _hook = None


def _has_same_parameters(old, new):
    """The program has made another optimizer for them."""

    def parameters(optimizer):
        return {id(p) for group in optimizer.param_groups for p in group["params"]}

    return not parameters(old).isdisjoint(parameters(new))


def _stepped(optimizer, frame):
    if _is_repeated(frame):
        return
    _tell(optimizer, pattern.call(optimizer, _has_same_parameters))


def _is_repeated(frame):
    """Has DeepSpeed's engine been counted for the step that it is in?"""
    global _engine
    while frame is not None:
        if frame.f_code.co_name == "step" and str(frame.f_globals.get("__name__")).startswith(
            "deepspeed."
        ):
            engine = frame.f_locals.get("self")
            if hasattr(engine, "global_steps"):
                before, _engine = _engine, (id(engine), engine.global_steps)
                return before == _engine
        frame = frame.f_back
    return False


def _is_inner(frame):
    """Is it called by the step() of another one? Of itself: of the class above its own."""
    code, frame = frame.f_code, frame.f_back
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


def _after_step(optimizer, args, kwargs):
    """torch's global hook, from 2.0 on."""
    try:
        if _tell is not None:
            frame = sys._getframe(1)
            if not _is_inner(frame):
                _stepped(optimizer, frame)
    except Exception:  # a missed step is harmless, an exception in the job is not
        pass


_after_step._torchdynamo_disable = True  # what is compiled calls it, and does not look into it


# --- before torch 2.0: around step() of every class of optimizers ---

_inside = threading.local()  # .step: this thread is in the step() of an optimizer


def _around(step):
    @functools.wraps(step)
    def wrapper(self, *args, **kwargs):
        if _tell is None or getattr(_inside, "step", False):
            return step(self, *args, **kwargs)
        _inside.step = True
        try:
            result = step(self, *args, **kwargs)
        finally:
            _inside.step = False
        try:
            _stepped(self, sys._getframe())
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

    init._sonde_step = True
    _wrap_all(optimizer_class)
    optimizer_class.__init__ = init

