# SPDX-License-Identifier: MulanPSL-2.0
"""Answers name the line of the user's own program, however deep the framework below it is."""

import json
import pathlib
import subprocess

import pytest
from torches import every_torch

# Forty calls of a package between the user's line and the allocation: deeper than what is recorded.
PROGRAM = """
import sys

sys.path.insert(0, {packages!r})
import deep

kept = []


def train_step(n):
    kept.append(deep.Layer().call(40, n))  # here


def main():
    for _ in range(6):
        train_step(3000000)


main()
"""
DEEP = """
class Layer:
    def call(self, depth, n):
        return self.call(depth - 1, n) if depth else self.forward(n)

    def forward(self, n):
        return bytearray(n)
"""


@pytest.fixture
def program(tmp_path):
    packages = tmp_path / "lib/python3/dist-packages"
    packages.mkdir(parents=True)
    (packages / "deep.py").write_text(DEEP)
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(packages=str(packages)))
    return script


def line_of(script, text):
    return 1 + next(i for i, line in enumerate(script.read_text().splitlines()) if text in line)


def record(build, script, out, *options, python="python3"):
    """Without a dump: importing torch alone is a million events."""
    command = [build / "bin/sonde", "mem", "record", "--device=cpu", f"--output={out}", *options]
    r = subprocess.run(
        [*command, "--", python, *filter(None, [script])],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert r.returncode == 0, r.stderr


def ask(build, out, question, *words):
    r = subprocess.run(
        [build / "bin/sonde", "mem", question, *words, out],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert r.returncode == 0, r.stderr
    return r.stdout


def test_a_line_beyond_the_depth_is_recorded(build, tmp_path, program):
    """With the frames that were asked for in front of it, and a word for those in between."""
    out, line = tmp_path / "out", line_of(program, "# here")
    record(build, program, out, "--call-stack=python:3")
    where = f"train_step (train.py:{line})"
    for question in ("show", "peak"):
        said = " ".join(ask(build, out, question).split())
        assert f"{where} via " in said, said
    answer = json.loads(ask(build, out, "peak", "--json"))
    (device,) = answer["devices"]
    site = device["places"][0]
    assert site["where"] == where and "forward" in site["via"] and site["blocks"] == 6
    assert len(site["python_stack"]) == 5, "three that were asked for, what is left out, and the line"
    assert site["python_stack"][3] == "..." and "train.py" in site["python_stack"][4]
    recording = next(out.glob("recording_*"))
    r = subprocess.run([build / "bin/sonde", "mem", "export", recording, "-o", tmp_path / "dump"])
    assert r.returncode == 0
    rows = "".join(p.read_text() for p in (tmp_path / "dump").rglob("*.csv"))
    assert f"...\n{program}({line}): train_step" in rows


def test_people_choose_the_frames_that_they_see(build, tmp_path, program):
    out = tmp_path / "out"
    record(build, program, out, "--call-stack=python:60")
    shown = {f: ask(build, out, "peak", f"--frames={f}") for f in ("all", "user", "4")}
    assert shown["all"].count("deep.py") > 40
    assert shown["user"].count("deep.py") < 5 and "main (train.py" in shown["user"]
    assert shown["4"].count("deep.py") < 5
    r = subprocess.run(
        [build / "bin/sonde", "mem", "peak", "--frames=some", out], capture_output=True, text=True
    )
    assert r.returncode == 2 and "'some' is neither 'all' nor 'user' nor a number" in r.stderr


TORCH_PROGRAM = """
import torch

kept = []


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(512, 512)))

    def forward(self, x):
        return self.body(x)  # forward here


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(5):
    out = net(torch.ones(2048, 512))
    kept.append(out)
    out.sum().backward()  # backward here
    optimizer.step()
"""


@pytest.mark.parametrize("torch", every_torch())
def test_lines_of_a_training(build, tmp_path, torch):
    """A depth of 2 ends inside of torch; the lines are those of the script."""
    script = tmp_path / "train.py"
    script.write_text(TORCH_PROGRAM)
    out = tmp_path / "out"
    record(build, script, out, "--call-stack=python:2", python=torch.path)
    answer = json.loads(ask(build, out, "peak", "--json"))
    sites = {s["where"]: s for s in answer["devices"][0]["places"] if s["bytes"] >= 2048 * 512 * 4}
    forward = [s for w, s in sites.items() if f"(train.py:{line_of(script, '# forward')})" in w]
    assert forward, sites.keys()
    assert "forward" in forward[0]["via"]
    assert all("(train.py:" in w for w in sites), sites.keys()


@pytest.mark.parametrize("depth", [3, 12])
def test_a_line_of_c_beyond_the_depth_is_recorded(build, tmp_path, depth):
    """A hundred calls of the C library between the program's line and malloc()."""
    target = pathlib.Path(__file__).resolve().parents[1] / "targets/deep_library.c"
    where = f"train_step (deep_library.c:{line_of(target, '/* here */')})"
    out = tmp_path / "out"
    record(build, None, out, f"--call-stack=c:{depth}", python=build / "targets/deep_library")
    answer = json.loads(ask(build, out, "leaks", "--json"))
    assert {leak["where"] for leak in answer["leaks"]} == {where}
    cut = [s for s in (leak["c_stack"] for leak in answer["leaks"]) if "..." in s]
    assert cut, answer["leaks"]
    for stack in cut:
        assert stack.index("...") == depth and "train_step" in stack[depth + 1]
    # Those that are not deeper than what was asked for are as they were.
    all_of_it = tmp_path / "all"
    record(build, None, all_of_it, "--call-stack=c:200", python=build / "targets/deep_library")
    answer = json.loads(ask(build, all_of_it, "leaks", "--json"))
    assert {leak["where"] for leak in answer["leaks"]} == {where}
    assert not any("..." in leak["c_stack"] for leak in answer["leaks"])
