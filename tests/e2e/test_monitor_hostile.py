# SPDX-License-Identifier: MulanPSL-2.0
"""Daemons that do what none should, recorders that stand still, places where nothing can be made: a
monitored job goes on as if there were no monitor."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest
from capabilities import needs
from daemon import Daemon, need_namespaces
from fabric_client import HEADER, datagram
from fake_daemon import *  # noqa: F403
from monitored import Job, environment, state
from waiting import pause, wait_until

# --- orders ---


def test_strangers_give_no_orders(fake, run, tmp_path):
    p = run("train", 7)
    wait_until(lambda: fake.clients, "the job")
    name = fake.clients[-1][1]
    refused, end = 0, time.monotonic() + 2
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        while time.monotonic() < end:  # while it waits for an answer, and while it does not
            try:
                stranger.sendto(datagram("req", start(log=tmp_path / "no").encode()), name)
            except OSError:
                refused += 1
            pause(0.01, "the pace of the stranger")
    assert fake.states.get("npuMonitorStatus") == IDLE
    assert not (tmp_path / "no").exists()
    fake.order(start(log=tmp_path / "yes"), becomes=RUNNING)  # the daemon does
    assert finish(p)[0] == 0
    wait_until(lambda: rows(tmp_path / "yes"), "what was written")


def test_a_daemon_that_answers_late_or_twice(fake, run, tmp_path):
    p = run("train", 10)
    fake.delay, fake.times = 0.4, 3
    fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
    wait_until(lambda: rows(tmp_path / "out"), "what it does")
    fake.order(STOP, becomes=IDLE)
    fake.delay, fake.times = 0, 1
    fake.order(start(log=tmp_path / "more"), becomes=RUNNING)
    assert finish(p)[0] == 0
    wait_until(lambda: rows(tmp_path / "more"), "what was written")


GARBAGE = [
    b"\0" * 1000,
    b"\xff" * 16000,
    b"NPU_MONITOR_START=true\0\nNPU_MONITOR_STOP=false\n",
    start(duration=10**30).encode(),
    start(interval=2**64).encode(),
    start(log="x" * 5000).encode(),
    start(log="/dev/null/x").encode(),
    start(log="/proc/self/mem/x").encode(),
    start(kinds="Kernel," * 2000).encode(),
    trace("/proc/x").encode(),
    trace("/tmp/\0x", 2**31 - 1, 2**31 - 1).encode(),
    trace("/tmp", -5, 1).encode(),
    b"=" * 16384,
    b"\n" * 16384,
    b"a" * 60000,
]


def test_orders_that_are_none(fake, run, tmp_path):
    p = run("train", 10)
    for text in GARBAGE:
        fake.order(text)
    wait_until(lambda: fake.clients, "the job")
    peer = fake.clients[-1][1]
    for data in (b"", b"x", b"\0" * 39, HEADER.pack(2**63, b"req"), HEADER.pack(5, b"r" * 32)):
        fake.sock.sendto(data, peer)
    fake.order(start(log=tmp_path / "out", duration=999999999999), becomes=RUNNING)
    wait_until(lambda: rows(tmp_path / "out"), "what it does")
    fake.order(STOP, becomes=IDLE)
    assert finish(p)[0] == 0


def test_thousands_of_orders(fake, run, place, tmp_path):
    p = run("train", 110)
    look = lambda pid: [
        len(os.listdir(f"/proc/{pid}/fd")),
        pathlib.Path(f"/proc/{pid}/maps").read_text().count("\n"),
        len(os.listdir(f"/proc/{pid}/task")),
    ]

    def some(n):
        for i in range(n):
            fake.order(start(log=tmp_path / "out" if i % 10 == 0 else ""), becomes=RUNNING)
            fake.order(STOP, becomes=IDLE)

    some(10)
    [recorder] = recorders(place)
    before, theirs = look(p.pid), look(recorder)
    some(100)
    after = look(p.pid)
    assert all(b <= a + 4 for a, b in zip(before, after)), (before, after)
    after = look(recorder)
    assert all(b <= a + 8 for a, b in zip(theirs, after)), (theirs, after)
    assert p.poll() is None


# --- traces ---


def test_steps_of_many_threads(fake, run, tmp_path):
    p = run("steppers", 110)
    for i in range(4):
        log = tmp_path / f"t{i}"
        fake.order(trace(log, steps=1 + i % 2))
        wait_until(lambda log=log: traces(log), "the trace")
        wait_until(lambda: fake.states["npuTraceStatus"] == IDLE, "its end")
    assert p.poll() is None


def test_a_child_is_not_in_its_parents_trace(fake, run, tmp_path):
    p = run("child-steps", 4)
    wait_until(lambda: fake.clients, "the job")
    fake.order(trace(tmp_path / "parent", steps=10**6), becomes=RUNNING, kind="npuTraceStatus")
    pid = wait_until(lambda: {c[0] for c in fake.clients} - {p.pid}, "the child").pop()
    fake.order(trace(tmp_path / "child", steps=5), pid=pid)
    wait_until(lambda: traces(tmp_path / "child"), "its own trace")
    assert finish(p)[0] == 0


# --- the recorder ---


def test_a_recorder_that_stands_still(fake, run, place, tmp_path):
    """The job waits for it neither at a step nor, for long, at its end."""
    p = run("train", 3)
    fake.order(start("Kernel,AclAPI,RuntimeAPI", log=tmp_path / "out"), becomes=RUNNING)
    [recorder] = recorders(place)
    os.kill(recorder, signal.SIGSTOP)
    began = time.monotonic()
    status, out, err = finish(p)
    took = time.monotonic() - began
    os.kill(recorder, signal.SIGCONT)
    assert status == 0, err
    assert float(out.split()[-1]) < 1, out
    assert took < 3 + 6, took
    wait_until(lambda: not recorders(place), "it to finish")
    assert rows(tmp_path / "out")


# --- places ---


def test_not_asked_for_nothing_happens(build, fake, place, tmp_path):
    env = environment(build, fake, SONDE_MONITOR_DIR=place)
    del env["MSMONITOR_USE_DAEMON"]
    p = subprocess.Popen([build / "targets" / "monitor_life", "train", "3"], env=env, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)  # fmt: skip
    assert p.stdout.readline() == "ready\n"
    names = {t.joinpath("comm").read_text() for t in pathlib.Path(f"/proc/{p.pid}/task").iterdir()}
    assert "sonde-monitor\n" not in names
    p.communicate(timeout=30)
    assert not fake.told and not list(place.iterdir())


@pytest.mark.parametrize("limit", ["--fsize=0", "--fsize=100000", "--nofile=24", "--as=400000000"])
def test_small_limits(build, fake, run, tmp_path, limit):
    needs("prlimit")
    p = run("train", 4, wrap=("prlimit", limit))
    fake.order(start(log=tmp_path / "out"))
    status, out, err = finish(p)
    assert status == 0 and "longest" in out, (status, out, err)
    if "nothing can be recorded" not in err:
        wait_until(lambda: rows(tmp_path / "out"), "what was written")


def test_places_that_others_prepared(build, fake, run, place, tmp_path):
    """A link, a file, a directory that all may write to: nothing of ours is put there."""
    other = tmp_path / "other"
    other.mkdir()
    places = {k: tmp_path / k for k in ("link", "file", "open", "foreign", "none")}
    places["link"].symlink_to(other)
    places["file"].write_text("")
    places["open"].mkdir()
    places["open"].chmod(0o777)
    places["foreign"].mkdir(mode=0o700)
    os.chown(places["foreign"], 65534, 65534)
    places["none"] = pathlib.Path("/proc/none")
    for where in places.values():
        p = run("train", 3, env={"SONDE_MONITOR_DIR": where})
        fake.order(start(log=tmp_path / "out"))
        status, _, err = finish(p)
        assert status == 0 and f"no usable directory below '{where}'" in err, err
    assert not list(other.iterdir()) and not list(places["open"].iterdir())
    assert not list(places["foreign"].iterdir()) and places["file"].read_text() == ""


@pytest.fixture
def taken():
    """A directory of temporary files in which another user has made what would be ours."""
    needs("root")
    temp = pathlib.Path(tempfile.mkdtemp(prefix="sonde_tmp_"))
    (temp / f"sonde-monitor-{os.geteuid()}").mkdir()
    os.chown(temp / f"sonde-monitor-{os.geteuid()}", 65534, 65534)
    yield temp
    shutil.rmtree(temp)


def test_a_place_that_another_user_has_taken(fake, run, taken, tmp_path):
    """Another one is used, which goes with the job."""
    p = run("train", 2, env={"SONDE_MONITOR_DIR": "", "TMPDIR": taken})
    fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
    own = taken / f"sonde-monitor-{os.geteuid()}"
    [other] = set(taken.iterdir()) - {own}
    assert other.name.startswith(f"{own.name}.") and other.stat().st_mode & 0o022 == 0
    status, _, err = finish(p)
    assert status == 0 and f"'{own}' is not used, because another user has made it" in err, err
    assert str(other) in err
    wait_until(lambda: rows(tmp_path / "out"), "what was written")
    wait_until(lambda: not other.exists(), "its end")
    assert not list(own.iterdir())


def test_a_request_fails_where_no_place_is_left(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        with Job(build, d, tmp_path, env={"TMPDIR": "/proc/none"}):
            wait_until(lambda: state(d) == "Idle", "the job")
            for words in (
                ("npu-monitor", "--npu-monitor-start", "--mspti-activity-kind", "Kernel"),
                ("nputrace", "--start-step", -1, "--iterations", 2, "--log-file", tmp_path / "out"),
            ):
                r = d.ctl(*words)
                assert r.returncode == 3 and "no usable directory below" in r.stderr, r


def test_a_full_disk_and_room_again(fake, run, place, tmp_path):
    need_namespaces("-m")
    script = f'mount -t tmpfs -o size=100k none {place} && chmod 700 {place} && exec "$@"'
    p = run("train", 100, wrap=("unshare", "-m", "sh", "-c", script, "sh"))
    fake.order(start(log=tmp_path / "out"))
    pause(0.5, "it does not begin")
    assert fake.states["npuMonitorStatus"] == IDLE
    subprocess.run(["nsenter", "-t", str(p.pid), "-m", "mount", "-o", "remount,size=200m",
                    str(place)], check=True)  # fmt: skip
    fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
    wait_until(lambda: rows(tmp_path / "out"), "what it does")
    fake.order(STOP, becomes=IDLE)
    p.terminate()
    p.communicate()


OTHERS_DAEMON = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
from fabric_client import address, datagram
os.setuid(65534)
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(address(sys.argv[3]))
if os.fork():
    os._exit(0)
while True:
    _, peer = s.recvfrom(1 << 16)
    try:
        s.sendto(datagram("req", sys.argv[2].encode()), peer)
    except (OSError, TypeError):  # one that has ended; a recorder, which has no name
        pass
"""


