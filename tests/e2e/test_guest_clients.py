# SPDX-License-Identifier: MulanPSL-2.0
"""Guest libraries of ours beside frameworks: who gets which order, how they are told, and how the
monitor and PyTorch's own profiler keep out of each other's way."""

import json
import os
import re
import subprocess
import sys
import time
import uuid

import pytest
from daemon import Daemon
from fabric_client import (
    ACTIVITIES,
    EVENTS,
    IDLE,
    READY,
    RUNNING,
    Client,
    datagram,
    monitor_status,
    split,
    trace_status,
)
from waiting import pause, wait_until

MONITOR = (
    "NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false\nREPORT_INTERVAL_S=60\nDURATION=0\n"
    "MSPTI_ACTIVITY_KIND=Marker\nNPU_MONITOR_LOG_FILE=\nNPU_MONITOR_EXPORT_TYPE=DB\n"
    "JSONL_ROTATE_LOG_LINES=\nJSONL_ROTATE_LOG_FILES=\nNPU_MONITOR_FILTER="
)
STOP = MONITOR.replace("START=true\nNPU_MONITOR_STOP=false", "START=false\nNPU_MONITOR_STOP=true")
TRACE = "ACTIVITIES_LOG_FILE=/tmp/t\nPROFILE_START_STEP=5\nACTIVITIES_ITERATIONS=2\n"
KINETO = "ACTIVITIES_LOG_FILE=/tmp/t.json\nPROFILE_START_TIME=0\nACTIVITIES_DURATION_MSECS=100"
BUSY, FREE = EVENTS, EVENTS | ACTIVITIES


