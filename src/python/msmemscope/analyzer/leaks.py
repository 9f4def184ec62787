# SPDX-License-Identifier: MulanPSL-2.0
"""Memory that was allocated between two marks and not freed by a third."""

from dataclasses import dataclass
from typing import Optional

from ._findings import Findings
from ._input import Path, check_config, check_number, check_path
from ._program import run


@dataclass
class LeaksConfig:
    """What LeaksAnalyzer reads; a mistake is an exception that says what was expected.

    input_path   a dump (.csv, .db), a recording, or a directory that holds either
    mstx_info    the text of the marks: mstx.mark("round")
    start_index  which of these marks is the first, counted from 0

    >>> LeaksConfig("memscope_dump_1.csv", mstx_info="round", start_index=0)
    """

    input_path: Path
    mstx_info: str
    start_index: int = 0

    def __post_init__(self) -> None:
        self.input_path = check_path(self.input_path)
        if not isinstance(self.mstx_info, str):
            raise TypeError(f"mstx_info must be a str, not {type(self.mstx_info).__name__}")
        if not self.mstx_info.strip():
            raise ValueError("mstx_info must be the text of the marks, and not blank")
        if "\0" in self.mstx_info:
            raise ValueError("mstx_info holds a NUL character")
        self.start_index = check_number("start_index", self.start_index, 0)


class LeaksAnalyzer:
    """Finds what was allocated between marks A and B and not freed by mark C, on each device.

    >>> LeaksAnalyzer().analyze(LeaksConfig("memscope_dump_1.csv", "round"))
    """

    config_class = LeaksConfig

    def __init__(self, config: Optional[LeaksConfig] = None) -> None:
        self.config = config

    def analyze(self, config: Optional[LeaksConfig] = None) -> Findings:
        """Prints the blocks that leaked and gives them back; see check_leaks()."""
        self.config = c = check_config(config or self.config, LeaksConfig)
        words = ["mem", "leaks", f"--mark={c.mstx_info}", f"--start={c.start_index}"]
        words.append("--compat=26.0")  # in the words of msMemScope
        answer = run(words, str(c.input_path))
        found = [
            dict(block, pid=device["pid"], device=device["device"])
            for device in answer["devices"]
            for block in device["allocations"]
        ]
        return Findings(found, answer)


def check_leaks(input_path: Path, mstx_info: str, start_index: int = 0) -> Findings:
    """Find blocks that were allocated between marks A and B and not freed by mark C.

    A, B and C are the marks number start_index and the two that follow, of those whose text is
    mstx_info. Prints what it finds, and gives back a list with one dict for each block: pid,
    device, pool, address, bytes, row (its ID in the dump), time_ns.

    >>> found = msmemscope.check_leaks("memscope_dump_1.csv", mstx_info="round", start_index=0)
    INFO: Starting to analyze data for device 0...
    ...
    >>> [block["bytes"] for block in found]
    [5000]
    """
    return LeaksAnalyzer().analyze(LeaksConfig(input_path, mstx_info, start_index))
