# SPDX-License-Identifier: MulanPSL-2.0
"""Processes and the daemon: what libkineto and the NPU client send, and what they get."""

import json
import os
import pathlib
import pwd
import re
import signal
import stat
import subprocess
import sys
import tempfile

import fabric_client as fc
import pytest
import rpc_client
from capabilities import lacks
from daemon import Daemon, need_namespaces
from waiting import pause, wait_until

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE.parent / "data" / "kineto_datagrams.jsonl"
CLIENT = [sys.executable, str(HERE / "fabric_client.py")]
CONFIG = (
    "ACTIVITIES_LOG_FILE=/tmp/tr/trace.json\nPROFILE_START_TIME=0\nACTIVITIES_DURATION_MSECS=200"
)


class Served(Daemon):
    """With the global endpoints, in a network namespace and with a home directory of its own. The
    password database decides what the home is, so this one lies where that one was."""

    def __init__(self, build, tmp_path, *flags, **kw):
        need_namespaces("-n", "-m")
        shadow = tmp_path / "build"
        (shadow / "bin").mkdir(parents=True, exist_ok=True)
        real_home = pwd.getpwuid(os.getuid()).pw_dir
        script = shadow / "bin" / "sonde"
        script.write_text(
            "#!/bin/sh\nexec unshare -m sh -c 'mount --bind \"$HOME\" \"$0\" && exec \"$@\"' "
            f"{real_home} {build}/bin/sonde \"$@\"\n"
        )
        script.chmod(0o755)
        self.real_home = real_home
        super().__init__(shadow, tmp_path, *flags, namespace=True, **kw)

    def call(self, request):
        return fc.in_netns(self.pid, rpc_client.call, self.port, request)


@pytest.fixture
def served(build, tmp_path):
    with Served(build, tmp_path) as d:
        yield d


@pytest.fixture
def daemon(build, tmp_path):
    """With a socket directory; the global endpoints may be another's."""
    with Daemon(build, tmp_path, ipc=True) as d:
        yield d


def order(d, config=CONFIG, pids=(), job=0):
    """gputrace, as the RPC has it; gives the reply."""
    return d.call(
        {"fn": "setKinetOnDemandRequest", "config": config, "pids": list(pids), "job_id": job}
    )


def processes(d):
    return d.call({"fn": "listProcesses"})["processes"]


def check_config(text, config=CONFIG):
    assert re.fullmatch(rf"\n    {re.escape(config)}\n    REQUEST_TRACE_ID=\d+\n", text), text


# --- libkineto ---


def recorded():
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


@pytest.mark.parametrize("endpoint", ["abstract", "dir"])
def test_recorded_datagrams_are_answered_as_recorded(served, endpoint):
    """What PyTorch 2.11 sent, byte for byte and by its own name. Its second question brought the
    config; the third came while it was busy."""
    rows = recorded()
    name = bytes.fromhex(rows[0]["from"]).strip(b"\0").decode()
    assert all(row["from"] == rows[0]["from"] for row in rows)
    server, bind = ("@dynolog", "@")
    if endpoint == "dir":
        server, bind = served.ipc_dir / "dynolog", served.ipc_dir
    with fc.Client(server, bind=bind, netns=served.pid, name=name) as c:
        for i, row in enumerate(rows):
            want = bytes.fromhex(row["answer"])
            has_config = len(want) > fc.HEADER.size
            if has_config:
                config = fc.split(want)[1].decode()
                assert order(served, config.rstrip("\n"))["activityProfilersTriggered"] == [403]
            c.send(bytes.fromhex(row["sent"]))
            got = c.receive()
            if has_config:
                check_config(fc.split(got)[1].decode(), config.rstrip("\n"))
            else:
                assert got == want, i
            pause(0.02, "the pace of the capture")
        assert c.receive(0) is None


def test_answers_leave_by_the_socket_of_the_question(served):
    for server, source in (
        ("@dynolog", b"\0dynolog\0"),
        (served.home / "dynolog.sock", f"{served.real_home}/dynolog.sock"),
        (served.ipc_dir / "dynolog", str(served.ipc_dir / "dynolog")),
    ):
        with fc.Client(server, netns=served.pid) as c:
            assert c.request() == ""
            assert c.source == source
    names = [e["name"] for e in served.call({"fn": "getDaemon"})["endpoints"]["endpoints"]]
    assert names == ["abstract", "abstract-data", "home", "home-data", "dir"]


def test_socket_files_have_their_modes(served):
    for path, mode in (
        (served.home / "dynolog.sock", 0o600),
        (served.home / "dynolog_data.sock", 0o600),
        (served.ipc_dir / "dynolog", 0o666),
    ):
        assert path.is_socket() and path.stat().st_mode & 0o777 == mode
    served.process.terminate()
    served.process.wait(10)
    # where every user may create files, the name is kept
    assert not list(served.home.iterdir())
    assert [p.name for p in served.ipc_dir.iterdir()] == ["dynolog"]


