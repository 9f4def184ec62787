# SPDX-License-Identifier: MulanPSL-2.0
"""Many ask for TLS handshakes, which cost the daemon milliseconds each, and never answer: those who
have a certificate are served all the same. Keys are RSA, the dear ones."""

import contextlib
import http.client
import pathlib
import ssl
import subprocess
import sys

import pytest
from capabilities import needs
from daemon import Daemon
from users import Users

PEERS = pathlib.Path(__file__).parent / "tls_peers.py"
RATE, CALLS = 300, 8
DAEMON, CLIENTS = "10.77.0.1", "10.77.0.2"  # of the network between two namespaces
NETWORKS = ("10.77.0.{}/24", "fd77:0:0:1::{}/64", "fd77:0:0:2::{}/64")


@pytest.fixture(scope="module")
def certs(build, tmp_path_factory):
    out = tmp_path_factory.mktemp("certs") / "made"
    hosts = f"localhost={DAEMON}=fd77:0:0:1::1=fd77:0:0:2::1"
    words = [build / "bin" / "sonde", "certs", "--out", out, hosts]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return out


@contextlib.contextmanager
def flood(start, host, port, *sources, rate=RATE):
    words = [sys.executable, PEERS, "flood", host, port, rate, *sources]
    p = start(*map(str, words), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"up\n"
    try:
        yield
        assert p.poll() is None
    finally:
        p.stdin.close()
        p.wait(30)


def serve_all(run, host, port, certs, source):
    words = [sys.executable, PEERS, "call", host, port, certs / "client", CALLS, source]
    r = run(*map(str, words))
    assert r.stdout == f"{CALLS}\n", (r.stdout, r.stderr)


@pytest.fixture(scope="module")
def node(build, certs):
    """A daemon, and users who can read the certificate of the client."""
    users = Users(build)
    try:
        open_copy = users.dir / "certs"
        subprocess.run(["cp", "-r", certs, open_copy], check=True)
        subprocess.run(["chmod", "-R", "a+rX", open_copy], check=True)
        users.alice.takes(open_copy / "client", *(open_copy / "client").iterdir())
        subprocess.run(["chmod", "-R", "go-rwx", open_copy / "client"], check=True)
        flags = ["--certs-dir", certs / "server-localhost", "--bind", "127.0.0.1,::1"]
        with Daemon(build, users.dir, *flags) as d:
            yield users, d, open_copy
    finally:
        users.end()


def test_another_user_on_the_same_machine(node):
    users, d, certs = node
    addresses = [f"127.0.0.{i}" for i in range(2, 20)]
    with flood(users.bob.popen, "127.0.0.1", d.port, *addresses):
        serve_all(users.alice.run, "127.0.0.1", d.port, certs, "127.0.0.1")
        serve_all(users.alice.run, "::1", d.port, certs, "::1")


def test_the_same_user_makes_progress(node):
    """Nobody can tell the two apart; the command tries again where it was not taken in."""
    users, d, certs = node
    words = ["ctl", "--port", d.port, "--certs-dir", certs / "client", "--hostname", "127.0.0.1"]
    with flood(users.alice.popen, "127.0.0.1", d.port, "127.0.0.1"):
        calls = [users.alice.run(users.build / "bin/sonde", *words, "version") for _ in range(CALLS)]
    assert sum(r.returncode == 0 for r in calls) >= CALLS // 4, calls


def test_the_page_beside_a_flood(node):
    users, d, certs = node
    context = ssl.create_default_context(cafile=certs / "ca/ca.crt")
    with flood(users.bob.popen, "127.0.0.1", d.http_port, "127.0.0.1"):
        for _ in range(CALLS):
            c = http.client.HTTPSConnection("localhost", d.http_port, timeout=3, context=context)
            c.request("GET", "/healthz")
            assert c.getresponse().read() == b"ok\n"
            c.close()


def test_peers_that_send_nothing(node):
    """More than there are places: they go before those who speak."""
    users, d, certs = node

    def hold():
        import socket

        held = [socket.create_connection(("127.0.0.1", d.port), 5) for _ in range(400)]
        serve_all(users.alice.run, "127.0.0.1", d.port, certs, "127.0.0.1")
        return len(held)

    assert users.root.do(hold) == 400


@pytest.fixture
def network(build, certs, tmp_path):
    """A daemon in a network namespace, and another namespace with addresses of peers."""
    needs("root")
    flags = ["--certs-dir", certs / "server-localhost"]
    with Daemon(build, tmp_path, *flags, namespace=True) as d:
        words = ["unshare", "-n", "sh", "-c", "echo up; exec sleep 600"]
        peers = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        try:
            assert peers.stdout.readline() == b"up\n"
            inside = ["nsenter", "-t", str(peers.pid), "-n", "--"]
            link = f"ip link add v0 type veth peer name v1 netns {peers.pid}"
            assert d.run(*link.split()).returncode == 0
            for net in NETWORKS:
                d.run("ip", "address", "add", net.format(1), "dev", "v0", *nodad(net))
                for i in range(2, 12):
                    words = ["ip", "address", "add", net.format(i), "dev", "v1", *nodad(net)]
                    subprocess.run([*inside, *words], check=True)
            assert d.run("ip", "link", "set", "v0", "up").returncode == 0
            subprocess.run([*inside, "ip", "link", "set", "v1", "up"], check=True)
            yield d, inside
        finally:
            peers.kill()
            peers.wait()


def nodad(net):
    return ["nodad"] if ":" in net else []


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_an_address_elsewhere(network, certs, family):
    """Of IPv6 a whole network of 64 bits counts as one: it may be one machine."""
    d, inside = network
    host, own = (DAEMON, "10.77.0.3") if family == "IPv4" else ("fd77:0:0:1::1", "fd77:0:0:2::3")
    others = ["10.77.0.2"] if family == "IPv4" else [f"fd77:0:0:1::{i}" for i in range(2, 12)]
    target = host if family == "IPv4" else "fd77:0:0:2::1"

    def start(*words, **kw):
        return subprocess.Popen([*inside, *words], **kw)

    def run(*words):
        return subprocess.run([*inside, *words], capture_output=True, text=True, timeout=60)

    with flood(start, host, d.port, *others):
        serve_all(run, target, d.port, certs, own)
