# SPDX-License-Identifier: MulanPSL-2.0
"""The functions that stand in place of hooked ones, one kind for each kind of function.

They keep name, documentation and signature. With no hooks they only call through: somebody may have
kept one when it was taken off.
"""

import functools
import inspect
import sys
import types

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
    if inspect.iscoroutinefunction(function):
        make = _coroutine
    elif inspect.isasyncgenfunction(function):
        make = _async_generator
    elif inspect.isgeneratorfunction(function):
        make = _generator
    else:
        make = _plain
    made = make(target, call)
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


def _drive(step, close, hooks):
    """Runs a generator or coroutine from pause to pause; step(how, value) is its send or throw."""
    how, value = "send", None
    while True:
        entered, _, _ = enter_all(hooks, (), {})
        ok = False
        try:
            item = step(how, value)
            ok = True
        except StopIteration as end:
            ok = True
            return end.value
        finally:
            leave_all(entered, ok)
        try:
            how, value = "send", (yield item)
        except GeneratorExit:
            close()
            raise
        except BaseException as why:
            how, value = "throw", why


def _stepper(it):
    return lambda how, value: it.send(value) if how == "send" else it.throw(value)


_drive_awaitable = types.coroutine(_drive)


def _split(hooks):
    whole = tuple(h for h in hooks if not h.per_step)
    return whole, tuple(h for h in hooks if h.per_step)


def _generator(target, call):
    def wrapper(*args, **kwargs):
        hooks = target.hooks
        whole, steps = _split(hooks)
        entered, args, kwargs = enter_all(whole, args, kwargs)
        ok = False
        try:
            it = call(*args, **kwargs)
            ret = yield from _drive(_stepper(it), it.close, steps)
            ok = True
        finally:
            leave_all(entered, ok)
        return result_of(hooks, ret, args, kwargs)

    return wrapper


def _coroutine(target, call):
    async def wrapper(*args, **kwargs):
        hooks = target.hooks
        whole, steps = _split(hooks)
        entered, args, kwargs = enter_all(whole, args, kwargs)
        ok = False
        try:
            it = call(*args, **kwargs)
            ret = await _drive_awaitable(_stepper(it), it.close, steps)
            ok = True
        finally:
            leave_all(entered, ok)
        return result_of(hooks, ret, args, kwargs)

    return wrapper


def _async_generator(target, call):
    async def wrapper(*args, **kwargs):
        whole, steps = _split(target.hooks)
        entered, args, kwargs = enter_all(whole, args, kwargs)
        ok = False
        it = call(*args, **kwargs)
        try:
            step = it.asend(None)
            while True:
                try:
                    item = await _drive_awaitable(_stepper(step), step.close, steps)
                except StopAsyncIteration:
                    break
                try:
                    step = it.asend((yield item))
                except GeneratorExit:
                    raise
                except BaseException as why:
                    step = it.athrow(why)
            ok = True
        finally:
            leave_all(entered, ok)
            await it.aclose()

    return wrapper
