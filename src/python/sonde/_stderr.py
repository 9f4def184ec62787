# SPDX-License-Identifier: MulanPSL-2.0
"""A line on stderr from inside the job, which must not notice whether that worked."""

import os
import sys


def describe(why):
    """An exception in words: those of the program may raise another one when they are asked."""
    try:
        return f"{type(why).__name__}: {why}"
    except Exception:
        return type(why).__name__


def line(text):
    """What is in it may come from the program: no control characters, and one line."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    stream = sys.stderr
    try:
        if stream is sys.__stderr__:
            # Past the buffer: what could not be written would stay there, fail once more when
            # the interpreter ends, and become the job's exit status.
            stream.flush()
            os.write(stream.fileno(), (text + "\n").encode("utf-8", "backslashreplace"))
        else:
            print(text, file=stream, flush=True)
    except (OSError, ValueError, AttributeError):
        pass  # closed, or there is none: nothing of this is worth an exception in the job
