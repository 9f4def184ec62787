# SPDX-License-Identifier: MulanPSL-2.0
"""Something around the calls of functions that run in steps: generators, coroutines and
asynchronous generators.

What is around a call is an object that is made when its first step is about to run:

    with it            from the first step to the end, however that comes
    it.args, .kwargs   what the function is called with
    it.step            None, or what each step is done `with`: the code of the function runs, and
                       those of no other code that it waits for
    it.result(ret)     what the caller gets
"""

import functools
import inspect
import types


class Around:
    """One that does only what it was given to do around each step."""

    def __init__(self, args, kwargs, step=None):
        self.args, self.kwargs, self.step = args, kwargs, step

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def result(self, ret):
        return ret


def in_steps(function, around, call=None):
    """What takes the place of a function that runs in steps; None for one that does not.

    around(args, kwargs) makes what is around a call; `call` is called instead of the function.
    """
    if inspect.isasyncgenfunction(function):
        make = _async_generator
    elif inspect.iscoroutinefunction(function):
        make = _coroutine
    elif inspect.isgeneratorfunction(function):
        make = _generator
    else:
        return None
    return functools.wraps(function)(make(function if call is None else call, around))


def _generator(call, around):
    def wrapper(*args, **kwargs):
        with around(args, kwargs) as a:
            ret = yield from _drive(call(*a.args, **a.kwargs), a.step)
        return a.result(ret)

    return wrapper


def _coroutine(call, around):
    async def wrapper(*args, **kwargs):
        with around(args, kwargs) as a:
            ret = await _drive(call(*a.args, **a.kwargs), a.step)
        return a.result(ret)

    return wrapper


def _async_generator(call, around):
    async def wrapper(*args, **kwargs):
        with around(args, kwargs) as a:
            inner = call(*a.args, **a.kwargs)
            go_on = inner.asend(None)
            while True:
                try:
                    item = await _drive(go_on, a.step)
                except StopAsyncIteration:
                    return
                try:
                    go_on = inner.asend((yield item))
                except GeneratorExit:
                    await _drive(inner.aclose(), a.step)
                    raise
                except BaseException as why:  # goes where the caller threw it
                    go_on = inner.athrow(why)

    return wrapper


@types.coroutine
def _drive(inner, step):
    """Runs a generator, or what is awaited, to its end."""
    if step is None:
        return (yield from inner)
    go_on, argument = inner.send, None
    while True:
        try:
            with step:
                item = go_on(argument)
        except StopIteration as end:
            return end.value
        try:
            go_on, argument = inner.send, (yield item)
        except GeneratorExit:
            with step:
                inner.close()
            raise
        except BaseException as why:
            go_on, argument = inner.throw, why
