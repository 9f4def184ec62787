# SPDX-License-Identifier: MulanPSL-2.0
"""A daemon that a test speaks for, and jobs that have nobody else to listen to.

    from fake_daemon import *          the fixtures, too: fake, place, run

    p = run("train", 3)                tests/targets/monitor_life.c
    fake.order(start(), becomes=RUNNING)
    status, out, err = finish(p)
"""

import contextlib
import pathlib
import shutil
import socket
import struct
import subprocess
import tempfile
import threading

import pytest
from fabric_client import datagram, split
from monitored import environment, lines
from waiting import pause, wait_until

__all__ = [
    "Fake",
    "IDLE",
    "READY",
    "RUNNING",
    "STOP",
    "fake",
    "finish",
    "place",
    "recorders",
    "rows",
    "run",
    "start",
    "trace",
    "traces",
]

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
        self.delay, self.times = 0, 1
        self.only = None  # the process that orders are for
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
            meant = self.only in (None, pid)
            order = self.orders.pop(0) if self.orders and meant else b""
            answer = order if isinstance(order, bytes) else order.encode()
            if answer and self.delay:
                pause(self.delay, "a daemon that is slow to answer")
            for _ in range(self.times if answer else 1):
                with contextlib.suppress(OSError):
                    self.sock.sendto(datagram("req", answer), peer)

    def poke(self, pid=None):
        peers = [a for p, a in self.clients if pid in (None, p)]
        with contextlib.suppress(OSError):
            self.sock.sendto(datagram("sondePoke"), peers[-1])

    def order(self, text, becomes=None, pid=None, kind="npuMonitorStatus"):
        pid = pid or self.only
        wait_until(lambda: [p for p, _ in self.clients if pid in (None, p)], "a client")
        before, self.only = self.only, pid  # others ask, too
        self.orders.append(text)
        self.poke(pid)
        wait_until(lambda: not self.orders, "it to be taken")
        self.only = before
        if becomes is not None:
            key = (kind, pid) if pid else kind
            wait_until(lambda: self.states.get(key) == becomes, f"state {becomes}")


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
            env={
                **environment(build, fake, SONDE_MONITOR_DIR=place),
                **{k: str(v) for k, v in (env or {}).items()},
            },
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


def traces(where):
    return sorted(pathlib.Path(where).glob("*_sonde/trace.json"))
