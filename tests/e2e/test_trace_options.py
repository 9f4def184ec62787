# SPDX-License-Identifier: MulanPSL-2.0
"""What each option of nputrace does in a job that has only our library: through dyno, the daemon,
the guest and its recorder, on the simulated NPU."""

import collections
import contextlib
import csv
import json
import os
import re
import sqlite3
import subprocess

import pytest
from capabilities import needs
from monitor_programs import ENDS
from monitored import Job, environment
from traced_steps import PythonJob, Trace, check_nested, daemon_for, dirs, functions, ns, program
from waiting import pause, wait_until


@pytest.fixture
def node(build, tmp_path):
    with daemon_for(build, tmp_path) as n:
        yield n


@pytest.fixture(scope="module")
def simtrain(build, tmp_path_factory):
    """A job without Python, and its node; it trains on while the tests ask for one trace after the
    other."""
    place = tmp_path_factory.mktemp("simtrain")
    with daemon_for(build, place) as n, Job(build, n.daemon, place, rank=3) as j:
        n.wait_step()
        n.job = j
        yield n
        assert j.process.poll() is None


@pytest.fixture(scope="module")
def python_job(build, tmp_path_factory):
    """The same in Python; each step has marks of three domains, two new blocks, and a collection."""
    place = tmp_path_factory.mktemp("python")
    before = """
domains = [mstx.mstxDomainCreateA(name) for name in (b"data", b"model")]
heap = [[i] for i in range(100000)]
blocks = []
log = open("callbacks", "w", 1)
threading.Thread(target=helper, name="loader", daemon=True).start()


def marks():
    mstx.mstxMarkA(b"plain mark", None)
    for d in map(ctypes.c_void_p, domains):
        mark = mstx.mstxDomainRangeStartA(d, b"range", None)
        mstx.mstxDomainRangeEnd(d, ctypes.c_uint64(mark))


def memory():
    while blocks:
        assert npu.rtFree(blocks.pop()) == 0
    for _ in range(2):
        blocks.append(ctypes.c_void_p())
        assert npu.rtMalloc(ctypes.byref(blocks[-1]), ctypes.c_uint64(4 << 20), 0, 0) == 0


def collect():
    gc.collect()
"""
    code = program(before=before, step="sonde.step(); marks(); memory(); collect(); "
                   "print(sonde._monitor.steps(), len(gc.callbacks), file=log)")  # fmt: skip
    with daemon_for(build, place) as n, PythonJob(build, n.daemon, place, code) as j:
        n.wait_step()
        n.job = j
        yield n
        assert j.process.poll() is None
        assert j.said() == ""


# --- which steps ---


def test_exactly_the_steps_that_were_asked_for(simtrain):
    first = simtrain.wait_step() + 250
    t = simtrain.trace(start=first, steps=3)
    assert t.numbers() == [first, first + 1, first + 2] and t.about["complete"]
    assert "notHonoured" not in t.answer and t.about["not_honoured"] == []
    assert (t.about["start_step"], t.about["stop_step"]) == (first, first + 3)


def test_the_next_step_and_one_trace_after_the_other(simtrain):
    made = []
    for steps in (1, 2, 1):
        now = simtrain.wait_step()
        made.append(simtrain.trace(steps=steps))
        assert made[-1].numbers()[0] > now and len(made[-1].numbers()) == steps
    last = [t.numbers()[-1] for t in made]
    assert last == sorted(set(last))
    kernels = [collections.Counter(e["name"] for e in t.kind("Kernel")) for t in made]
    assert kernels[0] == kernels[2] and kernels[1] == kernels[0] + kernels[2]


def test_a_step_that_has_passed(simtrain):
    now = simtrain.wait_step(3)
    _, out = simtrain.order(start=now - 2)
    wait_until(lambda: "that step has begun already" in simtrain.job.said(), "the refusal")
    simtrain.wait("Idle")
    pause(0.3, "nothing is written")
    assert not dirs(out)
    assert simtrain.trace(steps=1).about["complete"]