@pytest.mark.parametrize("place", ["dynolog", "dir", "home"])
@pytest.mark.parametrize("trusted", [False, True])
def test_another_users_daemon(run, tmp_path, place, trusted):
    """A name is anybody's who takes it first: it is not obeyed unless one says so."""
    need_namespaces("-n")
    script = tmp_path / "daemon.py"
    script.write_text(OTHERS_DAEMON)
    here = pathlib.Path(__file__).parent
    open_to_all = pathlib.Path(tempfile.mkdtemp(prefix="sonde_ipc_"))
    open_to_all.chmod(0o1777)
    names = {"dir": f"{open_to_all}/dynolog", "home": f"{open_to_all}/dynolog.sock"}
    name = names.get(place, "@dynolog")
    words = f'{sys.executable} {script} {here} "$ORDER" {name} && exec "$@"'
    p = run(
        *("train", 1),
        wrap=("unshare", "-n", "sh", "-c", words, "sh"),
        env={
            "KINETO_IPC_SOCKET_DIR": open_to_all if place == "dir" else "",
            "HOME": open_to_all if place == "home" else "",
            "ORDER": start(log=tmp_path / "out"),
            **({"SONDE_DAEMON": name} if trusted else {}),
        },
        start_new_session=True,
    )
    try:
        out, err = p.stdout.read(15), ""
        assert p.wait(30) == 0, out
    finally:
        os.killpg(p.pid, signal.SIGKILL)
    err = p.communicate()[1]
    shutil.rmtree(open_to_all)
    if trusted:
        wait_until((tmp_path / "out").exists, err)
    assert (tmp_path / "out").exists() == trusted
    assert (f"the daemon '{name}' belongs to another user" in err) != trusted, err


def test_what_tells_activities(build):
    """MSPTI where there is an NPU's runtime, not where its library could be had only."""
    ask = (
        "import ctypes; f = ctypes.CDLL(None).sonde_monitor_source; f.restype = ctypes.c_char_p;"
        " print(f().decode())"
    )
    for more, name in (("", ""), (f":{build}/sim/libascendcl.so", "MSPTI")):
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(build / "sim"),
            "LD_PRELOAD": f"{build}/lib/libsonde_monitor.so{more}",
        }
        r = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True)
        assert r.stdout.strip() == name, r
