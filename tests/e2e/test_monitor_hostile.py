# SPDX-License-Identifier: MulanPSL-2.0
"""Monitored jobs that do what jobs do, and daemons that do what none should: the job goes on as if
there were no monitor."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

import pytest
from fabric_client import HEADER, datagram, split
from monitored import environment, lines, until

KINDS = "Kernel,Marker"


def start(kinds=KINDS, log="", form="Jsonl", interval=1, duration=0, stop=False):
    return (
        f"NPU_MONITOR_START={'false' if stop else 'true'}\nNPU_MONITOR_STOP={str(stop).lower()}\n"
        f"REPORT_INTERVAL_S={interval}\nDURATION={duration}\nMSPTI_ACTIVITY_KIND={kinds}\n"
        f"NPU_MONITOR_LOG_FILE={log}\nNPU_MONITOR_EXPORT_TYPE={form}\n"
    )


STOP = start(stop=True)


def trace(log, start_step=-1, steps=3):
    return (
        f"ACTIVITIES_LOG_FILE={log}\nPROFILE_START_STEP={start_step}\n"
        f"ACTIVITIES_ITERATIONS={steps}\n"
    )


class Fake:
    """A daemon that the test speaks for. Answers are what is in `orders`, once each; told holds
    the types of messages, states the last status by its type."""

    def __init__(self):
        self.ipc_dir = pathlib.Path(tempfile.mkdtemp(prefix="sonde_ipc_"))
        self.sock = self.make()
        self.orders, self.told, self.states, self.clients = [], [], {}, []
        self.history = []
        self.delay, self.times, self.silent = 0, 1, False
        self.ended = False
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def make(self):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(str(self.ipc_dir / "dynolog"))
        sock.settimeout(0.05)
        return sock

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()
        self.sock.close()
        shutil.rmtree(self.ipc_dir)

    def serve(self):
        while not self.ended:
            try:
                data, peer = self.sock.recvfrom(1 << 17)
            except OSError:
                continue
            kind, payload = split(data)
            self.told.append(kind)
            if kind.endswith("Status"):
                state, current, first, last, pid = struct.unpack_from("=5i", payload)
                self.states[kind, pid] = self.states[kind] = state
                self.history.append((kind, state, current, first, last))
            if kind != "req":
                continue
            pid = struct.unpack_from("=iiqi", payload)[3]
            self.clients.append((pid, peer))
            if self.silent:
                continue
            order = self.orders.pop(0) if self.orders else b""
            answer = order if isinstance(order, bytes) else order.encode()
            if answer and self.delay:
                time.sleep(self.delay)
            for _ in range(self.times if answer else 1):
                with contextlib.suppress(OSError):
                    self.sock.sendto(datagram("req", answer), peer)

    def poke(self, pid=None):
        peers = [a for p, a in self.clients if pid in (None, p)]
        with contextlib.suppress(OSError):
            self.sock.sendto(datagram("sondePoke"), peers[-1])

    def order(self, text, becomes=None, pid=None, kind="npuMonitorStatus"):
        until(lambda: [p for p, _ in self.clients if pid in (None, p)], "a client")
        self.orders.append(text)
        self.poke(pid)
        until(lambda: not self.orders, "it to be taken")
        if becomes is not None:
            key = (kind, pid) if pid else kind
            until(lambda: self.states.get(key) == becomes, f"state {becomes}")


IDLE, RUNNING, READY = 0, 1, 2


@pytest.fixture
def fake():
    with Fake() as f:
        yield f


@pytest.fixture
def place():
    """Where sessions are, for this test alone."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="sonde_sessions_"))
    path.chmod(0o700)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def run(build, fake, place, tmp_path):
    """Starts monitor_life; its output is read by finish()."""
    started = []

    def go(*args, env=None, program=None, wrap=(), **kw):
        words = [*wrap, program or build / "targets" / "monitor_life", *args]
        p = subprocess.Popen(
            [str(w) for w in words],
            env=environment(build, fake, SONDE_MONITOR_DIR=place, **(env or {})),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, **kw,
        )  # fmt: skip
        started.append(p)
        return p

    yield go
    for p in started:
        if p.poll() is None:
            p.kill()
        p.communicate()


def finish(p, seconds=60):
    out, err = p.communicate(timeout=seconds)
    return p.returncode, out, err


def recorders(place):
    out = []
    for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = p.read_bytes().split(b"\0")
            if words[:2] == [b"sonde", b"recorder"] and str(place).encode() in words[2]:
                out.append(int(p.parent.name))
    return out


def rows(where):
    return [r for f in sorted(pathlib.Path(where).glob("*.jsonl")) for r in lines(f)]


# --- orders ---