def test_a_time_instead_of_steps(simtrain):
    """As other clients than dyno can ask for it."""
    out = simtrain.tmp / "time"
    config = f"ACTIVITIES_LOG_FILE={out}\nPROFILE_PROFILER_LEVEL=Level0\n"
    answer = simtrain.daemon.call(
        {
            "fn": "setKinetOnDemandRequest",
            "config": config + "ACTIVITIES_DURATION_MSECS=200",
            "job_id": 0,
            "pids": [0],
            "process_limit": 3,
        }
    )
    assert answer["commandStatus"] == "effective", answer
    (t,) = simtrain.traces(out)
    assert [(e["name"], round(e["dur"])) for e in t.steps] == [("trace", 200000)]
    assert t.about["start_step"] is None and t.about["complete"] and t.kind("Kernel")
    assert all(t.from_ <= e["ts"] < t.to for e in t.kind("AclAPI"))


def test_only_the_ranks_of_the_list(build, node, tmp_path):
    with contextlib.ExitStack() as jobs:
        for rank in range(3):
            jobs.enter_context(Job(build, node.daemon, tmp_path, rank=rank))
        wait_until(lambda: node.daemon.call({"fn": "listProcesses"})["total"] == 3, "all ranks")
        node.wait_step()
        answer, out = node.order("--rank-list", "1,2", steps=1)
        assert len(answer["activityProfilersTriggered"]) == 3 and "notHonoured" not in answer
        assert [t.rank for t in node.traces(out, 2)] == [1, 2]
        pause(0.3, "no third one is written")
        assert len(dirs(out)) == 2


# --- what is in it ---


@pytest.mark.parametrize("activities", ["CPU", "NPU", "NPU,CPU"])
def test_activities(simtrain, activities):
    t = simtrain.trace("--activities", activities)
    kinds = collections.Counter(e["args"]["kind"] for e in t.slices() if "args" in e)
    host = {k for k in kinds if k.endswith("API")}
    assert bool(host) == ("CPU" in activities), kinds
    assert (kinds["Kernel"] > 0) == ("NPU" in activities), kinds
    assert set(kinds) - host <= {"Kernel", "MemCpy", "MemSet", "Communication"}
    with contextlib.closing(sqlite3.connect(next(t.path.glob("*.db")))) as c:
        tables = {"Kernel": "COMPUTE_TASK_INFO", "AclAPI": "CANN_API"}
        for kind, table in tables.items():
            (n,) = c.execute(f"select count(*) from {table}").fetchone()
            assert (n > 0) == (kinds[kind] > 0), (table, n, kinds)


@pytest.mark.parametrize(
    "options, domains",
    [
        ((), set()),
        (("--msprof-tx",), {"default", "data", "model"}),
        (("--msprof-tx", "--mstx-domain-include", "data"), {"data"}),
        (("--msprof-tx", "--mstx-domain-include", "default,model"), {"default", "model"}),
        (("--msprof-tx", "--mstx-domain-exclude", "data"), {"default", "model"}),
    ],
)
def test_marks_and_their_domains(python_job, options, domains):
    t = python_job.trace(*options)
    marks = [e for e in t.events if e.get("args", {}).get("kind") == "Marker"]
    assert {e["args"]["domain"] for e in marks} == domains
    for e in marks:
        assert t.from_ <= e["ts"] < t.to
        assert (e["name"] == "plain mark") == (e["args"]["domain"] == "default")
    assert len(marks) == len(domains) * len(t.steps)


def check_memory(t, pools):
    """The csv, its sums, and the counters that are the same."""
    with open(t.path / "memory.csv") as f:
        rows = list(csv.DictReader(f))
    assert {r["Pool"] for r in rows} == pools and {r["Device"] for r in rows} <= {"0", "cpu"}
    times = [int(r["Time(ns)"]) for r in rows]
    assert times == sorted(times)
    base = json.loads((t.path / "trace.json").read_text())["baseTimeNanoseconds"]
    assert ns(t.from_) <= times[0] - base and times[-1] - base < ns(t.to)
    held, shown = collections.defaultdict(dict), collections.defaultdict(list)
    for r in rows:
        key = r["Pool"], r["Device"]
        if r["Event"] == "MALLOC":
            held[key][r["Address"]] = int(r["Bytes"])
        elif r["Bytes"] == "N/A":
            continue
        else:
            assert held[key].pop(r["Address"]) == int(r["Bytes"])
        assert int(r["Held(bytes)"]) == sum(held[key].values())
        name = f"memory {key[0]}" + ("" if key[1] == "cpu" else f", device {key[1]}")
        shown[name].append(int(r["Held(bytes)"]))
    counters = {k: v for k, v in t.counters().items() if k.startswith("memory ")}
    assert counters == shown and shown
    assert max(map(max, shown.values())) > 0


