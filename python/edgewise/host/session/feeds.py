"""Converts arrays, lists, dicts and None of callers to values of a run, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...compiler.arrays import as_input, as_output, as_strings, holds_strings, strings_as_output
from ...compiler.declare.dtypes import NAME, STRING, bytes_for
from ...compiler.declare.symbolic import product
from ...compiler.declare.values import NOTHING, Map, Nothing, RunTensor, Sequence, StringTensor
from ...errors import InputError

if TYPE_CHECKING:
    from ...compiler.ir import Info

    # A value of a run
    RunValue = RunTensor | StringTensor | Sequence | Map | Nothing


def from_caller(x: Any, info: Info, where: str = "") -> RunValue:
    """Converts an input that a caller passed.

    Args:
        x: array, list, dict or None.
        info: the declaration of the input, or of an element of it.
        where: name of the input or element, for errors.

    Raises:
        InputError: x does not match the declaration.
    """
    where = where or info.name
    if info.kind == "optional":
        return (
            NOTHING
            if x is None
            else (
                from_caller(x, info.elem, where)
                if info.elem is not None
                else _tensor(x, info, where)
            )
        )
    if info.kind == "sequence":
        if not isinstance(x, (list, tuple)):
            raise InputError(
                f"expected a sequence, got {type(x).__name__}", f"input '{where}'", "Pass a list."
            )
        return Sequence(
            from_caller(v, info.elem, f"{where}[{i}]")  # type: ignore[arg-type]  # not None
            for i, v in enumerate(x)
        )
    if info.kind == "map":
        return _map(x, info, where)
    if info.kind != "tensor":
        raise InputError(
            f"its type is {info.kind}",
            f"input '{where}'",
            "Edgewise takes tensors, sequences, optionals and maps.",
        )
    return _tensor(x, info, where)


def _tensor(x: Any, info: Info, where: str) -> RunTensor | StringTensor:
    value: RunTensor | StringTensor
    if info.dtype == STRING or not info.dtype and holds_strings(x):
        shape, strings = as_strings(x, where)
        value = StringTensor(shape, strings)
    else:
        dtype, shape, data = as_input(x, where, info.dtype or None)
        if info.dtype and dtype != info.dtype:
            raise InputError(
                f"element type {NAME[dtype]}, expected {NAME.get(info.dtype, info.dtype)}",
                f"input '{where}'",
                "Convert it.",
            )
        if len(data) != bytes_for(dtype, product(shape)):
            raise InputError(
                f"{len(data)} bytes, its shape takes {bytes_for(dtype, product(shape))}",
                f"input '{where}'",
                "Pass an array whose bytes are those of its shape and type.",
            )
        value = RunTensor(dtype, shape, data)
    if info.shape is not None and not (
        list(info.shape) == [] and product(shape) == 1
    ):  # as in onnxruntime, one element of any rank is accepted for a scalar
        if len(shape) != len(info.shape):
            raise InputError(
                f"{len(shape)} dimensions {shape}, expected {len(info.shape)}: {info.shape}",
                f"input '{where}'",
                "Reshape it.",
            )
        for i, (d, want) in enumerate(zip(shape, info.shape)):
            if isinstance(want, int) and want >= 0 and d != want:
                raise InputError(
                    f"dimension {i} is {d}, expected {want} ({info.shape})",
                    f"input '{where}'",
                    "Reshape or pad it.",
                )
    return value


def _map(x: Any, info: Info, where: str) -> Map:
    value = info.elem.dtype if info.elem is not None else 0
    want = str if info.key_type == STRING else int
    if not hasattr(x, "items") or any(
        not isinstance(k, want) and not (want is int and hasattr(k, "__index__")) for k in x
    ):
        raise InputError(
            f"expected a map with keys of type {NAME.get(info.key_type, info.key_type)}",
            f"input '{where}'",
            "Pass a dict.",
        )
    try:
        convert = str if value == STRING else float if value in (1, 10, 11, 16) else int
        return Map({want(k): convert(v) for k, v in x.items()}, info.key_type, value)
    except (TypeError, ValueError) as e:
        raise InputError(
            f"its values are not of type {NAME.get(value, value)} ({e})",
            f"input '{where}'",
            "Convert them.",
        ) from None


def to_caller(v: RunValue) -> Any:
    """Converts an output to an array, a list, a dict, or None for an optional without a value."""
    if isinstance(v, RunTensor):
        return as_output(v.dtype, v.shape, v.bytes())
    if isinstance(v, StringTensor):
        return strings_as_output(v.shape, v.strings)
    if isinstance(v, Sequence):
        return [to_caller(x) for x in v]
    if isinstance(v, Nothing):
        return None
    return dict(v)
