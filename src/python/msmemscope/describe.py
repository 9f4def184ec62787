# SPDX-License-Identifier: MulanPSL-2.0
"""Labels of your own for memory: who owns it.

    from msmemscope import describe

    with describe.describer(owner="loader"):        # what this thread allocates in here
        batch = next(batches)

    @describe.describer(owner="attention")          # … while the function runs
    def attention(q, k, v): ...

    describe.describer(cache, "kv_cache")           # the block that holds this tensor
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


def describer(obj: object = None, owner: str = "") -> "_Label | None":
    """Says who owns memory; see the module's own text.

    Without ``obj``: a context manager, and a decorator, for what is allocated. With a tensor (or
    anything else that has ``data_ptr()``) or an address: labels the block of memory that contains
    it. Without an owner nothing is labelled.

    >>> with describer(owner="loader"):
    ...     batch = next(batches)
    >>> describer(batch, "first batch")
    """
    text = _printable(owner)
    if obj is None:
        return _Label(text)
    found = _addresses_of(obj)
    if text and found and _sonde is not None:
        _sonde.label_addrs(USER_DEFINED_1, text, found)
    return None


def describe_label(label: str, level: int) -> None:
    """A label of one of the levels above, from here on in this thread; for hooks of frameworks."""
    text = _printable(label)
    if _sonde is not None:
        _sonde.label_push(_level(level), text)


def undescribe_label(label: str, level: int) -> None:
    """Takes it away again."""
    text = _printable(label)
    if _sonde is not None:
        _sonde.label_pop(text, 0, _level(level))


def describe_addr(addr: int, labels: list) -> None:
    """Labels of the block that contains an address: [(label, level), …], also [(level, label), …].

    >>> describe_addr(tensor.data_ptr(), [("kv_cache", PROCESS), ("attn", DETAIL_1)])
    """
    if not isinstance(labels, list):
        raise TypeError(f"labels must be a list of (label, level), not {type(labels).__name__}")
    checked = []
    for pair in labels:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"labels must be a list of (label, level): {pair!r} is none")
        label, level = pair if isinstance(pair[0], str) else reversed(pair)
        checked.append((_level(level), _printable(label)))
    found = [_address(addr)]
    if _sonde is not None:
        for level, text in checked:
            _sonde.label_addrs(level, text, found)


def _level(level):
    if isinstance(level, bool) or not isinstance(level, int):
        raise TypeError(f"a level must be an int, not {type(level).__name__}")
    if not FRAMEWORK <= level <= USER_DEFINED_3:
        raise ValueError(f"{level} is no level: expected {FRAMEWORK} to {USER_DEFINED_3}")
    return level


def _printable(owner):
    """Without what a text in C cannot hold."""
    if not isinstance(owner, str):
        raise TypeError(f'a name must be a str, as in describer(owner="loader"), not {owner!r}')
    return owner.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _address(number):
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 64:
        raise TypeError(f"{number!r} is no address: expected an int from 0 to 2**64 - 1")
    return number


def _addresses_of(thing):
    """One inside each block that it uses."""
    torch = sys.modules.get("torch")
    if isinstance(thing, int) and not isinstance(thing, bool):
        return [_address(thing)]
    if not isinstance(thing, getattr(torch, "Tensor", ())):
        return [_address(_pointer_of(thing))]
    with _addresses.unseen(torch):
        found = [addr for addr in _addresses.of(torch, [thing]) if addr]
    if not found:
        _messages.warn_once(
            "describer() was given a tensor that has no memory (empty, or on 'meta'): there "
            "is nothing to label"
        )
    return found


def _pointer_of(thing):
    """Of MindSpore's tensors, of wrappers: whatever says where it lies."""
    try:
        data_ptr = thing.data_ptr
    except AttributeError:
        raise NotImplementedError(
            f"Unsupported tensor type: {type(thing).__name__}; expected something with data_ptr(), "
            "or an address as int"
        ) from None
    return data_ptr()


class _Label:
    """What describer(owner=…) returns. Holds nothing, so that it can be open many times."""

    __slots__ = ("_text",)

    def __init__(self, text):
        self._text = text

    def __repr__(self):
        return f"describer(owner={self._text!r})"

    def __enter__(self):
        if _sonde is not None and self._text:
            _sonde.label_push(USER_DEFINED_1, self._text)
        return self

    def __exit__(self, *error):
        if _sonde is not None and self._text:
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