def test_memory_of_the_device(python_job):
    """As the vendor's library tells it: blocks of one step are freed in the next."""
    t = python_job.trace("--profile-memory", steps=3)
    check_memory(t, {"device"})
    with open(t.path / "memory.csv") as f:
        rows = [(r["Event"], r["Bytes"]) for r in csv.DictReader(f)]
    block, unknown = str(4 << 20), "N/A"
    step = [("MALLOC", block), ("MALLOC", block)]
    assert rows == [("FREE", unknown)] * 2 + step + ([("FREE", block)] * 2 + step) * 2


def test_without_memory(simtrain):
    t = simtrain.trace(steps=1)
    assert not (t.path / "memory.csv").exists() and not t.counters()


@pytest.mark.parametrize("what", ["cpu", "mem", "disk", "network", "cpu,mem,disk,network,osrt"])
def test_what_the_host_does(simtrain, what):
    t = simtrain.trace("--host-sys", what, steps=30)
    names = {
        "cpu": {"cpu busy", "cpu"},
        "mem": {"memory used", "resident memory"},
        "disk": {"disk read", "disk written", "read from disk", "written to disk"},
        "network": {"network in", "network out"},
        "osrt": set(),
    }
    counters = t.counters()
    assert set(counters) == set().union(*(names[w] for w in what.split(",")))
    assert all(len(v) >= 2 and min(v) >= 0 for v in counters.values())
    if "mem" in what:
        rss = int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{simtrain.job.pid}/status").read())[1])
        assert rss * 512 < max(counters["resident memory"]) < rss * 2048
    if "cpu" in what:
        assert 0 < max(counters["cpu busy"]) <= 100
    osrt = "osrt" in what
    assert t.about["not_honoured"] == (["PROFILE_HOST_SYS=osrt"] if osrt else [])
    assert t.answer.get("notHonoured", []) == (["--host-sys osrt"] if osrt else [])


def test_files_whatever_was_asked_to_be_exported(simtrain):
    for export in "Text", "Db":
        t = simtrain.trace("--export-type", export, "--analyse", steps=1)
        names = sorted(re.sub(r"\d+", "N", p.name) for p in t.path.iterdir())
        assert names == ["events.sonde", "msmonitor_N_N_N.db", "summary.json", "summary.txt", "trace.json"]
        assert not t.about["not_honoured"]


def test_what_is_not_there_is_named(simtrain):
    t = simtrain.trace(
        "--record-shapes", "--with-flops", "--with-modules", "--with-stack", "--l2-cache",
        "--op-attr", "--sys-io", "--sys-interconnection", "--gc-detect-threshold", 1,
        "--profiler-level", "Level1", "--aic-metrics", "PipeUtilization", steps=1,
    )  # fmt: skip
    named = {
        "--record-shapes", "--with-flops", "--with-modules", "--with-stack", "--l2-cache",
        "--op-attr", "--sys-io", "--sys-interconnection", "--gc-detect-threshold",
        "--profiler-level", "--aic-metrics",
    }  # fmt: skip
    assert set(t.answer["notHonoured"]) == named
    as_keys = {"PROFILE_" + w[2:].upper().replace("-", "_") for w in named}
    assert set(t.about["not_honoured"]) == as_keys
    assert len(t.about["not_honoured"]) == len(named)
    assert "no Python" in t.about["note"], t.about["note"]
    assert "the package sonde" not in t.about["note"], t.about["note"]
    assert t.kind("Kernel")


# --- --with-stack ---


def test_with_stack(python_job):
    t = python_job.trace("--with-stack", steps=20)
    assert "notHonoured" not in t.answer and t.about["not_honoured"] == []
    seconds, calls = functions(t)
    check_nested(
        [e for e in t.slices() if e["pid"] == python_job.job.pid and e["tid"] < 999999999]
    )
    for e in calls:
        assert ns(t.from_) <= ns(e["ts"]) and ns(e["ts"] + e["dur"]) <= ns(t.to) + 1
    # Of a step, forward() has some 10 ms, wait() 15 ms; nothing is exact on a busy machine.
    length = (t.to - t.from_) / 1e6
    assert 0.1 * length < seconds["wait"] < 0.95 * length, seconds
    assert 0.05 * length < seconds["forward"] < 0.9 * length, seconds
    assert seconds["busy"] and seconds["train"] <= length * 1.001
    assert seconds["wait"] + seconds["forward"] <= seconds["<module>"] * 1.001
    names = {e["tid"]: e["args"]["name"] for e in t.events if e["name"] == "thread_name"}
    of_thread = {names[e["tid"]] for e in calls if e["name"].endswith(": helper")}
    assert len(of_thread) == 1 and of_thread.pop().endswith(", loader")
    assert names[python_job.job.pid].endswith(", MainThread")


