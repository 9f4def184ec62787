# SPDX-License-Identifier: MulanPSL-2.0
"""putils.pprint: what is printed of a tensor, against torch's own answers."""

import hashlib
import math
import struct
import threading

from putils import _lines, _native, _tensors, pprint, write2file

LINE = (
    "'step 1 loss'| l1_norm 6.0 | {md5} | torch.float32 | torch.Size([4]) | continue: True"
    " | mean 0.5 | sum 2.0 | max 3.0 | min -2.0 | q0.999 2.9939999999999998 | q0.99 2.9399999999999995"
    " | q0.9 2.4000000000000004 | q0.5 0.5"
    " | q0.1 -1.4 | q0.01 -1.94 | q0.001 -1.994 | Size 4 | Memory size: 0.00 GB | isNan False"
)


def check_lines_are_as_scripts_read_them(here):
    said = pprint.tprint(here.tensor([1.0, -2.0, 3.0, 0.0]), "step 1 loss")
    md5 = hashlib.md5(struct.pack("<4f", 1, -2, 3, 0)).hexdigest()[:6]
    first, second = said.split("\n")
    assert first == LINE.format(md5=md5), first
    assert second == "[1.0, -2.0, 3.0, 0.0]"
    assert here.said() == said + "\n"
    entry = _lines.read_line(first)
    assert (entry.name, entry.md5, entry.shape) == ("step 1 loss", md5, "torch.Size([4])")
    assert entry.values["q0.1"] == -1.4 and entry.values["l1_norm"] == 6.0 and not entry.is_nan
    # as older logs have them
    old = first.replace(first[first.index(" | q0.999") : first.index(" | Size")], "")
    assert _lines.read_line(old).values["min"] == -2.0


def check_beginnings_are_shown(here):
    t = here.torch.arange(12 * 11 * 2.0, device=here.device).reshape(12, 11, 2)
    said = pprint.tprint(t, "layer 3 hidden")
    entries = [e for e in map(_lines.read_line, here.lines()) if e]
    parts = {
        "layer 3 hidden": t,
        "layer 3 [B=0] hidden": t[0],
        "layer 3 [B=:10] hidden": t[:10],
        "layer 3 [B=0,S=0] hidden": t[0, 0],
        "layer 3 [B=0,S=:10] hidden": t[0, :10],
    }
    assert [e.name for e in entries] == list(parts)
    for e, part in zip(entries, parts.values()):
        assert e.md5 == pprint.tensor_md5(part) and e.shape == str(part.shape), e
        assert e.values["sum"] == part.double().sum().item(), e
    assert len(said.split("\n")) == 2
    pprint.tprint(t, "x", _do_slice=False)
    assert len(here.lines()) == 2
    pprint.tprint(t[:1, :1], "x")
    assert len(here.lines()) == 2
    pprint.tprint(t.transpose(0, 1), "x")
    contiguous = [line.split("continue: ")[1].split(" ")[0] for line in here.lines()[::2]]
    assert contiguous == ["False", "False", "False", "True", "False"], contiguous


def quantiles(torch, t):
    """As torch.quantile computes them, in double and without its limit."""
    ordered = torch.sort(t.cpu().double().flatten())[0]
    found = []
    for q in _tensors.QUANTILES:
        at = q * (ordered.numel() - 1)
        low, high = ordered[math.floor(at)].item(), ordered[math.ceil(at)].item()
        found.append(low + (at - math.floor(at)) * (high - low))
    return found


def close(a, b, to=1e-12):
    return abs(a - b) <= to * max(abs(a), abs(b), 1e-300) or a == b


def compare(here, t):
    s, wide = pprint.tensor_stats(t, "x"), t.cpu().double()
    assert close(s.sum, wide.sum().item(), 1e-9) and close(s.l1, wide.abs().sum().item(), 1e-9), s
    assert (s.min, s.max) == (wide.min().item(), wide.max().item()), s
    assert close(s.mean, wide.mean().item(), 1e-9) and s.nans == 0 and s.infs == 0, s
    for got, want in zip(s.quantiles, quantiles(here.torch, t)):
        assert close(got, want), (got, want, t.dtype, t.shape)
    return s


