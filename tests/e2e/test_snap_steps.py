# SPDX-License-Identifier: MulanPSL-2.0
"""`sonde snap` says how many steps have ended, where the job is recorded; a fork's child has none yet."""

import json
import subprocess

from recording import clean_env

PROGRAM = """
import os, sys, time
import msmemscope

def train_step():
    msmemscope.step()

for _ in range(5):
    train_step()
child = os.fork()
if child:
    print("ready", os.getpid(), child, flush=True)
time.sleep(60)
"""


def snap(build, *words):
    done = subprocess.run(
        [str(build / "bin/sonde"), "snap", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(build, tmp_path, *launcher):
    (tmp_path / "train.py").write_text(PROGRAM)
    job = subprocess.Popen(
        [*map(str, launcher), "python3", "train.py"],
        cwd=str(tmp_path),
        env=clean_env(tmp_path, PYTHONPATH=build / "python"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        universal_newlines=True,
    )
    _, pid, child = job.stdout.readline().split()
    return job, pid, child


def end(job, child):
    subprocess.run(["kill", "-9", child, str(job.pid)], check=True)
    job.wait()
    job.stdout.close()


def test_steps_of_a_recorded_job(build, tmp_path):
    launcher = [build / "bin/sonde", "mem", "record", "--device=cpu", f"-o{tmp_path / 'out'}", "--"]
    job, pid, child = run(build, tmp_path, *launcher)
    try:
        assert "5 steps have ended.\n" in snap(build, "-p", pid)
        both = json.loads(snap(build, "--json", "-p", f"{pid},{child}"))
        steps = {str(p["pid"]): p["steps_ended"] for p in both["processes"]}
        assert steps == {pid: 5, child: None}
    finally:
        end(job, child)


def test_nobody_counts_the_steps_of_another_job(build, tmp_path):
    job, pid, child = run(build, tmp_path)
    try:
        assert "ended" not in snap(build, "-p", pid)
        (only,) = json.loads(snap(build, "--json", "-p", pid))["processes"]
        assert only["steps_ended"] is None
    finally:
        end(job, child)
