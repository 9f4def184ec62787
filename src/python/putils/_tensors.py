# SPDX-License-Identifier: MulanPSL-2.0
"""Statistics and checksum of a tensor, from one copy of it in host memory.

A tensor on the CPU is read where it is; one on a device is copied to the host once, which is the
only time that anybody waits for the device, and takes none of its memory. Where no checksum is
wanted, its statistics are computed on the device and they alone are copied. On the host they are
computed by sonde._sonde, in one pass and one more for each further 16 bits of the quantiles, while
another thread computes the checksum. `t[0]`, `t[:10]`, `t[0, 0]` and `t[0, :10]` are the beginning
of the same bytes: they need neither a copy nor a checksum of their own.

Nothing here raises for what a tensor is (on a device that has failed, without data, of a kind that
has no order): in the place of a value there is a word.
"""

import hashlib
import os
import sys
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _messages, _native

QUANTILES = (0.999, 0.99, 0.9, 0.5, 0.1, 0.01, 0.001)
FIRST = 10  # values that are shown
NOT_WANTED = "not computed"  # in the place of a checksum, and of quantiles
NOTHING = "-"  # where another field says why
THREAD_BYTES = 4 << 20  # a checksum of less than this is not worth a thread
_WIDEN = 1 << 18  # numbers that are widened at once

_device_everywhere = False  # tests: also tensors on the CPU are read as those on a device are

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


LOCAL = "of the local part"


def find_numbers(tensor: Any) -> Tuple[Any, str]:
    """The numbers of a tensor as a strided one, where they are, and a note on what they are of;
    NoData if there are none."""
    note = ""
    if not is_tensor(tensor):
        raise NoData(f"not a tensor: {type(tensor).__name__}")
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor, note = tensor.to_local(), LOCAL
    if tensor.device.type == "meta":
        raise NoData("a meta tensor has no data")
    if tensor.is_cuda and sys.modules["torch"].cuda.is_current_stream_capturing():
        raise NoData("a CUDA graph is being captured, its tensors have no data yet")
    if getattr(tensor, "is_nested", False):
        tensor, note = tensor.values(), "of all parts of a nested tensor"
    elif str(tensor.layout) == "torch._mkldnn":
        tensor = tensor.to_dense()
    elif str(tensor.layout) != "torch.strided":
        layout = str(tensor.layout).rpartition(".")[2]
        note = f"of the values that are stored ({layout})"
        tensor = tensor.coalesce().values() if layout == "sparse_coo" else tensor.values()
    if tensor.is_quantized:
        note = "of the numbers that the quantised ones stand for"
    _check_storage(tensor)
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    return tensor.resolve_neg() if tensor.is_neg() else tensor, note


def _as_numbers(raw: Any) -> Any:
    """What statistics are computed of: of a type that is known."""
    torch = sys.modules["torch"]
    if raw.is_quantized:
        return raw.dequantize().contiguous()
    if _kind(raw):
        return raw
    return raw.to(torch.complex64 if raw.is_complex() else torch.float32)


class HostCopy:
    """The numbers of a tensor, one after the other in host memory."""

    def __init__(self, tensor: Any) -> None:
        with no_grad():
            raw, self.note = find_numbers(tensor)
            raw = raw.contiguous()
            self.raw = raw if raw.device.type == "cpu" else raw.cpu()  # what the checksum is of
            self.numbers = _as_numbers(self.raw)  # what the statistics are of
        self.kind = _kind(self.numbers)
        self.is_bool = str(self.numbers.dtype) == "torch.bool"
        self.count = self.numbers.numel()
        self.plain = self.raw.numel() == self.count and self.note != LOCAL

    @staticmethod
    def address(tensor: Any) -> int:
        """Of a tensor with numbers; NoData where there is no memory behind them."""
        _check_storage(tensor)
        return tensor.data_ptr()

    def statistics(self, count: int, wanted: Sequence[float]) -> tuple:
        """Of the first `count` numbers, which there are."""
        wanted = () if self.kind.startswith("complex") else tuple(wanted)
        native = _native.get()
        if native:
            address = HostCopy.address(self.numbers)
            return native.tensor_statistics(address, count, self.kind, wanted, _threads())
        from ._support.device_statistics import QueuedStatistics

        with no_grad():
            queued = QueuedStatistics(self.numbers.flatten(), [count], wanted, 0)
            return queued.statistics(count)

    def first(self, count: int) -> list:
        return self.numbers.flatten()[: min(FIRST, count)].tolist()


