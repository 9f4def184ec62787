# SPDX-License-Identifier: MulanPSL-2.0
"""Differences of two summaries, pair by pair.

    >>> diff = compute_diff(alignment, baseline["summary"], target["summary"])
    >>> diff["modules"][0]["delta_ms"]
    30.0
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

ZERO_BASELINE_MARKER = "INF_OR_UNDEFINED"
PERCENTILES = (("p50", 0.50), ("p95", 0.95))
DIGITS = 6

Numbers = Union[int, float]


def _total_ns(item: Mapping[str, Any]) -> int:
    if "total_ns" in item:
        return int(item["total_ns"])
    return int(round(float(item.get("total_seconds", 0.0)) * 1e9))


def _ms(ns: Numbers) -> float:
    return round(ns / 1e6, DIGITS)


def _percent(baseline: Numbers, target: Numbers) -> Union[float, str]:
    if baseline == 0:
        return ZERO_BASELINE_MARKER
    return round((target - baseline) / baseline * 100, DIGITS)


def _percentile(values: Sequence[Numbers], q: float) -> float:
    """Linear between the two nearest."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * q
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _module(pair: Mapping[str, Any], base: Mapping[str, Any], other: Mapping[str, Any]) -> Dict:
    a, b = _total_ns(base), _total_ns(other)
    calls_a, calls_b = int(base.get("call_count", 0)), int(other.get("call_count", 0))
    # Where one of them has no count there is nothing but the totals.
    counted = calls_a > 0 and calls_b > 0
    each_a, each_b = (a / calls_a, b / calls_b) if counted else (a, b)
    return {
        "baseline_module": pair["left"],
        "target_module": pair["right"],
        "baseline_ms": _ms(a),
        "target_ms": _ms(b),
        "delta_ms": _ms(b - a),
        "delta_pct": _percent(a, b),
        "baseline_call_count": calls_a,
        "target_call_count": calls_b,
        "delta_call_count": calls_b - calls_a,
        "baseline_ms_per_call": _ms(each_a),
        "target_ms_per_call": _ms(each_b),
        "delta_ms_per_call": _ms(each_b - each_a),
        "delta_pct_per_call": _percent(each_a, each_b),
    }


def _rank_ns(values: Any) -> List[int]:
    """Times of the ranks: numbers, or summaries of the module by rank."""
    found = values if isinstance(values, list) else []
    return [_total_ns(v) if isinstance(v, Mapping) else int(v) for v in found]


def _ranks_of_module(pair: Mapping[str, Any], a: List[int], b: List[int]) -> Dict[str, Any]:
    row: Dict[str, Any] = {
        "baseline_module": pair["left"],
        "target_module": pair["right"],
        "baseline": {},
        "target": {},
        "delta": {},
    }
    for name, q in PERCENTILES:
        base, other = _percentile(a, q), _percentile(b, q)
        row["baseline"][f"{name}_ms"] = _ms(base)
        row["target"][f"{name}_ms"] = _ms(other)
        row["delta"][f"{name}_ms"] = _ms(other - base)
        row["delta"][f"{name}_pct"] = _percent(base, other)
    return row


def _excluded(pair: Mapping[str, Any], reason: str) -> Dict[str, Any]:
    return {
        "baseline_module": pair["left"],
        "target_module": pair["right"],
        "reason": reason,
    }


def _rank_aggregation(
    pairs: Sequence[Mapping[str, Any]],
    baseline_ranks: Optional[Mapping[str, Any]],
    target_ranks: Optional[Mapping[str, Any]],
) -> Dict[str, Any]:
    modules, excluded = [], []
    for pair in pairs:
        a = _rank_ns((baseline_ranks or {}).get(pair["left"]))
        b = _rank_ns((target_ranks or {}).get(pair["right"]))
        if a and b:
            modules.append(_ranks_of_module(pair, a, b))
        else:
            excluded.append(_excluded(pair, "missing_rank_summary"))
    return {
        "enabled": True,
        "percentiles": [name for name, _ in PERCENTILES],
        "modules": modules,
        "excluded": excluded,
    }


def compute_diff(
    alignment: Mapping[str, Any],
    baseline_summary: Mapping[str, Mapping[str, Any]],
    target_summary: Mapping[str, Mapping[str, Any]],
    baseline_rank_summary: Optional[Mapping[str, Any]] = None,
    target_rank_summary: Optional[Mapping[str, Any]] = None,
    enable_rank_aggregation: bool = False,
) -> Dict[str, Any]:
    """Each matched pair with its times and their difference, of all calls and per call; with the 50th and 95th percentile
    over ranks if that is asked for. A pair that a summary does not have is counted as excluded.

    >>> pairs = {"matched": [{"left": "a", "right": "b"}]}
    >>> compute_diff(pairs, {"a": {"total_ns": 10}}, {"b": {"total_ns": 15}})["modules"][0]["delta_pct"]
    50.0
    """
    pairs, compared, excluded = list(alignment.get("matched", [])), [], []
    for pair in pairs:
        there = pair["left"] in baseline_summary and pair["right"] in target_summary
        (compared if there else excluded).append(pair)
    result = {
        "modules": [
            _module(pair, baseline_summary[pair["left"]], target_summary[pair["right"]])
            for pair in compared
        ],
        "counts": {
            "matched_pairs": len(pairs),
            "compared_modules": len(compared),
            "excluded_pairs": len(excluded),
        },
        "excluded": [_excluded(pair, "missing_summary") for pair in excluded],
        "rank_aggregation": {"enabled": False, "percentiles": [], "modules": [], "excluded": []},
    }
    if enable_rank_aggregation:
        result["rank_aggregation"] = _rank_aggregation(
            compared, baseline_rank_summary, target_rank_summary
        )
    return result
