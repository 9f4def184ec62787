# SPDX-License-Identifier: MulanPSL-2.0
"""Processes that lie about themselves, and more of them than there are files: whoever is meant by
an order gets it, and nobody else."""

import contextlib
import os
import pathlib
import resource
import signal
import subprocess
import time

import fabric_client as fc
import pytest
from daemon import Daemon, need_namespaces
from test_fabric import Served, check_config, order, processes
from waiting import pause, wait_until

NPU_TRACE = "ACTIVITIES_LOG_FILE=/tmp/t\nPROFILE_START_STEP=-1"


@pytest.fixture
def daemon(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        d.ipc_dir.chmod(0o711)
        yield d


@contextlib.contextmanager
def child(work, user=None):
    """A process of that user that does work() and then waits for its end."""
    ready, told = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(ready)
            if user:
                user.become()
            work()
            os.write(told, b".")
            pause(60, "until it is killed")
        finally:
            os._exit(1)
    os.close(told)
    try:
        assert os.read(ready, 1) == b"."
        yield pid
    finally:
        os.close(ready)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_false_state_of_another_user_holds_up_nobody(daemon, users):
    server = daemon.ipc_dir / "dynolog"

    def lie():
        with fc.Client(server) as c:
            c.send(fc.monitor_status(fc.RUNNING))
            c.send(fc.trace_status(fc.RUNNING, 1, 1, 2))
            c.request([os.getpid()])

    with child(lie, users.bob), fc.Client(server) as c:
        c.request([os.getpid()])
        c.send(fc.trace_status(fc.IDLE))
        c.send(fc.monitor_status(fc.IDLE))
        wait_until(lambda: len(processes(daemon)) == 2, "both are there")
        assert daemon.call({"fn": "getStatus"})["npumonitor"] == "Running"
        reply = order(daemon, NPU_TRACE)
        assert reply["commandStatus"] == "effective"
        assert reply["activityProfilersTriggered"] == [os.getpid()]
        check_config(c.request([os.getpid()]), NPU_TRACE)


def ancestors():
    found, pid = set(), os.getppid()
    while pid:
        found.add(pid)
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
    return found


def test_a_false_ancestor_does_not_take_the_place_of_another_user(daemon, users):
    """It would come first, too: the order is that of the pids."""
    server = daemon.ipc_dir / "dynolog"
    victim, true = os.getpid(), ancestors()
    false = [n for n in range(2, victim) if n not in true][:2]
    near = [n for n in (victim + 1, victim - 1) if n not in true]

    def claim():
        with fc.Client(server) as c:
            c.request([os.getpid(), 1, *false, *near])

    def claim_more():
        with fc.Client(server) as c:
            for i in range(300):
                c.request([os.getpid(), *false, 1000000 + i])

    with child(claim, users.bob) as pid, child(claim_more, users.bob), fc.Client(server) as c:
        c.request([victim, os.getppid()])
        (found,) = [p for p in processes(daemon) if p["pid"] == pid]
        # process 1 is everybody's ancestor here, unless it is in another pid namespace
        assert set(found["pids"]) <= {pid, 1}
        reply = daemon.call(
            {"fn": "setKinetOnDemandRequest", "config": "A=1", "pids": [*false, victim],
             "process_limit": 1}
        )  # fmt: skip
        assert reply["processesMatched"] == [victim]
        assert reply["activityProfilersTriggered"] == [victim]
        check_config(c.request([victim, os.getppid()]), "A=1")


def test_a_launcher_of_an_ordinary_user_still_finds_its_ranks(daemon, users):
    server = daemon.ipc_dir / "dynolog"

    def launch():
        if not os.fork():
            with fc.Client(server) as c:
                c.request([os.getpid(), os.getppid(), 1])
                os.write(told, b"%d" % os.getpid())
                pause(30, "until it is killed")
            os._exit(0)

    ready, told = os.pipe()
    with child(launch, users.bob) as launcher:
        rank = int(os.read(ready, 20))
        try:
            assert order(daemon, pids=[launcher])["activityProfilersTriggered"] == [rank]
        finally:
            os.kill(rank, signal.SIGKILL)
    os.close(ready)
    os.close(told)


def test_more_processes_than_files(build, tmp_path):
    """Watching them must not use up the files: others connect, and the dead are forgotten."""

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    with Daemon(build, tmp_path, "--nohttp", ipc=True, preexec_fn=few_files) as d:

        def register():
            with fc.Client(d.ipc_dir / "dynolog") as c:
                c.request([os.getpid()])

        with contextlib.ExitStack() as stack:
            pids = [stack.enter_context(child(register)) for _ in range(120)]
            assert len(processes(d)) == 120
            assert len(os.listdir(f"/proc/{d.pid}/fd")) < 48
            connections = [d.connect() for _ in range(16)]
            assert all("version" in c.call({"fn": "getVersion"}) for c in connections)
            for c in connections:
                c.close()
            for pid in pids[::2]:
                os.kill(pid, signal.SIGKILL)
            # zombies, as where nobody waits for them
            wait_until(lambda: len(processes(d)) == 60, "they are forgotten")
        wait_until(lambda: not processes(d), "all are forgotten")
        assert d.call({"fn": "getDaemon"})["rpc"]["accept_failures"] == 0


# --- endpoints ---


def test_an_endpoint_that_was_removed_comes_back(daemon):
    server = daemon.ipc_dir / "dynolog"
    server.unlink()
    daemon.wait_log("was removed or replaced")
    wait_until(server.exists, "it is back")
    with fc.Client(server) as c:
        assert c.request() == ""
    assert daemon.log().count("was removed or replaced") == 1


def test_an_endpoint_of_another_daemon_is_taken_when_that_ends(build, tmp_path):
    with Served(build, tmp_path) as first:
        words = ["nsenter", "-t", str(first.pid), "-n", "-m", build / "bin" / "sonde", "daemon"]
        words += ["--port", "0", "--nohttp", "--enable-ipc-monitor"]
        own = tmp_path / "own"
        own.mkdir()
        words += ["--ipc-socket-dir", own]
        log = tmp_path / "second.log"
        with open(log, "wb") as f:
            second = subprocess.Popen(words, stderr=f)
        try:
            wait_until(lambda: "ready" in log.read_text(), "it has its own")
            assert "no endpoint 'abstract': another daemon" in log.read_text()
            abstract = fc.Client("@dynolog", netns=first.pid)
            first.stop()
            stopped = time.monotonic()
            for name in ("'@dynolog'", "'@dynolog_data'", "/dynolog.sock'"):
                wait_until(lambda n=name: n in log.read_text().rpartition("ready")[2], name, 40)
            # not at once: it might have been a restart
            assert time.monotonic() - stopped > 5
            with abstract as c:
                assert c.request() == ""
        finally:
            second.terminate()
            second.wait()


def test_daemons_that_start_at_once_leave_the_system_as_it_was(build, tmp_path):
    script = """
        ip link set lo up; cat {q}
        for i in 1 2 3 4; do
            mkdir {dir}/$i
            {sonde} daemon --port 0 --nohttp --enable-ipc-monitor --ipc-dir-only \
                --ipc-socket-dir {dir}/$i 2>{dir}/$i/log &
            all="$all $!"
        done
        for i in $(seq 300); do
            [ $(grep -l ready {dir}/?/log | wc -l) = 4 ] && break
            sleep 0.1
        done
        kill $all; wait; cat {q}"""
    need_namespaces("-n")
    path = pathlib.Path("/proc/sys/net/unix/max_dgram_qlen")
    text = script.format(q=path, dir=tmp_path, sonde=build / "bin" / "sonde")
    r = subprocess.run(["unshare", "-n", "sh", "-c", text], capture_output=True, text=True)
    before, after = r.stdout.split()
    assert before == after, r.stdout + r.stderr
    for i in "1234":
        assert "ready" in (tmp_path / i / "log").read_text()
