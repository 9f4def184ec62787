# SPDX-License-Identifier: MulanPSL-2.0
"""Several hosts on one page through one daemon: what is shown of each host is what that host lets the
viewer see, by the viewer's own certificate. And the report of a trace, behind a link of the page."""

import contextlib
import http.client
import json
import pathlib
import random
import shutil
import socket
import subprocess

import axe
import pytest
from browser import Browser
from daemon import Daemon
from monitored import Job as Trained
from monitored import dyno, trains
from test_access import Job, as_named, write_access
from test_live_page import check_harmless, click, look
from waiting import wait_until


@pytest.fixture(scope="module")
def certs(build, tmp_path_factory):
    out = tmp_path_factory.mktemp("several") / "certs"
    words = ["certs", "--out", out, "--key-type", "ec", "--clients", "alice,bob,watch,other", "localhost"]
    subprocess.run([build / "bin/sonde", *words], check=True, capture_output=True)
    return out


def hand_out(user, certs, name):
    """A certificate that only this user can read."""
    place = user.home / name
    shutil.copytree(certs / f"client-{name}", place)
    user.takes(place, *place.iterdir())
    place.chmod(0o700)
    return place


@pytest.fixture
def node(users):
    with Daemon(users.build, users.dir / "root", ipc=True, user=users.root) as d:
        d.ipc_dir.chmod(0o711)
        assert d.call({"fn": "getVersion"})
        yield d


@pytest.fixture
def far(users, certs):
    """Another host: it wants certificates, and has a job of each user."""
    access = users.dir / "access"
    write_access(access, f"alice user={users.alice.uid}\nbob user={users.bob.uid}\nwatch viewer\n")
    flags = ["--certs-dir", certs / "server-localhost", "--access-file", access, "--control-socket", users.dir / "far"]
    with Daemon(users.build, users.dir / "root", *flags, ipc=True) as d, contextlib.ExitStack() as stack:
        d.ipc_dir.chmod(0o711)
        d.alice, d.bob = Job(d, users.alice), Job(d, users.bob)
        stack.callback(d.alice.end)
        stack.callback(d.bob.end)
        wait_until(lambda: as_named(d, certs, "watch", {"fn": "getTop"})["total"] == 2)
        yield d


def seen(node, user, hosts, certs_dir):
    """What the page of this node shows the user of other hosts, as soon as it knows."""

    def ask():
        r = user.do(lambda: node.call({"fn": "getHosts", "hosts": hosts, "certs_dir": str(certs_dir or "")}))
        return r if r.get("hosts") or r.get("why") or "status" in r else None

    return wait_until(ask, every=0.2)


def pids(answer, at=0):
    assert answer["hosts"][at]["ok"], answer
    return sorted(r["pid"] for r in answer["hosts"][at]["ranks"])


def helpers():
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (p / "cmdline").read_bytes().split(b"\0")
            if words[:3] == [b"sonde", b"ctl", b"watch"]:
                yield dict(x.split(":\t", 1) for x in (p / "status").read_text().splitlines() if ":\t" in x)


def test_each_viewer_sees_what_is_his_on_every_host(users, node, far, certs):
    alice, bob = hand_out(users.alice, certs, "alice"), hand_out(users.bob, certs, "bob")
    host = f"localhost:{far.port}"
    got = seen(node, users.alice, host, alice)
    assert pids(got) == [far.alice.pid] and pids(seen(node, users.bob, host, bob)) == [far.bob.pid]
    # it is asked with the rights of the one who looks, and none besides
    found = list(helpers())
    assert {s["Uid"].split()[0] for s in found} == {str(users.alice.uid), str(users.bob.uid)}
    assert all(int(s["CapEff"], 16) == 0 and s["NoNewPrivs"] == "1" and s["Groups"].strip() == "" for s in found)
    (row,) = got["hosts"][0]["ranks"]
    assert row["rank"] == 3 and row["busy"] == pytest.approx(0.6) and row["current_step"] == 7
    # nobody can use the certificate of somebody else, who has none sees nothing
    said = seen(node, users.bob, host, alice)
    assert not said.get("hosts") and f"'{alice}' belongs to user" in said["why"], said
    (without,) = seen(node, users.bob, host, None)["hosts"]
    assert without["ok"] is False and without["ranks"] == []
    # a host that is away delays no other
    both = seen(node, users.alice, f"localhost:1,{host}", alice)
    assert [h["ok"] for h in both["hosts"]] == [False, True] and pids(both, 1) == [far.alice.pid]
    wait_until(lambda: not list(helpers()), seconds=60, every=0.5)


