# SPDX-License-Identifier: MulanPSL-2.0
"""Senders that mean harm or are broken: each is counted, and the next one is served."""

import array
import os
import pathlib
import signal
import socket
import struct

import fabric_client as fc
import pytest
from daemon import Daemon, sanitised
from test_fabric import Served, check_config, fabric_counts, order, processes
from waiting import pause, wait_until


@pytest.fixture(scope="module")
def shared(build, tmp_path_factory):
    """One daemon for many bad datagrams: it has to outlive them all."""
    with Daemon(build, tmp_path_factory.mktemp("hostile"), ipc=True) as d:
        yield d


@pytest.fixture
def daemon(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        yield d


def request_payload(npids, there):
    return struct.pack(f"=iiq{there}i", 3, npids, 0, *range(1, there + 1))


def data(text):
    return fc.datagram("data", text)


DEEP = b'{"a":' + b"[" * 10 + b"]" * 10 + b"}"

BAD = {
    "zero bytes": (b"", "empty"),
    "one byte": (b"\x10", "too_short"),
    "a byte less than a header": (fc.datagram("req")[:39], "too_short"),
    "claims more": (struct.pack("=Q32s", 100, b"req") + b"x" * 50, "wrong_size"),
    "claims less": (struct.pack("=Q32s", 10, b"req") + b"x" * 50, "wrong_size"),
    "claims everything": (struct.pack("=Q32s", 2**64 - 1, b"req"), "wrong_size"),
    "claims half of everything": (struct.pack("=Q32s", 2**63, b"ctxt") + b"x" * 16, "wrong_size"),
    "claims to wrap around": (struct.pack("=Q32s", 2**64 - 40, b"data"), "wrong_size"),
    "type without an end": (struct.pack("=Q", 0) + b"r" * 32, "bad_type"),
    "type of nothing": (fc.datagram(""), "unknown_type"),
    "unknown type": (fc.datagram("hello", b"world"), "unknown_type"),
    "type in other letters": (fc.datagram(b"\xff\xfe\xfd"), "unknown_type"),
    "registration too short": (fc.datagram("ctxt", b"x" * 15), "bad_payload"),
    "registration of nothing": (fc.datagram("ctxt"), "bad_payload"),
    "request of nothing": (fc.datagram("req"), "bad_payload"),
    "request too short": (fc.datagram("req", b"x" * 15), "bad_payload"),
    "no pids": (fc.datagram("req", request_payload(0, 0)), "bad_payload"),
    "pids below zero": (fc.datagram("req", request_payload(-1, 2)), "bad_payload"),
    "pids that wrap around": (fc.datagram("req", request_payload(-(2**31), 2)), "bad_payload"),
    "more pids than there are": (fc.datagram("req", request_payload(3, 2)), "bad_payload"),
    "far more pids": (fc.datagram("req", request_payload(2**31 - 1, 2)), "bad_payload"),
    "status between both forms": (fc.datagram("npuTraceStatus", b"x" * 24), "bad_payload"),
    "status of nothing": (fc.datagram("npuMonitorStatus"), "bad_payload"),
    "data of nothing": (data(b""), "bad_json"),
    "data that is no JSON": (data(b"{"), "bad_json"),
    "data that is no object": (data(b"[1]"), "bad_json"),
    "data with a NUL": (data(b'{"a":1}\0'), "bad_json"),
    "data that is deep": (data(DEEP), "bad_json"),
    "data that only opens": (data(b'{"a":' + b"[" * 4000), "bad_json"),
    "data that overflows": (data(b'{"duration":1e999}'), "bad_json"),
    "data with a huge integer": (data(b'{"duration":' + b"9" * 400 + b"}"), "bad_json"),
    "data that is not UTF-8": (data(b'{"name":"\xff\xfe"}'), "bad_json"),
    "data with half a pair": (data(b'{"name":"\\ud800"}'), "bad_json"),
    "data that is too long": (data(b'{"a":"' + b"x" * 4096 + b'"}'), "too_long"),
    "a datagram that is too long": (data(b"x" * 65536), "too_long"),
    "a datagram far too long": (data(b"x" * 150000), "too_long"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_datagrams(shared, name):
    bad, reason = BAD[name]
    with fc.Client(shared.ipc_dir / "dynolog", bind=shared.ipc_dir) as c:
        before = fabric_counts(shared)["dropped"]
        c.send(bad)
        assert c.request() == "", "the first answer is that to the good one"
        after = fabric_counts(shared)["dropped"]
        assert after.pop(reason) == before.pop(reason) + 1
        assert after == before
        assert c.receive(0) is None


ODD = {
    "data without the usual keys": b"{}",
    "data of wrong types": b'{"kind":1,"deviceId":{},"timestamp":"x","duration":[null],"name":true}',
    "data with odd numbers": b'{"kind":"Kernel","deviceId":18446744073709551615,"duration":-1}',
    "data with big floats": b'{"kind":"Kernel","deviceId":1e300,"timestamp":1e300,"duration":1e300}',
    "data with odd names": b'{"kind":"../../x","deviceId":"../../../etc","duration":1,"domain":"a\\"\\n"}',
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_data_harms_nobody(shared, name):
    with fc.Client(shared.ipc_dir / "dynolog") as c:
        c.data(ODD[name])
        assert c.request() == ""
    assert shared.call({"fn": "getMetrics"}) is not None


def test_odd_values_harm_nobody(shared):
    """Well-formed, but nothing that a process would say of itself."""
    extremes = (0, -1, 1, 2**31 - 1, -(2**31))
    with fc.Client(shared.ipc_dir / "dynolog") as c:
        for n in extremes:
            c.send(fc.trace_status(n, n, n, n, n, n))
            c.send(fc.monitor_status(n, n, n))
            c.send(fc.context(n, n, n))
            c.send(fc.request([n], n, -(2**63)))
            c.send(fc.request([n] * 200, n, 2**63 - 1))
            answers = []
            while answers.count(("req", b"")) < 2:
                answers.append(fc.split(c.receive()))
            assert len(answers) <= 3
        assert c.request() == ""
    assert "nputrace" in shared.call({"fn": "getStatus"})
    assert processes(shared)


# --- addresses ---


def test_path_bound_senders_at_every_endpoint(build, tmp_path):
    with Served(build, tmp_path) as d:
        for server in ("@dynolog", d.home / "dynolog.sock", d.ipc_dir / "dynolog"):
            for _ in range(3):
                with fc.Client(server, bind=d.ipc_dir, netns=d.pid) as c:
                    assert c.request() == ""
            with fc.Client(server, netns=d.pid) as c:
                assert c.request() == ""


@pytest.mark.parametrize(
    "name", [b"\0x", b"\0" + b"n" * 107, b"\0\0\0\0", b"\0dynoconfig\xff\xfe\n%s\0"]
)
def test_odd_names_are_answered(shared, name):
    with fc.Client(shared.ipc_dir / "dynolog", bind=None) as c:
        c.sock.bind(name)
        assert c.request() == ""


def test_an_unbound_sender_is_heard_and_not_answered(daemon):
    server = daemon.ipc_dir / "dynolog"
    with fc.Client(server, bind=None) as c, fc.Client(server) as named:
        c.send(fc.request([os.getpid()]))
        wait_until(lambda: processes(daemon), "it is registered")
        assert order(daemon)["activityProfilersTriggered"] == [os.getpid()]
        c.send(fc.request([os.getpid()]))
        wait_until(lambda: fabric_counts(daemon)["replies"]["no_address"] == 2, "it is heard")
        check_config(named.request([os.getpid()]))


# --- answers that nobody takes ---


def test_a_sender_that_is_gone_before_its_answer_loses_nothing(daemon):
    server = daemon.ipc_dir / "dynolog"
    with fc.Client(server) as c:
        c.request()
    assert order(daemon)["activityProfilersTriggered"] == [os.getpid()]
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        for bind in ("@", daemon.ipc_dir):
            with fc.Client(server, bind=bind) as c:
                c.send(fc.request([os.getpid()]))
                c.send(fc.context(0, os.getpid()))
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    wait_until(lambda: fabric_counts(daemon)["replies"]["gone"] == 4, "they are gone")
    with fc.Client(server) as c:
        check_config(c.request())
        assert c.request() == ""


def fill_queue(d, client):
    """Asks without reading until an answer finds no room."""
    before = fabric_counts(d)["replies"]["delayed"]
    for _ in range(2000):
        client.send(fc.request([os.getpid()]))
        if fabric_counts(d)["replies"]["delayed"] > before:
            return
    pytest.fail("the queue of a client has no end")


def drain(client):
    n = 0
    while client.receive(0) is not None:
        n += 1
    return n


def test_a_config_waits_for_a_process_that_does_not_read(daemon):
    with fc.Client(daemon.ipc_dir / "dynolog") as c:
        c.request()
        fill_queue(daemon, c)
        wait_until(lambda: fabric_counts(daemon)["replies"]["waiting"] == 0, "nothing waits")
        assert fabric_counts(daemon)["replies"]["late"] >= 1
        assert order(daemon)["activityProfilersTriggered"] == [os.getpid()]
        c.send(fc.request([os.getpid()]))
        wait_until(lambda: fabric_counts(daemon)["replies"]["config_kept"] == 1, "kept")
        assert processes(daemon)[0]["pending"]
        drain(c)
        check_config(c.request())


def test_an_answer_that_found_no_room_comes_when_there_is(daemon):
    with fc.Client(daemon.ipc_dir / "dynolog") as c:
        for _ in range(20):
            drain(c)
            fill_queue(daemon, c)
            wait_until(lambda: fabric_counts(daemon)["replies"]["waiting"] == 0, "nothing waits")
            late = fabric_counts(daemon)["replies"]["late"]
            c.send(fc.context(0, os.getpid()))
            fabric_counts(daemon)  # by now it has been tried
            kinds = []
            while "ctxt" not in kinds and (answer := c.receive(0.2)):
                kinds.append(fc.split(answer)[0])
            if "ctxt" in kinds:
                return
            # this process was away for too long
            assert fabric_counts(daemon)["replies"]["late"] == late + 1
        pytest.fail("no answer came in 20 tries")


def test_many_that_never_read_silence_nobody(daemon):
    server = daemon.ipc_dir / "dynolog"
    deaf = [fc.Client(server) for _ in range(200)]
    try:
        for c in deaf:
            for _ in range(14):
                c.send(fc.request([os.getpid()]))
        with fc.Client(server) as c:
            for _ in range(20):
                assert c.request() == ""
        assert fabric_counts(daemon)["replies"]["waiting"] <= 64
    finally:
        for c in deaf:
            c.close()


# --- descriptors ---


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_descriptors_are_not_taken(daemon):
    with fc.Client(daemon.ipc_dir / "dynolog") as c:
        c.request()
        before = open_files(daemon.pid)
        read, write = os.pipe()
        for n in (1, 2, 200):
            fds = array.array("i", [write] * n)
            c.sock.sendmsg(
                [fc.request([os.getpid()])],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)],
                0,
                c.server,
            )
        assert c.request() == ""
        assert fabric_counts(daemon)["dropped"]["descriptors"] == 3
        wait_until(lambda: open_files(daemon.pid) <= before, "they are closed")
        os.close(write)
        # nobody else holds the other end: neither the daemon nor a queue
        os.set_blocking(read, False)
        assert os.read(read, 1) == b""
        os.close(read)


# --- floods ---


def flood(server, kind, n, user):
    """Forks a process of that user (None: of ours) that sends, and ends with 0 when all was sent."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        if user:
            user.become()
        c = fc.Client(server)
        c.sock.setblocking(True)
        message = {
            "req": fc.request([os.getpid()]),
            "empty": b"",
            "data": fc.datagram("data", b'{"a":1}'),
        }[kind]
        for _ in range(n):
            c.sock.sendto(message, c.server)
        status = 0
    finally:
        os._exit(status)


def resident_kb(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


@pytest.mark.parametrize("kind", ["req", "empty", "data"])
def test_a_flood_of_an_unprivileged_user(build, tmp_path, users, kind):
    check_flood(build, tmp_path, kind, users.bob)


def test_a_flood_of_one_process_leaves_the_others_of_its_user_alone(build, tmp_path):
    check_flood(build, tmp_path, "req")


def check_flood(build, tmp_path, kind, user=None):
    """100,000 datagrams as fast as they can be sent. Meanwhile others ask, by the fabric and by
    RPC, and are answered."""
    n = 100_000
    with Daemon(build, tmp_path, ipc=True) as d:
        d.ipc_dir.chmod(0o711)
        server = d.ipc_dir / "dynolog"
        with fc.Client(server) as c:
            assert c.request() == ""
            before = resident_kb(d.pid)
            sender = flood(server, kind, n, user)
            asked = 0
            while True:
                ended, status = os.waitpid(sender, os.WNOHANG)
                if ended:
                    break
                assert c.request() == ""
                assert d.call({"fn": "getVersion"})
                asked += 1
                pause(0.001, "others run, too")
            assert status == 0
            assert asked > 3
            assert c.request() == ""
            counts = fabric_counts(d)
            assert sum(e["received"] for e in counts["endpoints"]) >= n
            assert counts["dropped"]["rate_limited"] > n // 10, counts
            if not sanitised(build):
                assert resident_kb(d.pid) - before < 3000
