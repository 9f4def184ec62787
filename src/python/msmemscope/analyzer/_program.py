# SPDX-License-Identifier: MulanPSL-2.0
"""Runs our program over an input: its words go to stdout, its answer comes back."""

import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Dict, List

import sonde

from .. import _messages

SLOW_S = 2
KILL_S = 5
FAILED = 1  # its exit status where a question could not be answered; the answer says so


def _environment() -> Dict[str, str]:
    """Ours, without what would make the program part of the job."""
    drop = ("LD_PRELOAD", "SONDE_SESSION", "MSMEMSCOPE_CONFIG_PATH")
    return {k: v for k, v in os.environ.items() if k not in drop}


def _wait(child: "subprocess.Popen[bytes]", path: str) -> None:
    """Until it has ended. A line on a terminal if that takes long; an interrupt ends it."""
    try:
        try:
            child.wait(SLOW_S)
        except subprocess.TimeoutExpired:
            if sys.stderr is not None and sys.stderr.isatty():
                _messages.info(f"reading '{path}' …")
            child.wait()
    except BaseException:
        child.terminate()
        try:
            child.wait(KILL_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise


def _words(f: Any) -> str:
    f.seek(0)
    return f.read().decode("utf-8", "replace")


def run(words: List[str], path: str) -> Dict[str, Any]:
    """`sonde <words> path`: prints what it prints, gives its answer. ValueError: the input is no
    dump, or damaged; FileNotFoundError: a directory has none; RuntimeError: it was killed."""
    # Files and not pipes: nothing has to read while it runs.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with tempfile.TemporaryFile() as answer:
            fd = answer.fileno()
            child = subprocess.Popen(
                [sonde.program(), *words, f"--json-file=/proc/self/fd/{fd}", "--", path],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                pass_fds=[fd],
                env=_environment(),
            )
            _wait(child, path)
            print(_words(out), end="", flush=True)
            answered = _words(answer)
        complaint = _words(err).strip()
    if not answered.strip() or child.returncode not in (0, FAILED):
        how = f"exit status {child.returncode}"
        kind = FileNotFoundError if os.path.isdir(path) else ValueError
        kind = RuntimeError if child.returncode < 0 else kind
        raise kind(complaint or f"'sonde {' '.join(words)} {path}' failed: {how}")
    if complaint:
        raise ValueError(complaint)
    return json.loads(answered)
