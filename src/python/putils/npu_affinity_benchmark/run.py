# SPDX-License-Identifier: MulanPSL-2.0
"""The benchmark: every device with every list of processors, two leaderboards, three files.

    >>> run_benchmark("out", profile="smoke")["leaderboards"]["throughput"][0]
    {'npu_id': 0, 'candidate_id': 'c001', 'value': 5123.4}
"""

import json
import os
import socket
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .. import _files
from .._support.commands import EXIT_OK, Parser, run_command
from .._support.topology import format_cpu_list
from .._support.xlsx import Sheet, workbook
from .binding import (
    AFFINITY_BIND_STATUS_OK,
    bind_with_retries,
    get_affinity,
    mark_result_invalid_for_ranking_on_mismatch,
    set_affinity,
)
from .candidates import PROFILE_CANDIDATE_LIMITS, discover_topology, generate_candidate_cpu_lists
from .schema import build_schema, validate_schema
from .workload import (
    DEFAULT_WORKLOAD_SEED,
    REMEASURE_DECISION_ACCEPTED,
    measured_until_stable,
    run_mixed_workload,
)

# By leaderboard: whether more is better.
BOARDS = (("throughput", True), ("latency_p95_ms", False))

Rows = List[Dict[str, Any]]


class BenchmarkError(RuntimeError):
    """There is nothing that could be measured."""


def _metadata(profile: str) -> Dict[str, Any]:
    return {
        "profile": profile,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "timestamp_unix_ns": time.time_ns(),
    }


def _write(folder: str, name: str, content: bytes) -> str:
    _files.make_folder(folder)
    path = os.path.join(folder, name)
    _files.replace_ours(path, content)
    return path


def _write_payload(folder: str, payload: Mapping[str, Any]) -> str:
    text = json.dumps(validate_schema(payload), indent=2)
    return _write(folder, "raw_results.json", text.encode())


def run_dry_run_topology(
    output_dir: "os.PathLike[str]",
    profile: str = "smoke",
    topology_discoverer: Callable[[], Mapping[str, Any]] = discover_topology,
    run_metadata_provider: Optional[Callable[[], Mapping[str, Any]]] = None,
) -> str:
    """Writes raw_results.json with topology and candidates alone; returns its path.

    >>> run_dry_run_topology("out")
    'out/raw_results.json'
    """
    topology = topology_discoverer()
    payload = build_schema(
        run_metadata=run_metadata_provider() if run_metadata_provider else _metadata(profile),
        topology=topology,
        candidates=generate_candidate_cpu_lists(topology=topology, profile=profile),
        results=[],
        leaderboards={name: [] for name, _ in BOARDS},
        failures=[],
        remeasure_events=[],
    )
    return _write_payload(os.fspath(output_dir), payload)


def find_devices() -> List[Tuple[int, Optional[str]]]:
    """(number, what torch calls it) of each visible device; (0, None) is the processor.

    >>> find_devices()
    [(0, None)]
    """
    try:
        import torch
    except ImportError:
        raise BenchmarkError("the benchmark needs the package torch") from None
    try:
        import torch_npu  # noqa: F401  adds torch.npu
    except ImportError:
        pass
    for name in ("npu", "cuda"):
        module = getattr(torch, name, None)
        if module is not None and module.is_available() and module.device_count():
            return [(i, f"{name}:{i}") for i in range(module.device_count())]
    return [(0, None)]


def leaderboards(results: Sequence[Mapping[str, Any]]) -> Dict[str, Rows]:
    """{throughput, latency_p95_ms}: the candidates of each device, best first. What did not run
    where it should have, or is unstable, does not take part.

    >>> leaderboards([])
    {'throughput': [], 'latency_p95_ms': []}
    """
    boards = {}
    valid = [r for r in results if r.get("ranking_valid")]
    for name, more_is_better in BOARDS:
        rows = [
            {"npu_id": r["npu_id"], "candidate_id": r["candidate_id"], "value": r[name]} for r in valid
        ]
        rows.sort(key=lambda r: (r["npu_id"], -r["value"] if more_is_better else r["value"]))
        boards[name] = rows
    return boards


