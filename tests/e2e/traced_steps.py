# SPDX-License-Identifier: MulanPSL-2.0
"""Traces of steps (nputrace) of jobs on the simulated NPU that have only our library: the order by
dyno, a job in Python, and what is in the directory that it leaves."""

import collections
import contextlib
import json
import re
import subprocess
import sys

from daemon import Daemon
from monitored import Job, dyno, environment
from waiting import wait_until

# A Python program that calls the NPU as frameworks do: by functions that the loader binds. A step
# has some 10 ms of forward() and 15 ms of wait().
PROGRAM = """
import ctypes, gc, os, sys, threading, time
{head}
npu = mstx = ctypes.CDLL(None)
npu.sim_kernel_register.restype = mstx.mstxDomainCreateA.restype = ctypes.c_void_p
mstx.mstxRangeStartA.restype = mstx.mstxDomainRangeStartA.restype = ctypes.c_uint64
stream = ctypes.c_void_p()
assert npu.rtSetDevice(0) == 0
assert npu.rtStreamCreate(ctypes.byref(stream), 0) == 0
kernel = ctypes.c_void_p(npu.sim_kernel_register(b"MatMul", ctypes.c_uint64(100000), None))


def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def forward():
    for _ in range(5):
        assert npu.rtKernelLaunch(kernel, 8, None, 0, None, stream) == 0
        busy(0.002)


def wait():
    time.sleep(0.015)
    assert npu.rtStreamSynchronize(stream) == 0


def train():
    forward()
    wait()


def helper():
    while True:
        busy(0.001)
        time.sleep(0.005)

{before}
while True:
    train()
    {step}
"""


def program(head="import sonde", before="", step="sonde.step()"):
    return PROGRAM.format(head=head, before=before, step=step)


class PythonJob(Job):
    """A program in Python, with the same environment as simtrain."""

    def __init__(self, build, daemon, tmp_path, code, *before, python=None, rank=0, **env):
        """before: words in front of the command."""
        script = tmp_path / "train.py"
        script.write_text(code)
        all_of = environment(build, daemon, rank, **{"PYTHONPATH": build / "python", **env})
        for name in ("libruntime.so", "libms_tools_ext.so"):
            all_of["LD_PRELOAD"] += f":{build}/sim/{name}"
        self.err = open(tmp_path / f"rank{rank}.err", "w+")
        self.process = subprocess.Popen(
            [*before, python or sys.executable, script],
            env=all_of,
            stdin=subprocess.DEVNULL,
            stderr=self.err,
            cwd=tmp_path,
            start_new_session=True,
        )
        self.pid = self.process.pid


class Trace:
    """The directory that one process left."""

    def __init__(self, path):
        self.path = path
        made = json.loads((path / "trace.json").read_text())
        self.about, self.rank = made["sonde"], made["distributedInfo"]["rank"]
        self.events = made["traceEvents"]
        self.steps = [e for e in self.slices() if re.fullmatch(r"ProfilerStep#\d+|trace", e["name"])]
        self.from_ = self.steps[0]["ts"]
        self.to = self.steps[-1]["ts"] + self.steps[-1]["dur"]

    def slices(self, pattern=None, **args):
        """Those whose name has this pattern, with these arguments."""
        return [
            e
            for e in self.events
            if e["ph"] == "X"
            and (pattern is None or re.search(pattern, e["name"]))
            and all(e.get("args", {}).get(k) == v for k, v in args.items())
        ]

    def kind(self, kind):
        return self.slices(kind=kind)

    def counters(self):
        """{name: values in order of time}"""
        found = collections.defaultdict(list)
        for e in self.events:
            if e["ph"] == "C":
                found[e["name"]] += e["args"].values()
        return found

    def numbers(self):
        return [int(e["name"].split("#")[1]) for e in self.steps]


class Node:
    """A daemon, and dyno for it."""

    def __init__(self, build, tmp_path, daemon):
        self.build, self.tmp, self.daemon, self.orders = build, tmp_path, daemon, 0

    def status(self):
        return self.daemon.call({"fn": "getStatus"})

    def wait(self, state):
        wait_until(lambda: self.status()["nputrace"] == state, state)

    def wait_step(self, at_least=1):
        return wait_until(lambda: max(self.status()["current_step"] - at_least + 1, 0), "steps")

    def order(self, *options, start=-1, steps=2, out=None):
        """dyno's answer, and where the traces go."""
        self.orders += 1
        out = out or self.tmp / f"trace{self.orders}"
        told = dyno(
            self.build, self.daemon, "nputrace", "--start-step", start, "--iterations", steps,
            "--log-file", out, *options,
        )  # fmt: skip
        return json.loads(re.search(r"response = (\{.*\})", told).group(1)), out

    def traces(self, out, n=1):
        found = wait_until(lambda: len(dirs(out)) >= n and dirs(out), f"{n} traces in {out}")
        self.wait("Idle")
        return sorted((Trace(d) for d in found), key=lambda t: t.rank)

    def trace(self, *options, **how):
        """One rank's, from the order to its files."""
        answer, out = self.order(*options, **how)
        assert answer["commandStatus"] == "effective", answer
        (trace,) = self.traces(out)
        trace.answer = answer
        return trace


def dirs(out):
    return sorted(out.glob("*_sonde")) if out.exists() else []


@contextlib.contextmanager
def daemon_for(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        yield Node(build, tmp_path, d)


def ns(us):
    return round(us * 1000)


def check_nested(slices):
    """No two slices of a thread overlap without one being in the other."""
    for tid in {e["tid"] for e in slices}:
        mine = [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), e["name"]) for e in slices
                if e["tid"] == tid]  # fmt: skip
        around = []
        for start, end, name in sorted(mine, key=lambda s: (s[0], -s[1])):
            while around and around[-1][1] <= start:
                around.pop()
            assert not around or end <= around[-1][1], (name, start, end, around[-1])
            around.append((start, end, name))


def functions(trace, pattern=""):
    """{name: seconds} of the calls of Python in the trace, and the slices."""
    calls = trace.slices(r"\.py\(\d+\): " + pattern)
    total = collections.Counter()
    for e in calls:
        total[e["name"].rpartition(": ")[2]] += e["dur"] / 1e6
    return total, calls
