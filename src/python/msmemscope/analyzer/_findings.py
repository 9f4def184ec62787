# SPDX-License-Identifier: MulanPSL-2.0
"""What the analyses return."""

from typing import Any, Dict, Iterable, Optional


class Findings(list):
    """What an analysis found: a list of dicts, the same that `--json` of the program gives.

    answer  everything beside the findings: totals, notes, what was read

    >>> found = msmemscope.check_leaks("memscope_dump_1.csv", "round", 0)
    >>> sum(block["bytes"] for block in found)
    5000
    >>> found.answer["failed"]
    False
    """

    def __init__(
        self, found: Iterable[Dict[str, Any]] = (), answer: Optional[Dict[str, Any]] = None
    ) -> None:
        super().__init__(found)
        self.answer: Dict[str, Any] = dict(answer or {})

    def __repr__(self) -> str:
        """Short: what was found has been printed, and an interactive session shows this, too."""
        return f"<{len(self)} finding{'' if len(self) == 1 else 's'}>"
