# SPDX-License-Identifier: MulanPSL-2.0
"""Steps of unmodified PyTorch programs (sonde._steps), with every PyTorch there is, and
sonde.step()."""

import subprocess
import sys

import pytest
import torches
from daemon import Daemon
from recording import clean_env
from waiting import wait_until

# How many steps each way of training has told, each in a process of its own. `made` optimizers
# share nothing with those of another way.
COMMON = """
import os, sys
{before}
import torch
{after}
from sonde import _monitor

torch.set_num_threads(1)
if torch.__version__ >= "2":
    import torch._dynamo  # else every process that is forked does it


def optimizer(cls=torch.optim.SGD, **more):
    p = torch.nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    return cls([p], lr=0.1, **more)


def told(way):
    child, before = os.fork(), _monitor.steps()
    if child == 0:
        code = 99
        try:
            way()
            code = _monitor.steps() - before
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

"""

WAYS = '''
def one():
    a = optimizer()
    for _ in range(10):
        a.step()


def several_per_iteration():
    made = [optimizer(), optimizer(torch.optim.Adam), optimizer()]
    for _ in range(10):
        for o in made:
            o.step()


def one_per_parameter():
    made = [optimizer() for _ in range(40)]
    for _ in range(10):
        for o in made:
            o.step()


def accumulated():
    model = torch.nn.Linear(2, 2)
    o = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in range(40):
        model(torch.ones(2)).sum().backward()
        if batch % 4 == 3:
            o.step()
            o.zero_grad()


def busiest():
    """As critic and generator of a GAN."""
    many, few = optimizer(), optimizer()
    for _ in range(4):
        for _ in range(5):
            many.step()
        few.step()


def phases():
    """The first step of the second optimizer might belong to the iteration before."""
    for o in (optimizer(), optimizer(torch.optim.Adam)):
        for _ in range(10):
            o.step()


def made_again():
    """The new one takes the place of the one that has gone, or that has the same parameters."""
    model = torch.nn.Linear(2, 2)
    kept = []
    for _ in range(3):
        o = torch.optim.SGD(model.parameters(), lr=0.1)
        kept.append(o)
        for _ in range(5):
            o.step()
    for _ in range(3):
        o = optimizer(torch.optim.Adam)
        for _ in range(5):
            o.step()


def once_an_epoch():
    often, seldom = optimizer(), optimizer()
    for _ in range(3):
        for _ in range(30):
            often.step()
        seldom.step()


def skipped():
    """As a scaler of gradients does it, where one of them is infinite."""
    a, b = optimizer(), optimizer()
    for i in range(12):
        a.step()
        if i != 5:
            b.step()


def repeated_inside():
    """As DeepSpeed steps: once for each group of parameters."""
    import types
    module = types.ModuleType("deepspeed.runtime.engine")
    exec(ENGINE, vars(module))
    engine = module.Engine(optimizer())
    for _ in range(10):
        engine.step()


def wrapped():
    """One inside the other, each of a class of its own."""
    class Outer(torch.optim.SGD):
        def step(self, closure=None):
            for inner in self.inner:
                inner.step()
            return super().step(closure)

    o = optimizer(Outer)
    o.inner = [optimizer(), optimizer(torch.optim.Adam)]
    for _ in range(10):
        o.step()


def lbfgs():
    model = torch.nn.Linear(2, 2)
    o = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)

    def closure():
        o.zero_grad()
        loss = model(torch.ones(2)).pow(2).sum()
        loss.backward()
        return loss

    for _ in range(10):
        o.step(closure)


def inherited():
    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    mine, plain = optimizer(Mine), optimizer()
    for _ in range(10):
        mine.step()
        plain.step()


def scheduled():
    o = optimizer()
    schedule = torch.optim.lr_scheduler.StepLR(o, 1)
    for _ in range(10):
        o.step()
        schedule.step()


def failing():
    class Fails(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            if self.fails:
                raise MemoryError

    o = optimizer(Fails)
    for i in range(20):
        o.fails = i % 2
        try:
            o.step()
        except MemoryError:
            pass


def told_by_the_program():
    import sonde
    o = optimizer()
    for _ in range(10):
        o.step()
        sonde.step()


def with_closure():
    o = optimizer(torch.optim.Adam)
    for _ in range(10):
        o.step(lambda: torch.ones(1))

ENGINE = """
class Engine:
    def __init__(self, optimizer):
        self.optimizer, self.global_steps = optimizer, 0

    def step(self):
        for _ in range(3):
            self.optimizer.step()
        self.global_steps += 1
"""

print({way.__name__: told(way) for way in (
    one, several_per_iteration, one_per_parameter, accumulated, busiest, phases, made_again,
    once_an_epoch, skipped, repeated_inside, wrapped, lbfgs, inherited, scheduled, failing,
    told_by_the_program, with_closure)})
'''

EXPECTED = {
    "one": 10,
    "several_per_iteration": 10,
    "one_per_parameter": 10,
    "accumulated": 10,
    "busiest": 9,  # five before the other one is known, then one for each round of both
    "phases": 19,
    "made_again": 30 - 1,  # the first one after another model's might belong to that
    "once_an_epoch": 90,
    "skipped": 12,
    "repeated_inside": 10,
    "wrapped": 10,
    "lbfgs": 10,
    "inherited": 10,
    "scheduled": 10,
    "failing": 10,
    "told_by_the_program": 11,  # one before it is clear that the program tells
    "with_closure": 10,
}


