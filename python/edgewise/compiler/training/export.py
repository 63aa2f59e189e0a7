"""Exports trained models as plain ONNX files, for any runtime that supports the original model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ..declare.dtypes import FLOAT, FLOAT16, pack, unpack
from ..declare.symbolic import product
from ..ir import Info, Node
from ..onnx.editor import ModelEditor

if TYPE_CHECKING:
    from ..onnx.sink import Writable
    from ..onnx.source import Source
    from ..passes.lora import LoraLayer

    Target = str | os.PathLike[str] | Writable | None
    # {name: (dtype code, shape, data)}
    Arrays = Mapping[str, tuple[int, Sequence[int], Any]]


def export_inference(
    source: Source, parameters: Arrays, buffers: Arrays, outputs: Sequence[str], target: Target
) -> bytes | None:
    """Writes the part of an evaluation model that some outputs depend on, with the parameters as
    initializers.

    Args:
        source: eval_model.onnx.
        parameters, buffers: {name: (dtype code, shape, bytes)}.
        outputs: names of tensors.
        target: path, open file, or None to return the bytes.

    Raises:
        InputError: there is no such tensor.
    """
    e = ModelEditor(source)
    computed = {o for n in e.graph.nodes for o in n.outputs if o}
    infos = {**e.graph.value_info, **{o.name: o for o in e.graph.outputs}}
    for name in outputs:
        if name not in computed:
            raise InputError(
                "the evaluation model computes no such tensor",
                f"output '{name}'",
                "Name an output of the model that the artifacts were made of.",
            )
    e.graph.nodes[:], used = e.graph.needed(outputs)
    for name, x in {**parameters, **buffers}.items():
        if name in used:
            e.set_initializer(name, x)
    for name in [n for n in e.graph.constants if n not in used]:
        e.remove_initializer(name)
    e.graph.inputs[:] = [i for i in e.graph.inputs if i.name in used and i.name not in parameters]
    e.graph.outputs[:] = [infos.get(name, Info(name, FLOAT)) for name in outputs]
    e.set_metadata("edgewise.training", None)
    return e.write(target)


def export_parameters(
    source: object, parameters: Arrays, target: Target, external_data: str | None = None
) -> bytes | None:
    """Writes the model with new values of its parameters.

    Args:
        source: the model that was trained.
        parameters: {initializer: (FLOAT, shape, bytes)}; rounded to float16 if the file has that.
        target, external_data: as ModelEditor.write's.

    Raises:
        InputError: the file has no such parameter.
    """
    e = ModelEditor(source)
    _set_parameters(e, parameters)
    return e.write(target, external_data)


def _set_parameters(e: ModelEditor, parameters: Arrays) -> None:
    for name, (dtype, shape, data) in parameters.items():
        t = e.graph.constants.get(name)
        if (
            t is None
            # The exporter merged the parameter with others of equal value (parameters.separate):
            # replace its Identity node by an initializer.
        ):
            n = e.producer(name)
            if n is None or n.op != "Identity":
                raise InputError(
                    "the file has no such parameter",
                    f"parameter '{name}'",
                    "Export with the file that was trained.",
                )
            e.remove_node(n)
            e.set_initializer(name, (dtype, shape, data))
            continue
        e.set_initializer(name, (t.dtype, shape, data if t.dtype == FLOAT else _half(data)))


def _half(data: bytes) -> bytes:
    return b"".join(
        pack(FLOAT16, unpack(FLOAT, data[i : i + (1 << 18)], len(data[i : i + (1 << 18)]) // 4))
        for i in range(0, len(data), 1 << 18)
    )


def export_lora(
    source: object,
    layers: Sequence[LoraLayer],
    adapters: Arrays,
    merged: Arrays,
    target: Target,
    external_data: str | None = None,
    parameters: Arrays | None = None,
    gains: Mapping[str, bytes] | None = None,
) -> bytes | None:
    """Writes the model with adapters: merged into float weights, as nodes beside quantized ones.

    Args:
        source: the model that was trained.
        layers: those with adapters.
        adapters: {state: (dtype code, shape, bytes)}.
        merged: {initializer: (dtype code, shape, bytes)}, outputs of the program's plan `merge`.
        target, external_data: as ModelEditor.write's.
        parameters: of export_parameters, trained together with the adapters.
        gains: of DoRA: {layer: float32 [out]}, factors of the outputs of layers that have nodes.
    """
    e = ModelEditor(source)
    put_lora(e, layers, adapters, merged, parameters, gains)
    return e.write(target, external_data)


def put_lora(
    e: ModelEditor,
    layers: Sequence[LoraLayer],
    adapters: Arrays,
    merged: Arrays,
    parameters: Arrays | None = None,
    gains: Mapping[str, bytes] | None = None,
) -> None:
    """Puts adapters into a model. Args: as of export_lora. Raises InputError."""
    for name, x in merged.items():
        e.set_initializer(name, x)
    _set_parameters(e, parameters or {})
    for layer in layers:
        if layer.weight not in merged:
            _beside(e, layer, adapters, (gains or {}).get(layer.name))


def _beside(e: ModelEditor, layer: LoraLayer, adapters: Arrays, gain: bytes | None) -> None:
    """Adds y = base(x) + (x A^T) (scaling B)^T after the node that computes y.

    For an embedding the rows of A^T are gathered; for a convolution A and B are convolutions. With
    DoRA y is bias + gain (base(x) - bias + ...).
    """
    made = e.producer(layer.y)
    if made is None:
        raise InputError(
            f"no node of the file computes '{layer.y}'",
            f"layer '{layer.name}'",
            "Export with the file that was trained.",
        )
    names = {
        k: e.unused_name(f"{layer.name}.{k}")
        for k in ("lora_A", "lora_B", "lora_down", "lora_up", "base")
    }
    dtype = FLOAT16 if _computes_half(e, layer, made) else FLOAT
    _set_adapter(e, layer, adapters, names, dtype)
    made.outputs[made.outputs.index(layer.y)] = names["base"]
    up = "Conv" if layer.kind == "conv" else "MatMul"
    nodes = [
        _down(layer, made, names),
        Node(
            up, [names["lora_down"], names["lora_B"]], [names["lora_up"]], {}, "", names["lora_up"]
        ),
        Node("Add", [names["base"], names["lora_up"]], [layer.y], {}, "", f"{layer.name}.lora_add"),
    ]
    if gain is not None:
        nodes[-1:] = _gained(e, layer, names, gain, dtype)
    at = next(i for i, n in enumerate(e.graph.nodes) if n is made) + 1
    x_made = e.producer(layer.x)
    if x_made is not None:  # in files that are not sorted, x may be computed after y
        at = max(at, next(i for i, n in enumerate(e.graph.nodes) if n is x_made) + 1)
    e.graph.nodes[at:at] = nodes


def _gained(
    e: ModelEditor, layer: LoraLayer, names: Mapping[str, str], gain: bytes, dtype: int
) -> list[Node]:
    """The nodes bias + gain (base - bias + up)."""
    kinds = ("lora_gain", "lora_sum", "lora_plain", "lora_whole")
    own = {k: e.unused_name(f"{layer.name}.{k}") for k in kinds}
    numbers = unpack(FLOAT, gain, len(gain) // 4)
    e.set_initializer(own["lora_gain"], (dtype, (len(numbers),), pack(dtype, numbers)))

    def node(op: str, a: str, b: str, y: str) -> Node:
        return Node(op, [a, b], [y], {}, "", y)

    base, bias = names["base"], layer.bias
    whole = layer.y if bias is None else own["lora_whole"]
    first = [] if bias is None else [node("Sub", base, bias, own["lora_plain"])]
    last = [] if bias is None else [node("Add", whole, bias, layer.y)]
    plain = base if bias is None else own["lora_plain"]
    return [
        *first,
        node("Add", plain, names["lora_up"], own["lora_sum"]),
        node("Mul", own["lora_sum"], own["lora_gain"], whole),
        *last,
    ]


def _set_adapter(
    e: ModelEditor, layer: LoraLayer, adapters: Arrays, names: Mapping[str, str], dtype: int
) -> None:
    """Adds A and scaling B as initializers, transposed unless the layer is a convolution."""
    (_, (r, *inner), a_data), (_, (out, *_), b_data) = adapters[layer.a], adapters[layer.b]
    fan_in = product(inner)
    a, b = unpack(FLOAT, a_data, r * fan_in), unpack(FLOAT, b_data, out * r)
    b = [x * layer.scaling for x in b]
    if layer.kind == "conv":
        a_shape, b_shape = (r, *inner), (out, r, *[1] * (len(inner) - 1))
    else:
        a_shape, b_shape = (fan_in, r), (r, out)
        a = [a[j * fan_in + i] for i in range(fan_in) for j in range(r)]
        b = [b[j * r + i] for i in range(r) for j in range(out)]
    e.set_initializer(names["lora_A"], (dtype, a_shape, pack(dtype, a)))
    e.set_initializer(names["lora_B"], (dtype, b_shape, pack(dtype, b)))


def _down(layer: LoraLayer, base: Node, names: Mapping[str, str]) -> Node:
    """The node that computes x A^T."""
    outputs, name = [names["lora_down"]], names["lora_down"]
    if layer.kind == "embedding":
        return Node("Gather", [names["lora_A"], layer.x], outputs, {"axis": 0}, "", name)
    if layer.kind == "conv":
        window = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
        attributes = {k: v for k, v in base.attrs.items() if k in window}
        return Node("Conv", [layer.x, names["lora_A"]], outputs, attributes, "", name)
    return Node("MatMul", [layer.x, names["lora_A"]], outputs, {}, "", name)


def _computes_half(e: ModelEditor, layer: LoraLayer, node: Node) -> bool:
    """Whether the file computes a layer in float16, according to the type of its output or of its
    quantization scales.
    """
    info = e.graph.value_info.get(layer.y)
    if info is not None and info.dtype:
        return info.dtype == FLOAT16
    if node.op == "MatMulNBits":
        t = e.graph.constants.get(node.inputs[2])
        return t is not None and t.dtype == FLOAT16
    return False


__all__ = ["export_inference", "export_lora", "export_parameters", "put_lora"]
