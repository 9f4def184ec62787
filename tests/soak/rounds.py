# SPDX-License-Identifier: MulanPSL-2.0
"""One round of the kill matrix: its directory, its dice, its processes, and what may be left of them."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import sqlite3
import tempfile

from faults import SmallDisk, Words, strike
from harness import process_state
from waiting import pause, wait_until

# Names of files that are there only while something is being written.
UNFINISHED = ("*.ring", "*.tmp", "*-journal", "*-wal", "*-shm", "sonde-rings-*", "monitor_*")


class Silent(Exception):
    """Something is missing or wrong, and nobody said so."""


def require(condition, what):
    if not condition:
        raise Silent(what() if callable(what) else what)


@contextlib.contextmanager
def open_db(path):
    """A database that nobody writes any more. It is whole without the files that SQLite keeps beside it
    meanwhile, and reading leaves none: check_left_files() would take them for the writer's."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        require(db.execute("pragma integrity_check").fetchone()[0] == "ok", f"{path} is damaged")
        yield db


def processes_with(mark):
    """{pid: command line} of all that have this text in the environment they were started with."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes():
                words = path.with_name("cmdline").read_bytes().split(b"\0")
                found[int(path.parent.name)] = b" ".join(words).decode(errors="replace").strip()
    return found


class Round:
    """A part runs in `dir` and says what it found: "exact", or "loss" where the loss is stated."""

    def __init__(self, build, place, seed, number, cell):
        self.part, self.victim, self.fault = cell
        self.name = f"{seed}:{number}"
        self.rng = random.Random(self.name)
        self.build = build
        self.dir = place / f"{seed}-{number}"
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        self.words = Words(self.dir / "faults")
        # paths of sockets are short, 107 bytes
        self.short_dir = pathlib.Path(tempfile.mkdtemp(prefix="sonde_soak_"))
        self.processes = []  # Popen objects
        self.lifts = []
        self.disk = None
        self.hit = True  # the fault met a process that was still there
        self.notes = []

    def note(self, text):
        """For the reader of a failure."""
        self.notes.append(text)

    def env(self):
        """Every program of the round has this in its environment: by it those that stay are found, too."""
        tmp = self.dir / "tmp"
        tmp.mkdir(exist_ok=True)
        return {"SOAK_FAULTS": str(self.words.path), "TMPDIR": str(tmp)}

    def small_disk(self, megabytes):
        self.disk = SmallDisk(self.dir / "disk", megabytes)
        return self.disk

    def started(self, process):
        self.processes.append(process)
        return process

    def wait_any_moment(self, most_ms):
        seconds = self.rng.random() * most_ms / 1000
        self.note(f"waited {seconds * 1000:.1f} ms")
        pause(seconds, "any moment")

    def strike(self, *pids):
        """The fault of this round. Half of those that can be lifted are, after a while; the others
        last until lift_faults()."""
        for pid in pids:
            try:
                lift = strike(self, pid)
            except (ProcessLookupError, FileNotFoundError):
                self.hit = False  # it has ended before
                continue
            if lift:
                self.lifts.append(lift)
        if self.lifts and (self.fault == "stop" or self.rng.random() < 0.5):
            self.wait_any_moment(300)
            self.lift_faults()

    def lift_faults(self):
        while self.lifts:
            with contextlib.suppress(ProcessLookupError):
                self.lifts.pop().lift()

    def running(self):
        return processes_with(f"SOAK_FAULTS={self.words.path}\0".encode())

    def recorders(self):
        return [pid for pid, line in self.running().items() if line.startswith("sonde recorder")]

    def wait_alone(self, seconds=20):
        """Nothing that the round started runs any more."""
        try:
            wait_until(lambda: not self.running(), "", seconds)
        except AssertionError:
            raise Silent(f"left running: {self.running()}") from None

    def check_left_files(self):
        """No file that is there only while something is written."""
        # Deleting takes a descriptor, too; the index of SQLite's log is of no use without the log.
        harmless = ("*-shm",) if self.fault == "descriptors" else ()
        for place in (self.dir, self.short_dir):
            left = [p for name in UNFINISHED for p in place.rglob(name)]
            left = [p for p in left if not any(p.match(name) for name in harmless)]
            require(not left, f"left behind: {', '.join(map(str, left))}")
        tmp = self.dir / "tmp"
        left = list(tmp.iterdir()) if tmp.exists() else []
        left = [p for p in left if not (p.name.startswith("sonde-monitor-") and not any(p.iterdir()))]
        require(not left, f"left in TMPDIR: {', '.join(map(str, left))}")

    def close(self, keep):
        self.lift_faults()
        for pid in self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
            process.wait()
        wait_until(lambda: not self.running(), "the processes of the round to end")
        if self.disk:
            self.disk.take_away(self.dir / "kept" if keep else None)
        shutil.rmtree(self.short_dir, ignore_errors=True)
        if not keep:
            shutil.rmtree(self.dir)


def wait_ended(pid, seconds=20):
    wait_until(lambda: process_state(pid) in "ZX", f"process {pid} to end", seconds)