def test_a_busy_process_keeps_its_config(daemon):
    with fc.Client(daemon.ipc_dir / "dynolog", bind=daemon.ipc_dir) as c:
        assert c.request() == ""
        assert order(daemon)["activityProfilersTriggered"] == [os.getpid()]
        for mask in (fc.EVENTS, 0):
            assert c.request(mask=mask) == ""
        again = order(daemon)
        assert (again["activityProfilersBusy"], again["activityProfilersTriggered"]) == (1, [])
        check_config(c.request(mask=fc.ACTIVITIES))
        assert c.request() == ""


def test_several_processes_with_the_timing_of_libkineto(daemon):
    """Each polls by itself, every 5 s there, every 20 ms here; one order reaches all of them."""
    jobs = [subprocess.Popen(
        [*CLIENT, daemon.ipc_dir / "dynolog", daemon.ipc_dir, "30"], stdout=subprocess.PIPE, text=True
    ) for _ in range(4)]  # fmt: skip
    try:
        pids = sorted(json.loads(p.stdout.readline())["pid"] for p in jobs)
        wait_until(lambda: all(p["polls"] for p in processes(daemon)), "all poll")
        reply = order(daemon)
        assert sorted(reply["processesMatched"]) == pids
        assert sorted(reply["activityProfilersTriggered"]) == pids
        for p in jobs:
            check_config(json.loads(p.stdout.readline())["config"])
    finally:
        for p in jobs:
            p.kill()
            p.wait()


def test_ancestors_and_jobs_find_a_process(daemon):
    with fc.Client(daemon.ipc_dir / "dynolog") as c:
        assert c.request([5001, 5000, 4999], job=77) == ""
        assert order(daemon, pids=[4999])["processesMatched"] == []
        assert order(daemon, pids=[4999], job=77)["processesMatched"] == [5001]
        assert c.request([5001, 5000, 4999]) == ""
        check_config(c.request([5001, 5000, 4999], job=77))


# --- the NPU client ---


def test_the_npu_client_reads_one_answer_late(served):
    """It does not wait for the answer to its registration, so every poll reads the answer before:
    a config comes with the second poll after the order, whole."""
    with fc.Client(served.home / "dynolog.sock", netns=served.pid) as c:
        c.send(fc.context(3, os.getpid()))
        c.send(fc.trace_status(fc.IDLE))
        c.send(fc.monitor_status(fc.IDLE))
        answers = []
        for poll in range(5):
            if poll == 2:
                reply = order(served, "NPU_MONITOR_START=true\nREPORT_INTERVAL_S=60")
                assert reply["commandStatus"] == "effective"
            c.send(fc.request([os.getpid()]))
            answers.append(fc.split(c.receive()))
            assert c.source == f"{served.real_home}/dynolog.sock"
            pause(0.02, "the pace of a client that polls")
        assert [kind for kind, _ in answers] == ["ctxt", "req", "req", "req", "req"]
        assert [len(p) > 0 for _, p in answers] == [True, False, False, True, False]
        assert answers[0][1] == b"\1\0\0\0"
        check_config(answers[3][1].decode(), "NPU_MONITOR_START=true\nREPORT_INTERVAL_S=60")


def test_statuses_of_both_generations(daemon):
    with fc.Client(daemon.ipc_dir / "dynolog") as c:
        c.request()
        c.send(fc.trace_status(fc.READY, 7, 10, 12))
        c.send(fc.monitor_status(fc.IDLE))
        c.request()
        status = daemon.call({"fn": "getStatus"})
        assert status == {
            "current_step": 7, "npumonitor": "Idle", "nputrace": "Ready", "start_step": 10,
            "stop_step": 12,
        }  # fmt: skip
        c.send(fc.old_status("npuTraceStatus", fc.IDLE))
        c.send(fc.old_status("npuMonitorStatus", fc.RUNNING))
        c.request()
        status = daemon.call({"fn": "getStatus"})
        assert (status["nputrace"], status["npumonitor"]) == ("Idle", "Running")


def test_data_reaches_the_metrics(served):
    record = {"kind": "Kernel", "deviceId": 0, "timestamp": 1, "duration": 1234}
    for server in ("@dynolog_data", served.home / "dynolog_data.sock", served.ipc_dir / "dynolog"):
        with fc.Client(server, netns=served.pid) as c:
            c.data(record)
    fabric = wait_until(
        lambda: sum(e["received"] for e in fabric_counts(served)["endpoints"]) == 3
        and fabric_counts(served),
        "three were received",
    )
    assert not any(fabric["dropped"].values()), fabric
    assert "1234" in json.dumps(served.call({"fn": "getMetrics"}))


def fabric_counts(d):
    return d.call({"fn": "getDaemon"})["endpoints"]


# --- life and death ---


