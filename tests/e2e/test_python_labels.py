# SPDX-License-Identifier: MulanPSL-2.0
"""msmemscope.describe: labels that a program gives to its memory."""

import json

import pytest

from pythons import one_per_minor
from torches import every_torch

BEGIN = """
import json, threading
from msmemscope import describe
from msmemscope.describe import describer

told = []


def expect(owner, size=64):
    told.append(owner)
    return take(size)


msmemscope.config(analysis="", events="alloc,free", device="npu")
msmemscope.start()
"""
END = """
msmemscope.stop()
print(json.dumps(told))
"""


@pytest.fixture
def owners(jobs):
    """Runs a program and compares the owners of what it takes with what it expects."""

    def run(python, code):
        left = jobs.run(python, BEGIN + code + END)
        assert left.returncode == 0, left
        expected = json.loads(left.stdout)
        rows = left.rows
        ends = {r.attr["allocation_id"]: r.attr.get("owner") for r in rows if r.event == "FREE"}
        found = [
            (int(r.attr["allocation_id"]), ends[r.attr["allocation_id"]] or r.attr.get("owner"))
            for r in rows
            if r.event == "MALLOC"
        ]
        assert [owner for _, owner in sorted(found)] == expected
        assert expected
        return left

    return run


WINDOWS = r"""
expect(None)
with describer(owner="loader"):
    expect("PTA@loader")
    with describer(owner="inner") as label:
        expect("PTA@loader@inner")
        with label, describer(owner="loader"):
            expect("PTA@loader@inner")
        expect("PTA@loader@inner")
    expect("PTA@loader")
expect(None)
with describer(owner="1"), describer(owner="2"), describer(owner="3"), describer(owner="4"):
    expect("PTA@1@2@3")

try:
    with describer(owner="raises"):
        expect("PTA@raises")
        raise KeyError("mine")
except KeyError as why:
    assert why.args == ("mine",)
expect(None)

for text, seen in [("a\nb\tc", r"a\nb\tc"), ("x,y", "x;y"), ("é" * 100, "é" * 64), ("\0", r"\x00"),
                   ("\udc80", r"\udc80"), ("z" * 5000, "z" * 128)]:
    with describer(owner=text):
        expect("PTA@" + seen)
    expect(None)

inside, go_on = threading.Event(), threading.Event()


def other():
    with describer(owner="other"):
        inside.set()
        go_on.wait(10)
        expect("PTA@other")


thread = threading.Thread(target=other)
thread.start()
inside.wait(10)
expect(None)
go_on.set()
thread.join()


def leaves_it_open():
    describer(owner="forgotten").__enter__()


thread = threading.Thread(target=leaves_it_open)
thread.start()
thread.join()
expect(None)
"""

DECORATED = """
@describer(owner="function")
def function(a, *, b=2):
    "Its text."
    expect("PTA@function")
    return a, b


assert function(1, b=3) == (1, 3)
assert (function.__name__, function.__doc__) == ("function", "Its text.")
expect(None)


class Thing:
    @describer(owner="method")
    def method(self):
        expect("PTA@method")
        return self

    @staticmethod
    @describer(owner="static")
    def static():
        expect("PTA@static")


thing = Thing()
assert thing.method() is thing
Thing.static()


@describer(owner="recursive")
def recursive(n):
    expect("PTA@recursive")
    return n and recursive(n - 1)


recursive(2)
expect(None)


@describer(owner="fails")
def fails():
    raise ValueError("mine")


try:
    fails()
except ValueError:
    expect(None)


@describer(owner="generator")
def generator(n):
    try:
        for i in range(n):
            expect("PTA@generator")
            try:
                got = yield i
            except KeyError:
                got = "thrown"
            if got:
                expect("PTA@generator")
                yield got
        return "end"
    finally:
        expect("PTA@generator")


def around(n):
    return (yield from generator(n))


for _ in generator(2):
    expect(None)
g = generator(1)
assert next(g) == 0 and g.send("sent") == "sent"
expect(None)
g.close()
g = generator(1)
next(g)
assert g.throw(KeyError()) == "thrown"
g.close()
g = around(0)
try:
    next(g)
except StopIteration as stop:
    assert stop.value == "end"
expect(None)
g = generator(1)
next(g)
try:
    g.throw(ZeroDivisionError("mine"))
except ZeroDivisionError:
    pass
expect(None)
"""

ASYNC = """
import asyncio, inspect


@describer(owner="first")
async def first():
    expect("PTA@first")
    await asyncio.sleep(0)
    expect("PTA@first")
    return 1


@describer(owner="second")
async def second():
    expect("PTA@second")
    await asyncio.sleep(0)
    expect("PTA@second")
    raise KeyError("mine")


@describer(owner="agen")
async def numbers():
    try:
        for i in range(2):
            await asyncio.sleep(0)
            expect("PTA@agen")
            yield i
    finally:
        expect("PTA@agen")


async def main():
    results = await asyncio.gather(first(), second(), first(), return_exceptions=True)
    assert results[::2] == [1, 1] and isinstance(results[1], KeyError)
    expect(None)
    async for i in numbers():
        expect(None)
    g = numbers()
    await g.asend(None)
    await g.aclose()
    expect(None)
    task = asyncio.ensure_future(first())
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    expect(None)


assert inspect.iscoroutinefunction(first) and inspect.isasyncgenfunction(numbers)
asyncio.run(main())
"""

