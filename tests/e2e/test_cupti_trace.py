# SPDX-License-Identifier: MulanPSL-2.0
"""nputrace in CUDA jobs, on a simulated driver and libcupti: through dyno, the daemon, the guest
and its recorder."""

import collections
import contextlib
import json
import pathlib
import sqlite3
import subprocess
import sys

import pytest
from cuda_jobs import CudaJob, enabled
from traced_steps import daemon_for
from waiting import wait_until

# How a step begins and ends. sonde_step() ends one, and is there if the library was preloaded.
PUSHED = (["push step start"], ["pop"])
STARTED = (["start step start"], ["end"])
IN_DOMAIN = (["dpush step start"], ["dpop"])
TOLD = ([], ["step"])


class Traced(CudaJob):
    def __init__(self, node, how=PUSHED, **kw):
        self.node, self.how, self.step = node, how, 0
        super().__init__(
            node.build,
            node.tmp,
            MSMONITOR_USE_DAEMON="1",
            KINETO_IPC_SOCKET_DIR=str(node.daemon.ipc_dir),
            **kw,
        )

    def train(self, n, *more):
        """Kernels are named by their step; more is done in each."""
        before, after = self.how
        for _ in range(n):
            self.tell(*before, f"kernels s{self.step} 4 100000", "sleep 1")
            self.tell("copy 1 4096", "set 7 64")
            self.tell("push forward", "pop", "mark here", *more, "sleep 5", *after)
            self.step += 1

    def ready(self, *options, after, steps):
        """Orders a trace that begins after so many more steps; where it will be, and its first."""
        first = self.step + after
        answer, out = self.node.order(*options, start=first, steps=steps)
        assert answer["commandStatus"] == "effective", answer
        self.node.wait("Ready")
        return first, out


@pytest.fixture
def node(build, tmp_path):
    with daemon_for(build, tmp_path) as n:
        yield n


@contextlib.contextmanager
def training(node, *args, **kw):
    with Traced(node, *args, **kw) as job:
        job.train(3)
        node.wait_step(2)
        yield job


def names(slices):
    return collections.Counter(e["name"] for e in slices)


WAYS = [
    ("pushed", PUSHED, {}),
    ("started", STARTED, {}),
    ("of a domain", IN_DOMAIN, {}),
    ("sonde_step", TOLD, {"preload": True}),
]


@pytest.mark.parametrize("how,kw", [w[1:] for w in WAYS], ids=[w[0] for w in WAYS])
def test_exactly_the_asked_steps(node, how, kw):
    with training(node, how, **kw) as job:
        options = ("--msprof-tx", "--analyse", "--activities", "CPU,NPU")
        first, out = job.ready(*options, after=2, steps=2)
        assert enabled(job) == []
        job.train(7)
        (t,) = node.traces(out)
        assert enabled(job) == []
    assert t.numbers() == [first, first + 1]
    assert (t.about["start_step"], t.about["stop_step"]) == (first, first + 2)
    assert t.about["complete"] and t.about["lost"] == 0 and t.about["not_honoured"] == []
    assert names(t.kind("Kernel")) == {f"s{first}": 4, f"s{first + 1}": 4}
    assert names(t.kind("RuntimeAPI")) == {
        "cudaLaunchKernel": 8,
        "cudaMemcpyAsync": 2,
        "cudaMemsetAsync": 2,
    }
    assert names(t.kind("API")) == {"cuLaunchKernel": 8}
    assert [e["args"]["bytes"] for e in t.kind("MemCpy")] == [4096, 4096]
    assert [e["args"]["bytes"] for e in t.kind("MemSet")] == [64, 64]
    marks = names(t.kind("Marker"))
    assert marks["forward"] == 2
    if how != TOLD:
        assert marks["step start"] == 2
    check_db(t, first)
    check_summary(node, out, t, first)
    check_recording(node, t)


