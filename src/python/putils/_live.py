# SPDX-License-Identifier: MulanPSL-2.0
"""Two running processes that compare the tensors they print, over a socket between them.

Each sends a line for each tensor and compares the lines that it receives with its own: nobody
waits for the other. The first one to come listens; both check that the other one is of the same
user. The socket lies in a folder that only this user can enter.
"""

import collections
import fcntl
import json
import os
import re
import socket
import struct
import tempfile
import threading
import time
from typing import Any, Dict, Optional, Tuple

from . import _differences, _files, _job, _lines, _messages
from ._lines import Entry
from ._tensors import Summary

MAX_LINE = 1 << 16
MAX_WAITING = 1 << 20  # entries of one side that the other one has not come to
_SEND_S = 10  # as long as this one may be stopped, before the other one goes on alone


def _open_folder() -> int:
    """The folder of this user's sockets, as a descriptor: names below it are short, and nobody can
    put another folder in its place."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = os.path.join(base, f"putils_{os.geteuid()}")
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        os.close(fd)
        raise PermissionError(f"'{folder}' is not ours alone")
    return fd


def _check_peer(peer: socket.socket) -> None:
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid not in (os.geteuid(), 0):
        raise PermissionError(f"the other process belongs to user {uid}")


def _meet(path: str, seconds: float) -> Tuple[socket.socket, bool]:
    """A connection with the other process, and whether this one came first."""
    until = time.monotonic() + seconds
    with _files.open_ours(path + ".lock") as lock:
        while True:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                peer.connect(path)
                return peer, False
            except (FileNotFoundError, ConnectionRefusedError):
                peer.close()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return _wait_for_other(path, until), True
            except BlockingIOError:  # the other one is about to listen, or to accept
                if time.monotonic() >= until:
                    raise TimeoutError("another process listens and does not answer")
                time.sleep(0.02)


def _wait_for_other(path: str, until: float) -> socket.socket:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        if os.path.exists(path):
            os.unlink(path)  # of a process that has ended: we hold the lock
        listener.bind(path)
        try:
            listener.listen(1)
            listener.settimeout(max(0.1, until - time.monotonic()))
            peer, _ = listener.accept()
        finally:
            os.unlink(path)
    return peer


def _entry_of(text: bytes) -> Optional[Entry]:
    """What the other process sent; ValueError if it makes no sense, None at its end."""
    line = json.loads(text.decode("utf-8"))
    if not isinstance(line, dict):
        raise ValueError("a line that is no object")
    if "end" in line:
        return None
    values = {
        k: float(v) if isinstance(v, (int, float)) else None
        for k, v in dict(line["values"]).items()
    }
    words = [str(line[k]) for k in ("name", "md5", "dtype", "shape")]
    return Entry(words[0], words[1], words[2], words[3], values, bool(line["nan"]), 0)


class LiveComparison:
    """A comparison under way; see putils.accuracy.compare_live()."""

    def __init__(self, name: str, timeout: float, tolerance: float) -> None:
        self.difference: Optional[_differences.Difference] = None
        self.compared = 0
        self.problem = ""  # why nothing is compared, if so
        self._tolerance, self._timeout = tolerance, timeout
        self._lock = threading.Lock()  # of what was compared
        self._sending = threading.Lock()  # taken first; the receiving thread never waits for it
        # Of each side: entries that the other one has not come to, and how often names occurred.
        self._waiting: Tuple[Dict, Dict] = ({}, {})
        self._seen = (collections.Counter(), collections.Counter())
        self._sent, self._first = 0, True
        self._ended = threading.Event()
        self._peer: Optional[socket.socket] = None
        try:
            folder = _open_folder()
            try:
                path = f"/proc/self/fd/{folder}/{_safe(name)}_rank{_job.rank()}.sock"
                self._peer, self._first = _meet(path, timeout)
            finally:
                os.close(folder)
            _check_peer(self._peer)
            wait = struct.pack("ll", _SEND_S, 0)
            self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
            self._peer.setblocking(True)
            threading.Thread(target=self._receive, name="putils live", daemon=True).start()
        except (OSError, ValueError) as why:
            timed_out = isinstance(why, (socket.timeout, TimeoutError))
            reason = f"nobody came within {timeout:g} s" if timed_out else _messages.words(why)
            self._stop(f"nothing is compared with '{name}': {reason}")

    def __enter__(self) -> "LiveComparison":
        from . import pprint

        if not self.problem:
            pprint._listeners.append(self._send)
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _stop(self, problem: str) -> None:
        if not self.problem:
            self.problem = problem
            _messages.warn(problem)
        self._ended.set()

    def _send(self, summary: Summary) -> None:
        """A tensor of this process was printed."""
        if self.problem or self._peer is None:
            return
        entry = _lines.read_line(_lines.write(summary).split("\n")[0])
        if entry is None:
            return
        entry = entry._replace(md5=summary.md5)
        text = {
            "name": entry.name,
            "md5": entry.md5,
            "dtype": entry.dtype,
            "shape": entry.shape,
            "values": entry.values,
            "nan": entry.is_nan,
        }
        with self._sending:
            with self._lock:
                self._sent += 1
                self._put(0, entry, self._sent)
            self._write(text)

    def _write(self, text: dict) -> None:
        line = json.dumps(text).encode() + b"\n"
        try:
            if len(line) <= MAX_LINE and self._peer is not None:
                self._peer.sendall(line)
        except OSError as why:
            if not self._ended.is_set():
                self._stop(f"the other process takes nothing more: {_messages.words(why)}")

    def _receive(self) -> None:
        peer = self._peer
        try:
            assert peer is not None
            with peer.makefile("rb") as lines:
                while True:
                    text = lines.readline(MAX_LINE + 1)
                    entry = _entry_of(text) if text else None
                    if entry is None:
                        break
                    with self._lock:
                        self._put(1, entry, 0)
            if not text:
                self._stop("the other process has ended in the middle of the comparison")
        except (OSError, ValueError, KeyError, TypeError, AssertionError) as why:
            if not self._ended.is_set():
                self._stop(f"the other process cannot be understood: {_messages.words(why)}")
        self._ended.set()

    def _put(self, side: int, entry: Entry, number: int) -> None:
        key = (entry.name, self._seen[side][entry.name])
        self._seen[side][entry.name] += 1
        other = self._waiting[1 - side].pop(key, None)
        if other is None:
            if len(self._waiting[side]) < MAX_WAITING:
                self._waiting[side][key] = (entry, number)
            return
        self.compared += 1
        pair = [(entry, number), other]
        (own, at), (far, _) = pair if side == 0 else pair[::-1]
        if self.difference is None and not _differences.same(own, far, self._tolerance):
            self._report(own, far, at)

    def _report(self, own: Entry, far: Entry, at: int) -> None:
        a, b = (own, far) if self._first else (far, own)
        words = (
            f"The runs first differ at '{own.name}', the {_differences.ordinal(at)} tensor: "
            f"{_differences.explain(a, b)}. The {self.compared - 1} compared before it are equal."
        )
        words = _messages.plain(words)
        self.difference = _differences.Difference(own.name, at, self.compared - 1, words)
        _messages.warn(words)

    def close(self) -> None:
        """The end of this side; waits for the other one, no longer than `timeout`."""
        from . import pprint

        if self._send in pprint._listeners:
            pprint._listeners.remove(self._send)
        peer = self._peer
        if peer is None:
            return
        with self._sending:
            self._write({"end": self._sent})
        if not self._ended.wait(self._timeout):
            self._stop(f"the other process has not ended within {self._timeout:g} s")
        with self._lock:
            self._peer = None
            peer.close()
            left = [len(w) for w in self._waiting]
        if not self.problem and self.difference is None and any(left):
            name = next(iter(self._waiting[0] or self._waiting[1]))[0]
            words = f"'{_messages.plain(name)}' is in one of the runs alone; what both have is equal."
            self.difference = _differences.Difference(name, self._sent, self.compared, words)
            _messages.warn(words)


def _safe(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z_.-]+", "_", name)[:60]
