# SPDX-License-Identifier: MulanPSL-2.0
"""Peers of the control RPC that are broken, slow, or mean harm. Others are served throughout."""

import contextlib
import os
import pathlib
import resource
import socket
import ssl
import struct
import threading
import time

import pytest
from capabilities import lacks
from daemon import Daemon, sanitised
from rpc_client import Closed, Connection, frame
from waiting import pause, wait_until

RST = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def daemon(build, tmp_path_factory):
    with Daemon(build, tmp_path_factory.mktemp("rpc"), env={"SONDE_LOG": "rpc=debug"}) as d:
        yield d
        assert d.process.poll() is None, d.log()


def refused(d, reason):
    return d.call({"fn": "getDaemon"})["rpc"]["refused"][reason]


@contextlib.contextmanager
def counted(d, reason, n=1):
    """The daemon says at the end that it has refused n more for this reason."""
    before = refused(d, reason)
    yield
    what = lambda: f"{reason}: {refused(d, reason)} after {before}"
    wait_until(lambda: refused(d, reason) >= before + n, what, 20)


def nothing_but_closed(d, data):
    """Whoever sends this gets no byte and the end of the connection; others do not notice."""
    with d.connect() as c, d.connect() as other:
        other.call({"fn": "getVersion"})
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            c.send(data)
        assert "version" in other.call({"fn": "getVersion"})
        assert c.is_closed()


@pytest.mark.parametrize(
    "length", [0, -1, -(2**31), 2**31 - 1, 8192, 8193, 65536], ids=lambda n: f"length{n}"
)
def test_lengths_that_are_none(daemon, length):
    with counted(daemon, "bad_length"):
        nothing_but_closed(daemon, struct.pack("=i", length) + b'{"fn":"getVersion"}')


def nested(depth):
    """A request with so many levels, the outermost object counted."""
    return b'{"fn":"getVersion","x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


def test_ten_levels_are_taken_and_eleven_are_not(daemon):
    with daemon.connect() as c:
        c.send(frame(nested(10)))
        assert "version" in c.receive()
    with counted(daemon, "bad_json"):
        nothing_but_closed(daemon, frame(nested(11)))


