# SPDX-License-Identifier: MulanPSL-2.0
"""Whose monitor it is that `sonde top` shows: its own ends with it, however that ends; that of
somebody else is left as he wants it."""

import os
import pty
import signal
import subprocess
import threading
import time

import pytest
from daemon import Daemon
from fabric_client import RUNNING, monitor_status, trace_status
from test_guest_clients import MONITOR, STOP, TRACE, Guest
from test_top import job, report, screen_of, send, sonde, top
from waiting import pause, wait_until

SHORT = ("--interval", "1", "--timeout", "1")  # a lease of eight seconds
LEASE_S = 8


@pytest.fixture
def node(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        yield d


def state(d):
    return d.call({"fn": "getStatus"})["npumonitor"]


def start_top(d, *words):
    return d.popen(
        d.build / "bin" / "sonde", "top", "--port", d.port, *SHORT, *words,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def end(p, how=signal.SIGINT):
    p.send_signal(how)
    return p.communicate(timeout=30)


def intervals(d, seconds):
    """Of each process, from and to of the reports that come meanwhile."""
    seen, limit = {}, time.monotonic() + seconds
    while time.monotonic() < limit:
        for p in top(d)["processes"]:
            times = seen.setdefault(p["pid"], [])
            if not times or times[-1] != (p["from"], p["to"]):
                times.append((p["from"], p["to"]))
        pause(0.1, "the pace of the reader")
    return seen


def ordered(d, lease=0):
    return top(d, lease=lease)["orders"]


def lease_of(text):
    (line,) = [x for x in text.splitlines() if "SONDE_LEASE=" in x]
    return int(line.split("=")[1])


# --- with a job ---


def test_a_killed_top_leaves_no_monitor_behind(node):
    with job(node, "--ranks", "2", "--step-ms", "20"):
        wait_until(lambda: top(node)["known"] == 2)
        p = start_top(node, "--json")
        try:
            wait_until(lambda: state(node) == "Running")
            # it goes on for longer than the lease, and nobody notices that it is renewed: one
            # interval begins where the other ends
            seen = intervals(node, 2 * LEASE_S)
            assert state(node) == "Running" and len(seen) == 2
            for times in seen.values():
                assert len(times) >= 5, times
                # who looks may miss one; of a monitor that is started anew half would differ
                pairs = [(to, begins) for (_, to), (begins, _) in zip(times, times[1:])]
                assert sum(x != y for x, y in pairs) <= len(pairs) // 4, times
        finally:
            p.kill()
            p.communicate()
        began = time.monotonic()
        wait_until(lambda: state(node) == "Idle", seconds=60)
        assert time.monotonic() - began < 40
        # and the next one finds it off, and starts it
        r = sonde(node, "top", "--once", *SHORT)
        assert r.returncode == 0 and "the monitor was off" in r.stderr, r.stderr
        wait_until(lambda: state(node) == "Idle")


def test_a_screen_that_is_drawn_seldom_keeps_its_monitor(node):
    with job(node, "--ranks", "1", "--step-ms", "20"):
        wait_until(lambda: top(node)["known"] == 1)
        terminal, slave = pty.openpty()
        p = node.popen(
            node.build / "bin" / "sonde", "top", "--port", node.port, "--timeout", "1",
            "--interval", "600", stdin=slave, stdout=slave, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            wait_until(lambda: state(node) == "Running")
            limit = time.monotonic() + 2 * LEASE_S
            while time.monotonic() < limit:
                assert state(node) == "Running"
                pause(0.2, "the pace of the reader")
        finally:
            _, err = end(p)
            os.close(terminal)
            os.close(slave)
        assert p.returncode == 0 and "is stopped again" in err
        wait_until(lambda: state(node) == "Idle")


def test_a_monitor_that_somebody_else_orders_meanwhile_is_his(node, tmp_path):
    files = tmp_path / "his"
    with job(node, "--ranks", "1", "--step-ms", "20"):
        wait_until(lambda: top(node)["known"] == 1)
        p = start_top(node)
        try:
            wait_until(lambda: ordered(node)["others"])  # as anybody but top sees it
            node.ctl("npu-monitor", "--npu-monitor-start", "--report-interval-s", 1,
                     "--mspti-activity-kind", "Kernel,MemCpy", "--log-file", files)  # fmt: skip
            lines = []
            wait_until(lambda: lines.append(p.stdout.readline()) or "somebody else's request" in lines[-1])
            assert lines[-1].startswith("The monitor runs by somebody else's request now")
            wait_until(lambda: top(node)["processes"][0]["kinds"] == ["Kernel", "MemCpy"])
        finally:
            out, err = end(p)
        assert p.returncode == 0
        assert "stays on: somebody else" in err and "is stopped again" not in err, err
        # all that he ordered counts, and it outlives both top and its lease
        wait_until(lambda: list(files.rglob("*.db")))
        pause(LEASE_S + 2, "longer than a lease that nobody renews")
        assert state(node) == "Running"
        assert top(node)["processes"][0]["kinds"] == ["Kernel", "MemCpy"]


def test_one_that_was_on_is_left_as_it_is(node):
    with job(node, "--ranks", "1", "--step-ms", "20"):
        wait_until(lambda: top(node)["known"] == 1)
        node.ctl("npu-monitor", "--npu-monitor-start", "--report-interval-s", 1,
                 "--mspti-activity-kind", "Kernel")  # fmt: skip
        wait_until(lambda: state(node) == "Running" and top(node)["processes"])
        r = sonde(node, "top", "--count", "2", "--kinds", "Kernel,MemCpy", *SHORT)
        assert r.returncode == 0 and not r.stderr, r.stderr
        assert "not collected: communication, copies." in r.stdout
        assert state(node) == "Running" and top(node)["processes"][0]["kinds"] == ["Kernel"]


def test_the_end_of_a_duration_is_said(node):
    with job(node, "--ranks", "1", "--step-ms", "20"):
        wait_until(lambda: top(node)["known"] == 1)
        node.ctl("npu-monitor", "--npu-monitor-start", "--report-interval-s", 1, "--duration", 8,
                 "--mspti-activity-kind", "Kernel")  # fmt: skip
        wait_until(lambda: state(node) == "Running")
        r = sonde(node, "top", "--count", "1000", *SHORT)
        assert r.returncode == 3 and r.stdout.count("Devices are busy") >= 1
        assert "The monitor has ended: its --duration is over." in r.stderr
        assert state(node) == "Idle", "and it is not started again"


def test_processes_that_join_are_monitored_too(node):
    with job(node, "--ranks", "1", "--step-ms", "20"):
        wait_until(lambda: top(node)["known"] == 1)
        p = start_top(node)
        try:
            wait_until(lambda: top(node)["running"] == 1)
            with job(node, "--ranks", "2", "--step-ms", "20"):
                wait_until(lambda: top(node)["running"] == 3)
            wait_until(lambda: top(node)["known"] == 1)
            assert top(node)["running"] == 1
        finally:
            _, err = end(p)
        assert err.count("the monitor was off") == 1 and "is stopped again" in err, err
        wait_until(lambda: state(node) == "Idle")


def test_a_daemon_that_is_started_anew_goes_on_with_the_lease(build, tmp_path, node):
    with job(node, "--ranks", "1", "--step-ms", "20"):
        wait_until(lambda: top(node)["known"] == 1)
        p = start_top(node)
        try:
            wait_until(lambda: top(node)["processes"])
            port = node.port
            node.process.kill()
            node.process.wait()
            with Daemon(
                build, tmp_path, "--port", port, "--http-port", 0, "--enable-ipc-monitor",
                "--ipc-socket-dir", node.ipc_dir, "--ipc-dir-only", defaults=False,
            ) as again:  # fmt: skip
                wait_until(lambda: ordered(again)["others"], seconds=60)  # it was renewed
                pause(LEASE_S + 2, "longer than a lease that nobody renews")
                assert state(again) == "Running"
                _, err = end(p)
                assert "is stopped again" in err, err
                wait_until(lambda: state(again) == "Idle")
        finally:
            if p.poll() is None:
                p.kill()
                p.communicate()


# --- what the daemon gives out ---


def leased(text, number=77, duration=20):
    return text.replace("DURATION=0", f"DURATION={duration}") + f"\nSONDE_LEASE={number}"


RENEW = MONITOR.replace("START=true", "START=false")


def give(d, text):
    reply = d.call({"fn": "setKinetOnDemandRequest", "config": text, "pids": [0]})
    return len(reply.get("activityProfilersTriggered", []))


def test_who_looks_on_gives_way_to_who_orders(node):
    with Guest(node) as g:
        # nobody's order, fetched or not, gives way to one with a lease
        assert give(node, MONITOR) == 1
        assert give(node, leased(MONITOR)) == 0
        assert "SONDE_LEASE" not in g.request()
        g.send(monitor_status(RUNNING))
        wait_until(lambda: ordered(node, 77)["others"] == 1)
        for text in (MONITOR, RENEW, STOP):
            assert give(node, leased(text)) == 0 and g.request() == ""
        # nor does a trace that waits
        assert give(node, STOP) == 1 and "STOP=true" in g.request()
        g.send(monitor_status(0))
        g.send(trace_status(2, 1, 5, 7))
        wait_until(lambda: node.call({"fn": "getStatus"})["nputrace"] == "Ready")
        assert give(node, leased(MONITOR)) == 0
        assert ordered(node, 77) == {
            "own": 0, "others": 0, "lapsed": 0, "ended": 1, "stopped": 1, "free": 0,
        }  # fmt: skip
        g.send(trace_status(0))
        wait_until(lambda: node.call({"fn": "getStatus"})["nputrace"] == "Idle")
        # the other way round everything does
        assert give(node, leased(MONITOR)) == 1
        assert give(node, leased(MONITOR, 78)) == 0, "nor one lease to another"
        assert give(node, MONITOR) == 1
        assert "SONDE_LEASE" not in g.request()


def test_a_renewal_is_for_the_one_who_lends_it(node):
    with Guest(node) as g:
        assert give(node, leased(MONITOR)) == 1
        assert give(node, leased(RENEW)) == 0, "what is to be renewed is on its way"
        assert "SONDE_LEASE=77" in g.request()
        g.send(monitor_status(RUNNING))
        wait_until(lambda: ordered(node, 77)["own"] == 1)
        assert ordered(node, 78)["others"] == ordered(node)["others"] == 1
        assert give(node, leased(RENEW, 78)) == 0 and give(node, leased(STOP, 78)) == 0
        # it may lie there, and is in nobody's way
        assert give(node, leased(RENEW)) == 1
        reply = node.call({"fn": "setKinetOnDemandRequest", "config": MONITOR, "pids": [0]})
        text = g.request()
        assert "SONDE_LEASE" not in text and reply["requestTraceId"] in text
        assert give(node, leased(STOP)) == 0 and g.request() == ""


def test_a_renewal_takes_no_answer_from_who_waits_for_one(node):
    with Guest(node) as g:
        assert give(node, leased(MONITOR)) == 1 and g.request()
        g.send(monitor_status(RUNNING))
        wait_until(lambda: ordered(node, 77)["own"] == 1)
        change = node.call({"fn": "setKinetOnDemandRequest", "config": RENEW, "pids": [0]})
        assert "START=false" in g.request()
        assert give(node, leased(RENEW)) == 1
        waiting = node.call({"fn": "getAnswers", "request": change["requestTraceId"]})["waiting"]
        assert waiting == [os.getpid()]


def test_one_that_is_stopped_by_an_order_stays_off(node):
    orders = []
    with Guest(node) as g:
        p = start_top(node, "--count", "1000")
        try:
            text = wait_until(g.request)
            g.send(monitor_status(RUNNING))
            send(g, report())
            wait_until(lambda: ordered(node, lease_of(text))["own"] == 1)
            pause(1, "top shows some rounds")
            assert give(node, STOP) == 1
            wait_until(lambda: orders.append(g.request()) or "STOP=true" in orders[-1])
            assert "SONDE_LEASE" not in orders[-1]
            g.send(monitor_status(0))
            out, err = p.communicate(timeout=30)
        finally:
            p.kill()
        assert p.returncode == 3 and "The monitor was stopped by a request." in err
        assert g.request() == "", "neither started nor stopped again"


def test_on_a_screen_the_end_is_the_first_line(node):
    with Guest(node) as g:
        assert give(node, MONITOR) == 1 and g.request()
        g.send(monitor_status(RUNNING))
        send(g, report())
        wait_until(lambda: top(node)["processes"])
        told = []

        def work():
            wait_until(lambda: "STOP=true" in g.request())
            g.send(monitor_status(0))

        thread = threading.Thread(target=work)
        thread.start()
        want = b"was stopped by a request"
        seen, status = screen_of(node, *SHORT, keys=b"q", want=want,
                                 then=lambda: told.append(give(node, STOP)))  # fmt: skip
        thread.join()
        assert told == [1] and status == 0, seen
        assert b"is stopped again" not in seen


def test_a_trace_is_not_dropped_for_who_looks_on(node):
    with Guest(node) as g:
        assert give(node, TRACE) == 1
        p = start_top(node, "--json")
        pause(2, "top would have started the monitor")
        end(p)
        assert "ACTIVITIES_LOG_FILE=/tmp/t" in g.request()
        assert ordered(node)["free"] == 1
