# SPDX-License-Identifier: MulanPSL-2.0
"""Programs of the kind that people have (tests/frameworks), without a word of ours in them: their steps
are counted, a leak is found at their own line, and nothing is found in healthy ones. Those here need
nothing but PyTorch; `make check-frameworks` runs all."""

import pathlib
import subprocess
import sys

import pytest
from torches import a_torch, quickest_torch

RUN = pathlib.Path(__file__).resolve().parents[1] / "frameworks/run.py"


@pytest.mark.deadline(300)
@pytest.mark.parametrize(
    "program, torch",
    [("loader", quickest_torch), ("accumulation", quickest_torch), ("gan", a_torch), ("server", a_torch)],
)
def test_steps_and_leaks(build, tmp_path, program, torch):
    words = ["--bin", build / "bin/sonde", "--python", torch().path, "--out", tmp_path, program]
    r = subprocess.run(
        [sys.executable, str(RUN), *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert r.returncode == 0 and r.stdout.count("PASS") == 4, r.stdout + r.stderr
