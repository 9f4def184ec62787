# SPDX-License-Identifier: MulanPSL-2.0
"""putils on every PyTorch: the checks in tests/targets/python/putils_checks, one process for each."""

import json
import pathlib
import re
import subprocess

import pytest
from recording import clean_env
from torches import every_torch

CHECKS = pathlib.Path(__file__).resolve().parents[1] / "targets/python/putils_checks"
NAMES = [
    name
    for module in ("tensor_checks", "device_checks", "accuracy_checks", "other_checks")
    for name in re.findall(r"^def (check_\w+)", (CHECKS / f"{module}.py").read_text(), re.M)
]


@pytest.fixture(scope="module")
def outcomes(build, tmp_path_factory, torch):
    tmp = tmp_path_factory.mktemp("putils")
    done = subprocess.run(
        [torch.path, "-B", "-W", "ignore", str(CHECKS / "run.py")],
        cwd=tmp,
        env=clean_env(tmp, PYTHONPATH=build / "python", OMP_NUM_THREADS=1, CUDA_VISIBLE_DEVICES=""),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=120,
    )
    assert done.stdout, done.stderr.decode()
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("torch", every_torch(), scope="module")
@pytest.mark.parametrize("name", NAMES)
def test_putils(outcomes, name):
    assert outcomes.pop(name) == "ok"
