# SPDX-License-Identifier: MulanPSL-2.0
"""The daemon with certificates: who gets in, who does not and is told why, and what it refuses to
start with. tests/unit/net/tls/test_tls.c has the cases that no tool can make."""

import fcntl
import os
import pty
import select
import signal
import ssl
import struct
import subprocess
import termios
import time

import pytest
import rpc_client
from capabilities import needs
from daemon import Daemon

PROMPT = "Please enter the certificate password: "
VERSION = {"fn": "getVersion"}


def sonde(build, *words):
    r = subprocess.run(
        [build / "bin" / "sonde", *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert r.returncode == 0, r.stderr
    return r.stdout


def certs(build, where, *words):
    return sonde(build, "certs", "-o", where, "--key-type", "ec", *words)


@pytest.fixture
def made(build, tmp_path):
    """A CA with a server, `client` and `alice`."""
    certs(build, tmp_path / "certs", "a.test")
    certs(build, tmp_path / "certs", "--clients", "alice")
    return tmp_path / "certs"


def context(folder, ca=None, show=True):
    c = ssl.create_default_context(cafile=ca or folder / "ca.crt")
    if show:
        c.load_cert_chain(folder / "client.crt", folder / "client.key")
    return c


def start(build, tmp_path, folder, bind="127.0.0.1", **kw):
    return Daemon(build, tmp_path, "--certs-dir", folder, "--bind", bind, **kw)


def served(d, folder):
    return "version" in d.call(VERSION, tls=context(folder))


def refused(d, tls):
    """The reason of the alert that ended the connection. In TLS 1.3 it comes with the first read."""
    with pytest.raises((ssl.SSLError, ConnectionError)) as e:
        with d.connect(tls=tls) as c:
            c.sock.recv(1)
    return getattr(e.value, "reason", None) or str(e.value)


def test_default_certificates(build, tmp_path):
    out = tmp_path / "certs"
    text = sonde(build, "certs", "-o", out, "a.test")
    assert f"--certs-dir {out}/client --hostname a.test status" in text
    with start(build, tmp_path, out / "server-a.test") as d:
        assert served(d, out / "client")
        tls = d.call({"fn": "getDaemon"}, tls=context(out / "client"))["tls"]
        assert tls["subject"] == "/CN=a.test" and tls["crl"] and tls["days_left"] > 800
        for host in "localhost", "127.0.0.1":
            r = d.ctl("--hostname", host, "--certs-dir", out / "client", "version")
            assert r.returncode == 0 and '"version"' in r.stdout, r.stderr
        needs("openssl")
        r = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{d.port}", "-verify_return_error",
             "-verify_ip", "127.0.0.1", "-CAfile", out / "client" / "ca.crt",
             "-cert", out / "client" / "client.crt", "-key", out / "client" / "client.key"],
            input=b"", capture_output=True, timeout=20,
        )  # fmt: skip
        assert b"Verification: OK" in r.stdout, r.stderr


def test_who_is_refused(build, tmp_path, made):
    certs(build, tmp_path / "others", "a.test")
    good, other = made / "client", tmp_path / "others" / "client"
    with start(build, tmp_path, made / "server-a.test") as d:
        assert "UNKNOWN_CA" in refused(d, context(other, ca=good / "ca.crt"))
        assert "CERTIFICATE_REQUIRED" in refused(d, context(good, show=False))
        with pytest.raises(ssl.SSLCertVerificationError):
            d.call(VERSION, tls=context(other))
        assert served(d, good)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_is_refused(build, tmp_path, made):
    c = context(made / "client")
    c.set_ciphers("ALL:@SECLEVEL=0")
    with start(build, tmp_path, made / "server-a.test") as d:
        for version in ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1:
            c.minimum_version = ssl.TLSVersion.TLSv1
            c.maximum_version = version
            assert "PROTOCOL_VERSION" in refused(d, c)
        c.maximum_version = ssl.TLSVersion.TLSv1_2
        assert "version" in d.call(VERSION, tls=c)


def test_plain_peers_of_a_tls_port(build, tmp_path, made):
    with start(build, tmp_path, made / "server-a.test") as d:
        with d.connect() as c:
            c.send(struct.pack("=i", 18) + b'{"fn":"getStatus"}')
            answer = b""
            try:
                while piece := c.sock.recv(100):
                    answer += piece
            except ConnectionResetError:
                pass
            assert not answer or answer[0] == 0x15  # at most an alert
        r = d.ctl("version")
        assert r.returncode != 0 and "TLS" in r.stderr
        assert served(d, made / "client")


def test_tls_client_of_a_plain_port(build, tmp_path, made):
    with Daemon(build, tmp_path) as d:
        r = d.ctl("--certs-dir", made / "client", "version")
        assert r.returncode != 0 and "without certificates" in r.stderr, r.stderr


