# SPDX-License-Identifier: MulanPSL-2.0
"""The command line: `collect` makes a file out of given times, `diff` compares two files.

    python -m putils.compare_perf collect --event forward:100 --output baseline.json
    python -m putils.compare_perf diff --baseline baseline.json --target target.json

It prints the paths it wrote. Exit status 0; 2 for wrong arguments, 10 if an input is missing, 11
if it is not one of ours, 12 for anything else; the reason is on stderr as ERROR[code].
"""

import argparse
import json
import math
import os
import sys
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._support.commands import (
    EXIT_INVALID_ARGS,
    EXIT_MISSING_INPUT,
    EXIT_OK,
    EXIT_SCHEMA_ERROR,
    CliError,
    Parser,
    run_command,
)
from .align import AlignmentMappingCache, align_modules
from .config import collect_runtime_metadata, make_timestamped_log_filename
from .diff import compute_diff
from .export import export_compare_result, write_json
from .schema import SchemaValidationError, build_schema, empty_alignment, parse_schema


def _positive_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer")
    if value <= 0:
        raise argparse.ArgumentTypeError("must be > 0")
    return value


def _parser() -> Parser:
    parser = Parser(prog="putils.compare_perf", description="Times of two runs, compared.")
    commands = parser.add_subparsers(dest="command", metavar="command (collect or diff)", required=True)

    collect = commands.add_parser("collect", help="make a file out of given times")
    add = collect.add_argument
    add("--event", action="append", required=True, metavar="NAME:MS", help="a scope and its time")
    add("--output", help="the file; without, one with the time in its name in --output-dir")
    add("--output-dir", default=".", help="where the file goes without --output")
    add("--tag", default="collect", help="kept in run_metadata")

    diff = commands.add_parser("diff", help="compare two files")
    add = diff.add_argument
    add("--baseline", required=True, help="the file of the run to compare with")
    add("--target", required=True, help="the file of the run to judge")
    add("--trace-out", help="Chrome timeline of both runs")
    add("--trace-aligned-out", help="Chrome timeline with matched modules side by side")
    add("--trace-aligned-stack-out", help="the same, with the modules inside them")
    add("--summary-json-out", help="the summary")
    add("--summary-md-out", help="the summary as a page")
    add("--output-dir", default=".", help="where files without a name of their own go")
    add("--top-n", type=_positive_int, default=5, help="how many changes the summary names")
    add("--enable-rank-aggregation", action="store_true", help="percentiles over ranks, too")
    add("--alignment-cache", help="file that keeps confirmed pairs")
    add("--mapping", action="append", default=[], metavar="BASELINE=TARGET", help="a confirmed pair")
    return parser


def _event_of(text: str) -> Tuple[str, int]:
    """(name, ns)"""
    wrong = CliError(
        EXIT_INVALID_ARGS,
        f"invalid --event format '{text}': expected <scope_name>:<duration_ms>, more than 0",
    )
    name, colon, duration = text.rpartition(":")
    try:
        ms = float(duration)
    except ValueError:
        raise wrong
    if not colon or not name.strip() or not math.isfinite(ms) or ms <= 0:
        raise wrong
    return name.strip(), max(round(ms * 1e6), 1)


def _mappings_of(texts: Sequence[str]) -> Dict[str, str]:
    found = {}
    for text in texts:
        left, equals, right = (part.strip() for part in text.partition("="))
        if not equals or not left or not right:
            raise CliError(
                EXIT_INVALID_ARGS,
                f"invalid --mapping format '{text}': expected <baseline_module>=<target_module>",
            )
        found[left] = right
    return found


def _collected(specs: Sequence[str], tag: str) -> Dict[str, Any]:
    metadata = collect_runtime_metadata()
    events: List[Dict[str, Any]] = []
    summary: Dict[str, Dict[str, Any]] = {}
    now = 0
    for name, ns in map(_event_of, specs):
        events.append(
            {
                "name": name,
                "start_ns": now,
                "end_ns": now + ns,
                "pid": metadata["pid"],
                "tid": 0,
                "process_name": metadata["device"],
                "thread_name": "main",
                "args": {"source": "collect_cli"},
            }
        )
        row = summary.setdefault(name, {"call_count": 0, "total_ns": 0})
        row["call_count"] += 1
        row["total_ns"] += ns
        row["total_seconds"] = row["total_ns"] / 1e9
        now += ns
    metadata.update(source="compare_perf_cli_collect", tag=tag)
    return build_schema(events, metadata, empty_alignment(), summary)


def _collect(args: argparse.Namespace) -> int:
    payload = _collected(args.event, args.tag)
    path = args.output or make_timestamped_log_filename(output_dir=args.output_dir)
    write_json(path, payload)
    print(path)
    return EXIT_OK


def _load(path: str) -> Mapping[str, Any]:
    if not os.path.isfile(path):
        raise CliError(EXIT_MISSING_INPUT, f"missing input log: {path}")
    try:
        with open(path, encoding="utf-8") as f:
            payload = json.load(f)
    except OSError as why:
        raise CliError(EXIT_MISSING_INPUT, f"missing input log: {path}: {why.strerror}")
    except (ValueError, RecursionError) as why:
        raise CliError(EXIT_SCHEMA_ERROR, f"invalid json in input log {path}: {why}")
    try:
        return parse_schema(payload)
    except SchemaValidationError as why:
        raise CliError(EXIT_SCHEMA_ERROR, f"incompatible schema in input log {path}: {why}")


