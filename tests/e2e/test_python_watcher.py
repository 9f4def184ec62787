# SPDX-License-Identifier: MulanPSL-2.0
"""msmemscope.watcher and config(watch=…): who writes memory that is not his, in a real PyTorch."""

import csv
import json
import re
import struct
import subprocess
import sys

import pytest

from capabilities import lacks
from torch_forks import forks  # noqa: F401
from torches import a_torch, every_torch

HEAD = """
import ctypes, os, sys, threading
import torch, msmemscope
torch.manual_seed(1)
watcher = msmemscope.watcher
library = torch.library.Library("test", "DEF")
def operator(name, fn):
    # One of the job's own, which says that it writes nothing.
    library.define(name + "(Tensor x) -> Tensor")
    library.impl(name, fn, "CPU")
    return getattr(torch.ops.test, name)
def overwrite(tensor):
    # In a new operator: four bytes in the middle of a tensor that it does not get.
    where = tensor.data_ptr() + 16
    return lambda x: ctypes.memset(where, 7, 4) and x.clone()
"""


class Job:
    """Python code with torch, in a directory of its own; forker: what forks its process (torch_forks.py)."""

    def __init__(self, record, torch, forker=None):
        self.record, self.torch, self.forker = record, torch, forker
        self.out = record.tmp / "out"

    def command(self, code):
        return [self.torch.path, "-c", HEAD + code]

    def env(self, **more):
        return self.record.env(PYTHONPATH=self.record.build / "python", **more)

    def __call__(self, code, launch=(), config="", check=True):
        before = "" if launch else f"msmemscope.config(output_path={str(self.out)!r}{config})\n"
        command = self.command(before + code)
        if launch:
            launch = [f"--output-path={self.out}", *launch, "--"]
            command = [*self.record.msmemscope, *launch, *command]
        if self.forker and not launch:
            r = self.forker.run(command[1:], self.record.tmp, self.env())
        else:
            r = subprocess.run(command, env=self.env(), cwd=self.record.tmp, capture_output=True, timeout=120)
        assert not check or r.returncode == 0, r.stderr.decode()
        return r

    def answer(self):
        r = self.record.sonde("mem", "watch", "--json", self.out)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)

    def looks(self):
        """[(operator, watched, before or after)] in the file of checksums."""
        found = []
        pattern = r"cpu_\d+/(?:torch\._ops\.)?(.*?)_(\d+)-(.*)_(\d+)_(before|after)\.bin"
        for path in sorted(self.out.glob("msmemscope_*/device_cpu/watch_dump/*.csv")):
            with open(path, newline="") as f:
                for name, checksum in list(csv.reader(f))[1:]:
                    m = re.fullmatch(pattern, name)
                    assert m and re.fullmatch("[0-9a-f]{16}", checksum), name
                    found.append((m.group(1), m.group(3), m.group(5)))
        return found


@pytest.fixture(params=every_torch())
def each(record, request):
    return Job(record, request.param)


@pytest.fixture
def job(record, forks):  # noqa: F811
    return Job(record, a_torch(), forks.of(a_torch()))


def test_a_stray_write_is_found_with_its_operator(each):
    job = each
    code = """
victim, other = torch.zeros(1000), torch.ones(1000)
bad = operator("bad", overwrite(victim))
msmemscope.start()
watcher.watch(victim, name="victim")
for _ in range(3):
    other = other * 2
other = bad(other)
for _ in range(3):
    other = other + 1
victim.add_(1)
msmemscope.stop()
print(float(other.sum()), float(victim.double().sum()))
"""
    r = job(code)
    plain = job(re.sub(r"(?m)^(msmemscope|watcher)\..*$", "", code))
    assert r.stdout == plain.stdout != b""
    got = job.answer()
    assert (got["corruptions"], got["announced"], got["unjudged"]) == (1, 1, 0)
    (one,) = got["corruption"]
    assert (one["name"], one["device"], one["kind"]) == ("victim", "cpu", "during_operator")
    assert (one["to"]["operator"], one["to"]["call"]) == ("test.bad.default", 1)
    # Said at the end of the job, too.
    assert b"1 corruption of memory found." in r.stderr
    assert b"changed during operator test.bad.default #1" in r.stderr
    assert got["samples"] == len(job.looks()) == 2 * 8


