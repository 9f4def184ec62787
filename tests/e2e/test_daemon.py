# SPDX-License-Identifier: MulanPSL-2.0
"""The daemon as a process: options, signals, log, service manager, limits, and the end."""

import contextlib
import os
import pathlib
import re
import resource
import signal
import socket
import stat
import subprocess
import threading
import time

import pytest
import rpc_client
from capabilities import needs
from daemon import Daemon, need_namespaces
from waiting import pause, wait_until

DEADLINE_S = 60  # a resolver may be slow to say that there is no such name


def fails(build, *flags, env=None):
    """Starts a daemon that cannot start; gives its exit status and what it said."""
    r = subprocess.run(
        [build / "bin" / "dynolog", "--port=0", "--http-port=0", *map(str, flags)],
        capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, **(env or {})},
    )  # fmt: skip
    return r.returncode, r.stderr


# --- options ---


def test_options_in_both_spellings(build, tmp_path):
    flags = ["-port=0", "--http_port", "0", "--kernel_monitor_reporting_interval_s=30"]
    flags += ["--noenable_env_var_attribution", "--use_JSON=false", "--enable-gpu-monitor=false"]
    with Daemon(build, tmp_path, *flags, defaults=False, program="dynolog") as d:
        assert d.call({"fn": "getVersion"})["version"]
        assert d.stop() == 0


def test_help_teaches(build):
    r = subprocess.run([build / "bin" / "dynolog", "--help"], capture_output=True, text=True)
    assert r.returncode == 0
    for word in ("--enable-ipc-monitor", "--flagfile", "--use-JSON", "KINETO_USE_DAEMON=1"):
        assert word in r.stdout
    assert "--dcgm-fields" not in r.stdout


def test_manual_page_is_fresh(build):
    r = subprocess.run(
        [build / "bin" / "sonde", "help", "--man", "dynolog"], capture_output=True, text=True
    )
    page = pathlib.Path(__file__).resolve().parents[2] / "docs/man/dynolog.1"
    assert page.read_text() == r.stdout, "run: sonde help --man dynolog > docs/man/dynolog.1"


@pytest.mark.parametrize(
    "flag, words",
    [
        ("--enable_ipc_moniter", "did you mean '--enable-ipc-monitor'?"),
        ("--port=65536", "expected a number from 0 to 65535"),
        ("--enable-npu-monitor=perhaps", "expected true, false or auto"),
        ("--use_ODS", "is not supported"),
        ("--use_scuba=true", "is not supported"),
        ("--enable_tpu_monitor", "TPUs are not supported"),
        ("--enable_pod_resources_attribution", "is not supported"),
        ("--bind=127.0.0.1,,::1", "expected addresses"),
        ("--flagfile=/nowhere/flags", "/nowhere/flags"),
        ("stray", "unexpected argument 'stray'"),
    ],
)
def test_wrong_options(build, flag, words):
    status, said = fails(build, flag)
    assert status == 2 and words in said and "--help" in said


def test_options_without_effect_are_named(build, tmp_path):
    flags = ["--dcgm_lib_path=/lib64/libdcgm.so", "--use_ODS=false", "--logtostderr", "--v=1"]
    with Daemon(build, tmp_path, *flags, program="dynolog") as d:
        assert "--dcgm-lib-path has no effect: metrics of GPUs come from NVML" in d.log()
        assert "--v has no effect" in d.log()
        assert "ODS" not in d.log()


# --- start ---


def test_first_lines_of_the_log(build, tmp_path):
    with Daemon(build, tmp_path) as d:
        d.wait_log(r"\[INFO\].*ready")
        assert re.search(r"sonde daemon \d+\.\d+\.\d+, process \d+", d.log())
        assert ("running as root" in d.log()) == (os.geteuid() == 0)


def test_port_taken(build):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = fails(build, "--bind=127.0.0.1", f"--port={port}")
        assert status == 1 and f":{port}" in said and "choose another port" in said


