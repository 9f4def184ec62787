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


@pytest.mark.deadline(180)
@pytest.mark.parametrize("torch", every_torch())
def test_a_model_that_is_strange(build, tmp_path, torch):
    """One program for all: importing torch takes longest."""
    script = tmp_path / "strange.py"
    parts = [f"def case_{i}():\n" + indent(BEGIN + code + END) for i, code in enumerate(MODELS.values())]
    calls = "".join(f"case_{i}()\n" for i in range(len(parts)))
    script.write_text("\n".join(parts) + "\n" + calls, encoding="utf-8")
    plain = subprocess.run([torch.path, script], capture_output=True, timeout=60)
    assert (plain.returncode, plain.stdout.count(b"done")) == (0, len(MODELS)), plain.stderr
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
