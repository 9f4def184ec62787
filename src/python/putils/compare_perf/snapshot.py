# SPDX-License-Identifier: MulanPSL-2.0
"""What a collector has so far, as a file that `compare_perf diff` reads.

    dump_compare_perf_snapshot(collector=collector, output_dir="logs", step=10, tag="baseline")
"""

import os
from pathlib import Path
from typing import Any, Dict, Mapping, Optional

from .collector import TimingCollector, TimingEvent
from .export import build_chrome_trace, write_json
from .schema import build_schema, empty_alignment


def _event(event: TimingEvent) -> Dict[str, Any]:
    found = {
        "name": event.name,
        "start_ns": event.start_ns,
        "end_ns": event.end_ns,
        "inclusive_ns": event.inclusive_ns,
        "exclusive_ns": event.exclusive_ns,
    }
    if event.thread:
        found["tid"] = event.thread
    return found


def _timeline_event(event: TimingEvent, tag: str) -> Dict[str, Any]:
    return {
        **_event(event),
        "pid": os.getpid(),
        "process_name": tag,
        "thread_name": f"thread {event.thread}" if event.thread else "main",
        "args": {"inclusive_ns": event.inclusive_ns, "exclusive_ns": event.exclusive_ns},
    }


def dump_compare_perf_snapshot(
    collector: TimingCollector,
    output_dir: "os.PathLike[str]",
    step: int,
    tag: str,
    filename_template: str = "compare_perf_step_{step}_{tag}.json",
    chrome_trace_filename_template: Optional[str] = None,
    run_metadata_extra: Optional[Mapping[str, Any]] = None,
) -> Path:
    """Writes the file and returns its path; beside it a Chrome timeline if that is given a name.

    >>> dump_compare_perf_snapshot(collector=collector, output_dir="logs", step=10, tag="baseline")
    PosixPath('logs/compare_perf_step_10_baseline.json')
    """
    if not isinstance(collector, TimingCollector):
        raise TypeError("collector must be a TimingCollector")
    folder, events = Path(output_dir), collector.events
    payload = build_schema(
        events=[_event(e) for e in events],
        run_metadata={**(run_metadata_extra or {}), "tag": tag, "step": step},
        alignment=empty_alignment(),
        summary=collector.summary,
    )
    path = folder / filename_template.format(step=step, tag=tag)
    write_json(path, payload)
    if chrome_trace_filename_template:
        name = chrome_trace_filename_template.format(step=step, tag=tag)
        write_json(folder / name, build_chrome_trace([_timeline_event(e, tag) for e in events]))
    return path