def test_http_port_taken_is_no_reason_to_fail(build, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Daemon(build, tmp_path, "--http-port", port) as d:
            d.wait_log("no HTTP: .*--nohttp")
            assert d.call({"fn": "getVersion"})
        status, said = fails(
            build, "--use-prometheus", "--nohttp", f"--prometheus-port={port}"
        )
        assert status == 1 and "in use" in said


@pytest.mark.parametrize("address", ["300.1.1.1", "192.0.2.1", "no such thing"])
def test_bad_address(build, address):
    status, said = fails(build, f"--bind={address}")
    assert status == 1 and address in said


def test_unusable_files(build, tmp_path):
    for flag in ("--certs-dir", "--log-file"):
        status, said = fails(build, f"{flag}={tmp_path}/none/at/all")
        assert status == 1 and "none/at/all" in said
    (tmp_path / "empty").mkdir(mode=0o700)
    status, said = fails(build, f"--certs-dir={tmp_path}/empty")
    assert status == 1 and "empty" in said


# --- files of options and reload ---


def test_reload(build, tmp_path):
    flags = tmp_path / "flags"
    flags.write_text("# as it was\n--kernel_monitor_reporting_interval_s=600\n")
    with Daemon(build, tmp_path, "--flagfile", flags) as d:
        d.wait_log("ready")
        d.reload()
        d.wait_log("reloaded")
        assert "metrics follow" not in d.log()

        flags.write_text("--kernel_monitor_reporting_interval_s=300\n--max_processes_per_uid=7\n")
        d.reload()
        d.wait_log("metrics follow the new configuration")
        d.wait_log("only after a restart: --max-processes-per-uid\n")

        flags.write_text("--kernel_monitor_reporting_interval_s=nonsense\n")
        d.reload()
        d.wait_log(r"flags, line 1: invalid value 'nonsense'.*old configuration")
        flags.unlink()
        d.reload()
        d.wait_log(r"No such file.*old configuration")
        assert d.call({"fn": "getVersion"})
        assert d.stop() == 0


def test_metrics_that_cannot_be_had_leave_the_old_ones_alone(build, tmp_path):
    flags = tmp_path / "flags"
    flags.write_text("--kernel_monitor_reporting_interval_s=1\n")
    with Daemon(build, tmp_path, "--flagfile", flags) as d:

        def records():
            samples = d.call({"fn": "getMetrics"})["samples"]
            return next((s["records"] for s in samples if s["source"] == "kernel"), 0)

        wait_until(lambda: records() >= 3)
        flags.write_text("--use-otlp\n--otlp-endpoint=nonsense\n")
        d.reload()
        d.wait_log(r"endpoint 'nonsense'.*going on with the old one")
        assert records() >= 3


def test_log_file_and_rotation(build, tmp_path):
    log = tmp_path / "daemon.log"
    with Daemon(build, tmp_path, "--log-file", log, wait=False) as d:
        wait_until(lambda: log.exists() and "ready" in log.read_text())
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        assert d.log() == ""
        log.rename(tmp_path / "daemon.log.1")
        d.reload()
        wait_until(lambda: log.exists() and "reloaded" in log.read_text())
        assert d.stop() == 0
        assert "ended" in log.read_text()


def open_files(pid):
    """Descriptor -> what it is, without those that are closed meanwhile."""
    out = {}
    for f in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            out[int(f.name)] = os.readlink(f)
    return out


def ends_when_told(pid):
    """Whether it has a handler for SIGTERM."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"\nSigCgt:\s+(\S+)", text)[1], 16) >> (signal.SIGTERM - 1) & 1


@pytest.mark.parametrize("closed", [[0, 1, 2], [2], [0]])
def test_started_with_closed_files(build, tmp_path, closed):
    """What is opened next must not take the place of stderr: the log would be written there."""

    def close():
        for fd in closed:
            os.close(fd)

    log = tmp_path / "daemon.log"
    flags = ["--use-JSON", "--kernel-monitor-reporting-interval-s", "1", "--log-file", log]
    for words in (flags[:3], flags):
        with Daemon(build, tmp_path, *words, wait=False, preexec_fn=close) as d:
            wait_until(lambda: any("socket" in target for target in open_files(d.pid).values()))
            wait_until(lambda: ends_when_told(d.pid))
            for fd in (0, 1, 2):
                target = open_files(d.pid).get(fd)
                assert target in ("/dev/null", str(log), str(d.log_path)), (fd, target)
            assert d.stop() == 0


# --- the end ---


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_clean_end(build, tmp_path, sig):
    """Its name in the shared directory stays, so that nobody else takes it; nobody answers there."""
    with Daemon(build, tmp_path, ipc=True) as d:
        d.wait_log("ready")
        name = d.ipc_dir / "dynolog"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.connect(str(name))
        d.process.send_signal(sig)
        assert d.process.wait(DEADLINE_S) == 0
        assert [p.name for p in d.ipc_dir.iterdir()] == ["dynolog"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s, pytest.raises(ConnectionRefusedError):
            s.connect(str(name))


class Caller(threading.Thread):
    """Calls until it is refused; half an answer is a failure."""

    def __init__(self, port):
        super().__init__()
        self.port, self.calls, self.broken = port, 0, None

    def run(self):
        while True:
            try:
                rpc_client.call(self.port, {"fn": "getStatus"})
                self.calls += 1
            except (OSError, rpc_client.Closed) as e:
                if "ended after" in str(e) and "ended after 0 of 4" not in str(e):
                    self.broken = e
                return


def test_end_under_load(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        callers = [Caller(d.port) for _ in range(8)]
        silent = d.connect()
        for c in callers:
            c.start()
        wait_until(lambda: all(c.calls > 20 for c in callers))
        assert d.stop() == 0
        for c in callers:
            c.join(DEADLINE_S)
            assert not c.is_alive() and not c.broken
        assert silent.is_closed()
        silent.close()


def test_request_in_flight_is_answered(build, tmp_path):
    with Daemon(build, tmp_path) as d:
        d.wait_log("ready")
        with d.connect() as c:
            os.kill(d.pid, signal.SIGSTOP)
            c.send(rpc_client.frame({"fn": "getVersion"}))
            os.kill(d.pid, signal.SIGTERM)
            os.kill(d.pid, signal.SIGCONT)
            assert c.receive()["version"]
        assert d.process.wait(DEADLINE_S) == 0


# --- the service manager ---


class Manager:
    """The datagram socket of a service manager."""

    def __init__(self, path):
        self.path = str(path)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.path.replace("@", "\0", 1) if self.path[0] == "@" else self.path)
        self.sock.settimeout(DEADLINE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def wait(self, line):
        """The fields of the first message that has this line."""
        while True:
            lines = self.sock.recv(4096).decode().split("\n")
            if line in lines:
                return dict(x.split("=", 1) for x in lines)


@pytest.mark.parametrize("abstract", [False, True])
def test_notify(build, tmp_path, abstract):
    path = f"@sonde-test-{os.getpid()}" if abstract else tmp_path / "notify"
    with Manager(path) as m:
        env = {"NOTIFY_SOCKET": m.path, "WATCHDOG_USEC": "200000"}
        with Daemon(build, tmp_path, env=env) as d:
            assert m.wait("READY=1")["STATUS"]
            assert "processes" in m.wait("WATCHDOG=1")["STATUS"]
            m.wait("WATCHDOG=1")
            d.reload()
            assert int(m.wait("RELOADING=1")["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
            m.wait("READY=1")
            d.process.terminate()
            m.wait("STOPPING=1")
            assert d.process.wait(DEADLINE_S) == 0


def test_notify_of_another_process_and_nonsense(build, tmp_path):
    """Variables that are meant for another process, or for nobody, do no harm."""
    env = {
        "NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1",
        "LISTEN_PID": "1", "LISTEN_FDS": "99999999999999999999", "LISTEN_FDNAMES": ":::",
    }  # fmt: skip
    with Daemon(build, tmp_path, env=env) as d:
        assert d.call({"fn": "getVersion"})
        assert d.stop() == 0


def activated(build, tmp_path, sockets, names, *flags):
    """A daemon that gets these sockets as descriptors from 3 on."""
    fds = [s.fileno() for s in sockets]
    moves = " ".join(f"{3 + i}<&{fd}" for i, fd in enumerate(fds))
    script = f'exec {moves}; LISTEN_PID=$$ exec "$@"'
    words = ["bash", "-c", script, "sh", build / "bin" / "sonde", "daemon", *flags]
    env = {**os.environ, "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": names}
    log = open(tmp_path / "log", "w+")
    return subprocess.Popen(words, pass_fds=fds, env=env, stderr=log), log


def test_socket_activation(build, tmp_path):
    v6 = socket.AF_INET6
    with socket.create_server(("127.0.0.1", 0)) as rpc, \
            socket.create_server(("::1", 0), family=v6) as rpc6, \
            socket.create_server(("127.0.0.1", 0)) as http:  # fmt: skip
        files = [rpc, http, rpc6]
        process, log = activated(build, tmp_path, files, "rpc:http:rpc", "--port", "1")
        try:
            # Whoever comes first waits in the queue of the socket.
            for s in (rpc, rpc6):
                host, port = s.getsockname()[:2]
                assert rpc_client.call(port, {"fn": "getVersion"}, host)["version"]
            with socket.create_connection(http.getsockname(), DEADLINE_S) as c:
                c.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
                assert b" 200 " in c.recv(4096)
        finally:
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
            log.close()


def test_activation_with_the_wrong_descriptor(build, tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wrong, \
            socket.create_server(("127.0.0.1", 0)) as rpc:  # fmt: skip
        process, log = activated(build, tmp_path, [wrong, rpc], "", "--nohttp")
        try:
            assert rpc_client.call(rpc.getsockname()[1], {"fn": "getVersion"})["version"]
            log.seek(0)
            assert "descriptor 3 is no listening socket" in log.read()
        finally:
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
            log.close()


# --- limits ---


def test_file_limit_is_raised(build, tmp_path):
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256))

    with Daemon(build, tmp_path, preexec_fn=lower) as d:
        limits = pathlib.Path(f"/proc/{d.pid}/limits").read_text()
        assert re.search(r"Max open files\s+256\s+256", limits)


def test_files_run_out(build, tmp_path):
    """Without a free descriptor the daemon refuses, rests, and serves again."""

    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    with Daemon(build, tmp_path, ipc=True, preexec_fn=lower) as d:
        d.wait_log("ready")
        before = cpu_seconds(d.pid)
        held = []
        for _ in range(80):
            held.append(socket.create_connection(("127.0.0.1", d.port), DEADLINE_S))
        pause(0.5, "its CPU time in this is measured")
        assert cpu_seconds(d.pid) - before < 0.3, "it spins"
        for s in held:
            s.close()
        assert wait_until(lambda: try_call(d))
        assert d.stop() == 0


def try_call(d):
    try:
        return d.call({"fn": "getVersion"})
    except (OSError, rpc_client.Closed):
        return None


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def switches(pid):
    """Times that threads of the process went to sleep, so far."""
    n = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            text = (task / "status").read_text()
            n += int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", text)[1])
    return n


def test_no_wake_ups_when_idle(build, tmp_path):
    with Daemon(build, tmp_path, ipc=True) as d:
        d.wait_log("ready")

        def woken():
            before = switches(d.pid)
            pause(1, "wake-ups in this are counted")
            return switches(d.pid) - before

        # where there is little time to be had, what belongs to the start comes late
        wait_until(lambda: not woken())


# --- process 1 of a container ---


def children(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [int(x) for x in path.read_text().split()] if path.exists() else []


def state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


@pytest.fixture
def as_first(build, tmp_path):
    """A daemon that is process 1 of its own pid namespace: (Daemon, pid of its process 1)."""
    need_namespaces("-p", "-f")
    needs("children")
    log = open(tmp_path / "log", "w")
    words = ["unshare", "-p", "-f", "--kill-child", build / "bin" / "sonde", "daemon"]
    p = subprocess.Popen([*words, "--port=0", "--http-port=0"], stderr=log)
    try:
        wait_until(lambda: "ready" in (tmp_path / "log").read_text())
        yield p, children(p.pid)[0]
    finally:
        log.close()
        p.kill()
        p.wait()


def test_first_process_ends_on_request(as_first):
    p, first = as_first
    wait_until(lambda: state(first) == "S", "it to wait for requests")
    os.kill(first, signal.SIGHUP)
    os.kill(first, signal.SIGTERM)
    assert p.wait(DEADLINE_S) == 0


def test_first_process_waits_for_orphans(as_first):
    p, first = as_first
    own = children(first)
    orphan = "(sleep 60 & ) ; :"
    subprocess.run(["nsenter", "-t", str(first), "-p", "sh", "-c", orphan], check=True)
    (adopted,) = wait_until(lambda: [c for c in children(first) if c not in own])
    os.kill(adopted, signal.SIGKILL)
    wait_until(lambda: children(first) == own)
    assert state(adopted) is None


def test_first_process_reports_failure(build):
    need_namespaces("-p", "-f")
    r = subprocess.run(
        ["unshare", "-p", "-f", build / "bin" / "sonde", "daemon", "--bind=192.0.2.1"],
        capture_output=True, text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert r.returncode == 1 and "192.0.2.1" in r.stderr
