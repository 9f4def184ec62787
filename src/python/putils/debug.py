# SPDX-License-Identifier: MulanPSL-2.0
"""Debuggers, and what of a model is frozen.

    from putils.debug import vscode_gdb

    vscode_gdb()        # waits until VS Code is attached

The debugger listens on loopback only: whoever can reach it can run code in the job. From another
machine use `ssh -L 23325:127.0.0.1:23325 host`.
"""

import errno
import fcntl
import os
import socket
import sys
from typing import Any, Optional

from . import _files, _job, _messages, pprint

__all__ = ["bk", "freeze_print", "is_port_in_use", "vscode_gdb"]

HOST = "127.0.0.1"

_held = []  # lock files, for as long as the process lives


def freeze_print(model: Any) -> None:
    """Print of each parameter whether it is trained.

    >>> freeze_print(model)
    layer.weight: requires_grad=True
    """
    try:
        lines = [f"{n}: requires_grad={p.requires_grad}" for n, p in model.named_parameters()]
    except Exception as why:
        _messages.warn(
            f"freeze_print: no parameters in {type(model).__name__}: {_messages.words(why)}"
        )
        return
    pprint.log_or_print("\n".join(lines) or f"{type(model).__name__} has no parameters")


def is_port_in_use(port: int) -> bool:
    """Whether somebody listens on a port of this machine.

    >>> is_port_in_use(23325)
    False
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as why:
            if why.errno in (errno.EADDRINUSE, errno.EACCES):
                return True
            raise
        except OverflowError:
            raise ValueError(f"there is no port {port}: expected 0 to 65535")
        return False


def _free_port(start: int, end: int) -> Optional[int]:
    for port in range(max(1, start), min(end, 65535) + 1):
        if not is_port_in_use(port):
            return port
    return None


def _lock(path: str) -> Any:
    """The lock, held; None if another process holds it. Where another user has taken the name, a
    name of our own."""
    for name in (path, f"{path}.{os.geteuid()}"):
        try:
            file = _files.open_ours(name)
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            file.close()
            return None
    raise PermissionError(f"'{path}' belongs to another user")


def vscode_gdb(
    start_port: int = 23325, end_port: int = 24000, lock_file: str = "/tmp/debugpy.lock"
) -> Optional[int]:
    """Wait for VS Code in one process; the others, which do not get the lock, go on.

    Listens on the first free port of loopback. Returns the port, or None if this process goes on
    without a debugger, which is said with the reason.

    >>> vscode_gdb()
    23325
    """
    rank = _job.rank()
    try:
        import debugpy

        lock = _lock(lock_file)
        if lock is None:
            pprint._print(f"[rank {rank}] another process waits for the debugger; going on")
            return None
        port = _free_port(start_port, end_port)
        if port is None:
            lock.close()
            _messages.warn(f"no debugger: every port from {start_port} to {end_port} is in use")
            return None
        _held.append(lock)
        debugpy.listen((HOST, port))
        pprint._print(f"[rank {rank}] waiting for the debugger on {HOST}:{port}")
        debugpy.wait_for_client()
        return port
    except ImportError:
        _messages.warn("no debugger: the package debugpy is not installed")
    except Exception as why:
        _messages.warn(f"no debugger: {_messages.words(why)}")
    return None


def _can_ask() -> bool:
    """Whether somebody can type: stdin is open, and is not /dev/null."""
    try:
        return not os.path.samestat(os.fstat(sys.stdin.fileno()), os.stat(os.devnull))
    except (OSError, ValueError, AttributeError):
        return False


def bk() -> None:
    """A breakpoint on rank 0 (or where there are no ranks) in the line that calls it.

    >>> bk()
    """
    if _job.rank() > 0:
        return
    if sys.breakpointhook is not sys.__breakpointhook__ or os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook()
        return
    if not _can_ask():
        _messages.warn_once("bk() is passed over: there is nobody at stdin. Use vscode_gdb()")
        return
    import pdb

    pdb.Pdb().set_trace(sys._getframe().f_back)
