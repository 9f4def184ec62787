# SPDX-License-Identifier: MulanPSL-2.0
"""What a job may do to the package inside its own process: it goes on as it would without us."""

import re

import pytest
from python_traces import trace
from pythons import one_per_minor
from torches import every_torch

PER_MINOR = one_per_minor(oldest=8)
ENDS = [PER_MINOR[0], PER_MINOR[-1]]


# --- the extension is given anything ---

GARBAGE = """
import itertools, random, types

class Odd:
    def __getattr__(self, name): raise KeyError(name)
    def __eq__(self, other): raise RuntimeError
    __hash__ = __index__ = __bool__ = __len__ = __call__ = __eq__

class Long(list):
    def __len__(self): return 10 ** 9

def generator(): yield 1

endless = []
endless.append(endless)
frame = sys._getframe()
things = [
    None, True, 0, 1, -1, 7, 2 ** 32, 2 ** 64 - 1, 2 ** 70, -2 ** 70, 1.5, 1j, "", "a", "a\\0b",
    "\\ud800", "x" * (1 << 18), b"\\xff", bytearray(5), [], [1], [None], [2 ** 70], endless, (), (1,),
    {}, {"a": "b"}, {"level": "9"}, {1: 2}, {"a\\0": "b"}, set(), object(), Odd(), Odd, int,
    Long([1]), len, [].append, str.join, generator(), lambda *a: None, lambda *a: 1 / 0, sys, frame,
    frame.f_code, KeyError("x"), types.SimpleNamespace(Tensor=1),
    {"action": "alloc", "addr": 1, "size": 2, "frames": [{"filename": "x", "name": "y"}]},
    [{"action": "alloc", "addr": Odd(), "size": Odd()}],
]
pick = random.Random(5)
msmemscope.config(events="alloc,free,launch,access,traceback", device="npu,cpu")
functions = [f for n, f in vars(_sonde).items() if callable(f) and n not in ("flush", "__loader__")]
for function in functions:
    msmemscope.stop()
    msmemscope.start()
    for i in range(120):
        try:
            function(*[pick.choice(things) for _ in range(pick.randrange(12))])
        except Exception:
            pass
        if i % 20 == 0:
            _sonde.start()
os.write(1, b"%d functions\\n" % len(functions))
os._exit(0)
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_every_function_of_the_extension_survives_every_argument(jobs, python):
    left = jobs.run(python, GARBAGE)
    assert left.returncode == 0 and int(left.stdout.split()[0]) > 40, left


# --- names ---

PASSING = """
msmemscope.config(events="traceback", device="npu,cpu")
msmemscope.start()
for i in range(2000):
    names = {}
    exec("def passing%d(): pass" % i, names)
    names["passing%d" % i]()
    del names
msmemscope.stop()
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_functions_that_come_to_the_addresses_of_others(jobs, python):
    left = jobs.run(python, PASSING)
    assert left.returncode == 0, left
    infos = "\n".join(row.info for rows in trace(left).values() for row in rows)
    told = re.findall(r"passing\d+$", infos, re.MULTILINE)
    assert sorted(told) == sorted(f"passing{i}" for i in range(2000))


# --- the job's own modules ---

BUSY = """
kept = []
for i in range(20000):
    kept.append(bytearray(600))
    if len(kept) > 5000:
        kept.clear()
"""


@pytest.mark.parametrize("python", ENDS)
@pytest.mark.parametrize("name", ["sonde", "msmemscope"])
@pytest.mark.parametrize("first", [True, False])
def test_modules_of_the_job_with_our_names(record, tmp_path, python, name, first):
    own = tmp_path / "own"
    own.mkdir()
    (own / f"{name}.py").write_text("print('begins')\n")
    use = f"import {name}\nprint({name}.__file__)\n"
    after = f"import sys\nprint({name} is sys.modules['{name}'])\n"
    (own / "job.py").write_text((use + BUSY if first else BUSY + use) + after)
    r = record(python.path, own / "job.py", opts=["--device=cpu", "--analysis=decompose"])
    assert r.returncode == 0, r.stderr
    assert r.stdout.decode().split() == ["begins", str(own / f"{name}.py"), "True"]