class _Run:
    def __init__(self, profile: str, log: Callable[[str], None]):
        self.profile, self.log = profile, log
        self.results: Rows = []
        self.failures: Rows = []
        self.remeasured: Rows = []

    def one(self, npu_id: int, device: Optional[str], candidate: Mapping[str, Any]) -> None:
        """Binds, measures, keeps what came out."""
        who = {"npu_id": npu_id, "candidate_id": candidate["candidate_id"]}
        bound = bind_with_retries(candidate["cpu_list"])
        for failure in bound["failures"]:
            self.failures.append({**who, **failure})
        result = {**who, **{k: v for k, v in bound.items() if k != "failures"}, "samples": []}
        if bound["bind_status"] != AFFINITY_BIND_STATUS_OK:
            self.log(f"device {npu_id}, {who['candidate_id']}: not bound ({bound['bind_status']})")
            self.results.append(mark_result_invalid_for_ranking_on_mismatch(result))
            return
        outcome, numbers, audit = measured_until_stable(
            lambda: run_mixed_workload(
                profile=self.profile, seed=DEFAULT_WORKLOAD_SEED, device=device
            )
        )
        result.update(numbers, samples=outcome["samples"], stable=True)
        if audit:
            self.remeasured.append({**who, **audit})
            result["stable"] = audit["decision_status"] == REMEASURE_DECISION_ACCEPTED
            result["ranking_valid"] = result["ranking_valid"] and result["stable"]
        self.log(
            f"device {npu_id}, {who['candidate_id']} ({format_cpu_list(candidate['cpu_list'])}): "
            f"{numbers['throughput']:.1f}/s, p95 {numbers['latency_p95_ms']:.3f} ms"
            + ("" if result["stable"] else ", unstable")
        )
        self.results.append(mark_result_invalid_for_ranking_on_mismatch(result))


def run_benchmark(
    output_dir: "os.PathLike[str]",
    profile: str = "smoke",
    devices: Optional[Sequence[Tuple[int, Optional[str]]]] = None,
) -> Dict[str, Any]:
    """Measures everything, writes the files and returns what is in raw_results.json. The process is
    bound as before afterwards.

    >>> run_benchmark("out", profile="smoke")["failures"]
    []
    """
    topology = discover_topology()
    if topology["error"]:
        raise BenchmarkError(topology["error"]["message"])
    candidates = generate_candidate_cpu_lists(topology, profile)
    lines: List[str] = []

    def log(text: str) -> None:
        lines.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")

    before, run = get_affinity(0), _Run(profile, log)
    log(f"profile {profile}, {len(candidates)} lists of {format_cpu_list(before)}")
    try:
        for npu_id, device in devices or find_devices():
            for candidate in candidates:
                run.one(npu_id, device, candidate)
    finally:
        set_affinity(0, before)
    payload = build_schema(
        run_metadata=_metadata(profile),
        topology=topology,
        candidates=candidates,
        results=run.results,
        leaderboards=leaderboards(run.results),
        failures=run.failures,
        remeasure_events=run.remeasured,
    )
    folder = os.fspath(output_dir)
    _write_payload(folder, payload)
    _write(folder, "report.xlsx", workbook(report_sheets(payload)))
    _write(folder, "benchmark.log", "".join(f"{line}\n" for line in lines).encode())
    return payload


def _cpus_of(payload: Mapping[str, Any]) -> Dict[str, str]:
    return {c["candidate_id"]: format_cpu_list(c["cpu_list"]) for c in payload["candidates"]}


def _best(payload: Mapping[str, Any]) -> Dict[int, Dict[str, Mapping[str, Any]]]:
    """{device: {leaderboard: its first row}}"""
    best: Dict[int, Dict[str, Mapping[str, Any]]] = {}
    for name, _ in BOARDS:
        for row in payload["leaderboards"][name]:
            best.setdefault(row["npu_id"], {}).setdefault(name, row)
    return best


