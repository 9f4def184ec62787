# SPDX-License-Identifier: MulanPSL-2.0
"""The HTTP port: what it answers, to whom, and that nobody can hold it up."""

import contextlib
import functools
import http.client
import json
import socket
import ssl
import subprocess

import pytest
from capabilities import needs
from daemon import Daemon

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def daemon(build, tmp_path_factory):
    with Daemon(build, tmp_path_factory.mktemp("http")) as d:
        yield d
        assert d.process.poll() is None, d.log()
        assert ask(d, "/healthz")[0] == 200


def ask(d, path, method="GET", body=None, headers=None, port=None, tls=None):
    """Status, headers and body of an answer."""
    port = port or d.http_port
    if tls:
        c = http.client.HTTPSConnection("localhost", port, timeout=20, context=tls)
    else:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(c):
        c.request(method, path, body, headers or {})
        r = c.getresponse()
        return r.status, r.headers, r.read()


def post(d, fn, body, headers=JSON, **kw):
    body = body if isinstance(body, (bytes, str)) else json.dumps(body)
    status, _, text = ask(d, "/api/v1/" + fn, "POST", body, headers, **kw)
    return status, json.loads(text)


def raw(d, data, shut=False):
    """Everything that comes back for these bytes."""
    with socket.create_connection(("127.0.0.1", d.http_port), 20) as s:
        s.sendall(data)
        if shut:
            s.shutdown(socket.SHUT_WR)
        got = b""
        with contextlib.suppress(ConnectionError):
            while True:
                part = s.recv(65536)
                if not part:
                    break
                got += part
        return got


def get(path="/healthz", more=""):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()


# --- what it answers ---


