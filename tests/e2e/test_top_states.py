# SPDX-License-Identifier: MulanPSL-2.0
"""What `sonde top` says of monitors that are on, off, or on their way there, is so."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time

import pytest
from daemon import Daemon
from fabric_client import IDLE, READY, RUNNING, Client, monitor_status, trace_status
from test_guest_clients import TRACE, Guest, explain
from test_status_page import Browser, text
from test_top import GEMM, job, report, row, screen_of, send, sonde, top
from test_top_words import last_screen, look, ranks, sentences
from waiting import wait_until

SHORT = ("--interval", "1", "--timeout", "1")


@pytest.fixture
def node(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        yield d


@contextlib.contextmanager
def slow_to_end(d, seconds):
    """A guest whose monitor takes that long to be off; None: it stays on."""
    g, end = Guest(d), threading.Event()

    def work():
        running, off = False, None
        while not end.is_set():
            text = g.request()
            if "NPU_MONITOR_START=true" in text:
                running = True
                g.send(monitor_status(RUNNING))
            elif "NPU_MONITOR_STOP=true" in text and seconds is not None:
                off = time.monotonic() + seconds
            if off and time.monotonic() > off:
                running, off = False, None
                g.send(monitor_status(IDLE))
            if running:
                send(g, report())
            g.receive(0.2)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield g
    finally:
        end.set()
        thread.join()
        g.close()


# --- its end ---


def test_top_ends_when_its_monitor_is_off(node):
    with slow_to_end(node, 1.5):
        r = sonde(node, "top", "--once", *SHORT)
        assert node.call({"fn": "getStatus"})["npumonitor"] == "Idle"
        assert r.returncode == 0 and "the monitor is stopped again" in r.stderr, r.stderr
        # so what cannot be while a monitor is on can be now
        reply = node.call({"fn": "setKinetOnDemandRequest", "config": TRACE, "pids": [0]})
        assert reply["commandStatus"] == "effective"
        assert reply["activityProfilersTriggered"] == [os.getpid()]


def test_top_names_who_does_not_stop(node):
    with slow_to_end(node, None):
        r = sonde(node, "top", "--once", *SHORT)
        assert f"is still on in 1 process ({os.getpid()}): it ends by itself" in r.stderr, r.stderr
        assert "is stopped again" not in r.stderr


def test_a_trace_right_behind_top(node):
    with job(node, "--ranks", "3", "--step-ms", "20"):
        wait_until(lambda: top(node)["known"] == 3)
        for _ in range(3):
            r = sonde(node, "top", "--once", *SHORT)
            assert "the monitor is stopped again" in r.stderr, r.stderr
            reply = node.call({"fn": "setKinetOnDemandRequest", "config": TRACE, "pids": [0]})
            assert reply["commandStatus"] == "effective", reply
            assert len(reply["activityProfilersTriggered"]) == 3, reply
            node.call({"fn": "stopTrace", "pids": [0], "job_id": 0})
            wait_until(lambda: node.call({"fn": "getStatus"})["nputrace"] == "Idle")


def test_no_limit_is_blamed_that_nobody_gave(node):
    """Who was refused asks why when it may be over; guests are not counted against the limit."""
    with ranks(node, 5):
        wait_until(lambda: top(node)["known"] == 5)
        wait_until(lambda: node.call({"fn": "getStatus"})["nputrace"] == "Idle")
        reason = explain(node, TRACE)["reason"]
        assert reason.startswith("nothing is in its way now") and "try again" in reason
        asked = {"fn": "explainRequest", "config": TRACE, "pids": [0], "process_limit": 2}
        assert "--process-limit" in node.call(asked)["reason"]


# --- its beginning ---


def test_what_an_earlier_monitor_said_is_not_shown(node):
    with Guest(node) as g:
        send(g, report())
        wait_until(lambda: top(node)["processes"])
        seen, status = screen_of(node, *SHORT, keys=b"q", want=b"Starting the monitor")
        assert status == 0 and b"busy" not in seen, seen


def test_the_last_numbers_of_a_monitor_that_is_off(node):
    with Guest(node) as g:
        send(g, report())
        wait_until(lambda: top(node)["processes"])
        off, busy = sentences(node)[:2]
        assert off.startswith("The monitor is off: these are its last numbers, of ")
        assert busy.startswith("Devices are busy 60 %")
        wait_until(lambda: top(node)["processes"][0]["late"])
        seen = look_nothing(node)
        assert "1 process can be monitored, and the monitor is off." in seen
        seen, _ = screen_of(node, "--no-start", *SHORT, keys=b"q", want=b"monitor is off")
        text = " ".join(last_screen(seen))
        assert "do not report" not in text and "silent" not in text, text


def look_nothing(d, *words):
    r = sonde(d, "top", "--once", "--no-start", *SHORT, *words)
    assert r.returncode == 3 and not r.stdout, r.stdout
    return r.stderr


def test_a_trace_is_why_the_monitor_is_off(node):
    with Guest(node) as g:
        for state in (RUNNING, READY):
            g.send(trace_status(state, 1, 5, 7))
            wait_until(lambda: top(node)["tracing"] == 1)
            said = look_nothing(node)
            assert "the monitor is off: nputrace has 1 of them" in said, said
            assert f"'sonde ctl --port {node.port} nputrace --stop'" in said


def test_none_matches_is_not_none_there(node):
    with Guest(node), ranks(node, 1):
        wait_until(lambda: top(node)["known"] == 2)
        for words in (("--pids", "1"), ("--job-id", "77")):
            said = look_nothing(node, *words)
            assert "2 processes can be monitored, but none that was asked for" in said, said
            assert f"'sonde ctl --port {node.port} ps'" in said and "registered" not in said


def test_a_framework_that_sends_no_reports(node):
    with Client(node.ipc_dir / "dynolog", bind=node.ipc_dir) as c:
        c.context(0)
        c.send(trace_status(IDLE))
        c.send(monitor_status(RUNNING))
        wait_until(lambda: top(node)["mute"] == 1)
        r = sonde(node, "top", "--once", *SHORT)
        assert r.returncode == 3, r.stderr
        assert "in these processes it is a framework's own" in r.stderr
        assert "/metrics" in r.stderr and f"ctl --port {node.port} npu-monitor" in r.stderr


# --- what the numbers are of ---


def test_a_filter_is_said(node):
    with Guest(node) as g:
        send(g, report(filter=True))
        wait_until(lambda: top(node)["processes"])
        answer = look(node)["answer"]
        assert "What the monitor's --filter lets through" in answer
        assert "keeps devices busy 60 % of the time" in answer and "Devices are" not in answer


def test_the_status_page_says_what_the_numbers_are_of(node, tmp_path):
    words = text("#top-words")
    minute = {"from": time.time_ns() - 60 * 10**9, "interval_s": 60}  # not late for a while
    with Browser(tmp_path) as b, Guest(node) as g:
        g.send(monitor_status(RUNNING))
        send(g, report(filter=True, kinds=["Kernel", "MemSet"], **minute))
        b.ask("Page.navigate", url=f"http://localhost:{node.http_port}/")
        said = b.until(f"document.querySelector('#top-words p') && {words}")
        assert "of what the monitor's --filter lets through, and of nothing else." in said
        assert "Not collected: communication." in said and "is off" not in said
        send(g, report(**minute))
        b.until(f"document.querySelector('#top tr') && !{words}")
        g.send(monitor_status(IDLE))
        b.until(f"{words}.startsWith('The monitor is off: these are its last numbers, of ')")


def test_a_recorder_tells_that_there_is_a_filter(node):
    with job(node, "--ranks", "1", "--step-ms", "20"):
        wait_until(lambda: top(node)["known"] == 1)
        node.ctl("npu-monitor", "--npu-monitor-start", "--report-interval-s", 1,
                 "--mspti-activity-kind", "Kernel", "--filter", "Kernel:MatMul")  # fmt: skip
        (p,) = wait_until(lambda: top(node)["processes"])
        assert p["filter"] is True
        node.ctl("npu-monitor", "--npu-monitor-stop")
        wait_until(lambda: node.call({"fn": "getStatus"})["npumonitor"] == "Idle")
        one = json.loads(sonde(node, "top", "--once", "--json", *SHORT).stdout)
        assert "Devices are busy" in one["answer"]
        assert all(isinstance(k["calls"], int) for k in one["kernels"])
        # and what top knows, others do
        listed = node.call({"fn": "listProcesses"})["processes"]
        assert [x["device"] for x in listed] == [one["ranks"][0]["device"]] != [-1]


def test_waiting_alone_is_no_alarm(node):
    def interval(mean, number=[0]):
        number[0] += 1
        rows = [row("hcom_allReduce_", 100, mean, "Communication"), row(GEMM, 100, 2_000_000)]
        send(g, report(rows=rows, names=number[0], **more))
        wait_until(lambda: top(node)["processes"][0]["names"] == number[0])

    more = {}
    with Guest(node) as g:
        g.send(monitor_status(RUNNING))
        send(g, report())
        wait_until(lambda: top(node)["processes"])
        for mean in [1_000_000] * 6 + [2_000_000] * 3:
            interval(mean)
        (said,) = [x for x in sentences(node) if "hcom" in x and "than before" in x]
        assert said.startswith("Waits longer than before: 'hcom_allReduce_'"), said
        seen, _ = screen_of(node, "--no-start", *SHORT, keys=b"q", want=b"Waits longer")
        assert b"\x1b[31mWaits" not in seen
        # of what is not collected nothing is said
        more["kinds"] = ["Kernel"]
        interval(2_000_000)
        assert top(node)["regressions"] == []


def test_hints_name_the_port(node):
    with Guest(node) as g:
        g.send(monitor_status(RUNNING))
        send(g, report(kinds=["Marker"], rows=[], devices=[]))
        wait_until(lambda: top(node)["processes"])
        assert f"'sonde ctl --port {node.port} npu-monitor --mspti" in look(node)["answer"]


def test_a_signal_while_it_waits_for_the_end(node):
    with slow_to_end(node, 1):
        seen, status = screen_of(node, *SHORT, end=signal.SIGINT)
        assert status == 0 and b"the monitor is stopped again" in seen, seen
        assert node.call({"fn": "getStatus"})["npumonitor"] == "Idle"


def test_why_the_monitor_does_not_start_is_said(node, build, tmp_path):
    """There is no library of a vendor in that process."""
    env = dict(os.environ, KINETO_IPC_SOCKET_DIR=str(node.ipc_dir), SONDE_MONITOR_DIR=str(tmp_path))
    words = [build / "bin/sonde", "monitor", "--quiet", "--", build / "sim/simtrain", "--quiet",
             "--forever"]  # fmt: skip
    with subprocess.Popen(words, env=env) as p:
        try:
            wait_until(lambda: top(node)["known"] == 1)
            said = sonde(node, "top", "--once", *SHORT).stderr
            assert f"The monitor does not start in process {p.pid}: there is neither" in said, said
        finally:
            p.kill()
