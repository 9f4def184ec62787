# SPDX-License-Identifier: MulanPSL-2.0
"""Tensors in words: statistics, a checksum and the first values, in two lines.

    from putils.pprint import tprint

    tprint(loss, "loss")

    'loss'| l1_norm 2.25 | b482da | torch.float32 | torch.Size([1]) | continue: True | mean 2.25 | ...
    [2.25]

The tensor is copied to the host once, if it is on a device, and read there by code in C. With
PUTILS_MD5=0 there is no checksum, and it is read on the device; PUTILS_QUANTILES=0 leaves out the
quantiles. What cannot be known of a tensor is said in the place of the value: nothing here raises into the program.
Output goes to stdout, or with the environment's log_tag to the log of the thread (write2file).
"""

import functools
import inspect
import sys
import threading
from typing import Any, Callable, List, Optional, TypeVar

from . import _files, _job, _lines, _messages, _tensors
from ._job import ifdebug
from ._tensors import Summary
from .write2file import log2file

__all__ = [
    "Summary",
    "aprint",
    "dis_print",
    "ifdebug",
    "log_and_print",
    "log_or_print",
    "monitor_io",
    "print_once_by_tag",
    "tensor_md5",
    "tensor_stats",
    "tprint",
    "wprint",
]

_F = TypeVar("_F", bound=Callable)

# Who else sees each summary that is printed (accuracy's comparison of two live processes).
_listeners: List[Callable[[Summary], None]] = []


def _print(text: object) -> None:
    try:
        print(text, flush=True)
    except (OSError, ValueError):  # stdout is closed, or its reader is gone
        pass


def log_or_print(x: object) -> None:
    """Into the log of this thread if log_tag is set, else to stdout.

    >>> log_or_print("epoch 1")
    """
    if _job.log_tag():
        log2file(x)
    else:
        _print(x)


def log_and_print(x: object) -> None:
    """To stdout, and into the log of this thread.

    >>> log_and_print("epoch 1")
    """
    log2file(x)
    _print(x)


def tensor_md5(t: Any, length: int = 6) -> str:
    """The first `length` hexadecimal digits of the MD5 of a tensor's bytes; bfloat16 as float32.

    >>> tensor_md5(torch.zeros(2))
    '7dea36'
    """
    try:
        copy = _tensors.HostCopy(t)
        found = _tensors.Checksums(copy, [copy.count]).begin().of(copy.count)
    except Exception as why:
        return _messages.words(why)
    return found if " " in found else found[:length]


def tensor_stats(t: Any, name: str = "", md5: bool = True, quantiles: bool = True) -> Summary:
    """What tprint() prints, as values: also the numbers of NaN and of infinities. A value that there
    is not is a word (str) that says why. Of what is not a tensor dtype says so; the others are "-".

    md5         False: no checksum. Then a tensor on a device is not copied: its statistics are
                computed there, without a wait, and copied at once
    quantiles   False: none. Computed on a device they need a sorted copy of the tensor there

    >>> tensor_stats(torch.ones(3)).sum
    3.0
    """
    return _tensors.Reading(t, name, md5=md5, quantiles=quantiles).summaries()[0]


def _tell(summary: Summary) -> None:
    for listener in list(_listeners):
        try:
            listener(summary)
        except Exception as why:
            _messages.warn_once(f"a listener of putils failed: {_messages.words(why)}")


def _print_reading(reading: _tensors.Reading, out: Callable[[str], None]) -> str:
    """The lines of a tensor and of its parts; returns those of the tensor."""
    texts = []
    for summary in reading.summaries():
        texts.append(_lines.write(summary))
        out(texts[-1])
        _tell(summary)
    return texts[0]


def _print_tensor(t: Any, name: str, do_slice: bool, out: Callable[[str], None]) -> str:
    views = _tensors.slices(t, name) if do_slice else []
    wanted = _job.wants_md5(), _job.wants_quantiles()
    return _print_reading(_tensors.Reading(t, name, views, *wanted), out)


def _describe(obj: Any, name: str) -> str:
    torch = _job.loaded_torch()
    label = f"'{name}'| " if name else ""
    if torch is not None and isinstance(obj, torch.nn.Module):
        count = sum(p.numel() for p in obj.parameters())
        return f"{label}{type(obj).__name__}: {count} parameters"
    return f"{label}{obj!r}"


def tprint(obj: Any, name: str = "", _do_slice: bool = True) -> str:
    """Print a tensor in two lines, and return them; of a module the number of its parameters.

    Of a tensor with two dimensions and more its beginnings are printed too: [0], [:10], [0, 0] and
    [0, :10], where there are as many. Anything else is printed by its repr().

    >>> tprint(hidden, "layer 3 hidden")
    "'layer 3 hidden'| l1_norm 24.5 | 9f0c1b | torch.bfloat16 | torch.Size([4, 8]) | ..."
    """
    name = str(name)
    if _tensors.is_tensor(obj):
        return _print_tensor(obj, name, _do_slice, log_or_print)
    try:
        text = _describe(obj, name)
    except Exception as why:  # somebody's own __repr__
        text = f"'{name}'| {type(obj).__name__}: {_messages.words(why)}"
    log_or_print(text)
    return text