def test_routes(daemon):
    status, headers, body = ask(daemon, "/healthz")
    assert (status, body) == (200, b"ok\n")
    status, headers, body = ask(daemon, "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"# TYPE sonde_build_info gauge\n" in body and body.endswith(b"\n")
    for path, kind in (("/", "html"), ("/status.css", "css"), ("/status.js", "javascript")):
        status, headers, body = ask(daemon, path)
        assert status == 200 and kind in headers["Content-Type"] and len(body) > 1000
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
    for path in ("/nothing", "/../etc/passwd", "/api", "/api/v1", "/metrics/", "/status.css/"):
        status, headers, body = ask(daemon, path)
        assert status == 404 and "error" in json.loads(body), path


def test_head_has_no_body(daemon):
    got = raw(daemon, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"200 OK" in head and b"Content-Length: 0" not in head and not body


def test_api_is_the_rpc(daemon):
    for fn in ("getVersion", "getStatus"):
        status, _, body = ask(daemon, "/api/v1/" + fn)
        assert status == 200
        assert json.loads(body) == daemon.call({"fn": fn}) == post(daemon, fn, {})[1]
    status, _, body = ask(daemon, "/api/v1/getProcess?pid=12345678")
    assert json.loads(body) == daemon.call({"fn": "getProcess", "pid": 12345678})
    request = {"config": "A=1", "pids": [0], "job_id": 7}
    assert post(daemon, "setKinetOnDemandRequest", request) == (
        200,
        daemon.call({"fn": "setKinetOnDemandRequest", **request}),
    )
    # the name of the function is in the path, whatever the body says
    assert "version" in post(daemon, "getVersion", {"fn": "getStatus"})[1]


def test_calls_that_are_refused(daemon):
    status, headers, body = ask(daemon, "/api/v1/setKinetOnDemandRequest?config=A&pids=0")
    assert status == 405 and headers["Allow"] == "POST" and b"POST" in body
    assert post(daemon, "noSuchFunction", {})[0] == 404
    assert post(daemon, "getStatus", {}, {"Content-Type": "text/plain"})[0] == 415
    assert post(daemon, "getStatus", {}, {"Content-Type": "application/jsonp"})[0] == 415
    assert post(daemon, "getStatus", {}, {})[0] == 415
    assert post(daemon, "getStatus", "{", JSON)[0] == 400
    assert post(daemon, "getStatus", "[]", JSON)[0] == 400
    assert post(daemon, "getStatus", b'{"a":"\xff"}', JSON)[0] == 400
    assert post(daemon, "getStatus", '{"a":' * 12 + "1" + "}" * 12)[0] == 400
    assert post(daemon, "getStatus", '{"a":' * 3000 + "1" + "}" * 3000)[0] in (400, 413)
    assert post(daemon, "getStatus", '{"a":1e999}')[0] == 400
    assert post(daemon, "getStatus", {"a": "x" * 9000})[0] == 413
    for method, path in (("DELETE", "/"), ("POST", "/metrics"), ("OPTIONS", "/api/v1/getStatus")):
        status, headers, _ = ask(daemon, path, method)
        assert status == 405 and "GET" in headers["Allow"]


# --- pages of others ---


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/getStatus"])
def test_only_our_own_names(daemon, path):
    port = daemon.http_port
    good = ["localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "127.9.9.9"]
    bad = ["example.org", f"example.org:{port}", "localhost.example.org", "192.0.2.1", "", "[::1"]
    for host in good:
        assert ask(daemon, path, headers={"Host": host})[0] == 200, host
    for host in bad:
        assert ask(daemon, path, headers={"Host": host})[0] == 403, host
    got = raw(daemon, f"GET {path} HTTP/1.0\r\n\r\n".encode())
    assert b" 403 " in got


def test_other_origins(daemon):
    own = f"localhost:{daemon.http_port}"

    def status(**headers):
        headers = {"Host": own, **{k.replace("_", "-"): v for k, v in headers.items()}}
        return post(daemon, "getStatus", {}, {**JSON, **headers})[0]

    assert status(Origin=f"http://{own}") == 200
    assert status(Origin=f"http://{own}", Sec_Fetch_Site="same-origin") == 200
    for origin in ("http://example.org", "null", f"https://{own}", "http://localhost", "", own):
        assert status(Origin=origin) == 403, origin
    assert status(Sec_Fetch_Site="cross-site") == 403
    assert status(Sec_Fetch_Site="same-site") == 403


# --- hostile requests ---

BAD = {
    "no request line": (b"\r\n\r\n", 400),
    "no version": (b"GET /\r\n\r\n", 400),
    "no path": (b"GET  HTTP/1.1\r\n\r\n", 400),
    "a proxy's request": (b"GET http://example.org/ HTTP/1.1\r\n\r\n", 400),
    "too many words": (b"GET / a HTTP/1.1\r\n\r\n", 400),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HTTP/3.0": (b"GET / HTTP/3.0\r\n\r\n", 505),
    "NUL": (get("/\0x"), 400),
    "control character": (get("/\x01"), 400),
    "header without colon": (get(more="Nonsense\r\n"), 400),
    "blank before the colon": (get(more="Host : localhost\r\n"), 400),
    "continued line": (get(more="A: b\r\n c\r\n"), 400),
    "bare line feed": (get(more="A: b\nContent-Length: 5\r\n"), 400),
    "two hosts": (get(more="Host: localhost\r\n"), 400),
    "two lengths": (get(more="Content-Length: 1\r\nContent-Length: 2\r\n"), 400),
    "list of lengths": (get(more="Content-Length: 1, 1\r\n"), 400),
    "negative length": (get(more="Content-Length: -1\r\n"), 400),
    "signed length": (get(more="Content-Length: +1\r\n"), 400),
    "huge length": (get(more="Content-Length: 99999999999999999999999\r\n"), 413),
    "large length": (get(more="Content-Length: 8001\r\n"), 413),
    "chunked": (get(more="Transfer-Encoding: chunked\r\n"), 411),
    "both lengths": (get(more="Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 411),
    "long header": (get(more="A: " + "x" * 9000 + "\r\n"), 431),
    "endless header": (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000, 431),
    "endless line": (b"x" * 100000, 431),
}


@pytest.mark.parametrize("name", BAD)
def test_requests_that_are_none(daemon, name):
    data, status = BAD[name]
    got = raw(daemon, data)
    assert got.startswith(b"HTTP/1.1 %d " % status), got[:200]
    assert b"Connection: close" in got and got.count(b"\r\nDate: ") == 1


def test_bytes_of_other_protocols(daemon):
    hello = bytes.fromhex("160301020001000100") + b"\0" * 500 + b"\r\n\r\n"
    assert raw(daemon, hello).startswith(b"HTTP/1.1 400 ")
    assert raw(daemon, b"\x12\0\0\0" + b'{"fn":"getStatus"}', shut=True) == b""
    assert ask(daemon, "/healthz")[0] == 200


def test_pipelined_and_split(daemon):
    got = raw(daemon, get() + get("/none") + get(more="Connection: close\r\n") + get("/after"))
    assert [p[:3] for p in got.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]
    with socket.create_connection(("127.0.0.1", daemon.http_port), 20) as s:
        for byte in get():
            s.send(bytes([byte]))
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
        s.sendall(get())  # the connection stays
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_every_pipelined_request_is_answered_after_a_half_close(daemon):
    assert raw(daemon, get() * 5, shut=True).count(b"HTTP/1.1 200 ") == 5


def test_more_pipelined_requests_than_a_tls_record(build, tmp_path, certs):
    """The rest of a record that was read in part is not forgotten."""
    tls = ssl.create_default_context(cafile=certs / "client" / "ca.crt")
    with Daemon(build, tmp_path, "--certs-dir", certs / "server-localhost") as d:
        with socket.create_connection(("127.0.0.1", d.http_port), 20) as plain:
            with tls.wrap_socket(plain, server_hostname="localhost") as s:
                s.sendall(get("/healthz") * 900)
                s.settimeout(5)
                got = 0
                while got < 900:
                    got += s.recv(65536).count(b"HTTP/1.1 200 ")


def test_a_peer_that_sends_no_more_gets_its_answer(daemon):
    assert b"sonde_build_info" in raw(daemon, get("/metrics"), shut=True)


def test_expect_continue(daemon):
    body = b'{"pid":1}'
    head = (
        b"POST /api/v1/getProcess HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    with socket.create_connection(("127.0.0.1", daemon.http_port), 20) as s:
        s.sendall(head)
        assert s.recv(4096).startswith(b"HTTP/1.1 100 ")
        s.sendall(body)
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_connections_that_hold_places(daemon):
    """Silent ones, half requests, and one that does not read, more than there are places."""
    with contextlib.ExitStack() as stack:
        for i in range(200):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", daemon.http_port), 20))
            if i % 2:
                s.send(b"GET /metrics HTTP/1.1\r\nHost: lo")
            if i % 50 == 0:
                s.send(get("/status.js") * 100)
            if i % 20 == 0:
                assert ask(daemon, "/healthz")[0] == 200
                assert daemon.call({"fn": "getVersion"})
        assert ask(daemon, "/metrics")[0] == 200


# --- places ---


def test_ipv6(daemon):
    needs("ipv6")
    with socket.create_connection(("::1", daemon.http_port), 20) as s:
        s.sendall(get(more="Connection: close\r\n"))
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_port_in_use(build, tmp_path, daemon):
    with Daemon(build, tmp_path, "--http-port", daemon.http_port) as second:
        assert second.call({"fn": "getVersion"})
        assert "--http-port" in second.wait_log(r"no HTTP: .*").group(0)


def test_port_for_prometheus(build, tmp_path):
    flags = ["--use-prometheus", "--prometheus-port", "0", "--prometheus-address", "127.0.0.1"]
    with Daemon(build, tmp_path, *flags) as d:
        port = int(d.wait_log(r"prometheus port = (\d+)").group(1))
        assert port != d.http_port
        for host in ("localhost", "node7.example.org:8080"):
            status, _, body = ask(d, "/metrics", headers={"Host": host}, port=port)
            assert status == 200 and b"sonde_build_info" in body
        assert ask(d, "/healthz", port=port)[0] == 200
        for path in ("/", "/api/v1/getStatus", "/status.js"):
            assert ask(d, path, port=port)[0] == 404
        assert post(d, "dcgmProfResume", {}, port=port)[0] == 404


def test_no_http(build, tmp_path):
    with Daemon(build, tmp_path, "--nohttp") as d:
        assert d.call({"fn": "getVersion"})
        assert "http port" not in d.log()


# --- with certificates ---


@pytest.fixture(scope="module")
def certs(build, tmp_path_factory):
    out = tmp_path_factory.mktemp("certs") / "made"
    words = [build / "bin" / "sonde", "certs", "--out", out, "--key-type", "ec", "localhost"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return out


def test_https(build, tmp_path, certs):
    public = ssl.create_default_context(cafile=certs / "client" / "ca.crt")
    client = ssl.create_default_context(cafile=certs / "client" / "ca.crt")
    client.load_cert_chain(certs / "client" / "client.crt", certs / "client" / "client.key")
    with Daemon(build, tmp_path, "--certs-dir", certs / "server-localhost") as d:
        for tls in (public, client):
            status, _, body = ask(d, "/metrics", tls=tls)
            assert status == 200 and b"sonde_certificate_expiry_seconds" in body
            assert ask(d, "/healthz", tls=tls)[0] == 200
            assert ask(d, "/", tls=tls)[0] == 200
        status, _, body = ask(d, "/api/v1/getStatus", tls=public)
        assert status == 403 and b"certificate" in body
        assert post(d, "setKinetOnDemandRequest", {}, tls=public)[0] == 403
        status, _, body = ask(d, "/api/v1/getStatus", tls=client)
        assert status == 200 and b"nputrace" in body
        assert post(d, "getVersion", {}, tls=client)[0] == 200
        # the certificate says who we are: other names are no rebinding, other origins still are
        assert ask(d, "/healthz", headers={"Host": "node7"}, tls=client)[0] == 200
        headers = {**JSON, "Origin": "https://example.org"}
        assert post(d, "getStatus", {}, headers, tls=client)[0] == 403
        assert b"HTTP" not in raw(d, get())
        assert ask(d, "/healthz", tls=client)[0] == 200


def test_a_certificate_of_another_authority(build, tmp_path, certs):
    other = tmp_path / "other"
    words = [build / "bin" / "sonde", "certs", "--out", other, "--key-type", "ec", "localhost"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    tls = ssl.create_default_context(cafile=certs / "client" / "ca.crt")
    tls.load_cert_chain(other / "client" / "client.crt", other / "client" / "client.key")
    with Daemon(build, tmp_path, "--certs-dir", certs / "server-localhost") as d:
        try:
            status = ask(d, "/api/v1/getStatus", tls=tls)[0]
        except (ssl.SSLError, ConnectionError):
            status = 403
        assert status == 403


def test_a_client_revoked_while_it_is_connected(build, tmp_path):
    """A page that is open asks on and on over one connection: the reload counts for it too."""
    out = tmp_path / "made"
    words = [build / "bin" / "sonde", "certs", "--out", out, "--key-type", "ec"]
    run = functools.partial(subprocess.run, check=True, capture_output=True, timeout=60)
    run([*words, "localhost", "--clients", "alice,eve"])
    with Daemon(build, tmp_path, "--certs-dir", out / "server-localhost") as d:
        peers = {}
        for name in ("alice", "eve"):
            own = out / f"client-{name}"
            tls = ssl.create_default_context(cafile=own / "ca.crt")
            tls.load_cert_chain(own / "client.crt", own / "client.key")
            peers[name] = http.client.HTTPSConnection("localhost", d.http_port, context=tls)

        def status(name):
            peers[name].request("GET", "/api/v1/getStatus")
            with peers[name].getresponse() as r:
                r.read()
                return r.status

        assert status("alice") == status("eve") == 200
        connected = {n: c.sock.getsockname() for n, c in peers.items()}
        run([*words, "--revoke", "eve"])
        d.reload()
        d.wait_log("reloaded")
        assert status("alice") == 200 and status("eve") == 403
        assert connected == {n: c.sock.getsockname() for n, c in peers.items()}
        for c in peers.values():
            c.close()
