# SPDX-License-Identifier: MulanPSL-2.0
"""Whoever is looked at does not notice, and whatever happens to it, the sampler ends well."""

import json
import os
import signal
import subprocess

import pytest

from sampled_programs import Program, Sampling
from pythons import one_per_minor, pythons
from waiting import pause, wait_until


def newest():
    return pythons()[-1]


def wait_for_stacks(path, seconds=20):
    begun = lambda: path.exists() and b'"ph":"B"' in path.read_bytes()
    wait_until(begun, "the sampler to write", seconds)


def events(path):
    return json.loads(path.read_text("utf-8"))["traceEvents"]


def balanced(path):
    """Every B has its E, thread by thread. Returns how many there are."""
    open_frames, total = {}, 0
    for event in events(path):
        stack = open_frames.setdefault((event.get("pid"), event.get("tid")), [])
        if event["ph"] == "B":
            stack.append(event["name"])
            total += 1
        elif event["ph"] == "E":
            assert stack, event
            stack.pop()
    assert not any(open_frames.values())
    return total


@pytest.mark.parametrize("python", one_per_minor())
def test_target_notices_nothing(build, tmp_path, python):
    """Its signals, system calls, children, numbers and exit status while sampled at 2 kHz."""
    with Program(python, "invariants.py", "1") as program:
        with Sampling(build, program.pid, tmp_path / "trace.json") as sampling:
            status, out, err = program.result()
            assert sampling.result()[0] == 0
    assert (status, out.split()[0]) == (42, "sums"), err
    assert balanced(tmp_path / "trace.json") > 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_target_is_killed(build, tmp_path, how):
    out = tmp_path / "trace.json"
    with Program(newest(), "many.py", 8, 32, "mixed") as program:
        program.ready()
        with Sampling(build, program.pid, out) as sampling:
            wait_for_stacks(out)
            pause(0.1, "it is in the middle")
            os.kill(program.pid, how)
            program.process.wait()
            status, _, err = sampling.result()
    assert status == 0, err
    assert program.process.returncode == -how
    assert balanced(out) > 0


SOME = one_per_minor(10, 10) + one_per_minor(12, 12) + one_per_minor(15)


@pytest.mark.parametrize("python", SOME)
@pytest.mark.parametrize("how", ["threads", "processes", "exec"])
def test_churn(build, tmp_path, python, how):
    """Threads, children and whole images that come and go while they are sampled."""
    more = ["--children"] if how == "processes" else []
    with Program(python, "churn.py", how, "0.6") as program:
        with Sampling(build, program.pid, tmp_path / "trace.json", *more) as sampling:
            status, out, err = program.result()
            sampler = sampling.result()
    assert (status, out.split()[:1]) == (0, ["rounds"]), err
    assert sampler[0] == 0, sampler
    balanced(tmp_path / "trace.json")


def test_a_hundred_processes_come_and_go(build, tmp_path):
    """Found by their parent; each does its work undisturbed."""
    out = tmp_path / "trace.json"
    script = (
        "import subprocess, sys, time\n"
        "code = 'import time; time.sleep(0.15); print(sum(range(1000)))'\n"
        "for _ in range(10):\n"
        "    words = [sys.executable, '-S', '-E', '-c', code]\n"
        "    made = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(10)]\n"
        "    assert all(p.communicate()[0] == b'499500\\n' and p.returncode == 0 for p in made)\n"
        "print('all well')\n"
    )
    parent = subprocess.Popen(
        [newest().path, "-c", script], stdout=subprocess.PIPE, universal_newlines=True
    )
    try:
        more = ("--children", "--refresh-interval", "0.05")
        with Sampling(build, parent.pid, out, *more, hz=500) as sampling:
            assert parent.communicate(timeout=60)[0] == "all well\n"
            status, _, err = sampling.stop()
    finally:
        parent.kill()
        parent.communicate()
    assert status == 0, err
    balanced(out)
    assert len({e["pid"] for e in events(out) if e["ph"] == "B"}) > 1


def test_never_traced(build, tmp_path):
    """No tracer, no stop, whatever the rate; and its threads are not woken."""
    with Program(newest(), "many.py", 16, 32, "parked") as program:
        program.ready()
        before = -1
        while before != voluntary_switches(program.pid):  # the last of them comes to rest
            before = voluntary_switches(program.pid)
            pause(0.5, "threads that still start would be seen")
        with Sampling(build, program.pid, tmp_path / "trace.json") as sampling:
            wait_for_stacks(tmp_path / "trace.json")
            for _ in range(50):
                status = dict(
                    line.split(":", 1)
                    for line in open(f"/proc/{program.pid}/status").read().splitlines()
                )
                assert int(status["TracerPid"]) == 0
                assert status["State"].split()[0] in "RSD"
                pause(0.01, "any moment")
            assert sampling.stop()[0] == 0
        assert voluntary_switches(program.pid) == before


def voluntary_switches(pid):
    """Of all threads together: a thread at rest that is never woken does not switch."""
    total = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/status") as f:
            total += sum(int(t.split()[1]) for t in f if t.startswith("voluntary_ctxt_switches"))
    return total
