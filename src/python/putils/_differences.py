# SPDX-License-Identifier: MulanPSL-2.0
"""Where two runs first differ, in words: from their logs, from dumped tensors, or live."""

import glob
import inspect
import os
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from . import _files, _lines, _messages
from ._lines import Entry
from ._tensors import NOT_WANTED

COMPARED = ("l1_norm", "mean", "sum", "max", "min")
ORDER_FILE = "putils_order.txt"  # beside dumped tensors: their names in the order of the dumps
_LEAST = 1e-10


class Difference(NamedTuple):
    """The first tensor that is not the same in both runs."""

    name: str
    number: int  # its place among the tensors of the first run, from 1 on
    before: int  # tensors before it that are equal
    words: str  # the answer, for people


def percent(a: float, b: float) -> float:
    """How far two numbers are apart, in percent of the larger one."""
    return abs(a - b) / max(abs(a), abs(b), _LEAST) * 100


def _apart(a: Entry, b: Entry) -> List[Tuple[str, Any, Any, float]]:
    """The values that differ: (name, of a, of b, percent)."""
    found = []
    for name in COMPARED:
        left, right = a.values.get(name), b.values.get(name)
        if left is None or right is None or left == right or (left != left and right != right):
            continue
        far = percent(left, right)
        found.append((name, left, right, far if far == far else float("inf")))
    return found


def same(a: Entry, b: Entry, tolerance: float = 0.0) -> bool:
    """Whether two entries are of equal tensors, or of almost equal ones: to so many percent."""
    if a.shape != b.shape or a.is_nan != b.is_nan:
        return False
    unknown = NOT_WANTED in (a.md5, b.md5)
    if a.md5 == b.md5 and not unknown:
        return True
    return (tolerance > 0 or unknown) and all(far <= tolerance for _, _, _, far in _apart(a, b))


def ordinal(n: int) -> str:
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def _rounded(far: float) -> str:
    return f"{far:.0f}" if far >= 10 else f"{far:.2g}"


def explain(a: Entry, b: Entry) -> str:
    """What is different in two entries."""
    if a.shape != b.shape:
        return f"its shape is {a.shape} in the first run and {b.shape} in the second"
    if a.is_nan != b.is_nan:
        which = "first" if a.is_nan else "second"
        return f"it holds NaN in the {which} run alone"
    parts = [f"{n} {x:g} and {y:g} ({_rounded(far)} %)" for n, x, y, far in _apart(a, b)]
    if a.dtype != b.dtype:
        parts.insert(0, f"{a.dtype} and {b.dtype}")
    return ", ".join(parts) or f"its checksums are {a.md5} and {b.md5}, its statistics are equal"


def keys(entries: List[Entry]) -> List[Tuple[str, int]]:
    """Names, each with how often it occurred before: what entries of two runs are matched by."""
    seen: Dict[str, int] = {}
    found = []
    for e in entries:
        found.append((e.name, seen.get(e.name, 0)))
        seen[e.name] = seen.get(e.name, 0) + 1
    return found


_MODULE = re.compile(r"(\[(?:forward|backward)\]: \S+) (?:\[B=\S+\] )?(input|output)(.*)")


def _inputs_are_equal(at: int, first: List[Entry], key: Tuple[str, int]) -> str:
    """A sentence, where the inputs of the module whose output differs were printed too."""
    match = _MODULE.fullmatch(key[0])
    if not match or match.group(2) != "output":
        return ""
    start = match.group(1) + " input"
    for entry in reversed(first[max(0, at - 64) : at]):
        if entry.name.startswith(start):
            return " The inputs of this module are equal: the difference arises in it."
    return ""


def first_of(
    first: List[Entry], second: List[Entry], tolerance: float = 0.0
) -> Optional[Difference]:
    """The first entry of the first run that differs in the second; None: there is none."""
    there = dict(zip(keys(second), second))
    missing, equal = [], 0
    for at, (key, a) in enumerate(zip(keys(first), first)):
        b = there.pop(key, None)
        if b is None:
            missing.append((at, key, a))
        elif same(a, b, tolerance):
            equal += 1
        else:
            words = (
                f"The runs first differ at '{a.name}', the {ordinal(at + 1)} of "
                f"{count(len(first), 'tensor')}: {explain(a, b)}."
                + (f" {count(equal, 'tensor')} before it: equal." if equal else "")
                + (f" {len(missing)} before it: in the first run alone." if missing else "")
                + _inputs_are_equal(at, first, key)
            )
            return Difference(a.name, at + 1, equal, _messages.plain(words))
    if missing or there:
        return _one_sided(missing, there, equal, len(first))
    return None


