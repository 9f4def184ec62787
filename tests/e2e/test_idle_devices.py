# SPDX-License-Identifier: MulanPSL-2.0
"""Why devices idle: jobs with planted reasons, which write themselves when they did what. They are recorded for
real; `sonde timeline --explain` and `sonde activity summary` name the reasons with their share of the time, to
within TOLERANCE of it, and name none in a healthy job."""

import collections
import contextlib
import gzip
import json
import pathlib
import re
import subprocess
import sys

import pytest
from monitored import dyno, environment
from recording import clean_env
from traced_steps import daemon_for
from waiting import pause, wait_until

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "targets/python/idle_devices.py"
TOLERANCE = 0.05  # of the time: samples come every millisecond, and a busy machine delays them
STEPS = 12
LATE = {"python", "call", "synchronisation", "unknown"}

# What the program imports in place of PyTorch, at paths that PyTorch's files have.
LOADER = """
class _SingleProcessDataLoaderIter:
    def __init__(self, loader):
        self.loader, self.at = loader, 0

    def __next__(self):
        self.at += 1
        return self.loader.dataset[self.at]

class DataLoader:
    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        return _SingleProcessDataLoaderIter(self)
"""
SAVE = "import time\ndef save(what, seconds):\n    time.sleep(seconds)\n"


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    top = tmp_path_factory.mktemp("idle") / "site-packages"
    data = top / "torch/utils/data"
    data.mkdir(parents=True)
    for folder in (top / "torch", top / "torch/utils", data):
        (folder / "__init__.py").write_text("")
    (data / "dataloader.py").write_text(LOADER)
    (top / "torch/serialization.py").write_text(SAVE)
    return top


@pytest.fixture
def node(build, tmp_path):
    with daemon_for(build, tmp_path) as n:
        yield n


@contextlib.contextmanager
def jobs(node, packages, *plans, **env):
    """One rank for each plan; if there are several, they reduce their gradients together."""
    found = []
    sim = node.build / "sim"
    try:
        for rank, plan in enumerate(plans):
            e = environment(node.build, node.daemon, rank, WORLD_SIZE=len(plans), SIM_NPU_TIME_SCALE=1, **env)
            e["PYTHONPATH"] = f"{node.build}/python:{packages}"
            e["LD_LIBRARY_PATH"] = str(sim)
            e["SIM_NPU_STATE"] = str(node.tmp / "npu")
            e["LD_PRELOAD"] += f":{sim}/libruntime.so:{sim}/libms_tools_ext.so"
            words = [sys.executable, PROGRAM, plan, node.tmp / f"truth{rank}"]
            if len(plans) > 1:
                words += [node.tmp / "root", rank, len(plans)]
            found.append(
                subprocess.Popen(
                    list(map(str, words)),
                    env=e,
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,  # who is ended first makes the others fail
                )
            )
        node.wait_step(3)
        yield found
    finally:
        for job in found:
            job.kill()
            job.wait()


def planted(node, rank, from_ns, to_ns):
    """{reason: ns} within these times, as the program wrote it."""
    sums = collections.Counter()
    for line in (node.tmp / f"truth{rank}").read_text().splitlines(True):
        if line.endswith("\n"):
            what, began, ended = line.rsplit(" ", 2)
            sums[what] += max(min(int(ended), to_ns) - max(int(began), from_ns), 0)
    return sums


def line_of(text):
    """The number of the line of the program that has it."""
    (found,) = [i for i, line in enumerate(PROGRAM.read_text().splitlines(), 1) if text in line]
    return found


def sonde(node, *words):
    words = [node.build / "bin/sonde", *map(str, words)]
    r = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    return r.stdout


def answers(node, *sources):
    """The same question to both, as JSON."""
    return [json.loads(sonde(node, *words, "--json", *sources))
            for words in (["activity", "summary"], ["timeline", "--explain"])]  # fmt: skip