def test_without_stack(python_job):
    assert not functions(python_job.trace())[1]


def test_calls_of_the_library_lie_in_the_functions_that_make_them(python_job):
    for _ in range(3):  # who looks at stacks has no time for a while, on a busy machine
        t = python_job.trace("--with-stack", steps=20)
        _, calls = functions(t, "forward$")
        spans = [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in calls]
        launches = [ns(e["ts"]) for e in t.slices("rtKernelLaunch")]
        inside = sum(any(a <= at < b for a, b in spans) for at in launches)
        assert len(launches) == 100
        if inside >= 60:  # the first of five is in the millisecond before forward() is seen
            return
    pytest.fail(f"{inside} of 100")


DENIED = "libc = ctypes.CDLL(None); assert libc.prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE"


def test_stacks_that_may_not_be_read(build, node, tmp_path):
    # root may read everything else
    without = [needs("setpriv"), "--bounding-set=-sys_ptrace"] if os.geteuid() == 0 else []
    code = program(before=DENIED)
    with PythonJob(build, node.daemon, tmp_path, code, *without) as job:
        node.wait_step()
        t = node.trace("--with-stack")
        assert t.about["not_honoured"] == ["PROFILE_WITH_STACK"]
        assert f"may not read process {job.pid}" in t.about["note"], t.about["note"]
        assert t.kind("Kernel") and job.said() == ""


def test_stacks_of_a_job_that_is_killed(build, node, tmp_path):
    with PythonJob(build, node.daemon, tmp_path, program()) as job:
        node.wait_step()
        answer, out = node.order("--with-stack", steps=10**6)
        node.wait("Running")
        pause(1.5, "stacks are sampled")
        job.process.kill()
        job.process.wait()
        found = wait_until(lambda: dirs(out), "the trace")
        t = Trace(found[0])
        assert not t.about["complete"] and "killed" in t.about["note"]
        seconds, _ = functions(t)
        assert seconds["wait"] > 0.05, seconds


def test_calls_that_the_process_tells_itself(build, node, tmp_path):
    """They are exact: one of each function per step."""
    before = f"msmemscope.config(output={str(tmp_path / 'dump')!r}); msmemscope.start()\n"
    code = program(head="import sonde, msmemscope", before=before + "msmemscope.tracer.start()")
    with PythonJob(build, node.daemon, tmp_path, code) as job:
        node.wait_step()
        t = node.trace("--with-stack", steps=3)
        _, calls = functions(t)
        names = collections.Counter(e["name"].rpartition(": ")[2] for e in calls)
        told = {k: names[k] for k in ("train", "forward", "wait", "busy")}
        assert told == {"train": 3, "forward": 3, "wait": 3, "busy": 15}, job.said()


def test_ranks_of_one_recorder(build, node, tmp_path):
    """All processes of a recording share it, and the thread that looks at their stacks."""
    before = """
for rank in range(1, 3):
    if os.fork() == 0:
        os.environ["RANK"] = str(rank)
        break
"""
    code = program(head="import sonde\n" + before)
    command = [build / "bin" / "msmemscope", "--events=alloc", "--output", tmp_path / "dump"]
    with PythonJob(build, node.daemon, tmp_path, code, *command) as job:
        wait_until(lambda: node.daemon.call({"fn": "listProcesses"})["total"] == 3, "all ranks")
        node.wait_step(10)
        _, out = node.order("--with-stack", steps=30)
        traces = node.traces(out, 3)
        os.killpg(job.pid, 9)
        for t in traces:
            seconds, calls = functions(t)
            assert {"forward", "wait", "train"} <= set(seconds), t.about
            assert len({e["pid"] for e in calls}) == 1
        assert len({t.about["pid"] for t in traces}) == 3
        assert len(list((tmp_path / "dump").glob("recording_*"))) == 1


# --- --gc-detect-threshold ---


