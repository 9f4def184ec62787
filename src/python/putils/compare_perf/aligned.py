# SPDX-License-Identifier: MulanPSL-2.0
"""Spans of the two aligned timelines: what ran in two programs, laid out so that pairs begin at the
same place. Times are durations only; when something really ran is in the plain timeline.

    >>> list(aligned_events({"matched": []}, {"modules": []}, 0))
    []
"""

import math
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .align import align_modules

SIDES = (("baseline", 1), ("target", 2))
# A parent that was drawn out for its children ends visibly after the last of them.
PARENT_MARGIN = 1.01

Totals = Dict[str, Dict[str, int]]


def _pairs(
    matched: Sequence[Mapping[str, Any]], diff_result: Mapping[str, Any]
) -> Iterator[Tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """(pair, its differences) of those that have some."""
    modules = {
        (m["baseline_module"], m["target_module"]): m for m in diff_result.get("modules", [])
    }
    for pair in matched:
        module = modules.get((pair["left"], pair["right"]))
        if module is not None:
            yield pair, module


def _args(pair: Mapping[str, Any], module: Mapping[str, Any], index: int, view: str) -> Dict:
    return {
        "baseline_module": pair["left"],
        "target_module": pair["right"],
        "confidence": pair.get("confidence"),
        "match_status": pair.get("status"),
        "match_source": pair.get("source"),
        "score_components": pair.get("score_components", {}),
        "delta_ms": module.get("delta_ms"),
        "delta_pct": module.get("delta_pct"),
        "pair_index": index,
        "view": view,
    }


def _span(side: str, name: str, start: int, duration: int, args: Mapping, view: str) -> Dict:
    return {
        "name": name,
        "start_ns": start,
        "end_ns": start + duration,
        "pid": dict(SIDES)[side],
        "tid": 0,
        "process_name": f"{side}_{view}",
        "thread_name": view,
        "args": {**args, "role": side},
    }


def _durations(module: Mapping[str, Any]) -> Dict[str, int]:
    return {side: round(module[f"{side}_ms"] * 1e6) for side, _ in SIDES}


def aligned_events(
    alignment: Mapping[str, Any], diff_result: Mapping[str, Any], slot_gap_us: int
) -> Iterator[Dict[str, Any]]:
    """Each matched pair in a slot of its own, as long as the longer of the two.

    >>> spans = aligned_events(alignment, diff, slot_gap_us=0)
    """
    cursor = 0
    for index, (pair, module) in enumerate(_pairs(alignment.get("matched", []), diff_result)):
        args = _args(pair, module, index, "aligned_pair")
        durations = _durations(module)
        for side, _ in SIDES:
            name = pair["left"] if side == "baseline" else pair["right"]
            yield _span(side, name, cursor, durations[side], args, "aligned")
        cursor += max(durations.values()) + slot_gap_us * 1000


def _totals(events: Sequence[Mapping[str, Any]]) -> Totals:
    """Time by side and name. The side is what the process is called, else its number; an event
    whose process has no name counts for both."""
    totals: Totals = {side: {} for side, _ in SIDES}
    numbers = {pid: side for side, pid in SIDES}
    for event in events:
        side = event.get("process_name")
        if side not in totals:
            side = numbers.get(event["pid"]) if side else None
        for each in [side] if side else list(totals):
            names = totals[each]
            spent = event["end_ns"] - event["start_ns"]
            names[event["name"]] = names.get(event["name"], 0) + spent
    return totals


def _is_inside(name: str, parent: str) -> bool:
    return name.startswith(parent + ".")


def _outermost(matched: Sequence[Mapping[str, Any]]) -> List[Mapping[str, Any]]:
    """Pairs that are not inside another pair on both sides."""
    return [
        pair
        for pair in matched
        if not any(
            _is_inside(pair["left"], other["left"]) and _is_inside(pair["right"], other["right"])
            for other in matched
        )
    ]


class _Children:
    """The modules inside a pair: matched ones begin together, the others follow on their side."""

    def __init__(self, pair: Mapping[str, Any], totals: Totals):
        self.parents = {"baseline": pair["left"], "target": pair["right"]}
        self.totals = totals
        self.cursors = {side: 0 for side, _ in SIDES}
        self.spans: List[Tuple[str, str, int, int, Dict[str, Any]]] = []
        self._lay_out(align_modules(self._relative("baseline"), self._relative("target")))

    def _relative(self, side: str) -> List[str]:
        parent = self.parents[side]
        return [n[len(parent) + 1 :] for n in self.totals[side] if _is_inside(n, parent)]

    def _put(self, side: str, name: str, status: str, index: Optional[int], **args: Any) -> None:
        full = f"{self.parents[side]}.{name}"
        duration = self.totals[side][full]
        facts = {
            "child_match_status": status,
            "child_relative_name": name,
            "child_pair_index": index,
            **args,
        }
        self.spans.append((side, full, self.cursors[side], duration, facts))
        self.cursors[side] += duration

    def _lay_out(self, found: Mapping[str, Any]) -> None:
        for index, pair in enumerate(found["matched"]):
            together = max(self.cursors.values())
            self.cursors = {side: together for side, _ in SIDES}
            confidence = pair["confidence"]
            self._put("baseline", pair["left"], "matched", index, child_confidence=confidence)
            self._put("target", pair["right"], "matched", index, child_confidence=confidence)
        for index, row in enumerate(found["ambiguous"]):
            self._put("baseline", row["left"], "ambiguous", None, child_ambiguous_index=index)
        for side, key in (("baseline", "left"), ("target", "right")):
            for name in found["unmatched"][key]:
                self._put(side, name, "unmatched", None)

    @property
    def envelope_ns(self) -> int:
        return max(self.cursors.values())


def aligned_stack_events(
    events: Sequence[Mapping[str, Any]],
    alignment: Mapping[str, Any],
    diff_result: Mapping[str, Any],
    slot_gap_us: int,
) -> Iterator[Dict[str, Any]]:
    """The outermost pairs and what is inside them. Time of a module is that of all its calls.

    >>> spans = aligned_stack_events(events, alignment, diff, slot_gap_us=0)
    """
    totals = _totals(events)
    outermost = _outermost(alignment.get("matched", []))
    view, cursor = "aligned_stack", 0
    for index, (pair, module) in enumerate(_pairs(outermost, diff_result)):
        args = _args(pair, module, index, view)
        children = _Children(pair, totals)
        envelope = math.ceil(round(children.envelope_ns * PARENT_MARGIN, 3))
        real = _durations(module)
        shown = {side: max(real[side], envelope) for side, _ in SIDES}
        for side, _ in SIDES:
            facts = {
                "child_match_status": "parent",
                "child_pair_index": None,
                "child_envelope_ns": children.envelope_ns,
                "parent_mode": "synthetic_aligned",
                "real_parent_duration_ns": real[side],
                "synthetic_parent_duration_ns": shown[side],
            }
            name = children.parents[side]
            yield _span(side, name, cursor, shown[side], {**args, **facts}, view)
        for side, name, start, duration, facts in children.spans:
            yield _span(side, name, cursor + start, duration, {**args, **facts}, view)
        cursor += max(shown.values()) + slot_gap_us * 1000
