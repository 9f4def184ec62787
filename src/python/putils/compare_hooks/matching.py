# SPDX-License-Identifier: MulanPSL-2.0
"""Which tensor of one log is which of another: by name, by rules, by shape and numbers."""

import json
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import _differences
from .._lines import Entry

SHAPE_COST = 1_000_000  # no difference of numbers outweighs a shape that fits better
DISTANCE = ("l1_norm", "mean", "sum")
# Larger groups of one name (a log of many steps) are matched in their order.
LARGEST_GROUP = 400
_HOOK = re.compile(r"(\[(?:forward|backward)\]: )(.+?)( (?:inputs?|outputs?).*)?")

Groups = Dict[str, List[int]]


class Rule(NamedTuple):
    """The target's name of what `base` matches as a whole.

    >>> Rule(re.compile(r"enc\\.(.*)"), r"dec.\\1").target
    'dec.\\\\1'
    """

    base: "re.Pattern[str]"
    target: str


class Match(NamedTuple):
    """Rows of the two logs (from 0) that belong together; None: there is none in that log."""

    base: Optional[int]
    target: Optional[int]
    kind: str


def load_rules(path: str) -> List[Rule]:
    """ValueError says what is wrong with the file.

    >>> load_rules("rules.json")
    """
    try:
        with open(path, encoding="utf-8") as f:
            found = json.load(f)
    except (ValueError, RecursionError) as why:
        raise ValueError(f"'{path}' is not JSON: {why}") from None
    if not isinstance(found, list):
        raise ValueError(f"'{path}' is not a list of rules")
    rules = []
    for n, row in enumerate(found, 1):
        words = [row.get(k) for k in ("base", "target")] if isinstance(row, dict) else []
        if len(words) != 2 or not all(isinstance(w, str) for w in words):
            raise ValueError(f"rule {n} of '{path}' needs texts 'base' and 'target'")
        try:
            rules.append(Rule(re.compile(words[0]), words[1]))
        except re.error as why:
            raise ValueError(f"rule {n} of '{path}': {why}") from None
    return rules


def target_names(name: str, rules: Sequence[Rule]) -> List[str]:
    """What a tensor may be called in the other program. Rules see the module's name without what
    the hooks put around it, then the whole name.

    >>> target_names("[forward]: enc.fc outputs", [Rule(re.compile(r"enc\\.(.*)"), r"dec.\\1")])
    ['[forward]: dec.fc outputs']
    """
    hook = _HOOK.fullmatch(name)
    parts = [(hook.group(1), hook.group(2), hook.group(3) or "")] if hook else []
    found = []
    for before, middle, after in parts + [("", name, "")]:
        for rule in rules:
            match = rule.base.fullmatch(middle)
            if match:
                try:
                    found.append(before + match.expand(rule.target) + after)
                except (re.error, IndexError):
                    continue  # a group that the rule does not have
    return list(dict.fromkeys(found))


def _dims(shape: str) -> List[int]:
    return [int(n) for n in re.findall(r"\d+", shape)]


def _shape_class(a: str, b: str) -> int:
    """0: the same; 1: as many elements; 2: as many dimensions; 3: neither."""
    if a == b:
        return 0
    left, right = _dims(a), _dims(b)
    if _product(left) == _product(right):
        return 1
    return 2 if len(left) == len(right) else 3


def _product(numbers: Sequence[int]) -> int:
    found = 1
    for n in numbers:
        found *= n
    return found


def diff_pct(a: Optional[float], b: Optional[float]) -> Optional[float]:
    """|a - b| in percent of the larger one; None where a log has no number.

    >>> diff_pct(3.0, 4.0)
    25.0
    """
    return None if a is None or b is None else _differences.percent(a, b)


def _cost(a: Entry, b: Entry) -> float:
    far = 0.0
    for name in DISTANCE:
        percent = diff_pct(a.values.get(name), b.values.get(name))
        # One with NaN is as far as can be from one without.
        far += 0.0 if percent is None else (percent if percent == percent else 100.0)
    return _shape_class(a.shape, b.shape) * SHAPE_COST + min(far, SHAPE_COST - 1)


def _cheapest(a: List[Tuple[int, Entry]], b: List[Tuple[int, Entry]]) -> List[Tuple[int, int]]:
    """Pairs of rows, as many as there are in the shorter list. The cheapest pairs are taken first;
    of equally cheap ones those that are the nearest in the order of the logs."""
    if max(len(a), len(b)) > LARGEST_GROUP:
        return [(i, j) for (i, _), (j, _) in zip(a, b)]
    costs = sorted(
        (_cost(x, y), abs(m - n), m, n) for m, (_, x) in enumerate(a) for n, (_, y) in enumerate(b)
    )
    left, right, found = set(), set(), []
    for _, _, m, n in costs:
        if m not in left and n not in right:
            left.add(m)
            right.add(n)
            found.append((a[m][0], b[n][0]))
    return found


def _groups(entries: Sequence[Entry]) -> Groups:
    groups: Groups = {}
    for i, entry in enumerate(entries):
        groups.setdefault(entry.name, []).append(i)
    return groups


def match_entries(
    base: Sequence[Entry], target: Sequence[Entry], rules: Sequence[Rule] = ()
) -> List[Match]:
    """All rows of both logs: pairs of the same name, then pairs by rules, and what is left; in the
    order of the first log.

    >>> match_entries(read_log("base.log"), read_log("target.log"))
    """
    there = _groups(target)
    pairs: Dict[int, Match] = {}
    used = set()

    def join(rows: Sequence[int], others: Sequence[int], kind: str) -> None:
        a = [(i, base[i]) for i in rows if i not in pairs]
        b = [(j, target[j]) for j in others if j not in used]
        for i, j in _cheapest(a, b) if a and b else []:
            pairs[i] = Match(i, j, kind)
            used.add(j)

    for name, rows in _groups(base).items():
        join(rows, there.get(name, []), "same_name")
    for name, rows in _groups(base).items() if rules else ():
        for other in target_names(name, rules):
            join(rows, there.get(other, []), "mapped")
    found = [pairs.get(i, Match(i, None, "unmatched")) for i in range(len(base))]
    return found + [Match(None, j, "unmatched") for j in range(len(target)) if j not in used]
