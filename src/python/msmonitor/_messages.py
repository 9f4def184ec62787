# SPDX-License-Identifier: MulanPSL-2.0
"""Messages: on stderr, and, where $MSMONITOR_LOG_PATH is set, in a file of each process below
$MSMONITOR_LOG_PATH/msmonitor_log. What cannot be said is not worth an exception in the job."""

import os
import time

from sonde._stderr import line

LOG_ENV = "MSMONITOR_LOG_PATH"
MAX_LOG_BYTES = 16 << 20

_said = set()


def _log(kind, text):
    """One line with a time, of one write: processes do not mix theirs."""
    folder = os.environ.get(LOG_ENV)
    if not folder:
        return
    try:
        folder = os.path.join(folder, "msmonitor_log")
        os.makedirs(folder, mode=0o750, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(os.path.join(folder, f"msmonitor_{os.getpid()}.log"), flags, 0o640)
        try:
            if os.fstat(fd).st_size < MAX_LOG_BYTES:
                line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {kind}: {text}\n"
                os.write(fd, line.encode("utf-8", "backslashreplace"))
        finally:
            os.close(fd)
    except (OSError, ValueError):
        pass


def _messages(kind, text):
    line(f"[msmonitor] {kind}: {text}")
    _log(kind, text)


def info(text):
    """Only into the log: stderr is for what somebody should do something about."""
    _log("Info", text)


def warn(text):
    _messages("Warn", text)


def warn_once(text):
    if text not in _said:
        _said.add(text)
        warn(text)


def error(text):
    _messages("Error", text)


def error_once(text):
    if text not in _said:
        _said.add(text)
        error(text)
