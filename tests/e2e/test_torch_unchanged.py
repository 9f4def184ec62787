# SPDX-License-Identifier: MulanPSL-2.0
"""Recording the operators of a real PyTorch changes nothing: not what is computed, not the
modes, threads and processes of the program, nor how it ends."""

import collections
import pathlib

from torch_sections import ALL, check_pairs, op, section, torches
from torch_sections import all_told, run, told  # fixtures

TARGETS = pathlib.Path(__file__).resolve().parents[1] / "targets/python"


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
