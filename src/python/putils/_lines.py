# SPDX-License-Identifier: MulanPSL-2.0
"""The two lines that putils prints about a tensor: written, and read again."""

import re
from typing import IO, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _files
from ._tensors import QUANTILES, Summary

GIB = 1 << 30
MD5_DIGITS = 6


def write(s: Summary) -> str:
    """Both lines. Scripts read them: fields keep their order and their names."""
    quantiles = " | ".join(f"q{q} {v}" for q, v in zip(QUANTILES, s.quantiles))
    name = s.name.replace("\n", " ")
    is_nan = s.nans if isinstance(s.nans, str) else s.nans > 0
    md5 = s.md5 if " " in s.md5 else s.md5[:MD5_DIGITS]
    return (
        f"'{name}'| l1_norm {s.l1} | {md5} | {s.dtype} | {s.shape} | continue: {s.contiguous}"
        f" | mean {s.mean} | sum {s.sum} | max {s.max} | min {s.min} | {quantiles}"
        f" | Size {s.size} | Memory size: {s.bytes / GIB:.2f} GB | isNan {is_nan}"
        + (f" | {s.note}" if s.note else "")
        + f"\n{s.first}"
    )


class Entry(NamedTuple):
    """A line of a log. Numbers are None where the log has a word in their place."""

    name: str
    md5: str
    dtype: str
    shape: str
    values: Dict[str, Optional[float]]  # l1_norm, mean, sum, max, min and quantiles, by name
    is_nan: bool
    line: int  # in the log, from 1 on
    size: Optional[int] = None  # how many elements
    first: str = ""  # the line of first values below it, as it stands there


LINE_MOST = 16384  # longer lines are no entries: a log may be anybody's
LINE_BYTES = 4 * LINE_MOST + 1  # of UTF-8
_FIELD = re.compile(r"(l1_norm|mean|sum|max|min|q0\.\d+) (.*)")


def _number(text: str) -> Optional[float]:
    try:
        return {"True": 1.0, "False": 0.0}[text] if text in ("True", "False") else float(text)
    except ValueError:
        return None


def _split_name(text: str) -> Optional[Tuple[str, str]]:
    """The name between the first quote and the last one that fields follow, and these fields. Logs of
    older versions have no l1_norm."""
    begin, end = text.find("'"), len(text)
    while 0 <= begin < end:
        end = text.rfind("'|", begin + 1, end)
        if end < 0:
            break
        after = text[end + 2 :].split("|", 2)
        if after[0].startswith(" l1_norm ") or (
            len(after) == 3 and after[0].strip() and after[1].strip().startswith("torch.")
        ):
            return text[begin + 1 : end], text[end + 2 :]
    return None


def read_line(text: str, number: int = 0) -> Optional[Entry]:
    """The entry of a log's line; None: it is none. Lines without quantiles are read, too.

    >>> read_line("'loss'| l1_norm 2.0 | 3f2a1c | torch.float32 | torch.Size([1]) | ...").md5
    '3f2a1c'
    """
    found = _split_name(text) if len(text) <= LINE_MOST else None
    if not found:
        return None
    fields = [f.strip() for f in found[1].split(" | ")]
    values: Dict[str, Optional[float]] = {}
    for field in fields:
        match = _FIELD.fullmatch(field)
        if match:
            values[match.group(1)] = _number(match.group(2))
    at = int(fields[0].startswith("l1_norm "))
    md5, dtype, shape = (fields[at : at + 3] + ["", "", ""])[:3]
    size = next((f[5:] for f in fields if re.fullmatch(r"Size \d+", f)), None)
    elements = int(size) if size is not None else None
    return Entry(
        found[0], md5, dtype, shape, values, "isNan True" in fields, number, elements
    )


def split(file: IO[bytes]) -> Iterator[str]:
    """The lines of a file; one that is too long is empty. No more than LINE_BYTES of it are held."""
    while True:
        data = file.readline(LINE_BYTES)
        if not data:
            return
        whole = len(data) < LINE_BYTES or data.endswith(b"\n")
        yield data.decode("utf-8", "replace").rstrip("\r\n") if whole else ""
        while not whole:
            data = file.readline(LINE_BYTES)
            whole = len(data) < LINE_BYTES or data.endswith(b"\n")


def read_log(path: str) -> List[Entry]:
    """All entries of a log in their order. OSError if it cannot be read."""
    entries = []
    with _files.open_regular(path) as lines:
        for number, text in enumerate(split(lines), 1):
            entry = read_line(text, number)
            if entry:
                entries.append(entry)
            elif entries and entries[-1].line == number - 1 and text.startswith("["):
                entries[-1] = entries[-1]._replace(first=text)
    return entries