def _one_sided(missing: list, there: dict, equal: int, total: int) -> Difference:
    if missing:
        at, _, a = missing[0]
        name, number, which, n = a.name, at + 1, "first", len(missing)
    else:
        (name, _), number, which, n = next(iter(there)), total + 1, "second", len(there)
    words = (
        f"'{name}' is in the {which} run alone"
        + (f", as are {n - 1} more" if n > 1 else "")
        + f"; the {count(equal, 'tensor')} that both runs have are equal."
        if equal
        else f"The runs have no tensor in common: '{name}' is in the {which} run alone."
    )
    return Difference(name, number, equal, _messages.plain(words))


# Reading


def _rank_of(path: str) -> int:
    match = re.search(r"(?:^|_)rank(-?\d+)_", os.path.basename(path))
    return int(match.group(1)) if match else -1


def _read_logs(folder: str) -> List[Entry]:
    """The logs of a folder. A run has several: one of each rank and thread, and gradients are
    computed in a thread of their own."""
    logs = []
    for path in glob.glob(os.path.join(glob.escape(folder), "*.log")):
        entries = _lines.read_log(path)
        if entries:
            backward = entries[0].name.startswith("[backward]")
            logs.append((_rank_of(path), backward, path, entries))
    ranks = {rank for rank, _, _, _ in logs}
    found = []
    for rank, _, _, entries in sorted(logs, key=lambda log: log[:3]):
        label = f"rank {rank}: " if len(ranks) > 1 else ""
        found += [e._replace(name=label + e.name) for e in entries]
    return found


def _dump_names(folder: str) -> List[str]:
    """Of files with tensors, in the order in which they were dumped."""
    names = [n for n in os.listdir(folder) if n.endswith(".pt")]
    try:
        with _files.open_regular(os.path.join(folder, ORDER_FILE)) as lines:
            order = {line.strip(): i for i, line in enumerate(_lines.split(lines))}
    except OSError:
        order = {}
    when = {n: os.stat(os.path.join(folder, n)).st_mtime_ns for n in names}
    return sorted(names, key=lambda n: (order.get(n, len(order)), when[n], n))


def _load(path: str) -> Any:
    import torch

    with _files.open_regular(path) as f:
        # Asked of torch, not of the file: what a file makes torch raise must not lead to the
        # loader that runs what the file says.
        if "weights_only" in inspect.signature(torch.load).parameters:
            return torch.load(f, map_location="cpu", weights_only=True)
        if os.fstat(f.fileno()).st_uid != os.geteuid():
            raise PermissionError("this torch could run what is in it, and it is another user's")
        return torch.load(f, map_location="cpu")


def _read_dump(path: str, number: int) -> Optional[Entry]:
    from . import _tensors

    try:
        held = _load(path)
        tensor = held["tensor"] if isinstance(held, dict) else held
        if not _tensors.is_tensor(tensor):
            raise ValueError("there is no tensor in it")
        name = held.get("name") if isinstance(held, dict) else None
        phase = held.get("phase") if isinstance(held, dict) else None
    except Exception as why:
        _messages.warn(f"'{path}' is left out: {_messages.words(why)}")
        return None
    label = f"{name} ({phase})" if name else os.path.basename(path)[: -len(".pt")]
    (s,) = _tensors.Reading(tensor, label).summaries()
    line = _lines.read_line(_lines.write(s).split("\n")[0], number)
    return line._replace(md5=s.md5) if line else None


def _read_dumps(folder: str) -> Iterator[Entry]:
    for number, name in enumerate(_dump_names(folder), 1):
        entry = _read_dump(os.path.join(folder, name), number)
        if entry:
            yield entry


def read(path: str) -> List[Entry]:
    """The entries of a log, or of a folder with logs or dumped tensors. ValueError if there are
    none, OSError if it cannot be read."""
    if not os.path.isdir(path):
        entries = _lines.read_log(path)
    elif any(n.endswith(".pt") for n in os.listdir(path)):
        entries = list(_read_dumps(path))
    else:
        entries = _read_logs(path)
    if not entries:
        raise ValueError(f"'{path}' holds no lines of tprint() and no dumped tensors")
    return entries
