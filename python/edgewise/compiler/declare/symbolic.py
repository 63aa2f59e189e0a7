"""Dimensions and shape values that depend on a run-time register: `Sym(scale * register + add)`.

A plan has concrete shapes, but a few lengths (the number of tokens in the cache) change from run to
run. In shapes and in folded integer values such a length is a `Sym`: linear in one register with a
known range. Loops run over the current value. Memory is reserved and laid out for the largest one,
unless the Sym is `packed`: then tensors are contiguous for the current value, as those that a
caller feeds and receives. Anything that is not linear raises `NotStatic`, unless the Sym has
`registers` (declare/registers.py), which then holds the value in a further register. A decision
that depends on a register raises it in either case; the caller of `bind` then compiles one plan for
each length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .registers import Registers

# Registers of counters of loops, until all other registers of a plan are known.
FIRST_COUNTER = 1 << 30


class NeedsHost(Exception):
    """A node (a loop, or one with a sequence as output) cannot be part of a plan: the session runs
    it between plans.

    Attributes:
        node: The Node of the graph that is bound, or None.
    """

    def __init__(self, node: Any = None) -> None:
        self.node = node

    def __str__(self) -> str:
        return self.node.where if self.node is not None else ""


class NotStatic(Exception):
    """A shape or a decision depends on a register in a way that a plan cannot express."""


class TooShort(NotStatic):
    """A window does not fit at the lowest length of a range, or has a single position there:
    dimensions of 1 are broadcast by other rules.
    """


class Sym:
    """`scale * register + add`, a dimension or number that depends on a register.

    Attributes:
        reg: The number of the register.
        lo, hi: Its range, inclusive.
        packed: Whether strides follow its current value instead of its largest one.
        registers: The registers of its plan, if further ones may be added.
    """

    __slots__ = ("reg", "scale", "add", "lo", "hi", "packed", "registers")

    def __init__(
        self,
        reg: int,
        scale: int = 1,
        add: int = 0,
        lo: int = 0,
        hi: int = 0,
        packed: bool = False,
        registers: Registers | None = None,
    ) -> None:
        self.reg, self.scale, self.add, self.lo, self.hi = reg, scale, add, lo, hi
        self.packed, self.registers = packed, registers

    def at(self, register: int) -> int:
        """Its value for this value of the register; with `registers`, of the first one."""
        if self.registers is not None and self.reg:
            register = self.registers.values([register])[self.reg]
        return self.scale * register + self.add

    @property
    def max(self) -> int:
        """The largest value that it can have."""
        return max(self.scale * self.lo, self.scale * self.hi) + self.add

    @property
    def min(self) -> int:
        """The smallest value that it can have."""
        return min(self.scale * self.lo, self.scale * self.hi) + self.add

    def _new(self, scale: int, add: int) -> Sym | int:
        if not scale:
            return add
        return Sym(self.reg, scale, add, self.lo, self.hi, self.packed, self.registers)

    def __add__(self, o: Sym | int) -> Sym | int:
        if isinstance(o, Sym):
            if o.reg != self.reg:
                if self.registers is not None:
                    return self.registers.add(self, o)
                raise NotStatic("sum of two registers")
            return self._new(self.scale + o.scale, self.add + o.add)
        return self._new(self.scale, self.add + self._whole(o))

    __radd__ = __add__

    def __neg__(self) -> Sym | int:
        return self._new(-self.scale, -self.add)

    def __sub__(self, o: Sym | int) -> Sym | int:
        return self + (-o)

    def __rsub__(self, o: Sym | int) -> Sym | int:
        return (-self) + o

    def __mul__(self, o: int) -> Sym | int:
        if isinstance(o, Sym) and self.registers is not None:
            return self.registers.multiply(self, o)
        if isinstance(o, Sym):
            raise NotStatic("a product with a register in it")
        factor = self._whole(o)
        return self._new(self.scale * factor, self.add * factor)

    __rmul__ = __mul__

    def _whole(self, o: float) -> int:
        """A number that is combined with a Sym; one in floating point must be an integer."""
        if isinstance(o, float) and (self.registers is None or o != o // 1 or abs(o) == inf):
            raise NotStatic("a register in floating point")
        return int(o)

    def __float__(self) -> float:
        raise NotStatic(f"{self} in floating point")

    def __truediv__(self, o: object) -> float:
        raise NotStatic(f"{self} / {o}")

    __rtruediv__ = __truediv__
    __pow__ = __rpow__ = __truediv__

    def __floor__(self) -> Sym:
        return self

    __ceil__ = __trunc__ = __floor__

    def __floordiv__(self, o: Sym | int) -> Sym | int:
        o = o if isinstance(o, Sym) else self._whole(o)
        if isinstance(o, Sym):
            if (
                o.reg == self.reg
                and o.scale
                and self.scale % o.scale == 0
                and self.add == o.add * (self.scale // o.scale)
            ):
                return self.scale // o.scale
            if self.registers is not None:
                return self.registers.divide(self, o)
        elif isinstance(o, int) and o and self.scale % o == 0 and self.add % o == 0:
            return self._new(self.scale // o, self.add // o)
        raise NotStatic(f"{self} // {o}")

    def __rfloordiv__(self, o: int) -> int:
        if o == 0 and self.min > 0:
            return 0
        raise NotStatic(f"{o} // {self}")

    def __mod__(self, o: Sym | int) -> Sym | int:
        if isinstance(o, int) and o and self.scale % o == 0:
            return self.add % o
        if isinstance(o, Sym):
            self // o
            return 0
        if self.registers is not None and isinstance(o, int) and o > 0:
            return self - self.registers.floor(self, o) * o
        raise NotStatic(f"{self} % {o}")

    def __abs__(self) -> Sym | int:
        if self.min >= 0:
            return self
        if self.max <= 0:
            return -self
        raise NotStatic(f"whether {self} is negative")

    def __eq__(self, o: object) -> bool:
        return isinstance(o, Sym) and (self.reg, self.scale, self.add) == (o.reg, o.scale, o.add)

    def __ne__(self, o: object) -> bool:
        return not self == o

    def __hash__(self) -> int:
        return hash((self.reg, self.scale, self.add))

    def _order(self, o: Sym | int) -> tuple[int, int]:
        """Range of self - o."""
        d = self - o
        return (d.min, d.max) if isinstance(d, Sym) else (d, d)

    def __lt__(self, o: Sym | float) -> bool:
        if o in (inf, -inf):
            return o > 0
        lo, hi = self._order(o)  # type: ignore[arg-type]  # infinities are handled above
        if hi < 0:
            return True
        if lo >= 0:
            return False
        raise NotStatic(f"{self} < {o}")

    def __ge__(self, o: Sym | float) -> bool:
        return not self < o

    def __le__(self, o: Sym | float) -> bool:
        return self < o + 1 if o not in (inf, -inf) else o > 0

    def __gt__(self, o: Sym | float) -> bool:
        return not self <= o

    def __bool__(self) -> bool:
        if self.min > 0 or self.max < 0:
            return True
        raise NotStatic(f"whether {self} is zero")

    def __index__(self) -> int:
        raise NotStatic(f"{self} where a number is needed")

    __int__ = __index__

    def __repr__(self) -> str:
        return f"r{self.reg}*{self.scale}+{self.add}"


def most(d: Sym | int) -> int:
    """The largest value of a dimension, for which memory is laid out."""
    return d.max if isinstance(d, Sym) else d


def extent(d: Sym | int) -> Sym | int:
    """The size of a dimension in strides: its largest value, or the Sym itself if it is packed."""
    return d.max if isinstance(d, Sym) and not d.packed else d


def dims_at(shape: Sequence[Sym | int], register: int) -> list[int]:
    """A shape for this value of the register."""
    return [d.at(register) if isinstance(d, Sym) else d for d in shape]


def registers_of(shapes: Iterable[Sequence[Sym | int]]) -> Registers | None:
    """The registers that follow from the lengths in shapes; None if there can be none."""
    syms = (d for shape in shapes for d in shape if isinstance(d, Sym))
    return next((d.registers for d in syms if d.registers is not None), None)


def decide_equal(a: Any, b: Any) -> bool:
    """Whether two numbers or Syms are equal.

    Raises:
        NotStatic: it depends on the register.
    """
    if isinstance(a, Sym) or isinstance(b, Sym):
        if a == b:
            return True
        d = a - b
        if not isinstance(d, Sym):
            return d == 0
        if d.min > 0 or d.max < 0:
            return False
        raise NotStatic(f"{a} == {b}")
    return a == b


def product(dims: Iterable[Any]) -> Any:
    """The product of dimensions: an int, or a Sym where one of them is a Sym."""
    n = 1
    for d in dims:
        n = n * d
    return n


def strides_of(shape: Sequence[Sym | int]) -> list[Any]:
    """Strides, in elements, of a contiguous tensor: for the largest shape, or the current one where
    a Sym is packed.

    Raises:
        NotStatic: a stride would be the product of two Syms.
    """
    out: list[Any] = [0] * len(shape)
    n: Any = 1
    for i in range(len(shape) - 1, -1, -1):
        out[i] = n
        if i:
            n = n * extent(shape[i])
    return out
