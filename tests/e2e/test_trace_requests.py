# SPDX-License-Identifier: MulanPSL-2.0
"""nputrace: requests that wait, requests that are withdrawn, and the reason when one is refused."""

import json
import subprocess
import sys
from collections import Counter

import pytest
from daemon import Daemon
from monitored import dyno, environment, state
from waiting import wait_until

# Step 5 launches six kernels of half a second each; the host goes on at once. It is not begun while
# there is a file "hold".
PROGRAM = """
import ctypes, os, sys, time
import sonde
npu = ctypes.CDLL(None)
npu.sim_kernel_register.restype = ctypes.c_void_p
stream = ctypes.c_void_p()
npu.rtSetDevice(0)
npu.rtStreamCreate(ctypes.byref(stream), 0)
slow = ctypes.c_void_p(npu.sim_kernel_register(b"Slow", ctypes.c_uint64(500_000_000), None))
fast = ctypes.c_void_p(npu.sim_kernel_register(b"Fast", ctypes.c_uint64(1000), None))
step = 0
while True:
    for _ in range(6 if step == 5 else 0):
        npu.rtKernelLaunch(slow, 8, None, 0, None, stream)
    npu.rtKernelLaunch(fast, 8, None, 0, None, stream)
    time.sleep(0.05)
    while step == 4 and os.path.exists("hold"):
        time.sleep(0.01)
    step += 1
    if len(sys.argv) == 1:
        sonde.step()
"""


@pytest.fixture
def daemon(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        yield d


@pytest.fixture
def start(build, daemon, tmp_path):
    jobs = []

    def run(*args):
        env = environment(build, daemon, SIM_NPU_TIME_SCALE=1, PYTHONPATH=build / "python")
        env["LD_PRELOAD"] += f":{build}/sim/libruntime.so"
        with open(tmp_path / "job.err", "w") as err:
            jobs.append(subprocess.Popen([sys.executable, "-c", PROGRAM, *args], env=env,
                                         cwd=tmp_path, stderr=err))  # fmt: skip
        wait_until(lambda: state(daemon) == "Idle", "the job")
        return jobs[-1]

    yield run
    for job in jobs:
        job.kill()
        job.wait()


@pytest.fixture
def trace(build, daemon):
    def order(first, steps, where):
        return dyno(build, daemon, "nputrace", "--start-step", first, "--iterations", steps,
                    "--log-file", where)  # fmt: skip

    return order


def finished(where):
    return list(where.glob("*_sonde/trace.json"))


def test_what_a_queue_still_holds_is_waited_for(daemon, start, trace, tmp_path):
    (tmp_path / "hold").touch()
    start()
    trace(5, 3, "out")  # a directory of the job's
    wait_until(lambda: state(daemon, "nputrace") == "Ready", "Ready")
    (tmp_path / "hold").unlink()
    [path] = wait_until(lambda: finished(tmp_path / "out"), "the trace")
    whole = json.loads(path.read_text())
    seen = Counter(e["name"] for e in whole["traceEvents"]
                   if e.get("args", {}).get("kind") == "Kernel")  # fmt: skip
    assert seen == {"Slow": 6, "Fast": 3}
    assert whole["sonde"]["complete"] and not whole["sonde"]["note"]


def test_a_trace_that_waits_gives_way(build, daemon, start, trace, tmp_path):
    start()
    is_now = lambda what: lambda: state(daemon, "nputrace") == what
    trace(10**6, 2, tmp_path / "never")
    wait_until(is_now("Ready"), "Ready")
    trace(-1, 2, tmp_path / "instead")
    wait_until(lambda: finished(tmp_path / "instead"), "the second trace")
    wait_until(is_now("Idle"), "Idle")

    trace(10**6, 2, tmp_path / "never")
    wait_until(is_now("Ready"), "Ready")
    dyno(build, daemon, "npu-monitor", "--npu-monitor-stop")  # nothing runs: takes the trace back
    wait_until(is_now("Idle"), "Idle")

    trace(10**6, 2, tmp_path / "never")
    wait_until(is_now("Ready"), "Ready")
    dyno(build, daemon, "npu-monitor", "--npu-monitor-start", "--mspti-activity-kind", "Kernel")
    wait_until(lambda: state(daemon) == "Running", "the monitor instead")
    assert state(daemon, "nputrace") == "Idle"
    assert not finished(tmp_path / "never")


def test_a_job_that_tells_no_steps(build, daemon, start, trace, tmp_path):
    job = start("no steps")
    trace(-1, 1, tmp_path / "out")
    wait_until(lambda: state(daemon, "nputrace") == "Ready", "Ready")
    dyno(build, daemon, "npu-monitor", "--npu-monitor-stop")
    wait_until(lambda: state(daemon, "nputrace") == "Idle", "Idle")
    assert job.poll() is None


@pytest.mark.parametrize("where, words", [("file/x", "not a directory"), ("/proc/none", "'/proc/none'")])
def test_files_that_cannot_be_made(daemon, start, trace, tmp_path, where, words):
    job = start()
    (tmp_path / "file").write_text("")
    trace(-1, 1, where)
    said = wait_until(lambda: (tmp_path / "job.err").read_text(), "words")
    assert words in said and said.count("\n") == 1
    assert state(daemon, "nputrace") == "Idle" and job.poll() is None
    # and who gave the order is told, too
    ctl = daemon.ctl("nputrace", "--start-step", "-1", "--iterations", "1", "--log-file", where)
    assert ctl.returncode == 3
    assert "the request failed in 1 of 1 process: no files can be written below" in ctl.stderr
    assert words in ctl.stderr and f"(process {job.pid})" in ctl.stderr
    assert "request sent" not in ctl.stderr and "will be written" not in ctl.stdout
    ctl = daemon.ctl("nputrace", "--start-step", "-1", "--iterations", "1", "--log-file",
                     tmp_path / "good")  # fmt: skip
    assert ctl.returncode == 0 and "did not" not in ctl.stderr
    assert "did not carry out its request: no files" in daemon.log()
