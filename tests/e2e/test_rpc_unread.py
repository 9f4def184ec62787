# SPDX-License-Identifier: MulanPSL-2.0
"""Peers of the control RPC that ask for large answers and take none of them: what waits for them is bounded,
and others are served."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys

from daemon import Daemon
from rpc_client import frame
from waiting import pause, wait_until

HERE = pathlib.Path(__file__).resolve().parent
# Deep in calls of a file with a long name: a snapshot of twelve of them is most of a megabyte.
DEEP = """
import os, sys
import fabric_client as fc
names = {}
text = "def f(n, wait):\\n    return f(n - 1, wait) if n else wait()\\n"
exec(compile(text, f"/{'x' * 200}/{'y' * 240}/{sys.argv[2]}.py", "exec"), names)
with fc.Client(sys.argv[1]) as c:
    c.context()
    c.request([os.getpid()])
    print("up", flush=True)
    names["f"](110, sys.stdin.readline)
"""


def highest_mib(d):
    status = pathlib.Path(f"/proc/{d.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def test_answers_that_nobody_takes(build, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(HERE)}
    with Daemon(build, tmp_path, ipc=True) as d, contextlib.ExitStack() as stack:
        pids = []
        for i in range(12):
            words = [sys.executable, "-c", DEEP, str(d.ipc_dir / "dynolog"), str(i)]
            p = stack.enter_context(subprocess.Popen(words, env=env, stdin=-1, stdout=-1))
            stack.callback(p.kill)
            assert p.stdout.readline() == b"up\n"
            pids.append(p.pid)
        wait_until(lambda: d.call({"fn": "listProcesses"})["total"] == len(pids))
        taken = d.call({"fn": "takeSnapshot", "pids": pids})["snapshot"]
        ask = {"fn": "getSnapshot", "snapshot": taken}
        got = wait_until(lambda: (lambda s: s["state"] != "running" and s)(d.call(ask)), every=0.1)
        assert got["state"] == "ended" and len(str(got)) > 500_000, str(got)[:500]
        before = highest_mib(d)
        peers = []
        for _ in range(400):
            s = stack.enter_context(socket.socket())
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
            s.connect(("127.0.0.1", d.port))
            s.sendall(frame(ask))
            s.setblocking(False)
            peers.append(s)
        served = set()
        while len(served) < len(peers):
            for s in peers:
                with contextlib.suppress(BlockingIOError):
                    with contextlib.suppress(ConnectionResetError):
                        s.recv(20_000)  # just enough not to be late
                    served.add(s)
            pause(0.5, "what a slow reader does between two pieces")
        assert d.call(ask)["snapshot"] == got["snapshot"]
        kept = highest_mib(d) - before
        assert kept < 128, "of 400 answers"
        assert d.call({"fn": "getDaemon"})["rpc"]["refused"]["unread_reply"] > 0