def test_the_line_of_the_user(job):
    """Not the framework's frame that calls the operator: the line of the program that led there."""
    code = """
victim, other = torch.zeros(1000), torch.ones(1000)
bad = operator("bad", overwrite(victim))
def train_step(x):
    return bad(x)
msmemscope.start()
watcher.watch(victim, name="victim")
train_step(other)
msmemscope.stop()
"""
    job(f"exec(compile({code!r}, '/job/train.py', 'exec'))", config=", call_stack='python:10'")
    (one,) = job.answer()["corruption"]
    assert one["to"]["where"] == "train_step (train.py:5)"
    assert any("torch" in line for line in one["to"]["python_stack"])
    text = job.record.sonde("mem", "watch", job.out).stdout.decode()
    assert f"  operator called by train_step (train.py:5)" in text


def test_a_training_loop_is_clean(each):
    """A Parameter, its gradient, a module's buffer: what operators announce is no corruption."""
    job = each
    job("""
from torch.nn import BatchNorm1d, Linear
model = torch.nn.Sequential(Linear(20, 30), BatchNorm1d(30), Linear(30, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
msmemscope.start()
watcher.watch(model[0].weight, name="weight")
watcher.watch(model[1].running_mean, name="mean")
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 20)).square().mean()
    loss.backward()
    optimizer.step()
    msmemscope.step()
msmemscope.stop()
""")
    got = job.answer()
    assert got["corruptions"] == got["unjudged"] == got["failed"] == 0
    assert got["blocks"] == 2 and got["announced"] >= 3
    assert {name for _, name, _ in job.looks()} == {"weight", "mean"}


def test_a_write_between_operators_and_memory_that_is_freed(job):
    """What comes to lie where something was freed is somebody else's."""
    job("""
msmemscope.start()
victim, other = torch.zeros(1000), torch.ones(1000)
watcher.watch(victim, name="victim")
other = other * 2
ctypes.memset(victim.data_ptr(), 1, 4)
other = other + 1
gone = torch.zeros(100000)
watcher.watch(gone, name="gone")
other = other - 2
where = gone.data_ptr()
del gone
for _ in range(50):
    if torch.full((100000,), 3.0).data_ptr() == where:
        break
msmemscope.stop()
""")
    got = job.answer()
    assert (got["blocks"], got["corruptions"], got["failed"]) == (2, 1, 0)
    (one,) = got["corruption"]
    assert (one["name"], one["kind"]) == ("victim", "between_operators")
    around = one["from"]["operator"], one["to"]["operator"]
    assert around == ("aten.mul.Tensor", "aten.add.Tensor")
    assert [op for op, name, _ in job.looks() if name == "gone"] == ["aten.sub.Tensor"] * 2


def test_a_view_is_watched_as_long_as_its_memory(job):
    if [int(n) for n in job.torch.version.split(".")[:2]] < [2, 1]:
        lacks("torch-2.1", "a storage has no object of its own before")
    job("""
msmemscope.start()
whole, other = torch.zeros(10, 10), torch.ones(3)
watcher.watch(whole.data[2:4], name="rows")
watcher.watch(whole.t()[1], name="column")
bad = operator("bad", overwrite(whole[2]))
other = bad(other)
del whole
other = other * 2
msmemscope.stop()
""")
    got = job.answer()
    assert {(c["name"], c["bytes"]) for c in got["corruption"]} <= {("rows", 80), ("column", 364)}
    assert "rows" in {c["name"] for c in got["corruption"]}
    assert [op for op, _, _ in job.looks()].count("test.bad.default") == 4
    assert "aten.mul.Tensor" not in [op for op, _, _ in job.looks()]


