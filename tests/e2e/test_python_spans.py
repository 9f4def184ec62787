# SPDX-License-Identifier: MulanPSL-2.0
"""What stands in the trace of calls besides functions: spans that the program names, and modules of
torch."""

import collections

import pytest
from capabilities import lacks
from python_traces import WORK, names, only, read_csv, trace
from pythons import one_per_minor, pythons
from torches import every_torch

PER_MINOR = one_per_minor(oldest=8)
ANY = [p for p in pythons() if p.minor >= 8][-1]


# --- spans with names ---

NOTES = """
import asyncio, threading
R = msmemscope.RecordFunction

with R("before start"):
    msmemscope.config(events="alloc,free")
    msmemscope.start()

with R("outer"):
    with R("inner"):
        pass
    again = R("twice")
    with again, again:
        pass
try:
    with R("fails"):
        raise ValueError
except ValueError:
    pass

@R("function")
def function(n):
    "doc"
    return function(n - 1) if n else 7

assert function(2) == 7 and function.__name__ == "function" and function.__doc__ == "doc"

@R("generator")
def generator():
    got = yield 1
    yield got
    return 9

g = generator()
assert next(g) == 1 and g.send(5) == 5
try:
    next(g)
except StopIteration as e:
    assert e.value == 9

@R("coroutine")
async def coroutine():
    await asyncio.sleep(0.001)
    return 3

@R("async generator")
async def numbers():
    try:
        got = yield 1
        assert got == "sent"
        yield 2
    except KeyError:
        yield 3

async def main():
    assert await asyncio.gather(coroutine(), coroutine()) == [3, 3]
    n = numbers()
    assert await n.__anext__() == 1
    assert await n.asend("sent") == 2
    assert await n.athrow(KeyError()) == 3
    await n.aclose()
    assert [x async for x in numbers_quiet()] == [1]

@R("async generator")
async def numbers_quiet():
    yield 1

asyncio.new_event_loop().run_until_complete(main())
t = threading.Thread(target=function, args=(0,))
t.start()
t.join()
with R("n" * 128):
    pass
for wrong in ("n" * 129, ""):
    try:
        R(wrong)
        assert False
    except ValueError as e:
        assert "128" in str(e)
try:
    R(3)
    assert False
except TypeError:
    pass
open_one = R("not ended").__enter__()
msmemscope.stop()
open_one.__exit__(None, None, None)
with R("after stop"):
    pass
msmemscope.start()
with R("\\ud800 half"):
    pass
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_named_spans(jobs, python):
    left = jobs.run(python, NOTES)
    assert left.returncode == 0, left
    found = {tid: rows for tid, rows in spans(left).items()}
    rows = [r for of_thread in found.values() for r in of_thread]
    assert collections.Counter(r.info for r in rows) == {
        "outer": 1, "inner": 1, "twice": 2, "fails": 1, "function": 4, "generator": 1,
        "coroutine": 2, "async generator": 2, "n" * 128: 1, "not ended": 1, "? half": 1,
    }  # fmt: skip
    assert sorted(len(of_thread) for of_thread in found.values()) == [1, 16]
    assert [r.info for r in rows if r.end is None] == ["not ended"]
    at = {r.info: r for r in rows}
    assert at["outer"].start <= at["inner"].start <= at["inner"].end <= at["outer"].end


def spans(left):
    left.wait()
    files = left.out.glob("*/device_*/dump/python_trace_*.csv")
    return {rows[0].tid: rows for rows in map(read_csv, files)}


# --- torch ---

MODULES = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.inner(x))

model = torch.nn.Sequential(Block(), Block())
msmemscope.config(events=sys.argv[1], device="cpu")
msmemscope.start()
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
msmemscope.stop()
"""


@pytest.mark.parametrize("events", ["traceback", "alloc,free,launch,access,traceback"])
@pytest.mark.parametrize("torch", every_torch())
def test_modules_of_torch(jobs, torch, events):
    left = jobs.run(torch.path, MODULES, events)
    assert left.returncode == 0, left
    found = trace(left)
    rows = [r for of_thread in found.values() for r in of_thread]
    modules = collections.Counter(r.info for r in rows if r.info.startswith("nn.Module: "))
    assert modules == {"nn.Module: Sequential": 3, "nn.Module: Block": 6, "nn.Module: Linear": 6}
    assert names(rows)["forward"] == 6
    assert names(rows)["C:relu"] == 6 and names(rows)["C:run_backward"] in (0, 3)
    ours = ("torch_dispatch", "_python_dispatch.py", "OpOverload")  # what our mode does is not told
    assert not any(word in r.info for r in rows for word in ours)
    blocks = [r for r in rows if r.info == "nn.Module: Block"]
    forwards = sorted((r.start, r.end) for r in rows if names([r])["forward"])
    for r, (start, end) in zip(sorted(blocks, key=lambda r: r.start), forwards):
        assert r.start <= start <= end <= r.end


# As torch has it: the class comes from the first argument, which may be a cell.
STAND_IN = """
class Module:
    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, x):
        return self.forward(x)

    __call__ = _wrapped_call_impl


class Cell:
    def __call__(self, x):
        return (lambda: self.forward(x))()
"""

NAMED = """
import importlib

def names(how):
    global module
    if how == "early":
        module = importlib.import_module("torch.nn.modules.module")
    msmemscope.config(events="traceback")
    msmemscope.start()
    module = importlib.import_module("torch.nn.modules.module")
    if how == "cell":
        module.Module.__call__ = module.Cell.__call__

    class Net(module.Module):
        def forward(self, x):
            return x

    class Other(Net):
        pass

    Net()(1)
    Other()(2)
    Other()(3)
    msmemscope.stop()

names(sys.argv[1])
"""


@pytest.mark.parametrize("python", one_per_minor(oldest=8))
@pytest.mark.parametrize("how", ["early", "late", "cell"])
def test_modules_in_every_interpreter(jobs, python, how):
    """Where there is no torch: a module of the same shape."""
    if how == "cell" and python.minor < 11:
        lacks("python-3.11", "cells of arguments are elsewhere before")
    top = jobs.tmp / "lib/torch/nn/modules"
    top.mkdir(parents=True)
    for package in (top, top.parent, top.parent.parent):
        (package / "__init__.py").write_text("")
    (top / "module.py").write_text(STAND_IN)
    path = f"{jobs.build / 'python'}:{jobs.tmp / 'lib'}"
    _, rows = only(jobs, python, NAMED, how, env={"PYTHONPATH": path})
    modules = collections.Counter(r.info for r in rows if r.info.startswith("nn.Module: "))
    assert modules == {"nn.Module: Net": 1, "nn.Module: Other": 2}
    assert names(rows)["forward"] == 3


def test_torch_is_not_imported(jobs):
    code = WORK + """
msmemscope.config(events="traceback")
msmemscope.start()
work()
msmemscope.stop()
assert not {"torch", "numpy"} & set(sys.modules)
"""
    left, _ = only(jobs, ANY, code)
    assert left.returncode == 0
