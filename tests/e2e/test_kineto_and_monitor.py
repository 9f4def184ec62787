# SPDX-License-Identifier: MulanPSL-2.0
"""PyTorch's own profiler, the real one, in a process with a monitor: each gets its turn."""

import contextlib
import json
import subprocess

import pytest
from capabilities import lacks
from daemon import Daemon
from monitor_programs import NPU
from monitored import dyno, environment, lines, state
from torches import run, torches
from waiting import wait_until

JOB = (
    NPU.replace("_rt.rtSetDevice", "ctypes.CDLL(None).rtSetDevice")
    + """
import torch
npu, model = Npu(), torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    npu.step()
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""
)


def with_kineto():
    for torch in reversed(torches()):
        if run(torch.path, "import torch; print(torch.autograd.kineto_available())", 60) == ["True"]:
            return torch
    return lacks("torch-kineto", "run tools/fetch_torch, or name one in SONDE_TORCHES")


def trace(path):
    """Its events when all of it is there."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return json.loads(path.read_text())["traceEvents"]


@pytest.mark.deadline(300)
def test_monitor_steps_aside_for_a_trace_and_resumes(build, tmp_path):
    torch, written = with_kineto(), tmp_path / "written"
    with Daemon(build, tmp_path, ipc=True) as daemon, contextlib.ExitStack() as stack:
        env = environment(build, daemon, KINETO_USE_DAEMON=1, LD_LIBRARY_PATH=build / "sim")
        env["LD_PRELOAD"] += f":{build / 'sim/libruntime.so'}"
        with open(tmp_path / "said", "w") as said:
            job = subprocess.Popen([torch.path, "-c", JOB], env=env, stdout=said, stderr=said)
        stack.callback(job.wait)
        stack.callback(job.kill)

        def clients():
            found = daemon.call({"fn": "listProcesses"})["processes"]
            return found[0]["clients"] if found else []

        wait_until(lambda: clients() == ["kineto", "sonde"], "both have registered", 60)
        words = ("--export-type", "Jsonl", "--log-file", written)
        kinds = ("--mspti-activity-kind", "Kernel")
        dyno(build, daemon, "npu-monitor", "--npu-monitor-start", *kinds, *words)
        wait_until(lambda: state(daemon) == "Running", "the monitor is on", 60)
        wait_until(lambda: any(map(lines, written.glob("*.jsonl"))), "it writes", 60)
        dyno(build, daemon, "gputrace", "--iterations", 3, "--log-file", tmp_path / "t.json")
        wait_until(lambda: state(daemon) != "Running", "it has stepped aside", 30)
        events = wait_until(lambda: trace(tmp_path / f"t_{job.pid}.json"), "libkineto's trace", 60)
        wait_until(lambda: state(daemon) == "Running", "the monitor is on again", 60)
        before = sum(len(lines(p)) for p in written.glob("*.jsonl"))
        wait_until(lambda: sum(len(lines(p)) for p in written.glob("*.jsonl")) > before, "and writes")
        assert any(e.get("name") == "aten::linear" for e in events)
        assert job.poll() is None
