# SPDX-License-Identifier: MulanPSL-2.0
"""RecordFunction: spans that the program names, beside the calls of its functions."""

import functools
import inspect
import threading

from . import _control

MAX_NAME = 128


class RecordFunction:
    """A row of its own in the trace of calls, for a block of code or for each call of a function.

    Recorded between start() and stop(), whether calls are traced or not. The name has at most 128
    characters.

    >>> with msmemscope.RecordFunction("forward"):
    ...     loss = model(batch)

    >>> @msmemscope.RecordFunction("evaluate")
    ... def evaluate(model):
    ...     ...

    Of a generator or a coroutine it is the time from its first step to its end.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name of a RecordFunction is a str, not {type(name).__name__}")
        if not name or len(name) > MAX_NAME:
            raise ValueError(
                f"the name of a RecordFunction has 1 to {MAX_NAME} characters, not {len(name)}"
            )
        self.name = name
        self._open = threading.local()

    def __repr__(self):
        return f"RecordFunction({self.name!r})"

    def __enter__(self):
        ids = self._open.__dict__.setdefault("ids", [])
        ids.append(_begin(self.name))
        return self

    def __exit__(self, *why):
        ids = self._open.__dict__.get("ids")
        if ids:
            _end(ids.pop())
        return False

    def __call__(self, function):
        if not callable(function):
            raise TypeError(f"RecordFunction({self.name!r}) decorates functions, not {function!r}")
        if inspect.isasyncgenfunction(function):
            return _around_async_generator(self.name, function)
        if inspect.iscoroutinefunction(function):
            return _around_coroutine(self.name, function)
        if inspect.isgeneratorfunction(function):
            return _around_generator(self.name, function)
        return _around_function(self.name, function)


def _begin(name):
    try:
        # Half of a surrogate pair has no UTF-8, and is no reason to end a job.
        return _control.native().note_begin(name.encode("utf-8", "replace").decode())
    except RuntimeError:  # no extension: said elsewhere
        return 0


def _end(note):
    if note:
        _control.native().note_end(note)


def _around_function(name, function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        note = _begin(name)
        try:
            return function(*args, **kwargs)
        finally:
            _end(note)

    return wrapper


def _around_generator(name, function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        note = _begin(name)
        try:
            return (yield from function(*args, **kwargs))
        finally:
            _end(note)

    return wrapper


def _around_coroutine(name, function):
    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        note = _begin(name)
        try:
            return await function(*args, **kwargs)
        finally:
            _end(note)

    return wrapper


def _around_async_generator(name, function):
    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        note = _begin(name)
        inner = function(*args, **kwargs)
        value, error = None, None
        try:
            while True:
                step = inner.athrow(error) if error is not None else inner.asend(value)
                try:
                    item = await step
                except StopAsyncIteration:
                    return
                value, error = None, None
                try:
                    value = yield item
                except GeneratorExit:
                    await inner.aclose()
                    raise
                except BaseException as why:  # goes where the caller threw it
                    error = why
        finally:
            _end(note)

    return wrapper