def check_statistics_of_every_kind(here):
    torch = here.torch
    torch.manual_seed(1)
    for count in (1, 2, 7, 1000, 20_000):
        for name in ("float64", "float32", "float16", "bfloat16"):
            compare(here, (torch.randn(count) * 100).to(getattr(torch, name)).to(here.device))
        for name in ("int64", "int32", "int16", "int8", "uint8"):
            kind = getattr(torch, name)
            info = torch.iinfo(kind)
            low, high = max(info.min, -(1 << 40)), min(info.max, 1 << 40)
            compare(here, torch.randint(low, high, (count,)).to(kind).to(here.device))
    compare(here, (torch.randn(1000) > 0).to(here.device))
    for name in ("uint16", "uint32", "float8_e4m3fn", "float8_e5m2"):
        if hasattr(torch, name):
            t = torch.arange(200).to(torch.float32).to(getattr(torch, name))
            s = pprint.tensor_stats(t.to(here.device))
            assert s.sum == t.to(torch.float64).sum().item(), s
            assert len(s.md5) == 32


def check_quantiles_are_torchs(here):
    torch = here.torch
    for t in (torch.randn(999), torch.rand(3, 5, 7).double(), torch.full((100,), 2.5)):
        want = torch.quantile(t.double(), torch.tensor(_tensors.QUANTILES, dtype=torch.float64))
        got = pprint.tensor_stats(t.to(here.device)).quantiles
        assert all(close(a, b) for a, b in zip(got, want.tolist())), (got, want)


def check_large_tensors_are_exact(here):
    """Digits of 16 bits, several threads, a checksum in a thread of its own."""
    torch = here.torch
    t = torch.randn(1 << 23, generator=torch.Generator().manual_seed(7))
    s = compare(here, t.to(here.device))
    raw = bytes(_tensors._memory(_native.get(), t.data_ptr(), t.numel() * 4))
    assert s.md5 == hashlib.md5(raw).hexdigest()
    native = _native.get()
    if native:
        args = (t.data_ptr(), t.numel(), "float32", _tensors.QUANTILES)
        assert len({repr(native.tensor_statistics(*args, n)) for n in (1, 2, 5)}) == 1


def check_checksums(here):
    torch = here.torch
    t = here.tensor([1.5, -2.25, 0.0])
    want = hashlib.md5(struct.pack("<3f", 1.5, -2.25, 0)).hexdigest()
    assert pprint.tensor_md5(t) == want[:6] and pprint.tensor_md5(t, 32) == want
    assert pprint.tensor_md5(t, length=4) == want[:4]
    assert pprint.tensor_md5(t.to(torch.bfloat16), 32) == want
    half = hashlib.md5(struct.pack("<3e", 1.5, -2.25, 0)).hexdigest()
    assert pprint.tensor_md5(t.half(), 32) == half
    big = torch.arange(600_000, device=here.device).to(torch.bfloat16)
    assert pprint.tensor_md5(big, 32) == pprint.tensor_md5(big.float(), 32)
    assert pprint.tensor_md5(here.tensor([]), 32) == hashlib.md5(b"").hexdigest()
    matrix = torch.arange(6.0, device=here.device).reshape(2, 3)
    assert pprint.tensor_md5(matrix.t()) == pprint.tensor_md5(matrix.t().contiguous())


def check_nan_and_infinity(here):
    inf, nan = math.inf, math.nan
    s = pprint.tensor_stats(here.tensor([1.0, nan, inf, -inf, nan]))
    assert (s.nans, s.infs) == (2, 2) and math.isnan(s.max) and math.isnan(s.quantiles[3])
    s = pprint.tensor_stats(here.tensor([1.0, inf, 2.0]))
    assert (s.nans, s.infs, s.max, s.sum) == (0, 1, inf, inf) and s.quantiles[3] == 2.0
    s = pprint.tensor_stats(here.tensor([complex(nan, 1), complex(inf, 1), 1 + 2j]))
    assert (s.nans, s.infs) == (1, 1)
    pprint.tprint(here.tensor([nan]), "x")
    assert here.lines()[0].endswith("isNan True")
    assert pprint.tensor_stats(here.tensor([6e4, 6e4]).half()).sum == 120000.0  # not inf


def check_integers_have_a_mean_and_exact_sums(here):
    s = pprint.tensor_stats(here.tensor([1, 2]))
    assert (s.mean, s.sum, s.max, s.min) == (1.5, 3, 2, 1) and isinstance(s.sum, int)
    most = 2**63 - 1
    s = pprint.tensor_stats(here.tensor([most, most, -most - 1]))
    assert (s.sum, s.l1, s.min) == (most - 1, 3 * most + 1, -most - 1)
    s = pprint.tensor_stats(here.tensor([True, False, True]))
    assert (s.sum, s.max, s.min, s.mean) == (2, True, False, 2 / 3)


