# SPDX-License-Identifier: MulanPSL-2.0
"""Statistics and checksum of a tensor, from one copy of it in host memory.

A tensor on the CPU is read where it is; one on a device is copied to the host once, which is the
only time that anybody waits for the device, and takes none of its memory. The statistics are
computed by sonde._sonde, in one pass and one more for each further 16 bits of the quantiles, while
another thread computes the checksum. `t[0]`, `t[:10]`, `t[0, 0]` and `t[0, :10]` are the beginning
of the same bytes: they need neither a copy nor a checksum of their own.

Nothing here raises for what a tensor is (on a device that has failed, without data, of a kind that
has no order): in the place of a value there is a word.
"""

import hashlib
import math
import os
import sys
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _messages, _native

QUANTILES = (0.999, 0.99, 0.9, 0.5, 0.1, 0.01, 0.001)
FIRST = 10  # values that are shown
THREAD_BYTES = 4 << 20  # a checksum of less than this is not worth a thread
_WIDEN = 1 << 18  # numbers that are widened at once

Value = Union[bool, int, float, complex, str]


class Summary(NamedTuple):
    """What is known of a tensor. A value that there is not is a word (str) that says why."""

    name: str
    dtype: str
    shape: str
    contiguous: Value
    size: int
    bytes: int
    md5: str  # 32 hexadecimal digits, or a word
    l1: Value
    mean: Value
    sum: Value
    max: Value
    min: Value
    quantiles: Tuple[Value, ...]  # as QUANTILES
    nans: Value
    infs: Value
    first: Union[list, str]
    note: str  # what the numbers are of, if not of the tensor as it is


class NoData(Exception):
    """A tensor whose numbers cannot be read; its words are for the user."""


_KINDS = {
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64",
    "uint32", "uint16", "uint8", "complex128", "complex64",
}  # fmt: skip


def _kind(tensor: Any) -> Optional[str]:
    name = str(tensor.dtype).rpartition(".")[2]
    return "uint8" if name == "bool" else name if name in _KINDS else None


def _storage_bytes(tensor: Any) -> int:
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage().nbytes()
    return tensor.storage().nbytes()


def _check_storage(tensor: Any) -> None:
    """NoData where the memory behind a tensor is gone, as FSDP does it with parameters that are not
    in use: reading them would end the process, or the device."""
    if not tensor.numel():
        return
    reach = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    needed = (tensor.storage_offset() + reach + 1) * tensor.element_size()
    if not tensor.data_ptr() or _storage_bytes(tensor) < needed:
        raise NoData("its memory was given back")


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


class HostCopy:
    """The numbers of a tensor, one after the other in host memory."""

    def __init__(self, tensor: Any) -> None:
        if not is_tensor(tensor):
            raise NoData(f"not a tensor: {type(tensor).__name__}")
        torch = sys.modules["torch"]
        self.note = ""
        with torch.no_grad():
            self.raw = self._to_host(tensor.detach())  # what the checksum is of
            self.numbers = self._as_numbers(torch, self.raw)  # what the statistics are of
        self.kind = _kind(self.numbers)
        self.is_bool = str(self.numbers.dtype) == "torch.bool"
        self.count = self.numbers.numel()
        self.plain = self.raw is self.numbers or self.raw.numel() == self.count

    def _to_host(self, tensor: Any) -> Any:
        if hasattr(tensor, "to_local"):
            tensor = tensor.to_local()
            self.note = "of the local part"
        if tensor.device.type == "meta":
            raise NoData("a meta tensor has no data")
        if tensor.is_cuda and sys.modules["torch"].cuda.is_current_stream_capturing():
            raise NoData("a CUDA graph is being captured, its tensors have no data yet")
        if getattr(tensor, "is_nested", False):
            tensor = tensor.values()
            self.note = "of all parts of a nested tensor"
        elif str(tensor.layout) != "torch.strided":
            tensor = self._stored_values(tensor)
        if tensor.is_quantized:
            self.note = "of the numbers that the quantised ones stand for"
        _check_storage(tensor)
        if tensor.is_conj():
            tensor = tensor.resolve_conj()
        if tensor.is_neg():
            tensor = tensor.resolve_neg()
        tensor = tensor.contiguous()
        return tensor if tensor.device.type == "cpu" else tensor.cpu()

    def _stored_values(self, tensor: Any) -> Any:
        layout = str(tensor.layout).rpartition(".")[2]
        if layout == "_mkldnn":
            return tensor.to_dense()
        self.note = f"of the values that are stored ({layout})"
        return tensor.coalesce().values() if layout == "sparse_coo" else tensor.values()

    @staticmethod
    def _as_numbers(torch: Any, raw: Any) -> Any:
        if raw.is_quantized:
            return raw.dequantize().contiguous()
        if _kind(raw):
            return raw
        return raw.to(torch.complex64 if raw.is_complex() else torch.float32)

    @staticmethod
    def address(tensor: Any) -> int:
        """Of a tensor with numbers; NoData where there is no memory behind them."""
        _check_storage(tensor)
        return tensor.data_ptr()


