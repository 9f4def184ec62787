# SPDX-License-Identifier: MulanPSL-2.0
"""The control RPC of the daemon, as command lines and scripts use it."""

import json
import socket
import struct
import threading
import time

import pytest
import rpc_client
from capabilities import has_ipv6, needs
from daemon import Daemon, free_port
from rpc_client import Connection, frame
from waiting import pause

FUNCTIONS = """getStatus getVersion setKinetOnDemandRequest dcgmProfPause dcgmProfResume
    listProcesses getProcess explainRequest getMetrics getDaemon getTime""".split()


@pytest.fixture(scope="module")
def daemon(build, tmp_path_factory):
    with Daemon(build, tmp_path_factory.mktemp("rpc")) as d:
        yield d


def test_status_of_a_daemon_that_nobody_talked_to(daemon):
    """The bytes of the documented vector, and of its answer: sorted keys, no blanks."""
    with daemon.connect() as c:
        c.send(b"\x12\x00\x00\x00" + b'{"fn":"getStatus"}')
        assert c.receive_bytes() == (
            b'{"current_step":-1,"npumonitor":"Uninitialized","nputrace":"Uninitialized"}'
        )


def test_every_function_answers_with_an_object(daemon):
    for fn in FUNCTIONS:
        assert isinstance(daemon.call({"fn": fn}), dict), fn


def test_version_is_that_of_the_program(daemon, build):
    version = daemon.call({"fn": "getVersion"})["version"]
    assert version in daemon.run(build / "bin" / "sonde", "--version").stdout


def test_the_daemon_describes_itself(daemon):
    calls = daemon.call({"fn": "getDaemon"})["rpc"]["calls"]
    d = daemon.call({"fn": "getDaemon"})
    assert d["pid"] == daemon.pid and d["hostname"] == socket.gethostname()
    assert 0 < d["uptime_s"] < 600 and d["tls"] is None
    assert d["rpc"]["port"] == daemon.port
    assert f"127.0.0.1:{daemon.port}" in d["rpc"]["addresses"]
    assert d["rpc"]["calls"] == calls + 1
    assert d["rpc"]["connections"] >= 1
    assert d["jobs"]["processes"] == 0


def test_time_is_of_the_real_clock(daemon):
    before = time.time_ns()
    t = daemon.call({"fn": "getTime"})["time_ns"]
    assert before <= t <= time.time_ns()


def test_pausing_counters_wants_a_duration(daemon):
    assert daemon.call({"fn": "dcgmProfPause"}) == {"status": "failed"}
    for odd in ("5", None, -1, 1e300, [], {}):
        assert daemon.call({"fn": "dcgmProfPause", "duration_s": odd}) == {"status": "failed"}
    assert isinstance(daemon.call({"fn": "dcgmProfPause", "duration_s": 1})["status"], bool)
    assert isinstance(daemon.call({"fn": "dcgmProfResume"})["status"], bool)


def test_requests_of_today_s_clients_start_with_a_newline_and_are_indented(daemon):
    assert "version" in rpc_client.call(daemon.port, '\n    {\n  "fn" : "getVersion"\n }\n ')


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_both_families(daemon, host):
    if host == "::1":
        needs("ipv6")
    assert "version" in daemon.call({"fn": "getVersion"}, host=host)


def test_several_requests_on_a_connection(daemon):
    with daemon.connect() as c:
        for _ in range(100):
            assert "version" in c.call({"fn": "getVersion"})


def test_pipelined_requests_are_answered_in_order(daemon):
    """More than fit into any buffer, with a large and a small one in turn."""
    n = 3000
    asked = ["getVersion" if i % 3 else "getTime" for i in range(n)]
    with daemon.connect() as c:
        sender = threading.Thread(
            target=c.send,
            args=(b"".join(frame({"fn": f, "padding": "x" * (i % 500)}) for i, f in enumerate(asked)),),
        )
        sender.start()
        for fn in asked:
            assert ("version" in c.receive()) == (fn == "getVersion")
        sender.join()


def test_length_and_body_in_any_pieces(daemon):
    data = frame({"fn": "getVersion"})
    with daemon.connect() as c:
        c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            c.send(data[i : i + 1])
            pause(0.001, "each arrives alone")
        assert "version" in c.receive()
        # and the end of one in the same piece as the beginning of the next
        c.send(data[:7])
        pause(0.01, "it arrives alone")
        c.send(data[7:] + data[:2])
        assert "version" in c.receive()
        c.send(data[2:])
        assert "version" in c.receive()


def test_a_client_that_half_closes_still_gets_its_replies(daemon):
    with daemon.connect() as c:
        c.send(frame({"fn": "getVersion"}) * 50)
        c.sock.shutdown(socket.SHUT_WR)
        for _ in range(50):
            assert "version" in c.receive()
        assert c.is_closed()


