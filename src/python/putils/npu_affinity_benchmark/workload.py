# SPDX-License-Identifier: MulanPSL-2.0
"""What is measured: small products and copies, as a training step's host side issues them, and
whether a measurement holds.

    >>> measure(run_mixed_workload(profile="smoke"))["throughput"]
    5123.4
"""

import statistics
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from .candidates import candidate_limit

WORKLOAD_PROFILE_CONFIG = {
    "smoke": {"matrix_size": 64, "iterations": 40, "transfer_bytes": 4096},
    "medium": {"matrix_size": 128, "iterations": 100, "transfer_bytes": 16384},
    "full": {"matrix_size": 256, "iterations": 400, "transfer_bytes": 65536},
}
DEFAULT_WORKLOAD_SEED = 20260401
DEFAULT_BASELINE_DEVIATION_RATIO = 0.10
DEFAULT_MAX_REMEASURE_ATTEMPTS = 2
REMEASURE_DECISION_ACCEPTED = "accepted"
REMEASURE_DECISION_UNSTABLE = "unstable"
METRICS = ("throughput", "latency_p95_ms")


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _buffers(torch: Any, config: Mapping[str, int], seed: int, device: Optional[str]) -> List[Any]:
    """Two matrices, and what is copied: the same numbers for the same seed, on every device."""
    generator = torch.Generator(device="cpu")
    generator.manual_seed(int(seed))
    n = config["matrix_size"]
    shapes = [(n, n), (n, n), (1, max(1, config["transfer_bytes"] // 4))]
    made = [torch.rand(s, generator=generator, dtype=torch.float32) for s in shapes]
    return [t.to(device) for t in made[:2]] + made[2:] if device else made


def run_mixed_workload(
    profile: str = "smoke",
    seed: int = DEFAULT_WORKLOAD_SEED,
    torch_module: Any = None,
    now_ns: Callable[[], int] = time.perf_counter_ns,
    device: Optional[str] = None,
) -> Dict[str, Any]:
    """One pass: products and copies, each waited for, with the time of each. status is "skipped"
    where there is no torch.

    >>> run_mixed_workload(profile="smoke", device="cuda:0")["samples"][0]["latency_ns"]
    """
    candidate_limit(profile)
    config = dict(WORKLOAD_PROFILE_CONFIG[profile])
    torch = torch_module if torch_module is not None else _torch()
    if torch is None:
        return {"status": "skipped", "reason": "TORCH_UNAVAILABLE", "config": config, "samples": []}
    a, b, data = _buffers(torch, config, seed, device)
    samples = []
    for iteration in range(config["iterations"]):
        start = now_ns()
        moved = data.to(device) if device else data.clone()
        product = torch.matmul(a, b)
        # Both are needed for it, so that this waits for the device.
        checksum = float(product.sum().item()) + float(moved.sum().item())
        samples.append(
            {
                "iteration": iteration,
                "latency_ns": now_ns() - start,
                "checksum": checksum,
                "transfer_elements": int(moved.numel()),
            }
        )
    return {"status": "ok", "profile": profile, "seed": seed, "config": config, "samples": samples}


def _percentile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    at = (len(ordered) - 1) * q
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def measure(outcome: Mapping[str, Any]) -> Dict[str, float]:
    """throughput (iterations per second, by the median) and latency_p95_ms of a pass.

    >>> measure({"samples": [{"latency_ns": 1_000_000}]})
    {'throughput': 1000.0, 'latency_p95_ms': 1.0}
    """
    times = [max(int(s["latency_ns"]), 1) for s in outcome["samples"]]
    return {
        "throughput": 1e9 / statistics.median(times),
        "latency_p95_ms": _percentile(times, 0.95) / 1e6,
    }


def _drift(value: float, window: Mapping[str, float], ratio: float) -> Dict[str, Any]:
    low, high = window["min"] * (1 - ratio), window["max"] * (1 + ratio)
    outside = 0.0
    if value < low:
        outside = (low - value) / low if low else 1.0
    elif value > high:
        outside = (value - high) / high if high else 1.0
    return {
        "value": value,
        "within_threshold": low <= value <= high,
        "lower_bound": low,
        "upper_bound": high,
        "deviation_ratio": outside,
    }


def _window(a: float, b: float) -> Dict[str, float]:
    return {"min": min(a, b), "max": max(a, b)}


def evaluate_baseline_remeasure(
    warmup_throughput: float,
    warmup_latency_p95_ms: float,
    first_pass_throughput: float,
    first_pass_latency_p95_ms: float,
    remeasure_samples: Sequence[Mapping[str, float]],
    deviation_ratio: float = DEFAULT_BASELINE_DEVIATION_RATIO,
    max_remeasure_attempts: int = DEFAULT_MAX_REMEASURE_ATTEMPTS,
) -> Dict[str, Any]:
    """Whether measurements lie within 10 % of the window that warm-up and first pass span. The first
    that does is accepted; two are looked at, no more.

    >>> evaluate_baseline_remeasure(1000, 10, 990, 10, [{"throughput": 1010, "latency_p95_ms": 10.2}])[
    ...     "decision_status"
    ... ]
    'accepted'
    """
    windows = {
        "throughput": _window(float(warmup_throughput), float(first_pass_throughput)),
        "latency_p95_ms": _window(float(warmup_latency_p95_ms), float(first_pass_latency_p95_ms)),
    }
    status, decisions = REMEASURE_DECISION_ACCEPTED, []
    for attempt, sample in enumerate(remeasure_samples[: max(max_remeasure_attempts, 0)], 1):
        found = {m: _drift(float(sample[m]), windows[m], deviation_ratio) for m in METRICS}
        outside = [m for m in METRICS if not found[m]["within_threshold"]]
        status = REMEASURE_DECISION_UNSTABLE if outside else REMEASURE_DECISION_ACCEPTED
        decisions.append(
            {"attempt": attempt, "decision": status, "trigger_metrics": outside, **found}
        )
        if not outside:
            break
    return {
        "baseline": {
            "source": "same_run_warmup_first_pass",
            "deviation_ratio": deviation_ratio,
            **windows,
        },
        "max_remeasure_attempts": max_remeasure_attempts,
        "remeasure_count": len(decisions),
        "decision_status": status,
        "decisions": decisions,
    }


Pass = Callable[[], Dict[str, Any]]


def measured_until_stable(
    one_pass: Pass, ratio: float = DEFAULT_BASELINE_DEVIATION_RATIO
) -> Tuple[Dict[str, Any], Dict[str, float], Optional[Dict[str, Any]]]:
    """(the pass that counts, its numbers, the protocol of what was measured again or None): a
    warm-up and a first pass; if they are more than 10 % apart, up to two more.

    >>> outcome, numbers, audit = measured_until_stable(lambda: run_mixed_workload(profile="smoke"))
    """
    first_of_all = measure(one_pass())
    outcome = one_pass()
    numbers = measure(outcome)
    near = {m: _drift(numbers[m], _window(first_of_all[m], first_of_all[m]), ratio) for m in METRICS}
    # A warm-up that was slower is what a warm-up is for.
    warm_up_only = numbers["throughput"] >= first_of_all["throughput"]
    if warm_up_only or all(n["within_threshold"] for n in near.values()):
        return outcome, numbers, None
    again: List[Dict[str, float]] = []
    baseline = dict(
        warmup_throughput=first_of_all["throughput"],
        warmup_latency_p95_ms=first_of_all["latency_p95_ms"],
        first_pass_throughput=numbers["throughput"],
        first_pass_latency_p95_ms=numbers["latency_p95_ms"],
        deviation_ratio=ratio,
    )
    audit: Dict[str, Any] = {}
    for _ in range(DEFAULT_MAX_REMEASURE_ATTEMPTS):
        outcome = one_pass()
        numbers = measure(outcome)
        again.append(numbers)
        audit = evaluate_baseline_remeasure(remeasure_samples=again, **baseline)
        if audit["decision_status"] == REMEASURE_DECISION_ACCEPTED:
            break
    return outcome, numbers, audit
