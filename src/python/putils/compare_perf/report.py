# SPDX-License-Identifier: MulanPSL-2.0
"""The summary of a comparison: what got slower, what got faster.

    >>> print(render_summary_markdown(build_summary(alignment, diff, {"top_n": 5})))
"""

from typing import Any, Dict, List, Mapping, Sequence

from .._messages import plain

ROW = ("baseline_module", "target_module", "delta_ms", "delta_pct")
PER_CALL = (
    "baseline_ms_per_call",
    "target_ms_per_call",
    "delta_ms_per_call",
    "delta_pct_per_call",
    "baseline_call_count",
    "target_call_count",
)


def _change(module: Mapping[str, Any]) -> float:
    """What a call takes more or less: two runs need not be of the same length."""
    return module.get("delta_ms_per_call", module["delta_ms"])


def _rows(modules: Sequence[Mapping[str, Any]], sign: int, top_n: int) -> List[Dict[str, Any]]:
    """The largest changes in one direction, largest first: those that cost the target the most."""
    found = [m for m in modules if _change(m) * sign > 0]
    found.sort(key=lambda m: -abs(_change(m)) * max(m.get("target_call_count", 1), 1))
    return [{key: m[key] for key in ROW + PER_CALL if key in m} for m in found[:top_n]]


def build_summary(
    alignment: Mapping[str, Any],
    diff_result: Mapping[str, Any],
    config_echo: Mapping[str, Any],
    top_n: int = 5,
) -> Dict[str, Any]:
    """config, alignment, diff, top_regressions, top_improvements.

    >>> build_summary({"counts": {}}, {"modules": [], "counts": {}}, {})["top_regressions"]
    []
    """
    counts = dict(alignment.get("counts", {}))
    ranks = diff_result.get("rank_aggregation", {})
    diff: Dict[str, Any] = {
        "counts": dict(diff_result.get("counts", {})),
        "rank_aggregation": {
            "enabled": bool(ranks.get("enabled", False)),
            "percentiles": list(ranks.get("percentiles", [])),
        },
    }
    if ranks.get("enabled"):
        diff["rank_aggregation"]["modules"] = list(ranks.get("modules", []))
        diff["rank_aggregation"]["excluded"] = list(ranks.get("excluded", []))
    modules = diff_result.get("modules", [])
    unmatched = alignment.get("unmatched", {})
    return {
        "config": dict(config_echo),
        "alignment": {
            "counts": counts,
            "ambiguous_count": counts.get("ambiguous", 0),
            "unmatched": {side: list(unmatched.get(side, [])) for side in ("left", "right")},
        },
        "diff": diff,
        "top_regressions": _rows(modules, 1, top_n),
        "top_improvements": _rows(modules, -1, top_n),
    }


def _section(title: str, lines: Sequence[str]) -> List[str]:
    return ["", f"## {title}", *(lines or ["- none"])]


def _calls(row: Mapping[str, Any]) -> str:
    if not all(key in row for key in PER_CALL):
        return ""
    return (
        f"delta_ms_per_call={row['delta_ms_per_call']}, "
        f"delta_pct_per_call={row['delta_pct_per_call']}, "
        f"calls={row['baseline_call_count']} -> {row['target_call_count']}; of all calls "
    )


def _changes(rows: Sequence[Mapping[str, Any]]) -> List[str]:
    return [
        f"- {plain(r['baseline_module'])} -> {plain(r['target_module'])}: {_calls(r)}"
        f"delta_ms={r['delta_ms']}, delta_pct={r['delta_pct']}"
        for r in rows
    ]


def render_summary_markdown(summary: Mapping[str, Any]) -> str:
    """The summary as a page.

    >>> render_summary_markdown(summary).splitlines()[0]
    '# Compare Performance Summary'
    """
    alignment, diff = summary["alignment"], summary["diff"]
    config = [f"- `{k}`: `{plain(v)}`" for k, v in sorted(summary["config"].items())]
    found = [f"- {k}: {v}" for k, v in sorted(alignment["counts"].items())]
    found += [f"- unmatched_{side}: {len(alignment['unmatched'][side])}" for side in ("left", "right")]
    changed = [f"- {k}: {v}" for k, v in sorted(diff["counts"].items())]
    changed.append(f"- rank_aggregation_enabled: {diff['rank_aggregation']['enabled']}")
    lines = ["# Compare Performance Summary"]
    lines += _section("Config Echo", config)
    lines += _section("Alignment Statistics", found)
    lines += _section("Diff Statistics", changed)
    lines += _section("Top Regressions", _changes(summary["top_regressions"]))
    lines += _section("Top Improvements", _changes(summary["top_improvements"]))
    return "\n".join(lines) + "\n"
