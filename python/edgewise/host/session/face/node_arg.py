"""Inputs and outputs of a model, and their types as ONNX Runtime writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ....compiler.ir import Info

ORT_TYPES = {
    1: "float",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "double",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
    27: "float6e2m3",
    28: "float6e3m2",
}


@dataclass
class NodeArg:
    """An input or output of a model, as onnxruntime.NodeArg.

    Attributes:
        name: of the input or output.
        type: as ONNX Runtime writes it, such as "tensor(float)".
        shape: sizes, names of free dimensions, and None for unknown ones.
    """

    name: str
    type: str
    shape: list[int | str | None] | None


def node_arg(info: Info) -> NodeArg:
    """The NodeArg of an input or output."""
    return NodeArg(info.name, type_text(info), info.shape if info.kind == "tensor" else [])


def type_text(info: Info) -> str:
    """A type as ONNX Runtime writes it."""
    if info.kind in ("tensor", "sparse"):
        kind = "tensor" if info.kind == "tensor" else "sparse_tensor"
        return f"{kind}({ORT_TYPES.get(info.dtype, info.dtype)})"
    inner = type_text(info.elem) if info.elem is not None else "unknown"
    return (
        f"map({ORT_TYPES.get(info.key_type, info.key_type)},{inner})"
        if info.kind == "map"
        else f"{ {'sequence': 'seq'}.get(info.kind, info.kind) }({inner})"
    )