def test_who_is_not_known_asks_nobody(users, node, far, certs):
    """A certificate from another machine is no user here, and what is no host is refused in words."""
    bad = lambda **q: node.call({"fn": "getHosts", **q})["status"]
    assert "name the hosts" in bad(hosts="") and "name the hosts" in bad(hosts="x" * 3000)
    assert "absolute path" in bad(hosts="a", certs_dir="certs")
    said = seen(node, users.alice, "--certs-dir=/etc", None)
    assert not said.get("hosts") and said["why"], said
    # through a program that somebody else runs here, a certificate with few rights stays what it is
    ask = {"fn": "getHosts", "hosts": "localhost", "certs_dir": "/root"}
    assert "not known which user of this machine" in as_named(far, certs, "alice", ask)["status"]
    assert "a viewer reads" in as_named(far, certs, "watch", ask)["status"]
    with Daemon(users.build, users.dir / "root", "--user", str(users.bob.uid), ipc=True, user=users.root) as d:
        assert "starts no programs" in d.call({"fn": "getHosts", "hosts": "localhost"})["status"]


def test_a_daemon_without_root_asks_for_its_own_user_alone(users, far, certs):
    alice = hand_out(users.alice, certs, "alice")
    with Daemon(users.build, users.alice.home, ipc=True, user=users.alice) as d:
        d.ipc_dir.chmod(0o711)
        assert pids(seen(d, users.alice, f"localhost:{far.port}", alice)) == [far.alice.pid]
        said = users.bob.do(lambda: d.call({"fn": "getHosts", "hosts": "localhost"}))
        assert "does not run as root" in said["status"] and not any(
            s["Uid"].split()[0] == str(users.bob.uid) for s in helpers())  # fmt: skip


def ordered(node, user, hosts, certs_dir, **order):
    """What the hosts have made of an order, as soon as it is known."""
    ask = {"fn": "orderHosts", "hosts": hosts, "certs_dir": str(certs_dir), **order}
    r = user.do(lambda: node.call(ask))
    if "order" not in r:
        return r
    state = lambda: user.do(lambda: node.call({"fn": "getOrder", "order": r["order"]}))
    wait_until(lambda: state()["state"] != "running", every=0.2)
    return {**state(), "order": r["order"]}


def test_orders_for_other_hosts_have_the_rights_of_who_gives_them(users, node, far, certs):
    alice, watch = hand_out(users.alice, certs, "alice"), hand_out(users.alice, certs, "watch")
    host, monitor = f"localhost:{far.port}", {"order": "monitor", "interval_s": 5, "kinds": "Kernel"}
    got = ordered(node, users.alice, host, alice, **monitor)
    (one,) = got["hosts"]
    assert one["state"] == "triggered" and one["triggered"] == 1, got  # of the two jobs there, her own
    # nobody else reads the answer, and a viewer there changes nothing
    said = users.bob.do(lambda: node.call({"fn": "getOrder", "order": got["order"]}))
    assert said["status"].startswith("failed: no such order")
    (one,) = ordered(node, users.alice, host, watch, **monitor)["hosts"]
    assert one["state"] != "triggered" and "viewer" in one["error"], one
    (one,) = ordered(node, users.alice, "localhost:1", alice, order="monitor-stop")["hosts"]
    assert not one["ok"] and one["error"]
    for wrong, why in [
        ({"order": "rm"}, "the order is"),
        ({"order": "nputrace", "path": "x"}, "absolute"),
        ({"order": "nputrace", "path": "/tmp/x\nPROFILE=1"}, "absolute"),
        ({"order": "monitor", "kinds": "x" * 300}, "too many"),
    ]:
        assert why in ordered(node, users.alice, host, alice, **wrong)["status"], wrong
    said = ordered(node, users.alice, host, alice, order="monitor", kinds="--help")
    assert not said.get("hosts") or said["hosts"][0]["state"] != "triggered"
    ask = {"fn": "orderHosts", "hosts": "localhost", "order": "monitor-stop"}
    assert "not known which user of this machine" in as_named(far, certs, "alice", ask)["status"]
    assert "a viewer reads" in as_named(far, certs, "watch", ask)["status"]


EVIL = "<img src=x onerror=document.title='evil'>"


