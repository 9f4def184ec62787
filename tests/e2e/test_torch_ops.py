# SPDX-License-Identifier: MulanPSL-2.0
"""Operators of a real PyTorch, the tensors they use, and the memory of those on the CPU.

Importing torch takes seconds, so most of what is tried here runs in one process per torch, in
sections that a mark separates; a test looks at the rows and the output of its own.
"""

import collections
import json
import pathlib

import dumpcheck
import pytest

from python_jobs import Jobs
from torches import a_torch, every_torch

TARGETS = pathlib.Path(__file__).resolve().parents[1] / "targets/python"
ALL = 'msmemscope.config(events="alloc,free,launch,access", device="npu,cpu", analysis="")\n'
HOST_HOOK = "libsonde_host_hook.so"
SECTIONS = {}

RUNNER = """
import contextlib, gc, io, json, torch
out = {}
for name, code in json.loads(sys.argv[1]).items():
    msmemscope.config(events="launch", device="npu,cpu", analysis="")
    msmemscope.start()
    _sonde.mark("section " + name)
    msmemscope.stop()
    names = {"msmemscope": msmemscope, "torch": torch, "os": os, "sys": sys, "time": time}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(code, names)
    names.clear()
    del names
    gc.collect()
    out[name] = said.getvalue()
print(json.dumps(out))
"""

torches = pytest.mark.parametrize("torch", every_torch(), scope="module")


def section(code):
    """The code of a section, for the test below it, which is given `told`."""

    def add(test):
        SECTIONS[test.__name__] = code
        return torches(test)

    return add


class Told:
    def __init__(self, rows, said, processes):
        self.rows, self.said, self.processes = rows, said, processes

    def of(self, event, *types):
        return [r for r in self.rows if r.event == event and (not types or r.type in types)]

    def started(self):
        """The operators, in their order."""
        return [op(r) for r in self.of("OP_LAUNCH", "ATEN_START")]


def check(left):
    assert left.returncode == 0, left
    assert "not collected" not in left.stderr, left
    assert "do not work" not in left.stderr, left
    return left


@pytest.fixture(scope="module")
def all_told(build, tmp_path_factory, torch):
    """{section: Told} of the one process."""
    jobs = Jobs(build, tmp_path_factory.mktemp("torch"))
    env = {"OMP_NUM_THREADS": 1}
    left = check(jobs.run(torch, RUNNER, json.dumps(SECTIONS), env=env, timeout=110))
    said = json.loads(left.stdout)
    processes = left.processes
    main = max(processes, key=lambda p: len(p.rows))
    rows = collections.defaultdict(list)
    name = None
    for row in main.rows:
        if row.event == "MSTX":
            name = row.name.strip('"').split()[-1]
        rows[name].append(row)
    return {name: Told(rows[name], said[name], processes) for name in SECTIONS}


@pytest.fixture
def told(all_told, request):
    mine = all_told[request.function.__name__]
    check_pairs(mine.rows)
    return mine


@pytest.fixture
def run(build, tmp_path):
    """For what needs a process of its own."""
    jobs = Jobs(build, tmp_path)

    def run(torch, code, *args, hooks=(), **kw):
        env = {"OMP_NUM_THREADS": 1, **(jobs.recipe(hooks) if hooks else {})}
        return check(jobs.run(torch, code, *args, env=env, **kw))

    yield run
    jobs.end()


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


