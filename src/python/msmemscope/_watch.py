# SPDX-License-Identifier: MulanPSL-2.0
"""watcher: memory that is sampled whenever an operator begins or ends."""

import collections
import sys
import weakref
from typing import Any, Dict, Optional

from . import _collectors, _control, _messages

MAX_NAME = 64
MAX_LENGTH = (1 << 63) - 1

_Memory = collections.namedtuple("_Memory", "device addr length")


class _Required:
    """Stands in the signature, so that the watched object can be checked before its name."""

    def __repr__(self):
        return "<required>"


_REQUIRED: Any = _Required()


def _whole(what, value, least):
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an int, not {type(value).__name__}")
    if not least <= value <= MAX_LENGTH:
        raise TypeError(f"{what} must be {least} or more, not {value}")
    return value


def _check_name(name):
    if not isinstance(name, str):
        raise TypeError("watch() needs name=, a str: what the block is called in the results")
    if not name.strip() or "\0" in name:
        raise ValueError("name must not be empty")
    if len(name) > MAX_NAME:
        raise ValueError(f"name must not be longer than {MAX_NAME} characters, not {len(name)}")
    return name


def _check_looks(dump_nums):
    if isinstance(dump_nums, bool) or not isinstance(dump_nums, int):
        raise TypeError(f"dump_nums must be an int, not {type(dump_nums).__name__}")
    if dump_nums != -1 and not 0 < dump_nums < 1 << 31:
        raise ValueError(f"dump_nums must be -1 (no limit) or 1 and more, not {dump_nums}")
    return dump_nums


def _is_tensor(block):
    return callable(getattr(block, "data_ptr", None)) and hasattr(block, "device")


def _local(tensor):
    """The part of a distributed tensor that lies here."""
    local = getattr(tensor, "_local_tensor", None)
    return local if local is not None and _is_tensor(local) else tensor


def _place(tensor):
    """(address, bytes) of a tensor; of one with gaps from its first byte to its last."""
    try:
        addr = tensor.data_ptr()
        if any(n == 0 for n in tensor.shape):
            addr = 0
        last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
        length = (last + 1) * tensor.element_size()
    except (RuntimeError, TypeError, NotImplementedError) as why:
        raise ValueError(f"this tensor has no memory of its own: {why}") from None
    if not addr or tensor.device.type == "meta":
        raise ValueError("this tensor has no memory of its own")
    return addr, length


def _device(tensor, sonde):
    kind = tensor.device.type
    if kind == "cpu":
        return sonde.DEV_HOST
    if kind in ("npu", "privateuseone"):
        index = tensor.device.index
        return sonde.device() if index is None else index
    raise NotImplementedError(
        f"memory of '{kind}' cannot be watched yet: only that of npu and cpu tensors"
    )


def _owner(tensor):
    """The object that lives as long as the memory: the storage, where torch keeps its object."""
    try:
        alive = weakref.ref(tensor.untyped_storage())
        if alive() is not None:
            return alive()
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):
        pass  # torch before 2.1
    return tensor


class Watcher:
    """Finds the operator that writes where it should not.

    A watched block is read and summed up whenever an operator begins or ends, while msmemscope
    records (start() to stop()). `sonde mem watch <output path>` reports who changed it.

    >>> msmemscope.start()
    >>> msmemscope.watcher.watch(model.fc.weight, name="fc.weight")
    >>> train_step()
    >>> msmemscope.watcher.remove(model.fc.weight)
    """

    def __init__(self) -> None:
        self._ends: Dict[int, Any] = {}  # address: what ends the watch with its memory

    def watch(
        self,
        *tensor_or_address: Any,
        name: str = _REQUIRED,
        length: Optional[int] = None,
        dump_nums: int = -1,
    ) -> None:
        """Watch a tensor, or `length` bytes at an address.

        name       what it is called in the results, at most 64 characters
        dump_nums  how many samples are taken; -1: no limit. Each operator takes two.

        Tensors of npu and cpu, of any class; the watch ends with the tensor's memory (before torch
        2.1: with the tensor that was named). An address is one of the thread's NPU, or of the host
        where there is none: remove() it yourself before you free it.

        >>> msmemscope.watcher.watch(tensor, name="kv cache")
        >>> msmemscope.watcher.watch(tensor.data_ptr(), length=4096, name="first page")
        """
        if len(tensor_or_address) != 1:
            raise TypeError("watch() takes exactly one tensor or address, then name=")
        block = tensor_or_address[0]
        sonde = _control.native()
        owner = None
        if _is_tensor(block):
            if length is not None:
                raise TypeError("length= is for an address; a tensor is watched as a whole")
            block = _local(block)
            memory = _Memory(_device(block, sonde), *_place(block))
            owner = _owner(block)
        else:
            addr = self._address(block)
            if length is None:
                raise TypeError("an address needs length=, the number of bytes")
            length = _whole("length", length, 1)
            memory = _Memory(self._device_of_address(sonde), addr, length)
        _check_name(name)
        _check_looks(dump_nums)
        self._begin(memory, name, dump_nums)
        if owner is not None:
            end = weakref.finalize(owner, self._gone, memory.addr)
            end.atexit = False
            self._ends[memory.addr] = end

    def remove(self, *tensor_or_address: Any, length: Optional[int] = None) -> None:
        """Watch a tensor or an address no longer. What is not watched is no mistake.

        >>> msmemscope.watcher.remove(tensor)
        >>> msmemscope.watcher.remove(address, length=4096)
        """
        if len(tensor_or_address) != 1:
            raise TypeError("remove() takes exactly one tensor or address")
        if length is not None:
            _whole("length", length, 1)
        block = tensor_or_address[0]
        sonde = _control.native()
        addr = _place(_local(block))[0] if _is_tensor(block) else self._address(block)
        with _control._lock:
            self._forget(addr)
            sonde.unwatch(addr)
            if not sonde.settings()["watch"] and sonde.tracing():
                _collectors.refresh(sonde.settings())

    @staticmethod
    def _address(block):
        if isinstance(block, bool) or not isinstance(block, int):
            raise TypeError(f"expected a tensor or an address (int), not {type(block).__name__}")
        return _whole("the address", block, 1)

    @staticmethod
    def _device_of_address(sonde):
        device = sonde.device()
        if device == sonde.DEV_NONE and "torch_npu" not in sys.modules:
            return sonde.DEV_HOST
        return device

    def _forget(self, addr):
        end = self._ends.pop(addr, None)
        if end is not None:
            end.detach()

    def _begin(self, memory, name, looks):
        sonde = _control.native()
        with _control._lock:
            before = sonde.settings()["watch"]
            self._forget(memory.addr)
            if not sonde.begin():
                _messages.error(f"'{name}' is not watched: the recorder could not be started")
            elif not sonde.watch(*memory, name, looks):
                _messages.error(f"'{name}' is not watched: 256 blocks are watched already")
            elif not before and sonde.tracing():
                _collectors.refresh(sonde.settings())  # operators are reported from here on

    def _gone(self, addr):
        """The memory has been given back. Wherever that happens: nothing more than this."""
        self._ends.pop(addr, None)
        _control.native().unwatch(addr)


watcher = Watcher()