@pytest.fixture
def node(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        yield d


class Guest(Client):
    """Ours: registers, says what it can, and answers orders with states."""

    def __init__(self, d, can=None):
        super().__init__(d.ipc_dir / "dynolog", bind=d.ipc_dir, name=f"sondeclient{uuid.uuid4()}")
        self.context(0)
        if can is not None:
            self.send(datagram("sondeCan", can.encode()))
        self.send(trace_status(IDLE))
        self.send(monitor_status(IDLE))
        assert self.request() == ""

    def poked(self, seconds=10):
        data = self.receive(seconds)
        assert data is not None, "not told that there is something to ask for"
        kind, payload = split(data)
        assert (kind, payload) == ("sondePoke", b"")

    def answer(self, kind, seconds=30):
        """A guest may be told at any moment that there is something to ask for."""
        while True:
            data = self.receive(seconds)
            assert data is not None, "no answer"
            got, payload = split(data)
            if got != "sondePoke":
                assert got == kind, (got, payload)
                return payload


def kineto(d):
    c = Client(d.ipc_dir / "dynolog", bind=d.ipc_dir)
    assert c.request() == ""
    return c


def order(d, config, **more):
    return d.call({"fn": "setKinetOnDemandRequest", "config": config, "pids": [0], **more})


def explain(d, config):
    return d.call({"fn": "explainRequest", "config": config, "pids": [0]})


def test_each_client_of_a_process_gets_its_own_orders(node):
    with Guest(node) as guest, kineto(node) as framework:
        reply = order(node, MONITOR)
        assert reply["commandStatus"] == "effective"
        assert reply["processesMatched"] == reply["activityProfilersTriggered"] == [os.getpid()]
        guest.poked()
        assert framework.request() == ""
        assert "NPU_MONITOR_START=true" in guest.request()
        # the other way round: only PyTorch's profiler understands this
        assert order(node, KINETO)["activityProfilersTriggered"] == [os.getpid()]
        assert guest.request() == ""
        assert "ACTIVITIES_LOG_FILE=/tmp/t.json" in framework.request()
        (p,) = node.call({"fn": "listProcesses"})["processes"]
        assert p["clients"] == ["kineto", "sonde"] and p["npumonitor"] == "Idle"


def test_a_process_without_pytorchs_profiler_says_so(node):
    with Guest(node):
        reply = order(node, KINETO)
        assert reply["processesMatched"] == []
        why = explain(node, KINETO)
        assert "not PyTorch's own profiler: use 'dyno nputrace'" in why["reason"]
        assert "sonde's monitor" in why["processes"][0]["reason"]


def test_a_guest_leaves_nputrace_to_the_framework_in_its_process(node):
    with Guest(node) as guest, Client(node.ipc_dir / "dynolog", bind=node.ipc_dir) as torch_npu:
        torch_npu.context()
        torch_npu.send(trace_status(IDLE))
        torch_npu.send(monitor_status(IDLE))
        torch_npu.request()
        reply = order(node, TRACE)
        assert reply["processesMatched"] == reply["activityProfilersTriggered"] == [os.getpid()]
        assert guest.request() == "" and "PROFILE_START_STEP=5" in torch_npu.request()


def test_what_a_guest_says_does_not_fill_the_log(node):
    """Why an order was not carried out is worth a line, and not one for each time it is said."""
    with Guest(node) as g:
        for _ in range(2):
            number = order(node, MONITOR)["requestTraceId"]
            assert g.request()
            for i in range(500):
                g.send(datagram("sondeSaid", f"{number} no, {i}".encode()))
            g.send(datagram("sondeSaid", b"0 nothing"))
            answers = lambda n=number: node.call({"fn": "getAnswers", "request": n})["failed"]
            wait_until(lambda: answers() and answers()[0]["why"] == "no, 499")
            assert g.request() == ""
        lines = re.findall("did not carry out its request: (.*)", node.log())
        assert 2 <= len(lines) <= 20 and lines.count("no, 0") == 2 and "nothing" not in lines


CHILD = """
import os, sys, time
sys.path[:0] = {path!r}
import test_guest_clients as t
class D: ipc_dir = __import__("pathlib").Path({ipc!r})
with t.Guest(D) as g:
    print(os.getpid(), flush=True)
    while True:
        text = g.request()
        if text:
            print(__import__("json").dumps(text), flush=True)
            if "NPU_MONITOR_START=true" in text: g.send(t.monitor_status(t.RUNNING))
            if "NPU_MONITOR_STOP=true" in text: g.send(t.monitor_status(t.IDLE))
        g.receive(5)
"""


@pytest.fixture
def ranks(node):
    """Eight processes, each with a guest that does what it is told."""
    code = CHILD.format(path=sys.path, ipc=str(node.ipc_dir))
    all_of = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    try:
        for p in all_of:
            assert int(p.stdout.readline()) == p.pid
        yield all_of
    finally:
        for p in all_of:
            p.kill()
            p.wait()
            p.stdout.close()


def test_every_rank_of_the_node_is_reached_and_its_death_is_seen(node, ranks):
    start = time.monotonic()
    # as every dyno sends it: a limit of three, meant for frameworks
    r = node.ctl("npu-monitor", "--npu-monitor-start")
    assert r.returncode == 0 and "request sent to 8 processes" in r.stderr, r.stderr
    assert "left out" not in r.stderr
    for p in ranks:
        assert "NPU_MONITOR_START=true" in json.loads(p.stdout.readline())
    assert time.monotonic() - start < 10  # they poll every 5 s if nobody tells them
    status = lambda: node.call({"fn": "getStatus"})
    wait_until(lambda: status()["npumonitor"] == "Running")
    assert "npu-monitor is running" in explain(node, TRACE)["reason"]
    # killed while monitored: the others, and then nobody
    for p in ranks[:7]:
        p.kill()
        p.wait()
    wait_until(lambda: node.call({"fn": "listProcesses"})["total"] == 1)
    order(node, STOP)
    wait_until(lambda: status()["npumonitor"] == "Idle")
    order(node, MONITOR)
    wait_until(lambda: status()["npumonitor"] == "Running")
    ranks[7].kill()
    ranks[7].wait()
    wait_until(lambda: status()["npumonitor"] == "Uninitialized")
    with Guest(node) as again:
        assert order(node, TRACE)["commandStatus"] == "effective"
        assert "PROFILE_START_STEP=5" in again.request()


def test_a_limit_that_is_meant_counts(node, ranks):
    r = node.ctl("npu-monitor", "--npu-monitor-start", "--process-limit", "3")
    assert "request sent to 3 processes" in r.stderr and "5 more matched" in r.stderr
    reply = order(node, MONITOR, process_limit=2)
    assert len(reply["processesMatched"]) == 8
    assert len(reply["activityProfilersTriggered"]) == 2


def test_options_that_a_guest_does_not_honour_are_named(node):
    can = "ACTIVITIES_LOG_FILE PROFILE_START_STEP ACTIVITIES_ITERATIONS PROFILE_WITH_STACK"
    words = ["nputrace", "--log-file", "/tmp/p", "--start-step", "-1", "--iterations", "2"]
    with Guest(node, can) as guest:
        # what is as it always is, nobody has asked for
        r = node.ctl(*words, "--with-stack")
        assert "notHonoured" not in r.stdout and "cannot" not in r.stderr
        assert "PROFILE_WITH_STACK=true" in guest.request()
        r = node.ctl(*words, "--l2-cache", "--aic-metrics", "Memory", "--with-stack")
        assert '"notHonoured":["--aic-metrics","--l2-cache"]' in r.stdout
        assert "ignores --aic-metrics and --l2-cache" in r.stderr
        assert r.returncode == 0
        guest.request()
    with Guest(node):  # one that does not say
        r = node.ctl(*words, "--l2-cache")
        assert "notHonoured" not in r.stdout


def test_a_trace_that_has_not_begun_gives_way_and_that_is_said(node):
    words = ["nputrace", "--log-file", "prof", "--start-step", "900", "--iterations", "2"]
    me = [os.getpid()]
    with Guest(node) as guest:
        # it has told no step so far
        r = node.run(node.build / "bin" / "dyno", "--port", node.port, *words)
        assert f'"stepsUnknown":{me}'.replace(" ", "") in r.stdout, r.stdout
        assert "1 process reports no steps yet" in r.stderr and "sonde_step()" in r.stderr
        assert "'dyno nputrace --stop' drops one that has not begun" in r.stderr
        assert "'--log-file' is a relative path: it is taken from the directory" in r.stderr
        assert "    prof\n" in r.stdout, "the path as it was given"
        assert "PROFILE_START_STEP=900" in guest.request()
        guest.send(trace_status(READY, 7, 900, 902))
        wait_until(lambda: node.call({"fn": "getStatus"})["nputrace"] == "Ready")
        assert "it replaces the trace" in explain(node, TRACE)["processes"][0]["reason"]
        r = node.ctl(*words)
        assert f'"tracesReplaced":{me}' in r.stdout and "stepsUnknown" not in r.stdout
        assert f"it replaces a trace that had not begun (pid {me[0]})" in r.stderr
        # not fetched yet: the same
        assert order(node, TRACE)["tracesReplaced"] == me
        assert "PROFILE_START_STEP=5" in guest.request() and guest.request() == ""
        # the monitor may start, and the trace that waits is dropped
        assert "is dropped" in explain(node, MONITOR)["processes"][0]["reason"]
        r = node.ctl("npu-monitor", "--npu-monitor-start", "--log-file", "here")
        assert '"commandStatus":"effective"' in r.stdout and f'"tracesDropped":{me}' in r.stdout
        assert "a trace that had not begun is dropped" in r.stderr
        assert "'--log-file' is a relative path" in r.stderr
        assert "NPU_MONITOR_START=true" in guest.request()
        guest.send(trace_status(IDLE, 8))
        guest.send(monitor_status(IDLE))
        wait_until(lambda: node.call({"fn": "getStatus"})["nputrace"] == "Idle")
        # a stop cancels one that was not fetched
        assert "tracesDropped" not in order(node, TRACE)
        assert order(node, STOP)["tracesDropped"] == me
        assert "NPU_MONITOR_STOP=true" in guest.request() and guest.request() == ""
        # but new settings do not
        guest.send(trace_status(READY, 7, 900, 902))
        wait_until(lambda: node.call({"fn": "getStatus"})["nputrace"] == "Ready")
        change = MONITOR.replace("START=true", "START=false")
        assert "tracesDropped" not in order(node, change)


def test_the_monitor_steps_aside_for_a_trace_and_resumes(node):
    status = lambda: node.call({"fn": "getStatus"})["npumonitor"]
    with Guest(node) as guest, kineto(node) as framework:
        order(node, MONITOR)
        guest.request()
        guest.send(monitor_status(RUNNING))
        wait_until(lambda: status() == "Running")
        assert "waits until the monitor" in explain(node, KINETO)["processes"][0]["reason"] or (
            "waits until the monitor" in explain(node, KINETO)["processes"][1]["reason"]
        )
        assert order(node, KINETO)["activityProfilersTriggered"] == [os.getpid()]
        guest.poked()
        assert framework.request() == "", "given while the monitor still runs"
        assert "SONDE_PAUSE=true" in guest.request()
        assert framework.request() == ""
        guest.send(monitor_status(IDLE))
        wait_until(lambda: status() == "Ready")
        # nothing else begins meanwhile
        assert order(node, TRACE)["commandStatus"] == "unknown"
        assert "ACTIVITIES_LOG_FILE=/tmp/t.json" in framework.request()
        assert framework.request(mask=BUSY) == ""
        assert guest.request() == ""
        assert framework.request(mask=FREE) == ""
        guest.poked()
        assert "SONDE_PAUSE=false" in guest.request()
        guest.send(monitor_status(RUNNING))
        wait_until(lambda: status() == "Running")
        assert guest.request() == ""


def test_what_gets_lost_is_said_again(node):
    with Guest(node) as guest, kineto(node) as framework:
        guest.send(monitor_status(RUNNING))
        wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Running")
        order(node, KINETO)
        for _ in range(2):  # it takes the order, and the answer never arrives
            wait_until(lambda: "SONDE_PAUSE=true" in guest.request(), every=0.1)
        guest.send(monitor_status(IDLE))
        assert "/tmp/t.json" in framework.request()
        framework.request(mask=BUSY)
        framework.request(mask=FREE)
        for _ in range(2):
            wait_until(lambda: "SONDE_PAUSE=false" in guest.request(), every=0.1)
        guest.send(monitor_status(RUNNING))
        assert guest.request() == ""


def test_a_monitor_that_does_not_step_aside_holds_a_trace_up_for_seconds_only(node):
    with Guest(node) as guest, kineto(node) as framework:
        guest.send(monitor_status(RUNNING))
        wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Running")
        start = time.monotonic()
        order(node, KINETO)
        wait_until(lambda: "/tmp/t.json" in framework.request(), every=0.2)
        assert time.monotonic() - start > 3
        assert "does not pause for a trace" in node.log()


def test_a_profiler_that_was_not_ordered_is_noticed_and_a_monitor_waits_for_it(node):
    """torch.profiler, called by the job itself."""
    with Guest(node) as guest, kineto(node) as framework:
        guest.send(monitor_status(RUNNING))
        framework.request(mask=BUSY)
        guest.poked()
        assert "SONDE_PAUSE=true" in guest.request()
        guest.send(monitor_status(IDLE))
        # stopping is no starting
        order(node, STOP)
        assert "NPU_MONITOR_STOP=true" in guest.request()
        guest.send(monitor_status(IDLE))
        wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Idle")
        reply = order(node, MONITOR)
        assert reply["activityProfilersTriggered"] == [os.getpid()]
        assert guest.request() == "", "started while the profiler is busy"
        reasons = [p["reason"] for p in explain(node, MONITOR)["processes"]]
        assert "has not yet fetched the previous request" in reasons
        framework.request(mask=FREE)
        texts = guest.request() + guest.request()
        assert "SONDE_PAUSE=false" in texts and "NPU_MONITOR_START=true" in texts


def test_the_death_of_a_tracing_process_leaves_nothing_behind(node, build):
    """Guest and framework in one process that is killed in the middle of a trace."""
    code = CHILD.replace(
        "    print(os.getpid(), flush=True)",
        "    k = t.kineto(D); g.send(t.monitor_status(t.RUNNING)); print(os.getpid(), flush=True)",
    )
    code = code.format(path=sys.path, ipc=str(node.ipc_dir))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as p:
        p.stdout.readline()
        wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Running")
        assert order(node, KINETO)["activityProfilersTriggered"] == [p.pid]
        assert "SONDE_PAUSE=true" in json.loads(p.stdout.readline())
        p.kill()
    wait_until(lambda: node.call({"fn": "listProcesses"})["total"] == 0)
    pause(1.5, "after this it would have been told again")
    assert node.call({"fn": "getStatus"})["npumonitor"] == "Uninitialized"
