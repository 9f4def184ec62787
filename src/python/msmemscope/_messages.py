# SPDX-License-Identifier: MulanPSL-2.0
"""Messages, in the form that users of msmemscope know. On stderr: stdout is the job's."""

from sonde._stderr import describe, line  # noqa: F401


def quoted(path):
    """As a word of a shell."""
    if all(c.isalnum() or c in "./_-~+,:@%" for c in path):
        return path
    return "'" + path.replace("'", "'\\''") + "'"


def _messages(kind, text):
    line(f"[msmemscope] {kind}: {text}")


def info(text):
    _messages("Info", text)


def warn(text):
    _messages("Warn", text)


_said = set()


def info_once(text):
    if text not in _said:
        _said.add(text)
        info(text)


def warn_once(text):
    if text not in _said:
        _said.add(text)
        warn(text)


def error(text):
    _messages("Error", text)
