# SPDX-License-Identifier: MulanPSL-2.0
"""Operators of a real PyTorch, the tensors they use, and the memory of those on the CPU."""

import collections
import json
import pathlib

import pytest

from python_jobs import Jobs
from torches import every_torch

TARGETS = pathlib.Path(__file__).resolve().parents[1] / "targets/python"
ALL = 'msmemscope.config(events="alloc,free,launch,access", device="npu,cpu", analysis="")\n'
HOST_HOOK = "libsonde_host_hook.so"

torches = pytest.mark.parametrize("torch", every_torch())


@pytest.fixture
def jobs(build, tmp_path):
    jobs = Jobs(build, tmp_path)
    yield jobs
    jobs.end()


@pytest.fixture
def run(jobs):
    def run(torch, code, *args, env=None, **kw):
        left = jobs.run(torch, code, *args, env={"OMP_NUM_THREADS": 1, **(env or {})}, **kw)
        assert left.returncode == 0, left
        assert "are not collected" not in left.stderr, left
        assert "do not work" not in left.stderr, left
        return left

    return run


def op(row):
    """aten.mm.default of torch._ops.aten.mm.default"""
    assert row.name.startswith("torch._ops."), row
    return row.name[len("torch._ops.") :]


def check_pairs(rows):
    """Operators of a thread end in the opposite order of their beginnings; accesses lie inside."""
    running = collections.defaultdict(list)
    for row in rows:
        stack = running[row.pid, row.tid]
        if row.type == "ATEN_START":
            stack.append((row.name, row.device))
        elif row.type == "ATEN_END":
            assert stack and stack.pop() == (row.name, row.device), row
        elif row.event == "ACCESS":
            assert stack and stack[-1][0] == row.name, row
    assert not any(running.values()), running


# What is done, and what must be told of it: `<` read, `>` written to, by the name of the tensor.
# Results that nobody gave a name are `?`.
EXACT = [
    ("a.mm(b)", "aten.mm.default", "<a[2, 3] <b[3, 2] >?[2, 2]"),
    ("a.add_(1)", "aten.add_.Tensor", ">a[2, 3]"),
    ("a.mul_(c)", "aten.mul_.Tensor", ">a[2, 3] <c[2, 3]"),
    ("torch.add(a, c, out=d)", "aten.add.out", "<a[2, 3] <c[2, 3] >d[2, 3]"),
    ("torch.add(a, c, out=torch.empty(0))", "aten.add.out", "<a[2, 3] <c[2, 3] >?[2, 3]"),
    ("torch.max(a, 1, out=(m, i))", "aten.max.dim_max", "<a[2, 3] >m[2] >i[2]"),
    ("a.view(6)", "aten.view.default", ""),
    ("a.t()", "aten.t.default", ""),
    ("a.split(1)", "aten.split.Tensor", ""),
    ("torch.cat([a, c])", "aten.cat.default", "<a[2, 3] <c[2, 3] >?[4, 3]"),
    ("torch.cat((a, c), out=e)", "aten.cat.out", "<a[2, 3] <c[2, 3] >e[4, 3]"),
    ("torch.stack([a, a])", "aten.stack.default", "<a[2, 3] <a[2, 3] >?[2, 2, 3]"),
    ("torch.empty_like(a)", "aten.empty_like.default", ""),
    ("torch.empty(4)", "aten.empty.memory_format", ""),
    ("a.new_empty(4)", "aten.new_empty.default", ""),
    ("torch.zeros_like(a)", "aten.zeros_like.default", ">?[2, 3]"),
    ("a.new_zeros(4)", "aten.new_zeros.default", ">?[4]"),
    ("torch.ones(2, 2)", "aten.ones.default", ">?[2, 2]"),
    ("aten.native_dropout(a, 0.5, True)", "aten.native_dropout.default", "<a[2, 3] >?[2, 3] >?[2, 3]"),
    ("a.index_put_((j,), z)", "aten.index_put_.default", ">a[2, 3] <j[1] <z[]"),
    ("a[:, j]", "aten.index.Tensor", "<a[2, 3] <j[1] >?[2, 1]"),
    (
        "aten.embedding_dense_backward(a, k, 5, -1, False)",
        "aten.embedding_dense_backward.default",
        "<a[2, 3] <k[2] >?[5, 3]",
    ),
    ("torch._foreach_add_([a, c], 1.0)", "aten._foreach_add_.Scalar", ">a[2, 3] >c[2, 3]"),
    ("aten.convolution(x, w, None, [1], [0], [1], False, [0], 1)", "aten.convolution.default",
     "<x[1, 1, 4] <w[1, 1, 2] >?[1, 1, 3]"),
    ("a.to(torch.float64)", "aten._to_copy.default", "<a[2, 3] >?[2, 3]"),
    ("z.item()", "aten._local_scalar_dense.default", "<z[]"),
    ("a.sum()", "aten.sum.default", "<a[2, 3] >?[]"),
]

