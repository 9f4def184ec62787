# SPDX-License-Identifier: MulanPSL-2.0
"""Calls of objects of some classes, seen by what stands in the place of their __call__."""

import functools
import threading
import types


class Calls:
    """tell(object) after each call that is not inside another one and did not fail."""

    def __init__(self, tell):
        self.classes = {}  # class: its own __call__ before, or None; the one that it has now
        self._tell = tell
        self._inside = threading.local()  # .call: this thread is in one

    def listen(self, cls):
        """TypeError: the class does not change, or what it has for a call is no plain function."""
        own = cls.__dict__.get("__call__")
        if own is not None and not isinstance(own, types.FunctionType):
            raise TypeError(f"__call__ of {cls.__name__} is a {type(own).__name__}")

        @functools.wraps(cls.__call__)
        def wrapper(this, *args, **kwargs):
            call = super(cls, this).__call__ if own is None else functools.partial(own, this)
            if getattr(self._inside, "call", False):
                return call(*args, **kwargs)
            self._inside.call = True
            try:
                result = call(*args, **kwargs)
            finally:
                self._inside.call = False
            self._tell(this)
            return result

        cls.__call__ = wrapper
        self.classes[cls] = own, wrapper

    def leave(self):
        for cls, (own, wrapper) in list(self.classes.items()):
            del self.classes[cls]
            if cls.__dict__.get("__call__") is not wrapper:
                continue  # the program has put something around it; it does no harm
            if own is not None:
                cls.__call__ = own
            else:
                del cls.__call__
