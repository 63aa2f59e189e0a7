"""Sequence operators, evaluated while a graph is bound: with concrete shapes a sequence is a list of tensors known by then."""
from __future__ import annotations

from .errors import ModelError, UnsupportedOp
from .ir import Value
from .ops.dtypes import INT64


class Sequence(list):
    """Values of the tensors in a sequence. Nodes other than those here do not take it."""

    constant, dtype, shape, role, producer, numbers, tensor = False, -1, (), "", None, None, None
    name = "a sequence"


def _index(node, v, length, extra=0):
    if v.numbers is None or len(v.numbers) != 1 or not isinstance(v.numbers[0], int):
        raise UnsupportedOp("which tensor of the sequence it means is known only at run time", node.where, "Export the model with another exporter or optimization level.")
    i = v.numbers[0]
    if not -length <= i < length + extra:
        raise ModelError(f"its index {i} lies outside a sequence of {length}", node.where, "Export the model again.")
    return i + length if i < 0 else i


def evaluate(binder, node, inputs):
    """The output Value or Sequence of a sequence operator's node; None where it is another operator."""
    f = _OPS.get(node.op) if node.domain == "" else None
    if f is None:
        if any(isinstance(v, Sequence) for v in inputs):
            raise UnsupportedOp(f"{node.op} of a sequence is not supported", node.where, "Export the model with another exporter or optimization level.")
        return None
    try:
        return f(binder, node, inputs)
    except (IndexError, AttributeError, TypeError) as e:
        raise ModelError(f"its inputs are not what {node.op} takes ({e})", node.where, "Export the model again.") from None


def _sequence(node, v):
    if not isinstance(v, Sequence):
        raise ModelError("its input is no sequence", node.where, "Export the model again.")
    return v


def _split(binder, node, inputs):
    x, axis, keep = inputs[0], node.attrs.get("axis", 0), node.attrs.get("keepdims", 1)
    axis = axis + x.rank if axis < 0 else axis
    if not 0 <= axis < x.rank:
        raise ModelError(f"axis {node.attrs.get('axis')} does not exist in {x}", node.where, "Export the model again.")
    length = x.shape[axis]
    if len(inputs) < 2 or inputs[1] is None:
        sizes = [1] * length
    else:
        sizes, keep = inputs[1].numbers, 1
        if sizes is None:
            raise UnsupportedOp("how it splits is known only at run time", node.where, "Export the model with fixed shapes.")
        if inputs[1].rank == 0:  # equal parts, a smaller last one
            size = sizes[0]
            if size < 1:
                raise ModelError(f"parts of {size}", node.where, "Export the model again.")
            sizes = [min(size, length - i) for i in range(0, length, size)]
    if sum(sizes) != length or min(sizes, default=0) < 0 or len(sizes) > 1 << 12:
        raise ModelError(f"parts of {sizes} do not make {length}", node.where, "Export the model again.")
    out, at = Sequence(), 0
    for size in sizes:
        numbers = [Value("slice", INT64, [1], numbers=[i]) for i in (at, at + size, axis)]
        v = binder.op("Slice", x, *numbers)
        out.append(v if keep else binder.op("Squeeze", v, numbers[2]))
        at += size
    return out


def _insert(binder, node, inputs):
    s = Sequence(_sequence(node, inputs[0]))
    s.insert(_index(node, inputs[2], len(s), 1) if len(inputs) > 2 and inputs[2] is not None else len(s), inputs[1])
    return s


def _erase(binder, node, inputs):
    s = Sequence(_sequence(node, inputs[0]))
    del s[_index(node, inputs[1], len(s)) if len(inputs) > 1 and inputs[1] is not None else len(s) - 1]
    return s


def _concat(binder, node, inputs):
    s, axis = _sequence(node, inputs[0]), node.attrs["axis"] if "axis" in node.attrs else 0
    if node.attrs.get("new_axis", 0):
        at = Value("axis", INT64, [1], numbers=[axis])
        s = [binder.op("Unsqueeze", v, at) for v in s]
    return binder.op("Concat", *s, axis=axis)


_OPS = {"SequenceEmpty": lambda b, n, i: Sequence(), "SequenceConstruct": lambda b, n, i: Sequence(i), "SplitToSequence": _split, "SequenceInsert": _insert, "SequenceErase": _erase, "ConcatFromSequence": _concat,
        "SequenceAt": lambda b, n, i: _sequence(n, i[0])[_index(n, i[1], len(i[0]))], "SequenceLength": lambda b, n, i: Value("length", INT64, [], numbers=[len(_sequence(n, i[0]))])}