def test_the_page_of_several_hosts(build, tmp_path, certs):
    """Two hosts beside the one whose page it is: ranks of both, and who does not answer."""
    env = {"LD_LIBRARY_PATH": str(build / "sim")}
    tls = ["--certs-dir", certs / "server-localhost"]
    with Daemon(build, tmp_path, ipc=True, env=env) as here, \
            Daemon(build, tmp_path, *tls, ipc=True, env=env) as one, \
            Daemon(build, tmp_path, *tls, ipc=True, env=env) as two, \
            Trained(build, one, tmp_path, rank=0), Trained(build, two, tmp_path, rank=1), \
            Browser(tmp_path) as b:  # fmt: skip
        b.daemon = here
        b.ask("Page.navigate", url=f"http://localhost:{here.http_port}/")
        b.until("document.querySelector('#live.on') !== null")
        look(b, 1400)
        names = f"localhost:{one.port},localhost:{two.port},localhost:1"
        b.js(f"document.getElementById('hosts-names').value = {json.dumps(names)};"
             f"document.getElementById('hosts-certs').value = {json.dumps(str(certs / 'client-watch'))}")  # fmt: skip
        click(b, "#hosts-form button")
        rows = "[...document.querySelectorAll('#hosts-ranks tr')].map((r) => [...r.cells].map((c) => c.textContent))"
        b.until(f"({rows}).length === 2")
        got = b.js(rows)
        assert [(r[0], r[1]) for r in got] == [(f"localhost:{one.port}", "0"), (f"localhost:{two.port}", "1")]
        b.until("document.getElementById('hosts-words').innerText.includes('in step')")
        words = b.js("document.getElementById('hosts-words').innerText")
        assert "localhost:1 does not answer: " in words and "2 of 3 hosts answer, with 2 processes" in words
        # a trace of both, from the form that asks this node otherwise
        assert b.js("document.getElementById('where-line').hidden") is False
        b.js("(() => { const w = document.getElementById('where'); w.value = 'hosts'; w.dispatchEvent(new Event('change')); })()")
        assert "hosts above" in b.js("document.getElementById('target').textContent")
        assert b.js("document.getElementById('snapshot-form').hidden")
        b.js(f"document.getElementById('t-path').value = {json.dumps(str(tmp_path / 'both'))}; 1")
        click(b, "#trace-form button")
        b.until("document.getElementById('result').innerText.includes('carried it out')", 100)
        words = b.js("document.getElementById('result').innerText")
        assert "2 of 3 hosts have carried it out, in 2 processes." in words, words
        assert words.count(f"{tmp_path / 'both'}/") == 2 and "localhost:1: " in words, words
        # a name of anybody is text
        b.js(f"showHosts({{hosts: [{{host: {json.dumps(EVIL)}, ok: true, total: 1, ranks: [{{pid: 1, rank: 5,"
             f" device: 0, state: {json.dumps(EVIL)}, current_step: 3, step_age_s: 99, busy: 0.5, kernels: 0.4,"
             f" communication: 0.1, copies: null, step_ns: 1e8, slowest: true}}]}}]}})")  # fmt: skip
        words = b.js("document.getElementById('hosts-words').innerText")
        assert f"rank 5 on {EVIL} is the slowest" in words and "1 of 1 has ended no step for long" in words
        b.js(f"(() => {{ const e = {json.dumps(EVIL)}; showOrder({{hosts: [{{host: e, ok: true, error: null, state: 'triggered',"
             " triggered: 1, note: e, wait: [{pid: 1, state: 'done', path: e}, {pid: 2, state: 'failed', why: e},"
             " {pid: 3, state: 'done', path: '/' + 'a'.repeat(200)}]}]}); })()")  # fmt: skip
        assert b.js("document.getElementById('result').innerText").count(EVIL) == 7
        look(b, 390)
        assert b.js("(({scrollWidth, clientWidth}) => scrollWidth <= clientWidth)(document.getElementById('result'))")
        assert b.js("document.documentElement.scrollWidth <= innerWidth") and axe.serious(b) == []
        click(b, "#hosts-stop")
        assert b.js("document.getElementById('hosts-table').hidden")
        check_harmless(b)


def fetch(d, path):
    c = http.client.HTTPConnection("127.0.0.1", d.http_port, timeout=30)
    with contextlib.closing(c):
        c.request("GET", path)
        r = c.getresponse()
        return r.status, dict(r.getheaders()), r.read()


