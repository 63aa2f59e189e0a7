"""Einsum: operands are multiplied from left to right, each pair as a matrix product over the
indices that occur nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import DOUBLE, FLOAT, INT32, INT64
from ...declare.op import Op, fail, product, unsupported

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value

einsum = Op("Einsum")

Index = str | int  # a letter; a dimension of an ellipsis is a number, 1 for the last one


def _parse(node: BoundNode) -> tuple[list[list[Index]], list[Index]]:
    """(indices of each operand, indices of the output)."""
    equation = node.attr("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(node.inputs) or any(v is None for v in node.inputs):
        fail(
            node, f"its equation {equation!r} has {len(terms)} terms for {len(node.inputs)} inputs"
        )

    def letters(term: str, rank: int) -> list[Index]:
        before, dots, after = term.partition("...")
        if not all(c.isascii() and c.isalpha() for c in before + after):
            fail(node, f"its equation {equation!r} cannot be parsed")
        more = rank - len(before) - len(after)
        if more < 0 or more and not dots:
            fail(node, f"the term {term!r} of its equation has another rank than its input, {rank}")
        return [*before, *range(more, 0, -1), *after]

    terms = [letters(term, v.rank) for term, v in zip(terms, node.inputs)]
    widest = max((i for term in terms for i in term if isinstance(i, int)), default=0)
    if arrow:
        out = letters(right, len(right.replace("...", "")) + (widest if "..." in right else 0))
    else:
        names = [i for term in terms for i in term if isinstance(i, str)]
        out = [*range(widest, 0, -1), *sorted(i for i in set(names) if names.count(i) == 1)]
    if len(set(out)) != len(out) or set(out) - {i for term in terms for i in term}:
        fail(
            node,
            f"the output of its equation {equation!r} names an index twice, or one that no"
            " input has",
        )
    return terms, out


class _Term:
    """A tensor with an index for each dimension."""

    def __init__(self, graph: Binder, value: Value, names: list[Index]) -> None:
        self.graph, self.value, self.names = graph, value, names

    def size(self, name: Index) -> int:
        """The length of a dimension."""
        return self.value.shape[self.names.index(name)]

    def reshaped(self, shape: list[int], names: list[Index]) -> _Term:
        """With other dimensions."""
        return _Term(self.graph, self.graph.reshape(self.value, shape), names)

    def ordered(self, names: list[Index]) -> _Term:
        """With its dimensions in this order."""
        perm = [self.names.index(i) for i in names]
        return (
            self
            if perm == list(range(len(perm)))
            else _Term(self.graph, self.graph.op("Transpose", self.value, perm=perm), list(names))
        )

    def summed(self, names: set[Index]) -> _Term:
        """Summed over these dimensions."""
        axes = [i for i, name in enumerate(self.names) if name in names]
        if not axes:
            return self
        return _Term(
            self.graph,
            self.graph.op("ReduceSum", self.value, self.graph.ints(axes), keepdims=0),
            [i for i in self.names if i not in names],
        )

    def diagonal(self) -> _Term:
        """With each index once: the diagonal of dimensions that share an index."""
        term = self
        while (twice := next((i for i in term.names if term.names.count(i) > 1), None)) is not None:
            first, second = [k for k, i in enumerate(term.names) if i == twice][:2]
            d = term.value.shape[first]
            rest = [k for k in range(len(term.names)) if k not in (first, second)]
            value = term.graph.op("Transpose", term.value, perm=[*rest, first, second])
            value = self.graph.reshape(value, [*value.shape[:-2], d * d])
            value = self.graph.op(
                "Slice", value, *(self.graph.ints([k]) for k in (0, d * d, len(rest), d + 1))
            )
            term = _Term(self.graph, value, [*(term.names[k] for k in rest), twice])
        return term

    def without_ones(self, other: _Term) -> _Term:
        """Without the dimensions of 1 that are broadcast to larger ones of the other term."""
        gone = {
            i for i in self.names if i in other.names and self.size(i) == 1 and other.size(i) != 1
        }
        return self.reshaped(
            [d for d, i in zip(self.value.shape, self.names) if i not in gone],
            [i for i in self.names if i not in gone],
        )


def _joined(a: _Term, c: _Term, kept: set[Index]) -> _Term:
    """The product of two terms, summed over the indices that are not kept."""
    a, c = a.without_ones(c), c.without_ones(a)
    a, c = (
        x.summed({i for i in x.names if i not in kept and i not in y.names})
        for x, y in ((a, c), (c, a))
    )
    shared = [i for i in a.names if i in c.names]
    batch, ended = [i for i in shared if i in kept], [i for i in shared if i not in kept]
    a_only, c_only = ([i for i in x.names if i not in shared] for x in (a, c))
    lead, rows, inner, columns = (
        [x.size(i) for i in names]
        for x, names in ((a, batch), (a, a_only), (a, ended), (c, c_only))
    )
    names, shape = batch + a_only + c_only, lead + rows + columns
    if not ended:
        a = a.ordered(batch + a_only).reshaped(lead + rows + [1] * len(columns), names)
        c = c.ordered(batch + c_only).reshaped(lead + [1] * len(rows) + columns, names)
        return _Term(a.graph, a.graph.op("Mul", a.value, c.value), names)
    a = a.ordered(batch + a_only + ended).reshaped([*lead, product(rows), product(inner)], names)
    c = c.ordered(batch + ended + c_only).reshaped([*lead, product(inner), product(columns)], names)
    return _Term(a.graph, a.graph.op("MatMul", a.value, c.value), names).reshaped(shape, names)


@einsum.decompose
def einsum_decompose(node: BoundNode, graph: Binder) -> list[Value] | None:
    names_of, out = _parse(node)
    if any(v.dtype not in (FLOAT, DOUBLE, INT32, INT64) for v in node.inputs):
        unsupported(node, f"products of {node.inputs[0]}")
    sizes: dict[Index, int] = {}
    for names, v in zip(names_of, node.inputs):
        for i, d in zip(names, v.shape):
            if sizes.setdefault(i, d) != d and 1 not in (d, sizes[i]):
                fail(node, f"its index {i!r} has the sizes {sizes[i]} and {d}")
            sizes[i] = d if sizes[i] == 1 else sizes[i]
    terms = [_Term(graph, v, names).diagonal() for v, names in zip(node.inputs, names_of)]
    result = terms[0]
    for k, term in enumerate(terms[1:], 2):
        result = _joined(result, term, {*out, *(i for later in terms[k:] for i in later.names)})
    result = result.summed({i for i in result.names if i not in out})
    return [result.ordered(out).value]