# The first section: what is there before is looked for only now and then.
STORAGES = """
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
loss = (saved * 2).exp().sum()  # what it keeps is held by the graph alone
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


@section('msmemscope.config(device="cpu", events="alloc,free", analysis="")\n' + STORAGES)
def test_memory_of_the_cpu_without_a_preload(told):
    alive, steps = {}, []
    for row in told.rows:
        if row.event in ("MALLOC", "FREE"):
            assert (row.type, row.device) == ("HOST", "cpu")
        if row.event == "MALLOC":
            alive[row.attr["allocation_id"]] = int(row.attr["size"]) // 4
        elif row.event == "FREE":
            alive.pop(row.attr["allocation_id"], None)
        elif row.type == "STEP":
            steps.append(sorted(n for n in alive.values() if n >= 1000))
    assert steps[0] == [1000, 2000, 2000, 3000, 6000]
    assert steps[1] == [1000, 2000, 3000, 6000]
    assert steps[2] == [1000, 3000, 4000, 6000]
    assert steps[3] == [1000, 3000, 4000, 5000, 5000, 6000]  # exp() keeps its result
    assert steps[4] == [1000, 3000, 4000, 5000, 6000]
    assert steps[5] == [1000, 5000, 6000]
    (first,) = [r for r in told.of("MALLOC") if int(r.ptr, 16) == int(told.said)]
    assert first.attr["shadow"] == "true"
    assert not told.of("ACCESS") and not told.of("OP_LAUNCH")


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
    (
        "aten.native_dropout(a, 0.5, True)",
        "aten.native_dropout.default",
        "<a[2, 3] >?[2, 3] >?[2, 3]",
    ),
    ("a.index_put_((j,), z)", "aten.index_put_.default", ">a[2, 3] <j[1] <z[]"),
    ("a[:, j]", "aten.index.Tensor", "<a[2, 3] <j[1] >?[2, 1]"),
    (
        "aten.embedding_dense_backward(a, k, 5, -1, False)",
        "aten.embedding_dense_backward.default",
        "<a[2, 3] <k[2] >?[5, 3]",
    ),
    ("torch._foreach_add_([a, c], 1.0)", "aten._foreach_add_.Scalar", ">a[2, 3] >c[2, 3]"),
    (
        "aten.convolution(x, w, None, [1], [0], [1], False, [0], 1)",
        "aten.convolution.default",
        "<x[1, 1, 4] <w[1, 1, 2] >?[1, 1, 3]",
    ),
    ("a.to(torch.float64)", "aten._to_copy.default", "<a[2, 3] >?[2, 3]"),
    ("z.item()", "aten._local_scalar_dense.default", "<z[]"),
    ("a.sum()", "aten.sum.default", "<a[2, 3] >?[]"),
]

EXACT_JOB = ALL + f"LINES = {[e[0] for e in EXACT]!r}" + """
import json
aten = torch.ops.aten
a, b, c, d, e = (torch.ones(*s) for s in ((2, 3), (3, 2), (2, 3), (2, 3), (4, 3)))
m, i, j, k = torch.ones(2), torch.tensor([0, 0]), torch.tensor([1]), torch.tensor([1, 2])
z, x, w = torch.tensor(5.0), torch.ones(1, 1, 4), torch.ones(1, 1, 2)
named = {n: v.data_ptr() for n, v in list(globals().items()) if type(v) is torch.Tensor}
msmemscope.start()
for line in LINES:
    msmemscope.step()
    exec(line)
msmemscope.stop()
print(json.dumps(named))
"""


@section(EXACT_JOB)
def test_every_operator_tells_what_it_does_to_its_tensors(told):
    names = {f"0x{p:016x}": n for n, p in json.loads(told.said).items()}
    steps, now = [], None
    for row in told.rows:
        if row.type == "STEP":
            now = []
            steps.append(now)
        elif row.event == "OP_LAUNCH":
            now.append((row.type[5:], op(row)))
        elif row.event == "ACCESS":
            shape = row.attr["shape"]
            assert shape[:11] == "torch.Size(" and shape[-1] == ")", row
            sign = {"READ": "<", "WRITE": ">"}[row.type]
            now.append((sign + names.get(row.ptr, "?") + shape[11:-1], op(row)))
    assert len(steps) == len(EXACT)
    for (line, name, accesses), rows in zip(EXACT, steps):
        rows = [what for what, who in rows if who == name]
        assert rows[0] == "START" and rows[-1] == "END", line
        assert " ".join(rows[1:-1]) == accesses, line


@section(
    ALL
    + """