def odd_tensors(here):
    torch, device = here.torch, here.device
    ones = torch.ones(3, 3, device=device)
    quantised = torch.quantize_per_tensor(torch.arange(4.0), 0.5, 0, torch.quint8)
    freed = torch.ones(4, 5, device=device)
    turned = freed.t()
    (freed.untyped_storage() if hasattr(freed, "untyped_storage") else freed.storage()).resize_(0)
    yield "empty", torch.empty(0, 3, device=device), "mean empty"
    yield "no dimension", here.tensor(2.5), "mean 2.5"
    yield "complex", here.tensor([1 + 2j, 3 - 4j]), "max complex numbers have no order"
    yield "conjugated", here.tensor([1 + 2j]).conj(), "sum (1-2j)"
    yield "sparse", ones.to_sparse(), "of the values that are stored (sparse_coo)"
    yield "csr", ones.cpu().to_sparse_csr(), "of the values that are stored (sparse_csr)"
    yield "quantised", quantised, "of the numbers that the quantised ones stand for"
    yield "meta", torch.ones(2, device="meta"), "mean a meta tensor has no data"
    yield "given back", freed, "mean its memory was given back"
    yield "given back, not contiguous", turned, "mean its memory was given back"
    yield "expanded", torch.ones(1, device=device).expand(3), "continue: False | mean 1.0"
    yield "parameter", torch.nn.Parameter(torch.ones(2, device=device)), "mean 1.0"


def check_odd_tensors_give_words(here):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for what, tensor, words in odd_tensors(here):
            said = pprint.tprint(tensor, what)
            assert words in said and said.startswith(f"'{what}'| l1_norm "), said
            assert len(said.split("\n")) == 2 and _lines.read_line(said.split("\n")[0]), said
    assert here.warned() == ""


def check_a_dead_device_gives_words(here):
    class Dead(here.torch.Tensor):
        def detach(self):
            raise RuntimeError("CUDA error: device-side assert triggered\nmore lines")

    dead = here.torch.ones(2, 2).as_subclass(Dead)
    said = pprint.tprint(dead, "x")
    assert "mean CUDA error: device-side assert triggered |" in said, said
    assert pprint.tensor_md5(dead).startswith("CUDA error")


def check_what_is_no_tensor_gives_words(here):
    for thing in (3, None, "text", [here.tensor([1.0])], here.torch.Tensor, object()):
        s = pprint.tensor_stats(thing, "x")
        word = f"not a tensor: {type(thing).__name__}"
        assert s.dtype == word and str(s).count(word) == 1, s
        assert {s.mean, s.sum, s.md5, s.first, s.shape, s.nans, *s.quantiles} == {"-"}, s
        assert (s.name, s.size, s.bytes) == ("x", 0, 0)
        assert pprint.tensor_md5(thing) == word
    assert here.said() == here.warned() == ""


def check_other_things(here):
    torch = here.torch
    assert pprint.tprint(torch.nn.Linear(3, 2), "m") == "'m'| Linear: 8 parameters"
    assert pprint.tprint({"a": 1}) == "{'a': 1}"

    class Bad:
        def __repr__(self):
            raise ValueError("no")

    assert pprint.tprint(Bad(), "b") == "'b'| Bad: no"
    here.said()
    t = here.tensor([1.0])
    pprint.aprint("in", (t, [t, None]))
    names = [line.split("|")[0] for line in here.lines() if "|" in line]
    assert names == ["'in[0]'", "'in[1][0]'", "'in[1][1]'"], names
    pprint.aprint("in", 3, "")
    assert here.said() == "'in'| int\n"
    pprint.aprint("in", t, file_path="f.log")
    pprint.aprint("in", t, str(here.tmp / "f.log"))
    assert here.said() == "" and len(open("f.log").read().splitlines()) == 4
    pprint.wprint(torch.nn.Linear(1, 1, bias=False), "w")
    assert here.said().startswith("'w rank -1 weight'| l1_norm ")
    pprint.wprint(3)
    assert "wprint: no parameters in int" in here.warned()
    pprint.dis_print(t, "loss")
    assert here.said().startswith("'rank -1 dp_rank -1 loss'| l1_norm 1.0 ")
    pprint.dis_print("text", "s", toTprint=False)
    assert here.said() == "rank -1 dp_rank -1 s text\n"
    for tag in ("a", "b", "a", ["a"], ["a"]):
        pprint.print_once_by_tag(tag, f"tag {tag}")
    assert here.said() == "tag a\ntag b\ntag ['a']\n"