def test_revoked_client(build, tmp_path, made):
    alice, good = made / "client-alice", made / "client"
    with start(build, tmp_path, made / "server-a.test") as d:
        assert served(d, alice)
        certs(build, made, "--revoke", "alice")
        assert served(d, alice)  # not told yet
        d.reload()
        d.wait_log("reloaded")
        assert "REVOKED" in refused(d, context(alice))
        assert served(d, good)
        r = d.ctl("--certs-dir", alice, "version")
        assert r.returncode != 0 and "is revoked by" in r.stderr
        (alice / "ca.crl").unlink()  # a client that does not know
        r = d.ctl("--certs-dir", alice, "version")
        assert r.returncode != 0 and "refused our certificate: it is revoked" in r.stderr


def test_client_revoked_while_it_is_connected(build, tmp_path):
    """A connection that goes on asking is not older than the list."""
    out = tmp_path / "made"
    run = [build / "bin" / "sonde", "certs", "--out", out, "--key-type", "ec"]
    subprocess.run([*run, "localhost", "--clients", "alice,eve"], check=True, capture_output=True)
    ask = {"fn": "getVersion"}
    with Daemon(build, tmp_path, "--certs-dir", out / "server-localhost") as d:
        alice, eve = (
            rpc_client.Connection(d.port, host="localhost", tls=context(out / f"client-{n}"))
            for n in ("alice", "eve")
        )
        assert alice.call(ask) == eve.call(ask)
        subprocess.run([*run, "--revoke", "eve"], check=True, capture_output=True)
        d.reload()
        d.wait_log("reloaded")
        assert alice.call(ask)["version"]
        eve.send(rpc_client.frame(ask))
        assert eve.is_closed()
        alice.close()
        eve.close()


def test_revoked_server(build, tmp_path, made):
    with start(build, tmp_path, made / "server-a.test") as d:
        certs(build, made, "--revoke", "a.test")
        r = d.ctl("--hostname", "127.0.0.1", "--certs-dir", made / "client", "version")
        assert r.returncode != 0 and "the daemon ('a.test') is revoked" in r.stderr, r.stderr
        d.reload()  # its own certificate is on the list: the old state stays
        d.wait_log("is revoked by")
        assert served(d, made / "client")
    assert "is revoked by" in fails(build, tmp_path, made / "server-a.test")


def test_wrong_host_name(build, tmp_path, made):
    with start(build, tmp_path, made / "server-a.test", bind="127.0.0.1,127.0.0.2") as d:
        r = d.ctl("--hostname", "127.0.0.2", "--certs-dir", made / "client", "version")
        assert r.returncode != 0
        assert "is not for '127.0.0.2' but for: a.test, localhost" in r.stderr, r.stderr


# --- what it does not start with ---


def fails(build, tmp_path, folder, **kw):
    d = start(build, tmp_path, folder, wait=False, **kw)
    try:
        assert d.process.wait(20) != 0
    finally:
        d.stop()
    return d.log()


def test_modes(build, tmp_path, made):
    server = made / "server-a.test"
    key = server / "server.key"
    key.chmod(0o644)
    assert f"chmod 600 '{key}'" in fails(build, tmp_path, server)
    key.chmod(0o600)
    server.chmod(0o770)
    assert f"chmod 700 '{server}'" in fails(build, tmp_path, server)
    server.chmod(0o700)
    with start(build, tmp_path, server) as d:
        assert served(d, made / "client")


ODD = {
    "weak key": (["rsa:2048"], "keyUsage=digitalSignature", "has 2048 bits; at least 3072"),
    "a CA": (["ec"], "basicConstraints=CA:TRUE\nkeyUsage=digitalSignature", "CA:TRUE"),
    "no usage": (["ec"], "subjectAltName=DNS:a.test", "no keyUsage extension"),
    "sha1": (["ec", "-sha1"], "keyUsage=digitalSignature", "too weak"),
    "expired": (["ec", "-days", "0"], "keyUsage=digitalSignature", "expired at"),
    "sha384": (["ec", "-sha384"], "keyUsage=digitalSignature", None),
}


