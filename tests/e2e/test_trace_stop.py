# SPDX-License-Identifier: MulanPSL-2.0
"""nputrace --stop: a trace whose steps do not come any more ends, and leaves what there is."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import time

import pytest
from daemon import Daemon
from fabric_client import EVENTS, IDLE, READY, RUNNING, Client, monitor_status, trace_status
from monitored import Job, dyno, environment
from traced_steps import PythonJob, Trace, daemon_for, dirs, program
from waiting import pause, wait_until

# It hangs at the beginning of a step while there is a file "hang", and says in which. If there is a
# file "slow" it launches a kernel that does not end.
BEFORE = """
other = ctypes.c_void_p()
assert npu.rtStreamCreate(ctypes.byref(other), 0) == 0
never = ctypes.c_void_p(npu.sim_kernel_register(b"Never", ctypes.c_uint64(10**13), None))
slow = False


def hang():
    global slow
    if os.path.exists("slow") and not slow:
        slow = True
        assert npu.rtKernelLaunch(never, 8, None, 0, None, other) == 0
    if os.path.exists("hang"):
        with open("step.tmp", "w") as f:
            f.write(str(sonde._monitor.steps()))
        os.rename("step.tmp", "step")
    while os.path.exists("hang"):
        time.sleep(0.01)