EXACT_JOB = """
import json, torch
aten = torch.ops.aten
a, b, c, d, e = (torch.ones(*s) for s in ((2, 3), (3, 2), (2, 3), (2, 3), (4, 3)))
m, i, j, k = torch.ones(2), torch.tensor([0, 0]), torch.tensor([1]), torch.tensor([1, 2])
z, x, w = torch.tensor(5.0), torch.ones(1, 1, 4), torch.ones(1, 1, 2)
named = {n: v.data_ptr() for n, v in list(globals().items()) if type(v) is torch.Tensor}
msmemscope.start()
for line in json.loads(sys.argv[1]):
    msmemscope.step()
    exec(line)
msmemscope.stop()
print(json.dumps(named))
"""


@torches
def test_every_operator_tells_what_it_does_to_its_tensors(run, torch):
    left = run(torch, "import torch\n" + ALL + EXACT_JOB, json.dumps([e[0] for e in EXACT]))
    names = {f"0x{p:016x}": n for n, p in json.loads(left.stdout).items()}
    steps, told = [], None
    for row in left.rows:
        if row.type == "STEP":
            told = []
            steps.append(told)
        elif row.event == "OP_LAUNCH":
            told.append((row.type[5:], op(row)))
        elif row.event == "ACCESS":
            shape = row.attr["shape"]
            assert shape[:11] == "torch.Size(" and shape[-1] == ")", row
            sign = {"READ": "<", "WRITE": ">"}[row.type]
            told.append((sign + names.get(row.ptr, "?") + shape[11:-1], op(row)))
    assert len(steps) == len(EXACT)
    for (line, name, accesses), rows in zip(EXACT, steps):
        rows = [what for what, who in rows if who == name]
        assert rows[0] == "START" and rows[-1] == "END", line
        got = " ".join(rows[1:-1])
        assert got == accesses, line


@torches
def test_attributes_of_an_access(run, torch):
    left = run(
        torch,
        "import torch\n"
        + ALL
        + """
x = torch.ones(4, 6, dtype=torch.int16)
msmemscope.start()
y = x[1:3] + x[1:3]
msmemscope.stop()
print(x.data_ptr(), y.data_ptr())
""",
    )
    x, y = map(int, left.stdout.split())
    reads = [r for r in left.of("ACCESS", "READ") if op(r) == "aten.add.Tensor"]
    (write,) = [r for r in left.of("ACCESS", "WRITE") if op(r) == "aten.add.Tensor"]
    assert [int(r.ptr, 16) for r in reads] == [x + 12, x + 12]
    assert int(write.ptr, 16) == y
    (block,) = [r for r in left.of("MALLOC") if int(r.ptr, 16) == x]
    for row in (*reads, write):
        assert row.device == "cpu"
        assert row.attr["type"] == "HOST" and row.attr["dtype"] == "torch.int16", row
        assert row.attr["shape"] == "torch.Size([2, 6])" and row.attr["size"] == "24", row
    assert reads[0].attr["allocation_id"] == block.attr["allocation_id"]
    assert write.attr["allocation_id"] != block.attr["allocation_id"]


TRAIN = """
import torch
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.GELU(), torch.nn.Dropout(0.2),
                            torch.nn.LayerNorm(32), torch.nn.Linear(32, 3))
adam = torch.optim.Adam(model.parameters())

def step():
    adam.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(torch.randn(9, 6)), torch.randint(0, 3, (9,)))
    loss.backward()
    adam.step()
    return loss.item().hex()

losses = [step()]
if sys.argv[1] == "record":
    msmemscope.start()
for _ in range(4):
    losses.append(step())
    if sys.argv[1] == "record":
        msmemscope.step()
if sys.argv[1] == "record":
    msmemscope.stop()
losses.append(step())
print(losses, [float(p.detach().double().sum()).hex() for p in model.parameters()])
"""


