# SPDX-License-Identifier: MulanPSL-2.0
"""A key of a function's inputs: equal inputs have one key, inputs that differ have different ones.

Every number of a tensor and of an array counts, and every attribute of an object. What cannot be
told apart by its content (a function, a generator, an open file) has no key: TypeError.
"""

import enum
import hashlib
import io
import pickle
import sys
import types
from typing import Any, Callable, Dict

from .. import _tensors

_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.CodeType,
    types.ModuleType,
)


def _name_kind(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


class _ContentPickler(pickle.Pickler):
    """Of any other object what pickle would keep of it. It refuses functions, which it would keep by
    their names alone, and gives tensors their own keys."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _FUNCTIONS):
            raise TypeError(f"a {type(obj).__name__} has no content to compare")
        if _tensors.is_tensor(obj):
            return str, (make_key(obj),)
        return NotImplemented


class _Sink(io.RawIOBase):
    def __init__(self, sha: Any) -> None:
        self.sha = sha

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha.update(data)
        return len(data)


class _Hash:
    def __init__(self) -> None:
        self.sha = hashlib.sha1()

    def _word(self, *words: object) -> None:
        text = "\0".join(str(w) for w in words).encode("utf-8", "surrogatepass")
        self.sha.update(f"{len(text)}:".encode() + text)

    def add(self, value: Any) -> None:
        numpy = sys.modules.get("numpy")
        known = _KNOWN.get(type(value))
        if known:
            known(self, value)
        elif _tensors.is_tensor(value):
            self._tensor(value)
        elif numpy is not None and type(value) is getattr(numpy, "ndarray", None):
            self._array(numpy, value)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            self._items(value)
        elif isinstance(value, enum.Enum):
            self._word(_name_kind(value), value.name)
        else:
            self._word(_name_kind(value))
            _ContentPickler(_Sink(self.sha), protocol=4).dump(value)

    def _plain(self, value: Any) -> None:
        self._word(_name_kind(value), repr(value) if not isinstance(value, str) else value)

    def _bytes(self, value: Any) -> None:
        self._word(_name_kind(value), len(value))
        self.sha.update(value)

    def _items(self, value: Any) -> None:
        self._word(_name_kind(value), len(value))
        for item in value:
            self.add(item)

    def _unordered(self, value: Any) -> None:
        self._word(_name_kind(value), *sorted(make_key(item) for item in value))

    def _table(self, value: Dict[Any, Any]) -> None:
        self._word("dict", len(value))
        keys = {make_key(key): key for key in value}
        for key in sorted(keys):
            self._word(key)
            self.add(value[keys[key]])

    def _array(self, numpy: Any, array: Any) -> None:
        self._word("array", array.dtype.descr, array.shape)
        if array.dtype.hasobject:
            self._items(array.tolist())
        else:
            self.sha.update(numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8))

    def _tensor(self, tensor: Any) -> None:
        self._word("tensor", tuple(tensor.shape), tensor.dtype, tensor.device)
        copy = _tensors.HostCopy(tensor)
        self._numbers(copy.raw)
        if not copy.note:
            return
        self._word(copy.note)
        if tensor.is_quantized:
            self._numbers(copy.numbers)  # what they stand for
        elif hasattr(tensor, "to_local"):
            self._word(tensor.placements, tensor.device_mesh)
        elif getattr(tensor, "is_nested", False):
            self._word(*(tuple(part.shape) for part in tensor.unbind()))
        else:
            self._places(tensor)

    def _places(self, tensor: Any) -> None:
        """Where the values of a sparse tensor are."""
        layout = str(tensor.layout)
        self._word(layout)
        if layout == "torch.sparse_coo":
            return self.add(tensor.detach().coalesce().indices())
        rows = ("crow_indices", "col_indices")
        columns = ("ccol_indices", "row_indices")
        for name in rows if layout in ("torch.sparse_csr", "torch.sparse_bsr") else columns:
            self.add(getattr(tensor.detach(), name)())

    def _numbers(self, numbers: Any) -> None:
        if numbers.numel():
            size = numbers.numel() * numbers.element_size()
            address = _tensors.HostCopy.address(numbers)
            self.sha.update(_tensors._memory(_tensors._native.get(), address, size))


_KNOWN: Dict[type, Callable[[_Hash, Any], None]] = {
    **{kind: _Hash._plain for kind in (type(None), bool, int, float, complex, str, range)},
    **{kind: _Hash._bytes for kind in (bytes, bytearray)},
    **{kind: _Hash._items for kind in (list, tuple)},
    **{kind: _Hash._unordered for kind in (set, frozenset)},
    dict: _Hash._table,
}


def make_key(value: Any) -> str:
    """40 hexadecimal digits. TypeError (and what pickle raises) where there can be no key.

    >>> make_key((prompts, 7))
    'a9993e364706816aba3e25717850c26c9cd0d89d'
    """
    found = _Hash()
    found.add(value)
    return found.sha.hexdigest()