def callbacks(node):
    """{step: how many there are in gc.callbacks}"""
    lines = (node.tmp / "callbacks").read_text().split("\n")[:-1]
    return {int(step): int(n) for step, n in (line.split() for line in lines)}


def test_pauses_of_the_collector(python_job):
    before = python_job.wait_step()
    t = python_job.trace("--gc-detect-threshold", 0, steps=4)
    assert "notHonoured" not in t.answer and t.about["not_honoured"] == []
    pauses = [e for e in t.slices("^gc$", kind="Marker") if e["dur"] > 500]
    assert all(e["args"]["domain"] == "python" for e in pauses)
    # one in each step; and those that Python makes by itself, should they take long
    for step in t.steps:
        end = step["ts"] + step["dur"]
        assert any(step["ts"] <= p["ts"] and p["ts"] + p["dur"] <= end for p in pauses), pauses
    assert len(pauses) < 3 * len(t.steps), pauses
    # it listens to the steps of the trace, not before, and not for ever
    wait_until(lambda: list(callbacks(python_job).values())[-1] == 0, "the end of it")
    told = callbacks(python_job)
    assert told[before] == 0
    assert all(told[n] == 1 for n in t.numbers())


def test_pauses_below_the_threshold(python_job):
    t = python_job.trace("--gc-detect-threshold", "60000.5", "--msprof-tx")
    assert not t.slices("^gc$") and t.about["not_honoured"] == []
    assert {e["args"]["domain"] for e in t.slices(kind="Marker")} == {"data", "model"}


def test_pauses_of_a_program_that_does_not_know_us(build, node, tmp_path):
    """Its steps are mstx ranges; the package comes by itself, and listens by itself."""
    code = program(
        head="",
        before="heap = [[i] for i in range(100000)]",
        step='r = mstx.mstxRangeStartA(b"step start", None); gc.collect(); '
        "mstx.mstxRangeEnd(ctypes.c_uint64(r))",
    )
    with PythonJob(build, node.daemon, tmp_path, code, PYTHONPATH="") as job:
        node.wait_step()
        t = node.trace("--gc-detect-threshold", 0, "--with-stack", steps=3)
        assert t.about["not_honoured"] == [], t.about["note"]
        assert 3 <= len([e for e in t.slices("^gc$") if e["dur"] > 500]) < 9
        assert job.said() == ""


@pytest.mark.parametrize("python", ENDS)
def test_other_interpreters(build, node, tmp_path, python):
    code = program(before="heap = [[i] for i in range(100000)]", step="sonde.step(); gc.collect()")
    with PythonJob(build, node.daemon, tmp_path, code, python=python.path) as job:
        node.wait_step()
        t = node.trace("--gc-detect-threshold", 0, "--with-stack", steps=10)
        assert t.about["not_honoured"] == [], t.about["note"]
        assert 10 <= len([e for e in t.slices("^gc$") if e["dur"] > 500]) < 30
        seconds, _ = functions(t)
        assert {"forward", "wait"} <= set(seconds) and job.said() == ""


def test_pauses_that_nobody_can_tell(build, node, tmp_path):
    code = program(
        head="step = ctypes.CDLL(None).sonde_impl_step", step="step()  # of the C API"
    )
    with PythonJob(build, node.daemon, tmp_path, code, PYTHONPATH="", SONDE_PYTHON="0"):
        node.wait_step()
        t = node.trace("--gc-detect-threshold", 0)
        assert t.about["not_honoured"] == ["PROFILE_GC_DETECT_THRESHOLD"]
        assert "the package sonde is not in the Python" in t.about["note"]


# --- in a job that is recorded by msmemscope ---


@pytest.mark.parametrize("pool, pools", [("pta", {"PTA"}), ("hal", {"HAL"})])
def test_recorded_by_msmemscope(build, node, tmp_path, pool, pools):
    words = [
        build / "bin" / "msmemscope", "--events=alloc,free", "--output", tmp_path / "dump",
        build / "sim" / "simtrain", "--quiet", "--steps", "9999", "--step-ms", "20", "--pool", pool,
    ]  # fmt: skip
    env = environment(build, node.daemon, 0)
    job = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, cwd=tmp_path)
    try:
        node.wait_step()
        t = node.trace("--profile-memory")
        check_memory(t, pools)
        assert t.kind("Kernel") and t.about["complete"]
    finally:
        job.kill()
        job.wait()
