"""Plans for a range of lengths: which dimension of a part's inputs changes from run to run.

A plan is compiled for fixed shapes. Where the same input comes with ever other lengths, as a
decoder's caches do, the dimensions that change become Syms of one register, and one plan serves all
lengths of a range.
"""

from __future__ import annotations

from ..declare.dtypes import bytes_for
from ..declare.op import TooLong
from ..declare.symbolic import NeedsHost, NotStatic, Sym, product
from ..errors import ModelError, OutOfMemory, UnsupportedOp
from ..ir import NeedsValue
from ..manifest_limits import LIMITS

LEAST = 2
"""The smallest length of a range: dimensions of 0 and 1 follow other rules (broadcasting)."""
ROOM = 256
"""The largest length of a range is at least this one, if the inputs stay small."""
MOST_BYTES = 64 << 20
"""Of inputs at the largest length: beyond, a range ends at the next power of two."""
REGISTER = "length"
FAILS = (NotStatic, NeedsValue, NeedsHost, UnsupportedOp, ModelError, OutOfMemory)
"""What compiling raises where a length is no linear expression, or decides something."""


class Lengths:
    """Shapes that one plan serves.

    Args:
        types: ONNX dtype of each input.
        shapes: dimensions of each input: ints, and `(add,)` for `register + add`.
        numbers: the numbers that the shapes of the plan depend on, as in the key of a plan.
        low, high: range of the register, both inclusive.
    """

    def __init__(self, types, shapes, numbers, low, high):
        self.types, self.shapes, self.numbers = types, shapes, numbers
        self.low, self.high = low, high
        self.first = next(
            (i, a) for i, s in enumerate(shapes) for a, d in enumerate(s) if d == (0,)
        )

    @property
    def skeleton(self):
        """What two ranges of the same plan have in common."""
        return self.types, self.shapes, self.numbers

    def length(self, keys, numbers):
        """The register's value for inputs with these keys ((dtype, shape) each) and numbers; None
        where they are not of this range.
        """
        if numbers != self.numbers or len(keys) != len(self.shapes):
            return None
        shape = keys[self.first[0]][1]
        if len(shape) <= self.first[1]:
            return None
        length = shape[self.first[1]]
        if not self.low <= length <= self.high:
            return None
        for (dtype, given), kind, dims in zip(keys, self.types, self.shapes):
            if dtype != kind or len(given) != len(dims):
                return None
            for d, expected in zip(given, dims):
                if d != (expected if type(expected) is int else length + expected[0]):
                    return None
        return length

    def symbolic(self):
        """The shapes with Syms."""
        return [
            [
                d if type(d) is int else Sym(0, 1, d[0], self.low, self.high, packed=True)
                for d in dims
            ]
            for dims in self.shapes
        ]

    @property
    def registers(self):
        """As compile_graph's."""
        return [(REGISTER, self.low, self.high)]


def find_lengths(seen, keys, numbers, needs):
    """The Lengths of inputs in which one dimension changes.

    A dimension changes if it is one more than in the run that was compiled for last, or if it has
    its third value; other dimensions may follow it at a fixed distance.

    Args:
        seen: [(keys, numbers)] of what was compiled for, the latest last.
        keys: [(dtype, shape)] of the inputs now.
        numbers: the numbers that shapes depend on.
        needs: indices of the inputs that have them, whose shapes may not change.
    Returns:
        Lengths, or None
    """
    steps = [
        step for k, n in reversed(seen) if n == numbers and (step := _step(k, keys)) is not None
    ]
    if not steps:
        return None
    places, difference = steps[0]
    others = any(at == places and other != difference for at, other in steps[1:])
    if difference != 1 and not others or any(i in needs for i, _ in places):
        return None
    now = keys[places[0][0]][1][places[0][1]]
    changing = set(places)
    shapes = tuple(
        tuple((d - now,) if (i, a) in changing else d for a, d in enumerate(shape))
        for i, (_, shape) in enumerate(keys)
    )
    low = LEAST - min(0, *(d[0] for s in shapes for d in s if type(d) is tuple))
    if not low <= now < LIMITS["MAX_LENGTH"] // 2:
        return None
    types = tuple(dtype for dtype, _ in keys)
    return Lengths(types, shapes, numbers, low, _highest(types, shapes, now))


def _step(before, now):
    """(places of the dimensions that differ, by how much), the same for all; None where that is no
    change of one length.
    """
    places, difference = [], None
    for i, ((dtype, old), (kind, new)) in enumerate(zip(before, now)):
        if dtype != kind or len(old) != len(new):
            return None
        for a, (x, y) in enumerate(zip(old, new)):
            if x == y:
                continue
            if difference not in (None, y - x):
                return None
            difference = y - x
            places.append((i, a))
    return (places, difference) if places else None


def _highest(types, shapes, now):
    """The largest length to make a plan for: room for a quarter more, as a power of two."""

    def size(length):
        return sum(
            bytes_for(t, product([d if type(d) is int else length + d[0] for d in s]))
            for t, s in zip(types, shapes)
            if any(type(d) is tuple for d in s)
        )

    high = max(ROOM, 1 << (now + now // 4).bit_length())
    return high if size(high) <= MOST_BYTES else 1 << now.bit_length()


def compile_lengths(lengths, now, compile_range):
    """Compiles a plan for a range of lengths, a shorter one where a table of the model ends before.

    Args:
        lengths: Lengths. now: the length that must be in the range. compile_range:
        function(Lengths) that compiles.
    Returns:
        (Lengths, what compile_range returned); None where there is no such plan.
    """
    for _ in range(3):
        try:
            return lengths, compile_range(lengths)
        except TooLong as e:
            high = lengths.high - e.excess
            if high < now or e.excess < 1:
                return None
            lengths = Lengths(*lengths.skeleton, lengths.low, high)
        except FAILS:
            return None
    return None
