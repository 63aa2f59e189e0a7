"""Registers of a plan that follow from others: the sums, products and quotients of lengths.

A `Sym` is linear in one register. Where shapes need more (a convolution of stride 2, the rows of a
tensor of [frames, tokens]), a further register holds the value, and the engine computes it whenever
a length changes. Each value has one normal form, a polynomial over *atoms*: the lengths, and the
rounded quotients of polynomials. So two dimensions are equal if and only if their forms are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from itertools import product as combinations
from math import ceil, floor, gcd, inf, lcm, prod

from .symbolic import NotStatic, Sym

# {atoms of a product, sorted: its coefficient}; () is the constant
Polynomial = dict[tuple[int, ...], int]

MAX = 1024  # registers of a plan that follow from others; as in core/plan.c
MAX_VALUE = 1 << 62  # the engine computes with int64
MAX_CORNERS = 6  # atoms of a polynomial whose range is found exactly


@dataclass(frozen=True)
class Rule:
    """A register is (product * [a] * [b] + of_a * [a] + of_b * [b] + add) // divisor, where [a] and
    [b] are registers before it.
    """

    a: int
    b: int
    product: int
    of_a: int
    of_b: int
    add: int
    divisor: int

    def at(self, values: Sequence[int]) -> int:
        """The value for these values of the registers before it."""
        a, b = values[self.a], values[self.b]
        whole = self.product * a * b + self.of_a * a + self.of_b * b + self.add
        return whole // self.divisor


class Registers:
    """All registers of a plan: lengths that the caller sets, and values that follow from them.

    Args:
        lengths: (lowest, highest value) of each length, which has the register of its position.

    Attributes:
        ranges: (lowest, highest value) of each register.
        rules: of each register that follows from others; None of a length.
    """

    def __init__(self, lengths: Iterable[tuple[int, int]]) -> None:
        self.ranges = list(lengths)
        self.rules: list[Rule | None] = [None] * len(self.ranges)
        self._forms: list[Polynomial] = [{(i,): 1} for i in range(len(self.ranges))]
        self._found = {_key(form): i for i, form in enumerate(self._forms)}
        # {atom: (polynomial, divisor)} of rounded quotients, and the reverse
        self._quotients: dict[int, tuple[Polynomial, int]] = {}
        self._atoms: dict[object, int] = {}

    def length(self, register: int) -> Sym:
        """A length as a dimension, whose tensors are contiguous at each value."""
        return self._sym(register, 1, 0)

    def values(self, lengths: Sequence[int]) -> list[int]:
        """The value of each register for given lengths."""
        out = list(lengths)
        for rule in self.rules[len(out) :]:
            assert rule is not None
            out.append(rule.at(out))
        return out

    # ---- arithmetic
    def add(self, x: Sym, y: Sym) -> Sym | int:
        """x + y."""
        out = dict(self._form(x))
        for term, factor in self._form(y).items():
            out[term] = out.get(term, 0) + factor
        return self._value(out)

    def multiply(self, x: Sym, y: Sym) -> Sym | int:
        """x * y."""
        out: Polynomial = {}
        for one, p in self._form(x).items():
            for other, q in self._form(y).items():
                term = tuple(sorted(one + other))
                out[term] = out.get(term, 0) + p * q
        return self._value(out)

    def floor(self, x: Sym, divisor: int) -> Sym | int:
        """x // divisor, rounded towards minus infinity; divisor: above 0."""
        form = self._form(x)
        inner = self._quotients.get(x.reg)
        if inner is not None and x.scale == 1:  # (p // d + c) // e is (p + c * d) // (d * e)
            form, divisor = _plus(inner[0], x.add * inner[1]), divisor * inner[1]
        whole = {term: factor // divisor for term, factor in form.items()}
        rest = {term: factor % divisor for term, factor in form.items() if factor % divisor}
        common = gcd(divisor, *(factor for term, factor in rest.items() if term))
        divisor //= common
        rest = {term: factor // common for term, factor in rest.items() if factor // common}
        if not any(rest):  # a constant, below the divisor
            return self._value(whole)
        atom = self._quotient(rest, divisor)
        return self._value({**whole, (atom,): whole.get((atom,), 0) + 1})

    def divide(self, x: Sym, y: Sym) -> Sym | int:
        """x / y where it has no remainder. Raises NotStatic where that is not certain."""
        rest, by, out = dict(self._form(x)), self._form(y), Polynomial()
        lead = max(by, key=_order)
        while rest:
            term = max(rest, key=_order)
            left = _without(term, lead)
            if left is None or rest[term] % by[lead]:
                raise NotStatic(f"{x} // {y}")
            factor = out[left] = rest[term] // by[lead]
            for other, q in by.items():
                at = tuple(sorted(left + other))
                rest[at] = rest.get(at, 0) - factor * q
            rest = {t: f for t, f in rest.items() if f}
        return self._value(out)

    # ---- registers
    def _sym(self, register: int, scale: int, add: int) -> Sym:
        return Sym(register, scale, add, *self.ranges[register], packed=True, registers=self)

    def _form(self, x: Sym) -> Polynomial:
        form = {term: factor * x.scale for term, factor in self._forms[x.reg].items()}
        return _plus(form, x.add)

    def _value(self, form: Polynomial) -> Sym | int:
        form = {term: factor for term, factor in form.items() if factor}
        add = form.pop((), 0)
        if not form:
            return add
        scale = gcd(*form.values())
        if form[max(form, key=_order)] < 0:
            scale = -scale
        form = {term: factor // scale for term, factor in form.items()}
        register = self._found.get(_key(form))
        if register is None:
            register = self._new(self._rule(form), self.range_of(form))
            self._forms[register], self._found[_key(form)] = form, register
        return self._sym(register, scale, add)

    def _new(self, rule: Rule, range_: tuple[int, int]) -> int:
        if sum(rule is not None for rule in self.rules) == MAX:
            raise NotStatic("too many lengths that follow from others")
        if max(map(abs, (*range_, *astuple(rule)))) >= MAX_VALUE:
            raise NotStatic("a length beyond 62 bits")
        self.rules.append(rule)
        self.ranges.append(range_)
        self._forms.append({(len(self._forms),): 1})
        return len(self.rules) - 1

    def _quotient(self, form: Polynomial, divisor: int) -> int:
        """The atom of a polynomial's rounded quotient."""
        key = (_key(form), divisor)
        if key not in self._atoms:
            inner = self._value({term: factor for term, factor in form.items() if term})
            assert isinstance(inner, Sym)
            rule = Rule(inner.reg, inner.reg, 0, inner.scale, 0, form.get((), 0), divisor)
            low, high = self.range_of(form)
            if max(-low, high) >= MAX_VALUE:
                raise NotStatic("a length beyond 62 bits")
            atom = self._new(rule, (low // divisor, high // divisor))
            self._atoms[key], self._quotients[atom] = atom, (form, divisor)
            self._found[_key(self._forms[atom])] = atom
        return self._atoms[key]

    def _rule(self, form: Polynomial) -> Rule:
        """How a polynomial of two terms or more, or of a product, is computed."""
        atoms = sorted({atom for term in form for atom in term})
        a, b = atoms[0], atoms[-1]
        if len(atoms) <= 2 and set(form) <= {(a, b), (a,), (b,)}:
            of_b = form.get((b,), 0) if a != b else 0
            return Rule(a, b, form.get((a, b), 0), form.get((a,), 0), of_b, 0, 1)
        last = max(form, key=_order)
        if len(form) == 1:
            x, y = self._value({last[:-1]: 1}), self._value({last[-1:]: 1})
            assert isinstance(x, Sym) and isinstance(y, Sym)
            return Rule(x.reg, y.reg, 1, 0, 0, 0, 1)
        x = self._value({term: factor for term, factor in form.items() if term != last})
        y = self._value({last: form[last]})
        assert isinstance(x, Sym) and isinstance(y, Sym)
        return Rule(x.reg, y.reg, 0, x.scale, y.scale, x.add + y.add, 1)

    def range_of(self, form: Mapping[tuple[int, ...], int]) -> tuple[int, int]:
        """A range that contains a polynomial's values; the exact one in most cases."""
        near = self._difference(form)
        if near is not None:
            return near
        low, high = self._corners(form)
        least, most = self._rounded(form)
        if least > -inf:
            low, high = max(low, ceil(least)), min(high, floor(most))
        return low, high

    def _rounded(
        self, form: Mapping[tuple[int, ...], int]
    ) -> tuple[Fraction | float, Fraction | float]:
        """A range of a polynomial, where a rounded quotient is one without its remainder: a size
        that is rounded up to a multiple is near the size itself.
        """
        if all(factor >= 0 for term, factor in form.items() if term):
            return -inf, inf  # _corners is exact
        left = {term: Fraction(factor) for term, factor in form.items()}
        low = high = Fraction(0)
        # an atom's polynomial has atoms before it
        for atom in sorted((t[0] for t in form if len(t) == 1), reverse=True):
            if atom not in self._quotients:
                continue
            part = left.pop((atom,), Fraction(0))
            inner, divisor = self._quotients[atom]
            for term, factor in inner.items():
                left[term] = left.get(term, Fraction(0)) + part * factor / divisor
            rest = part * (divisor - 1) / divisor  # the largest
            low, high = low - max(rest, Fraction(0)), high - min(rest, Fraction(0))
        if low == high:
            return -inf, inf
        common = lcm(*(factor.denominator for factor in left.values()))
        whole = {term: int(factor * common) for term, factor in left.items() if factor}
        least, most = self._corners(whole)
        return low + Fraction(least, common), high + Fraction(most, common)

    def _corners(self, form: Mapping[tuple[int, ...], int]) -> tuple[int, int]:
        """A range of a polynomial from those of its atoms."""
        atoms = sorted({atom for term in form for atom in term})
        ends = [self.ranges[atom] for atom in atoms]
        at = {atom: i for i, atom in enumerate(atoms)}

        def value(point: Sequence[int]) -> int:
            return sum(f * prod(point[at[x]] for x in term) for term, f in form.items())

        if all(f > 0 for term, f in form.items() if term) and all(low >= 0 for low, _ in ends):
            return value([low for low, _ in ends]), value([high for _, high in ends])
        points: list[Sequence[int]] = []
        if len(atoms) <= MAX_CORNERS and all(len(set(t)) == len(t) for t in form):
            points = list(combinations(*ends))
        elif len(atoms) == 1 and max(map(len, form)) == 2:
            (low, high), x = ends[0], atoms[0]
            middle = -form.get((x,), 0) // (2 * form[(x, x)])
            points = [[min(max(p, low), high)] for p in (low, high, middle, middle + 1)]
        if points:
            found = [value(p) for p in points]
            return min(found), max(found)
        lows = highs = 0
        for term, factor in form.items():
            corners = [factor * prod(p) for p in combinations(*(self.ranges[x] for x in term))]
            lows, highs = lows + min(corners), highs + max(corners)
        return lows, highs

    def _difference(self, form: Mapping[tuple[int, ...], int]) -> tuple[int, int] | None:
        """The range of the difference of two rounded quotients of polynomials that differ by a
        number, such as the lengths that a convolution and a strided slice leave; None if the
        polynomial is none.
        """
        terms = [term for term in form if term]
        if len(terms) != 2 or form[terms[0]] != -form[terms[1]]:
            return None
        found = [q for t in terms if len(t) == 1 and (q := self._quotients.get(t[0])) is not None]
        if len(found) != 2:
            return None
        (one, divisor), (other, same) = found
        if divisor != same or _plus(one, 0) != _plus(other, one.get((), 0) - other.get((), 0)):
            return None
        apart = one.get((), 0) - other.get((), 0)
        ends = (apart // divisor, -(-apart // divisor))  # of a // d - b // d, where a - b is apart
        values = [form[terms[0]] * end + form.get((), 0) for end in ends]
        return min(values), max(values)


def floor_div(x: Sym | int, divisor: int) -> Sym | int:
    """x // divisor, rounded towards minus infinity.

    Raises:
        NotStatic: x is a Sym without Registers, and the quotient is not linear in its register.
    """
    if not isinstance(x, Sym):
        return x // divisor
    if x.scale % divisor == 0:
        return x._new(x.scale // divisor, x.add // divisor)
    if x.registers is None:
        raise NotStatic(f"{x} // {divisor}")
    return x.registers.floor(x, divisor)


def ceil_div(x: Sym | int, divisor: int) -> Sym | int:
    """x / divisor, rounded towards infinity. Raises as floor_div."""
    return floor_div(x + (divisor - 1), divisor)


def _plus(form: Polynomial, number: int) -> Polynomial:
    return {**form, (): form.get((), 0) + number}


def _key(form: Polynomial) -> frozenset[tuple[tuple[int, ...], int]]:
    return frozenset(form.items())


def _order(term: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return len(term), term


def _without(term: tuple[int, ...], part: tuple[int, ...]) -> tuple[int, ...] | None:
    """The atoms of a term but those of a part of it; None if it is none."""
    left = list(term)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)
