"""Plans for a range of lengths: finds the dimensions that change from run to run.

A plan is compiled for fixed shapes. If the length of an input changes from run to run, as that of a
decoder's caches or of a text does, the changing dimensions become Syms of one register, and one
plan is used for all lengths of a range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ...compiler.declare.dtypes import bytes_for
from ...compiler.declare.op import TooLong
from ...compiler.declare.registers import Registers
from ...compiler.declare.symbolic import NeedsHost, NotStatic, Sym, TooShort, product
from ...compiler.ir import NeedsValue
from ...errors import ModelError, OutOfMemory, UnsupportedOp
from ...logic.manifest.limits import MAX_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    # Dimensions of each input: a fixed size (int), or (add,) for `register + add`.
    Pattern = tuple[tuple[Any, ...], ...]
    # (dtype, shape) of a tensor
    Key = tuple[int, tuple[int, ...]]
    # The numbers of each input that shapes depend on.
    Numbers = tuple[tuple[int | float, ...], ...]
    # ([(input, axis)] of the dimensions that differ, by how much they differ)
    Step = tuple[list[tuple[int, int]], int]

    Found = TypeVar("Found")

MIN = 2
"""The minimum length of a range: dimensions of 0 and 1 are broadcast by other rules."""
ROOM = 256
"""The maximum length of a range is at least this, if the inputs are small."""
MAX_BYTES = 64 << 20
"""If the inputs exceed this size at the maximum length, the range ends at the next power of two."""
REGISTER = "length"
MAX_TRIES = 20
FAILS = (NotStatic, NeedsValue, NeedsHost, UnsupportedOp, ModelError)
"""Raised by the compiler if a dimension is not linear in the length or decides something."""


class Lengths:
    """The shapes that one plan is compiled for.

    Args:
        types: ONNX dtype of each input.
        shapes: dimensions of each input: ints, and `(add,)` for `register + add`.
        numbers: the numbers that the plan's shapes depend on, as in the key of a plan.
        low, high: range of the register, inclusive.
        packed: whether the strides of tensors follow the current length. Otherwise they are those
            of `high`: then a tensor may have several changing dimensions, as the weights of
            attention have.

    Attributes:
        first: (input, axis) of the first dimension that equals the register.
    """

    def __init__(
        self,
        types: tuple[int, ...],
        shapes: Pattern,
        numbers: Numbers,
        low: int,
        high: int,
        packed: bool = True,
    ) -> None:
        self.types, self.shapes, self.numbers = types, shapes, numbers
        self.low, self.high, self.packed = low, high, packed
        self.first = next(
            (i, a) for i, s in enumerate(shapes) for a, d in enumerate(s) if d == (0,)
        )

    @property
    def skeleton(self) -> tuple[tuple[int, ...], Pattern, Numbers]:
        """All but the range: equal for two ranges of the same shapes."""
        return self.types, self.shapes, self.numbers

    def length(self, keys: Sequence[Key], numbers: Numbers) -> int | None:
        """The register's value for given inputs.

        Args:
            keys: (dtype, shape) of each input.
            numbers: the numbers that shapes depend on.

        Returns:
            the length, or None if the inputs do not match
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

    def symbolic(self) -> list[list[Any]]:
        """The shapes, with Syms in place of the changing dimensions."""
        length: Any = Sym(0, 1, 0, self.low, self.high)
        if self.packed:
            length = Registers([(self.low, self.high)]).length(0)
        return [[d if type(d) is int else length + d[0] for d in dims] for dims in self.shapes]

    @property
    def registers(self) -> list[tuple[str, int, int]]:
        """The argument `registers` of compile_graph."""
        return [(REGISTER, self.low, self.high)]


def find_lengths(
    seen: Sequence[tuple[Sequence[Key], Numbers]],
    keys: Sequence[Key],
    numbers: Numbers,
    needs: Sequence[int],
) -> Lengths | None:
    """Finds the dimension of the inputs that changes from run to run.

    A dimension changes if it is greater by one than in the last compilation, or if it has its third
    value. Other dimensions may differ from it by a constant.

    Args:
        seen: [(keys, numbers)] of earlier compilations, the latest last.
        keys: (dtype, shape) of each input now.
        numbers: the numbers that shapes depend on.
        needs: indices of the inputs that have these numbers. Their shapes may not change.

    Returns:
        Lengths, or None if no dimension changes
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
    low = MIN - min(0, *(d[0] for s in shapes for d in s if type(d) is tuple))
    if not low <= now < MAX_LENGTH // 2:
        return None
    types = tuple(dtype for dtype, _ in keys)
    return Lengths(types, shapes, numbers, low, _highest(types, shapes, now))


def _step(before: Sequence[Key], now: Sequence[Key]) -> Step | None:
    """The dimensions that differ, and by how much; None if they differ by different amounts."""
    difference: int | None
    places: list[tuple[int, int]]
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
    return (places, difference) if places else None  # type: ignore[return-value]


def _highest(types: Iterable[int], shapes: Pattern, now: int) -> int:
    """The maximum length of a range: a power of two above five quarters of the current length, at
    least ROOM; above the current length if the inputs would exceed MAX_BYTES.
    """

    def size(length: int) -> int:
        return sum(
            bytes_for(t, product([d if type(d) is int else length + d[0] for d in s]))
            for t, s in zip(types, shapes)
            if any(type(d) is tuple for d in s)
        )

    high = max(ROOM, 1 << (now + now // 4).bit_length())
    return high if size(high) <= MAX_BYTES else 1 << now.bit_length()


def compile_lengths(
    lengths: Lengths, now: int, compile_range: Callable[[Lengths], Found]
) -> tuple[Lengths, Found] | None:
    """Compiles a plan for a range of lengths. The range is shortened if a table of the model, such
    as that of positions, is shorter, or if it takes too much memory at the maximum length. Where
    tensors cannot be packed they are laid out for the maximum length, if those that the caller
    feeds and receives are contiguous all the same.

    Args:
        lengths: the range.
        now: a length that the range must contain.
        compile_range: compiles for a range.

    Returns:
        (range, result of compile_range); None if there is no plan for several lengths
    """
    for _ in range(MAX_TRIES):
        shorter = 1 << (now - 1).bit_length()  # the least power of two that contains `now`
        try:
            return lengths, compile_range(lengths)
        except TooLong as e:
            high = lengths.high - e.excess
            if high < now or e.excess < 1:
                return None
            lengths = Lengths(*lengths.skeleton, lengths.low, high, lengths.packed)
        except TooShort:  # a window does not fit
            low = 2 * lengths.low
            if low > now:
                return None
            lengths = Lengths(*lengths.skeleton, low, lengths.high, lengths.packed)
        except NotStatic:
            high = lengths.high
            if not all(map(contiguous, lengths.symbolic())):
                return None
            if not lengths.packed:  # a table may end at a power of two
                if high <= shorter:
                    return None
                high = shorter
            lengths = Lengths(*lengths.skeleton, lengths.low, high, packed=False)
        except OutOfMemory:  # it may have room for fewer lengths
            if lengths.high <= shorter:
                return None
            lengths = Lengths(*lengths.skeleton, lengths.low, shorter, lengths.packed)
        except FAILS:
            return None
    return None


def contiguous(shape: Sequence[Any]) -> bool:
    """Whether a tensor is contiguous at each length, though its strides are those of the maximum
    length: only dimensions of 1 are before the one that changes.
    """
    return all(shape[:i] == [1] * i for i, d in enumerate(shape) if isinstance(d, Sym))
