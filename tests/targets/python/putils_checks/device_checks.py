# SPDX-License-Identifier: MulanPSL-2.0
"""putils: statistics that are computed on a device. On the CPU a switch makes it such a device."""

import contextlib
import math

from putils import _differences, _lines, _tensors, pprint
from putils._support import device_statistics

# Operators that wait for a device, beside copies to the host.
WAITS = ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "equal", "masked_select", "unique")


@contextlib.contextmanager
def everywhere():
    _tensors._device_everywhere = True
    try:
        yield
    finally:
        _tensors._device_everywhere = False


class Counter:
    """Which operators run, seen below everything that torch does by itself."""

    def __init__(self):
        from torch.utils._python_dispatch import TorchDispatchMode

        self.names, self.copies_back = [], 0
        counter = self

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                kwargs = kwargs or {}
                counter.names.append(func.__name__.split(".")[0])
                if "cpu" in str(kwargs.get("device")):
                    counter.copies_back += 1
                return func(*args, **kwargs)

        self.mode = Mode

    def waits(self):
        return [name for name in self.names if name in WAITS or name.startswith("copy")]


def every_tensor(here):
    torch, device = here.torch, here.device
    random = torch.Generator().manual_seed(5)

    def normal(*shape):
        return torch.randn(shape, generator=random) * 50

    inf, nan, most = math.inf, math.nan, 2**63 - 1
    for shape in ((), (1,), (2,), (7, 3), (33, 12, 5), (0,), (3, 0)):
        for name in ("float64", "float32", "float16", "bfloat16"):
            yield normal(*shape).to(getattr(torch, name))
        for name in ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32"):
            if hasattr(torch, name):
                whole = normal(*shape).abs() if name.startswith("u") else normal(*shape)
                yield whole.to(torch.int64).to(getattr(torch, name))
        yield normal(*shape) > 0
        for name in ("complex64", "complex128"):
            yield torch.complex(normal(*shape), normal(*shape)).to(getattr(torch, name))
    yield normal(20, 30).t()
    yield normal(20, 30)[::2, ::3]
    yield torch.ones(1).expand(5)
    yield torch.tensor([1 + 2j, 3 - 4j]).conj()
    yield torch.tensor([most, most, -most - 1, 0, -1])
    yield torch.tensor([1.0, nan, inf, -inf, nan])
    yield torch.tensor([1.0, inf, 2.0])
    yield torch.tensor([inf, -inf])
    yield torch.tensor([nan]).half()
    yield torch.tensor([6e4, 6e4]).half()
    yield torch.tensor([complex(nan, 1), complex(inf, 1), 1 + 2j])
    for name in ("float8_e4m3fn", "float8_e5m2"):
        if hasattr(torch, name):
            yield normal(50).to(getattr(torch, name))
    yield torch.nn.Parameter(normal(4))
    for t in (torch.ones(3, device="meta"), torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.quint8)):
        yield t


def same(a, b):
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, complex):
        return isinstance(b, complex) and same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, float) and isinstance(b, float) and math.isfinite(a):
        return abs(a - b) <= 1e-12 * max(abs(a), abs(b), 1.0)
    return repr(a) == repr(b) and type(a) is type(b)


def check_statistics_on_a_device_are_those_of_the_host(here):
    kept, device_statistics.PIECE = device_statistics.PIECE, 300  # several pieces
    try:
        for t in every_tensor(here):
            there = t if t.device.type == "meta" or t.is_quantized else t.detach().to(here.device)
            for quantiles in (True, False):
                host = pprint.tensor_stats(t, "x", quantiles=quantiles)
                with everywhere():
                    found = pprint.tensor_stats(there, "x", md5=False, quantiles=quantiles)
                    by_copy = _tensors.Reading(there, "x", md5=False).copy is not None
                assert by_copy is there.is_quantized, (t.dtype, t.shape)
                assert found.md5 in (host.md5, "not computed") and "not computed" != host.md5
                for field in host._fields:
                    if field not in ("md5", "contiguous"):
                        a, b = getattr(host, field), getattr(found, field)
                        assert same(a, b), (field, a, b, t.dtype, t.shape, quantiles)
                # what is sorted is exact
                assert repr(host.quantiles) == repr(found.quantiles), (host, found)
                if not quantiles and t.numel() and not t.is_complex() and t.device.type != "meta":
                    assert set(found.quantiles) == {"not computed"}, found
    finally:
        device_statistics.PIECE = kept


