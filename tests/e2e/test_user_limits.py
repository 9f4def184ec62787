# SPDX-License-Identifier: MulanPSL-2.0
"""What an ordinary user can fill belongs to him alone: the daemon of root has a log, metrics, places
for connections and readers, and Bob takes all that he can get. Alice's are as if he were not there."""

import contextlib
import encodings.idna  # noqa: F401 (other users may not be able to read it when it is needed)
import http.client
import json
import os
import re
import socket
import time

import fabric_client as fc
import pytest
from daemon import Daemon
from fabric_client import datagram
from rpc_client import frame
from test_guest_clients import MONITOR, Guest
from test_top import report
from users import Users
from waiting import pause, wait_until

SUMMARY = r"(\d+) {} of user {} suppressed"


@pytest.fixture(scope="module")
def users(build):
    users = Users(build)
    try:
        yield users
    finally:
        users.end()


@pytest.fixture
def node(users):
    with Daemon(users.build, users.dir, ipc=True) as d:
        d.ipc_dir.chmod(0o1777)
        yield d


def client(d, **kw):
    return fc.Client(d.ipc_dir / "dynolog", **kw)


def record(kind, device=0, **more):
    now = time.time_ns()
    return {"kind": kind, "deviceId": device, "duration": 5, "timestamp": now, **more}


def send_records(d, kinds):
    with client(d) as c:
        for kind in kinds:
            c.data(record(kind))


def metrics(d):
    c = http.client.HTTPConnection("127.0.0.1", d.http_port, timeout=10)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    c.close()
    return text


# --- the log ---


def suppressed(d, what, user):
    """How many, as the log of an ended daemon says."""
    return sum(int(n) for n in re.findall(SUMMARY.format(what, user.uid), d.log()))


def test_records_of_a_flood_do_not_fill_the_log(users):
    """7 MB a second of made-up records went into the log with --use-JSON."""
    sent = 3000
    with Daemon(users.build, users.dir, "--use-JSON", ipc=True) as d:
        d.ipc_dir.chmod(0o1777)
        begin = time.monotonic()
        users.bob.do(lambda: send_records(d, ["Kernel"] * sent))
        passed = time.monotonic() - begin
        users.alice.do(lambda: send_records(d, ["HerKernel"] * 20))
        d.wait_log('HerKernel(.|\n)*HerKernel')
        wait_until(lambda: d.log().count('"HerKernel"') == 20, "her records")
    his = d.log().count('"kind":"Kernel"')
    assert 200 <= his <= 200 * (passed + 2), his
    assert d.log().count(f"user {users.bob.uid} causes too many metric records") >= 1
    assert his + suppressed(d, "metric records", users.bob) == sent
    assert not suppressed(d, "metric records", users.alice)


def fail_requests(d, n):
    """A library of ours that carries nothing out, and its user who asks for it again and again."""
    ask = {"fn": "setKinetOnDemandRequest", "config": MONITOR, "pids": [0]}
    with Guest(d) as g, d.connect() as calls:
        for i in range(n):
            number = calls.call(ask)["requestTraceId"]
            assert g.request()
            for _ in range(4):
                g.send(datagram("sondeSaid", f"{number} no, {i} {'x' * 200}".encode()))
            assert g.request() == ""  # it has read them


def test_failures_of_a_flood_do_not_fill_the_log(users):
    """1.2 MB a second: each request may fail in four lines."""
    with Daemon(users.build, users.dir, ipc=True) as d:
        d.ipc_dir.chmod(0o1777)
        begin = time.monotonic()
        users.bob.do(lambda: fail_requests(d, 100))
        passed = time.monotonic() - begin
        before = d.log().count("did not carry out")
        users.alice.do(lambda: fail_requests(d, 2))
        assert d.log().count("did not carry out") == before + 8
    assert 60 <= before <= 62 + passed
    assert before + suppressed(d, "lines", users.bob) == 400
    assert not suppressed(d, "lines", users.alice)


# --- metrics ---


def kinds(text, user):
    return set(re.findall(rf'npu_activity_records_total{{[^}}]*kind="(\w+)"[^}}]*uid="{user.uid}"', text))


