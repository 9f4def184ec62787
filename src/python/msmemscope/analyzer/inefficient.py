# SPDX-License-Identifier: MulanPSL-2.0
"""Memory that was held while nobody used it."""

from dataclasses import dataclass
from typing import List, Optional, Sequence, Union

from ._findings import Findings
from ._input import Path, check_config, check_number, check_path
from ._program import run

TYPES = ("early_allocation", "late_deallocation", "temporary_idleness")


def _check_types(given: Optional[Union[str, Sequence[str]]]) -> List[str]:
    types = TYPES if given is None else [given] if isinstance(given, str) else given
    if not isinstance(types, (list, tuple)) or not types or any(t not in TYPES for t in types):
        raise ValueError(
            f"inefficient_type must be one or several of {', '.join(TYPES)}, not {given!r}"
        )
    return [t for t in TYPES if t in types]


@dataclass
class InefficientConfig:
    """What InefficientAnalyzer reads; a mistake is an exception that says what was expected.

    input_path        a dump (.csv, .db), a recording, or a directory that holds either
    mem_size          blocks that are smaller, in bytes, are passed over
    inefficient_type  "early_allocation", "late_deallocation", "temporary_idleness": one, or a list;
                      all of them if left out
    idle_threshold    a block is idle if more than so many calls lie between two uses

    >>> InefficientConfig("memscope_dump_1.csv", mem_size=1 << 20)
    """

    input_path: Path
    mem_size: int = 0
    inefficient_type: Optional[Union[str, Sequence[str]]] = None
    idle_threshold: int = 3000

    def __post_init__(self) -> None:
        self.mem_size = check_number("mem_size", self.mem_size, 0)
        self.idle_threshold = check_number("idle_threshold", self.idle_threshold, 1)
        self.inefficient_type = _check_types(self.inefficient_type)
        self.input_path = check_path(self.input_path, writable=True)


class InefficientAnalyzer:
    """Finds blocks that were allocated too early, freed too late, or left idle in between.

    >>> InefficientAnalyzer().analyze(InefficientConfig("memscope_dump_1.csv"))
    """

    config_class = InefficientConfig

    def __init__(self, config: Optional[InefficientConfig] = None) -> None:
        self.config = config

    def analyze(self, config: Optional[InefficientConfig] = None) -> Findings:
        """Prints what was wasted where, marks the rows of the dump; see check_inefficient()."""
        self.config = c = check_config(config or self.config, InefficientConfig)
        words = [
            "mem",
            "inefficient",
            f"--mem-size={c.mem_size}",
            f"--type={','.join(_check_types(c.inefficient_type))}",
            f"--idle-threshold={c.idle_threshold}",
        ]
        answer = run(words, str(c.input_path))
        return Findings(answer["places"], answer)


def check_inefficient(
    input_path: Path,
    mem_size: int = 0,
    inefficient_type: Optional[Union[str, Sequence[str]]] = None,
    idle_threshold: int = 3000,
) -> Findings:
    """Find memory that was held while nobody used it.

    The MALLOC rows of such blocks get the attribute `inefficient` in the dump itself; a recording
    is not changed. Prints what was wasted where, and gives back a list with one dict for each
    place: kind, pid, device, pool, blocks, bytes, at_peak_bytes, python_stack, c_stack, examples.

    >>> found = msmemscope.check_inefficient("memscope_dump_1.csv", mem_size=1 << 20,
    ...                                      inefficient_type="late_deallocation")
    >>> sum(place["at_peak_bytes"] for place in found)
    786432
    """
    config = InefficientConfig(input_path, mem_size, inefficient_type, idle_threshold)
    return InefficientAnalyzer().analyze(config)
