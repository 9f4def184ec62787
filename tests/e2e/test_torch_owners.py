# SPDX-License-Identifier: MulanPSL-2.0
"""Weights, gradients, optimizer states and activations of a real PyTorch, to the byte."""

import json
import subprocess

import pytest

from harness import Session
from recording import clean_env
from test_owners import flat
from torch_forks import forks  # noqa: F401
from torches import every_torch

TARGETS = "tests/targets/python"
OPTIMIZERS = ["adam", "lbfgs", "sgd", "rmsprop", "foreach", "grouped"]


class Job:
    """forks: what makes its process (torch_forks.py), unless the command does; None: it is a new one."""

    def __init__(self, build, tmp_path, torch, forks=None):
        self.build, self.tmp, self.torch, self.forks = build, tmp_path, torch, forks
        self.out = tmp_path / "memscopeDumpResults"

    def run(self, target, *words, cli=None):
        script = self.build.parent / TARGETS / target
        env = clean_env(self.tmp, PYTHONPATH=self.build / "python", OMP_NUM_THREADS=1)
        if cli is None and self.forks:
            result = self.forks.run([script, *words], self.tmp, env)
        else:
            result = self.run_new([self.torch.path, script, *words], env, cli)
        assert result.returncode == 0, result.stderr.decode()[-4000:]
        self.stderr = result.stderr.decode()
        return [json.loads(line) for line in result.stdout.decode().splitlines()]

    def run_new(self, command, env, cli):
        if cli is not None:
            program = self.build / "bin/msmemscope"
            command = [program, f"--output-path={self.out}", *cli, "--", *command]
        return subprocess.run(
            list(map(str, command)),
            cwd=self.tmp,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=120,
        )

    @property
    def recording(self):
        (only,) = self.out.glob("recording_*")
        Session(only).wait_finished()
        return only

    def owners(self, time_ns):
        """{owner: bytes} of host memory at a time."""
        command = ["mem", "owners", "--json", "--top=100000", f"--at={time_ns}", self.recording]
        r = subprocess.run(
            [str(w) for w in [self.build / "bin/sonde", *command]],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=60,
        )
        assert r.returncode == 0, r.stderr
        (device,) = [d for d in json.loads(r.stdout)["devices"] if d["device"] == "cpu"]
        return {owner: size for (owner, free), size in flat(device).items() if not free}


@pytest.fixture
def job(build, tmp_path, torch, forks):  # noqa: F811
    return Job(build, tmp_path, torch, forks.of(torch))


@pytest.fixture(scope="module")
def plain(build, tmp_path_factory, forks):  # noqa: F811
    """The same trainings, unrecorded; once for each torch."""
    known = {}

    def run(torch):
        if torch not in known:
            job = Job(build, tmp_path_factory.mktemp("plain"), torch, forks.of(torch))
            known[torch] = job.run("train_owners.py", "plain", *optimizers_of(torch))
        return known[torch]

    return run


def optimizers_of(torch):
    fused = ["fused"] if [int(n) for n in torch.version.split(".")[:2]] >= [2, 4] else []
    return OPTIMIZERS + fused


def check_sums(job, plain, recorded):
    """What the program says of its own tensors is what the recording says, and no number of its
    results depends on being recorded."""
    assert recorded
    for was, told in zip(plain, recorded):
        assert was["digest"] == told["digest"] and was["name"] == told["name"]
        owners = job.owners(told["time_ns"])
        for label in ("weight", "buffer", "gradient", "optimizer_state"):
            found = sum(size for owner, size in owners.items() if label in owner.split("@"))
            assert found == told[label], (told["name"], label, owners)


@pytest.mark.parametrize("torch", every_torch())
def test_bytes_by_malloc(job, plain, torch):
    cli = ["--device=cpu", "--analysis=decompose", "--format=none"]  # a dump would be 400 MB
    names = OPTIMIZERS[:2]  # each question reads some million allocations of torch itself
    check_sums(job, plain(torch), job.run("train_owners.py", "launched", *names, cli=cli))


@pytest.mark.parametrize("torch", every_torch())
def test_bytes_without_preload(job, plain, torch):
    names = optimizers_of(torch)
    check_sums(job, plain(torch), job.run("train_owners.py", "alone", *names))


@pytest.mark.parametrize("torch", every_torch())
def test_everything_around(job, torch):
    from dumpcheck import check_output

    (expected,) = job.run("owners_cases.py")
    assert "owners are not told" not in job.stderr, job.stderr
    job.recording
    (process,) = check_output(job.out)
    ends = {r.attr["allocation_id"]: r.attr.get("owner") for r in process.rows if r.event == "FREE"}
    found = [
        (ends[r.attr["allocation_id"]] or r.attr.get("owner")).replace("@ops", "")
        for r in sorted(process.rows, key=lambda r: int(r.attr.get("allocation_id", 0)))
        if r.event == "MALLOC"
    ]
    wrong = [(name, want, got) for (name, want), got in zip(expected, found) if want != got]
    assert not wrong
    assert len(found) == len(expected)