def test_made_up_kinds_keep_nobody_else_out(node, users):
    users.bob.do(lambda: send_records(node, [f"MadeUp{i}" for i in range(700)]))
    wait_until(lambda: "sonde_dropped_total" in metrics(node) and len(kinds(metrics(node), users.bob)) == 512,
               "his kinds")  # fmt: skip
    users.alice.do(lambda: send_records(node, ["Kernel", "Communication", "MadeUp1"]))
    wait_until(lambda: len(kinds(metrics(node), users.alice)) == 3, "hers")
    # neither adds to the other's, nor sees more of them than /metrics has
    text = metrics(node)
    assert re.search(rf'npu_activity_records_total{{[^}}]*kind="Kernel"[^}}]*uid="{users.alice.uid}"[^}}]*}} 1\n', text)
    ask = {"fn": "getMetrics"}
    for user, n in ((users.alice, 3), (users.bob, 509), (users.root, 512)):
        samples = user.do(lambda: node.call(ask))["samples"]
        data = [s for s in samples if s["source"] == "data"]
        assert len(data) == n and (n == 512 or {s["uid"] for s in data} == {user.uid}), user.name


def test_reports_of_a_flood_leave_room_in_the_metrics(node, users):
    """/metrics shows 256 processes, those with low pids first."""
    pids = users.bob.do(lambda: register_many(node, 300))
    assert len(pids) == 300
    own = users.alice.do(lambda: register_many(node, 1))
    text = metrics(node)
    lines = [x for x in text.splitlines() if x.startswith("sonde_device_time_ratio")]
    assert [x for x in lines if f"pid=\"{own[0]}\"" in x], (len(lines), lines[:3], own)


def report_and_wait(d, write):
    """A process that has reported, until the daemon is gone."""
    with contextlib.suppress(BaseException):
        os.dup2(write, 3)
        os.closerange(4, 64)
        with client(d) as c:
            c.send(fc.monitor_status(fc.RUNNING))
            c.request([os.getpid()])
            c.send(datagram("sondeTop", json.dumps(report(rank=0)).encode()))
            c.request([os.getpid()])
            os.write(3, b"x")
            os.close(3)
            while os.path.exists(d.ipc_dir / "dynolog"):
                pause(0.2, "stays until the daemon is gone")
    os._exit(0)


def register_many(d, n):
    read, write = os.pipe()
    pids = []
    for _ in range(n):
        pids.append(os.fork())
        if not pids[-1]:
            report_and_wait(d, write)
    os.close(write)
    with open(read, "rb") as f:
        assert len(f.read()) == n
    return pids


# --- connections ---


def hold_connections(port, n, data):
    held = []
    for _ in range(n):
        s = socket.create_connection(("127.0.0.1", port), 10)
        s.sendall(data)
        held.append(s)
    return held


def test_connections_of_a_flood_take_nobody_elses(node, users):
    """1024 of the control port, which are all his, or would be."""
    with contextlib.ExitStack() as stack:
        mine = [stack.enter_context(node.connect()) for _ in range(3)]  # root's
        for c in mine:
            c.call({"fn": "getVersion"})

        def flood():
            held = hold_connections(node.port, 1100, frame({"fn": "getVersion"})[:7])
            for c in mine:  # inherited: of the same connections
                c.call({"fn": "getVersion"})
            refused = lambda: mine[0].call({"fn": "getDaemon"})["rpc"]["refused"]["crowded"]
            wait_until(lambda: refused() >= 76, "what is too much to be refused")
            return len(held)

        assert users.bob.do(flood) == 1100
        for c in mine:
            assert "version" in c.call({"fn": "getVersion"})


def test_http_connections_of_a_flood_take_nobody_elses(node, users):
    mine = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=10)
    mine.request("GET", "/healthz")
    assert mine.getresponse().read() == b"ok\n"
    before = mine.sock

    def flood():
        return len(hold_connections(node.http_port, 100, b"GET /healthz HTTP/1.1\r\nHost: local"))

    assert users.bob.do(flood) == 100
    mine.request("GET", "/healthz")
    assert mine.getresponse().read() == b"ok\n" and mine.sock is before
    mine.close()