"""


@pytest.fixture
def node(build, tmp_path):
    with daemon_for(build, tmp_path) as n:
        yield n


@pytest.fixture
def job(build, node, tmp_path):
    code = program(before=BEFORE, step="sonde.step(); hang()")
    with PythonJob(build, node.daemon, tmp_path, code, rank=2, SIM_NPU_TIME_SCALE=1) as j:
        node.wait_step()
        j.hang, j.slow, j.step = (tmp_path / name for name in ("hang", "slow", "step"))
        yield j
        assert j.process.poll() is None and j.said() == ""


def stop(node, *words):
    """sonde ctl nputrace --stop: {pid: (state, note)} and all of it."""
    r = node.daemon.ctl("nputrace", "--stop", *words)
    rows = re.findall(r"^ *(\d+)  (ended|dropped|not ended|no trace) *(.*)$", r.stdout, re.M)
    return {int(pid): (state, note) for pid, state, note in rows}, r


def hang(node, job, slow=False):
    """In the middle of a trace; gives the step."""
    node.wait("Running")
    node.wait_step(node.status()["current_step"] + 4)
    if slow:
        job.slow.touch()
        node.wait_step(node.status()["current_step"] + 3)
    job.hang.touch()
    wait_until(job.step.exists, "the job to hang")
    pause(1.2, "its step is that long")
    return int(job.step.read_text())


@pytest.mark.parametrize("slow", [False, True], ids=["nothing pending", "launches pending"])
def test_a_job_that_hangs_in_the_middle_of_a_trace(node, job, slow):
    _, out = node.order("--analyse", steps=100000)
    last = hang(node, job, slow)
    assert node.status()["nputrace"] == "Running" and not dirs(out)
    start = time.monotonic()
    rows, r = stop(node)
    first = int(re.search(r"steps (\d+) to", rows[job.pid][1])[1])
    asked = f"steps {first} to {first + 99999} were asked for"
    assert rows == {job.pid: ("ended", f"ended in step {last}; {asked}")}
    assert r.returncode == 0 and "1 trace is ended: the files are complete" in r.stderr
    (t,) = node.traces(out)
    # what does not run is not waited for as long as after a last step: a quarter of a minute
    assert time.monotonic() - start < 14

    assert t.numbers() == list(range(first, last + 1))
    assert t.kind("Kernel") and not t.about["complete"]
    assert f"ended by request in step {last}; {asked}" in t.about["note"]
    assert "killed" not in t.about["note"]
    pending = "1 launches of these steps had not run when the trace was closed"
    assert (pending in t.about["note"]) == slow, t.about["note"]
    # the step in which it hangs is as long as it has hung
    assert t.steps[-1]["dur"] > 1e6
    with contextlib.closing(sqlite3.connect(next(t.path.glob("*.db")))) as c:
        (n,) = c.execute("select count(*) from COMPUTE_TASK_INFO").fetchone()
        assert n == len(t.kind("Kernel"))
    made = json.loads((t.path / "summary.json").read_text())
    assert [s["whole"] for s in made["steps"]] == [True] * (last - first) + [False]
    assert not made["complete"] and made["note"] == t.about["note"]
    (words,) = out.glob("summary_*.txt")
    assert f"Rank 2: ended by request in step {last}" in words.read_text()
    summary = subprocess.run([node.build / "bin" / "sonde", "activity", "summary", out],
                             capture_output=True, text=True, check=True)  # fmt: skip
    assert f"Steps {first} to {last} of 1 rank: a step takes" in summary.stdout

    # there is nothing more to end; and when it steps again, it can be traced again
    rows, r = stop(node)
    assert rows == {job.pid: ("no trace", "")} and r.returncode == 3
    job.hang.unlink()
    t = node.trace(steps=2)
    assert t.about["complete"] and len(t.numbers()) == 2 and t.numbers()[0] > last


def test_a_trace_that_waits_is_dropped(node, job):
    _, out = node.order(start=10**6)
    node.wait("Ready")
    rows, r = stop(node, "--pids", str(job.pid))
    assert rows == {job.pid: ("dropped", "dropped before its first step")}
    assert r.returncode == 0 and "1 trace is dropped that had not begun" in r.stderr
    node.wait("Idle")
    # one whose source is on by then
    job.hang.touch()
    pause(0.3, "it is in its last step")
    _, near = node.order(steps=3)
    node.wait("Ready")
    pause(0.5, "its source is on")
    assert stop(node)[0][job.pid][0] == "dropped"
    node.wait("Idle")
    job.hang.unlink()
    assert node.trace(steps=1).about["complete"]
    assert not dirs(out) and not dirs(near)


def test_an_order_that_the_daemon_still_has_is_taken_back(node, job):
    _, out = node.order(steps=100000)
    hang(node, job)
    answer, second = node.order(steps=1)  # waits until the first is over
    assert answer["activityProfilersTriggered"] == [job.pid]
    rows, r = stop(node)
    assert r.returncode == 0 and "1 trace is ended" in r.stderr and "1 trace is dropped" in r.stderr
    assert "dropped before it was fetched" in r.stdout and "ended in step" in r.stdout
    job.hang.unlink()
    (t,) = node.traces(out)
    assert not t.about["complete"]
    assert node.trace(steps=1).about["complete"]
    assert not dirs(second)


def test_what_was_launched_is_not_waited_for_after_the_last_step_either(node, job):
    _, out = node.order(steps=200)
    node.wait("Running")
    job.slow.touch()
    over = node.status()["stop_step"]
    node.wait_step(over + 1)
    rows, r = stop(node)
    assert rows[job.pid][0] == "ended" and r.returncode == 0
    assert rows[job.pid][1].startswith("ended after its last step")
    (t,) = node.traces(out)
    assert t.about["complete"] and len(t.numbers()) == 200
    assert "1 launches of these steps had not run" in t.about["note"]
    assert "by request" not in t.about["note"]


def test_a_time_instead_of_steps(node, job):
    out = node.tmp / "time"
    config = f"ACTIVITIES_LOG_FILE={out}\nPROFILE_PROFILER_LEVEL=Level0\n"
    node.daemon.call({"fn": "setKinetOnDemandRequest", "job_id": 0, "pids": [0],
                      "config": config + "ACTIVITIES_DURATION_MSECS=600000"})  # fmt: skip
    node.wait("Running")
    pause(0.5, "that much of its time passes")
    rows, r = stop(node)
    assert r.returncode == 0
    left = re.fullmatch(r"ended (\d+) ms before its time was over", rows[job.pid][1])
    assert 0 < int(left[1]) < 599600
    (t,) = node.traces(out)
    (whole,) = t.steps
    note = re.search(r"ended by request after (\d+) ms; 600000 ms were asked for", t.about["note"])
    assert abs(int(note[1]) - whole["dur"] / 1000) < 2 and whole["dur"] > 400000
    assert not t.about["complete"] and t.kind("Kernel")
    assert all(t.from_ <= e["ts"] < t.to for e in t.kind("AclAPI"))


def test_ranks_that_are_ended_one_after_the_other(build, node, tmp_path):
    with contextlib.ExitStack() as jobs:
        ranks = [jobs.enter_context(Job(build, node.daemon, tmp_path, rank=r)) for r in range(3)]
        wait_until(lambda: node.daemon.call({"fn": "listProcesses"})["total"] == 3, "all ranks")
        node.wait_step()
        start = node.wait_step() + 300
        _, out = node.order("--analyse", start=start, steps=100000)
        listed = lambda: node.daemon.call({"fn": "listProcesses"})["processes"]
        wait_until(lambda: all(p["current_step"] > start + 3 for p in listed()), "all of them to trace")
        for n, rank in enumerate(ranks):
            rows, r = stop(node, "--pids", str(rank.pid))
            assert [*rows] == [rank.pid] and rows[rank.pid][0] == "ended", r.stdout
            wait_until(lambda n=n: len(dirs(out)) == n + 1, "its trace")
        traces = node.traces(out, 3)
        lasts = [t.numbers()[-1] for t in traces]
        assert [t.rank for t in traces] == [0, 1, 2] and {t.numbers()[0] for t in traces} == {start}
        (path,) = out.glob("summary_*.json")
        wait_until(lambda: len(json.loads(path.read_text())["ranks"]) == 3, "the summary")
        words = path.with_suffix(".txt").read_text()
        for rank, last in enumerate(lasts):
            assert f"Rank {rank}: ended by request in step {last}; steps {start} to" in words
        assert f"Steps {start} to {max(lasts)} of 3 ranks: a step takes" in words


# --- ranks that wait for each other ---


@contextlib.contextmanager
def ranks_together(build, node, n):
    """A job whose ranks meet in collectives; gives their pids by rank."""
    p = subprocess.Popen(
        [build / "sim" / "simtrain", "--forever", "--quiet", "--ranks", str(n), "--step-ms", "10"],
        env=environment(build, node.daemon, SIM_NPU_TIME_SCALE=1), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=node.tmp,
    )  # fmt: skip
    try:
        listed = lambda: node.daemon.call({"fn": "listProcesses"})["processes"]
        wait_until(lambda: len([x for x in listed() if x["current_step"] > 3]) == n, "all ranks")
        yield p, {x["rank"]: x["pid"] for x in listed() if x["current_step"] > 3}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(p.pid, signal.SIGKILL)
        p.wait()


def summary(build, out, *words):
    command = [build / "bin" / "sonde", "activity", "summary", out, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_rank_that_all_wait_for_is_named_first(build, node):
    with ranks_together(build, node, 4) as (_, pids):
        start = node.wait_step() + 400
        _, out = node.order(start=start, steps=100000)
        listed = lambda: node.daemon.call({"fn": "listProcesses"})["processes"]
        wait_until(lambda: all(x["current_step"] > start + 20 for x in listed() if x["pid"] in
                          pids.values()), "all of them to trace")  # fmt: skip
        os.kill(pids[2], signal.SIGSTOP)
        try:
            pause(0.5, "the others come to wait for it")
            stop(node, "--pids", ",".join(str(pids[r]) for r in (0, 1, 3)))
            wait_until(lambda: len(dirs(out)) == 3, "three traces")
            told = summary(build, out)
            made = json.loads(summary(build, out, "--json"))
        finally:
            os.kill(pids[2], signal.SIGCONT)
    assert re.match(
        r"Rank 2 of 4 has left no trace here; the others stand in step \d+ with (\d+ to )?\d+ "
        r"launch(es)? that had not run, first hcom_allReduce_\.\nRank 0: ended by request", told
    ), told  # fmt: skip
    assert "PROFILE_" not in told and "not compared" not in told
    assert re.search(r"^In the \d+ whole steps that all of them have, ", told, re.M), told
    assert made["missing"] == [2] and made["slowest"]["common_steps"] >= 15
    assert made["slowest"]["verdict"] != "not judged"
    assert all(row["judged"] and row["steps"] == made["slowest"]["common_steps"]
               for row in made["rows"])  # fmt: skip
    assert all(r["not_run"] and r["not_run_first"] == "hcom_allReduce_" for r in made["ranks"])
    for r in made["ranks"]:
        assert f"; {r['not_run']} launches of these steps had not run" in r["note"]
    assert {r["world_size"] for r in made["ranks"]} == {4}


def test_ranks_that_were_not_asked_for_are_not_missed(build, node):
    with ranks_together(build, node, 3) as (launcher, pids):
        for some in (
            ("--rank-list", "0,2"), ("--pids", f"{pids[0]},{pids[2]}"), ("--process-limit", "2"),
        ):  # fmt: skip
            _, out = node.order(*some, steps=3)
            wait_until(lambda: len(dirs(out)) == 2, "two traces")
            assert "left no trace" not in summary(build, out), some
            made = json.loads(summary(build, out, "--json"))
            assert made["missing"] == [] and all(r["ranks_chosen"] for r in made["ranks"])
        # whose pid is that of all
        _, out = node.order("--pids", launcher.pid, steps=3)
        last = wait_until(lambda: len(dirs(out)) == 3 and dirs(out), "three traces")
        last[0].rename(out / "gone")
        assert "has left no trace here" in summary(build, out)
        _, out = node.order(steps=3)
        last = wait_until(lambda: len(dirs(out)) == 3 and dirs(out), "three traces")
        assert "left no trace" not in summary(build, out)
        assert "left no trace" not in summary(build, last[0])
        # as a recorder that was killed leaves it
        gone = next(d for d in last if Trace(d).rank == 2)
        gone.rename(out / "gone")
        assert summary(build, out).startswith("Rank 2 of 3 has left no trace here.\nSteps ")


# --- nothing to end ---


def test_nobody_traces(build, node, job, tmp_path):
    rows, r = stop(node)
    assert rows == {job.pid: ("no trace", "")} and r.returncode == 3
    assert "nothing was ended: no trace waits or runs in 1 process" in r.stderr
    told = dyno(build, node.daemon, "nputrace", "--stop")
    assert "no trace" in told
    dyno(build, node.daemon, "--strict", "nputrace", "--stop", status=3)
    _, r = stop(node, "--pids", "1")
    assert r.returncode == 3 and "nothing was ended: no registered process has one of" in r.stderr


def test_hosts_are_told_apart(build, node, job, tmp_path):
    node.order(start=10**6)
    node.wait("Ready")
    with Daemon(build, tmp_path, ipc=True) as empty:
        hosts = f"127.0.0.1:{node.daemon.port},127.0.0.1:{empty.port}"
        _, r = stop(node, "--hostname", hosts)
        assert r.returncode == 3, r.stderr
        assert re.search(rf"^\S+ +{job.pid}  dropped ", r.stdout, re.M), r.stdout
        assert re.search(r"^\S+ +-  no match +no process has registered", r.stdout, re.M)
        _, r = stop(node, "--hostname", hosts, "--json")
        one, two = json.loads(r.stdout)
        assert one["processes"] == [{"pid": job.pid, "trace": "no trace", "note": ""}]
        assert two["processes"] == [] and "no process has registered" in two["note"]


@pytest.mark.parametrize(
    "words",
    [
        ("--log-file", "/tmp/x"), ("--start-step", "-1"), ("--iterations", "2"), ("--analyse",),
        ("--activities", "CPU,NPU"), ("--rank-list", "0"), ("--process-limit", "3"),
    ],
)  # fmt: skip
def test_options_of_a_new_trace_do_not_fit(build, words):
    for program_ in [build / "bin" / "dyno"], [build / "bin" / "sonde", "ctl"]:
        command = [*program_, "nputrace", "--stop", *words]
        r = subprocess.run(command, capture_output=True, text=True)
        assert r.returncode == 2
        assert f"'{words[0]}' describes a new trace, and '--stop' ends one" in r.stderr


# --- frameworks ---


def framework(node):
    c = Client(node.daemon.ipc_dir / "dynolog", bind=node.daemon.ipc_dir)
    c.request()
    return c


@pytest.mark.parametrize("state", [RUNNING, READY])
def test_the_profiler_of_an_npu_framework_goes_on(node, state):
    with framework(node) as torch_npu:
        torch_npu.send(trace_status(IDLE, 3))
        torch_npu.send(monitor_status(IDLE))
        wait_until(lambda: node.status()["nputrace"] == "Idle")
        # not fetched yet: that can be taken back
        node.order()
        rows, r = stop(node)
        assert rows == {os.getpid(): ("dropped", "dropped before it was fetched")}
        assert r.returncode == 0 and torch_npu.request() == ""
        torch_npu.send(trace_status(state, 3, 4, 6))
        wait_until(lambda: node.status()["nputrace"] != "Idle")
        rows, r = stop(node)
        state_, why = rows[os.getpid()]
        assert state_ == "not ended" and "torch_npu, MindSpore" in why and r.returncode == 3
        assert torch_npu.request() == ""
        dyno(node.build, node.daemon, "nputrace", "--stop")


def test_pytorchs_own_profiler_goes_on(node):
    with framework(node) as kineto:
        rows, r = stop(node)
        assert rows == {} and r.returncode == 3
        kineto.request(mask=EVENTS)
        rows, r = stop(node)
        state, why = rows[os.getpid()]
        assert state == "not ended" and "PyTorch's own profiler" in why and r.returncode == 3


def test_a_framework_beside_a_guest_that_traces(node, job):
    """The answer has both."""
    _, out = node.order(steps=100000)
    node.wait("Running")
    with framework(node) as torch_npu:
        torch_npu.send(trace_status(RUNNING, 3, 4, 6))
        listed = lambda: node.daemon.call({"fn": "listProcesses"})["processes"]
        tracing = {job.pid: "Running", os.getpid(): "Running"}
        wait_until(lambda: {x["pid"]: x["nputrace"] for x in listed()} == tracing, "both")
        rows, r = stop(node)
        assert rows[job.pid][0] == "ended" and rows[os.getpid()][0] == "not ended"
        assert r.returncode == 3
        assert Trace(wait_until(lambda: dirs(out), "the trace")[0]).kind("Kernel")