@torches
@pytest.mark.parametrize("hook", [None, HOST_HOOK])
def test_training_computes_the_same(run, jobs, torch, hook):
    env = jobs.recipe([hook]) if hook else {}
    plain = run(torch, TRAIN, "plain")
    left = run(torch, ALL + TRAIN, "record", env=env)
    assert left.stdout == plain.stdout
    check_pairs(left.rows)
    steps = [r for r in left.rows if r.type == "STEP"]
    assert [(r.name, r.device) for r in steps] == [(str(n), "cpu") for n in range(1, 5)]
    # Every step runs the same operators.
    by_step = collections.defaultdict(list)
    n = 0
    for row in left.rows:
        n += row.type == "STEP"
        if row.type == "ATEN_START":
            by_step[n].append(op(row))
    assert by_step[0] == by_step[1] == by_step[2] == by_step[3] and not by_step[4]
    assert any("backward" in name for name in by_step[0])
    assert all("allocation_id" in r.attr for r in left.of("ACCESS")), left


@torches
def test_corners_of_torch_are_left_alone(run, torch):
    code = f"sys.argv[0] = {str(TARGETS / 'torch_corners.py')!r}\nexec(open(sys.argv[0]).read())\n"
    plain = run(torch, code, timeout=100)
    left = run(torch, code, "record", timeout=100)
    assert left.stdout == plain.stdout
    mine = [p for p in left.processes if any(r.type == "STOP_TRACE" for r in p.rows)]
    assert len(mine) == 1
    for process in left.processes:
        check_pairs(process.rows)
    assert len(left.processes) == 3, "the workers of a loader are recorded, too"


@torches
def test_what_is_not_asked_for_is_not_there(run, torch):
    left = run(
        torch,
        """
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as stack
x = torch.ones(3)
x + 1
for events, device in (("alloc,free", "npu"), ("", "npu,cpu"), ("launch", "npu,cpu")):
    msmemscope.config(events=events, device=device, analysis="")
    msmemscope.start()
    print(len(stack()))
    x * 2
    msmemscope.stop()
    print(len(stack()))
    x - 3
""",
    )
    assert left.stdout.split() == ["0", "0", "0", "0", "1", "0"]
    rows = [r for r in left.rows if r.event != "SYSTEM"]
    assert [(r.type, op(r)) for r in rows] == [
        ("ATEN_START", "aten.mul.Tensor"),
        ("ATEN_END", "aten.mul.Tensor"),
    ]


@torches
def test_torch_may_come_later(run, torch):
    left = run(torch, ALL + "msmemscope.start()\nimport torch\ntorch.ones(3) + 1\nmsmemscope.stop()\n")
    assert "aten.add.Tensor" in [op(r) for r in left.of("OP_LAUNCH", "ATEN_START")]
    check_pairs(left.rows)


@torches
def test_modes_begin_and_end_in_any_order(run, torch):
    left = run(
        torch,
        "import torch\n"
        + ALL
        + """
from torch.utils import _python_dispatch as modes
x = torch.ones(3)

class Mode(modes.TorchDispatchMode):
    def __init__(self, name):
        super().__init__()
        self.name, self.seen = name, []
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))

def names():
    return [getattr(m, "name", "ours") for m in modes._get_current_dispatch_mode_stack()]

a, b, c = Mode("a"), Mode("b"), Mode("c")
a.__enter__()
msmemscope.start()
b.__enter__()
c.__enter__()
assert names() == ["a", "ours", "b", "c"], names()
x.sin()
msmemscope.stop()
assert names() == ["a", "b", "c"], names()
x.cos()
c.__exit__(None, None, None)
b.__exit__(None, None, None)
msmemscope.start()
a_seen = list(a.seen)
assert names() == ["a", "ours"], names()
msmemscope.start()
assert names() == ["a", "ours"], names()
x.exp()
msmemscope.stop()
assert names() == ["a"], names()
a.__exit__(None, None, None)
assert not names()
assert a.seen == ["aten.sin.default", "aten.cos.default", "aten.exp.default"], a.seen
assert b.seen == c.seen == a.seen[:2], (b.seen, c.seen)
assert not getattr(modes, "_is_in_torch_dispatch_mode", False)
""",
    )
    assert [op(r) for r in left.of("OP_LAUNCH", "ATEN_START")] == [
        "aten.sin.default",
        "aten.exp.default",
    ]


