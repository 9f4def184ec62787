# SPDX-License-Identifier: MulanPSL-2.0
"""Decorators that hold for the whole run of what they decorate.

A call of a coroutine function, a generator or an async generator returns at once: its code runs
later, when somebody awaits it or asks for its items.
"""

import functools
import inspect
import types
from typing import Any, Callable, ContextManager, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def _is(ask: Callable[[Any], bool], function: Any) -> bool:
    """Also of an object that is called."""
    return ask(function) or ask(getattr(type(function), "__call__", None))


def _wrap_plain(function: Any, open_context: Callable[[], ContextManager]) -> Any:
    def inside(*args: Any, **kwargs: Any) -> Any:
        with open_context():
            return function(*args, **kwargs)

    return inside


def _wrap_coroutine(function: Any, open_context: Callable[[], ContextManager]) -> Any:
    async def inside(*args: Any, **kwargs: Any) -> Any:
        with open_context():
            return await function(*args, **kwargs)

    return inside


def _wrap_generator(function: Any, open_context: Callable[[], ContextManager]) -> Any:
    def inside(*args: Any, **kwargs: Any) -> Any:
        with open_context():
            return (yield from function(*args, **kwargs))

    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & inspect.CO_ITERABLE_COROUTINE:
        return types.coroutine(inside)  # it may be awaited
    return inside


def _wrap_async_generator(function: Any, open_context: Callable[[], ContextManager]) -> Any:
    async def inside(*args: Any, **kwargs: Any) -> Any:
        with open_context():
            items = function(*args, **kwargs)
            step = items.asend(None)
            try:
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    try:
                        step = items.asend((yield item))
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step = items.athrow(error)
            finally:
                await items.aclose()

    return inside


def run_inside(function: F, open_context: Callable[[], ContextManager]) -> F:
    """`function` with each of its runs inside a context that `open_context` makes.

    A generator runs from the moment at which its first item is asked for until it has ended or was
    closed, and what is done with its items in between belongs to this time.

    >>> run_inside(train, lambda: timer("train"))(batch)
    """
    if _is(inspect.iscoroutinefunction, function):
        inside = _wrap_coroutine(function, open_context)
    elif _is(inspect.isasyncgenfunction, function):
        inside = _wrap_async_generator(function, open_context)
    elif _is(inspect.isgeneratorfunction, function):
        inside = _wrap_generator(function, open_context)
    else:
        inside = _wrap_plain(function, open_context)
    return functools.wraps(function)(inside)