BAD_JSON = {
    "nothing": b" ",
    "text": b"hello",
    "open": b'{"fn":"getVersion"',
    "twice": b'{"fn":"getVersion"}{"fn":"getVersion"}',
    "tail": b'{"fn":"getVersion"} x',
    "single": b"{'fn':'getVersion'}",
    "comma": b'{"fn":"getVersion",}',
    "array": b'["getVersion"]',
    "string": b'"getVersion"',
    "number": b"1",
    "null": b"null",
    "empty": b"{}",
    "no_fn": b'{"fun":"getVersion"}',
    "overflow": b'{"fn":"getVersion","x":1e999}',
    "minus_overflow": b'{"fn":"getVersion","x":-1e999}',
    "nan": b'{"fn":"getVersion","x":NaN}',
    "infinity": b'{"fn":"getVersion","x":Infinity}',
    "utf8": b'{"fn":"getVersion","x":"\xff\xfe"}',
    "utf8_cut": b'{"fn":"getVersion","x":"\xc3"}',
    "utf8_long": b'{"fn":"getVersion","x":"\xc0\xaf"}',
    "surrogate": b'{"fn":"getVersion","x":"\\ud800"}',
    "control": b'{"fn":"getVersion","x":"\x01"}',
    "nul": b'{"fn":"getVersion"}\x00',
    "deep": b"[" * 8000,
    "deep_objects": b'{"a":' * 1600,
    "quotes": b'"' * 8191,
    "backslash": b'{"fn":"\\',
    "digits": b'{"fn":"getVersion","x":1' + b"0" * 8000 + b"e9}",
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_json_that_is_none(daemon, name):
    with counted(daemon, "bad_json"):
        nothing_but_closed(daemon, frame(BAD_JSON[name]))


@pytest.mark.parametrize(
    "fn", ['"noSuchFunction"', '""', '"getversion"', "1", "null", "true", "[]", "{}", '"getVersion "']
)
def test_functions_that_are_none(daemon, fn):
    with counted(daemon, "unknown_function"):
        nothing_but_closed(daemon, frame('{"fn":%s}' % fn))


ODD = ["null", "true", "-1", "1.5", "1e300", "-9223372036854775808", '"x"', '"\\n="', "[]", "{}",
       "[null]", '["x"]', "[[1]]", "[1e300]", '[{"a":1}]', "18446744073709551615"]  # fmt: skip


@pytest.mark.parametrize(
    "fn", ["setKinetOnDemandRequest", "explainRequest", "listProcesses", "getProcess", "getMetrics"]
)
def test_wrong_types_are_answered(daemon, fn):
    """Every key with every odd value: an answer, always, and the connection stays."""
    good = {"config": '"X=1"', "pids": "[0]", "job_id": "0", "process_limit": "3", "offset": "0",
            "limit": "10", "pid": "1", "duration_s": "1"}  # fmt: skip
    with daemon.connect() as c:
        for key in good:
            for odd in ODD:
                pairs = ",".join(f'"{k}":{odd if k == key else v}' for k, v in good.items())
                c.send(frame('{"fn":"%s",%s}' % (fn, pairs)))
                assert isinstance(c.receive(), dict)


def test_good_requests_before_a_bad_one_are_answered(daemon):
    with daemon.connect() as c:
        c.send(frame({"fn": "getVersion"}) * 3 + frame("{}"))
        for _ in range(3):
            assert "version" in c.receive()
        assert c.is_closed()


def test_http_sent_to_this_port(daemon):
    with counted(daemon, "bad_length"):
        nothing_but_closed(daemon, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert "it speaks HTTP" in daemon.log()


def test_tls_sent_to_a_plain_port(daemon):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with counted(daemon, "bad_length"):
        with pytest.raises((ssl.SSLError, OSError)):
            Connection(daemon.port, tls=context)
    assert "it speaks TLS" in daemon.log()


def test_peers_that_leave_in_the_middle(daemon):
    data = frame({"fn": "getVersion"})
    with counted(daemon, "incomplete", 4):
        for n in (1, 4, 5, len(data) - 1):
            with daemon.connect() as c:
                c.send(data[:n])
                c.sock.shutdown(socket.SHUT_WR)
                assert c.is_closed()


def test_resets_at_every_moment(daemon):
    data = frame({"fn": "getDaemon"})
    for i in range(200):
        c = daemon.connect()
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
        if i % 4:
            c.send(data * (i % 4 * 20) + data[: i % 7])
        if i % 4 and i % 5 == 0:
            c.receive()
        c.close()
    assert "version" in daemon.call({"fn": "getVersion"})


def test_slow_peers_are_harmless(daemon):
    """Many connections that send a byte now and then: each is ended when its request is not whole in
    time, however busy it seems, and nobody else waits for them."""
    data = frame({"fn": "getVersion", "x": "y" * 100})
    slow = [daemon.connect() for _ in range(200)]
    end = time.monotonic() + 30
    alive, i, answered = set(range(len(slow))), 0, 0
    with counted(daemon, "slow_request", len(slow)):
        while alive:
            assert time.monotonic() < end
            for n in sorted(alive):
                try:
                    slow[n].send(data[i : i + 1])
                except OSError:
                    alive.discard(n)
            assert "version" in daemon.call({"fn": "getVersion"})
            answered += 1
            i += 1
            assert i < len(data) - 1, "they were not ended"
            pause(0.1, "the pace of the slow ones")
    assert answered > 3  # if they had waited for the slow ones, it would be one
    for c in slow:
        c.close()


def test_silent_and_half_open_peers_are_dropped(daemon):
    with counted(daemon, "idle", 100), counted(daemon, "slow_request", 50):
        silent = [daemon.connect() for _ in range(100)]
        half = [daemon.connect() for _ in range(50)]
        for c in half:
            c.send(b"\x10")
        assert "version" in daemon.call({"fn": "getVersion"})
        assert all(c.is_closed() for c in silent + half)
    for c in silent + half:
        c.close()


def rss_kb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def test_a_peer_that_does_not_read(daemon):
    """What it asks stays unread and unmade: the daemon's memory does not grow with it."""
    before = rss_kb(daemon.pid)
    peers = []
    for _ in range(20):
        c = Connection(daemon.port)
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.sock.setblocking(False)
        peers.append(c)
    data = frame({"fn": "getDaemon"}) * 3000
    sent = [0] * len(peers)
    with counted(daemon, "unread_reply", len(peers)):
        end = time.monotonic() + 1
        while time.monotonic() < end:
            for i, c in enumerate(peers):
                with contextlib.suppress(OSError):
                    sent[i] += c.sock.send(data[sent[i] :])
            assert "version" in daemon.call({"fn": "getVersion"})
        grown = rss_kb(daemon.pid) - before
    assert grown < 16 << 10 or sanitised(daemon.build), f"{grown} KB more"
    for c in peers:
        c.close()


def test_a_slow_reader_of_large_replies_gets_them_whole(daemon):
    n = 400
    with daemon.connect() as c:
        sender = threading.Thread(target=c.send, args=(frame({"fn": "getDaemon"}) * n,))
        sender.start()
        for i in range(n):
            assert "rpc" in c.receive()
            if i % 50 == 0:
                pause(0.05, "the pace of the reader")
        sender.join()


def test_more_connections_than_there_is_room_for(daemon):
    """The longest idle one makes room for the next; a request always finds a place."""
    most = daemon.call({"fn": "getDaemon"})["rpc"]["max_connections"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + 300
    if hard != resource.RLIM_INFINITY and hard < wanted + 100:
        lacks("open-files", f"at most {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 100), hard))
    flood = []
    try:
        with counted(daemon, "crowded", 200):
            for i in range(wanted):
                flood.append(daemon.connect())
                if i % 100 == 0:
                    assert "version" in daemon.call({"fn": "getVersion"})
            assert daemon.call({"fn": "getDaemon"})["rpc"]["connections"] <= most
    finally:
        for c in flood:
            c.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_no_files_left(build, tmp_path):
    """The daemon neither ends nor spins, and goes on as soon as there are files again."""

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    with Daemon(build, tmp_path, "--nohttp", preexec_fn=few_files) as d:
        flood = []
        for _ in range(60):
            flood.append(d.connect())
        before, start = cpu_s(d.pid), time.monotonic()
        pause(0.5, "its CPU time in this is measured")
        assert cpu_s(d.pid) - before < 0.5 * (time.monotonic() - start)
        for c in flood:
            c.close()
        assert "version" in d.call({"fn": "getVersion"})


def test_a_flood_of_connections(daemon):
    stop = threading.Event()

    def flood():
        while not stop.is_set():
            with contextlib.suppress(OSError):
                s = socket.create_connection(("127.0.0.1", daemon.port), 5)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
                s.close()

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for t in threads:
        t.start()
    try:
        for _ in range(50):
            assert "version" in daemon.call({"fn": "getVersion"})
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_random_bytes(daemon):
    import random

    rng = random.Random(4)
    for _ in range(200):
        with daemon.connect() as c:
            data = rng.randbytes(rng.choice([1, 3, 4, 5, 100, 9000]))
            if rng.random() < 0.5:
                data = frame(data[:8191])
            with contextlib.suppress(OSError):
                c.send(data)
                c.sock.shutdown(socket.SHUT_WR)
            with contextlib.suppress(Closed):
                assert not c.receive_bytes()
    assert "version" in daemon.call({"fn": "getVersion"})