def _new_md5() -> Any:
    try:
        return hashlib.md5(usedforsecurity=False)
    except TypeError:  # CPython 3.8
        return hashlib.md5()


def _memory(native: Any, address: int, size: int) -> Any:
    if native:
        return native.tensor_memory(address, size)
    import ctypes

    return memoryview((ctypes.c_char * size).from_address(address))


class Checksums(threading.Thread):
    """MD5 of the beginnings of a copy, each of so many numbers; bfloat16 counts as float32."""

    def __init__(self, copy: HostCopy, counts: Sequence[int]) -> None:
        super().__init__(name="putils md5", daemon=True)
        self.copy, self.counts = copy, sorted(set(counts))
        self.found: Dict[int, str] = {}
        self.error = ""
        self.started = False

    def begin(self) -> "Checksums":
        if self.copy.raw.numel() * self.copy.raw.element_size() >= THREAD_BYTES:
            try:
                self.start()
                self.started = True
                return self
            except RuntimeError:  # no more threads, or the interpreter is ending
                pass
        self.run()
        return self

    def run(self) -> None:
        try:
            self._digest()
        except Exception as why:
            self.error = _messages.words(why)

    def _digest(self) -> None:
        native, raw, md5, done = _native.get(), self.copy.raw, _new_md5(), 0
        widen = str(raw.dtype) == "torch.bfloat16"
        size = raw.element_size()
        address = HostCopy.address(raw) if raw.numel() else 0
        for count in self.counts:
            while done < count:
                now = min(count - done, _WIDEN if widen else count)
                at = address + done * size
                if not widen:
                    md5.update(_memory(native, at, now * size))
                elif native:
                    md5.update(native.tensor_widen(at, now))
                else:
                    wide = raw.flatten()[done : done + now].float()
                    md5.update(_memory(native, wide.data_ptr(), now * 4))
                done += now
            self.found[count] = md5.copy().hexdigest()

    def of(self, count: int) -> str:
        if self.started:
            self.join()
            self.started = False
        return self.found.get(count) or self.error or "no checksum"


