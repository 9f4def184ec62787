# SPDX-License-Identifier: MulanPSL-2.0
"""Which module of one program is which of another, by their names.

    >>> found = align_modules(["encoder.layer.0.attn"], ["enc.block.0.attention"])
    >>> found["matched"][0]["right"]
    'enc.block.0.attention'
"""

import hashlib
import json
import os
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .. import _files, _messages

SYNONYMS = {
    "attn": "attention",
    "enc": "encoder",
    "ffn": "feedforward",
    "mlp": "feedforward",
    "block": "layer",
    "out": "output",
}
# The first kind whose words a name has is its kind.
KINDS = (
    ("attention", {"attention", "selfattention", "crossattention"}),
    ("feedforward", {"feedforward", "ffn", "mlp"}),
    ("normalization", {"norm", "layernorm", "rmsnorm"}),
    ("embedding", {"embedding", "embed"}),
    ("projection", {"projection", "proj", "linear"}),
    ("loss", {"loss"}),
    ("optimizer", {"optimizer"}),
    ("backward", {"backward"}),
)
WEIGHTS = {"token": 0.35, "path": 0.25, "type": 0.20, "layer": 0.12, "order": 0.08}
PATH_WEIGHTS = {"parent": 0.45, "leaf": 0.45, "depth": 0.10}
LAYER_REACH = 8  # layers that are this far apart have nothing in common
SAME_KIND_UNKNOWN, ONE_KIND_UNKNOWN = 0.5, 0.35

LAYER = re.compile(r"(?:layers?|blocks?)[._-]?(\d+)")
NUMBER = re.compile(r"\d+")


class AlignmentMappingCache:
    """Confirmed pairs in a file, by both lists of names. A file that cannot be read is none.

    >>> cache = AlignmentMappingCache("alignment.json")
    >>> cache.save_confirmed_mappings(["a"], ["b"], {"a": "b"})
    >>> cache.load_confirmed_mappings(["a"], ["b"])
    {'a': 'b'}
    """

    VERSION = 1

    def __init__(self, cache_file: "os.PathLike[str]"):
        self.cache_file = os.fspath(cache_file)

    @staticmethod
    def _key(left_modules: Sequence[str], right_modules: Sequence[str]) -> str:
        text = json.dumps([list(left_modules), list(right_modules)])
        return hashlib.sha1(text.encode()).hexdigest()

    def _entries(self) -> Dict[str, Any]:
        try:
            with open(self.cache_file, encoding="utf-8") as f:
                entries = json.load(f)["entries"]
            return entries if isinstance(entries, dict) else {}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as why:
            _messages.warn_once(
                f"the alignment cache '{self.cache_file}' is not used: {_messages.words(why)}"
            )
            return {}

    def load_confirmed_mappings(
        self, left_modules: Sequence[str], right_modules: Sequence[str]
    ) -> Dict[str, str]:
        """The pairs that were saved for just these lists."""
        found = self._entries().get(self._key(left_modules, right_modules), {})
        if not isinstance(found, dict):
            return {}
        return {k: v for k, v in found.items() if isinstance(v, str)}

    def save_confirmed_mappings(
        self,
        left_modules: Sequence[str],
        right_modules: Sequence[str],
        mappings: Mapping[str, str],
    ) -> None:
        entries = self._entries()
        entries[self._key(left_modules, right_modules)] = dict(mappings)
        _files.make_folder(os.path.dirname(self.cache_file))
        text = json.dumps({"version": self.VERSION, "entries": entries}, indent=2, sort_keys=True)
        _files.replace_ours(self.cache_file, text.encode())


class _Name:
    """A name, taken apart once."""

    def __init__(self, name: str, order: int):
        low = name.lower()
        self.name, self.order = name, order
        self.tokens = _words(re.split(r"[^a-z0-9]+", low))
        self.path = _words(re.split(r"[./:_-]+", low))
        self.token_set, self.parents = set(self.tokens), set(self.path[:-1])
        layer = LAYER.search(low)
        number = layer.group(1) if layer else (NUMBER.findall(low) or [None])[0]
        self.layer = int(number) if number is not None else None
        self.kind = next((kind for kind, words in KINDS if words & self.token_set), None)


def _words(parts: List[str]) -> List[str]:
    return [SYNONYMS.get(p, p) for p in parts if p]


def _jaccard(a: Set[str], b: Set[str]) -> float:
    if not a and not b:
        return 1.0
    return len(a & b) / len(a | b)


def _path_score(a: _Name, b: _Name) -> float:
    leaf = bool(a.path and b.path and a.path[-1] == b.path[-1])
    deepest = max(len(a.path), len(b.path), 1)
    parts = {
        "parent": _jaccard(a.parents, b.parents),
        "leaf": float(leaf),
        "depth": 1 - abs(len(a.path) - len(b.path)) / deepest,
    }
    return sum(PATH_WEIGHTS[part] * value for part, value in parts.items())


