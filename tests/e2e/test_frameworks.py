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


def check(build, tmp_path, torch, *words):
    """How many of its checks have passed; all have."""
    words = ["--bin", build / "bin/sonde", "--python", torch.path, "--out", tmp_path, *words]
    r = subprocess.run(
        [sys.executable, str(RUN), *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout.count("PASS")


@pytest.mark.deadline(300)
def test_steps_and_leaks(build, tmp_path):
    """With workers of its own."""
    assert check(build, tmp_path, quickest_torch(), "loader") == 4


@pytest.mark.deadline(300)
@pytest.mark.parametrize(
    "pick, programs", [(quickest_torch, ["accumulation"]), (a_torch, ["server", "gan"])]
)
def test_steps_and_leaks_of_forked_programs(build, tmp_path, pick, programs):
    """The import of torch, which takes most of the time, is recorded once for all."""
    assert check(build, tmp_path, pick(), "--forked", *programs) == 1 + 4 * len(programs)