def test_the_longest_request(daemon):
    head = b'{"fn":"getVersion","x":"'
    body = head + b"x" * (8191 - len(head) - 2) + b'"}'
    assert len(body) == 8191
    with daemon.connect() as c:
        c.send(struct.pack("=i", len(body)) + body)
        assert "version" in c.receive()
        c.send(struct.pack("=i", 8192) + body + b" ")
        assert c.is_closed()


def test_numbers_of_64_bits_are_taken(daemon):
    """Job ids without a sign, as clients send them."""
    r = rpc_client.call(daemon.port, '{"fn":"getVersion","job_id":18446744073709551615}')
    assert "version" in r


def test_many_clients_at_once(daemon):
    failed = []

    def ask():
        try:
            for _ in range(20):
                assert "version" in daemon.call({"fn": "getVersion"})
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=ask) for _ in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


# --- where it listens ---


def own_address():
    """An address of this machine that is not loopback, or None."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("192.0.2.1", 9))
            address = s.getsockname()[0]
    except OSError:
        return None
    return None if address.startswith("127.") or address == "0.0.0.0" else address


def refused(address, port):
    try:
        socket.create_connection((address, port), 5).close()
        return False
    except OSError:
        return True


def test_without_certificates_only_this_machine_is_served(daemon):
    assert all(
        a.startswith(("127.0.0.1:", "[::1]:"))
        for a in daemon.call({"fn": "getDaemon"})["rpc"]["addresses"]
    )
    address = own_address()
    if address:
        assert refused(address, daemon.port)


def test_bind_to_given_addresses(build, tmp_path):
    with Daemon(build, tmp_path, "--bind", "127.0.0.5,127.0.0.6") as d:
        for host in ("127.0.0.5", "127.0.0.6"):
            assert "version" in rpc_client.call(d.port, {"fn": "getVersion"}, host=host)
        assert refused("127.0.0.1", d.port)
        assert "no certificates" not in d.log()


def test_bind_to_everything(build, tmp_path):
    with Daemon(build, tmp_path, "--bind", "::" if has_ipv6() else "0.0.0.0") as d:
        assert "there are no certificates" in d.log()
        assert "version" in rpc_client.call(d.port, {"fn": "getVersion"}, host="127.0.0.1")
        if has_ipv6():
            assert "version" in rpc_client.call(d.port, {"fn": "getVersion"}, host="::1")


@pytest.mark.needs("ipv6")
def test_bind_to_both_wildcards(build, tmp_path):
    with Daemon(build, tmp_path, "--bind", "0.0.0.0,::") as d:
        for host in ("127.0.0.1", "::1"):
            assert "version" in rpc_client.call(d.port, {"fn": "getVersion"}, host=host)


@pytest.mark.parametrize(
    "bind, words",
    [("192.0.2.77", "no address of this machine"), ("no.such.host.invalid", "cannot listen on")],
)
def test_an_address_that_cannot_be_had_is_an_error_with_words(build, tmp_path, bind, words):
    d = Daemon(build, tmp_path, "--bind", bind, wait=False)
    try:
        assert d.process.wait(60) not in (0, None)  # a resolver may be slow
        assert words in d.log() and "--bind" in d.log()
    finally:
        d.stop()


def test_a_port_that_is_taken(build, tmp_path, daemon):
    d = Daemon(build, tmp_path, "--port", daemon.port, wait=False)
    try:
        assert d.process.wait(20) not in (0, None)
        assert f"sonde, process {daemon.pid} has it" in d.log()
        assert f"sport = :{daemon.port}" in d.log() and "--port" in d.log()
    finally:
        d.stop()
    assert "version" in daemon.call({"fn": "getVersion"})


def test_the_port_can_be_had_again_at_once(build, tmp_path):
    port = free_port()
    with Daemon(build, tmp_path, "--port", port) as d:
        keep = d.connect()
        keep.call({"fn": "getVersion"})
    with Daemon(build, tmp_path, "--port", port) as d:
        assert d.port == port and "version" in d.call({"fn": "getVersion"})
    keep.close()


def test_what_was_asked_before_the_end_is_answered(build, tmp_path):
    with Daemon(build, tmp_path) as d:
        connections = [d.connect() for _ in range(20)]
        for c in connections:
            c.call({"fn": "getVersion"})
            c.send(frame({"fn": "getTime"}))
        d.process.terminate()
        for c in connections:
            assert "time_ns" in c.receive()
            c.close()
        assert d.process.wait(20) == 0


def test_replies_are_utf8_and_sorted(daemon):
    with daemon.connect() as c:
        c.send(frame({"fn": "getDaemon"}))
        text = c.receive_bytes().decode()
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    keys = list(json.loads(text))
    assert keys == sorted(keys) and ": " not in text.replace('": ', "")


def test_an_idle_connection_is_closed_and_counted(daemon):
    with Connection(daemon.port) as c:
        c.call({"fn": "getVersion"})
        assert c.is_closed()
    assert daemon.call({"fn": "getDaemon"})["rpc"]["refused"]["idle"] >= 1