x = torch.ones(4, 6, dtype=torch.int16)
msmemscope.start()
y = x[1:3] + x[1:3]
msmemscope.stop()
print(x.data_ptr(), y.data_ptr())
"""
)
def test_attributes_of_an_access(told):
    x, y = map(int, told.said.split())
    reads = [r for r in told.of("ACCESS", "READ") if op(r) == "aten.add.Tensor"]
    (write,) = [r for r in told.of("ACCESS", "WRITE") if op(r) == "aten.add.Tensor"]
    assert [int(r.ptr, 16) for r in reads] == [x + 12, x + 12]
    assert int(write.ptr, 16) == y
    (block,) = [r for r in told.of("MALLOC") if int(r.ptr, 16) == x]
    for row in (*reads, write):
        assert row.device == "cpu"
        assert row.attr["type"] == "HOST" and row.attr["dtype"] == "torch.int16", row
        assert row.attr["shape"] == "torch.Size([2, 6])" and row.attr["size"] == "24", row
    assert reads[0].attr["allocation_id"] == block.attr["allocation_id"]
    assert write.attr["allocation_id"] != block.attr["allocation_id"]


TRAIN = """
def train(record):
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.GELU(), torch.nn.Dropout(0.2),
                                torch.nn.LayerNorm(32), torch.nn.Linear(32, 3))
    adam = torch.optim.Adam(model.parameters())
    losses = []

    def step():
        adam.zero_grad()
        guess = model(torch.randn(9, 6))
        loss = torch.nn.functional.cross_entropy(guess, torch.randint(0, 3, (9,)))
        loss.backward()
        adam.step()
        losses.append(loss.item().hex())

    step()
    if record:
        msmemscope.start()
    for _ in range(4):
        step()
        msmemscope.step()
    msmemscope.stop()
    step()
    return losses, [p.detach().double().sum().item().hex() for p in model.parameters()]

plain, recorded = train(False), train(True)
assert plain == recorded, (plain, recorded)
"""


@section(ALL + TRAIN)
def test_training_computes_the_same(told):
    steps = [r for r in told.rows if r.type == "STEP"]
    assert [r.device for r in steps] == ["cpu"] * 4
    by_step = [[]]
    for row in told.rows:
        if row.type == "STEP":
            by_step.append([])
        elif row.type == "ATEN_START":
            by_step[-1].append(op(row))
    assert by_step[0] == by_step[1] == by_step[2] == by_step[3] and not by_step[4]
    assert any("backward" in name for name in by_step[0])
    assert all("allocation_id" in r.attr for r in told.of("ACCESS"))


@section(
    """
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
"""
)
def test_what_is_not_asked_for_is_not_there(told):
    assert told.said.split() == ["0", "0", "0", "0", "1", "0"]
    rows = [r for r in told.rows if r.event in ("OP_LAUNCH", "ACCESS", "MALLOC", "FREE")]
    assert [(r.type, op(r)) for r in rows] == [
        ("ATEN_START", "aten.mul.Tensor"),
        ("ATEN_END", "aten.mul.Tensor"),
    ]


@section(
    ALL
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
assert names() == ["ours", "a", "b"], names()
x.sin()
msmemscope.stop()
assert names() == ["a", "b"], names()
x.cos()
b.__exit__(None, None, None)
msmemscope.start()
a.__exit__(None, None, None)
assert names() == ["ours"], names()
msmemscope.start()
assert names() == ["ours"], names()
c.__enter__()
x.exp()
msmemscope.stop()
assert names() == ["c"], names()
c.__exit__(None, None, None)
assert not names()
assert a.seen == b.seen == ["aten.sin.default", "aten.cos.default"], (a.seen, b.seen)
assert c.seen == ["aten.exp.default"], c.seen
assert not getattr(modes, "_is_in_torch_dispatch_mode", False)
"""
)
def test_modes_begin_and_end_in_any_order(told):
    assert told.started() == ["aten.sin.default", "aten.exp.default"]


@section(
    ALL
    + """
import threading
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
# Before 2.0 it stays there, without a word.
assert not stack() or torch.__version__ < "2"
x.tan()
msmemscope.start()
msmemscope.stop()
assert not stack()
thread.join()
print(other.native_id)
"""
)
def test_threads(told):
    names = told.started()
    assert "aten.cos.default" in names and "aten.ones_like.default" in names
    assert not {"aten.sin.default", "aten.exp.default", "aten.tan.default"} & set(names)
    assert {r.tid for r in told.of("OP_LAUNCH")} == {told.said.strip()}


