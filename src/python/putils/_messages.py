# SPDX-License-Identifier: MulanPSL-2.0
"""Messages to the user of putils, on stderr. What cannot be said is not worth an exception in the
training loop."""

import os
import sys

_said = set()
# C0 without the tab, DEL, C1, and the two separators of lines that are not among them.
_CONTROL = dict.fromkeys(
    [n for n in (*range(32), *range(127, 160), 0x2028, 0x2029) if n != ord("\t")], "?"
)


def plain(text: object) -> str:
    """Text of a file that may be anybody's, as one line that does nothing to a terminal.

    >>> plain("a\\x1b[2Jb\\n")
    'a?[2Jb?'
    """
    return str(text).translate(_CONTROL)


def warn(text: str) -> None:
    """One line, past the buffer: what could not be written would fail once more at exit."""
    stream = sys.stderr
    text = plain(text)
    try:
        if stream is sys.__stderr__:
            stream.flush()
            line = f"[putils] {text}\n"
            os.write(stream.fileno(), line.encode("utf-8", "backslashreplace"))
        else:
            print(f"[putils] {text}", file=stream, flush=True)
    except (OSError, ValueError, AttributeError):
        pass  # closed, or there is none


def warn_once(text: str, about: str = "") -> None:
    """`about`: what is said once only, where the text has numbers in it that change."""
    key = about or text
    if key not in _said:
        _said.add(key)
        warn(text)


def words(error: BaseException) -> str:
    """An exception in one line."""
    text = str(error).strip()
    return plain(text.splitlines()[0]) if text else type(error).__name__
