# SPDX-License-Identifier: MulanPSL-2.0
"""Files of a comparison: three Chrome timelines and a summary, in JSON and in Markdown.

    >>> build_chrome_trace([{"name": "forward", "start_ns": 0, "end_ns": 5000}])["displayTimeUnit"]
    'us'
"""

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .. import _files
from .aligned import aligned_events, aligned_stack_events
from .report import build_summary, render_summary_markdown

__all__ = [
    "build_aligned_chrome_trace",
    "build_aligned_stack_chrome_trace",
    "build_chrome_trace",
    "build_summary",
    "export_compare_result",
    "render_summary_markdown",
    "write_json",
]

DEFAULT_PID, DEFAULT_TID = 1, 0


def write_json(path: "os.PathLike[str]", payload: Mapping[str, Any]) -> None:
    """In one step, with the folder above it.

    >>> write_json("logs/summary.json", {"a": 1})
    """
    text = json.dumps(payload, indent=2, sort_keys=True, ensure_ascii=False)
    write_text(path, text)


def write_text(path: "os.PathLike[str]", text: str) -> None:
    path = os.fspath(path)
    _files.make_folder(os.path.dirname(path))
    _files.replace_ours(path, text.encode("utf-8", "backslashreplace"))


def _checked(event: Any, index: int) -> Dict[str, Any]:
    """The event with all its fields; ValueError names what is wrong with it."""
    where = f"malformed timeline event at index {index}"
    if not isinstance(event, Mapping):
        raise ValueError(f"{where}: expected an object")
    for field in ("name", "start_ns", "end_ns"):
        if field not in event:
            raise ValueError(f"{where}: missing required field '{field}'")
    if not isinstance(event["name"], str) or not event["name"]:
        raise ValueError(f"{where}: 'name' must be a non-empty string")
    found = {"name": event["name"], "args": event.get("args") or {}}
    numbers = {"pid": DEFAULT_PID, "tid": DEFAULT_TID, **event}
    for field in ("start_ns", "end_ns", "pid", "tid"):
        if isinstance(numbers[field], bool) or not isinstance(numbers[field], int):
            raise ValueError(f"{where}: '{field}' must be an integer")
        found[field] = numbers[field]
    if found["end_ns"] < found["start_ns"]:
        raise ValueError(f"{where}: end_ns is before start_ns")
    if not isinstance(found["args"], Mapping):
        raise ValueError(f"{where}: 'args' must be an object")
    found["process_name"] = event.get("process_name") or f"process {found['pid']}"
    found["thread_name"] = event.get("thread_name") or "main"
    return found


def _metadata(events: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    processes: Dict[int, str] = {}
    threads: Dict[Tuple[int, int], str] = {}
    for e in events:
        processes.setdefault(e["pid"], e["process_name"])
        threads.setdefault((e["pid"], e["tid"]), e["thread_name"])
    found: List[Dict[str, Any]] = []
    for pid, name in sorted(processes.items()):
        row = {"name": "process_name", "ph": "M", "pid": pid, "ts": 0, "args": {"name": name}}
        found.append(row)
    for (pid, tid), name in sorted(threads.items()):
        row = {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "ts": 0}
        found.append({**row, "args": {"name": name}})
    return found


def build_chrome_trace(timeline_events: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """A Chrome timeline: names of processes and threads, then B and E in the order of time.

    At one moment ends come before beginnings, the longer of two beginnings and the end of the
    later one first, so that spans stay inside one another. A span without length is its B and E
    one after the other.

    >>> trace = build_chrome_trace([{"name": "a", "start_ns": 1000, "end_ns": 3000}])
    >>> [(e["ph"], e["ts"]) for e in trace["traceEvents"] if e["ph"] != "M"]
    [('B', 1), ('E', 3)]
    """
    events = [_checked(event, i) for i, event in enumerate(timeline_events)]
    keyed: List[Tuple[Tuple[int, ...], Dict[str, Any]]] = []
    for i, e in enumerate(events):
        start, end, place = e["start_ns"], e["end_ns"], (e["pid"], e["tid"])
        row = {"name": e["name"], "pid": e["pid"], "tid": e["tid"]}
        begin = {**row, "ph": "B", "ts": start // 1000, "args": dict(e["args"])}
        ending = {**row, "ph": "E", "ts": end // 1000, "args": {}}
        if start == end:
            keyed += [((*place, start, 2, i, 0), begin), ((*place, end, 2, i, 1), ending)]
        else:
            keyed.append(((*place, start, 1, -end, i), begin))
            keyed.append(((*place, end, 0, -start, -i), ending))
    keyed.sort(key=lambda k: k[0])
    return {
        "traceEvents": _metadata(events) + [event for _, event in keyed],
        "displayTimeUnit": "us",
    }


def build_aligned_chrome_trace(
    alignment: Mapping[str, Any], diff_result: Mapping[str, Any], slot_gap_us: int = 0
) -> Dict[str, Any]:
    """Matched pairs side by side: pid 1 is the baseline, pid 2 the target; each pair begins where
    the longer one of the pair before it ends.

    >>> build_aligned_chrome_trace({"matched": []}, {"modules": []})["traceEvents"]
    []
    """
    return build_chrome_trace(aligned_events(alignment, diff_result, slot_gap_us))


def build_aligned_stack_chrome_trace(
    timeline_events: Sequence[Mapping[str, Any]],
    alignment: Mapping[str, Any],
    diff_result: Mapping[str, Any],
    slot_gap_us: int = 0,
) -> Dict[str, Any]:
    """The same with the modules inside each pair, aligned once more.

    >>> build_aligned_stack_chrome_trace([], {"matched": []}, {"modules": []})["traceEvents"]
    []
    """
    events = [
        {**event, **_checked(event, i), "process_name": event.get("process_name")}
        for i, event in enumerate(timeline_events)
    ]
    return build_chrome_trace(aligned_stack_events(events, alignment, diff_result, slot_gap_us))


def export_compare_result(
    timeline_events: Sequence[Mapping[str, Any]],
    alignment: Mapping[str, Any],
    diff_result: Mapping[str, Any],
    config_echo: Mapping[str, Any],
    trace_json_path: str,
    summary_json_path: str,
    summary_md_path: str,
    aligned_trace_json_path: Optional[str] = None,
    aligned_stack_trace_json_path: Optional[str] = None,
    top_n: int = 5,
) -> Dict[str, Any]:
    """Writes the files, and returns what is in them: trace, trace_aligned, trace_aligned_stack,
    summary, markdown.

    >>> export_compare_result(events, alignment, diff, {}, "trace.json", "summary.json", "summary.md")
    """
    summary = build_summary(alignment, diff_result, config_echo, top_n)
    result = {
        "trace": build_chrome_trace(timeline_events),
        "trace_aligned": build_aligned_chrome_trace(alignment, diff_result),
        "trace_aligned_stack": build_aligned_stack_chrome_trace(
            timeline_events, alignment, diff_result
        ),
        "summary": summary,
        "markdown": render_summary_markdown(summary),
    }
    files = {
        "trace": trace_json_path,
        "trace_aligned": aligned_trace_json_path,
        "trace_aligned_stack": aligned_stack_trace_json_path,
        "summary": summary_json_path,
    }
    for name, path in files.items():
        if path:
            write_json(path, result[name])
    write_text(summary_md_path, result["markdown"])
    return result
