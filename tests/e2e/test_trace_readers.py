# SPDX-License-Identifier: MulanPSL-2.0
"""Traces of steps as programs of others read them: HTA (HolisticTraceAnalysis) those of GPUs,
msprof-analyze those of NPUs. What they measure is what `sonde activity summary` says."""

import collections
import contextlib
import json
import pathlib
import subprocess
import sys

import pytest
from capabilities import lacks
from cuda_jobs import CudaJob
from monitored import environment
from traced_steps import daemon_for
from waiting import wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
RANKS, FIRST, STEPS = 2, 6, 3
COLLECTIVE = "ncclKernel_AllReduce_RING_LL_Sum_float"


@pytest.fixture(scope="module")
def reader():
    """Runs a script with these packages; what it prints last is JSON."""
    for python in (sys.executable, ROOT / "build/readers/bin/python"):
        with contextlib.suppress(OSError):
            words = [python, "-c", "import hta, msprof_analyze"]
            if subprocess.run(words, capture_output=True, timeout=60).returncode == 0:
                break
    else:
        lacks("trace-readers", "./bootstrap test installs them")

    def read(script, *args):
        words = [python, "-c", script, *map(str, args)]
        r = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert r.returncode == 0, r.stderr[-3000:]
        return json.loads(r.stdout.splitlines()[-1])

    return read


@pytest.fixture
def node(build, tmp_path):
    with daemon_for(build, tmp_path) as n:
        yield n


def summary(node, out):
    """{rank: what `sonde activity summary` says about it}"""
    words = [node.build / "bin/sonde", "activity", "summary", "--json", out]
    told = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    found = {}
    for rank in told["ranks"]:
        assert rank["complete"] and rank["after_ns"] == 0
        (device,) = rank["devices"]
        kernels = {k["name"]: (k["calls"], k["total_ns"]) for k in rank["kernels"]}
        found[rank["rank"]] = dict(device["all"], kernels=kernels)
    return found


def outside_ns(trace):
    """Of the steps, what is before the first work of the device and behind the last."""
    work = [e for e in trace.slices() if e.get("cat") == "kernel" or e.get("cat", "").startswith("gpu_mem")]
    first, last = min(e["ts"] for e in work), max(e["ts"] + e["dur"] for e in work)
    return round((first - trace.from_ + trace.to - last) * 1000)


# --- HTA ---

HTA = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis

files = {int(rank): path for rank, path in json.loads(sys.argv[1]).items()}
t = TraceAnalysis(trace_files=files, trace_dir="/", include_last_profiler_step=True)
ranks = sorted(files)
rows = lambda frame: json.loads(frame.to_json(orient="records"))
kinds, kernels = t.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
launches = t.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False)
graph, found = t.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=1)
print(json.dumps({
    "steps": [int(s) for s in t.get_profiler_steps()],
    "time": rows(t.get_temporal_breakdown(visualize=False)),
    "overlap": rows(t.get_comm_comp_overlap(visualize=False)),
    "kernels": rows(kernels),
    "launches": {rank: rows(frame) for rank, frame in launches.items()},
    "bandwidth": sorted(name for _, name in t.get_memory_bw_summary(ranks=ranks).index),
    "queues": [list(map(int, i)) for i in t.get_queue_length_summary(ranks=ranks).index],
    "stragglers": [int(r) for r in t.get_potential_stragglers(num_candidates=1)],
    "critical_path": bool(found) and len(graph.critical_path_nodes),
}))
"""


# The same of a timeline, as far as it has what is needed.
HTA_TIMES = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis

files = {int(rank): path for rank, path in json.loads(sys.argv[1]).items()}
t = TraceAnalysis(trace_files=files, trace_dir="/", include_last_profiler_step=True)
rows = lambda frame: json.loads(frame.to_json(orient="records"))
kinds, kernels = t.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
print(json.dumps({
    "steps": [int(s) for s in t.get_profiler_steps()],
    "time": rows(t.get_temporal_breakdown(visualize=False)),
    "overlap": rows(t.get_comm_comp_overlap(visualize=False)),
    "kernels": rows(kernels),
}))
"""


def train(jobs, n):
    """Rank 1 computes twice as long. The first collective of a step is hidden by compute; the second is
    more than a hundredth of a step on a busy machine, too: HTA takes no notice of shorter ones."""
    for _ in range(n):
        for rank, job in enumerate(jobs):
            job.tell("push step start", f"kernels gemm 1 {(rank + 1) * 3000000}")
            job.tell(f"kernels {COLLECTIVE} 1 500000", "sleep 10", "kernels softmax 1 2000000")
            job.tell("sleep 3", f"kernels {COLLECTIVE} 1 4000000", "sleep 5", "copy 1 4096000")
        for job in jobs:
            job.tell("sleep 2", "pop")


