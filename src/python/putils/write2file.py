# SPDX-License-Identifier: MulanPSL-2.0
"""Log files of each rank and thread."""

import os
import threading

from . import _files, _job, _messages

FOLDER = "/tmp"

_open = threading.local()


def log_path(prefix: str = "") -> str:
    """The log of this thread: /tmp/<prefix>_rank<r>_tid<ident>[_<log_tag>].log.

    >>> log_path("grads")
    '/tmp/grads_rank0_tid139872.log'
    """
    words = [str(prefix)] if prefix else []
    words += [f"rank{_job.rank()}", f"tid{threading.get_ident()}"]
    words += [_job.log_tag()] if _job.log_tag() else []
    return os.path.join(FOLDER, "_".join(words).replace(os.sep, "_") + ".log")


def log2file(content: object, prefix: str = "") -> None:
    """Append a line to the log of this thread, which stays open until another one is used.

    A log that cannot be written is said once, and never raised.

    >>> log2file("step 3 begins", "train")
    """
    path = log_path(prefix)
    try:
        file = _log(path)
        file.write(f"{content}\n")
        file.flush()
    except (OSError, ValueError) as why:
        _open.path = None
        _messages.warn_once(f"the log '{path}' cannot be written: {_messages.words(why)}")


def _log(path):
    """The open file; opened again where somebody has removed it, and after a fork."""
    key = (path, os.getpid())
    if getattr(_open, "path", None) == key and os.fstat(_open.file.fileno()).st_nlink:
        return _open.file
    _open.file = _files.open_ours(path)
    _open.path = key
    return _open.file
