# SPDX-License-Identifier: MulanPSL-2.0
"""Jobs on the simulated NPU that are monitored, and what they leave.

    with Daemon(build, tmp_path, ipc=True) as d:
        with Job(build, d, tmp_path, rank=3) as job:
            d.dyno("npu-monitor", "--npu-monitor-start", ...)
"""

import json
import os
import subprocess

from waiting import wait_until



def environment(build, daemon, rank=None, guest=True, **more):
    preload = [build / "lib" / "libsonde_monitor.so"] if guest else []
    env = dict(os.environ)
    env.update(
        MSMONITOR_USE_DAEMON="1",
        KINETO_IPC_SOCKET_DIR=str(daemon.ipc_dir),
        LD_PRELOAD=":".join(map(str, [*preload, build / "sim" / "libmspti.so"])),
        **{k: str(v) for k, v in more.items()},
    )
    if rank is not None:
        env["RANK"] = str(rank)
    return env


def dyno(build, daemon, *args, status=0, program="dyno"):
    """Runs dyno; gives its standard output."""
    r = subprocess.run(
        [build / "bin" / program, "--port", str(daemon.port), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert r.returncode == status, r.stdout + r.stderr
    return r.stdout


def state(daemon, key="npumonitor"):
    return daemon.call({"fn": "getStatus"})[key]


def trains(daemon):
    """Until the job has made steps since this was called: it tells them once in a while."""
    for _ in range(2):  # some of those that it tells first were before
        before = state(daemon, "current_step")
        wait_until(lambda before=before: state(daemon, "current_step") > before, "steps")


class Job:
    """simtrain as one rank; it trains until the test ends unless args say otherwise."""

    def __init__(self, build, daemon, tmp_path, *args, rank=0, env=None, step_ms=20, steps=10**6):
        self.err = open(tmp_path / f"rank{rank}.err", "w+")
        self.process = subprocess.Popen(
            [
                build / "sim" / "simtrain",
                *("--quiet", "--steps", str(steps), "--step-ms", str(step_ms)),
                *map(str, args),
            ],
            env=environment(build, daemon, rank, **(env or {})),
            stdout=subprocess.DEVNULL,
            stderr=self.err,
            cwd=tmp_path,
        )
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.err.close()

    def said(self):
        self.err.flush()
        self.err.seek(0)
        return self.err.read()


def lines(path):
    """Of a file that may still grow: the end of a line that has begun is waited for."""

    def whole():
        with open(path, "rb") as f:
            data = f.read()
        return [data] if data[-1:] in (b"", b"\n") else None

    (data,) = wait_until(whole, f"the end of a line in {path}")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]
