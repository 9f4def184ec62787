# SPDX-License-Identifier: MulanPSL-2.0
"""The workbook of a comparison, and the command line."""

import argparse
import itertools
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .. import _differences, _files, _lines, _messages
from .._lines import Entry
from .._support.commands import (
    EXIT_MISSING_INPUT,
    EXIT_OK,
    EXIT_SCHEMA_ERROR,
    CliError,
    Parser,
    run_command,
)
from .._support.xlsx import MAX_ROWS, ColorScale, Sheet, workbook
from .._tensors import NOT_WANTED
from .matching import Match, Rule, diff_pct, load_rules, match_entries

PARSED_HEADER = [
    "name", "hash", "dtype", "shape", "l1_norm", "mean", "sum", "max", "min", "size", "is_nan",
    "tensor_preview",
]  # fmt: skip
STATISTICS = _differences.COMPARED
COMPARISON_HEADER = (
    ["base_name", "target_name", "match_type", "base_row", "target_row", "hash_match", "shape_match"]
    + [f for s in STATISTICS for f in (f"base_{s}", f"target_{s}", f"{s}_diff_pct")]
    + ["base_hash", "target_hash", "base_shape", "target_shape"]
)
SCALE = ((0, "FF63BE7B"), (0.3, "FFFFEB84"), (0.7, "FFF8696B"))  # percent: green, yellow, red


def comparison_row(match: Match, base: Sequence[Entry], target: Sequence[Entry]) -> List[Any]:
    """A row of COMPARISON_HEADER.

    >>> comparison_row(match_entries(base, target)[0], base, target)
    """
    a = base[match.base] if match.base is not None else None
    b = target[match.target] if match.target is not None else None
    row: List[Any] = [
        (a or b).name,
        (b or a).name,
        match.kind,
        None if match.base is None else match.base + 1,
        None if match.target is None else match.target + 1,
        bool(a and b and a.md5 == b.md5 and a.md5 != NOT_WANTED),
        bool(a and b and a.shape == b.shape),
    ]
    for name in STATISTICS:
        left, right = (e.values.get(name) if e else None for e in (a, b))
        row += [left, right, diff_pct(left, right)]
    row += [e.md5 if e else None for e in (a, b)]
    return row + [e.shape if e else None for e in (a, b)]


def _parsed_row(e: Entry) -> List[Any]:
    row: List[Any] = [e.name, e.md5, e.dtype, e.shape]
    return row + [e.values.get(s) for s in STATISTICS] + [e.size, e.is_nan, _preview(e.first)]


def _preview(first: str) -> str:
    """At most ten values of the line."""
    inside = first.strip()[1:-1] if first.strip().startswith("[") else ""
    return "[" + ", ".join(v.strip() for v in inside.split(",")[:10] if v.strip()) + "]"


def _comparison_sheet(name: str, rows: List[List[Any]]) -> Sheet:
    columns = [i for i, title in enumerate(COMPARISON_HEADER) if title.endswith("_diff_pct")]
    return Sheet(name, [COMPARISON_HEADER] + rows, [ColorScale(c, SCALE) for c in columns])


class Log(NamedTuple):
    """A log under the name that its sheets have."""

    name: str
    entries: List[Entry]


def read_log(path: str) -> List[Entry]:
    """The tensors of a log, in their order; lines that are none are skipped.

    >>> read_log("base.log")[0].name
    '[forward]: embed inputs'
    """
    return _lines.read_log(path)


def _pairs(logs: Sequence[Log], two: bool) -> Iterator[Tuple[Log, Log, str, str]]:
    """(base, target, name of their sheet, of the sheet with mapped rows)"""
    for a, b in itertools.combinations(logs, 2):
        ending = f"_{a.name}_{b.name}"
        yield (a, b, "comparison", "compare_map") if two else (a, b, f"cmp{ending}", f"cmpmap{ending}")


def build_sheets(logs: Sequence[Log], rules: Sequence[Rule] = (), two: bool = False) -> List[Sheet]:
    """All sheets of the workbook; `two`: under the names that a comparison of two logs has.

    >>> build_sheets([Log("a", read_log("a.log")), Log("b", read_log("b.log"))])
    """
    sheets = [
        Sheet(f"{log.name}_parsed", [PARSED_HEADER] + [_parsed_row(e) for e in log.entries])
        for log in logs
    ]
    for a, b, name, mapped_name in _pairs(logs, two):
        matches = match_entries(a.entries, b.entries, rules)
        rows = [comparison_row(m, a.entries, b.entries) for m in matches]
        sheets.append(_comparison_sheet(name, rows))
        if rules:
            mapped = [row for row, m in zip(rows, matches) if m.kind == "mapped"]
            sheets.append(_comparison_sheet(mapped_name, mapped))
    return sheets


