"""Helpers to read and extend onnx models, as onnxruntime.training.onnxblock._graph_utils.

Only this module imports the onnx package, when the first block is used.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....compiler.arrays import as_input
from ....compiler.declare.dtypes import FLOAT
from ....errors import InputError

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

__all__ = [
    "FLOAT",
    "BlockError",
    "add_array",
    "add_floats",
    "add_node",
    "generate_graph_name",
    "get_input_from_input_name",
    "get_output_from_output_name",
    "node_arg_exists",
    "onnx",
    "opset_of",
    "register_graph_outputs",
]


class BlockError(InputError, RuntimeError, LookupError):
    """A block cannot be built. Also a RuntimeError and a LookupError, as ONNX Runtime raises."""


def onnx() -> Any:
    """The onnx package. Raises InputError if it is not installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
        import onnx.shape_inference
        import onnx.version_converter

        return onnx
    except ImportError:
        raise InputError(
            "the onnx package is not installed",
            "edgewise.training.onnxblock",
            "Artifacts are made with it, on a desktop or in Pyodide: pip install onnx. Training"
            " does not need it: edgewise.Trainer takes a model as it is.",
        ) from None


_tokens = itertools.count(1)


def generate_graph_name(token: str) -> str:
    """A unique name, onnx::TOKEN::NUMBER."""
    return f"onnx::{token}::{next(_tokens)}"


def get_output_from_output_name(onnx_model: ModelProto, output_name: str) -> ValueInfoProto:
    """The graph output of this name. Raises BlockError if there is none."""
    for o in onnx_model.graph.output:
        if o.name == output_name:
            return o
    raise BlockError(
        f"'{output_name}' is not a graph output",
        "onnxblock",
        f"The model's outputs are {', '.join(o.name for o in onnx_model.graph.output)}.",
    )


def get_input_from_input_name(onnx_model: ModelProto, input_name: str) -> ValueInfoProto:
    """The graph input of this name. Raises BlockError if there is none."""
    for i in onnx_model.graph.input:
        if i.name == input_name:
            return i
    raise BlockError(
        f"'{input_name}' is not a graph input",
        "onnxblock",
        f"The model's inputs are {', '.join(i.name for i in onnx_model.graph.input)}.",
    )


def register_graph_outputs(model: ModelProto, output_names: str | Sequence[str]) -> None:
    """Replaces the graph's outputs.

    Args:
        model: changed in place.
        output_names: a name or a list of names. Their types are those of shape inference, or else
            float32 of unknown shape.

    Raises:
        BlockError: no node computes such a tensor.
    """
    names = [output_names] if isinstance(output_names, str) else list(output_names)
    known = {v.name: v for v in [*model.graph.value_info, *model.graph.output]}
    made = (
        {o for n in model.graph.node for o in n.output}
        | {i.name for i in model.graph.input}
        | {t.name for t in model.graph.initializer}
    )
    outputs = []
    for name in names:
        if name not in known and name not in made:
            raise BlockError(
                f"no node of the graph makes '{name}'",
                "onnxblock",
                "A block's build returns names of outputs of its nodes.",
            )
        outputs.append(
            known[name]
            if name in known
            else onnx().helper.make_tensor_value_info(name, FLOAT, None)
        )
    outputs = [type(o).FromString(o.SerializeToString()) for o in outputs]
    del model.graph.output[:]
    model.graph.output.extend(outputs)


def node_arg_exists(model: ModelProto, node_arg_name: str) -> bool:
    """Whether the graph has a node output, input or initializer of this name."""
    g = model.graph
    return any(node_arg_name in n.input or node_arg_name in n.output for n in g.node) or any(
        i.name == node_arg_name for i in [*g.input, *g.initializer]
    )


def opset_of(model: ModelProto, domain: str = "") -> int:
    """The version of an operator set that the model imports, or 0."""
    return next(
        (
            o.version
            for o in model.opset_import
            if o.domain == domain or domain == "" and o.domain == "ai.onnx"
        ),
        0,
    )


def add_node(
    model: ModelProto,
    op: str,
    inputs: Sequence[str],
    outputs: int = 1,
    domain: str = "",
    names: Sequence[str] | None = None,
    **attributes: Any,
) -> Any:
    """Appends a node with new output names.

    Args:
        model: changed in place; imports the domain if it does not yet.
        op: operator.
        inputs: names of tensors.
        outputs: number of outputs.
        domain: of the operator.
        names: stems of the output names, instead of `outputs`.
        attributes: of the node.

    Returns:
        The name of the output, or a list of names if there are several.
    """
    stems = names or [f"{op.lower()}_output"] * outputs
    made = [generate_graph_name(s) for s in stems]
    if domain and not opset_of(model, domain):
        model.opset_import.append(
            onnx().helper.make_opsetid(domain, {"ai.onnx.ml": 2}.get(domain, 1))
        )
    model.graph.node.append(
        onnx().helper.make_node(
            op, list(inputs), made, name=generate_graph_name(op), domain=domain, **attributes
        )
    )
    return made if len(made) > 1 else made[0]


def add_floats(
    model: ModelProto, stem: str, values: Sequence[float], shape: Sequence[int] = (1,)
) -> str:
    """Appends a float32 initializer; returns its name."""
    name = generate_graph_name(stem)
    model.graph.initializer.append(
        onnx().TensorProto(
            name=name,
            data_type=FLOAT,
            dims=list(shape),
            raw_data=struct.pack(f"<{len(values)}f", *values),
        )
    )
    return name


def add_array(model: ModelProto, stem: str, x: Any) -> str:
    """Appends an initializer of an array or nested list; returns its name."""
    dtype, shape, data = as_input(x, stem, None if hasattr(x, "dtype") else FLOAT)
    name = generate_graph_name(stem)
    model.graph.initializer.append(
        onnx().TensorProto(name=name, data_type=dtype, dims=list(shape), raw_data=bytes(data))
    )
    return name
