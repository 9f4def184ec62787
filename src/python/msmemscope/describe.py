# SPDX-License-Identifier: MulanPSL-2.0
"""Labels of your own for memory: who owns it.

    from msmemscope import describe

    with describe.describer(owner="loader"):        # what this thread allocates in here
        batch = next(batches)

    @describe.describer(owner="attention")          # … while the function runs
    def attention(q, k, v): ...

    describe.describer(cache, owner="kv_cache")     # the block that holds this tensor
    describe.describer(0x7f0012340000, owner="dma")     # … or this address

An owner is written as names joined by '@', from the source of the memory to your own labels:
``PTA@activation@attention``. Of labels that are open at a time the outermost three count; one that
is open twice counts once. A label is at most 128 bytes long; what is longer is cut, and control
characters are written as escapes.

Labels belong to the thread that opens them. A decorated generator or coroutine has its label while
its own code runs, not while it waits; a ``with`` block inside one holds on to it all the time.
"""

import functools
import sys

from . import _addresses, _generators, _messages

try:
    from sonde import _sonde
except ImportError:  # then nothing can be recorded, and labels go nowhere
    _sonde = None

__all__ = ["describer"]

# Levels of labels. Those of the system have one label at a time, the newest.
FRAMEWORK = 0
COMPONENT = 1
PROCESS = 2
DETAIL_1 = 3
DETAIL_2 = 4
USER_DEFINED_1 = 5
USER_DEFINED_2 = 6
USER_DEFINED_3 = 7


def describer(*what: object, owner: "str | None" = None) -> "_Label | None":
    """Says who owns memory; see the module's own text.

    Without an argument before ``owner``: a context manager, and a decorator, for what is allocated.
    With a tensor or an address: labels the block of memory that contains it.

    >>> with describer(owner="loader"):
    ...     batch = next(batches)
    >>> describer(batch, owner="first batch")
    """
    if not isinstance(owner, str):
        raise TypeError('describer() needs a name: describer(owner="loader")')
    if not owner:
        raise ValueError("describer() needs a name that is not empty")
    if len(what) > 1:
        raise TypeError("describer() takes one tensor or address at a time")
    text = _printable(owner)
    if not what:
        return _Label(text)
    _label_memory(what[0], text)
    return None


def _printable(owner):
    """Without what a text in C cannot hold."""
    return owner.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _label_memory(thing, text):
    torch = sys.modules.get("torch")
    if isinstance(thing, int) and not isinstance(thing, bool):
        if not 0 <= thing < 1 << 64:
            raise ValueError(f"{thing} is no address: expected 0 to 2**64 - 1")
        found = [thing]
    elif isinstance(thing, getattr(torch, "Tensor", ())):
        with _addresses.unseen(torch):
            found = [addr for addr in _addresses.of(torch, [thing]) if addr]
        if not found:
            _messages.warn_once(
                "describer() was given a tensor that has no memory (empty, or on 'meta'): there "
                "is nothing to label"
            )
            return
    else:
        raise NotImplementedError(
            f"Unsupported tensor type: {type(thing).__name__}; "
            "expected a torch.Tensor or an address as int"
        )
    if _sonde is not None:
        _sonde.label_addrs(USER_DEFINED_1, text, found)


class _Label:
    """What describer(owner=…) returns. Holds nothing, so that it can be open many times."""

    __slots__ = ("_text",)

    def __init__(self, text):
        self._text = text

    def __repr__(self):
        return f"describer(owner={self._text!r})"

    def __enter__(self):
        if _sonde is not None:
            _sonde.label_push(USER_DEFINED_1, self._text)
        return self

    def __exit__(self, *error):
        if _sonde is not None:
            _sonde.label_pop(self._text)

    def __call__(self, function):
        if not callable(function) or isinstance(function, type):
            raise TypeError(f"{self!r} decorates functions, not {function!r}")
        made = _generators.in_steps(function, self._of_a_call)
        if made is not None:
            return made

        @functools.wraps(function)
        def described(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return described

    def _of_a_call(self, args, kwargs):
        return _generators.Around(args, kwargs, step=self)
