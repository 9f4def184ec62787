# SPDX-License-Identifier: MulanPSL-2.0
"""The daemon without root (--user): it does everything as before, and nothing else any more.

Any other test can be run against such a daemon as well: DAEMON_USER=61010 (daemon.py)."""

import contextlib
import ctypes
import errno
import os
import pathlib
import re
import signal
import ssl
import struct
import subprocess
import urllib.request

import pytest
import rpc_client
from capabilities import lacks
from daemon import Daemon
from monitored import state
from waiting import wait_until

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"
USER = 61010
FLAGS = ("--user", USER)
pytestmark = pytest.mark.needs("root")


def described(d, **kw):
    return d.call({"fn": "getDaemon"}, **kw)["sandbox"]


def status_of(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return dict(re.findall(r"^(\w+):[ \t]*(.*?)[ \t]*$", text, re.M))


def has_landlock():
    return ctypes.CDLL(None).syscall(444, None, 0, 1) > 0


# --- what it has ---


def test_what_it_keeps(build, users):
    with Daemon(build, users.dir, *FLAGS, ipc=True) as d:
        mine = described(d)
        assert mine["uid"] == USER and mine["capabilities"] == [] and mine["no_new_privs"]
        assert mine["seccomp"] and bool(mine["landlock"]) == has_landlock()
        assert str(d.ipc_dir) in mine["writes"]
        for word in ("without capabilities", "seccomp", f"process {mine['broker']} opens"):
            assert word in d.log()
        s, b = status_of(d.pid), status_of(mine["broker"])
        # the saved one signs datagrams, see sandbox.c
        assert s["Uid"].split() == [str(USER), str(USER), "0", str(USER)]
        assert s["Gid"].split() == [str(USER)] * 4 and s["Groups"] == ""
        assert {int(s[k], 16) for k in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb")} == {0}
        assert b["Uid"].split() == [str(USER)] * 4
        assert int(b["CapPrm"], 16) == 1 << 19 | 1 << 2  # SYS_PTRACE, DAC_READ_SEARCH
        for x in (s, b):
            assert x["NoNewPrivs"] == "1" and x["Seccomp"] == "2"
        # the broker has nothing of the daemon's but its own end of the socket
        opened = [os.readlink(p) for p in pathlib.Path(f"/proc/{mine['broker']}/fd").iterdir()]
        assert sorted(re.sub(r"\[.*", "", x) for x in opened) == ["/dev/null"] * 3 + ["socket:"]
        assert d.stop() == 0
    assert not pathlib.Path(f"/proc/{mine['broker']}").exists()


# --- what it cannot do ---

EPERM, EACCES = -errno.EPERM, -errno.EACCES
AT_FDCWD = -100
CREATE = os.O_CREAT | os.O_WRONLY
FORBIDDEN = [  # numbers of x86-64
    ("execve", EPERM, 59, "=/bin/true", 0, 0),
    ("fork", EPERM, 57),
    ("vfork", EPERM, 58),
    ("clone of a process", EPERM, 56, signal.SIGCHLD, 0),
    ("clone3", -errno.ENOSYS, 435, 0, 0),
    ("ptrace", EPERM, 101, 16, "BROKER"),
    ("memory of another", EPERM, 310, "BROKER", 0, 0, 0, 0, 0),
    ("descriptors of another", EPERM, 438, 0, 0, 0),
    ("/etc/shadow", EACCES, 257, AT_FDCWD, "=/etc/shadow", 0),
    ("environment of root", EACCES, 257, AT_FDCWD, "=/proc/1/environ", 0),
    ("becoming root", EPERM, 117, 0, 0, 0),
    ("effective root", EPERM, 113, -1, 0),
    ("capset", EPERM, 126, 0, 0),
    ("a signal", EPERM, 62, "BROKER", 15),
    ("packets", EPERM, 41, 17, 3, 0),
    ("mount", EPERM, 165, 0, 0, 0, 0, 0),
    ("namespaces", EPERM, 272, 0x10000000),
    ("bpf", EPERM, 321, 0, 0, 0),
    ("io_uring", EPERM, 425, 1, 0),
    ("limits", EPERM, 302, 0, 7, 1),
    ("chown", EPERM, 94, "=/etc/passwd", 0, 0),
]
OF_THE_BROKER = [
    ("execve", EPERM, 59, "=/bin/true", 0, 0),
    ("clone", EPERM, 56, signal.SIGCHLD, 0),
    ("writing", EPERM, 257, AT_FDCWD, "=/tmp/x", CREATE, 0o600),
    ("sockets", EPERM, 41, 1, 1, 0),
    ("ptrace", EPERM, 101, 16, 1),
    ("memory of another", EPERM, 310, 1, 0, 0, 0, 0, 0),
]


@pytest.mark.needs("x86-64")
def test_forbidden_calls_fail_inside(build, users):
    """The daemon itself makes the calls: somebody has taken it over."""
    common = users.root.mkdir("common", mode=0o1777)

    with Daemon(build, users.dir, *FLAGS, ipc=True) as d:
        broker = described(d)["broker"]

        def make(pid, *words):
            words = [broker if w == "BROKER" else w for w in words]
            r = subprocess.run([build / "targets" / "inject_call", *map(str, (pid, *words))],
                               capture_output=True, text=True, timeout=10)  # fmt: skip
            assert r.returncode == 0, r.stderr
            return int(r.stdout)

        assert make(d.pid, 39) == d.pid and make(d.pid, 102) == USER
        assert {w[0]: make(d.pid, *w[2:]) for w in FORBIDDEN} == {w[0]: w[1] for w in FORBIDDEN}
        if has_landlock():  # everybody may write there, and the daemon's user could
            path = f"={common}/file"
            assert make(d.pid, 257, AT_FDCWD, path, CREATE, 0o600) == EACCES
            assert make(d.pid, 257, AT_FDCWD, f"={d.ipc_dir}/file", CREATE, 0o600) == EACCES
            assert make(d.pid, 83, f"={common}/dir", 0o700) == EACCES
        assert not list(common.iterdir())
        of_broker = {w[0]: make(broker, *w[2:]) for w in OF_THE_BROKER}
        assert of_broker == {w[0]: w[1] for w in OF_THE_BROKER}
        # and all goes on
        assert described(d)["broker"] == broker
        assert d.stop() == 0, d.log()


# --- what it still does ---


def test_jobs_of_another_user(build, users):
    """Registered with rank and command, monitored, traced, shown by sonde top: bob's job."""
    with Daemon(build, users.dir, *FLAGS, ipc=True) as d:
        d.ipc_dir.chmod(0o1777)
        bob, out = users.bob, users.bob.mkdir("out")
        job = bob.popen(
            users.build / "bin/sonde", "monitor", "--mspti", users.build / "sim/libmspti.so", "--",
            users.build / "sim/simtrain", "--quiet", "--steps", 10**6, "--step-ms", 20,
            env={"KINETO_IPC_SOCKET_DIR": d.ipc_dir, "RANK": 5},
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_until(lambda: state(d) == "Idle", d.log)
        [p] = d.call({"fn": "listProcesses"})["processes"]
        # its environment is closed to the daemon: the broker has opened it
        assert p["rank"] == 5 and p["uid"] == bob.uid and "simtrain" in p["command"]
        assert p["rank_at_start"] is True

        dyno = lambda *words: d.run(build / "bin/dyno", "--port", d.port, *words)
        start = ("npu-monitor", "--npu-monitor-start", "--report-interval-s", 1)
        r = dyno(*start, "--mspti-activity-kind", "Kernel")
        assert r.returncode == 0, r.stdout + r.stderr
        wait_until(lambda: state(d) == "Running", d.log)  # it obeys, as if root had asked
        wait_until(lambda: d.call({"fn": "getTop"})["processes"], "the report")
        [p] = d.call({"fn": "listProcesses"})["processes"]
        assert p["rank"] == 5 and p["rank_at_start"] is False  # its recorder has looked
        r = d.run(build / "bin/sonde", "top", "--once", "--port", d.port)
        assert r.returncode == 0 and "1 process" in r.stdout, r.stdout + r.stderr
        assert dyno("npu-monitor", "--npu-monitor-stop").returncode == 0
        wait_until(lambda: state(d) == "Idle", d.log)
        r = dyno("nputrace", "--start-step", -1, "--iterations", 2, "--log-file", out)
        assert r.returncode == 0, r.stdout + r.stderr
        wait_until(lambda: list(out.iterdir()), r.stdout)
        assert list(out.iterdir())[0].stat().st_uid == bob.uid
        job.kill()
        assert "another user" not in job.communicate()[1]
        wait_until(lambda: not d.call({"fn": "listProcesses"})["processes"], "its end")


def test_metrics_and_their_files(build, users):
    """On the page of Prometheus and as files of TensorBoard, in a directory that root makes."""
    tb = users.root.home / "a" / "tb"
    fast = ("--kernel-monitor-reporting-interval-s", 1)
    with Daemon(build, users.dir, *FLAGS, "--metric-log-dir", tb, *fast) as d:
        wait_until((tb / "device_host" / "tfevents.pb").exists, d.log)
        assert tb.stat().st_uid == USER
        with urllib.request.urlopen(f"http://127.0.0.1:{d.http_port}/metrics", timeout=10) as r:
            assert "load_15m" in r.read().decode()
        assert str(tb) in described(d)["writes"]
        assert d.stop() == 0


@pytest.fixture
def certs(build, users):
    out = users.root.home / "certs"
    words = [build / "bin/sonde", "certs", "--out", out, "--key-type", "ec", "localhost"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return out


def test_certificates_and_log_after_sighup(build, users, certs):
    """Both are root's: the key can be read by nobody else, and the log was opened by root."""
    server, log = certs / "server-localhost", users.root.mkdir("log") / "daemon.log"
    os.chown(log.parent, USER, USER)  # as LogsDirectory= of the service manager does
    context = ssl.create_default_context(cafile=certs / "client" / "ca.crt")
    context.load_cert_chain(certs / "client" / "client.crt", certs / "client" / "client.key")
    files = ("--certs-dir", server, "--log-file", log, "--bind", "127.0.0.1")
    with Daemon(build, users.dir, *FLAGS, *files, wait=False) as d:
        d.log_path = log
        wait_until(log.exists)
        port = int(d.wait_log(r"control RPC listens on \S+:(\d+)").group(1))
        assert (server / "server.key").stat().st_mode & 0o777 == 0o600
        assert log.stat().st_uid == USER

        def serial():
            with contextlib.closing(rpc_client.Connection(port, tls=context)) as c:
                return c.sock.getpeercert()["serialNumber"]

        first = serial()
        more = subprocess.run(
            [build / "bin/sonde", "certs", "--out", certs, "--key-type", "ec", "--renew",
             "localhost"], capture_output=True, text=True, timeout=60)  # fmt: skip
        assert more.returncode == 0, more.stderr
        log.rename(log.with_suffix(".1"))
        d.reload()
        wait_until(lambda: log.exists() and "reloaded" in log.read_text(), d.log)
        assert "not loaded" not in log.read_text()
        wait_until(lambda: serial() != first, log.read_text)
        assert d.stop() == 0


def test_a_place_that_only_a_restart_opens(build, users):
    flags = users.root.home / "flags"
    flags.write_text("--nohttp\n")
    with Daemon(build, users.dir, *FLAGS, f"--flagfile={flags}") as d:
        if not described(d)["landlock"]:
            lacks("landlock", "the kernel has none")
        flags.write_text(f"--nohttp\n--metric-log-dir={users.dir}/tb\n")
        d.reload()
        d.wait_log("--metric-log-dir: '.*/tb' is not among the directories.*a restart is needed")
        assert d.stop() == 0


def test_it_goes_on_without_the_broker(build, users):
    with Daemon(build, users.dir, *FLAGS, ipc=True) as d:
        d.ipc_dir.chmod(0o1777)
        os.kill(described(d)["broker"], signal.SIGKILL)
        job = users.bob.popen(users.build / "sim/simclient", "--kineto", "--ranks", 1, "--steps", 0,
                              "--quiet", "--dir", d.ipc_dir)  # fmt: skip
        wait_until(lambda: d.call({"fn": "listProcesses"})["processes"], d.log)
        d.wait_log("the process that opens files for the daemon has ended")
        assert described(d)["broker"] is None
        job.kill()
        assert d.stop() == 0


# --- who may have it, and where ---

CAPABILITIES = dict(SETGID=6, SETUID=7, SETPCAP=8, DAC_READ_SEARCH=2, SYS_PTRACE=19, PERFMON=38)


def unit_capabilities():
    unit = (PACKAGING / "systemd" / "sonde-daemon.service").read_text()
    assert "--user=sonde" in unit
    return re.findall(r"CAP_(\w+)", re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M)[1])


def pod_capabilities():
    pod = (PACKAGING / "kubernetes" / "daemonset.yaml").read_text()
    assert "--user=65532" in pod and "drop: [ALL]" in pod
    return re.search(r"^ *add: \[(.*)\]$", pod, re.M)[1].split(", ")


def keep(*names):
    """What a child calls before it becomes the program: root with these capabilities alone."""
    kept = [CAPABILITIES[n] for n in names]

    def drop():
        libc = ctypes.CDLL(None)
        for number in set(range(64)) - set(kept):
            libc.prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP

    return drop


@pytest.mark.parametrize("names", [unit_capabilities, pod_capabilities])
def test_packaged_capabilities_are_enough(build, users, certs, names):
    """Those of the unit and of the DaemonSet: jobs of others have ranks, certificates are read."""
    server = certs / "server-localhost"
    context = ssl.create_default_context(cafile=certs / "client" / "ca.crt")
    context.load_cert_chain(certs / "client" / "client.crt", certs / "client" / "client.key")
    flags = (*FLAGS, "--certs-dir", server, "--bind", "127.0.0.1")
    with Daemon(build, users.dir, *flags, ipc=True, preexec_fn=keep(*names())) as d:
        d.ipc_dir.chmod(0o1777)
        users.bob.popen(users.build / "sim/simclient", "--kineto", "--ranks", 2, "--steps", 0,
                        "--quiet", "--dir", d.ipc_dir)  # fmt: skip
        ask = lambda: d.call({"fn": "listProcesses"}, tls=context)["processes"]
        wait_until(lambda: {p["rank"] for p in ask()} == {0, 1}, d.log)
        d.reload()
        d.wait_log("reloaded")
        assert "WARN" not in d.log().split("listening to processes", 1)[1], d.log()
        assert "not loaded" not in d.log()
        assert d.stop() == 0



def test_another_user_needs_root(build, users):
    sonde = users.build / "bin/sonde"
    r = users.bob.run(sonde, "daemon", "--user", "root", "--port", 0, "--nohttp")
    assert r.returncode == 1 and "only root can go on as another user: --user root" in r.stderr
    r = users.root.run(sonde, "daemon", "--user", "nobody-of-that-name", "--port", 0, "--nohttp")
    assert r.returncode == 1 and "there is no user 'nobody-of-that-name' for --user" in r.stderr


def test_a_sandbox_of_ones_own(build, users):
    """An ordinary user has it as well, for his own jobs."""
    log = users.bob.home / "log"
    p = users.bob.popen(
        users.build / "bin/sonde", "daemon", "--user", users.bob.uid, "--port", 0, "--nohttp",
        "--log-file", log, "--enable-ipc-monitor", "--ipc-dir-only", "--ipc-socket-dir",
        users.bob.mkdir("ipc"),
    )  # fmt: skip
    wait_until(lambda: log.exists() and "ready" in log.read_text(), "the daemon")
    assert status_of(p.pid)["Uid"].split() == [str(users.bob.uid)] * 4
    assert status_of(p.pid)["Seccomp"] == "2"
    users.bob.popen(users.build / "sim/simclient", "--kineto", "--ranks", 1, "--steps", 0,
                    "--quiet", "--dir", users.bob.home / "ipc")  # fmt: skip
    port = int(re.search(r"listens on \S+:(\d+)", log.read_text()).group(1))
    ranks = lambda: [
        x["rank"] for x in users.bob.do(
            lambda: rpc_client.call(port, {"fn": "listProcesses"})["processes"])
    ]  # fmt: skip
    wait_until(lambda: ranks() == [0], log.read_text)
    p.terminate()
    assert p.wait(20) == 0


def refuse(*numbers):
    """What a child calls before it becomes the program: a kernel without these system calls."""
    steps = [(0x20, 0, 0, 0)]  # load the number
    for n in numbers:
        steps += [(0x15, 0, 1, n), (0x06, 0, 0, 0x50000 | errno.ENOSYS)]
    steps += [(0x06, 0, 0, 0x7FFF0000)]
    code = b"".join(struct.pack("HBBI", *s) for s in steps)

    def install():
        libc = ctypes.CDLL(None, use_errno=True)
        buffer = ctypes.create_string_buffer(code)
        program = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(buffer))
        if libc.prctl(22, 2, program, 0, 0):  # PR_SET_SECCOMP
            raise OSError(ctypes.get_errno(), "seccomp")

    return install


@pytest.mark.needs("x86-64")
@pytest.mark.parametrize("missing", ["landlock", "seccomp"])
def test_an_older_kernel_is_named(build, users, missing):
    numbers = {"landlock": [444, 445, 446], "seccomp": [317]}[missing]
    with Daemon(build, users.dir, *FLAGS, ipc=True, preexec_fn=refuse(*numbers)) as d:
        mine = described(d)
        d.wait_log(f"(?i)WARN.*no {missing}")
        assert not mine[missing] and mine["no_new_privs"]
        # nothing of root is left where nothing could keep it from being used
        saved = "0" if missing == "landlock" else str(USER)
        assert status_of(d.pid)["Uid"].split()[2] == saved
        assert d.stop() == 0