@pytest.fixture
def run(build, tmp_path):
    def run(code, python=sys.executable, **env):
        script = tmp_path / "program.py"
        script.write_text(code)
        r = subprocess.run(
            [python, script],
            cwd=tmp_path,
            env=clean_env(tmp_path, PYTHONPATH=build / "python", **env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=120,
        )
        assert r.returncode == 0, r.stdout + r.stderr
        return r

    return run


@pytest.mark.deadline(120)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("torch", torches.every_torch())
def test_what_is_a_step(run, torch, when):
    """Imported before PyTorch is, and after."""
    places = {"before": "", "after": "", when: "import sonde._steps.for_monitor"}
    r = run(COMMON.format(**places) + WAYS, python=torch.path)
    assert eval(r.stdout) == EXPECTED


@pytest.mark.parametrize("torch", torches.every_torch())
def test_optimizers_are_what_they_were(run, torch):
    """They can be copied and pickled, are not kept alive, and raise what they raise."""
    code = """
import gc, weakref, copy, pickle
name = optimizer(torch.optim.Adam).step.__name__
import sonde._steps.for_monitor
o = optimizer(torch.optim.Adam)
o.step()
state = copy.deepcopy(o.state_dict())
again = pickle.loads(pickle.dumps(o))
again.load_state_dict(state)
again.step()
assert o.step.__name__ == name
try:
    o.step(5)
    raise SystemExit("no exception")
except TypeError:
    pass
gone = weakref.ref(o)
del o, again
gc.collect()
assert gone() is None
print("done")
"""
    assert run(COMMON.format(before="", after="") + code, python=torch.path).stdout == "done\n"


# As torch_npu does it: by functions that the loader binds, past which ctypes goes.
TRAIN = """
import ctypes, sys, time
import torch
assert ctypes.CDLL(None).rtSetDevice(0) == 0
p = torch.nn.Parameter(torch.ones(2))
p.grad = torch.ones(2)
o = torch.optim.SGD([p], lr=0.1)
while True:
    o.step()
    time.sleep(0.01)
"""


@pytest.mark.deadline(120)
@pytest.mark.parametrize("torch", torches.every_torch())
def test_an_unmodified_program(build, tmp_path, torch):
    """Nothing is imported, nothing on Python's path: the module comes by itself."""
    (tmp_path / "train.py").write_text(TRAIN)
    with Daemon(build, tmp_path, ipc=True) as d:
        env = clean_env(
            tmp_path,
            LD_PRELOAD=f"{build}/lib/libsonde_monitor.so:{build}/sim/libruntime.so",
            KINETO_IPC_SOCKET_DIR=d.ipc_dir,
            MSMONITOR_USE_DAEMON=1,
        )
        p = subprocess.Popen([torch.path, tmp_path / "train.py"], env=env)
        try:
            wait_until(lambda: d.call({"fn": "getStatus"})["current_step"] > 10, 60)
        finally:
            p.kill()
            p.wait()


MINDSPORE = """
class Cell:
    def __call__(self, *args):
        return self.construct(*args)

class Optimizer(Cell):
    def construct(self, gradients):
        return True

class Momentum(Optimizer):
    pass

class TrainOneStepCell(Cell):
    def __init__(self, network, optimizer):
        self.network, self.optimizer = network, optimizer

    def construct(self, *args):
        self.network(*args)
        return self.optimizer([])
"""


def test_mindspore(run, tmp_path):
    """A package that is built like it: cells, and functions that call an optimizer."""
    package = tmp_path / "mindspore"
    package.mkdir()
    (package / "__init__.py").write_text("from . import nn\n")
    (package / "nn.py").write_text(MINDSPORE)
    r = run(
        """
import sonde._steps.for_monitor
from mindspore import nn
from sonde import _monitor
class Net(nn.Cell):
    def construct(self, x):
        return x
train = nn.TrainOneStepCell(Net(), nn.Momentum())
for _ in range(5):
    assert train(1) is True
d, g = nn.Momentum(), nn.Momentum()
one = _monitor.steps()
sonde._steps._cells.pattern.forget()
for _ in range(5):
    d([]), g([])
two = _monitor.steps()
sonde._steps.end(_monitor)
assert "__call__" not in vars(nn.Optimizer) and "__call__" not in vars(nn.TrainOneStepCell)
print(one, two - one)
"""
    )
    assert (r.stdout, r.stderr) == ("5 5\n", "")


def test_without_pytorch(run):
    r = run("import sys, sonde._steps\nassert 'torch' not in sys.modules\nprint('done')")
    assert (r.stdout, r.stderr) == ("done\n", "")


def test_step_of_the_package(run):
    r = run(
        """
import sonde
from sonde import _monitor, step
for _ in range(3):
    sonde.step()
    step()
print(_monitor.steps())
"""
    )
    assert (r.stdout, r.stderr) == ("6\n", "")


def test_the_daemon_knows_the_steps(build, tmp_path):
    """Of a program that does nothing but tell them: no library is preloaded."""
    script = tmp_path / "program.py"
    script.write_text("import sonde, time\nwhile True:\n    sonde.step()\n    time.sleep(0.01)\n")
    with Daemon(build, tmp_path, ipc=True) as d:
        env = {"KINETO_IPC_SOCKET_DIR": d.ipc_dir, "MSMONITOR_USE_DAEMON": "1"}
        env = clean_env(tmp_path, PYTHONPATH=build / "python", **env)
        p = subprocess.Popen([sys.executable, script], env=env, stdin=subprocess.DEVNULL)
        try:
            wait_until(lambda: d.call({"fn": "getStatus"})["current_step"] > 0)
            first = d.call({"fn": "getStatus"})
            assert (first["npumonitor"], first["nputrace"]) == ("Idle", "Idle")
            wait_until(lambda: d.call({"fn": "getStatus"})["current_step"] > first["current_step"])
        finally:
            p.kill()
            p.wait()
