# SPDX-License-Identifier: MulanPSL-2.0
"""sonde certs: what lies where afterwards, and that nothing is lost by calling it again."""

import json
import stat
import subprocess

import pytest


@pytest.fixture
def certs(build, tmp_path):
    """Runs it with quick keys; gives the exit status and what was said."""

    def run(*words, status=0):
        r = subprocess.run(
            [build / "bin" / "sonde", "certs", "-o", tmp_path / "out", "--key-type", "ec", *words],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert r.returncode == status, r.stderr
        return r.stdout if status == 0 else r.stderr

    run.out = tmp_path / "out"
    return run


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def issued(certs):
    return [(i["set"], i["state"]) for i in json.loads(certs("--json"))]


def test_layout_and_modes(certs):
    text = certs("node1,node2=10.0.0.5", "fd00::1")
    out = certs.out
    for words in (
        f"{out}/ca",
        f"scp -p {out}/server-node1/* 'root@node1:/etc/sonde/certs/'",
        f"scp -p {out}/server-fd00__1/* 'root@[fd00::1]:/etc/sonde/certs/'",
        "sonde daemon --enable-ipc-monitor --certs-dir /etc/sonde/certs",
        f"sonde ctl --certs-dir {out}/client --hostname node1,node2,fd00::1 status",
    ):
        assert words in text
    sets = ["ca", "client", "server-fd00__1", "server-node1", "server-node2"]
    assert sorted(p.name for p in out.iterdir()) == sets
    for name in sets[2:]:
        assert sorted(p.name for p in (out / name).iterdir()) == [
            "ca.crl", "ca.crt", "server.crt", "server.key"]  # fmt: skip
    for p in [out, *out.rglob("*")]:
        assert stat.S_IMODE(p.stat().st_mode) == (0o700 if p.is_dir() else 0o600), p
    assert (out / "client/client.key").read_text().startswith("-----BEGIN PRIVATE KEY")
    hosts = {i["set"]: i["hosts"] for i in json.loads(certs("--json"))}
    assert hosts["server-node2"] == "node2,10.0.0.5,localhost,127.0.0.1,::1"


def test_more_hosts_later(certs):
    certs("node1")
    before = content(certs.out)
    assert "1 was there already and kept" in certs("node1,node2", "--clients", "alice")
    after = content(certs.out)
    assert {k: after[k] for k in before} == before
    assert {k.split("/")[0] for k in after} - {"ca"} == {
        "client", "client-alice", "server-node1", "server-node2"}  # fmt: skip


def test_renew_and_revoke(certs):
    certs("node1")
    before = content(certs.out)
    certs("--renew")
    after = content(certs.out)
    for name in "server-node1/server.key", "server-node1/server.crt", "client/client.key":
        assert after[name] != before[name]
    for name in "ca/ca.key", "ca/ca.crt":
        assert after[name] == before[name]
    assert "Revoked 2 certificates" in certs("--revoke", "node1")
    certs("--renew", "node1")
    assert sorted(issued(certs)) == [
        ("client", "valid"), ("client", "valid"), ("server-node1", "revoked"),
        ("server-node1", "revoked"), ("server-node1", "valid")]  # fmt: skip
    lists = {v for k, v in content(certs.out).items() if k.endswith("ca.crl")}
    assert len(lists) == 1
    assert "until" in certs()


def test_runs_that_were_interrupted(certs):
    """A renewal must not leave a key without its certificate, nor a revocation half known."""
    certs("a")
    out = certs.out
    files = ("server.key", "server.crt")
    before = [(out / "server-a" / f).read_bytes() for f in files]
    (out / "server-a" / "server.crt.new").mkdir()  # in the way
    assert "server.crt" in certs("--renew", "a", status=1)
    assert before == [(out / "server-a" / f).read_bytes() for f in files]
    (out / "server-a" / "server.crt.new").rmdir()
    certs("--renew", "a")
    after = [(out / "server-a" / f).read_bytes() for f in files]
    assert all(a != b for a, b in zip(after, before))
    assert not list(out.rglob("*.new"))

    old = (out / "client" / "ca.crl").read_bytes()
    certs("--revoke", "a")
    (out / "client" / "ca.crl").write_bytes(old)
    assert "revoked before" in certs("--revoke", "a")
    assert (out / "client" / "ca.crl").read_bytes() == (out / "ca" / "ca.crl").read_bytes() != old


def test_what_is_refused(certs):
    assert "name the hosts" in certs(status=1)
    assert "there is no CA" in certs("--revoke", "a", status=1)
    assert not certs.out.exists()
    assert "is not a host" in certs("a/b", status=2)
    assert "is not a name" in certs("--clients", "a/b", status=2)
    assert "goes alone" in certs("--revoke", "a", "b", status=2)
    assert "1 to 36500" in certs("--days", "0", "a", status=2)
    certs("a")
    assert "nothing was issued for 'b'; there are: client, server-a" in certs(
        "--revoke", "b", status=1
    )
    certs.out.chmod(0o777)
    assert "chmod 700" in certs("b", status=1)


def test_existing_directories_are_left_alone(certs):
    (certs.out / "ca").mkdir(parents=True)
    certs.out.chmod(0o755)
    (certs.out / "ca" / "ca.key").write_text("precious")
    assert "has no 'ca.crt'" in certs("a", status=1)
    assert content(certs.out) == {"ca/ca.key": b"precious"}