def _threads() -> int:
    """Processors of this process, less the one that the checksum takes."""
    try:
        cpus = len(os.sched_getaffinity(0))
        ranks = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except (AttributeError, OSError, ValueError):
        return 1
    return max(1, min(8, cpus // ranks - 1))


def _with_torch(numbers: Any, wanted: Tuple[float, ...]) -> tuple:
    """The same with torch's own operations, where the extension cannot be loaded."""
    torch = sys.modules["torch"]
    if numbers.dtype == torch.bool:
        numbers = numbers.to(torch.uint8)
    if numbers.is_complex():
        wide = numbers.to(torch.complex128)
        nans = int(torch.isnan(wide).sum())
        infs = int((torch.isinf(wide) & ~torch.isnan(wide)).sum())
        return nans, infs, None, None, complex(wide.sum()), float(wide.abs().sum()), []
    floating = numbers.is_floating_point()
    kind = torch.float64 if floating else torch.int64
    nans = int(torch.isnan(numbers).sum()) if floating else 0
    infs = int(torch.isinf(numbers).sum()) if floating else 0
    ordered = numbers.flatten().float() if numbers.element_size() < 4 else numbers.flatten()
    ordered = torch.sort(ordered)[0]
    found = []
    for q in wanted:
        at = q * (ordered.numel() - 1)
        below, above = (float(ordered[i]) for i in (math.floor(at), math.ceil(at)))
        value = below if below == above else below + (at - math.floor(at)) * (above - below)
        found.append(math.nan if nans else value)
    low, high = (math.nan,) * 2 if nans else (ordered[0].item(), ordered[-1].item())
    if not floating:
        low, high = int(low), int(high)
    total = numbers.sum(dtype=kind).item()
    return nans, infs, low, high, total, numbers.abs().sum(dtype=kind).item(), found


def _statistics(copy: HostCopy, count: int) -> tuple:
    wanted = () if copy.kind.startswith("complex") else QUANTILES
    native = _native.get()
    address = HostCopy.address(copy.numbers)
    if native:
        return native.tensor_statistics(address, count, copy.kind, wanted, _threads())
    return _with_torch(copy.numbers.flatten()[:count], wanted)


def _values(copy: HostCopy, count: int) -> dict:
    """The fields of a Summary that are computed; words where they cannot be."""
    if not count:
        return {**_no_values("empty"), "l1": 0, "sum": 0, "nans": 0, "infs": 0}
    try:
        nans, infs, low, high, total, l1, quantiles = _statistics(copy, count)
    except Exception as why:
        return _no_values(_messages.words(why))
    if low is None:
        low = high = "complex numbers have no order"
        quantiles = [low] * len(QUANTILES)
    if copy.is_bool:
        low, high = bool(low), bool(high)
    return {
        "l1": l1,
        "mean": total / count,
        "sum": total,
        "max": high,
        "min": low,
        "quantiles": tuple(quantiles),
        "nans": nans,
        "infs": infs,
    }


def _no_values(word: str) -> dict:
    names = ("l1", "mean", "sum", "max", "min", "nans", "infs")
    return {**{name: word for name in names}, "quantiles": (word,) * len(QUANTILES)}


def _guarded(function: Any) -> Any:
    try:
        return function()
    except Exception as why:
        return _messages.words(why)


def _first(copy: HostCopy, count: int) -> Union[list, str]:
    return _guarded(lambda: copy.numbers.flatten()[: min(FIRST, count)].tolist())


def _known(tensor: Any, name: str) -> dict:
    """What a tensor says of itself without its numbers."""
    if not is_tensor(tensor):
        word = f"not a tensor: {type(tensor).__name__}"
        return dict(name=name, dtype=word, shape=word, contiguous=word, size=0, bytes=0)
    size = _guarded(tensor.numel)
    size = size if isinstance(size, int) else 0
    each = _guarded(tensor.element_size)
    return {
        "name": name,
        "dtype": str(_guarded(lambda: tensor.dtype)),
        "shape": str(_guarded(lambda: tensor.shape)),
        "contiguous": _guarded(tensor.is_contiguous),
        "size": size,
        "bytes": size * (each if isinstance(each, int) else 0),
    }


class Reading:
    """A tensor that is being read: its copy, and its checksums on their way.

    >>> reading = Reading(tensor, "loss", slices(tensor, "loss"))
    >>> torch.save(reading.copy.raw, "loss.pt")     # meanwhile
    >>> for summary in reading.summaries(): ...
    """

    def __init__(self, tensor: Any, name: str, views: Sequence[Tuple[Any, str]] = ()) -> None:
        self.copy: Optional[HostCopy] = None
        self.problem = ""
        self.known = [_known(tensor, name)]
        try:
            self.copy = HostCopy(tensor)
        except Exception as why:
            self.problem = _messages.words(why)
            return
        if self.copy.plain:
            self.known += [_known(view, label) for view, label in views]
        self.counts = [self.copy.count] + [k["size"] for k in self.known[1:]]
        self.sums = Checksums(self.copy, self.counts).begin()

    def summaries(self) -> List[Summary]:
        if self.copy is None:
            return [self._without_data()]
        computed = {c: _values(self.copy, c) for c in set(self.counts)}
        firsts = {c: _first(self.copy, c) for c in set(self.counts)}
        return [
            Summary(md5=self.sums.of(c), first=firsts[c], note=self.copy.note, **computed[c], **k)
            for c, k in zip(self.counts, self.known)
        ]

    def _without_data(self) -> Summary:
        values = _no_values(self.problem)
        return Summary(md5=self.problem, first=self.problem, note="", **values, **self.known[0])


def slices(tensor: Any, name: str) -> List[Tuple[Any, str]]:
    """The beginnings of a tensor that are shown too: (part of it, its name)."""
    try:
        if tensor.dim() < 2 or not tensor.numel() or str(tensor.layout) != "torch.strided":
            return []
        rows, columns = int(tensor.shape[0]), int(tensor.shape[1])
    except Exception:  # nested, or of a kind that has no such thing
        return []
    before, space, last = name.rpartition(" ")
    wanted = [
        (rows > 1, lambda: tensor[0], "[B=0]"),
        (rows > 10, lambda: tensor[:10], "[B=:10]"),
        (columns > 1, lambda: tensor[0, 0], "[B=0,S=0]"),
        (columns > 10, lambda: tensor[0, :10], "[B=0,S=:10]"),
    ]
    found = []
    for applies, view, mark in wanted:
        part = _guarded(view) if applies else None
        if is_tensor(part):
            found.append((part, f"{before}{space}{mark} {last}".rstrip()))
    return found
