# SPDX-License-Identifier: MulanPSL-2.0
"""What may be analysed, and what is said about it."""

import os
import stat
from typing import Any, Tuple, Union

from .. import _messages

SUFFIXES = (".csv", ".db", ".sonde")

Path = Union[str, "os.PathLike[str]"]


def _said(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()


def check_path(path: Path, writable: bool = False, suffixes: Tuple[str, ...] = SUFFIXES) -> str:
    """The path as text, if there is something to read; an exception that says what is wrong."""
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"input_path must be a str, not {type(text).__name__}")
    if not text:
        raise FileNotFoundError("input_path must name a dump or a recording")
    if "\0" in text:
        raise ValueError("input_path holds a NUL character")
    try:
        st = os.stat(text)  # an OSError if it is too long
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no '{_said(text)}'") from None
    kind = stat.S_IFMT(st.st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise FileNotFoundError(f"'{_said(text)}' is neither a file nor a directory")
    if kind == stat.S_IFREG and not text.endswith(suffixes):
        raise ValueError(f"'{_said(text)}' does not end in {' or '.join(suffixes)}")
    if not os.access(text, os.R_OK):
        raise PermissionError(f"'{_said(text)}' cannot be read")
    if writable and kind == stat.S_IFREG and not os.access(text, os.W_OK):
        raise PermissionError(f"'{_said(text)}' cannot be written, and its rows are to be marked")
    _warn_about(text, st)
    return text


def _warn_about(path: str, st: os.stat_result) -> None:
    me = os.geteuid()
    if me != 0 and st.st_uid != me:
        _messages.warn(
            f"'{_said(path)}' is not owned by the current user. Please confirm it is trusted."
        )
    if st.st_mode & stat.S_IWOTH:
        _messages.warn(
            f"'{_said(path)}' can be modified by other users. Please confirm it is trusted."
        )


def check_number(name: str, value: int, least: int) -> int:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an int of {least} or more, not {value!r}")
    return int(value)


def check_config(config: Any, wanted: type) -> Any:
    if config is None:
        raise TypeError(f"analyze() needs a {wanted.__name__}")
    if not isinstance(config, wanted):
        raise TypeError(f"analyze() needs a {wanted.__name__}, not {type(config).__name__}")
    return config
