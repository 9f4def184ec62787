# SPDX-License-Identifier: MulanPSL-2.0
"""The summary of a comparison: what got slower, what got faster.

    >>> print(render_summary_markdown(build_summary(alignment, diff, {"top_n": 5})))
"""

from typing import Any, Dict, List, Mapping, Sequence

ROW = ("baseline_module", "target_module", "delta_ms", "delta_pct")


def _rows(modules: Sequence[Mapping[str, Any]], sign: int, top_n: int) -> List[Dict[str, Any]]:
    """The largest changes in one direction, largest first."""
    found = [m for m in modules if m["delta_ms"] * sign > 0]
    found.sort(key=lambda m: -abs(m["delta_ms"]))
    return [{key: m[key] for key in ROW} for m in found[:top_n]]


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


def _changes(rows: Sequence[Mapping[str, Any]]) -> List[str]:
    return [
        f"- {r['baseline_module']} -> {r['target_module']}: "
        f"delta_ms={r['delta_ms']}, delta_pct={r['delta_pct']}"
        for r in rows
    ]


def render_summary_markdown(summary: Mapping[str, Any]) -> str:
    """The summary as a page.

    >>> render_summary_markdown(summary).splitlines()[0]
    '# Compare Performance Summary'
    """
    alignment, diff = summary["alignment"], summary["diff"]
    config = [f"- `{k}`: `{v}`" for k, v in sorted(summary["config"].items())]
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
