# SPDX-License-Identifier: MulanPSL-2.0
"""What the kill matrix does to a process, and how that ends again.

Signals and limits are the kernel's own. Failing disks and allocations are in tests/soak/faults.c, which
only our own programs contain: the job's calls never fail by it.
"""

import errno
import mmap
import os
import pathlib
import resource
import signal
import struct
import subprocess

# What faults.c calls them.
WORDS = {"write": 1, "short": 2, "sync": 3, "malloc": 4}
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
ON_OWN = (*SIGNALS, "stop", *WORDS, "descriptors", "memory")
ON_JOB = (*SIGNALS, "stop", "descriptors", "memory")


class Words:
    """The file that faults.c reads while our programs run."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.write_bytes(bytes(mmap.PAGESIZE))
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), mmap.PAGESIZE)

    def set(self, fault, error=0, every=1):
        struct.pack_into("<4I", self.map, 4, error, every, 0, self.failed)
        struct.pack_into("<I", self.map, 0, fault)

    @property
    def failed(self):
        """Calls that failed so far."""
        return struct.unpack_from("<I", self.map, 16)[0]


def lowest_free(pid):
    """The descriptor that the next open() of a process would give it."""
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return next(n for n in range(len(used) + 1) if n not in used)


def address_space(pid):
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0])
    return pages * mmap.PAGESIZE


class Limit:
    """A soft limit of a running process, until it is lifted."""

    def __init__(self, pid, kind, value):
        self.pid, self.kind = pid, kind
        self.before = resource.prlimit(pid, kind)
        resource.prlimit(pid, kind, (value, self.before[1]))

    def lift(self):
        resource.prlimit(self.pid, self.kind, self.before)


class Stop:
    def __init__(self, pid):
        self.pid = pid
        os.kill(pid, signal.SIGSTOP)

    def lift(self):
        os.kill(self.pid, signal.SIGCONT)


class Armed:
    def __init__(self, words, rng, fault):
        self.words = words
        error = errno.ENOMEM if fault == "malloc" else rng.choice((errno.EIO, errno.ENOSPC))
        words.set(WORDS[fault], error, rng.choice((1, 1, 2, 3, 7, 40)))

    def lift(self):
        self.words.set(0)


def strike(round, pid):
    """Does round.fault to the process; gives what lifts it again, None where nothing can."""
    fault, rng = round.fault, round.rng
    if fault in SIGNALS:
        os.kill(pid, SIGNALS[fault])
        return None
    if fault == "stop":
        return Stop(pid)
    if fault == "descriptors":
        return Limit(pid, resource.RLIMIT_NOFILE, lowest_free(pid) + rng.choice((0, 0, 1, 2)))
    if fault == "memory":
        more = rng.choice((0, 0, 65536, 1 << 20))
        return Limit(pid, resource.RLIMIT_AS, address_space(pid) + more)
    return Armed(round.words, rng, fault)


class SmallDisk:
    """A file system of a few MiB that somebody else fills up. Needs a mount namespace of our own."""

    def __init__(self, path, megabytes):
        self.path = path
        path.mkdir()
        options = f"size={megabytes}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], check=True)

    def fill(self, leave):
        """All but so many bytes."""
        free = os.statvfs(self.path)
        n = max(free.f_bavail * free.f_bsize - leave, 0)
        with open(self.path / "filler", "wb") as f:
            try:
                os.posix_fallocate(f.fileno(), 0, max(n, 1))
            except OSError as e:
                if e.errno != errno.ENOSPC:
                    raise

    def lift(self):
        (self.path / "filler").unlink(missing_ok=True)

    def grow(self):
        """Room for everything: what is checked afterwards is not the size of the disk."""
        self.lift()
        subprocess.run(["mount", "-o", "remount,size=512m", self.path], check=True)

    def take_away(self, kept):
        """Its files stay for who looks into a failure."""
        if kept:
            subprocess.run(["cp", "-a", f"{self.path}/.", kept], check=False)
        subprocess.run(["umount", "-l", self.path], check=True)