@torches
def test_threads(run, torch):
    left = run(
        torch,
        "import torch, threading\n"
        + ALL
        + """
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as stack
x = torch.ones(3)
before, go, done = threading.Event(), threading.Event(), threading.Event()

def early():  # is there before recording begins
    before.set()
    go.wait()
    x.sin()
    done.set()

def later():
    x.cos()
    assert len(stack()) == 1
    y = torch.ones(2, requires_grad=True)
    (y * 2).sum().backward()

thread = threading.Thread(target=early)
thread.start()
before.wait()
msmemscope.start()
go.set()
done.wait()
other = threading.Thread(target=later)
other.start()
other.join()
stopper = threading.Thread(target=msmemscope.stop)
stopper.start()
stopper.join()
assert len(stack()) == 1  # nobody can take it off from there
x.exp()
for _ in range(1000):
    if not stack():
        break
    time.sleep(0)
assert not stack(), "it stays"
x.tan()
thread.join()
print(other.native_id if hasattr(other, "native_id") else 0)
""",
    )
    rows = left.of("OP_LAUNCH", "ATEN_START")
    names = [op(r) for r in rows]
    assert "aten.cos.default" in names and "aten.ones_like.default" in names
    assert not {"aten.sin.default", "aten.exp.default", "aten.tan.default"} & set(names)
    assert {r.tid for r in rows} == {left.stdout.strip()}
    check_pairs(left.rows)


@torches
def test_stopped_inside_an_operator(run, torch):
    """By a class that dispatches by itself, or a mode of the program's."""
    left = run(
        torch,
        "import torch\n"
        + ALL
        + """
from torch.utils import _python_dispatch as modes
x = torch.ones(3)

class Mode(modes.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        msmemscope.stop()
        return func(*args, **(kwargs or {}))

with Mode():
    msmemscope.start()  # above it
    print(float((x + 1).sum()))
for _ in range(1000):
    if not modes._get_current_dispatch_mode_stack():
        break
    time.sleep(0)
assert not modes._get_current_dispatch_mode_stack()
msmemscope.start()
x * 2
msmemscope.stop()
""",
    )
    assert left.stdout == "6.0\n"
    names = [op(r) for r in left.of("OP_LAUNCH", "ATEN_START")]
    assert names[-1] == "aten.mul.Tensor"


@torches
def test_three_hundred_windows(run, torch):
    left = run(
        torch,
        "import torch\n"
        + ALL
        + """
import gc
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as stack

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

x = torch.ones(50)
sizes = []
for n in range(300):
    msmemscope.start()
    y = x + 1
    y.mul_(x)
    msmemscope.stop()
    assert not stack()
    if n % 100 == 99:
        gc.collect()
        sizes.append((len(gc.get_objects()), resident()))
objects, memory = zip(*sizes)
assert objects[2] - objects[0] < 200, objects
assert memory[2] - memory[0] < 8 << 20, memory
""",
        timeout=100,
    )
    names = [op(r) for r in left.of("OP_LAUNCH", "ATEN_START")]
    assert collections.Counter(names) == {"aten.add.Tensor": 300, "aten.mul_.Tensor": 300}
    check_pairs(left.rows)


STORAGES = """
import torch
x = torch.ones(1000)           # there before
msmemscope.start()
a = torch.ones(2000)
b = a[500:].view(-1, 2)        # the same memory
c = a.clone()
d = torch.tensor([1.0] * 3000)
e = d.to(torch.float64)
del a
msmemscope.step()              # 1: b still holds it
del b
msmemscope.step()              # 2: now it is gone
c.resize_(4000)                # other memory
c.zero_()
msmemscope.step()              # 3
saved = torch.ones(5000, requires_grad=True)
loss = (saved * 2).exp().sum()  # held by the graph alone
msmemscope.step()              # 4
del loss
msmemscope.step()              # 5
msmemscope.stop()
del c, d
msmemscope.start()
msmemscope.step()              # 6
msmemscope.stop()
print(x.data_ptr())
"""