@pytest.mark.parametrize("python", PER_MINOR)
def test_a_job_without_a_single_event(record, python):
    """Nothing but calls, one thread, no signals: the interpreter has no reason to look up."""
    code = """
import sys, time
begin = time.monotonic()
while "msmemscope" not in sys.modules and time.monotonic() - begin < 20:
    pass
print("msmemscope" in sys.modules)
"""
    r = record(python.path, "-c", code, opts=["--events=traceback"])
    assert (r.returncode, r.stdout, r.stderr) == (0, b"True\n", b"")


@pytest.mark.parametrize("python", PER_MINOR)
def test_code_that_is_kept_from_having_builtins(record, python):
    code = """
names = {"__builtins__": {}, "numbers": range, "take": bytearray}
for i in range(5):
    kept = eval("[take(600) for i in numbers(1000)]", names)
print(len(kept))
"""
    r = record(python.path, "-c", code, opts=["--device=cpu", "--analysis=decompose"])
    assert (r.returncode, r.stdout, r.stderr) == (0, b"1000\n", b"")


# --- its signals ---

ALARM = """
import os, signal, sys, time

class Late(Exception):
    pass

def handler(number, frame):
    os.write(1, b"rings ")
    raise Late

signal.signal(signal.SIGALRM, handler)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("msmemscope._"):
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGALRM)
            for i in range(100):
                pass

finder = Finder()
sys.meta_path.insert(0, finder)
early = "msmemscope" in sys.modules
end = time.monotonic() + 30
try:
"""


@pytest.mark.parametrize("python", PER_MINOR)
def test_an_alarm_while_the_package_comes(record, python):
    """The handler's exception is the job's, of whatever class it is."""
    # In a function: some jumps back in a loop are outside of its try for CPython 3.13.
    code = "def work():" + BUSY.replace("\n", "\n    ") + "\n" + ALARM
    code += "    while not early and finder in sys.meta_path and time.monotonic() < end:\n        work()\n"
    code += "except Late:\n    print('late')\n"
    code += "else:\n    print('early' if early else 'done')\n"
    r = record(python.path, "-c", code, opts=["--device=cpu", "--analysis=decompose"])
    assert r.returncode == 0, r.stderr
    assert r.stdout in (b"rings late\n", b"early\n", b"done\n") and not r.stderr, r.stdout + r.stderr


STEP = """
import signal
from msmemscope import _trace

class Late(Exception):
    pass

class Handler:
    def __call__(self, number, frame):
        raise Late

signal.signal(signal.SIGALRM, Handler())
msmemscope.config(events="traceback")
msmemscope.start()

def before_step():
    os.kill(os.getpid(), signal.SIGALRM)
    for i in range(100):
        pass

_trace.before_step = before_step
try:
    msmemscope.step()
except Late:
    print("late")
"""


@pytest.mark.parametrize("python", ENDS)
def test_an_alarm_inside_a_step(jobs, python):
    left = jobs.run(python, STEP)
    assert (left.returncode, left.stdout) == (0, "late\n"), left


# --- classes and modes of torch ---

CLASSES = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Seen(TorchDispatchMode):
    calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))

class Own(torch.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})

def work():
    a = torch.arange(3.0).as_subclass(Own)
    b = torch.cat([a, a + a])
    return type(b).__name__, b.tolist()

expected = work(), list(Own.calls)
Own.calls.clear()
msmemscope.config(events="alloc,free,launch,access", device="npu,cpu")
with Seen():
    msmemscope.start()
    msmemscope.stop()
assert not Seen.calls, Seen.calls
msmemscope.start()
assert (work(), Own.calls) == expected, Own.calls
msmemscope.stop()
print("same")
"""


@pytest.mark.parametrize("torch", every_torch())
def test_classes_and_modes_of_the_job(jobs, torch):
    left = jobs.run(torch.path, CLASSES)
    assert (left.returncode, left.stdout) == (0, "same\n"), left
    assert "do not work" not in left.stderr and "not collected" not in left.stderr, left
    assert left.of("ACCESS")
