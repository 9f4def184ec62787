# SPDX-License-Identifier: MulanPSL-2.0
"""The functions that stand in place of hooked ones, one kind for each kind of function.

They keep name, documentation and signature. With no hooks they only call through: somebody may have
kept one when it was taken off.
"""

import functools
import sys

from .._generators import Around, in_steps
from ._hooks import complain


def enter_all(hooks, args, kwargs):
    entered = []
    for hook in hooks:
        try:
            args, kwargs, token = hook.enter(args, kwargs)
            entered.append((hook, token))
        except Exception as why:
            complain(type(hook).__name__, why)
    return entered, args, kwargs


def leave_all(entered, ok):
    for hook, token in reversed(entered):
        try:
            hook.leave(token, ok)
        except Exception as why:
            complain(type(hook).__name__, why)


def result_of(hooks, ret, args, kwargs):
    for hook in hooks:
        try:
            ret = hook.result(ret, args, kwargs)
        except Exception as why:
            complain(type(hook).__name__, why)
    return ret


def never():
    return False


def tracer_at_work():
    """torch's compiler runs functions symbolically; then hooks have nothing to see, and it should
    find the function as it is. It knows this question and answers it while it compiles."""
    torch = sys.modules.get("torch")
    compiler = vars(torch).get("compiler") if torch is not None else None
    return getattr(compiler, "is_compiling", never)


def wrap(target, function, call):
    """What takes the place of `function`; `call` is called for it."""
    made = in_steps(function, functools.partial(_Hooked, target), call)
    if made is not None:
        return made
    made = _plain(target, call)
    if function is not None:
        return functools.wraps(function)(made)
    made.__name__, made.__qualname__ = target.key[2], target.what
    return made


def _plain(target, call):
    is_compiling = tracer_at_work()

    def wrapper(*args, **kwargs):
        if is_compiling() or not target.hooks:
            return call(*args, **kwargs)
        hooks = target.hooks
        entered, args, kwargs = enter_all(hooks, args, kwargs)
        ok = False
        try:
            ret = call(*args, **kwargs)
            ok = True
        finally:
            leave_all(entered, ok)
        return result_of(hooks, ret, args, kwargs)

    return wrapper


class _Hooked(Around):
    """A call in steps: some hooks are around all of it, some around each step."""

    def __init__(self, target, args, kwargs):
        self._hooks, self._entered = target.hooks, ()
        steps = tuple(h for h in self._hooks if h.per_step)
        super().__init__(args, kwargs, _Step(steps) if steps else None)

    def __enter__(self):
        whole = tuple(h for h in self._hooks if not h.per_step)
        self._entered, self.args, self.kwargs = enter_all(whole, self.args, self.kwargs)
        return self

    def __exit__(self, kind, *error):
        leave_all(self._entered, kind is None)
        return False

    def result(self, ret):
        return result_of(self._hooks, ret, self.args, self.kwargs)


class _Step:
    def __init__(self, hooks):
        self._hooks, self._entered = hooks, ()

    def __enter__(self):
        self._entered, _, _ = enter_all(self._hooks, (), {})

    def __exit__(self, kind, *error):
        leave_all(self._entered, kind is None or issubclass(kind, StopIteration))
        return False