def _kind_score(a: _Name, b: _Name) -> float:
    if a.kind and b.kind:
        return float(a.kind == b.kind)
    return ONE_KIND_UNKNOWN if a.kind or b.kind else SAME_KIND_UNKNOWN


def _layer_score(a: _Name, b: _Name) -> float:
    if a.layer is None or b.layer is None:
        return 0.0
    return max(0.0, 1 - abs(a.layer - b.layer) / LAYER_REACH)


def _candidate(a: _Name, b: _Name, total: int) -> Dict[str, Any]:
    parts = {
        "token": _jaccard(a.token_set, b.token_set),
        "path": _path_score(a, b),
        "type": _kind_score(a, b),
        "layer": _layer_score(a, b),
        "order": max(0.0, 1 - abs(a.order - b.order) / max(total, 1)),
    }
    components: Dict[str, Any] = {part: round(value, 6) for part, value in parts.items()}
    components["weights"] = dict(WEIGHTS)
    components["left_module_type"] = a.kind
    components["right_module_type"] = b.kind
    return {
        "left": a.name,
        "right": b.name,
        "confidence": round(sum(WEIGHTS[part] * value for part, value in parts.items()), 6),
        "score_components": components,
    }


def _confirmed(
    left: Sequence[str],
    right: Sequence[str],
    mappings: Optional[Mapping[str, str]],
    cache: Optional[AlignmentMappingCache],
) -> Dict[str, Tuple[str, str]]:
    """{left: (right, source)}: what the user says now goes before what was said earlier."""
    found: Dict[str, Tuple[str, str]] = {}
    taken: Set[str] = set()
    earlier = cache.load_confirmed_mappings(left, right) if cache else {}
    for pairs, source in ((mappings or {}, "manual"), (earlier, "cache")):
        for a, b in pairs.items():
            if a in left and b in right and a not in found and b not in taken:
                found[a] = (b, source)
                taken.add(b)
            elif source == "manual" and (a not in left or b not in right):
                _messages.warn(f"the mapping '{a}' to '{b}' names a module that is not there")
    if cache and mappings:
        pairs = {a: b for a, (b, _) in found.items()}
        try:
            cache.save_confirmed_mappings(left, right, pairs)
        except OSError as why:
            _messages.warn(f"the alignment cache is not written: {_messages.words(why)}")
    return found


def _certain(a: _Name, b: _Name, total: int, status: str, source: str) -> Dict[str, Any]:
    found = _candidate(a, b, total)
    found.update(confidence=1.0, status=status, source=source)
    return found


def align_modules(
    left_modules: Sequence[str],
    right_modules: Sequence[str],
    confirmed_mappings: Optional[Mapping[str, str]] = None,
    cache: Optional[AlignmentMappingCache] = None,
    candidate_threshold: float = 0.30,
    auto_match_threshold: float = 0.85,
    ambiguous_margin: float = 0.05,
) -> Dict[str, Any]:
    """Pairs of modules: matched, ambiguous (with their candidates) and unmatched, and counts.

    Confirmed pairs come first, then names that are the same; the rest is scored, from left to
    right, each against what is still free on the right.

    >>> align_modules(["loss"], ["loss"])["counts"]
    {'matched': 1, 'ambiguous': 0, 'unmatched': 0}
    """
    left = [_Name(name, i) for i, name in enumerate(dict.fromkeys(left_modules))]
    right = {name: _Name(name, i) for i, name in enumerate(dict.fromkeys(right_modules))}
    total = max(len(left), len(right))
    known = _confirmed([a.name for a in left], list(right), confirmed_mappings, cache)
    free = dict(right)
    certain = {}
    for a in left:
        if a.name in known:
            b, source = known[a.name]
            certain[a.name] = _certain(a, free.pop(b), total, "confirmed", source)
    for a in left:
        if a.name in free and a.name not in certain:
            certain[a.name] = _certain(a, free.pop(a.name), total, "auto_matched", "rule")
    matched, ambiguous, unmatched = [], [], []
    for a in left:
        if a.name in certain:
            matched.append(certain[a.name])
            continue
        found = [_candidate(a, b, total) for b in free.values()]
        found = [c for c in found if c["confidence"] >= candidate_threshold]
        found.sort(key=lambda c: -c["confidence"])
        if not found:
            unmatched.append(a.name)
            continue
        best = found[0]["confidence"]
        margin = best - found[1]["confidence"] if len(found) > 1 else 1.0
        if best >= auto_match_threshold and margin >= ambiguous_margin:
            found[0].update(status="auto_matched", source="rule")
            matched.append(found[0])
            del free[found[0]["right"]]
            continue
        ambiguous.append(
            {
                "left": a.name,
                "status": "ambiguous",
                "reason": "low_confidence_or_multiple_candidates",
                "candidates": [dict(c, status="candidate") for c in found],
            }
        )
    return {
        "matched": matched,
        "ambiguous": ambiguous,
        "unmatched": {"left": unmatched, "right": list(free)},
        "counts": {
            "matched": len(matched),
            "ambiguous": len(ambiguous),
            "unmatched": len(unmatched) + len(free),
        },
    }
