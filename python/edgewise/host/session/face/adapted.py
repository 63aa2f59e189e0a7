"""What SessionOptions change of a model before it runs: initializers and free dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....compiler.arrays import as_input
from ....compiler.ir import Tensor
from ....compiler.onnx.tensors import replacement
from ....errors import InputError
from .options import SessionOptions
from .ort_value import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ....compiler.ir import Graph, Info


def external_tensors(options: Any) -> dict[str, Tensor]:
    """The values of SessionOptions.add_external_initializers; {} of onnxruntime's own options."""
    return _tensors(options._external) if isinstance(options, SessionOptions) else {}


def adapt(graph: Graph, options: Any) -> None:
    """Changes a graph as SessionOptions say.

    Raises:
        InputError: an initializer does not exist, or its value has another type or shape.
    """
    if not isinstance(options, SessionOptions):
        return
    for name, tensor in _tensors(options._initializers).items():
        if name not in graph.constants:
            raise InputError(
                "the model has no initializer of this name",
                f"initializer '{name}'",
                "`edgewise inspect --parameters` lists a model's parameters.",
            )
        graph.constants[name] = replacement(tensor, graph.constants[name])
    if options._dimensions or options._denotations:
        for info in (*graph.inputs, *graph.outputs):
            _set_dimensions(info, options._dimensions, options._denotations)


def _tensors(values: Mapping[str, Any]) -> dict[str, Tensor]:
    found = {}
    for name, value in values.items():
        dtype, shape, data = as_input(plain(value), name)
        found[name] = Tensor(name, dtype, tuple(shape), None, 0, len(data), bytes(data))
    return found


def _set_dimensions(
    info: Info, by_name: Mapping[str, int], by_denotation: Mapping[str, int]
) -> None:
    """Gives the free dimensions of an input or output the sizes that were asked for."""
    if info.shape is not None:
        info.shape = [
            d if isinstance(d, int) else by_denotation.get(means, by_name.get(d or "", d))
            for d, means in zip(info.shape, info.denotations or [""] * len(info.shape))
        ]