def odd_certificate(folder, made, name, extensions, words):
    """Signs a certificate with the openssl command, in the place of folder/name.crt."""
    kind, *options = words
    key, csr = folder / f"{name}.key", folder / "csr"
    curve = ["-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ec" else []
    (folder / "ext").write_text(extensions + "\n")
    for words in (
        ["req", "-new", "-nodes", "-newkey", kind, *curve, "-subj", "/CN=odd",
         "-keyout", key, "-out", csr],
        ["x509", "-req", "-in", csr, "-CA", made / "ca/ca.crt", "-CAkey", made / "ca/ca.key",
         "-set_serial", "77", "-extfile", folder / "ext", "-out", folder / f"{name}.crt", *options],
    ):  # fmt: skip
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
    key.chmod(0o600)


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("case", ODD)
def test_odd_server_certificates(build, tmp_path, made, case):
    words, extensions, complaint = ODD[case]
    server = made / "server-a.test"
    odd_certificate(server, made, "server", extensions, words)
    if complaint:
        assert complaint in fails(build, tmp_path, server)
        return
    with start(build, tmp_path, server) as d:
        c = context(made / "client")
        c.check_hostname = False
        assert "version" in d.call(VERSION, tls=c)


@pytest.mark.needs("openssl")
def test_expired_and_weak_clients(build, tmp_path, made):
    with start(build, tmp_path, made / "server-a.test") as d:
        client = made / "client-alice"
        usage = "keyUsage=digitalSignature"
        odd_certificate(client, made, "client", usage, ["ec", "-days", "0"])
        assert "EXPIRED" in refused(d, context(client))
        odd_certificate(client, made, "client", usage, ["rsa:2048"])
        refused(d, context(client))
        odd_certificate(client, made, "client", usage, ["ec"])
        assert served(d, client)


# --- passwords ---


class Terminal:
    """Runs programs whose controlling terminal is ours."""

    def __init__(self):
        self.master, self.slave = pty.openpty()
        self.text = ""

    def take(self):
        """In the child: a session of its own, with this terminal."""
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def wait(self, words, seconds=30):
        end = time.monotonic() + seconds
        while words not in self.text:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"no '{words}' in: {self.text}"
            self.text += os.read(self.master, 4096).decode()

    def answer(self, words, text):
        self.wait(words)
        self.text = self.text.split(words, 1)[1]
        os.write(self.master, text.encode() + b"\n")

    def close(self):
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    t = Terminal()
    yield t
    t.close()


@pytest.fixture
def locked(build, tmp_path, terminal):
    """Like `made`, with passwords on the keys."""
    out = tmp_path / "locked"
    p = subprocess.Popen(
        [build / "bin" / "sonde", "certs", "-o", out, "--key-type", "ec", "--password", "a.test"],
        preexec_fn=terminal.take, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for _ in range(2):
        terminal.answer(PROMPT, "open sesame")
    assert "Made a certificate authority" in p.communicate(timeout=20)[0]
    assert "ENCRYPTED" in (out / "server-a.test" / "server.key").read_text()
    return out


def client_context(folder):
    c = ssl.create_default_context(cafile=folder / "ca.crt")
    c.load_cert_chain(folder / "client.crt", folder / "client.key", password="open sesame")
    return c


def test_password_is_asked_for(build, tmp_path, terminal, locked):
    d = start(build, tmp_path, locked / "server-a.test", wait=False, preexec_fn=terminal.take)
    with d:
        terminal.answer(PROMPT, "open sesame")
        d.wait_port()
        assert "version" in d.call(VERSION, tls=client_context(locked / "client"))
        # again without being asked
        d.reload()
        d.wait_log("reloaded")
        assert "version" in d.call(VERSION, tls=client_context(locked / "client"))
        assert "password" not in d.log()
        assert "sesame" not in terminal.text
    r = subprocess.Popen(
        [build / "bin" / "sonde", "ctl", "--certs-dir", locked / "client", "version"],
        preexec_fn=terminal.take, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    terminal.answer(PROMPT, "wrong")
    assert "wrong password" in r.communicate(timeout=20)[1]
    assert r.returncode == 1


def test_password_without_a_terminal(build, tmp_path, locked):
    server = locked / "server-a.test"
    log = fails(build, tmp_path, server, start_new_session=True)
    assert "there is no terminal to ask" in log
    (server / "key.pass").write_text("open sesame\n")
    (server / "key.pass").chmod(0o600)
    with start(build, tmp_path, server, start_new_session=True) as d:
        assert "version" in d.call(VERSION, tls=client_context(locked / "client"))


# --- new certificates while it runs ---


def serial(d, folder):
    with d.connect(tls=context(folder)) as c:
        return c.sock.getpeercert()["serialNumber"]


def test_reload(build, tmp_path, made):
    server, client = made / "server-a.test", made / "client"
    with start(build, tmp_path, server) as d:
        first = serial(d, client)
        with d.connect(tls=context(client)) as old:
            certs(build, made, "--renew", "a.test")
            assert serial(d, client) == first
            d.reload()
            d.wait_log("reloaded")
            second = serial(d, client)
            assert second != first
            assert "version" in old.call(VERSION)  # what was open stays open

            (server / "server.crt").write_text("damaged")
            d.reload()
            d.wait_log("does not hold a certificate")
            assert serial(d, client) == second
        assert d.process.poll() is None
        d.process.send_signal(signal.SIGTERM)
        assert d.process.wait(10) == 0
