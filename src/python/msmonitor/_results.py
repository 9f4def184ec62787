# SPDX-License-Identifier: MulanPSL-2.0
"""The files of a Monitor: in a directory that no other user can read, removed with the program."""

import itertools
import json
import os
import shutil
import subprocess
import tempfile
from typing import Any, Iterator, List

from . import _records

SUFFIX = ".xlsx"
LINES_AT_ONCE = 1024
DIRECTORY_MODE = 0o750
FILE_MODE = 0o640
# What would make our program part of the job.
NOT_FOR_PROGRAMS = ("LD_PRELOAD", "SONDE_SESSION", "MSMEMSCOPE_CONFIG_PATH")


class Results:
    """What one window of a monitor has written."""

    def __init__(self) -> None:
        self.dir = os.path.abspath(tempfile.mkdtemp(prefix="msmonitor_"))  # 0700
        self._owner = os.getpid()

    def is_ours(self) -> bool:
        """In a forked process it is the parent's, and goes on there."""
        return os.getpid() == self._owner

    def remove(self) -> None:
        if self.is_ours():
            shutil.rmtree(self.dir, ignore_errors=True)

    def files(self) -> List[str]:
        """In the order in which they were written: the time is in the name."""
        try:
            names = sorted(n for n in os.listdir(self.dir) if n.endswith(".jsonl"))
        except OSError:
            return []
        return [os.path.join(self.dir, name) for name in names]

    def empty_file(self) -> str:
        """For who needs one where nothing has happened."""
        path = os.path.join(self.dir, "empty.jsonl")
        with open(path, "a"):
            return path

    def records(self) -> Iterator[Any]:
        """(kind, record) of every activity."""
        for path in self.files():
            with open(path, encoding="utf-8", errors="replace", newline="\n") as lines:
                for chunk in iter(lambda: list(itertools.islice(lines, LINES_AT_ONCE)), []):
                    if not chunk[-1].endswith("\n"):
                        chunk.pop()  # it is being written
                    # As one text: the parser then makes each key once, and is twice as fast.
                    for line in json.loads(f"[{','.join(chunk)}]"):
                        found = _records.from_line(line)
                        if found is not None:
                            yield found


def _make_directory(path: str) -> None:
    """With everything above it. What is there already stays as it is."""
    if path and not os.path.isdir(path):
        _make_directory(os.path.dirname(path))
        os.mkdir(path)
        os.chmod(path, DIRECTORY_MODE)  # whatever the umask


def _export(files: List[str], out: str) -> None:
    """By our program; RuntimeError with its words if it cannot."""
    import sonde

    command = [sonde.program(), "activity", "export", *files, "--format", "xlsx", "-o", out]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if k not in NOT_FOR_PROGRAMS},
    )
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip()
        raise RuntimeError(words or f"'sonde activity export' ended with {done.returncode}")


def save(results: Results, path: str) -> str:
    """The workbook, where it is to be; OSError or RuntimeError say why there is none.

    It is written beside and put in place when it is complete, so that readers never see half of it and
    what is there is never written through: neither a link nor somebody's open file.
    """
    path = os.path.abspath(path if path.endswith(SUFFIX) else path + SUFFIX)
    if os.path.islink(path):
        raise OSError(f"'{path}' is a symbolic link: not written through")
    if os.path.isdir(path):
        raise OSError(f"'{path}' is a directory")
    directory, name = os.path.split(path)
    _make_directory(directory)
    fd, beside = tempfile.mkstemp(prefix=".msmonitor_", suffix=SUFFIX, dir=directory)
    os.close(fd)
    try:
        _export(results.files() or [results.empty_file()], beside)
        os.chmod(beside, FILE_MODE)
        os.replace(beside, path)
    except BaseException:
        try:
            os.unlink(beside)
        except OSError:
            pass
        raise
    return path