def test_a_dead_process_is_forgotten_at_once(daemon):
    p = subprocess.Popen(
        [*CLIENT, daemon.ipc_dir / "dynolog", daemon.ipc_dir, "60"],
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = json.loads(p.stdout.readline())["pid"]
    assert pid == p.pid
    wait_until(lambda: [x["pid"] for x in processes(daemon)] == [pid], "it is there")
    p.send_signal(signal.SIGKILL)
    p.wait()
    wait_until(lambda: not processes(daemon), "it is forgotten")
    assert order(daemon)["processesMatched"] == []


def test_a_process_of_a_container(daemon):
    """In pid and mount namespaces of its own, through the shared directory. It says that it is
    process 1 or so; the daemon knows who that is here, and when it dies."""
    need_namespaces("-p", "-f", "-m")
    outside = subprocess.Popen(
        ["unshare", "-p", "-f", "-m", "--mount-proc", "--kill-child", *CLIENT,
         daemon.ipc_dir / "dynolog", daemon.ipc_dir, "60"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        inside = json.loads(outside.stdout.readline())["pid"]
        assert inside == 1
        (found,) = wait_until(lambda: [p for p in processes(daemon) if p["polls"]], "it polls")
        assert found["pid"] == inside
        host_pid = found["host_pid"]
        assert host_pid not in (inside, None)
        assert order(daemon)["activityProfilersTriggered"] == [inside]
        check_config(json.loads(outside.stdout.readline())["config"])
        # either number will do
        assert order(daemon, pids=[host_pid])["activityProfilersTriggered"] == [inside]
        check_config(json.loads(outside.stdout.readline())["config"])
        os.kill(host_pid, signal.SIGKILL)
        wait_until(lambda: not processes(daemon), "it is forgotten")
    finally:
        outside.kill()
        outside.wait()


def test_a_missing_socket_directory_is_made_for_all(build, tmp_path):
    """libkineto of every user puts its own socket beside the daemon's."""
    with tempfile.TemporaryDirectory(prefix="sonde_ipc_") as top:
        where = pathlib.Path(top) / "made"
        flags = ("--enable-ipc-monitor", "--ipc-socket-dir", where, "--ipc-dir-only")
        with Daemon(build, tmp_path, *flags) as d:
            assert stat.S_IMODE(where.stat().st_mode) == 0o1777
            assert (where / "dynolog").is_socket()
            d.stop()
        where.chmod(0o755)
        with Daemon(build, tmp_path, *flags) as d:
            d.wait_log("chmod 1777" if os.getuid() == 0 else "ready")


def test_a_daemon_after_a_killed_one(build, tmp_path):
    with Served(build, tmp_path) as d:
        d.process.kill()
        d.process.wait()
        left = [d.home / "dynolog.sock", d.home / "dynolog_data.sock", d.ipc_dir / "dynolog"]
        assert all(path.is_socket() for path in left)
        with Served(
            build, tmp_path / "second", "--ipc-socket-dir", d.ipc_dir, env={"HOME": str(d.home)}
        ) as second:
            assert len(fabric_counts(second)["endpoints"]) == 5, second.log()
            for path in (left[0], left[2]):
                with fc.Client(path, netns=second.pid) as c:
                    assert c.request() == ""


def test_a_second_daemon_takes_nothing_from_the_first(served, tmp_path, build):
    """Here the first is reached by everyone; the second has to do without, and says so."""
    words = ["nsenter", "-t", str(served.pid), "-n", "-m", build / "bin" / "sonde", "daemon"]
    words += ["--port", "0", "--nohttp", "--enable-ipc-monitor"]
    words += ["--ipc-socket-dir", served.ipc_dir]
    second = subprocess.run(words, capture_output=True, text=True, timeout=60)
    text = second.stderr
    assert second.returncode == 1, text
    assert "another daemon has the name '@dynolog'" in text, text
    assert f"another daemon listens on '{served.ipc_dir}/dynolog'" in text
    assert f"another daemon listens on '{served.real_home}/dynolog.sock'" in text
    for server in ("@dynolog", served.home / "dynolog.sock", served.ipc_dir / "dynolog"):
        with fc.Client(server, netns=served.pid) as c:
            assert c.request() == ""


def test_a_burst_finds_room(served):
    """While the daemon is away for a moment, more processes ask than the system lets wait. Its
    sockets have room for them; the system's number is as it was."""
    path = pathlib.Path("/proc/sys/net/unix/max_dgram_qlen")
    length = int(fc.in_netns(served.pid, path.read_text))
    if "is better" in served.log():
        lacks("dgram-qlen", "the daemon may not raise it here")
    clients = [fc.Client("@dynolog", netns=served.pid) for _ in range(100)]
    served.process.send_signal(signal.SIGSTOP)
    try:
        for c in clients:
            c.sock.sendto(fc.request([os.getpid()]), c.server)
    finally:
        served.process.send_signal(signal.SIGCONT)
    for c in clients:
        assert c.answer("req") == b""
        c.close()
    fresh = subprocess.run(["unshare", "-n", "cat", path], capture_output=True, text=True)
    assert length == int(fresh.stdout)
