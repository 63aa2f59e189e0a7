"""Models that finish a weight: with its adapter, in the layout and the type of a format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..declare.dtypes import DOUBLE, FLOAT, FLOAT16, INT8, INT64, UINT8
from ..ir import Info, Node, Tensor
from ..onnx.editor import ModelEditor
from .gguf import BLOCK, F16, F32, Q4_0, Q8_0, Type


@dataclass(frozen=True)
class Finish:
    """What becomes of a matrix.

    Attributes:
        stored: its shape as it is given.
        dtype: ONNX code of its numbers.
        transposed: whether it is given as [in, out].
        first, rows: the rows that are taken, after it is [out, in].
        rank: of an adapter, given as "a" [rank, in] and "b" [rows, rank] with its scaling; 0: none.
        magnitudes: whether the rows then get the norms "m" [rows], of DoRA.
        heads: over whose rows the halves are interleaved; 0: they stay.
        type: of the result.
    """

    stored: tuple[int, int]
    dtype: int
    transposed: bool
    first: int
    rows: int
    rank: int
    heads: int
    type: Type
    magnitudes: bool = False

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.stored[0] if self.transposed else self.stored[1]


class _Chain:
    """Nodes, each of which takes the result of the last."""

    def __init__(self, at: str) -> None:
        self.editor, self.at, self.count = ModelEditor(), at, 0

    def op(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Adds a node; without inputs of the last result. Returns its output's name."""
        self.count += 1
        out = f"t{self.count}"
        self.editor.add_nodes([Node(op, list(inputs or [self.at]), [out], attrs, "", out)])
        self.at = out
        return out

    def constant(self, dtype: int, shape: Sequence[int], values: Sequence[Any]) -> str:
        """Adds a constant."""
        self.count += 1
        name = f"c{self.count}"
        self.editor.set_initializer(name, Tensor.of(name, dtype, shape, values))
        return name

    def ints(self, *values: int) -> str:
        """A constant of dimensions."""
        return self.constant(INT64, [len(values)], values)

    def number(self, value: float) -> str:
        """A constant float32 scalar."""
        return self.constant(FLOAT, [], [value])


def finish_model(f: Finish) -> bytes:
    """An .onnx file with the inputs "w", "a", "b" and "m" and the output "y"; for blocks of a scale
    and numbers, "scales" (float16) and "numbers" (bytes).
    """
    c = _Chain("w")
    e = c.editor
    e.add_input(Info("w", f.dtype, list(f.stored)))
    if f.dtype != FLOAT:
        c.op("Cast", to=FLOAT)
    if f.transposed:
        c.op("Transpose", perm=[1, 0])
    if (f.first, f.rows) != (0, f.stored[1] if f.transposed else f.stored[0]):
        c.op("Slice", c.at, c.ints(f.first), c.ints(f.first + f.rows), c.ints(0))
    if f.rank:
        base = c.at
        e.add_input(Info("a", FLOAT, [f.rank, f.columns]))
        e.add_input(Info("b", FLOAT, [f.rows, f.rank]))
        c.op("Add", base, c.op("MatMul", "b", "a"))
    if f.magnitudes:
        whole = c.at
        e.add_input(Info("m", FLOAT, [f.rows, 1]))
        norms = c.op("ReduceL2", whole, c.ints(1), keepdims=1)
        c.op("Mul", whole, c.op("Div", "m", c.op("Max", norms, c.number(1e-15))))
    if f.heads:
        half = f.rows // f.heads // 2
        c.op("Reshape", c.at, c.ints(f.heads, 2, half, f.columns))
        c.op("Transpose", perm=[0, 2, 1, 3])
        c.op("Reshape", c.at, c.ints(f.rows, f.columns))
    if f.type in (Q8_0, Q4_0):
        (_q8_0 if f.type is Q8_0 else _q4_0)(c)
    else:
        assert f.type in (F32, F16)
        code = FLOAT16 if f.type is F16 else FLOAT
        e.add_nodes([Node("Cast", [c.at], ["y"], {"to": code}, "", "y")])
        e.add_output(Info("y", code, [f.rows, f.columns]))
    made = e.write()
    assert made is not None
    return made


def _blocks(c: _Chain) -> tuple[str, str]:
    """(blocks [n, 32], their absolute values)"""
    blocks = c.op("Reshape", c.at, c.ints(-1, BLOCK))
    return blocks, c.op("Abs", blocks)


def _scaled(c: _Chain, blocks: str, scale: str, dtype: int = FLOAT) -> str:
    """Blocks divided by their scales; by a scale of 0, zeros. Adds the output "scales"."""
    c.editor.add_nodes([Node("Cast", [scale], ["scales"], {"to": FLOAT16}, "", "scales")])
    c.editor.add_output(Info("scales", FLOAT16, None))
    zero = c.op("Equal", scale, c.number(0.0))
    inverse = c.op("Where", zero, c.number(0.0), c.op("Reciprocal", scale))
    if dtype != FLOAT:
        blocks, inverse = c.op("Cast", blocks, to=dtype), c.op("Cast", inverse, to=dtype)
    return c.op("Mul", blocks, inverse)


def _numbers(c: _Chain, code: int) -> None:
    c.editor.add_nodes([Node("Cast", [c.at], ["numbers"], {"to": code}, "", "numbers")])
    c.editor.add_output(Info("numbers", code, None))


def _q8_0(c: _Chain) -> None:
    """quantize_row_q8_0_ref of ggml-quants.c: halves are rounded away from 0."""
    blocks, sizes = _blocks(c)
    largest = c.op("ReduceMax", sizes, c.ints(1), keepdims=1)
    x = _scaled(c, blocks, c.op("Div", largest, c.number(127.0)))
    up = c.op("Floor", c.op("Add", c.op("Abs", x), c.number(0.5)))
    c.op("Mul", c.op("Sign", x), up)
    _numbers(c, INT8)


def _q4_0(c: _Chain) -> None:
    """quantize_row_q4_0_ref of ggml-quants.c: the number of the largest size becomes -8. The first
    half of a block is in the low bits. In float64, as the gguf package, which rounds once.
    """
    blocks, sizes = _blocks(c)
    at = c.op("ArgMax", sizes, axis=1, keepdims=1)
    largest = c.op("GatherElements", blocks, at, axis=1)
    x = _scaled(c, blocks, c.op("Div", largest, c.number(-8.0)), DOUBLE)
    c.op("Add", x, c.constant(DOUBLE, [], [8.5]))
    c.op("Floor")
    c.op("Min", c.at, c.constant(DOUBLE, [], [15.0]))
    quantized = c.op("Reshape", c.op("Cast", to=FLOAT), c.ints(-1, 2, BLOCK // 2))
    low = c.op("Gather", quantized, c.constant(INT64, [], [0]), axis=1)
    high = c.op("Gather", quantized, c.constant(INT64, [], [1]), axis=1)
    c.op("Add", low, c.op("Mul", high, c.number(16.0)))
    _numbers(c, UINT8)