@torches
def test_memory_of_the_cpu_without_a_preload(run, torch):
    left = run(torch, 'msmemscope.config(device="cpu", events="alloc,free", analysis="")\n' + STORAGES)
    alive, steps = {}, []
    for row in left.rows:
        if row.event in ("MALLOC", "FREE"):
            assert (row.type, row.device) == ("HOST", "cpu")
        if row.event == "MALLOC":
            alive[row.attr["allocation_id"]] = int(row.attr["size"]) // 4
        elif row.event == "FREE":
            del alive[row.attr["allocation_id"]]
        elif row.type == "STEP":
            steps.append(sorted(n for n in alive.values() if n >= 1000))
    assert steps[0] == [1000, 2000, 2000, 3000, 6000]
    assert steps[1] == [1000, 2000, 3000, 6000]
    assert steps[2] == [1000, 3000, 4000, 6000]
    assert steps[3] == [1000, 3000, 4000, 5000, 5000, 6000]  # exp() keeps its result
    assert steps[4] == [1000, 3000, 4000, 5000, 6000]
    assert steps[5] == [1000, 5000, 6000]
    (first,) = [r for r in left.of("MALLOC") if int(r.ptr, 16) == int(left.stdout)]
    assert first.attr["shadow"] == "true"
    assert not left.of("ACCESS") and not left.of("OP_LAUNCH")


@torches
def test_memory_of_the_cpu_is_told_once(run, jobs, torch):
    """With malloc() hooked, that tells of it, and accesses lie in what it told."""
    left = run(
        torch,
        ALL
        + """
import torch
msmemscope.start()
a = torch.ones(123457)
b = a + 1
msmemscope.stop()
print(a.data_ptr(), b.data_ptr())
""",
        env=jobs.recipe([HOST_HOOK]),
    )
    ids = {}
    for pointer in map(int, left.stdout.split()):
        around = [
            r
            for r in left.of("MALLOC", "HOST")
            if int(r.ptr, 16) <= pointer < int(r.ptr, 16) + int(r.attr["size"])
        ]
        assert len(around) == 1, around
        ids[f"0x{pointer:016x}"] = around[0].attr["allocation_id"]
    accesses = [r for r in left.of("ACCESS") if r.ptr in ids]
    assert len(accesses) == 3
    assert all(r.attr["allocation_id"] == ids[r.ptr] for r in accesses)


@torches
def test_operators_own_what_they_make(run, torch):
    left = run(
        torch,
        'msmemscope.config(device="cpu", events="alloc,free", analysis="decompose")\n'
        + "import torch\nmsmemscope.start()\na = torch.ones(777)\nmsmemscope.stop()\n",
    )
    (row,) = [r for r in left.of("MALLOC") if r.attr["size"] == str(777 * 4)]
    assert row.attr["owner"].split("@")[-1] == "ops", row
    assert not left.of("ACCESS") and not left.of("OP_LAUNCH")


@torches
def test_children(run, torch):
    """Of fork() and of torch's own way to start processes."""
    left = run(
        torch,
        "import torch\n"
        + ALL
        + """
x = torch.ones(3)
msmemscope.start()
pid = os.fork()
if pid == 0:
    x.sin()
    msmemscope.stop()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
x.cos()
msmemscope.stop()
print(pid)
""",
    )
    child = int(left.stdout)
    for process in left.processes:
        names = [op(r) for r in process.rows if r.type == "ATEN_START"]
        assert names == ["aten.sin.default" if process.pid == child else "aten.cos.default"]
    assert len(left.processes) == 2


@torches
def test_the_interpreter_ends_while_recording(run, torch):
    """With tensors in reference cycles and in globals, and threads at work."""
    run(
        torch,
        "import torch, threading\n"
        + ALL
        + """
class Cycle:
    def __init__(self):
        self.me, self.tensor = self, torch.ones(100)
    def __del__(self):
        self.tensor + 1

cycles = [Cycle() for _ in range(20)]
def work():
    while True:
        torch.ones(10) + 1
msmemscope.start()
kept = [torch.ones(100) for _ in range(100)]
threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
""",
    )
