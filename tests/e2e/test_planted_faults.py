# SPDX-License-Identifier: MulanPSL-2.0
"""Every fault that simtrain can plant is found, at its place, and nothing on the healthy job.

Twenty jobs of random shape (`make soak`: a hundred); each is recorded healthy, with faults in its memory,
with an operator that writes out of bounds, and until memory runs out.
"""

import concurrent.futures
import json
import os
import random
import subprocess

import pytest

import recording
from harness import SOAK

SEEDS = range(100 if SOAK else 20)
ALL = "--analysis=leaks,inefficient,decompose,oom"
STACKS = "--call-stack=c:12"
PARTS = 5


class Job:
    """A job of random shape, recorded with one fault or none, and asked about."""

    def __init__(self, build, tmp, seed):
        self.build, self.tmp, self.seed = build, tmp, seed
        rng = random.Random(seed)
        self.words = ["--quiet", "--aten", "--seed", seed]
        self.words += ["--steps", rng.randint(7, 9), "--layers", rng.randint(2, 6)]
        self.fault_step = rng.randint(3, 4)
        self.env = recording.clean_env(tmp, LD_LIBRARY_PATH=build / "sim")

    def record(self, name, faults, *opts):
        out = self.tmp / f"{self.seed}-{name}"
        words = [self.build / "bin/msmemscope", f"--output-path={out}", STACKS, "--report=off"]
        words += [*opts, "--", self.build / "sim/simtrain", *self.words]
        words += ["--fault-step", self.fault_step]
        for f in faults:
            words += ["--fault", f]
        # Jobs run at once: what one holds of a device is missing to the others.
        env = {**self.env, "SIM_NPU_STATE": str(self.tmp / f"npu{self.seed}-{name}")}
        run = subprocess.run([str(w) for w in words], env=env, capture_output=True, timeout=60)
        assert run.returncode == 0 and run.stderr == b"", (self.seed, name, run.stderr)
        return out

    def ask(self, question, out, *opts):
        """The answer as JSON, and whether it is a finding for a CI job."""
        word = {"leaks": "leak", "inefficient": "waste", "oom": "oom", "watch": "corruption"}
        words = ["mem", question, "--json", f"--fail-on={word[question]}", *opts, out]
        run = subprocess.run(
            [self.build / "bin/sonde", *words], env=self.env, capture_output=True, timeout=60
        )
        assert run.returncode in (0, 3) and run.stderr == b"", (self.seed, question, run.stderr)
        return json.loads(run.stdout), run.returncode == 3


def places(answer, kind=None):
    return [p["where"].split()[0] for p in answer if kind in (None, p.get("kind"))]


def healthy(job):
    out = job.record("healthy", [], ALL, "--watch=aten.mm.default:out0,aten._fused_adamw_.default")
    for question in ("leaks", "inefficient", "oom", "watch"):
        opts = ["--no-write"] if question == "inefficient" else []
        answer, found = job.ask(question, out, *opts)
        assert not found, (job.seed, question, answer)


def memory_faults(job):
    out = job.record("memory", ["leak", "early", "late"], ALL)
    answer, found = job.ask("leaks", out)
    assert found and places(answer["leaks"]) == ["leak_one_buffer"], (job.seed, answer["leaks"])
    (leak,) = answer["leaks"]
    assert leak["bytes_per_step"] == 1 << 20
    assert leak["first_step"] == job.fault_step
    answer, found = job.ask("inefficient", out, "--no-write")
    assert found
    assert places(answer["places"], "early_allocation") == ["allocate_too_early"], job.seed
    assert places(answer["places"], "late_deallocation") == ["use_buffer_once"], job.seed
    assert places(answer["places"], "temporary_idleness") == [], job.seed
    out = job.record("idle", ["idle"], ALL)
    answer, found = job.ask("inefficient", out, "--no-write")
    assert found and "leave_buffer_idle" in places(answer["places"], "temporary_idleness")
    assert not job.ask("leaks", out)[1], job.seed


def corruption(job):
    watch = "--watch=aten.mul_.Scalar:out0,aten._fused_adamw_.default"
    out = job.record("corrupt", ["oob"], watch)
    answer, found = job.ask("watch", out)
    assert found, (job.seed, answer)
    (finding,) = answer["corruption"]
    assert finding["kind"] == "during_operator"
    assert (finding["to"]["operator"], finding["to"]["call"]) == ("aten.mul_.Scalar", 2)
    assert finding["bytes"] == 8192
    assert not job.ask("leaks", out)[1], job.seed


def exhaustion(job):
    out = job.record("oom", ["oom"], ALL)
    answer, found = job.ask("oom", out)
    assert found, (job.seed, answer)
    (incident,) = answer["incidents"]
    assert incident["verdict"] == "real exhaustion", (job.seed, incident)
    assert incident["where"].startswith("allocate_until_oom "), (job.seed, incident)
    assert not job.ask("leaks", out)[1], job.seed


@pytest.mark.soak
@pytest.mark.deadline(600 if SOAK else 120)
@pytest.mark.parametrize("part", range(PARTS))
def test_faults_are_found_and_nothing_else(build, tmp_path, part):
    jobs = [Job(build, tmp_path, seed) for seed in SEEDS if seed % PARTS == part]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = [
            pool.submit(check, job)
            for job in jobs
            for check in (healthy, memory_faults, corruption, exhaustion)
        ]
        for w in waiting:
            w.result()