def aprint(name: str, tensors: Any, file_path: str = "") -> None:
    """Print a tensor, or each one of a tuple or list; of anything else its type.

    file_path   append to this file instead

    >>> aprint("attention input", (query, key))
    """
    out = _file_writer(file_path) if file_path else log_or_print
    _print_items(str(name), tensors, out)


def _print_items(name: str, value: Any, out: Callable[[str], None]) -> None:
    if _tensors.is_tensor(value):
        _print_tensor(value, name, True, out)
    elif isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            _print_items(f"{name}[{i}]", item, out)
    else:
        out(f"'{name}'| {type(value).__name__}")


def _file_writer(path: str) -> Callable[[str], None]:
    def write(text: str) -> None:
        try:
            with _files.open_ours(path) as f:
                f.write(text + "\n")
        except OSError as why:
            _messages.warn_once(f"'{path}' cannot be written: {_messages.words(why)}")

    return write


def wprint(model: Any, name: str = "wprint") -> None:
    """Print every parameter of a model, labelled with name, rank and the parameter's name.

    >>> wprint(model, "after step 1")
    """
    try:
        parameters = list(model.named_parameters())
    except Exception as why:
        _messages.warn(f"wprint: no parameters in {type(model).__name__}: {_messages.words(why)}")
        return
    for parameter, tensor in parameters:
        tprint(tensor, f"{name} rank {_job.rank()} {parameter}")


def _data_parallel_rank() -> int:
    for module in ("megatron.core.parallel_state", "megatron.core.mpu", "megatron.mpu"):
        state = sys.modules.get(module)
        try:
            if state is not None:
                return state.get_data_parallel_rank()
        except Exception:  # Megatron is imported and not initialised
            continue
    return -1


def dis_print(x: Any, s: str = "", toTprint: bool = True) -> None:
    """Print with the rank, and Megatron's data-parallel rank, in front.

    >>> dis_print(loss, "loss after step 1")
    """
    label = f"rank {_job.rank()} dp_rank {_data_parallel_rank()}" + (f" {s}" if s else "")
    if toTprint:
        tprint(x, label)
    else:
        log_or_print(f"{label} {x}")


_printed = set()
_printed_lock = threading.Lock()


def print_once_by_tag(tag: Any, msg: object) -> None:
    """Print `msg`, once in this process for each tag.

    >>> print_once_by_tag("shapes", f"hidden: {hidden.shape}")
    """
    key = tag if isinstance(tag, (str, int)) else repr(tag)
    with _printed_lock:
        if key in _printed:
            return
        _printed.add(key)
    log_or_print(msg)


class _Dump:
    """Arguments and results, item by item."""

    def __init__(self, max_items: int, max_depth: int) -> None:
        self.max_items, self.max_depth = max_items, max_depth

    def show(self, label: str, value: Any, depth: int = 0) -> None:
        if _tensors.is_tensor(value):
            tprint(value, label)
        elif isinstance(value, dict) and depth < self.max_depth:
            self._items(label, [(f"{label}.{k}", v) for k, v in value.items()], depth)
        elif isinstance(value, (list, tuple)) and depth < self.max_depth:
            self._items(label, [(f"{label}[{i}]", v) for i, v in enumerate(value)], depth)
        else:
            tprint(value, label)

    def _items(self, label: str, items: list, depth: int) -> None:
        for name, value in items[: self.max_items]:
            self.show(name, value, depth + 1)
        if len(items) > self.max_items:
            log_or_print(f"'{label}'| {len(items) - self.max_items} more are not shown")

    def guarded(self, label: str, value: Any) -> None:
        try:
            self.show(label, value)
        except Exception as why:
            _messages.warn_once(f"monitor_io: {label} cannot be shown: {_messages.words(why)}")


def monitor_io(tag: str = "", max_items: int = 8, max_depth: int = 3) -> Any:
    """A decorator that prints the arguments and the result of each call, where TSJPRINT=1.

    Labels are fn#k.in.args[i], fn#k.in.kwargs.name, fn#k.out, and fn#k.out.exception for what was
    raised; fn is `tag` if there is one, k counts the calls.

    >>> @monitor_io()
    ... def attention(query, key, scale=1.0): ...
    """
    if callable(tag):  # @monitor_io without brackets
        return monitor_io()(tag)
    dump = _Dump(max_items, max_depth)

    def wrap(function: _F) -> _F:
        name = tag or getattr(function, "__name__", type(function).__name__)
        count = [0]

        def before(args: tuple, kwargs: dict) -> Optional[str]:
            if not ifdebug():
                return None
            count[0] += 1
            label = f"{name}#{count[0]}"
            for i, value in enumerate(args):
                dump.guarded(f"{label}.in.args[{i}]", value)
            for key, value in kwargs.items():
                dump.guarded(f"{label}.in.kwargs.{key}", value)
            return label

        def after(label: Optional[str], result: Any, key: str = "out") -> None:
            if label:
                dump.guarded(f"{label}.{key}", result)

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            label = before(args, kwargs)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                after(label, error, "out.exception")
                raise
            after(label, result)
            return result

        @functools.wraps(function)
        async def inside_async(*args: Any, **kwargs: Any) -> Any:
            label = before(args, kwargs)
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                after(label, error, "out.exception")
                raise
            after(label, result)
            return result

        return inside_async if inspect.iscoroutinefunction(function) else inside  # type: ignore

    return wrap