def check_recording(node, t):
    """It has what the trace beside it has."""
    command = [node.build / "bin/sonde", "timeline", "--format=json", "-o", node.tmp / "recorded.json"]
    r = subprocess.run([*command, t.path / "events.sonde"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    events = json.loads((node.tmp / "recorded.json").read_text())["traceEvents"]
    for category in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver"):
        found = [[e["name"] for e in all_of if e["ph"] == "X" and e.get("cat") == category] for all_of in (events, t.events)]
        assert len(found[0]) == len(found[1]) and (sorted(found[0]) == sorted(found[1]) or "mem" in category), category


def check_db(t, first):
    (path,) = t.path.glob("*.db")
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        kernels = db.execute(
            "select s.value, count(*), sum(t.endNs - t.startNs) from TASK t"
            " join COMPUTE_TASK_INFO i using (globalTaskId) join STRING_IDS s on s.id = i.name"
            " group by 1 order by 1"
        ).fetchall()
        assert kernels == [(f"s{n}", 4, 400000) for n in (first, first + 1)]
        assert db.execute("select count(*), sum(bytes) from MEMCPY").fetchall() == [(2, 8192)]
        assert db.execute("select count(*), sum(bytes) from MEMSET").fetchall() == [(2, 128)]


def check_summary(node, out, t, first):
    made = json.loads((t.path / "summary.json").read_text())
    assert [s["step"] for s in made["steps"]] == [first, first + 1]
    assert all(s["whole"] for s in made["steps"]) and made["lost"] == made["left_out"] == 0
    kernels = {k["name"]: (k["calls"], k["total_ns"]) for k in made["kernels"]}
    assert kernels[f"s{first}"] == kernels[f"s{first + 1}"] == (4, 400000)
    (device,) = made["devices"]
    for step in device["steps"]:
        parts = [step[p + "_ns"] for p in ("compute", "communication", "copy", "idle")]
        assert sum(parts) == step["step_ns"] and parts[0] >= 100000 and parts[2] > 0
    (words,) = out.glob("summary_*.txt")
    assert f"teps {first} to {first + 1} of " in words.read_text().splitlines()[0]
    assert (t.path / "summary.txt").exists()
    shown = subprocess.run(
        [node.build / "bin/sonde", "activity", "summary", out], capture_output=True, text=True
    )
    assert shown.returncode == 0 and shown.stdout == words.read_text()


def test_only_the_device_and_no_marks(node):
    with training(node) as job:
        _, out = job.ready("--activities", "NPU", after=2, steps=1)
        job.train(5)
        (t,) = node.traces(out)
    assert len(t.kind("Kernel")) == 4 and t.kind("MemCpy") and t.kind("MemSet")
    assert not t.kind("RuntimeAPI") and not t.kind("API") and not t.kind("Marker")


def test_memory_of_the_driver(node):
    with training(node) as job:
        _, out = job.ready("--profile-memory", after=2, steps=2)
        job.train(6, "alloc 3 1048576", "free 3 1048576")
        (t,) = node.traces(out)
    assert (t.path / "memory.csv").read_text().count("1048576") >= 4


def test_what_the_last_step_launched_comes(node):
    """A kernel runs on for longer than steps take; those behind it are in the same buffer."""
    with training(node) as job:
        first, out = job.ready(after=2, steps=2)
        job.train(3)
        job.train(1, f"kernels long 1 {1500 * 10**6}", "kernels behind 5 1000")
        job.train(3)
        (t,) = node.traces(out)
    kernels = names(t.kind("Kernel"))
    assert kernels == {f"s{first}": 4, f"s{first + 1}": 4, "long": 1, "behind": 5}
    assert t.about["lost"] == 0


def test_what_never_ends_is_lost_and_counted(node):
    with training(node) as job:
        first, out = job.ready(after=2, steps=2)
        job.train(3)
        job.train(1, f"kernels endless 3 {600 * 10**9}")
        job.train(3)
        (t,) = node.traces(out)
    assert not t.slices("endless") and t.about["lost"] == 3
    assert names(t.kind("Kernel"))[f"s{first}"] == 4


def test_right_after_a_profile(node):
    """The library is not taken before the profiler is done with it; then the trace begins."""
    with training(node) as job:
        assert job.profile("kernels profiled 100 1000", "sleep 5")["kernels"] == 100
        answer, out = node.order(steps=2)
        assert answer["commandStatus"] == "effective"
        node.wait("Ready")
        wait_until(lambda: job.train(1) or node.status()["nputrace"] != "Ready", "the first step")
        job.train(3)
        (t,) = node.traces(out)
    assert names(t.kind("Kernel")) == {f"s{n}": 4 for n in t.numbers()} and len(t.numbers()) == 2


def test_steps_told_by_the_program_win(node):
    """Ranges that come after sonde_step() are ranges and no steps."""
    with training(node, TOLD, preload=True) as job:
        job.tell("push step start", "pop", "push step start", "pop")
        first, out = job.ready("--msprof-tx", after=2, steps=1)
        job.train(2)
        job.train(1, "push step start", "pop")
        job.train(2)
        (t,) = node.traces(out)
    assert t.numbers() == [first]
    assert names(t.kind("Marker"))["step start"] == 1


def test_one_trace_after_the_other_and_the_monitor_between(node):
    with training(node) as job:
        for _ in range(2):
            first, out = job.ready(after=2, steps=1)
            job.train(5)
            (t,) = node.traces(out)
            assert names(t.kind("Kernel")) == {f"s{first}": 4}
            job.start()
            job.train(1)
            job.stop()
            assert job.names()[f"s{job.step - 1}"] == 4
        wait_until(lambda: enabled(job) == [], "the end")


def test_the_script_for_real_gpus_can_be_tried_out(build, tmp_path):
    """tests/device/activity.py: its statements hold on the simulated driver, too."""
    script = pathlib.Path(__file__).resolve().parents[1] / "device/activity.py"
    words = ["--build", build, "--out", tmp_path, "--sim", "--only", "same_steps,trace,kinds"]
    done = subprocess.run(
        [sys.executable, script, *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
