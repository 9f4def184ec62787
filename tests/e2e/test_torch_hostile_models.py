# SPDX-License-Identifier: MulanPSL-2.0
"""Models that do what no model should: recorded, they do the same as alone."""

import subprocess

import pytest
from torches import every_torch

BEGIN = """
import torch

class Base(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)
"""
MODELS = {
    "wraps itself": """
class Model(Base):
    def __init__(self):
        super().__init__()
        self._modules["_orig_mod"] = self
""",
    "contains itself alone": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._modules["module"] = self

    def forward(self, x):
        return x * 2
""",
    "is called by a static method": """
class Model(Base):
    @staticmethod
    def __call__(x):
        return x * 2
""",
    "is called by an object": """
class Call:
    def __call__(self, x):
        return x * 2

class Model(Base):
    __call__ = Call()
""",
    "has modules without end": """
class Model(Base):
    def named_modules(self, *args, **kwargs):
        while True:
            yield "again", self
""",
    "raises what cannot be printed": """
class Bad(Exception):
    def __str__(self):
        raise ValueError("no words")

class Parameters(dict):
    def values(self):
        raise Bad()

class Model(Base):
    def __init__(self):
        super().__init__()
        self._buffers = Parameters()
""",
    "has names that command a terminal": """
class Model(Base):
    def __init__(self):
        super().__init__()
        for name in ("\\033]0;title\\007", "</script>", "a\\nb", "\\ud800", "x" * 5000, "(no module)"):
            self._modules[name] = torch.nn.Linear(2, 2)
""",
}
END = """
model = Model()
with torch.no_grad():
    for i in range(40):
        y = model(torch.full((2, 4), float(i)))
print("done", float(y.sum()) == float(y.sum()), tuple(y.shape))
"""

# Backward passes that raise, begin others inside of them, fork, run in many threads, are never run, or are
# freed by another thread; what they allocate is asked about in each.
BACKWARD = """
import gc, os, threading, torch

torch.manual_seed(0)
torch.set_num_threads(1)

def made(act):
    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient + act(torch.ones(5000))
    return Made

def raises(t):
    raise ValueError("in the backward pass")

def nests(t):
    with torch.enable_grad():
        a = torch.ones(3000, requires_grad=True)
        (a * a).sum().backward()
    return a.grad.sum() * 0

def forks(t):
    child = os.fork()
    if child == 0:
        torch.ones(70000)
        os._exit(3)
    return os.waitpid(child, 0)[1]

class Net(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.layer, self.function = torch.nn.Linear(64, 64), made(act)

    def forward(self, x):
        return self.function.apply(self.layer(x))

def run(act, batch=64):
    net = Net(act)
    try:
        net(torch.ones(batch, 64, requires_grad=True)).sum().backward()
    except Exception as why:
        print(type(why).__name__, why)
    else:
        print(float(net.layer.weight.grad.sum()))

def work(i, out):
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(0.01 * (i + 1))
    for _ in range(20):
        x = torch.ones(32, 64, requires_grad=True)
        (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        (g * g).sum().backward()
    out[i] = [float(p.grad.sum()) for p in net.parameters() if p.grad is not None]

for act in (raises, nests, forks):
    run(act)
out = [None] * 6
threads = [threading.Thread(target=work, args=(i, out)) for i in range(6)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(out)
graphs = [Net(nests)(torch.ones(64, 64, requires_grad=True)).sum() for _ in range(10)]
t = threading.Thread(target=graphs.clear)
t.start()
t.join()
y = x = torch.ones(1000, requires_grad=True)
for _ in range(20000):
    y = y * 1.0
y.sum().backward()
net = Net(nests)
for _ in range(200):
    net(torch.ones(4, 64)).sum().backward()
del y, graphs
gc.collect()
print(sum(type(o).__name__ == "MadeBackward" for o in gc.get_objects()), "left")
"""


@pytest.mark.deadline(180)
@pytest.mark.parametrize("torch", every_torch())
def test_a_model_that_is_strange(build, tmp_path, torch):
    """One program for all: importing torch takes longest."""
    script = tmp_path / "strange.py"
    parts = [f"def case_{i}():\n" + indent(BEGIN + code + END) for i, code in enumerate(MODELS.values())]
    calls = "".join(f"case_{i}()\n" for i in range(len(parts)))
    script.write_text("\n".join(parts) + "\n" + calls + BACKWARD, encoding="utf-8")
    plain = subprocess.run([torch.path, script], capture_output=True, timeout=60)
    assert (plain.returncode, plain.stdout.count(b"done")) == (0, len(MODELS)), plain.stderr
    assert plain.stdout.endswith(b"\n0 left\n") and b"ValueError in the backward pass" in plain.stdout
    command = [build / "bin/sonde", "mem", "record", "--device=cpu", f"--output={tmp_path / 'out'}"]
    r = subprocess.run(
        [*command, "--analysis=leaks,decompose", "--", torch.path, script],
        capture_output=True,
        timeout=100,
    )
    assert (r.returncode, r.stdout) == (0, plain.stdout), r.stderr
    assert b"\033" not in r.stderr and b"Traceback" not in r.stderr
    r = subprocess.run(
        [build / "bin/sonde", "mem", "owners", "--by=module", tmp_path / "out"], capture_output=True
    )
    assert r.returncode == 0 and b"\033]" not in r.stdout


def indent(text):
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
