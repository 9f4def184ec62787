# SPDX-License-Identifier: MulanPSL-2.0
"""The control RPC through TLS: the same frames, and peers that make handshakes dear."""

import contextlib
import socket
import ssl
import subprocess
import threading
import time

import pytest
import rpc_client
from daemon import Daemon
from rpc_client import Connection, frame


@pytest.fixture(scope="module")
def certs(build, tmp_path_factory):
    out = tmp_path_factory.mktemp("certs") / "made"
    subprocess.run(
        [build / "bin" / "sonde", "certs", "--out", out, "--key-type", "ec", "localhost"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return out


@pytest.fixture(scope="module")
def daemon(build, tmp_path_factory, certs):
    flags = ["--certs-dir", certs / "server-localhost", "--bind", "127.0.0.1", "--nohttp"]
    env = {"SONDE_LOG": "rpc=debug"}
    with Daemon(build, tmp_path_factory.mktemp("rpc"), *flags, env=env) as d:
        yield d
        assert d.process.poll() is None, d.log()


@pytest.fixture(scope="module")
def tls(certs):
    context = ssl.create_default_context(cafile=certs / "client" / "ca.crt")
    context.load_cert_chain(certs / "client" / "client.crt", certs / "client" / "client.key")
    return context


def call(d, tls, fn="getVersion"):
    return rpc_client.call(d.port, {"fn": fn}, tls=tls)


def refused(d, tls, reason):
    return call(d, tls, "getDaemon")["rpc"]["refused"][reason]


def test_a_call(daemon, tls):
    assert "version" in call(daemon, tls)
    assert "days_left" in call(daemon, tls, "getDaemon")["tls"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_pipelined_requests_larger_than_a_record(daemon, certs, version):
    context = ssl.create_default_context(cafile=certs / "client" / "ca.crt")
    context.load_cert_chain(certs / "client" / "client.crt", certs / "client" / "client.key")
    context.minimum_version = context.maximum_version = version
    n = 200
    with Connection(daemon.port, tls=context) as c:
        data = b"".join(frame({"fn": "getTime", "x": "y" * (i * 37 % 3000)}) for i in range(n))
        for at in range(0, len(data), 30000):
            c.send(data[at : at + 30000])
        for _ in range(n):
            assert "time_ns" in c.receive()


def test_requests_in_small_pieces(daemon, tls):
    with Connection(daemon.port, tls=tls) as c:
        for _ in range(3):
            for byte in frame({"fn": "getVersion"}):
                c.send(bytes([byte]))
            assert "version" in c.receive()


def test_bad_requests_end_the_connection(daemon, tls):
    for data in (b"\0\0\0\0", frame("{}"), frame({"fn": "none"}), b"\xff\xff\xff\xff"):
        with Connection(daemon.port, tls=tls) as c:
            c.send(data)
            with contextlib.suppress(ssl.SSLError):
                assert c.is_closed()


def test_plain_text_sent_to_a_tls_port(daemon, tls):
    before = refused(daemon, tls, "handshake")
    with daemon.connect() as c:
        c.send(frame({"fn": "getVersion"}))
        # an alert of TLS may come, a reply must not
        with contextlib.suppress(ConnectionResetError):
            assert b"version" not in c.sock.recv(100)
    assert refused(daemon, tls, "handshake") > before


def test_peers_that_do_not_finish_the_handshake(daemon, tls):
    """More than there are places for handshakes: others are served, and all end in time."""
    start = time.monotonic()
    silent = [daemon.connect() for _ in range(150)]
    for i, c in enumerate(silent):
        if i % 2:
            with contextlib.suppress(OSError):
                c.send(b"\x16\x03\x01\x02\x00\x01"[: i % 6 + 1])
    assert "version" in call(daemon, tls)
    for c in silent:
        assert c.is_closed()
        c.close()
    assert time.monotonic() - start < 60
    counts = call(daemon, tls, "getDaemon")["rpc"]["refused"]
    assert counts["handshake"] + counts["crowded"] >= 150 and counts["handshake"] >= 50


def test_a_flood_of_handshakes_without_a_certificate(daemon, certs, tls):
    stop = threading.Event()
    tried = []

    def flood():
        context = ssl.create_default_context(cafile=certs / "client" / "ca.crt")
        while not stop.is_set():
            with contextlib.suppress(OSError, ssl.SSLError):
                with socket.create_connection(("127.0.0.1", daemon.port), 5) as s:
                    context.wrap_socket(s, server_hostname="127.0.0.1").recv(1)
            tried.append(1)

    threads = [threading.Thread(target=flood) for _ in range(4)]
    with Connection(daemon.port, tls=tls) as known:
        for t in threads:
            t.start()
        try:
            for _ in range(20):
                assert "version" in known.call({"fn": "getVersion"})
                assert "version" in call(daemon, tls)
        finally:
            stop.set()
            for t in threads:
                t.join()
    assert tried


def test_the_command_through_tls(daemon, certs):
    r = daemon.ctl("--certs-dir", certs / "client", "--hostname", "localhost", "version")
    assert r.returncode == 0, r.stderr
    r = daemon.ctl("--hostname", "localhost", "version")
    assert r.returncode != 0 and "--certs-dir" in r.stderr