ADDRESSES = """
class Holder:  # no tensor of torch: MindSpore's, or a wrapper
    def __init__(self, addr):
        self.addr = addr

    def data_ptr(self):
        return self.addr


describer(Holder(expect("PTA@held")), owner="held")
describer(expect("PTA@by position"), "by position")
describer(obj=expect("PTA@by name"), owner="by name")
describer(obj=None, owner="nobody")
describer(expect(None))  # no owner, no label
with describer(), describer(owner=""), describer(None, "around"):
    expect("PTA@around")
x = expect("PTA@part@x")
describe.describe_addr(x, [("part", describe.COMPONENT), (describe.USER_DEFINED_1, "x")])
describe.describe_label("level", describe.PROCESS)
expect("PTA@level")
describe.undescribe_label("level", describe.PROCESS)
expect(None)

a = expect("PTA@mine")
b = expect("PTA@yours")
c = expect("PTA@window@other")
describer(a, owner="mine")
describer(b + 63, owner="mine")
describer(b, owner="yours")
describer(1, owner="nowhere")
describer(0, owner="nowhere")
describer(2 ** 64 - 1, owner="nowhere")
with describer(owner="window"), describer(owner="second"):
    told[told.index("PTA@window@other")] = None
    d = expect("PTA@hot@second")
    describer(d, owner="hot")
e = expect(None)
f = expect("PTA@again")
give(f)
told.append("PTA@twice")
_sonde.block_alloc(f, 64, 0, _sonde.POOL_PTA)
describer(f, owner="twice")
told[-2] = None
"""

WRONG = """
def refused(kind, text, *args, **kw):
    try:
        describer(*args, **kw)
    except kind as why:
        assert text in str(why), why
    else:
        raise AssertionError((args, kw))


refused(NotImplementedError, "Unsupported tensor type", "text", owner="x")
refused(NotImplementedError, "Unsupported tensor type", True, owner="x")
refused(NotImplementedError, "Unsupported tensor type", 1.5, owner="x")
refused(NotImplementedError, "Unsupported tensor type", [1], owner="x")
refused(TypeError, "no address", -1, owner="x")
refused(TypeError, "no address", 2 ** 64, owner="x")
refused(TypeError, "must be a str", owner=5)
refused(TypeError, "must be a str", owner=b"x")
refused(TypeError, "must be a str", 5, None)
refused(TypeError, "", 1, 2, owner="x")
refused(TypeError, "name", name="x")


class Lies:
    def data_ptr(self):
        return "there"


refused(TypeError, "no address", Lies(), "x")
for no_function in (5, int, Exception):
    try:
        describer(owner="x")(no_function)
    except TypeError as why:
        assert "decorates functions" in str(why)
    else:
        raise AssertionError(no_function)
assert repr(describer(owner="x")) == "describer(owner='x')"
names = "FRAMEWORK COMPONENT PROCESS DETAIL_1 DETAIL_2 USER_DEFINED_1 USER_DEFINED_2 USER_DEFINED_3"
assert [getattr(describe, n) for n in names.split()] == list(range(8))
assert describe is msmemscope.describe and "describer" in describe.__doc__
expect(None)
"""


@pytest.mark.parametrize("python", one_per_minor(oldest=8))
def test_windows(owners, python):
    owners(python, WINDOWS)


@pytest.mark.parametrize("python", one_per_minor(oldest=8))
def test_decorated(owners, python):
    owners(python, DECORATED)
    owners(python, ASYNC)


def test_addresses(owners):
    owners("python3", ADDRESSES)


def test_wrong_use(owners):
    owners("python3", WRONG)


TENSORS = """
import torch


def block(tensor, owner):
    told.append(owner)
    size = tensor.nelement() * tensor.element_size()
    _sonde.block_alloc(tensor.data_ptr(), size, 0, _sonde.POOL_PTA)
    return tensor


t = block(torch.ones(8), "PTA@mine")
describer(t, owner="mine")
u = block(torch.ones(8, 8), "PTA@by a view")
describer(u[3:, 2], owner="by a view")
p = block(torch.nn.Parameter(torch.ones(5)), "PTA@parameter")
describer(p, owner="parameter")
s = torch.eye(6).to_sparse()
block(s._values(), "PTA@sparse")
block(s._indices(), "PTA@sparse")
describer(s, owner="sparse")
describer(torch.empty(0), owner="nothing")
describer(torch.empty(3, device="meta"), owner="nothing")
try:
    describer([t], owner="no")
except NotImplementedError:
    pass
"""


@pytest.mark.parametrize("torch", every_torch())
def test_tensors(owners, torch):
    owners(torch, TENSORS)


def test_nothing_is_recorded(jobs):
    """Labels of a program that does not record cost it nothing but their checks."""
    code = """
with msmemscope.describe.describer(owner="x"):
    msmemscope.describe.describer(5, owner="y")
print("done")
"""
    left = jobs.run("python3", code)
    assert (left.returncode, left.stdout, left.stderr) == (0, "done\n", "")
    assert not left.out.exists()