def check_the_debug_switch(here):
    for value, want in (("1", True), ("0", False), ("2", False), ("x", False), (None, False)):
        with here.env(TSJPRINT=value):
            assert pprint.ifdebug() is want, value


def check_logs(here):
    write2file.FOLDER = str(here.tmp)
    ident = threading.get_ident()
    try:
        with here.env(log_tag="run7"):
            pprint.log_or_print("one")
            pprint.log_and_print("two")
            write2file.log2file("three", "grads")
        write2file.log2file("four")
        pprint.log_or_print("five")
        logs = {p.name: p.read_text() for p in here.tmp.iterdir()}
        assert logs == {
            f"rank-1_tid{ident}_run7.log": "one\ntwo\n",
            f"grads_rank-1_tid{ident}_run7.log": "three\n",
            f"rank-1_tid{ident}.log": "four\n",
        }, logs
        assert here.said() == "two\nfive\n"
        (here.tmp / f"rank-1_tid{ident}.log").unlink()
        write2file.log2file("again")
        assert (here.tmp / f"rank-1_tid{ident}.log").read_text() == "again\n"
        (here.tmp / "other").write_text("")
        (here.tmp / f"link_rank-1_tid{ident}.log").symlink_to("other")
        write2file.log2file("through a link", "link")
        assert (here.tmp / "other").read_text() == "" and "cannot be written" in here.warned()
    finally:
        write2file.FOLDER = "/tmp"


def check_monitor_io(here):
    @pprint.monitor_io()
    def add(a, b=0, *, fail=False):
        if fail:
            raise ValueError("no")
        return {"sum": [a + b], "deep": [[[[1]]]]}

    @pprint.monitor_io
    def plain(a):
        return a

    with here.env(TSJPRINT=None):
        assert add(1, 2)["sum"] == [3] and here.said() == ""
    with here.env(TSJPRINT=1):
        add(here.tensor([1.0]), b=2)
        try:
            add(1, fail=True)
            raise AssertionError("it is not passed on")
        except ValueError:
            pass
        plain(list(range(9)))
    labels = [line.split("|")[0].strip("'") for line in here.lines() if "|" in line]
    assert labels[:5] == [
        "add#1.in.args[0]",
        "add#1.in.kwargs.b",
        "add#1.out.sum[0]",
        "add#1.out.deep[0][0]",
        "add#2.in.args[0]",
    ], labels
    assert labels[5:7] == ["add#2.in.kwargs.fail", "add#2.out.exception"], labels
    assert "plain#1.in.args[0][7]" in labels and "plain#1.in.args[0][8]" not in labels
    assert add.__name__ == "add"


def check_without_the_extension(here):
    """The same numbers from torch's own operations."""
    torch = here.torch
    tensors = [
        torch.randn(50, generator=torch.Generator().manual_seed(3)),
        torch.arange(7),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]),
        torch.ones(3).bfloat16(),
        torch.tensor([1.0, math.nan]),
    ]
    with_it = [pprint.tensor_stats(t.to(here.device)) for t in tensors]
    found = _native._found
    _native._found, _native._why_not = None, "not here"
    try:
        without = [pprint.tensor_stats(t.to(here.device)) for t in tensors]
    finally:
        _native._found, _native._why_not = found, ""
    for a, b in zip(with_it, without):
        assert a.md5 == b.md5 and a.first[0] == b.first[0]
        pairs = list(zip(a.quantiles, b.quantiles))
        pairs += [(a.sum, b.sum), (a.min, b.min), (a.max, b.max), (a.nans, b.nans), (a.l1, b.l1)]
        for x, y in pairs:
            assert repr(x) == repr(y) or close(x, y, 1e-6), (x, y)


def check_a_device_is_waited_for_once(here):
    """On a GPU: ten values and more, one wait."""
    if here.device == "cpu":
        return
    import warnings

    torch = here.torch
    t = torch.randn(64, 64, 8, device=here.device)
    torch.cuda.synchronize()
    before = torch.cuda.max_memory_allocated()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pprint.tprint(t, "x")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [str(w.message) for w in caught if "synchroniz" in str(w.message)]
    assert len(waits) == 1, waits
    assert torch.cuda.max_memory_allocated() == before, "device memory was taken"