def _summary_of(payload: Mapping[str, Any], label: str) -> Mapping[str, Mapping[str, Any]]:
    for name, row in payload["summary"].items():
        numbers = [row.get(k, 0) for k in ("total_ns", "call_count")] if isinstance(row, dict) else []
        if not numbers or not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
            raise CliError(EXIT_SCHEMA_ERROR, f"invalid summary of '{name}' in {label}")
    return payload["summary"]


def _ranks_of(payload: Mapping[str, Any], label: str) -> Optional[Mapping[str, Any]]:
    found = payload["run_metadata"].get("rank_summary")
    if found is None:
        return None
    lists = list(found.values()) if isinstance(found, dict) else [None]
    for times in lists:
        if not isinstance(times, list) or not all(type(t) in (int, float, dict) for t in times):
            raise CliError(EXIT_SCHEMA_ERROR, f"invalid run_metadata.rank_summary in {label}")
    return found


def _events_of(payload: Mapping[str, Any], label: str, pid: int) -> List[Dict[str, Any]]:
    found = []
    for index, event in enumerate(payload["events"]):
        where = f"invalid event in {label} at index {index}"
        if not isinstance(event, dict):
            raise CliError(EXIT_SCHEMA_ERROR, f"{where}: expected an object")
        for field in ("name", "start_ns", "end_ns"):
            if field not in event:
                raise CliError(EXIT_SCHEMA_ERROR, f"{where}: missing field '{field}'")
        for field in ("start_ns", "end_ns"):
            if type(event[field]) is not int:
                raise CliError(EXIT_SCHEMA_ERROR, f"{where}: field '{field}' is not an integer")
        if not isinstance(event["name"], str) or not event["name"]:
            raise CliError(EXIT_SCHEMA_ERROR, f"{where}: field 'name' is not a name")
        if event["end_ns"] < event["start_ns"]:
            raise CliError(EXIT_SCHEMA_ERROR, f"{where}: it ends before it starts")
        tid = event.get("tid", 0)
        found.append(
            {
                "name": event["name"],
                "start_ns": event["start_ns"],
                "end_ns": event["end_ns"],
                "pid": pid,
                "tid": tid if type(tid) is int else 0,
                "process_name": label,
                "thread_name": str(event.get("thread_name") or "main"),
                "args": {"origin": label},
            }
        )
    return found


def _diff(args: argparse.Namespace) -> int:
    mappings = _mappings_of(args.mapping)
    baseline, target = _load(args.baseline), _load(args.target)
    base_summary, target_summary = _summary_of(baseline, "baseline"), _summary_of(target, "target")
    events = _events_of(baseline, "baseline", 1) + _events_of(target, "target", 2)
    alignment = align_modules(
        left_modules=list(base_summary),
        right_modules=list(target_summary),
        confirmed_mappings=mappings or None,
        cache=AlignmentMappingCache(args.alignment_cache) if args.alignment_cache else None,
    )
    ranks = args.enable_rank_aggregation
    diff = compute_diff(
        alignment=alignment,
        baseline_summary=base_summary,
        target_summary=target_summary,
        baseline_rank_summary=_ranks_of(baseline, "baseline") if ranks else None,
        target_rank_summary=_ranks_of(target, "target") if ranks else None,
        enable_rank_aggregation=ranks,
    )
    names = (
        ("trace_json_path", args.trace_out, "compare_perf_trace.json"),
        ("aligned_trace_json_path", args.trace_aligned_out, "compare_perf_trace_aligned.json"),
        (
            "aligned_stack_trace_json_path",
            args.trace_aligned_stack_out,
            "compare_perf_trace_aligned_stack.json",
        ),
        ("summary_json_path", args.summary_json_out, "compare_perf_summary.json"),
        ("summary_md_path", args.summary_md_out, "compare_perf_summary.md"),
    )
    paths = {key: given or os.path.join(args.output_dir, name) for key, given, name in names}
    export_compare_result(
        timeline_events=events,
        alignment=alignment,
        diff_result=diff,
        config_echo={
            "baseline": args.baseline,
            "target": args.target,
            "top_n": args.top_n,
            "enable_rank_aggregation": ranks,
        },
        top_n=args.top_n,
        **paths,
    )
    for path in paths.values():
        print(path)
    return EXIT_OK


def run_cli(argv: Optional[Sequence[str]] = None) -> int:
    """The work of main(); errors are CliError.

    >>> run_cli(["collect", "--event", "forward:100", "--output", "baseline.json"])
    baseline.json
    0
    """
    args = _parser().parse_args(argv)
    return _collect(args) if args.command == "collect" else _diff(args)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The exit status.

    >>> main(["diff", "--baseline", "none.json", "--target", "none.json"])
    10
    """
    return run_command(run_cli, argv)


if __name__ == "__main__":
    sys.exit(main())