def compare_logs(
    logs: Dict[str, str], output: str, mapping: Sequence[str] = (), two: bool = False
) -> List[str]:
    """Reads the logs {name: path}, writes the workbook, and returns what there is to say about it.
    OSError or ValueError if that is not possible.

    >>> print("\\n".join(compare_logs({"a": "a.log", "b": "b.log"}, "out.xlsx")))
    """
    read, rules = _read_inputs(logs, mapping)
    return _write_workbook(read, rules, output, two)


def _read_inputs(logs: Dict[str, str], mapping: Sequence[str]) -> Tuple[List[Log], List[Rule]]:
    rules = [rule for path in mapping for rule in load_rules(path)]
    read = [Log(name, read_log(path)) for name, path in logs.items()]
    for log in read:
        if not log.entries:
            raise ValueError(f"'{logs[log.name]}' holds no lines of tprint()")
    return read, rules


def _write_workbook(
    read: Sequence[Log], rules: Sequence[Rule], output: str, two: bool
) -> List[str]:
    sheets = build_sheets(read, rules, two)
    _files.replace_ours(output, workbook(sheets))
    said = [f"Wrote Excel comparison file: {output}"]
    for sheet in sheets:
        if len(sheet.rows) > MAX_ROWS:
            said.append(f"'{sheet.name}' has the first {MAX_ROWS - 1} of {len(sheet.rows) - 1} rows")
    said.append("Parsed entries - " + ", ".join(f"{log.name}: {len(log.entries)}" for log in read))
    by_name = {sheet.name: sheet for sheet in sheets}
    for a, b, name, mapped_name in _pairs(read, two):
        label = "" if two else f"{a.name} and {b.name}: "
        if rules:
            count = len(by_name[mapped_name].rows) - 1
            said.append(f"{label}{count} pairs matched by {len(rules)} rules")
        said.append(label + _first_difference(a.entries, b.entries, by_name[name].rows[1:]))
    return [_messages.plain(line) for line in said]


def _first_difference(a: List[Entry], b: List[Entry], rows: Sequence[Sequence[Any]]) -> str:
    """In the order of the first log, of rows that belong together."""
    equal = 0
    for row in rows:
        if row[3] is None or row[4] is None:
            continue
        left, right = a[row[3] - 1], b[row[4] - 1]
        if not _differences.same(left, right):
            return (
                f"The logs first differ at '{left.name}', row {row[3]} of {len(a)}: "
                f"{_differences.explain(left, right)}."
            )
        equal += 1
    return f"{_differences.count(equal, 'pair')}, all equal." if equal else "No tensor is in both logs."


def _options(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = Parser(prog="putils.compare_hooks", description="Logs of tprint() and of hooks as a workbook.")
    add = parser.add_argument
    add("--base-log", help="the log to compare with")
    add("--target-log", help="the log to judge")
    add("--logs", nargs="+", metavar="NAME=PATH", help="two logs or more, each with each")
    add("--output", required=True, help="the workbook")
    add("--mapping", nargs="+", default=[], help="files with rules for names that differ")
    args = parser.parse_args(argv)
    if args.logs and (args.base_log or args.target_log):
        parser.error("give --base-log and --target-log, or --logs")
    if not args.logs and not (args.base_log and args.target_log):
        parser.error("give --base-log and --target-log, or --logs")
    for item in args.logs or []:
        if not re.match(r"[^=]+=.", item):
            parser.error(f"--logs: '{item}' is not NAME=PATH")
    names = [item.split("=", 1)[0] for item in args.logs or []]
    if len(set(names)) < len(names):
        parser.error("--logs: each log needs a name of its own")
    return args


def run_cli(argv: Optional[Sequence[str]] = None) -> int:
    """The work of main(); errors are CliError, OSError where the workbook cannot be written.

    >>> run_cli(["--base-log", "a.log", "--target-log", "b.log", "--output", "out.xlsx"])
    0
    """
    args = _options(argv)
    if args.logs:
        logs = dict(item.split("=", 1) for item in args.logs)
    else:
        logs = {"base": args.base_log, "target": args.target_log}
    try:
        read, rules = _read_inputs(logs, args.mapping)
    except OSError as why:
        raise CliError(EXIT_MISSING_INPUT, _messages.words(why)) from None
    except ValueError as why:
        raise CliError(EXIT_SCHEMA_ERROR, _messages.words(why)) from None
    for line in _write_workbook(read, rules, args.output, two=not args.logs):
        print(line)
    return EXIT_OK


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command line. Exit status: 0; 2 for wrong options, 10 if a log or a file of rules cannot be
    read, 11 if it is not one, 12 for anything else. The reason is on stderr as ERROR[status].

    >>> main(["--base-log", "a.log", "--target-log", "b.log", "--output", "out.xlsx"])
    0
    """
    return run_command(run_cli, argv)