@section(
    ALL
    + """
from torch.utils import _python_dispatch as modes
x = torch.ones(3)

class Stopping(torch.Tensor):
    # Dispatches by itself, inside our operator.

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        msmemscope.stop()
        return func(*[x for a in args], **(kwargs or {}))

class Mode(modes.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        msmemscope.stop()
        return func(*args, **(kwargs or {}))

msmemscope.start()
with Mode():
    print(float((x + 1).sum()))
assert not modes._get_current_dispatch_mode_stack()
y = torch.Tensor._make_wrapper_subclass(Stopping, (3,))
msmemscope.start()
y.neg()
assert not modes._get_current_dispatch_mode_stack() or torch.__version__ < "2"
msmemscope.start()
x * 2
msmemscope.stop()
assert not modes._get_current_dispatch_mode_stack()
"""
)
def test_stopped_inside_an_operator(told):
    assert told.said == "6.0\n"
    assert told.started() == ["aten.mul.Tensor"]


@section(
    ALL
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
"""
)
def test_three_hundred_windows(told):
    names = collections.Counter(told.started())
    assert names == {"aten.add.Tensor": 300, "aten.mul_.Tensor": 300}


@section(
    """
msmemscope.config(device="cpu", events="alloc,free", analysis="decompose")
msmemscope.start()
a = torch.ones(777)
msmemscope.stop()
"""
)
def test_operators_own_what_they_make(told):
    (row,) = [r for r in told.of("MALLOC") if r.attr["size"] == str(777 * 4)]
    assert row.attr["owner"].split("@")[-1] == "ops", row
    assert not told.of("ACCESS") and not told.of("OP_LAUNCH")


@section(
    ALL
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
"""
)
def test_a_forked_child_records_its_own(told):
    assert told.started() == ["aten.cos.default"]
    (child,) = [p for p in told.processes if p.pid == int(told.said)]
    rows = [r for r in child.rows if r.event in ("OP_LAUNCH", "ACCESS")]
    assert [op(r) for r in rows if r.type == "ATEN_START"] == ["aten.sin.default"]
    check_pairs(rows)


# --- what needs a process of its own ---


@torches
def test_corners_of_torch_are_left_alone(run, torch):
    code = f"sys.argv[0] = {str(TARGETS / 'torch_corners.py')!r}\nexec(open(sys.argv[0]).read())\n"
    left = run(torch, code, timeout=110)
    assert left.stdout.endswith("same\n"), left.stdout
    processes = left.processes
    assert len(processes) == 3, "the workers of a loader are recorded, too"
    for process in processes:
        check_pairs(process.rows)


@torches
def test_torch_comes_later_and_the_interpreter_ends_while_recording(run, torch):
    """With tensors in reference cycles and in globals, and a thread at work."""
    left = run(
        torch,
        ALL
        + """
msmemscope.start()
import threading, torch

class Cycle:
    def __init__(self):
        self.me, self.tensor = self, torch.ones(100)

    def __del__(self):
        self.tensor + 1

def work():
    while True:
        torch.ones(10) + 1

cycles = [Cycle() for _ in range(20)]
kept = [torch.ones(100) for _ in range(100)]
if sys.version_info >= (3, 14):  # before that the end of a thread that is inside torch is an abort
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.02)
""",
    )
    names = [op(r) for r in left.of("OP_LAUNCH", "ATEN_START")]
    assert names.count("aten.ones.default") >= 120


def test_memory_of_the_cpu_is_told_once(run):
    """With malloc() hooked, that tells of it, and accesses lie in what it told."""
    left = run(
        a_torch(),
        ALL
        + """
import torch
msmemscope.start()
a = torch.ones(123457)
b = a + 1
msmemscope.stop()
print(a.data_ptr(), b.data_ptr())
""",
        hooks=[HOST_HOOK],
    )
    # Everything that Python has allocated stands there, too: only these lines are read.
    pointers = [f"0x{int(p):016x}" for p in left.stdout.split()]
    (dump,) = left.wait().out.glob("*/device_cpu/dump/*.csv")
    with open(dump) as f:
        lines = [line for line in f if any(p in line for p in pointers)]
    for p in pointers:
        mine = [line for line in lines if p in line]
        (made,) = [n for n, line in enumerate(mine) if "MALLOC,HOST" in line and "493828" in line]
        block = dumpcheck.parse_attr(mine[made].split('"')[1])
        accesses = [line for line in mine if ",ACCESS," in line]
        assert len(accesses) == (2 if p == pointers[0] else 1), mine
        for line in accesses:
            attr = dumpcheck.parse_attr(line.split('"')[1])
            assert attr["allocation_id"] == block["allocation_id"], line