def test_hta_and_the_summary_agree(build, node, tmp_path, reader):
    jobs = []
    with contextlib.ExitStack() as stack:
        for rank in range(RANKS):
            place = tmp_path / f"rank{rank}"
            place.mkdir()
            env = {"MSMONITOR_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(node.daemon.ipc_dir)}
            # HTA does not see calls that are shorter than a microsecond
            env.update(RANK=str(rank), WORLD_SIZE=str(RANKS), SIM_CUDA_CALL_US="5")
            jobs.append(stack.enter_context(CudaJob(build, place, **env)))
        train(jobs, 3)
        node.wait_step(2)
        answer, out = node.order("--analyse", "--activities", "CPU,NPU", start=FIRST, steps=STEPS)
        assert answer["commandStatus"] == "effective", answer
        node.wait("Ready")
        train(jobs, FIRST + STEPS)
        traces = node.traces(out, RANKS)
    ours = summary(node, out)
    explained = subprocess.run(
        [build / "bin/sonde", "timeline", "--explain", "--json", out], stdout=subprocess.PIPE, check=True
    )
    for rank in json.loads(explained.stdout)["ranks"]:
        (device,) = rank["devices"]
        for part, ns in device["all"].items():
            assert abs(ns - ours[rank["rank"]][part]) <= 0.01 * device["all"]["step_ns"], part
    hta = reader(HTA, json.dumps({t.rank: str(t.path / "trace.json") for t in traces}))
    merged = {rank: tmp_path / f"rank{rank}.json.gz" for rank in range(RANKS)}
    for rank, path in merged.items():
        words = [build / "bin/sonde", "timeline", "--format=json", f"--ranks={rank}", "-o", path, out]
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    again = reader(HTA_TIMES, json.dumps({rank: str(path) for rank, path in merged.items()}))
    assert again == {key: hta[key] for key in again}, "a timeline of a rank says the same"

    assert hta["steps"] == [FIRST + i for i in range(STEPS)]
    # it rounds both ends of an event to whole microseconds
    near = lambda us, ns, events: abs(us * 1000 - ns) <= 2000 * events
    hidden = []
    for rank, row in enumerate(hta["time"]):
        mine = ours[rank]
        assert near(row["compute_time(us)"], mine["compute_ns"], 2 * STEPS)
        rest = mine["communication_ns"] + mine["copy_ns"]
        # its time goes from the first work of the device to the last
        idle_ns = mine["idle_ns"] - outside_ns(traces[rank])
        assert near(row["idle_time(us)"], idle_ns, 6 * STEPS) and idle_ns > 0
        assert abs(row["idle_time(us)"] * 1000 - idle_ns) < 0.01 * mine["step_ns"]
        assert near(row["non_compute_time(us)"], rest, 4 * STEPS) and rest > 0
        every = mine["all_communication_ns"]
        hidden.append(100 * (every - mine["communication_ns"]) / every)
        assert abs(hta["overlap"][rank]["comp_comm_overlap_pctg"] - hidden[-1]) < 1
    assert max(hidden) > 0
    for row in hta["kernels"]:
        name = row["name"].replace("Memcpy", "memcpy")
        calls, total_ns = ours[row["rank"]]["kernels"][name]
        assert near(row["sum (us)"], total_ns, calls)
    parts = collections.Counter(row["kernel_type"] for row in hta["kernels"])
    assert parts == {"COMPUTATION": 2 * RANKS, "COMMUNICATION": RANKS, "MEMORY": RANKS}
    # every launch is joined with what it launched
    assert {r: len(rows) for r, rows in hta["launches"].items()} == {"0": 5 * STEPS, "1": 5 * STEPS}
    assert hta["bandwidth"] == ["Memcpy HtoD"] * RANKS and len(hta["queues"]) == RANKS
    assert hta["stragglers"] == [1] and hta["critical_path"]


def test_hta_and_the_summary_agree_about_a_recording(build, tmp_path, reader):
    """A timeline of one rank of `sonde record` has what HTA wants: times of kernels, and steps by the names of PyTorch."""
    recordings, jobs = [tmp_path / f"rank{rank}" / "rec" for rank in range(RANKS)], []
    with contextlib.ExitStack() as stack:
        for rank, out in enumerate(recordings):
            out.parent.mkdir()
            below = [build / "bin/sonde", "record", "-q", "--api", "-o", out, "--"]
            job = CudaJob(build, out.parent, inject=False, below=below, RANK=str(rank), WORLD_SIZE=str(RANKS))
            jobs.append(stack.enter_context(job))
        train(jobs, 6)
        for job in jobs:
            job.process.stdin.close()
            job.process.wait(timeout=60)
    hta = reader(HTA_TIMES, json.dumps({rank: str(one_rank(build, out, rank)) for rank, out in enumerate(recordings)}))
    words = [build / "bin/sonde", "activity", "summary", "--json", recordings[0]]
    for rank, out in enumerate(recordings):
        told = json.loads(subprocess.run([*words[:-1], out], stdout=subprocess.PIPE, check=True).stdout)
        (mine,) = told["ranks"]
        assert len(mine["steps"]) >= 4 and {s["step"] for s in mine["steps"]} == set(hta["steps"]), hta["steps"]
        for kernel in mine["kernels"]:
            name = kernel["name"].replace("memcpy", "Memcpy")
            (theirs,) = [k for k in hta["kernels"] if k["rank"] == rank and k["name"] == name]
            # it rounds both ends of an event to whole microseconds
            assert abs(theirs["sum (us)"] * 1000 - kernel["total_ns"]) <= 2000 * kernel["calls"]
            assert theirs["kernel_type"] == {"compute": "COMPUTATION", "communication": "COMMUNICATION",
                                             "copy": "MEMORY"}[kernel["part"]]  # fmt: skip
        (device,) = mine["devices"]
        share = 6 / len(mine["steps"])  # the last step has no end; all are alike
        for ours, ours_of_hta in (("compute_ns", "compute_time(us)"), ("communication_ns", "non_compute_time(us)")):
            ns = share * device["all"][ours]
            assert abs(hta["time"][rank][ours_of_hta] * 1000 - ns) <= 0.01 * ns, ours


def one_rank(build, recording, rank):
    path = recording.parent / "one.json.gz"
    words = [build / "bin/sonde", "timeline", "--format=json", f"--ranks={rank}", "-o", path, recording]
    subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
    return path


# --- msprof-analyze ---

MSPROF = """
import json, os, sqlite3, sys
from msprof_analyze.cluster_analyse.cluster_analysis import Interface

def analyse(mode):
    out = os.path.join(sys.argv[2], mode)
    os.mkdir(out)
    Interface({
        "profiling_path": sys.argv[1], "mode": mode, "output_path": out, "export_type": "db",
        "parallel_mode": "concurrent", "rank_list": "all", "step_id": -1, "force": True,
    }).run()
    return sqlite3.connect(os.path.join(out, "cluster_analysis_output/cluster_analysis.db"))

kernels = analyse("compute_op_sum").execute(
    "SELECT Rank, OpName, Count, SumNs FROM ComputeOpPerRankStatsByOpName").fetchall()
collectives = analyse("hccl_sum").execute(
    "SELECT Rank, OpType, Count, SumNs FROM HcclPerRankStats").fetchall()
print()
print(json.dumps({"compute": kernels, "communication": collectives}))
"""


def test_msprof_analyze_and_the_summary_agree(build, node, tmp_path, reader):
    words = ["--forever", "--quiet", "--ranks", str(RANKS), "--step-ms", "10"]
    env = {k: v for k, v in environment(build, node.daemon).items() if k != "RANK"}
    job = subprocess.Popen([build / "sim/simtrain", *words], env=env, stdout=subprocess.DEVNULL)
    try:
        asked = lambda: len(node.daemon.call({"fn": "listProcesses"})["processes"])
        wait_until(lambda: asked() == RANKS and node.status()["current_step"] > 0, "the ranks")
        out = node.order("--analyse", steps=STEPS)[1]
        node.traces(out, RANKS)
    finally:
        job.kill()
        job.wait()
    ours = summary(node, out)
    theirs = reader(MSPROF, out, tmp_path)
    for part in ("compute", "communication"):
        seen = collections.defaultdict(dict)
        for rank, name, calls, total_ns in theirs[part]:
            seen[rank][name] = (calls, round(total_ns))
        assert sorted(seen) == list(range(RANKS))
        for rank, names in seen.items():
            assert names.items() <= ours[rank]["kernels"].items()
            # one stream: nothing overlaps, and what an operator took is what the step took
            assert sum(ns for _, ns in names.values()) == ours[rank][f"{part}_ns"] > 0