class DeviceNumbers:
    """The numbers of a tensor on its device, and what was queued there to be found out about them.
    NoData where that cannot be: they are on the CPU, or would have to be looked for first."""

    def __init__(self, tensor: Any, sizes: Sequence[int], wanted: Sequence[float]) -> None:
        from ._support.device_statistics import QueuedStatistics

        if tensor.device.type == "cpu" and not _device_everywhere:
            raise NoData("it is on the CPU")
        if str(tensor.layout) != "torch.strided" or tensor.is_quantized:
            raise NoData("its numbers are not all there is of it")
        with no_grad():
            raw, self.note = find_numbers(tensor)
            numbers = _as_numbers(raw)
            self.is_bool = str(numbers.dtype) == "torch.bool"
            self.count, self.plain = numbers.numel(), self.note != LOCAL
            counts = [self.count, *(sizes if self.plain else ())]
            self.queued = QueuedStatistics(numbers.reshape(-1), counts, wanted, FIRST)

    def statistics(self, count: int, wanted: Sequence[float]) -> tuple:
        return self.queued.statistics(count)

    def first(self, count: int) -> list:
        return self.queued.first(count) if count else []


def no_grad() -> Any:
    return sys.modules["torch"].no_grad()


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


def _values(source: Any, count: int, wanted: Sequence[float]) -> dict:
    """The fields of a Summary that are computed; words where they cannot be."""
    if not count:
        return {**_no_values("empty"), "l1": 0, "sum": 0, "nans": 0, "infs": 0}
    try:
        nans, infs, low, high, total, l1, quantiles = source.statistics(count, wanted)
    except Exception as why:
        return _no_values(_messages.words(why))
    if low is None:
        low = high = "complex numbers have no order"
        quantiles = [low] * len(QUANTILES)
    if not wanted:
        quantiles = [NOT_WANTED] * len(QUANTILES)
    if source.is_bool:
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


def _known(tensor: Any, name: str) -> dict:
    """What a tensor says of itself without its numbers."""
    if not is_tensor(tensor):
        word = f"not a tensor: {type(tensor).__name__}"
        return dict(name=name, dtype=word, shape=NOTHING, contiguous=NOTHING, size=0, bytes=0)
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

    Without md5, the statistics of a tensor on a device are queued there, and `copy` is None.
    """

    def __init__(
        self,
        tensor: Any,
        name: str,
        views: Sequence[Tuple[Any, str]] = (),
        md5: bool = True,
        quantiles: bool = True,
    ) -> None:
        self.wanted = QUANTILES if quantiles else ()
        self.copy: Optional[HostCopy] = None
        self.source: Any = None
        self.sums: Optional[Checksums] = None
        self.problem = ""
        self.known = [_known(tensor, name)]
        parts = [_known(view, label) for view, label in views]
        try:
            self.source = None if md5 else self._queue(tensor, [k["size"] for k in parts])
            if self.source is None:
                self.source = self.copy = HostCopy(tensor)
        except Exception as why:
            self.problem = _messages.words(why)
            return
        if self.source.plain:
            self.known += parts
        self.counts = [self.source.count] + [k["size"] for k in self.known[1:]]
        if md5:
            self.sums = Checksums(self.copy, self.counts).begin()

    def _queue(self, tensor: Any, sizes: List[int]) -> Optional[DeviceNumbers]:
        """None where the device cannot do it: it may have no doubles, or no memory left."""
        try:
            return DeviceNumbers(tensor, sizes, self.wanted)
        except Exception:
            return None

    def _md5(self, count: int) -> str:
        return self.sums.of(count) if self.sums else NOT_WANTED

    def summaries(self) -> List[Summary]:
        source = self.source
        if source is None:
            return [self._without_data()]
        computed = {c: _values(source, c, self.wanted) for c in set(self.counts)}
        firsts = {c: _guarded(lambda c=c: source.first(c)) for c in set(self.counts)}
        return [
            Summary(md5=self._md5(c), first=firsts[c], note=source.note, **computed[c], **k)
            for c, k in zip(self.counts, self.known)
        ]

    def _without_data(self) -> Summary:
        # Of what is no tensor dtype says so, once.
        word = NOTHING if self.known[0]["shape"] == NOTHING else self.problem
        return Summary(md5=word, first=word, note="", **_no_values(word), **self.known[0])


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