def report_sheets(payload: Mapping[str, Any]) -> List[Sheet]:
    """Summary, Raw, Best and Retry-Failures.

    >>> [sheet.name for sheet in report_sheets(payload)]
    ['Summary', 'Raw', 'Best', 'Retry-Failures']
    """
    cpus = _cpus_of(payload)
    summary: List[List[Any]] = [
        ["npu_id", "candidate_id", "cpus", "throughput", "latency_p95_ms", "bind_status", "attempts",
         "stable", "ranking_valid"]
    ]  # fmt: skip
    raw: List[List[Any]] = [["npu_id", "candidate_id", "iteration", "latency_ns"]]
    for r in payload["results"]:
        who = [r["npu_id"], r["candidate_id"]]
        facts = ("throughput", "latency_p95_ms", "bind_status", "attempts", "stable", "ranking_valid")
        summary.append(who + [cpus[r["candidate_id"]]] + [r.get(k) for k in facts])
        raw += [who + [s.get("iteration"), s.get("latency_ns")] for s in r["samples"]]
    best: List[List[Any]] = [["npu_id", "leaderboard", "candidate_id", "cpus", "value"]]
    for npu_id, boards in _best(payload).items():
        for name, row in boards.items():
            found = row["candidate_id"]
            best.append([npu_id, name, found, cpus[found], row["value"]])
    trouble: List[List[Any]] = [["npu_id", "candidate_id", "what", "attempt", "detail"]]
    for f in payload["failures"]:
        detail = (f["failure"] or {}).get("message", "") or f["bind_status"]
        trouble.append([f["npu_id"], f["candidate_id"], "bind", f["attempt"], detail])
    for e in payload["remeasure_events"]:
        for d in e["decisions"]:
            detail = f"{d['decision']}: {', '.join(d['trigger_metrics'])}".rstrip(": ")
            trouble.append([e["npu_id"], e["candidate_id"], "remeasure", d["attempt"], detail])
    names = ("Summary", "Raw", "Best", "Retry-Failures")
    return [Sheet(name, rows) for name, rows in zip(names, (summary, raw, best, trouble))]


def describe(payload: Mapping[str, Any]) -> str:
    """The answer in words, a line for each device.

    >>> print(describe(payload))
    Device 0: most products per second on processors 0-23 (5123/s, 12 % above the worst); ...
    """
    cpus, lines = _cpus_of(payload), []
    for npu_id, boards in _best(payload).items():
        fast, quick = boards["throughput"], boards["latency_p95_ms"]
        rows = [r for r in payload["leaderboards"]["throughput"] if r["npu_id"] == npu_id]
        gain = (fast["value"] / rows[-1]["value"] - 1) * 100
        lines.append(
            f"Device {npu_id}: most products per second on processors {cpus[fast['candidate_id']]} "
            f"({fast['value']:.0f}/s, {gain:.0f} % above the worst); lowest latency on "
            f"{cpus[quick['candidate_id']]} (p95 {quick['value']:.3f} ms)."
        )
    lost = sum(not r["ranking_valid"] for r in payload["results"])
    if lost:
        lines.append(f"{lost} of {len(payload['results'])} measurements are not in the leaderboards: "
                     "not bound, or unstable.")  # fmt: skip
    return "\n".join(lines)


def run_cli(argv: Optional[Sequence[str]] = None) -> int:
    """The work of main(); raises what goes wrong.

    >>> run_cli(["--dry-run-topology", "--output-dir", "out"])
    out/raw_results.json
    0
    """
    profiles = tuple(PROFILE_CANDIDATE_LIMITS)
    limits = ", ".join(f"{name} {n}" for name, n in PROFILE_CANDIDATE_LIMITS.items())
    parser = Parser(prog="putils.npu_affinity_benchmark", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--profile", default="smoke", choices=profiles, help=f"lists of processors to try: {limits}")
    add("--dry-run-topology", action="store_true", help="write topology and candidates alone")
    add("--output-dir", default=".", help="where the files go")
    args = parser.parse_args(argv)
    if args.dry_run_topology:
        print(run_dry_run_topology(args.output_dir, args.profile))
        return EXIT_OK
    devices = find_devices()
    payload = run_benchmark(args.output_dir, args.profile, devices)
    if devices == [(0, None)]:
        print("There is no NPU or GPU: device 0 is the processor itself.")
    print(describe(payload))
    print(os.path.join(args.output_dir, "raw_results.json"))
    if not any(payload["leaderboards"].values()):
        raise BenchmarkError("no measurement counts; see report.xlsx")
    return EXIT_OK


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The command line: prints the answer and the path of raw_results.json. Exit status: 0; 2 for
    wrong options; 12, and ERROR[12] on stderr, if nothing could be measured or written.

    >>> main(["--dry-run-topology", "--output-dir", "out"])
    out/raw_results.json
    0
    """
    return run_command(run_cli, argv)