def test_an_address_and_a_number_of_looks(job):
    job("""
import mmap
msmemscope.start()
t, other = torch.zeros(1000), torch.ones(3)
watcher.watch(t.data_ptr() + 400, length=40, name="middle")
watcher.watch(t, name="three", dump_nums=3)
bad = operator("bad", overwrite(t))             # outside of those forty bytes
other = bad(other)
other = other * 2
watcher.remove(t.data_ptr() + 400, length=40)
watcher.remove(t.data_ptr() + 400)              # no mistake
other = other * 2
page = mmap.mmap(-1, 65536)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
watcher.watch(address, length=65536, name="page")
other = other * 2
ctypes.CDLL(None).munmap(ctypes.c_void_p(address), 65536)
other = other * 2                               # cannot be read: an error, not a fault
other = other * 2
print("went on", flush=True)
msmemscope.stop()
os._exit(0)
""")
    got = job.answer()
    assert [c["name"] for c in got["corruption"]] == ["three"]
    assert got["failed"] == 1
    names = [name for _, name, _ in job.looks()]
    assert (names.count("middle"), names.count("three"), names.count("page")) == (4, 3, 2)
    (end,) = got["ended"]
    assert (end["name"], end["looks"], got["ended_early"]) == ("three", 3, 1)


def test_what_comes_after_the_last_look(job):
    """Not seen, and said so: that is not the same as all is well."""
    job("""
msmemscope.start()
t, other = torch.zeros(1000), torch.ones(3)
bad = operator("bad", overwrite(t))
watcher.watch(t, name="four", dump_nums=4)
for _ in range(5):
    other = other * 2
other = bad(other)
other = other * 2
msmemscope.stop()
""")
    got = job.answer()
    assert got["corruptions"] == 0
    (end,) = got["ended"]
    last = {"operator": "aten.mul.Tensor", "call": 2, "tid": end["pid"], "at": "end"}
    assert end["last"].items() >= last.items()
    text = " ".join(job.record.sonde("mem", "watch", job.out).stdout.decode().split())
    assert "No corruption of what was watched." not in text
    assert "ended after operator aten.mul.Tensor #2: it was for 4 looks only" in text
    assert "Changes after that were not looked at." in text


def test_before_start_between_windows_and_after_config(job):
    job("""
t, other = torch.zeros(10), torch.ones(3)
watcher.watch(t, name="early")
other = other * 2                               # not recorded yet
msmemscope.start()
other = other + 2
msmemscope.stop()
other = other * 2
msmemscope.config(events="alloc,free", call_stack="python:3")
msmemscope.start()
other = other - 2
msmemscope.stop()
""")
    assert [op for op, _, _ in job.looks()] == ["aten.add.Tensor"] * 2 + ["aten.sub.Tensor"] * 2


def test_threads_and_a_forked_child(job):
    job("""
msmemscope.start()
t, other = torch.zeros(10), torch.ones(3)
watcher.watch(t, name="shared")
def work():
    torch.ones(3).neg_()
threads = [threading.Thread(target=work) for _ in range(2)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
pid = os.fork()
if pid == 0:
    ctypes.memset(t.data_ptr(), 1, 4)           # its own copy
    other * 2
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
other + 1
msmemscope.stop()
""")
    got = job.answer()
    assert got["corruptions"] == 0
    ops = [op for op, _, _ in job.looks()]
    assert ops.count("aten.neg_.default") == 4 and "aten.mul.Tensor" not in ops


