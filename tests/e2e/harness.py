# SPDX-License-Identifier: MulanPSL-2.0
"""For tests that hurt jobs and recorders: counts the job kept itself, the state of a session."""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess

import dumpcheck
from recording import clean_env
from waiting import wait_until

LIVE, FINISHED = 1, 2
SOAK = bool(os.environ.get("SOAK"))


def counted(path):
    """What the job itself counted as completed (tests/targets/counted.h)."""
    data = pathlib.Path(path).read_bytes()
    return sum(struct.unpack(f"<{len(data) // 8}Q", data))


class Session:
    """The control page of a recording (src/wire/control_page.h)."""

    def __init__(self, directory):
        self.dir = pathlib.Path(directory)

    def page(self):
        with open(self.dir / "session", "rb") as f:
            data = f.read(256).ljust(256, b"\0")
        # all zero while the launcher is about to fill it in
        assert data[:8] in (b"SESSION1", bytes(8))
        return data

    @property
    def state(self):
        return struct.unpack_from("<I", self.page(), 12)[0]

    @property
    def recorder(self):
        return struct.unpack_from("<I", self.page(), 44)[0]

    @property
    def unrecorded(self):
        return struct.unpack_from("<Q", self.page(), 80)[0]

    def wait_finished(self, seconds=30):
        finished = lambda: self.state == FINISHED
        wait_until(finished, f"the recorder of {self.dir} to finish", seconds, 0.002)

    def kill_recorder(self):
        """And until it is gone: it is nobody's child that we could wait for."""
        pid = self.recorder
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)


def process_state(pid):
    """The letter of /proc/PID/stat; X where there is no such process any more."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return stat.rpartition(")")[2].split()[0]


def wait_gone(pid, seconds=10):
    wait_until(lambda: process_state(pid) in "ZX", f"process {pid} to end", seconds, 0.002)


class Hurt:
    """Starts jobs under msmemscope; one output directory per instance."""

    def __init__(self, build, tmp_path, name="out"):
        self.build, self.tmp = build, pathlib.Path(tmp_path)
        self.out = self.tmp / name
        self.count_file = self.tmp / f"{name}.count"
        self.job = None

    def target(self, name):
        return str(self.build / "targets" / name)

    def env(self, **more):
        return clean_env(self.tmp, **more)

    def command(self, *words, opts=()):
        return [
            str(self.build / "bin" / "msmemscope"),
            f"--output-path={self.out}",
            "--log-level=info",  # the recorder's last words, see records
            *opts,
            "--",
            *map(str, words),
        ]

    def start(self, *words, opts=(), env=None, **kw):
        kw.setdefault("cwd", self.tmp)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        self.job = subprocess.Popen(
            self.command(*words, opts=opts), env=self.env(**(env or {})), **kw
        )
        return self.job

    def run(self, *words, opts=(), env=None, timeout=60, **kw):
        kw.setdefault("cwd", self.tmp)
        return subprocess.run(
            self.command(*words, opts=opts),
            env=self.env(**(env or {})),
            capture_output=True,
            timeout=timeout,
            **kw,
        )

    def plain(self, *words, env=None, timeout=60, **kw):
        kw.setdefault("cwd", self.tmp)
        return subprocess.run(
            [*map(str, words)],
            env=self.env(**(env or {})),
            capture_output=True,
            timeout=timeout,
            **kw,
        )

    def steady(self, threads=1, events=0, pace=0, how="return"):
        return [self.target("steady"), self.count_file, threads, events, pace, how]

    def wait_counted(self, n, seconds=20):
        def enough():
            if self.count_file.exists() and counted(self.count_file) >= n:
                return True
            assert self.job is None or self.job.poll() is None, self.job.communicate()
            return False

        wait_until(enough, f"the job to count to {n}", seconds, 0.001)

    @property
    def counted(self):
        return counted(self.count_file)

    @property
    def recording(self):
        (only,) = sorted(self.out.glob("recording_*"))
        return only

    @property
    def session(self):
        return Session(self.recording)

    def sonde(self, *words, timeout=60):
        return subprocess.run(
            [str(self.build / "bin" / "sonde"), *map(str, words)],
            env=self.env(),
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def show(self):
        return self.ask("show")

    def ask(self, question, *words):
        """The answer of `sonde mem QUESTION` as an object."""
        r = self.sonde("mem", question, "--json", *words, self.recording)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)

    @property
    def lost(self):
        return self.show()["lost"]["events"]

    @property
    def records(self):
        """What the recorders of this session say they wrote."""
        log = (self.recording / "msmemscope.log").read_text()
        return sum(int(n) for n in re.findall(r"recorder: (\d+) events in", log))

    def recover(self):
        r = self.sonde("mem", "recover", self.recording)
        assert r.returncode == 0, r.stderr
        assert not list(self.recording.glob("*.ring"))
        return r.stdout

    def processes(self):
        """Every dump, checked whole (dumpcheck.py)."""
        return dumpcheck.check_output(self.out)

    def rows(self):
        """Number of events that really happened: rows that were not made up at the end."""
        return sum(real_events(p.rows) for p in self.processes())

    def fast_rows(self):
        """The same without parsing every cell: for the many tries."""
        n = 0
        for path in self.out.glob("msmemscope_*/device_*/dump/*.csv"):
            data = path.read_bytes()
            assert data.startswith(dumpcheck.HEADER.encode() + b"\n") and data.endswith(b"\n")
            ids = set()
            for line in data.split(b"\n")[1:-1]:
                cells = line.split(b",", 3)
                assert cells[0].isdigit() and line.count(b'"') % 2 == 0, line
                ids.add(cells[0])
                if cells[1] in (b"MALLOC", b"FREE") and b"shadow:" not in line:
                    n += 1
            assert len(ids) == data.count(b"\n") - 1, "an ID stands twice"
        return n

    def check_exact(self, threads, rows=None):
        rows = self.fast_rows() if rows is None else rows
        lost = self.lost
        assert self.counted <= rows <= self.counted + threads, (self.counted, rows, lost)


def real_events(rows):
    return sum(1 for r in rows if r.event in ("MALLOC", "FREE") and "shadow" not in r.attr)
