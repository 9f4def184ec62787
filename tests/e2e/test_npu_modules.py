# SPDX-License-Identifier: MulanPSL-2.0
"""Which module holds the memory of a simulated NPU, to the byte: cells of what stands in for MindSpore, and modules
of a real PyTorch whose tensors are blocks of torch_npu's pool."""

import json
import pathlib
import subprocess

import pytest

from harness import Session
from pythons import one_per_minor
from recording import clean_env
from test_torch_modules import Questions, check_moment
from torches import a_torch

PER_MINOR = one_per_minor(oldest=8)
TARGETS = pathlib.Path(__file__).resolve().parents[1] / "targets/python"


class OfNpu(Questions):
    def groups(self, job, *words):
        answer = json.loads(self.ask(job, *words, "--json", "--top=100000"))
        (device,) = [d for d in answer["devices"] if d["device"] != "cpu"]
        return device["groups"]


class Job:
    """Under msmemscope, on the simulated stack."""

    def __init__(self, build, tmp, python, *words):
        self.out = tmp / "memscopeDumpResults"
        command = [build / "bin/msmemscope", "--analysis=decompose", "--format=none", f"--output-path={self.out}"]
        path = f"{build / 'python'}:{TARGETS / 'frameworks/packages'}"
        env = clean_env(tmp, PYTHONPATH=path, LD_LIBRARY_PATH=build / "sim", OMP_NUM_THREADS=1)
        r = subprocess.run(
            [str(w) for w in [*command, "--", python, *words]],
            cwd=tmp, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert r.returncode == 0, r.stderr[-4000:]
        assert "some owners are not recorded" not in r.stderr, r.stderr
        self.told = [json.loads(line) for line in r.stdout.splitlines()]

    @property
    def recording(self):
        (only,) = self.out.glob("recording_*")
        Session(only).wait_finished()
        return only


@pytest.mark.parametrize("python", [PER_MINOR[0], PER_MINOR[-1]])
@pytest.mark.parametrize("way", ["cell", "function"])
def test_cells(build, tmp_path, python, way):
    job = Job(build, tmp_path, python.path, TARGETS / "train_cells.py", way)
    for moment in job.told:
        check_moment(OfNpu(build), job, moment)


def test_modules_of_torch(build, tmp_path):
    job = Job(build, tmp_path, a_torch().path, TARGETS / "train_npu.py")
    for moment in job.told:
        check_moment(OfNpu(build), job, moment)
