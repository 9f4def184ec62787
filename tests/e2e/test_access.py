# SPDX-License-Identifier: MulanPSL-2.0
"""Requests belong to a user: what one user's calls do to the processes of another, by every way in.

Alice and Bob have jobs on the same node, whose daemon is root's. Each reaches his own; root reaches
all; who cannot be known reaches nothing.
"""

import contextlib
import http.client
import json
import os
import pathlib
import select
import signal
import socket
import ssl
import subprocess

import fabric_client as fc
import pytest
import rpc_client
from capabilities import lacks
from daemon import Daemon, need_namespaces
from rpc_client import frame
from test_top import report
from waiting import pause, wait_until

NPU_TRACE = "ACTIVITIES_LOG_FILE=/tmp/none\nPROFILE_START_STEP=-1\nACTIVITIES_ITERATIONS=1"
MONITOR = "NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false"


class Job:
    """A process of that user with a framework that registers, reports and polls."""

    def __init__(self, d, user):
        self.read, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                os.close(self.read)
                user.become()
                self.poll(d.ipc_dir / "dynolog", write)
            finally:
                os._exit(1)
        os.close(write)
        self.data = b""

    def poll(self, server, write):
        with fc.Client(server) as c:
            c.context()
            c.send(fc.trace_status(fc.IDLE, 7))
            c.send(fc.monitor_status(fc.IDLE))
            c.request([os.getpid()])
            c.send(fc.datagram("sondeTop", json.dumps(report(rank=3)).encode()))
            while True:
                text = c.request([os.getpid()])
                os.write(write, json.dumps(text).encode() + b"\n")
                pause(0.01, "polls a hundred times a second")

    def configs(self):
        """What it was given since the last time: whatever is for it has come after two polls."""
        given, fresh = [c for c in self.lines() if c], 0
        while fresh < 2:
            select.select([self.read], [], [])
            polls = self.lines()
            fresh += len(polls)
            given += [c for c in polls if c]
        return given

    def lines(self):
        """The outcomes of polls that have been reported, without waiting."""
        while select.select([self.read], [], [], 0)[0]:
            self.data += os.read(self.read, 65536)
        *whole, self.data = self.data.split(b"\n")
        return list(map(json.loads, whole))

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.read)


@pytest.fixture
def node(users):
    """Makes a node: a daemon, and a job of Alice and of Bob that it knows."""
    with contextlib.ExitStack() as stack:

        def make(*flags, jobs=True, build=None, **kw):
            where = users.dir / "root"
            d = stack.enter_context(
                Daemon(build or users.build, where, "--control-socket", users.dir / "ctl",
                       "--http-socket", users.dir / "web", *flags, ipc=True, **kw)
            )  # fmt: skip
            d.ipc_dir.chmod(0o711)
            d.sockets = users.dir
            if jobs:
                d.alice, d.bob = Job(d, users.alice), Job(d, users.bob)
                stack.callback(d.alice.end)
                stack.callback(d.bob.end)
                known = lambda: d.call({"fn": "getTop"})["total"] == 2  # noqa: E731
                wait_until(known, lambda: f"both jobs: {d.log()}")
            return d

        yield make


