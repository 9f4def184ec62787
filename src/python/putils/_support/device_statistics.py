# SPDX-License-Identifier: MulanPSL-2.0
"""Statistics of a tensor where it is: on its device, with one copy of the results to the host.

Operations are queued and nobody waits for them; what they find is put into one tensor of 64-bit
words, which is copied once. Numbers are widened in pieces, so that the memory this takes is bounded
(PIECE numbers in double); exact quantiles need a sorted copy of all numbers.
"""

import math
import struct
import sys
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

PIECE = 1 << 24  # numbers that are widened at once
_LOW = 0xFFFFFFFF

Found = Tuple[int, int, Any, Any, Any, Any, List[float]]  # as of _sonde.tensor_statistics()


def _bits(torch: Any, values: Sequence[Any]) -> Any:
    """Doubles as words that keep their bits."""
    return torch.stack(list(values)).to(torch.float64).view(torch.int64)


def _queue_floats(torch: Any, piece: Any) -> Any:
    wide = piece.to(torch.float64)
    counts = torch.stack([torch.isnan(wide).sum(), torch.isinf(wide).sum()])
    return torch.cat([counts, _bits(torch, [wide.min(), wide.max(), wide.sum(), wide.abs().sum()])])


def _queue_integers(torch: Any, piece: Any) -> Any:
    """Sums of halves, since a sum of 64-bit numbers needs more than 64 bits."""
    wide = piece.to(torch.int64)
    words = [wide.min(), wide.max()]
    for part in (wide.clamp(min=0), wide.clamp(max=0)):
        words += [(part >> 32).sum(), (part & _LOW).sum()]
    return torch.stack(words)


def _queue_complex(torch: Any, piece: Any) -> Any:
    real, imaginary = torch.view_as_real(piece).to(torch.float64).unbind(-1)
    nan = torch.isnan(real) | torch.isnan(imaginary)
    inf = (torch.isinf(real) | torch.isinf(imaginary)) & ~nan
    counts = torch.stack([nan.sum(), inf.sum()])
    modulus = torch.hypot(real, imaginary)
    return torch.cat([counts, _bits(torch, [real.sum(), imaginary.sum(), modulus.sum()])])


def _double(word: int) -> float:
    return struct.unpack("<d", struct.pack("<q", word))[0]


def _ranks(count: int, wanted: Sequence[float]) -> List[int]:
    """The two neighbours of each quantile."""
    places = [q * (count - 1) for q in wanted]
    return [rank for at in places for rank in (math.floor(at), math.ceil(at))]


def _interpolate(below: float, above: float, weight: float) -> float:
    if weight == 0 or below == above:
        return below
    if weight < 0.5:
        return below + weight * (above - below)
    return above - (above - below) * (1 - weight)


class _Part(NamedTuple):
    """Where the words about the first `count` numbers are."""

    pieces: List[int]  # of each piece how many words
    ordered: int  # words with numbers beside quantiles
    first: int