@pytest.mark.parametrize("how", ["config", "launcher"])
def test_outputs_of_an_operator(job, how):
    """config(watch=…) does in one process what --watch does for a job."""
    code = """
msmemscope.start()
a = torch.arange(6.)
b = torch.mul(a, 2)
bad = operator("bad", overwrite(b))
bad(a)
c = a + 1
msmemscope.stop()
"""
    watch = "aten.mul.Tensor:out0,aten.add.Tensor,full-content"
    if how == "config":
        job(code, config=f', device="cpu", watch={watch!r}')
    else:
        job(code, launch=[f"--watch={watch}", "--device=cpu"])
    (one,) = job.answer()["corruption"]
    assert one["to"]["operator"] == "test.bad.default"
    assert (one["name"], one["output"]) == ("aten.mul.Tensor", 0)
    ops = [op for op, _, _ in job.looks()]
    assert ops[0] == "aten.mul.Tensor" and ops[-2:] == ["aten.add.Tensor"] * 2
    files = sorted(job.out.glob("msmemscope_*/device_cpu/watch_dump/*.bin"))
    assert len(files) == len(ops)
    (first,) = [p for p in files if "aten.mul.Tensor_1-" in p.name]
    assert struct.unpack("<6f", first.read_bytes()) == (0, 2, 4, 6, 8, 10)


# --- arguments ---

MISTAKES = [
    ("watch()", "TypeError", "exactly one tensor or address"),
    ("watch(t, t, name='x')", "TypeError", "exactly one tensor or address"),
    ("watch(t)", "TypeError", "needs name="),
    ("watch(t, name=3)", "TypeError", "needs name="),
    ("watch(t, name='')", "ValueError", "must not be empty"),
    ("watch(t, name='n' * 65)", "ValueError", "longer than 64 characters"),
    ("watch(t, name='x', dump_nums='1')", "TypeError", "dump_nums must be an int"),
    ("watch(t, name='x', dump_nums=0)", "ValueError", "-1 (no limit) or 1 and more"),
    ("watch(t, name='x', dump_nums=-2)", "ValueError", "-1 (no limit) or 1 and more"),
    ("watch(t, name='x', length=3)", "TypeError", "a tensor is watched as a whole"),
    ("watch(4096, name='x')", "TypeError", "an address needs length="),
    ("watch(4096, name='x', length=0)", "TypeError", "length must be 1 or more"),
    ("watch(4096, name='x', length='1')", "TypeError", "length must be an int"),
    ("watch(-1, name='x', length=1)", "TypeError", "the address must be 1 or more"),
    ("watch(True, name='x', length=1)", "TypeError", "expected a tensor or an address"),
    ("watch('t', name='x')", "TypeError", "expected a tensor or an address (int), not str"),
    ("watch(torch.empty(0), name='x')", "ValueError", "no memory of its own"),
    ("watch(torch.empty(3, device='meta'), name='x')", "NotImplementedError", "'meta' cannot be"),
    ("watch(torch.eye(3).to_sparse(), name='x')", "ValueError", "no memory of its own"),
    ("remove()", "TypeError", "exactly one tensor or address"),
    ("remove(None)", "TypeError", "expected a tensor or an address"),
    ("remove(4096, length=0)", "TypeError", "length must be 1 or more"),
]


def test_mistakes(job):
    tries = [call for call, _, _ in MISTAKES]
    r = job(f"""
import json
t = torch.zeros(3)
said = []
for call in {tries!r}:
    try:
        eval("watcher." + call)
        said.append("nothing")
    except Exception as why:
        said.append(type(why).__name__ + ": " + str(why))
print(json.dumps(said))
""")
    for (call, kind, words), said in zip(MISTAKES, json.loads(r.stdout)):
        assert said.startswith(kind + ": ") and words in said, (call, said)
    assert r.stderr == b"" and not job.out.exists()  # nothing was begun


def test_too_many_blocks_are_said(record):
    code = (
        "import msmemscope, ctypes\nb = ctypes.create_string_buffer(1000)\n"
        "for i in range(257):\n"
        "    msmemscope.watcher.watch(ctypes.addressof(b) + i, length=1, name=f'b{i}')\n"
    )
    r = subprocess.run(
        [sys.executable, "-c", code],
        env=record.env(PYTHONPATH=record.build / "python"),
        cwd=record.tmp,
        capture_output=True,
        timeout=60,
    )
    assert r.returncode == 0
    assert b"Error: 'b256' is not watched: 256 blocks are watched already\n" in r.stderr