class UnixHTTP(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def call_http(c, request):
    body = json.dumps({k: v for k, v in request.items() if k != "fn"})
    headers = {"Content-Type": "application/json"}
    c.request("POST", "/api/v1/" + request["fn"], body, headers)
    r = c.getresponse()
    reply = json.loads(r.read())
    return reply if r.status == 200 else {"status": f"refused: {r.status} {reply['error']}"}


WAYS = {
    "tcp": lambda d, q: rpc_client.call(d.port, q),
    "tcp6": lambda d, q: rpc_client.call(d.port, q, host="::1"),
    "unix": lambda d, q: rpc_client.call(d.sockets / "ctl", q),
    "http": lambda d, q: call_http(http.client.HTTPConnection("127.0.0.1", d.http_port), q),
    "http-unix": lambda d, q: call_http(UnixHTTP(d.sockets / "web"), q),
}


@pytest.fixture(params=WAYS)
def way(request):
    if request.param == "tcp6":
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
            return WAYS[request.param]
        lacks("ipv6", "no ::1")
    return WAYS[request.param]


def asks(user, way, d, fn, **more):
    d.port, d.http_port  # noqa: B018: looked up before there is another process
    return user.do(lambda: way(d, {"fn": fn, **more}))


def requests_for(pids):
    for config in NPU_TRACE, MONITOR, "ACTIVITIES_DURATION_MSECS=10\nACTIVITIES_LOG_FILE=/x":
        yield {"config": config, "pids": pids, "job_id": 0, "process_limit": 9}


def test_another_user_sees_nothing_and_changes_nothing(node, users, way):
    d = node()
    alice, bob = d.alice.pid, d.bob.pid
    listed = asks(users.bob, way, d, "listProcesses")
    assert [p["pid"] for p in listed["processes"]] == [bob] and listed["total"] == 1
    assert listed["notYours"] == 1
    assert asks(users.bob, way, d, "listProcesses", pids=[alice])["processes"] == []
    assert "no process" in asks(users.bob, way, d, "getProcess", pid=alice)["status"]
    top = asks(users.bob, way, d, "getTop")
    assert [p["pid"] for p in top["processes"]] == [bob] and top["registered"] == 1
    assert asks(users.bob, way, d, "getTop", pids=[alice])["known"] == 0
    for q in requests_for([alice]):
        why = asks(users.bob, way, d, "explainRequest", **q)
        assert why["matched"] == [] and [p["pid"] for p in why["processes"]] == [bob]
        reply = asks(users.bob, way, d, "setKinetOnDemandRequest", **q)
        assert not reply.get("activityProfilersTriggered"), reply
    # a request of Alice's own that waits is neither taken back nor seen
    os.kill(alice, signal.SIGSTOP)
    (q, *_) = requests_for([alice])
    sent = asks(users.alice, way, d, "setKinetOnDemandRequest", **q)
    assert sent["activityProfilersTriggered"] == [alice] and "notYours" not in sent
    stopped = asks(users.bob, way, d, "stopTrace", pids=[0], job_id=0)
    assert stopped["processesMatched"] == [bob] and stopped["tracesDropped"] == []
    assert stopped["notYours"] == 1
    os.kill(alice, signal.SIGCONT)
    (config,) = d.alice.configs()
    assert NPU_TRACE.replace("\n", "") in config.replace("\n", "").replace(" ", "")


def test_all_of_a_job_are_the_callers_own(node, users, way):
    d = node()
    (_, q, _) = requests_for([0])
    reply = asks(users.bob, way, d, "setKinetOnDemandRequest", **q)
    assert reply["activityProfilersTriggered"] == [d.bob.pid] and reply["notYours"] == 1
    assert len(d.bob.configs()) == 1
    assert d.alice.configs() == []
    reply = asks(users.root, way, d, "setKinetOnDemandRequest", **q)
    both = sorted([d.alice.pid, d.bob.pid])
    assert sorted(reply["activityProfilersTriggered"]) == both and "notYours" not in reply
    listed = asks(users.root, way, d, "listProcesses")
    assert sorted(p["pid"] for p in listed["processes"]) == both and "notYours" not in listed


def test_the_state_of_others_is_not_shown(node, users):
    d = node()
    os.kill(d.bob.pid, signal.SIGKILL)
    wait_until(lambda: len(d.call({"fn": "listProcesses"})["processes"]) == 1)
    assert asks(users.bob, WAYS["tcp"], d, "getStatus") == {
        "current_step": -1, "npumonitor": "Uninitialized", "nputrace": "Uninitialized",
    }  # fmt: skip
    assert asks(users.alice, WAYS["tcp"], d, "getStatus")["current_step"] == 7


def test_counters_of_the_node_are_not_an_ordinary_users(node, users, way):
    d = node(jobs=False)
    for fn in "dcgmProfPause", "dcgmProfResume":
        reply = asks(users.bob, way, d, fn, duration_s=1)
        assert reply["status"].startswith("refused: ") and "--admin-group" in reply["status"]
        assert asks(users.root, way, d, fn, duration_s=1)["status"] in (True, False)


def commands(user, d):
    """The command lines by pid; None while one is not read yet that he may see."""
    rows = asks(user, WAYS["tcp"], d, "listProcesses")["processes"]
    own = {r["pid"]: r["command"] for r in rows}
    return own if all(r["command"] or r["uid"] != user.uid for r in rows) else None


def test_what_is_open_to_all_has_no_command_lines(node, users):
    d = node()
    for path in "/metrics", "/healthz":
        c = http.client.HTTPConnection("127.0.0.1", d.http_port)
        page = users.bob.do(lambda c=c, p=path: (c.request("GET", p), c.getresponse().read())[1])
        assert page and b"pytest" not in page and b"e2e" not in page
    (command,) = wait_until(lambda: commands(users.alice, d).values())
    assert "e2e" in command or "pytest" in command


def dyno(user, d, *words):
    return user.run(user.users.build / "bin/dyno", "--hostname", f"unix:{d.sockets}/ctl", *words)


def test_dyno_says_what_is_not_yours(node, users):
    d = node()
    ps = dyno(users.bob, d, "ps")
    assert ps.returncode == 0 and str(d.alice.pid) not in ps.stdout
    assert "1 process belongs to other users and is not listed" in ps.stderr
    trace = ["nputrace", "--log-file", users.bob.home, "--start-step", "-1", "--iterations", "1"]
    for words in ([*trace, "--pids", d.alice.pid], ["nputrace", "--stop", "--pids", d.alice.pid]):
        done = dyno(users.bob, d, *words)
        assert done.returncode == 1, done
        assert "to other users" in done.stderr and "--admin-group" in done.stderr
    done = dyno(users.bob, d, *trace)
    assert done.returncode == 0 and "1 more matches, but belongs to other users" in done.stderr
    done = dyno(users.bob, d, "dcgm-pause")
    assert done.returncode == 1 and "the daemon refuses it: " in done.stderr
    os.kill(d.bob.pid, signal.SIGKILL)
    wait_until(lambda: len(d.call({"fn": "listProcesses"})["processes"]) == 1)
    done = users.bob.run(users.build / "bin/sonde", "top", "--once", "--port", d.port)
    assert "No process of yours" in done.stdout + done.stderr, done


def wrapped(users, script):
    """A build directory whose daemon is started by this, as `"$@"`."""
    shadow = users.dir / "root" / "build"
    (shadow / "bin").mkdir(parents=True)
    program = shadow / "bin" / "sonde"
    program.write_text(f'#!/bin/sh\nset -- {users.build}/bin/sonde "$@"\n{script}\n')
    program.chmod(0o755)
    return shadow


def in_mounts(users, *mounts):
    need_namespaces("-m")
    mounts = " && ".join(mounts)
    return wrapped(users, f"exec unshare -m sh -c '{mounts} && exec \"$@\"' sh \"$@\"")


def test_members_of_the_admin_group(node, users):
    """By TCP those that the group lists, by a UNIX socket those whose process is in it."""
    group = users.dir / "root" / "group"
    group.write_text("root:x:0:\nwatchers:x:61500:alice\n")
    passwd = users.dir / "root" / "passwd"
    passwd.write_text(
        f"root:x:0:0::/root:/bin/sh\nalice:x:{users.alice.uid}:1::/:/bin/sh\n"
        f"carol:x:{users.bob.uid}:2::/:/bin/sh\n"
    )
    build = in_mounts(
        users, f"mount --bind {group} /etc/group", f"mount --bind {passwd} /etc/passwd"
    )
    d = node("--admin-group", "watchers", build=build)
    both = sorted([d.alice.pid, d.bob.pid])
    tcp, unix = WAYS["tcp"], WAYS["unix"]

    def pids(user, way, groups=()):
        q = {"fn": "listProcesses"}
        return sorted(p["pid"] for p in user.do(lambda: way(d, q), groups)["processes"])

    assert pids(users.alice, tcp) == both and pids(users.alice, unix) == both
    assert pids(users.bob, tcp) == pids(users.bob, unix) == [d.bob.pid]
    assert pids(users.bob, unix, groups=[61500]) == both
    (_, q, _) = requests_for([d.bob.pid])
    sent = asks(users.alice, tcp, d, "setKinetOnDemandRequest", **q)
    assert sent["activityProfilersTriggered"] == [d.bob.pid]
    group.write_text("root:x:0:\nwatchers:x:61500:carol\n")
    d.reload()
    wait_until(lambda: pids(users.bob, tcp) == both, "the members are read again")
    assert pids(users.alice, tcp) == [d.alice.pid]


def test_a_caller_who_left_is_not_root(node, users):
    """The kernel says 0, which is root, of a socket that its program has closed."""
    d = node()
    (q, *_) = requests_for([d.alice.pid])
    request = frame({"fn": "setKinetOnDemandRequest", **q})
    port = d.port

    def leave():
        for linger in None, b"\1\0\0\0\0\0\0\0":
            for _ in range(20):
                with socket.create_connection(("127.0.0.1", port)) as s:
                    s.sendall(request)
                    if linger:
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    d.process.send_signal(signal.SIGSTOP)
    try:
        users.bob.do(leave)
    finally:
        d.process.send_signal(signal.SIGCONT)
    rpc = wait_until(lambda: (r := d.call({"fn": "getDaemon"})["rpc"])["accepted"] >= 40 and r)
    assert rpc["refused"]["forbidden"] >= 20, rpc
    assert d.alice.configs() == []
    assert "not known which user this connection belongs to" in d.log()


@pytest.mark.parametrize("trust", [False, True])
def test_a_caller_from_elsewhere(node, users, tmp_path, trust):
    """Another network namespace is another machine: the owner of its sockets is nobody's here."""
    need_namespaces("-n")
    flags = ["--trust-local-users"] if trust else []
    with Daemon(users.build, tmp_path, "--bind", "0.0.0.0", *flags, namespace=True) as d:
        other = subprocess.Popen(["unshare", "-n", "sleep", "60"])
        try:
            inside = ["nsenter", "-t", str(other.pid), "-n", "--"]
            here = os.stat("/proc/self/ns/net").st_ino
            there = f"/proc/{other.pid}/ns/net"
            wait_until(lambda: os.stat(there).st_ino != here, "another namespace")
            made = d.run("sh", "-c", "ip link add out type veth peer name in netns "
                         f"{other.pid} && ip addr add 10.99.0.1/24 dev out && ip link set out up")  # fmt: skip
            assert made.returncode == 0, made
            subprocess.run([*inside, "sh", "-c", "ip addr add 10.99.0.2/24 dev in && "
                            "ip link set in up"], check=True)  # fmt: skip
            dyno = [*inside, users.build / "bin/dyno", "--hostname", "10.99.0.1", "--port", d.port]
            done = subprocess.run([*map(str, dyno), "status"], capture_output=True, text=True,
                                  timeout=60)  # fmt: skip
        finally:
            other.kill()
            other.wait()
        assert d.ctl("status").returncode == 0
    assert done.returncode == (0 if trust else 1), done
    if not trust:
        assert "not known which user" in done.stderr and "another machine" in done.stderr
        assert "callers from other machines are refused" in d.log()


def test_trusted_local_users_do_everything(node, users, way):
    d = node("--trust-local-users")
    assert "(--trust-local-users)" in d.log()
    (q, *_) = requests_for([d.alice.pid])
    reply = asks(users.bob, way, d, "setKinetOnDemandRequest", **q)
    assert reply["activityProfilersTriggered"] == [d.alice.pid]
    listed = lambda: asks(users.bob, way, d, "listProcesses")["processes"]  # noqa: E731
    wait_until(lambda: [bool(p["command"]) for p in listed()] == [True, True])


def test_command_lines_that_proc_hides_are_hidden(node, users):
    hide = "mount -t proc -o hidepid=2 proc /proc"
    build = in_mounts(users, hide)
    if subprocess.run(["unshare", "-m", *hide.split()], capture_output=True).returncode:
        lacks("mount", "/proc cannot be mounted")
    d = node("--trust-local-users", build=build)
    wait_until(lambda: all(p["command"] for p in d.call({"fn": "listProcesses"})["processes"]))
    seen = wait_until(lambda: commands(users.bob, d))
    assert seen[d.alice.pid] is None and seen[d.bob.pid]


@pytest.mark.needs("root")
def test_users_without_a_number_are_nobody(node, users):
    """In a namespace that knows root alone, all others are user 65534: no two can be told apart."""
    build = wrapped(users, 'exec unshare -U --map-root-user "$@"')
    d = node(build=build, jobs=False)
    for way in WAYS["tcp"], WAYS["unix"]:
        assert "has no number" in asks(users.bob, way, d, "listProcesses")["status"]
        assert asks(users.root, way, d, "listProcesses")["processes"] == []


# --- certificates ---


@pytest.fixture(scope="module")
def certs(build, tmp_path_factory):
    out = tmp_path_factory.mktemp("access") / "certs"
    words = ["certs", "--out", out, "--key-type", "ec", "--clients", "alice,watch,ops,other"]
    subprocess.run([build / "bin/sonde", *words, "localhost"], check=True, capture_output=True)
    return out


def as_named(d, certs, name, request):
    place = certs / f"client-{name}"
    context = ssl.create_default_context(cafile=place / "ca.crt")
    context.load_cert_chain(place / "client.crt", place / "client.key")
    return rpc_client.call(d.port, request, host="localhost", tls=context)


def write_access(path, text):
    path.write_text(text)
    path.chmod(0o600)


def test_certificates_have_the_rights_of_their_names(node, users, certs, tmp_path):
    access = tmp_path / "access"
    write_access(access, f"# who may do what\nalice user={users.alice.uid}\nwatch viewer\nops operator\n")
    d = node("--certs-dir", certs / "server-localhost", "--access-file", access, jobs=False)
    d.alice, d.bob = Job(d, users.alice), Job(d, users.bob)
    try:
        local = lambda: rpc_client.call(d.sockets / "ctl", {"fn": "getTop"})  # noqa: E731
        wait_until(lambda: local()["total"] == 2)
        both = sorted([d.alice.pid, d.bob.pid])
        q = {"fn": "setKinetOnDemandRequest", **next(requests_for([0]))}

        def pids(name):
            reply = as_named(d, certs, name, {"fn": "listProcesses"})
            return sorted(p["pid"] for p in reply["processes"])

        assert pids("alice") == [d.alice.pid] and pids("watch") == pids("ops") == both
        refused = as_named(d, certs, "other", {"fn": "listProcesses"})["status"]
        assert refused.startswith("refused: ") and "--access-file" in refused
        assert as_named(d, certs, "watch", q)["status"] == "refused: a viewer reads and changes nothing"
        assert as_named(d, certs, "alice", q)["activityProfilersTriggered"] == [d.alice.pid]
        assert len(d.alice.configs()) == 1 and d.bob.configs() == []
        assert sorted(as_named(d, certs, "ops", q)["processesMatched"]) == both
        # the sockets of this machine ask for no certificate, but for the user
        assert asks(users.bob, WAYS["unix"], d, "listProcesses")["total"] == 1
        # a change counts for connections that are open, and a bad file changes nothing
        write_access(access, "other operator\nalice nobody\n")
        d.reload()
        d.wait_log("not read again: .*line 2: 'nobody' is not operator")
        assert pids("watch") == both
        write_access(access, "other operator\n* viewer\n")
        d.reload()
        wait_until(lambda: "processes" in as_named(d, certs, "other", {"fn": "listProcesses"}))
        assert pids("alice") == both and "viewer" in as_named(d, certs, "ops", q)["status"]
    finally:
        d.alice.end()
        d.bob.end()


def test_without_a_file_a_certificate_may_do_everything(node, certs):
    d = node("--certs-dir", certs / "server-localhost", jobs=False)
    assert as_named(d, certs, "other", {"fn": "dcgmProfResume"})["status"] in (True, False)


@pytest.mark.parametrize("text, mode, words", [
    ("alice\n", 0o600, "line 1: expected the name of a certificate"),
    ("a viewer\na viewer\n", 0o600, "line 2: 'a' has line 1 already"),
    ("a user=nobody-knows-him\n", 0o600, "there is no user"),
    ("a operator\n", 0o666, "can be written by others"),
])  # fmt: skip
def test_a_bad_access_file_ends_the_daemon(build, tmp_path, text, mode, words):
    access = tmp_path / "access"
    access.write_text(text)
    access.chmod(mode)
    d = Daemon(build, tmp_path, "--access-file", access, wait=False)
    with d:
        assert d.process.wait(30) == 1
    assert words in d.log() and str(access) in d.log()


def test_a_group_that_does_not_exist_ends_the_daemon(build, tmp_path):
    with Daemon(build, tmp_path, "--admin-group", "no-such-group", wait=False) as d:
        assert d.process.wait(30) == 1
    assert "there is no group 'no-such-group'" in d.log()


def test_a_control_socket_is_one_daemons(build, tmp_path):
    path = pathlib.Path(f"/tmp/sonde-control-{os.getpid()}")
    try:
        with Daemon(build, tmp_path, "--control-socket", path) as d:
            assert path.stat().st_mode & 0o777 == 0o666
            with Daemon(build, tmp_path, "--control-socket", path, wait=False) as second:
                assert second.process.wait(30) == 1
            assert f"another daemon listens on '{path}'" in second.log()
            assert "version" in rpc_client.call(path, {"fn": "getVersion"})
            d.process.kill()
            d.process.wait()
        # what a killed one left is replaced
        with Daemon(build, tmp_path, "--control-socket", path):
            assert "version" in rpc_client.call(path, {"fn": "getVersion"})
        done = subprocess.run([build / "bin/dyno", "--hostname", f"unix:{path}", "status"],
                              capture_output=True, text=True, timeout=30)  # fmt: skip
        assert done.returncode == 1 and "--control-socket" in done.stderr
    finally:
        path.unlink(missing_ok=True)
