# SPDX-License-Identifier: MulanPSL-2.0
"""Opening the files that putils writes. Their names can be guessed and /tmp belongs to everybody,
so a file that another user has prepared is refused: no links, no FIFOs, our own files alone."""

import os
import stat
from typing import IO, Optional


def _check(fd: int, path: str) -> None:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"'{path}' is not a file")
    if found.st_uid != os.geteuid():
        raise PermissionError(f"'{path}' belongs to user {found.st_uid}, not to us")
    if found.st_nlink > 1:
        raise PermissionError(f"'{path}' has other names, so that it may be somebody else's")


def open_ours(path: str, mode: str = "a") -> IO:
    """open() for "a", "w", "ab", "wb" and "w+b" that refuses what another user has prepared.

    >>> with open_ours("/tmp/putils.log") as f:
    ...     f.write("one line")
    """
    flags = os.O_RDWR if "+" in mode else os.O_WRONLY
    flags |= os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    flags |= os.O_APPEND if "a" in mode else 0
    fd = os.open(path, flags, 0o640)
    try:
        _check(fd, path)
        os.set_blocking(fd, True)
        if "w" in mode:
            os.ftruncate(fd, 0)
        if "b" in mode:
            return os.fdopen(fd, mode)
        return os.fdopen(fd, mode, encoding="utf-8", errors="backslashreplace")
    except BaseException:
        os.close(fd)
        raise


def open_regular(path: str, ours: bool = False) -> IO:
    """A file for reading, in bytes: never a FIFO or a device, which could keep a reader for ever.

    >>> with open_regular("run.log") as f:
    ...     f.read(1)
    b"'"
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if ours:
            _check(fd, path)
        elif not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"'{path}' is not a file")
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def _enter(level: str, above: int, links: int, mode: Optional[int]) -> str:
    """One level of a path, made if it is missing and there is a mode. In a place for everybody (`above`
    is its mode) it must be ours, which makes it stay what it is; elsewhere nobody but its owner and
    his group may change it."""
    try:
        found = os.lstat(level)
    except FileNotFoundError:
        if mode is None:
            raise
        try:
            os.mkdir(level, mode)
        except FileExistsError:
            pass
        found = os.lstat(level)
    link = stat.S_ISLNK(found.st_mode)
    # A link with two names may have been brought here by somebody else.
    foreign = found.st_uid not in (0, os.geteuid()) or (link and found.st_nlink > 1)
    if foreign and above & stat.S_IWOTH and (link or above & stat.S_ISVTX):
        raise PermissionError(f"'{level}' lies in a folder for everybody and is not ours")
    if link:
        return _resolve(os.path.join(os.path.dirname(level), os.readlink(level)), links + 1, mode)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"'{level}' is not a folder")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        if found.st_uid != os.geteuid():
            raise PermissionError(f"everybody may rename what is in '{level}', which is not ours")
    return level


def _resolve(path: str, links: int, mode: Optional[int]) -> str:
    if links > 20:
        raise OSError(f"'{path}' leads through too many links")
    level = "/"
    # Not abspath(): what is above a link's folder is not what is above the link.
    for part in os.path.join(os.getcwd(), path).split("/"):
        if part == "..":
            level = os.path.dirname(level)
        elif part and part != ".":
            above = os.stat(level).st_mode
            level = _enter(os.path.join(level, part), above, links, mode)
    return level


def make_folder(path: str, mode: int = 0o750) -> str:
    """The folder, made with this mode if it is missing. Refused where another user could exchange it:
    one in a place for everybody (/tmp), or a link there, must be ours."""
    _resolve(path or ".", 0, mode)
    return path or "."


def check_folder(path: str) -> str:
    """The folder, refused as by make_folder(); FileNotFoundError if it is missing."""
    _resolve(path or ".", 0, None)
    return path or "."


def replace_ours(path: str, content: bytes) -> None:
    """Writes a whole file in one step: readers see the old one or the new one."""
    mine = f"{path}.{os.getpid()}.new"
    with open_ours(mine, "wb") as f:
        f.write(content)
    try:
        os.replace(mine, path)
    except OSError:
        os.unlink(mine)
        raise


def make_private_folder(path: str) -> str:
    """A folder for us alone, made if it is missing. Refused if it belongs to another user or others
    may write to it; one of ours that others may read is closed to them.

    >>> make_private_folder("/tmp/burn_locks_1000")
    '/tmp/burn_locks_1000'
    """
    if os.path.islink(path):
        raise PermissionError(f"'{path}' is a link: it may lead to a folder that is for others, too")
    make_folder(path, 0o700)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid != os.geteuid():
            raise PermissionError(f"'{path}' belongs to user {found.st_uid}, not to us")
        if mode & 0o022:
            raise PermissionError(f"others may write to '{path}' (mode {mode:o}); remove it, or chmod 700")
        if mode & 0o077:
            os.fchmod(fd, 0o700)
    finally:
        os.close(fd)
    return path
