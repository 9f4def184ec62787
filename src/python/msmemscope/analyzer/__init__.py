# SPDX-License-Identifier: MulanPSL-2.0
"""Analyses of what was recorded. Needs neither torch nor a device.

>>> from msmemscope import analyzer
>>> analyzer.list_analyzers()
['leaks', 'inefficient']
>>> found = analyzer.check_leaks("memscope_dump_1.csv", mstx_info="round", start_index=0)

Every function takes a dump (.csv or .db), a recording, or a directory that holds either. It prints
what it found and gives it back as a list of dicts. The work is done by the program `sonde`:
`sonde mem leaks`, `sonde mem inefficient`.
"""

from ._findings import Findings
from ._registry import analyze, get_analyzer_config, list_analyzers
from .inefficient import InefficientAnalyzer, InefficientConfig, check_inefficient
from .leaks import LeaksAnalyzer, LeaksConfig, check_leaks

__all__ = [
    "Findings",
    "InefficientAnalyzer",
    "InefficientConfig",
    "LeaksAnalyzer",
    "LeaksConfig",
    "analyze",
    "check_inefficient",
    "check_leaks",
    "get_analyzer_config",
    "list_analyzers",
]
