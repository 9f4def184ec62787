# SPDX-License-Identifier: MulanPSL-2.0
"""While the monitor attributes what devices execute (``--attribute``): which module of a model runs.

Nothing is hooked before somebody wants that, and nothing stays hooked afterwards. The extension knows
what is open in each thread (src/python/_monitor/attribution.c); launches themselves are seen by the monitor.

What torch.compile() has made is one program: hooks would be compiled into it, and change it. Where
something has been compiled there are lines, and no modules.

Nothing in here may raise into the program or change what it computes.
"""

import os
import sys

from msmemscope import _imports

from . import _gradients, _layers, _module_hooks, _monitor

_undo = []  # functions that take back what _enable() did
_waits = []
_knows_autograd = False
_knows_forks = False


def listen():
    _monitor.work_hide(listen.__code__.co_filename)
    _monitor.work_listen(_changed)


def _changed(wanted):
    if not wanted:
        _disable()
    elif not _waits:
        _waits.append(_imports.when_imported("torch", _enable))


def _disable():
    while _waits:
        _waits.pop().cancel()
    while _undo:
        _undo.pop()()
    _layers.detach(_monitor)
    _monitor.work_clear()


def _enable(torch):
    global _knows_forks
    if _undo:
        return
    if not _knows_forks:
        _knows_forks = True
        os.register_at_fork(after_in_child=_disable)
    _layers.attach(_monitor)
    for hook in (_hook_optimizers, _follow_autograd, _hook_modules):
        try:
            hook(torch)
        except Exception:  # this version has no such thing: what it would say is not known
            pass


def _has_compiled():
    """Has torch.compile() made something in this program?"""
    utils = sys.modules.get("torch._dynamo.utils")
    return bool(getattr(utils, "counters", {}).get("frames"))


# --- modules ---


def _never():
    return False


def _hook_modules(torch):
    if _has_compiled():
        return
    pre, post = _forward_hooks(getattr(getattr(torch, "compiler", None), "is_compiling", _never))
    _undo.append(_module_hooks.register(torch, pre, post))


def _forward_hooks(is_compiling):
    """A compiler that follows them sees nothing but a constant and a return."""
    enter, leave = _monitor.work_enter, _monitor.work_leave

    def before_forward(module, args):
        if not is_compiling() and not enter(module):
            _meet(module)

    def after_forward(module, args, result):
        if not is_compiling():
            leave(module)

    return before_forward, after_forward


def _meet(module):
    """One that is not known: a model that is called for the first time, or something new in it."""
    try:
        outermost = _layers.thing(_monitor.work_outermost())
        if outermost is None:
            _layers.learn(module)
        else:
            _layers.search(module, outermost)
        _monitor.work_enter(module)
    except Exception:
        pass


# --- optimizers ---


def _hook_optimizers(torch):
    optimizer = sys.modules["torch.optim.optimizer"]  # torch.optim hides it

    def before_step(opt, args, kwargs):
        try:
            if not _monitor.work_outermost() and not _monitor.work_enter(opt):
                _layers.name(opt, f":optimizer:{type(opt).__name__}")
                _monitor.work_enter(opt)
        except Exception:
            pass

    def after_step(opt, args, kwargs):
        _monitor.work_leave(opt)

    before_step._torchdynamo_disable = after_step._torchdynamo_disable = True
    _undo.append(optimizer.register_optimizer_step_pre_hook(before_step).remove)
    _undo.append(optimizer.register_optimizer_step_post_hook(after_step).remove)


# --- gradients ---


def _follow_autograd(torch):
    global _knows_autograd
    if not _knows_autograd:
        _knows_autograd = _gradients.follow(torch, _monitor.autograd_follow)