def test_strangers_give_no_orders(fake, run, tmp_path):
    p = run("train", 5)
    until(lambda: fake.clients, "the job")
    name = fake.clients[-1][1]
    refused = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for _ in range(300):  # whenever it is: while it waits for an answer, and while it does not
            try:
                stranger.sendto(datagram("req", start(log=tmp_path / "no").encode()), name)
            except OSError:
                refused += 1
            time.sleep(0.01)
    assert fake.states.get("npuMonitorStatus") == IDLE
    assert not (tmp_path / "no").exists()
    fake.order(start(log=tmp_path / "yes"), becomes=RUNNING)  # the daemon does
    assert finish(p)[0] == 0
    assert rows(tmp_path / "yes")


def test_a_daemon_that_answers_late_or_twice(fake, run, tmp_path):
    p = run("train", 8)
    fake.delay, fake.times = 0.4, 3
    fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
    fake.order(STOP, becomes=IDLE)
    fake.delay, fake.times = 0, 1
    fake.order(start(log=tmp_path / "more"), becomes=RUNNING)
    assert finish(p)[0] == 0
    assert rows(tmp_path / "out") and rows(tmp_path / "more")


GARBAGE = [
    b"\0" * 1000,
    b"\xff" * 16000,
    b"NPU_MONITOR_START=true\0\nNPU_MONITOR_STOP=false\n",
    start(duration=10**30).encode(),
    start(interval=2**64).encode(),
    start(log="x" * 5000).encode(),
    start(log="relative/path").encode(),
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
    p = run("train", 6)
    for text in GARBAGE:
        fake.order(text)
    until(lambda: fake.clients, "the job")
    peer = fake.clients[-1][1]
    for data in (b"", b"x", b"\0" * 39, HEADER.pack(2**63, b"req"), HEADER.pack(5, b"r" * 32)):
        fake.sock.sendto(data, peer)
    fake.order(start(log=tmp_path / "out", duration=999999999999), becomes=RUNNING)
    fake.order(STOP, becomes=IDLE)
    status, _, _ = finish(p)
    assert status == 0 and rows(tmp_path / "out")


def test_thousands_of_orders(fake, run, place, tmp_path):
    p = run("train", 40)
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
    some(150)
    after = look(p.pid)
    assert all(b <= a + 4 for a, b in zip(before, after)), (before, after)
    after = look(recorder)
    assert all(b <= a + 8 for a, b in zip(theirs, after)), (theirs, after)
    assert p.poll() is None


# --- the life of a job ---


def test_the_last_thread_ends_the_process(fake, run):
    p = run("last-thread")
    assert finish(p, 20) == (0, "ready\n", "")


@pytest.mark.parametrize("on", [False, True])
def test_descriptors_are_the_jobs(fake, run, on):
    p = run("close-all", 4)
    if on:
        fake.order(start(), becomes=RUNNING)
    status, out, err = finish(p)
    assert status == 0, out + err


def test_a_child_keeps_its_own_files(fake, run):
    p = run("child-with-files")
    status, out, err = finish(p)
    assert status == 0, out + err


def test_stderr_that_became_a_file(fake, run, tmp_path):
    p = run("stderr", tmp_path / "mine")
    fake.order(start(log="relative"))
    fake.order(trace("/proc/x"))
    assert finish(p)[0] == 0
    assert (tmp_path / "mine").read_text() == ""


def test_stderr_that_nobody_reads(build, fake, place, tmp_path):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    p = subprocess.Popen([build / "targets" / "monitor_life", "train", "4"], stderr=writer,
                         env=environment(build, fake, SONDE_MONITOR_DIR=place),
                         stdout=subprocess.DEVNULL, cwd=tmp_path)  # fmt: skip
    try:
        fake.order(start(log="relative"))
        fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
        assert p.wait(30) == 0
    finally:
        p.kill()
        p.wait()
        os.close(reader)
        os.close(writer)
    assert rows(tmp_path / "out")


@pytest.mark.parametrize("what", ["nothing", "monitor", "orders"])
def test_forks(fake, run, what):
    p = run("forks", 5)
    if what != "nothing":
        fake.order(start("Kernel,Marker,AclAPI,RuntimeAPI"), becomes=RUNNING)
    end = time.monotonic() + 4.5
    while what == "orders" and time.monotonic() < end:
        fake.orders += [STOP, start()]
        fake.poke(p.pid)
        time.sleep(0.05)
    status, out, err = finish(p, 90)
    assert status == 0, out + err


def test_exits_of_many_threads(fake, run, tmp_path):
    for after in (0.5, 0.9):
        p = run("exits", after)
        fake.order(start(log=tmp_path / str(p.pid)), becomes=RUNNING, pid=p.pid)
        status, _, err = finish(p, 30)
        assert status == 7, (status, err)
        assert rows(tmp_path / str(p.pid))


def test_exit_during_orders(fake, run, tmp_path):
    for i in range(8):
        p = run("exits", 0.1 * i)
        fake.orders += [start(log=tmp_path / "out"), STOP] * 3
        until(lambda: fake.clients and fake.clients[-1][0] == p.pid or p.poll() is not None)
        while p.poll() is None:
            fake.poke()
            time.sleep(0.01)
        fake.orders.clear()
        status, _, err = finish(p, 30)
        assert status == 7, (status, err)


def test_signals_are_the_jobs(fake, run):
    p = run("signals", 4)
    fake.order(start(), becomes=RUNNING)
    status, out, err = finish(p)
    assert (status, err) == (0, ""), out + err


def test_exec_ends_the_window(fake, run, place, tmp_path):
    p = run("exec", 2)
    fake.order(start(log=tmp_path / "out"), becomes=RUNNING)
    comm = pathlib.Path(f"/proc/{p.pid}/comm")
    until(lambda: comm.read_text() == "sleep\n", "exec")
    ended = lambda: rows(tmp_path / "out")[-1:] and rows(tmp_path / "out")[-1]["kind"]
    until(lambda: ended() == "rank_device_map", "the end of the file", 10)
    until(lambda: not recorders(place), "the recorder to leave", 10)
    assert p.poll() is None


def test_daemonized(fake, run, place, tmp_path):
    p = run("daemonize")
    fake.order(start(log=tmp_path / "first"), becomes=RUNNING)
    fake.order(STOP, becomes=IDLE)
    p.wait(20)
    until(lambda: not recorders(place), "its recorder to leave")
    assert p.stdout.readline() == "ready\n"
    took = float(p.stdout.readline().split()[1])
    assert took < 0.5, took  # it does not wait for one
    pid = until(lambda: {c[0] for c in fake.clients} - {p.pid}, "the child").pop()
    try:
        fake.order(start(log=tmp_path / "second"), becomes=RUNNING, pid=pid)
        fake.order(STOP, becomes=IDLE, pid=pid)
        assert rows(tmp_path / "second") or list((tmp_path / "second").iterdir())
    finally:
        os.kill(pid, signal.SIGKILL)


# --- traces ---


def traces(where):
    return sorted(pathlib.Path(where).glob("*_sonde/trace.json"))


def test_steps_of_many_threads(fake, run, tmp_path):
    p = run("steppers", 8)
    for i in range(4):
        log = tmp_path / f"t{i}"
        fake.order(trace(log, steps=1 + i % 2))
        until(lambda log=log: traces(log), "the trace")
        until(lambda: fake.states["npuTraceStatus"] == IDLE, "its end")
    assert finish(p)[0] == 0


def test_a_child_is_not_in_its_parents_trace(fake, run, tmp_path):
    p = run("child-steps", 6)
    until(lambda: fake.clients, "the job")
    fake.order(trace(tmp_path / "parent", steps=10**6), becomes=RUNNING, kind="npuTraceStatus")
    pid = until(lambda: {c[0] for c in fake.clients} - {p.pid}, "the child").pop()
    fake.order(trace(tmp_path / "child", steps=5), pid=pid)
    until(lambda: traces(tmp_path / "child"), "its own trace")
    assert finish(p)[0] == 0


# --- the recorder ---


def test_a_recorder_that_stands_still(fake, run, place, tmp_path):
    """The job waits for it neither at a step nor, for long, at its end."""
    p = run("train", 5)
    fake.order(start("Kernel,AclAPI,RuntimeAPI", log=tmp_path / "out"), becomes=RUNNING)
    [recorder] = recorders(place)
    os.kill(recorder, signal.SIGSTOP)
    began = time.monotonic()
    status, out, err = finish(p)
    took = time.monotonic() - began
    os.kill(recorder, signal.SIGCONT)
    assert status == 0, err
    assert float(out.split()[-1]) < 1, out
    assert took < 5 + 6, took
    until(lambda: not recorders(place), "it to finish")
    assert rows(tmp_path / "out")


# --- places ---


def test_not_asked_for_nothing_happens(build, fake, place, tmp_path):
    env = environment(build, fake, SONDE_MONITOR_DIR=place)
    del env["MSMONITOR_USE_DAEMON"]
    p = subprocess.Popen([build / "targets" / "monitor_life", "train", "1"], env=env, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)  # fmt: skip
    assert p.stdout.readline() == "ready\n"
    names = {t.joinpath("comm").read_text() for t in pathlib.Path(f"/proc/{p.pid}/task").iterdir()}
    assert "sonde-monitor\n" not in names
    p.communicate(timeout=30)
    assert not fake.told and not list(place.iterdir())