def shares(rank):
    """{reason: share of the time of its steps}"""
    time_ns = sum(d["all"]["step_ns"] for d in rank["devices"])
    sums = collections.Counter()
    for reason in rank["idle"]["reasons"]:
        sums[reason["why"]] += reason["ns"]
    idle = sum(d["all"]["idle_ns"] for d in rank["devices"])
    assert sum(sums.values()) == idle == rank["idle"]["ns"] == sum(s["ns"] for s in rank["idle"]["steps"])
    return {why: ns / time_ns for why, ns in sums.items()}


def check_planted(node, rank):
    from_ns, to_ns = rank["steps"][0]["start_ns"], rank["steps"][-1]["end_ns"]
    found, want = shares(rank), planted(node, rank["rank"], from_ns, to_ns)
    told = {why: round(v, 3) for why, v in found.items()}, want, to_ns - from_ns
    # samples that come late on a busy machine show what called the planted work, or nothing
    late = sum(found.get(why, 0) for why in LATE)
    assert late < 0.3, told
    for why, ns in want.items():
        share = ns / (to_ns - from_ns)
        assert share - TOLERANCE - late < found.get(why, 0) < share + TOLERANCE, (why, told)
    for why, share in found.items():
        assert why in want or why in LATE or share < TOLERANCE, (why, told)
    return found


def trace(node, n, *options):
    answer, out = node.order("--analyse", "--with-stack", "--gc-detect-threshold", 0, *options, steps=STEPS)
    assert answer["commandStatus"] == "effective", answer
    node.traces(out, n)
    return out


def test_planted_reasons_of_one_rank(node, packages):
    with jobs(node, packages, "d=20,g,s=15,a", SIM_NPU_ALLOC_US=12000):
        out = trace(node, 1)
    for answer in answers(node, out):
        (rank,) = answer["ranks"]
        found = check_planted(node, rank)
        assert {"data loader", "checkpoint", "garbage collection", "allocation"} <= set(found)
        by_why = {r["why"]: r for r in reversed(answer["idle"]["reasons"])}
        loader = by_why["data loader"]
        assert loader["what"].startswith("_SingleProcessDataLoaderIter.__next__ (torch/utils/data/dataloader.py:")
        assert "Rows.__getitem__ (idle_devices.py:" in loader["what"]
        assert loader["where"] == f"train_step (idle_devices.py:{line_of('next(loader)')})", "the line of the call"
        assert loader["ranks"] == [0]
        assert by_why["checkpoint"]["what"].startswith("save (torch/serialization.py:")
        assert by_why["allocation"]["what"] == "rtMalloc"
        assert by_why["checkpoint"]["where"] == f"train_step (idle_devices.py:{line_of('serialization.save')})"
        assert by_why["allocation"]["where"].startswith("allocate (idle_devices.py:")
        assert answer["idle"]["python_share"] > 0.8 and answer["idle"]["unknown_share"] < 0.2
    text = sonde(node, "timeline", "--explain", "-o", node.tmp / "t.pftrace", out)
    assert " points: rank 0 waits for its data loader: " in text and (node.tmp / "t.pftrace").exists()


def test_the_rank_that_the_others_wait_for(node, packages):
    with jobs(node, packages, "d=1", "d=25", "d=1"):
        out = trace(node, 3)
    hosts = []
    for place in sorted(out.glob("*_sonde")):  # as if each had been a host of its own
        rank = json.loads((place / "summary.json").read_text())["rank"]
        (node.tmp / f"node{rank}").mkdir()
        place.rename(node.tmp / f"node{rank}" / place.name)
        hosts.append(f"host{rank}={node.tmp}/node{rank}")
    for answer in answers(node, *hosts):
        slowest = answer["slowest"]
        assert (slowest["verdict"], slowest["rank"], slowest["why"]) == ("others wait", 1, "idle"), slowest
        assert slowest["host"] == "host1" and {r["host"] for r in answer["ranks"]} == {f"host{i}" for i in range(3)}
        assert answer["idle"]["slowest"]["why"] == "data loader"
        assert answer["waiting"]["rank"] == 1 and answer["waiting"]["last_steps"] > answer["waiting"]["steps"] / 2
        assert answer["waiting"]["waiting_ns"] > answer["waiting"]["communication_ns"] / 2
        for rank in answer["ranks"]:
            check_planted(node, rank)
    text = sonde(node, "activity", "summary", *hosts)
    assert " points: rank 1 (" in text and " of them) and 2 others wait for their data loaders: " in text
    # "In the 9 steps that all of them have, rank 1 is": each begins with the step that it is in
    assert re.search(r"\b[Rr]ank 1 is the slowest", text) and ") it waits for its data loader: " in text


