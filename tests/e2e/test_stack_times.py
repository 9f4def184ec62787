# SPDX-License-Identifier: MulanPSL-2.0
"""How long functions take by the timeline, and by the clock of the program itself."""

import ctypes
import json
import os
import platform

import pytest

from capabilities import lacks
from stack_jobs import Jobs, check, read

# Computes in two functions and rests in a third, one after the other, and says how long each took.
BY_TURNS = """
import json, sys, time

def compute():
    end = time.perf_counter() + 0.003
    while time.perf_counter() < end:
        pass

def compute_too():
    compute_on = time.perf_counter() + 0.003
    while time.perf_counter() < compute_on:
        pass

def rest():
    time.sleep(0.003)

def by_turns():
    took = {"compute": 0, "compute_too": 0, "rest": 0}
    end = time.perf_counter() + 2
    while time.perf_counter() < end:
        for f in compute, compute_too, rest:
            began = time.perf_counter()
            f()
            took[f.__name__] += time.perf_counter() - began
    return took

print("ready", flush=True)
print(json.dumps(by_turns()), flush=True)
"""



@pytest.fixture
def jobs(build, tmp_path):
    made = Jobs(build, tmp_path)
    yield made
    made.close()


def shares(took):
    return {name: seconds / sum(took.values()) for name, seconds in took.items()}


def timeline(jobs, tmp_path, *words):
    """Parts of the time of each function: by the file, and by the program."""
    job = jobs.python(BY_TURNS)
    r = jobs.stack("-p", job.pid, "-i", "0.001", "-o", "t.json", *words)
    assert r.returncode == 0, r.stderr
    own = json.loads(job.stdout.read())
    seen, begun = dict.fromkeys(own, 0), []
    for e in check(read(tmp_path / "t.json")):
        if e["ph"] == "B":
            begun.append(e)
        elif e["ph"] == "E":
            b = begun.pop()
            if b["args"]["function"] in seen:
                seen[b["args"]["function"]] += e["ts"] - b["ts"]
    return shares(seen), shares(own)


@pytest.mark.needs("kernel-6.12")
@pytest.mark.parametrize("words", [["--exact"], []], ids=["proved", "fast"])
def test_functions_that_compute_are_seen_as_much_as_those_that_rest(jobs, tmp_path, words):
    for _ in range(4):  # a machine with other things to do may be late
        seen, own = timeline(jobs, tmp_path, *words)
        if seen["rest"] < 1.4 * own["rest"] and seen["compute"] > 0.4 * own["compute"]:
            return
    pytest.fail(f"by the file {seen}, by the program {own}")


# What the kernel says about the one who asks.
ATTRIBUTES = """
import ctypes, sys
a = (ctypes.c_uint64 * 6)()
ctypes.CDLL(None).syscall(int(sys.argv[1]), 0, a, 48, 0)
print(list(a), flush=True)
"""
GETATTR = {"x86_64": 315, "aarch64": 275}


def test_a_job_is_scheduled_as_it_would_be_without_us(jobs, tmp_path):
    if platform.machine() not in GETATTR:
        lacks("known-syscalls", "the number of sched_getattr is not known")
    number = GETATTR[platform.machine()]
    plain = (ctypes.c_uint64 * 6)()
    ctypes.CDLL(None).syscall(number, 0, plain, 48, 0)
    script = jobs.script(ATTRIBUTES)
    python = os.path.realpath("/proc/self/exe")
    r = jobs.stack("run", "-q", "-o", "t.json", "--", python, script, number)
    assert r.stdout == f"{list(plain)}\n", r.stderr