def check_one_copy_back_and_no_wait(here):
    """As torch's dispatcher sees it; of all beginnings of a tensor together."""
    torch = here.torch
    for kind in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        t = torch.ones(12, 11, 3).to(kind).to(here.device)
        counter = Counter()
        with everywhere(), counter.mode():
            s = pprint.tensor_stats(t, "x", md5=False)
        assert s.size == 12 * 11 * 3 and s.sum == s.size, s
        assert counter.copies_back == 1 and not counter.waits(), (kind, counter.names)
        assert counter.names[-1] == "_to_copy", counter.names  # nothing is computed after it
        assert ("sort" in counter.names) is (kind is not torch.complex64)
        counter = Counter()
        with everywhere(), counter.mode():
            pprint.tensor_stats(t, "x", md5=False, quantiles=False)
        assert counter.copies_back == 1 and not counter.waits() and "sort" not in counter.names
    counter = Counter()
    with everywhere(), here.env(PUTILS_MD5=0), counter.mode():
        pprint.tprint(t.real, "x")
    assert len([line for line in here.lines() if line.startswith("'")]) == 5
    assert counter.copies_back == 1 and not counter.waits(), counter.names


def check_lines_without_checksum_and_quantiles(here):
    t = here.torch.arange(1.0, 7.0, device=here.device).reshape(2, 3)
    with here.env(PUTILS_MD5=0, PUTILS_QUANTILES=0):
        first = pprint.tprint(t, "x").split("\n")[0]
        other = pprint.tprint(t + 1e-3, "x").split("\n")[0]
    entries = [_lines.read_line(line) for line in (first, other)]
    assert entries[0].md5 == "not computed" and entries[0].values["sum"] == 21.0, first
    assert entries[0].values["q0.5"] is None and "| q0.5 not computed |" in first
    # without a checksum the statistics decide
    assert _differences.same(entries[0], entries[0]) and not _differences.same(*entries)
    assert _differences.same(*entries, tolerance=10.0)
    assert "sum 21 and " in _differences.explain(*entries)
    with here.env(PUTILS_MD5=None, PUTILS_QUANTILES=None):
        whole = _lines.read_line(pprint.tprint(t, "x").split("\n")[0])
    assert _differences.same(entries[0], whole) and len(whole.md5) == 6


def check_a_device_that_cannot_compute_is_read_by_a_copy(here):
    """One without doubles, or without memory for them."""

    def fails(*_):
        raise RuntimeError("no double on this device")

    t = here.torch.ones(3, device=here.device)
    kept, device_statistics._queue_floats = device_statistics._queue_floats, fails
    try:
        with everywhere():
            s = pprint.tensor_stats(t, md5=False)
    finally:
        device_statistics._queue_floats = kept
    assert (s.sum, s.md5, s.quantiles[0]) == (3.0, "not computed", 1.0), s


def check_a_gpu_waits_once(here):
    """As CUDA sees it: one wait for all values, and less memory than a copy of the tensor."""
    if here.device == "cpu":
        return
    import warnings

    torch = here.torch
    t = torch.randn(1 << 20, 8, device=here.device)
    pprint.tensor_stats(t, md5=False)
    for quantiles in (True, False):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                s = pprint.tensor_stats(t, md5=False, quantiles=quantiles)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        waits = [str(w.message) for w in caught if "synchroniz" in str(w.message)]
        assert len(waits) == 1 and s.md5 == "not computed", (waits, s)
        taken = torch.cuda.max_memory_allocated() - before
        assert quantiles or taken <= 4 * 8 * device_statistics.PIECE, taken