def test_the_report_of_a_trace_is_a_link(build, tmp_path):
    """From the button that asks for a trace to the page that shows it."""
    env = {"LD_LIBRARY_PATH": str(build / "sim")}
    with Daemon(build, tmp_path, ipc=True, env=env) as d, Trained(build, d, tmp_path, rank=0), \
            Trained(build, d, tmp_path, rank=1), Browser(tmp_path) as b:  # fmt: skip
        b.daemon = d
        trains(d)
        b.ask("Page.navigate", url=f"http://localhost:{d.http_port}/")
        b.until("document.querySelectorAll('#processes tr').length === 2")
        b.js(f"document.getElementById('t-path').value = {json.dumps(str(tmp_path / 'trace'))}; 1")
        click(b, "#trace-form button")
        b.until("document.querySelector('#followed button') !== null", 60)
        assert "2 of 2 written" in b.js("document.getElementById('followed').innerText")
        click(b, "#followed button")
        href = b.until("document.querySelector('#followed a')?.href", 60)
        assert b.js("document.querySelector('#followed a').rel") == "noopener"
        check_harmless(b)
        path = href[href.index("/report/"):]
        status, headers, body = fetch(d, path)
        policy = headers["Content-Security-Policy"]
        assert status == 200 and headers["Content-Type"].startswith("text/html") and body.startswith(b"<!doctype html>")
        assert policy.startswith("sandbox allow-scripts;") and "default-src 'none'" in policy
        b.ask("Page.navigate", url=href)
        b.until("!!window.sondeReport")
        assert b.js("window.sondeReport.activities[0].time.rows.map((r) => r.rank)") == [0, 1]
        # whoever made the page up has no hold on the daemon's
        assert b.js("window.origin") == "null"
        b.js(f"fetch('http://localhost:{d.http_port}/api/v1/listProcesses').then(() => 'read', () => 'no')"
             ".then((r) => window.got = r); 1")  # fmt: skip
        assert b.until("window.got") == "no"
        number = path.rsplit("/", 1)[1]
        assert d.call({"fn": "getReport", "report": int(number)})["path"] == f"report/{number}"
        for wrong in ("1", "x", "", "-1", f"{number}0", "../metrics"):
            assert fetch(d, f"/report/{wrong}")[0] == 404, wrong
        for request in ("1", "", 7, None):
            assert d.call({"fn": "makeReport", "request": request})["status"].startswith("failed: ")
        # a later one takes the place of the one before
        dyno(build, d, "nputrace", "--start-step", "-1", "--iterations", "1", "--wait", "--log-file", tmp_path / "t2")


def rss(d):
    status = pathlib.Path(f"/proc/{d.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


NPU_TRACE = "PROFILE_START_STEP=-1\nACTIVITIES_DURATION_MSECS=100\nPROFILE_ACTIVITIES=CPU,NPU\nPROFILE_EXPORT_TYPE=Text"


def test_readers_of_a_large_report_share_its_bytes(build, tmp_path):
    """One user may hold all connections, and read nothing of what was asked for."""
    env = {"LD_LIBRARY_PATH": str(build / "sim")}
    with Daemon(build, tmp_path, ipc=True, env=env) as d, Trained(build, d, tmp_path, rank=0), \
            contextlib.ExitStack() as stack:  # fmt: skip
        trains(d)
        config = f"ACTIVITIES_LOG_FILE={tmp_path / 'trace'}\n{NPU_TRACE}"
        asked = d.call({"fn": "setKinetOnDemandRequest", "config": config, "job_id": 0, "pids": [0]})["requestTraceId"]
        (one,) = wait_until(lambda: d.call({"fn": "getAnswers", "request": asked})["written"])
        words = random.Random(1)
        lines = [";".join(f"{words.getrandbits(720):x}" for _ in range(3)) + " 1\n" for _ in range(44000)]
        pathlib.Path(one["path"]).with_name("names.collapsed").write_text("".join(lines))
        idle = rss(d)
        number = d.call({"fn": "makeReport", "request": asked})["report"]
        state = lambda: d.call({"fn": "getReport", "report": number})
        wait_until(lambda: state()["state"] != "running", every=0.2)
        assert state()["path"] == f"report/{number}", state()
        assert rss(d) - idle < 12, "MiB: the page lies in a file"
        before = rss(d)
        for _ in range(64):
            s = stack.enter_context(socket.socket())
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(10)
            s.connect(("127.0.0.1", d.http_port))
            s.sendall(f"GET /report/{number} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert s.recv(12) == b"HTTP/1.1 200"
        assert rss(d) - before < 64, "MiB, of 64 readers"
        # who has read half of it gets the rest when another report has taken its place
        assert d.call({"fn": "makeReport", "request": asked})["report"] != number
        head, begin = b"", b""
        while not begin:
            head, _, begin = (head + s.recv(65536)).partition(b"\r\n\r\n")
        want = int(head.split(b"Content-Length: ")[1].split(b"\r")[0]) - len(begin)
        assert want > 16 << 20
        while want > 0:
            begin = s.recv(1 << 20)
            want -= len(begin)
            assert begin
        assert want == 0 and begin.rstrip().endswith(b"</html>")


def test_reports_are_of_their_user(users, node):
    """What one user has traced is no report for another."""
    for user in (users.alice, users.bob):
        assert user.do(lambda: node.call({"fn": "getReport", "report": 5}))["status"].startswith("failed: ")
        assert user.do(lambda: node.call({"fn": "makeReport", "request": "5"}))["status"].startswith("failed: ")