def test_a_healthy_job_has_no_reason(node, packages):
    with jobs(node, packages, "h"):
        out = trace(node, 1)
    for answer in answers(node, out):
        # on a busy machine it may run late; then it does nothing but launch and wait
        (rank,) = answer["ranks"]
        found = shares(rank)
        assert sum(ns for why, ns in found.items() if why not in LATE) < 0.01, found


def test_a_recording(build, packages, tmp_path):
    """`sonde record` has stacks, kernels and steps in one file."""
    sim, truth = build / "sim", tmp_path / "truth0"
    env = clean_env(
        tmp_path,
        RANK=0,
        SIM_NPU_TIME_SCALE=1,
        SIM_NPU_ALLOC_US=12000,
        SIM_NPU_STATE=tmp_path / "npu",
        LD_LIBRARY_PATH=sim,
        LD_PRELOAD=f"{sim}/libruntime.so:{sim}/libms_tools_ext.so",
        PYTHONPATH=f"{build}/python:{packages}",
    )
    job = [sys.executable, PROGRAM, "d=20,s=15,a,n=20", truth]
    words = [build / "bin/sonde", "record", "--interval=2ms", "--api", "--mspti", sim / "libmspti.so",
             "-o", tmp_path / "rec", "--", *job]  # fmt: skip
    r = subprocess.run(list(map(str, words)), env=env, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0 and "sonde timeline --explain" in r.stderr, r.stderr
    node = collections.namedtuple("Place", "build tmp")(build, tmp_path)
    answer = json.loads(sonde(node, "timeline", "--explain", "--json", tmp_path / "rec"))
    (rank,) = answer["ranks"]
    assert len(rank["steps"]) > 15
    check_planted(node, rank)
    assert "Why devices idle: sonde timeline --explain" in sonde(node, "activity", "summary", tmp_path / "rec")


def test_files_of_a_monitor_and_a_trace_of_stacks(node, packages):
    """Steps are not known, and Python comes from another program."""
    with jobs(node, packages, "d=20,s=15") as (job,):
        stacks, out = node.tmp / "stack.json", node.tmp / "monitor"
        dyno(node.build, node.daemon, "npu-monitor", "--npu-monitor-start", "--mspti-activity-kind",
             "Kernel,RuntimeAPI", "--log-file", out)  # fmt: skip
        wait_until(lambda: list(out.glob("*.db")) if out.exists() else [], "files of the monitor")
        sonde(node, "stack", "-q", "-p", job.pid, "-i", "0.001", "-d", "1.5", "-o", stacks)
        pause(1.2, "the monitor flushes every second")
    answer = json.loads(sonde(node, "timeline", "--explain", "--json", out, stacks))
    (rank,) = answer["ranks"]
    trace_of = json.loads(stacks.read_text())["otherData"]
    assert trace_of and rank["steps"][0]["step"] is None
    from_ns, to_ns = rank["steps"][0]["start_ns"], rank["steps"][0]["end_ns"]
    found, want = shares(rank), planted(node, 0, from_ns, to_ns)
    known = rank["idle"]["python_ns"] / rank["idle"]["ns"]
    assert 0.1 < known < 1 and rank["idle"]["has_python"]
    for why in ("data loader", "checkpoint"):  # where Python is known, in the planted ratio
        idle = sum(want.values())
        assert abs(found[why] * (to_ns - from_ns) / rank["idle"]["python_ns"] - want[why] / idle) < 0.15
    only = json.loads(sonde(node, "timeline", "--explain", "--json", out))
    assert only["idle"]["ranks_without_python"] == 1 and only["idle"]["python_share"] == 0
    text = sonde(node, "timeline", "--explain", out)
    assert "No Python is known of rank 0" in text


def kineto(path, rank, late_us):
    """A trace of PyTorch's profiler, with its cut paths: a step of 10 ms computes for 4 ms, `late_us` late."""
    us = lambda **e: dict(ph="X", pid=900 + rank, tid=900 + rank, args={}, **e)
    events = [dict(ph="M", name="process_labels", pid=rank, tid=0, args=dict(labels=f"GPU {rank}"))]
    for step in range(3):
        at = step * 10000
        events += [
            us(cat="user_annotation", name=f"ProfilerStep#{step + 1}", ts=at, dur=10000),
            us(cat="python_function", name="train.py(18): train", ts=at, dur=9900),
            us(cat="python_function", name="torch/utils/data/dataloader.py(628): __next__", ts=at, dur=late_us),
            us(cat="cpu_op", name="aten::item", ts=at + 9000, dur=500),
            us(cat="cuda_runtime", name="cudaLaunchKernel", ts=at + late_us, dur=10),
            us(cat="kernel", name="gemm", ts=at + late_us, dur=4000)
            | dict(pid=rank, tid=7, args=dict(stream=7, device=rank)),
            us(cat="kernel", name="ncclDevKernel_AllReduce", ts=at + late_us + 4000, dur=5000 - late_us)
            | dict(pid=rank, tid=8, args=dict(stream=8, device=rank)),
        ]
    info = dict(rank=rank, world_size=2)
    trace = dict(traceEvents=events, distributedInfo=info, baseTimeNanoseconds=1794723775 * 10**9)
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return path


def test_traces_of_pytorchs_profiler(build, tmp_path):
    """Exactly, to the nanosecond; a user without rights beside /dev/null can read compressed ones."""
    files = [kineto(tmp_path / f"rank{rank}.json.gz", rank, late) for rank, late in ((0, 100), (1, 3000))]
    words = [build / "bin/sonde", "timeline", "--explain", "--json", *files]
    r = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    answer = json.loads(r.stdout)
    assert (answer["slowest"]["verdict"], answer["slowest"]["rank"]) == ("others wait", 1)
    assert answer["idle"]["slowest"]["why"] == "data loader"
    for rank, late in ((0, 100), (1, 3000)):
        sums = collections.Counter()
        for reason in answer["ranks"][rank]["idle"]["reasons"]:
            sums[reason["why"]] += reason["ns"] // 3000
        assert sums == {"data loader": late, "synchronisation": 500, "python": 400, "unknown": 100}
    found = {(x["why"], x["what"], x["where"]) for x in answer["idle"]["reasons"]}
    assert ("data loader", "__next__ (torch/utils/data/dataloader.py:628)", "train (train.py:18)") in found
    waits = answer["waiting"]
    assert (waits["rank"], waits["waiting_ns"], waits["communication_ns"]) == (1, 3 * 2900000, 3 * 6900000)
    steps = subprocess.run([*words, "--steps=2-3"], capture_output=True, text=True, timeout=60)
    assert [len(x["steps"]) for x in json.loads(steps.stdout)["ranks"]] == [2, 2]
    # nothing to explain
    nothing = tmp_path / "host.json"
    nothing.write_text('{"traceEvents": [{"ph": "X", "name": "f", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}')
    r = subprocess.run([*words[:3], nothing], capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and "needs kernels" in r.stderr
