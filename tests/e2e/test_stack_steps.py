# SPDX-License-Identifier: MulanPSL-2.0
"""Timelines of `sonde stack` have the steps of a job that counts them itself: one that is recorded. Of another one,
they have what samples show of its optimizer."""

import json

import pytest

from stack_jobs import Jobs, named, read, repaired
from waiting import wait_until

# A step every 30 ms, until its standard input ends.
STEPS = """
import os, select, sys
import msmemscope

def train_step():
    msmemscope.step()

print(os.getpid(), flush=True)
while not select.select([sys.stdin], [], [], 0.03)[0]:
    train_step()
"""


@pytest.fixture
def jobs(build, tmp_path):
    made = Jobs(build, tmp_path)
    yield made
    made.close()


def begin_job(jobs, build, *launcher):
    env = {"PYTHONPATH": str(build / "python")}
    words = [*launcher, "python3", jobs.script(STEPS)]
    job = jobs.start(*words, env=env, stdin=-1, stderr=-3)
    return job, job.stdout.readline().strip()


def bars(events):
    return [e for e in events if e["ph"] == "X" and e.get("cat") == "step"]


def seen(path, n):
    try:
        return len(bars(repaired(path))) >= n
    except (FileNotFoundError, ValueError):
        return False


def test_the_steps_of_a_recorded_job_are_a_track(jobs, build, tmp_path):
    recorder = [build / "bin/sonde", "mem", "record", "--device=cpu", f"-o{tmp_path / 'out'}", "--"]
    job, pid = begin_job(jobs, build, *recorder)
    trace = tmp_path / "trace.json"
    sampler = jobs.begin("-p", pid, "-i", "0.005", "-o", trace, "-q")
    wait_until(lambda: seen(trace, 5), "five steps in the timeline")
    job.stdin.close()
    job.stdin = None
    assert sampler.wait(60) == 0
    events = read(trace)
    steps = bars(events)
    assert {e["pid"] for e in steps} == {int(pid)}
    assert "steps" in named(events, "thread_name", int(pid))
    for before, after in zip(steps, steps[1:]):
        # One follows the other, in number and in time.
        assert after["args"]["step"] == before["args"]["step"] + before["args"]["steps"]
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"], abs=0.01)
    single = [e for e in steps if e["args"]["steps"] == 1]
    assert all(e["name"] == f"step {e['args']['step']}" for e in single)
    assert all(e["dur"] > 0 for e in steps)


def test_another_job_has_none(jobs, build, tmp_path):
    job, pid = begin_job(jobs, build)
    trace = tmp_path / "trace.json"
    assert jobs.stack("-p", pid, "-i", "0.01", "-d", "0.3", "-o", trace).returncode == 0
    events = read(trace)
    assert not bars(events) and "steps" not in named(events, "thread_name")


# What has the names and places of torch's optimizers; says how many steps it has done.
TRAIN = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from torch.optim.adam import Adam

def train_step(optimizer):
    time.sleep(0.06)
    optimizer.step()

optimizer, n, count = Adam(), 0, os.open("steps", os.O_CREAT | os.O_WRONLY)
print(os.getpid(), flush=True)
while True:
    train_step(optimizer)
    n += 1
    os.pwrite(count, b"%08d" % n, 0)
"""
ADAM = """
import time

class Adam:
    def step(self):
        time.sleep(0.06)
"""


def test_samples_show_steps_that_nobody_counts(jobs, tmp_path):
    package = tmp_path / "site-packages/torch/optim"
    package.mkdir(parents=True)
    (package / "adam.py").write_text(ADAM)
    job = jobs.start("python3", jobs.script(TRAIN), tmp_path / "site-packages", stderr=-3, cwd=tmp_path)
    pid = job.stdout.readline().strip()
    trace = tmp_path / "trace.json"
    r = jobs.stack("-p", pid, "-i", "0.005", "-d", "2", "-o", trace, "--json")
    assert r.returncode == 0
    done = 1 + int((tmp_path / "steps").read_text())
    (found,) = json.loads(r.stdout)["steps"]
    assert found["pid"] == int(pid) and found["line"].startswith("train_step (")
    # What is seen is there; what is sure leaves nothing out but what began or ended outside of the two seconds.
    assert 0 < found["seen"] <= done
    if found["confidence"] == "high":
        assert found["seen"] >= int(2 / found["every_s"]) - 1
    drawn = [e for e in read(trace) if e.get("cat") == "sampled step"]
    assert len(drawn) == found["seen"] - 1 and not bars(read(trace))
    assert "steps, as samples show them" in named(read(trace), "thread_name", int(pid))
    said = jobs.stack("-p", pid, "-i", "0.005", "-d", "1", "-o", tmp_path / "text.json").stderr
    assert "as samples show them" in said or "more between samples are possible" in said, said
    assert "train_step (job.py:" in said
