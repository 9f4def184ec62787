# SPDX-License-Identifier: MulanPSL-2.0
"""Names of kernels as templates make them: mangled, long, and different only at their end."""

import contextlib
import sqlite3

import pytest
from cuda_jobs import CudaJob
from monitored import dyno, state
from traced_steps import daemon_for
from waiting import wait_until


def mangled(n, end):
    """A function without arguments whose name has n letters; and as people write it."""
    plain = "k" * (n - len(end)) + end
    return f"_Z{n}{plain}v", plain + "()"


SHORT = ("_ZN7cutlass4gemmEv", "cutlass::gemm()")
TWINS = (mangled(900, "_one"), mangled(900, "_two"))
GIANT = mangled(4000, "_end")  # the C++ library itself takes no more than 1024 apart
LENGTHS_US = {SHORT: 40, TWINS[0]: 20, TWINS[1]: 80, GIANT: 10}


@pytest.fixture
def node(build, tmp_path):
    with daemon_for(build, tmp_path) as n:
        yield n


@pytest.fixture
def job(node):
    place = str(node.daemon.ipc_dir)
    with CudaJob(
        node.build, node.tmp, MSMONITOR_USE_DAEMON="1", KINETO_IPC_SOCKET_DIR=place
    ) as j:
        yield j


def step(job):
    job.tell("push step start")
    job.tell(*(f"kernels {name} 3 {us * 1000}" for (name, _), us in LENGTHS_US.items()))
    job.tell("sleep 5", "pop")


def test_the_live_table_keeps_them_apart(node, job):
    step(job)
    wait_until(lambda: state(node.daemon) == "Idle", "it to poll")
    dyno(node.build, node.daemon, "npu-monitor", "--npu-monitor-start", "--mspti-activity-kind", "Kernel",
         "--report-interval-s", 1)  # fmt: skip
    wait_until(lambda: state(node.daemon) == "Running", "it to run")
    step(job)

    def rows():
        step(job)
        said = node.daemon.call({"fn": "getTop", "limit": 50})
        return {r["name"]: r["mean_ns"] for p in said["processes"] for r in p["rows"]}

    want = {name: us * 1000 for (name, _), us in LENGTHS_US.items()}
    wait_until(lambda: rows() == want, "a report")


def test_a_trace_and_its_summary_have_them_as_people_write_them(node, job):
    for _ in range(3):
        step(job)
    node.wait_step(2)
    answer, out = node.order("--analyse", start=5, steps=2)
    assert answer["commandStatus"] == "effective", answer
    node.wait("Ready")
    for _ in range(6):
        step(job)
    (t,) = node.traces(out)
    kernels = t.kind("Kernel")
    for (name, plain), us in LENGTHS_US.items():
        shown = [e for e in kernels if e["name"] == plain]
        if name == GIANT[0]:  # longer than an event may be
            shown = [e for e in kernels if e["name"].endswith("…")]
        assert [e["dur"] for e in shown] == [us] * 6, plain[-20:]
    (path,) = t.path.glob("*.db")
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        told = {v for (v,) in db.execute("select value from STRING_IDS")}
    assert {name for name, _ in LENGTHS_US} <= told
    text = next(out.glob("summary_*.txt")).read_text()
    assert SHORT[1] in text and SHORT[0] not in text and "_Z900" not in text


def test_one_that_is_cut_in_a_character(node, job):
    name = "k" * 4095 + "é" + "k" * 9

    def step():
        job.tell("push step start", f"kernels {name} 1 1000", "sleep 5", "pop")

    for _ in range(3):
        step()
    node.wait_step(2)
    _, out = node.order("--analyse", start=5, steps=2)
    node.wait("Ready")
    for _ in range(6):
        step()
    node.traces(out)
    assert "kkk" in wait_until(lambda: [f.read_text() for f in out.glob("summary_*.txt")], "words")[0]
