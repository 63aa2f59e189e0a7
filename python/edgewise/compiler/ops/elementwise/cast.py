"""Cast and CastLike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import (
    BFLOAT16,
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    MINIFLOATS,
    NAME,
    decode,
    encode,
    wrap,
)
from ...declare.formula import INF
from ...declare.op import Op, fail
from ...declare.symbolic import NotStatic, Sym
from .quotients import rounded_quotient

if TYPE_CHECKING:
    from typing import Any

    from ...declare.annotations import (
        Binder,
        BoundNode,
        Builder,
        Decomposed,
        Folded,
        Gradients,
        Inferred,
        InputGradients,
        Shape,
        Value,
    )

cast = Op("Cast", half=[0])
# Values of round_mode as bits of the kernel's parameter `mode`.
ROUNDING = {"up": 0, "down": 2, "nearest": 4}


@cast.infer
def cast_infer(node: BoundNode) -> Inferred:
    to = node.attr("to")
    if to in (FLOAT16, BFLOAT16):
        to = FLOAT  # half precision is stored as half and computed in float32
    v = node.inputs[0]
    if to == v.dtype:
        return [v]
    if to not in NAME:
        fail(node, f"there is no element type {to}", "Check the attribute `to`.")
    if node.attr("round_mode", "up") not in ROUNDING:
        fail(
            node,
            f"its round_mode is {node.attr('round_mode', 'up')!r}",
            "It is up, down or nearest; export the model again.",
        )
    return [(to, list(v.shape))]


@cast.fold
def cast_fold(node: BoundNode, outs: list[tuple[int, Shape]]) -> Folded:
    to = outs[0][0]
    if node.inputs[0].numbers is None:  # which is cut
        found = rounded_quotient(node.inputs[0], False) if to in (6, 7) else None
        return None if found is None or isinstance(found, Sym) and found.min < 0 else [[found]]

    def convert(x: Any) -> Any:
        if isinstance(x, Sym):
            if to in (6, 7):
                return x
            if to == BOOL:
                return bool(x)
            if to in (FLOAT, DOUBLE) and x.registers is not None and max(-x.min, x.max) < 1 << 24:
                return x
            raise NotStatic("a register in floating point")
        if to in MINIFLOATS:
            return decode(
                to, encode(to, x, bool(node.attr("saturate", 1)), node.attr("round_mode", "up"))
            )
        if to in FLOATS:
            return wrap(to, float(x))
        if to == BOOL:
            return bool(x)
        return wrap(to, int(x) if x == x and abs(x) != INF else 0)

    return [[convert(x) for x in node.inputs[0].numbers]]


cast.folds_without_numbers = True


@cast.lower
def cast_lower(node: BoundNode, builder: Builder) -> None:
    x = node.inputs[0]
    builder.cast_into(
        builder.view(x),
        builder.out(node.outputs[0]),
        mode=(0 if node.attr("saturate", 1) else 1) + ROUNDING[node.attr("round_mode", "up")],
    )


@cast.grad
def cast_grad(node: BoundNode, gradients: Gradients, dy: Value) -> InputGradients:
    """Straight through, in the type of the output, as in PyTorch."""
    to = node.outputs[0].dtype
    if to in (FLOAT16, BFLOAT16):
        return [gradients.binder.rounded(dy, to)]
    return [
        gradients.op(
            "Cast", dy, to=node.inputs[0].dtype if node.inputs[0].dtype == DOUBLE else FLOAT
        )
    ]


cast_like = Op("CastLike", half=[0, 1])


@cast_like.decompose
def cast_like_decompose(node: BoundNode, graph: Binder) -> Decomposed:
    return [
        graph.op(
            "Cast",
            node.inputs[0],
            to=node.inputs[1].dtype,
            **{k: v for k, v in node.attrs.items() if k in ("saturate", "round_mode")},
        )
    ]