class QueuedStatistics:
    """Statistics of the beginnings of a tensor, each of so many numbers; queued when this is made.

    >>> queued = QueuedStatistics(tensor.flatten(), [tensor.numel()], (0.5,), 10)
    >>> queued.statistics(tensor.numel())       # the first question waits for the device
    >>> queued.first(tensor.numel())
    """

    def __init__(self, flat: Any, counts: Sequence[int], wanted: Sequence[float], first: int) -> None:
        torch = sys.modules["torch"]
        self.torch, self.is_bool = torch, flat.dtype == torch.bool
        if str(flat.dtype) == "torch.uint64":
            raise TypeError("torch has no sums of uint64")
        if self.is_bool:
            flat = flat.to(torch.uint8)
        elif str(flat.dtype) in ("torch.uint16", "torch.uint32"):
            flat = flat.to(torch.int64)  # which every operation knows
        self.is_complex = flat.is_complex()
        self.is_float = flat.is_floating_point()
        self.wanted = () if self.is_complex else tuple(wanted)
        self.found: Dict[int, Tuple[Found, list]] = {}
        self.parts: Dict[int, _Part] = {}
        words: List[Any] = []
        for count in sorted(set(counts)):
            if count:
                self.parts[count] = self._queue(flat[:count], first, words)
        self.words = torch.cat(words) if words else None

    def _queue(self, flat: Any, first: int, words: List[Any]) -> _Part:
        torch, pieces = self.torch, []
        queue = _queue_complex if self.is_complex else _queue_integers
        for piece in flat.split(PIECE):
            words.append((_queue_floats if self.is_float else queue)(torch, piece))
            pieces.append(words[-1].numel())
        ranks = _ranks(flat.numel(), self.wanted)
        if ranks:
            ordered = torch.sort(flat)[0]
            words.append(self._numbers([ordered[rank] for rank in ranks]))
        shown = flat[:first]
        if self.is_complex:
            shown = torch.view_as_real(shown).flatten()
        if shown.numel():
            words.append(self._numbers(shown.unbind()))
        return _Part(pieces, len(ranks), shown.numel())

    def _numbers(self, values: Sequence[Any]) -> Any:
        if self.is_float or self.is_complex:
            return _bits(self.torch, values)
        return self.torch.stack(list(values)).to(self.torch.int64)

    def statistics(self, count: int) -> Found:
        self._copy_back()
        return self.found[count][0]

    def first(self, count: int) -> list:
        self._copy_back()
        return self.found[count][1]

    def _copy_back(self) -> None:
        """The one copy, and the one wait for the device."""
        if self.words is None:
            return
        words = iter(self.words.to("cpu", copy=True).tolist())
        self.words = None
        for count, part in self.parts.items():
            pieces = [[next(words) for _ in range(n)] for n in part.pieces]
            ordered = [next(words) for _ in range(part.ordered)]
            first = [next(words) for _ in range(part.first)]
            self.found[count] = self._add_pieces(count, pieces, ordered), self._show(first)

    def _add_pieces(self, count: int, pieces: List[List[int]], ordered: List[int]) -> Found:
        if not (self.is_float or self.is_complex):
            lows, highs, *halves = zip(*pieces)
            sums = [sum(halves[i]) * (1 << 32) + sum(halves[i + 1]) for i in (0, 2)]
            quantiles = self._quantiles(count, [float(n) for n in ordered])
            return 0, 0, min(lows), max(highs), sums[0] + sums[1], sums[0] - sums[1], quantiles
        nans, infs = (sum(row[i] for row in pieces) for i in (0, 1))
        values = [[_double(word) for word in row[2:]] for row in pieces]
        if self.is_complex:
            real, imaginary, l1 = (_add(row[i] for row in values) for i in range(3))
            return nans, infs, None, None, complex(real, imaginary), l1, []
        low, high = min(row[0] for row in values), max(row[1] for row in values)
        total, l1 = (_add(row[i] for row in values) for i in (2, 3))
        quantiles = self._quantiles(count, [_double(word) for word in ordered])
        if nans:
            low = high = math.nan
            quantiles = [math.nan] * len(self.wanted)
        return nans, infs, low, high, total, l1, quantiles

    def _quantiles(self, count: int, ordered: List[float]) -> List[float]:
        weights = [q * (count - 1) - math.floor(q * (count - 1)) for q in self.wanted]
        pairs = zip(ordered[::2], ordered[1::2])
        return [_interpolate(low, high, weight) for (low, high), weight in zip(pairs, weights)]

    def _show(self, words: List[int]) -> list:
        if self.is_bool:
            return [bool(word) for word in words]
        if self.is_complex:
            values = [_double(word) for word in words]
            return [complex(*pair) for pair in zip(values[::2], values[1::2])]
        return [_double(word) for word in words] if self.is_float else words


def _add(values: Any) -> float:
    total = 0.0
    for value in values:
        total += value
    return total
