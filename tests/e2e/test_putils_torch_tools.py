# SPDX-License-Identifier: MulanPSL-2.0
"""putils on every PyTorch: times of modules, checkpoints, profilers, loads. The checks are functions
of tests/targets/python/putils_tool_checks.py, which run in one process."""

import functools
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest
from harness import SOAK
from torches import a_torch, every_torch, torches

TARGETS = pathlib.Path(__file__).resolve().parents[1] / "targets/python"
CHECKS = re.findall(r"^def (check_\w+)", (TARGETS / "putils_tool_checks.py").read_text(), re.M)
# A profiler of PyTorch 2 imports 800 modules (4 s of a processor): in the long version alone.
PROFILERS = {"check_a_profiled_function", "check_a_profiled_block"}
ENV = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def every_check():
    for param in every_torch():
        (torch,) = param.values
        for check in CHECKS:
            if torch is None or check not in PROFILERS or torch.version.startswith("1.") or SOAK:
                yield pytest.param(torch, check, id=f"{check}-{param.id}", marks=param.marks)


PARAMS = list(every_check())


@functools.lru_cache(maxsize=None)
def outcome(build, torch, folder):
    done = subprocess.run(
        [torch.path, TARGETS / "putils_tool_checks.py", "cpu", *(p.values[1] for p in PARAMS if p.values[0] == torch)],
        env=dict(os.environ, PYTHONPATH=str(build / "python"), **ENV),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=110,
    )
    assert done.returncode == 0, done
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {t.path: tmp_path_factory.mktemp("checks") for t in torches()}


@pytest.mark.parametrize("torch, check", PARAMS)
def test_check(build, folders, torch, check):
    why = outcome(build, torch, folders[torch.path])[check]
    assert why == "", why


def burn(build, tmp_path, *words):
    oldest = torches()[0] if torches() else a_torch()  # its import is the fastest
    env = dict(os.environ, **ENV)
    command = [oldest.path, build / "python/putils/burn.py", "--device", "cpu", "--size", "64", "--sleep", "0"]
    return subprocess.Popen(
        [*command, "--lock-dir", tmp_path / "locks", *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )


def test_burn_as_a_program(build, tmp_path):
    """By its path, where modules of putils would hide those of Python; twice; ended by a signal."""
    first = burn(build, tmp_path, "--interval", "0.1", "--json")
    try:
        assert first.stdout.readline() == "Launching 1 processes on cpu devices. Start burning...\n"
        assert re.fullmatch(r"0: [\d.e-]+ TFLOPS\n", first.stdout.readline())
        second = burn(build, tmp_path)
        out, err = second.communicate(timeout=60)
        (lock,) = (tmp_path / "locks").iterdir()
        assert (second.returncode, err) == (0, "")
        assert out == f"Skip launching: same burn task already running (lock: {lock}).\n"
        first.send_signal(signal.SIGTERM)
        out, err = first.communicate(timeout=60)
    finally:
        first.kill()
        first.wait()
    assert (first.returncode, err) == (0, "")
    found = json.loads(out.splitlines()[-1])
    assert found["tflops"]["0"] > 0 and (found["slow"], found["errors"], found["size"]) == ([], {}, 64)
