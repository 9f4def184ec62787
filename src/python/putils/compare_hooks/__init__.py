# SPDX-License-Identifier: MulanPSL-2.0
"""Logs of tprint() and of a model's hooks as a workbook: a sheet for each log, and one for each two
of them with the differences in percent.

    python -m putils.compare_hooks --base-log base.log --target-log target.log --output out.xlsx
    python -m putils.compare_hooks --logs a=a.log b=b.log c=c.log --mapping rules.json --output out.xlsx

Modules that are called differently in two programs are matched by rules: a JSON list of
{"base": regular expression, "target": its name there, with \\1 to \\9}. It prints where the runs
first differ. `python -m putils.accuracy` prints only that.
"""

from .matching import Match, Rule, diff_pct, load_rules, match_entries, target_names
from .report import (
    COMPARISON_HEADER,
    PARSED_HEADER,
    Log,
    build_sheets,
    compare_logs,
    comparison_row,
    main,
    read_log,
)

__all__ = [
    "COMPARISON_HEADER",
    "Log",
    "Match",
    "PARSED_HEADER",
    "Rule",
    "build_sheets",
    "compare_logs",
    "comparison_row",
    "diff_pct",
    "load_rules",
    "main",
    "match_entries",
    "read_log",
    "target_names",
]
