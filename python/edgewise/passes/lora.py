"""LoRA: a low-rank product beside each chosen layer (Hu et al.

2021; names and arithmetic as in Hugging Face PEFT).

Inserted once the ops are recognised and before they are combined, in training and in generation
alike: y + (x A^T) B^T * scaling, with A [r, in] and B [out, r] as states. The base layer stays what
it is, quantized or not.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Protocol

from ..declare.dtypes import FLOAT, FLOAT16
from ..errors import InputError, UnsupportedOp
from ..ops import declared

# float32 [1]: 1 while training; generation sets it to weigh or to switch off what is loaded
SCALE = "adapter/scale"
WEIGHTS = {name: weight for name, weight in declared("weight").items() if weight.kind}
_VIEWS = (
    "Transpose",
    "Cast",
    "Identity",
    "DequantizeLinear",
    "QuantizeDequantize",
    "Reshape",
)  # of a weight: still that weight
_TAIL = re.compile(
    r"/(MatMul|Gemm|Conv|Gather|FusedMatMul)[^/]*$"
)  # also of what quantizers make of them: MatMul_Q4, MatMul_quant_output_scale_mul


class AdapterConfig(Protocol):
    """What inserting adapters needs of training.peft.LoraConfig."""

    target_modules: Any
    modules_to_save: Any
    bias: str
    lora_dropout: float
    init_lora_weights: Any

    def matches(self, name: str) -> bool:
        """Whether the layer of this name gets an adapter."""

    def rank_of(self, name: str) -> int:
        """The rank of a layer's adapter."""

    def scaling_of(self, name: str) -> float:
        """What the product of a layer's adapter is multiplied with."""

    def saves(self, name: str) -> bool:
        """Whether modules_to_save names a module."""

    def saved_by(self, pattern: str, name: str) -> bool:
        """Whether an entry of modules_to_save names a module."""


@dataclass
class AdapterState:
    """A state of an adapter: its name in PEFT's files without prefix, its shape, and how it begins
    (program.State.initial).
    """

    name: str
    shape: list
    initial: tuple


@dataclass
class LoraLayer:
    """A layer with an adapter: what exporting it must know.

    name: of the module. kind: "linear", "conv" or "embedding". a, b: names of its states. scaling.
    weight: the initializer it multiplies with, or None where that is quantized or made by nodes.
    turned: whether that is stored as [out, in]. x, y: names of the tensors in the file that go in
    and come out.
    """

    name: str
    kind: str
    a: str
    b: str
    scaling: float
    weight: str | None
    turned: bool
    x: str
    y: str


def _kind(n):
    """What kind of layer a node is (Weight.kind); "" where it is none."""
    return WEIGHTS[n.op].kind if n.op in WEIGHTS else ""


def _place(n):
    """Which input of a layer its weight is."""
    return WEIGHTS[n.op].input


def _weight(node):
    """(initializer, whether it is stored [out, in]) of a float layer; (None, False) where it is
    quantized, or scaled by the node.
    """
    if WEIGHTS[node.op].quantized or node.attr("alpha", 1.0) != 1.0:
        return None, False
    v, turned = node.inputs[_place(node)], bool(node.attr("transB", 0))
    while (
        v is not None
        and v.producer is not None
        and v.producer.op in ("Transpose", "Cast", "Identity")
    ):
        turned ^= v.producer.op == "Transpose" and v.rank == 2
        v = v.producer.inputs[0]
    return (
        (v.tensor.name if v.tensor is not None else v.name, turned)
        if v is not None and (v.tensor is not None or v.role == "state")
        else (None, False)
    )


def _file_name(v):
    """Name of a tensor in the file, behind casts that binding added."""
    while "~" in v.name and v.producer is not None and v.producer.op in ("Cast", "Identity"):
        v = v.producer.inputs[0]
    return v.name


def module_name(node):
    """The name that the layer of a node has in the PyTorch model, as far as the export tells: from
    its weight's name, what the exporter noted, or the node's name.
    """
    for v in node.inputs[_place(node) : _place(node) + 1]:
        while v is not None and v.producer is not None and v.producer.op in _VIEWS:
            v = v.producer.inputs[0]
        name = (
            v.tensor.name
            if v is not None and v.tensor is not None
            else v.name
            if v is not None and v.role == "state"
            else ""
        )
        found = re.match(
            r"(.+?)[._](weight|weight_quantized|weight_Q4|qweight|MatMul\.weight.*|weight.*)$",
            name,
            re.S,
        )  # re.S: no newline makes it backtrack
        if found and not name.startswith(("onnx::", "val_", "/")):
            return found[1]
    return _own_name(node)


def _own_name(node):
    if node.module:
        return node.module
    name = _TAIL.sub("", node.name)
    return name.strip("/").replace("/", ".")


def layers(bound):
    """[(module name, node)] of all layers that LoRA can be put beside: products with a fixed
    matrix, convolutions, embeddings.
    """
    found, names = [], set()
    for n in bound.nodes:
        if (
            _kind(n) == "linear"
            and n.inputs[0] is not None
            and not n.inputs[0].fixed
            and _matrix(n) is not None
            or _kind(n) == "conv"
            and len(n.inputs[0].shape) == 4
            and _fixed(n.inputs[1])
            and n.attr("group", 1) == 1
            or _kind(n) == "embedding"
            and n.inputs[0].rank == 2
            and _fixed(n.inputs[0])
            and n.outputs[0].dtype == FLOAT
            and not n.inputs[1].fixed
            and n.attr("axis", 0) == 0
        ):
            name = module_name(n)
            if (
                name in names and _kind(n) == "linear"
            ):  # a tied weight has the name of the embedding
                name = _own_name(n) or name
            if name:
                names.add(name)
                found.append((name, n))
    return found


def _fixed(v):
    """Whether a value is a weight, or a view or another form of one."""
    return v is not None and (
        v.fixed
        or v.producer is not None
        and v.producer.op in _VIEWS
        and _fixed(v.producer.inputs[0])
    )


def _matrix(node):
    """(in, out) of a product with a fixed matrix, else None."""
    if node.op in ("MatMulNBits", "MatMulBnb4"):
        return node.attr("K"), node.attr("N")
    if node.op == "QuantizedMatMul":
        return tuple(node.inputs[4].shape)
    w = node.inputs[_place(node)]
    if not _fixed(w) or w.rank != 2 or node.attr("transA", 0):
        return None
    return (w.shape[1], w.shape[0]) if node.attr("transB", 0) else (w.shape[0], w.shape[1])


def _chosen(bound, config):
    """([(name, node)] that get adapters, [(name, node)] that could)."""
    known = layers(bound)
    if (
        config.target_modules is None
        or isinstance(config.target_modules, str)
        and config.target_modules.lower() == "all-linear"
    ):
        heads = {id(v) for v in bound.outputs.values()}  # PEFT leaves the output layer out
        known = [
            (name, n)
            for name, n in known
            if _kind(n) == "linear" and not any(id(v) in heads for v in _behind(bound, n))
        ]
    return [(name, n) for name, n in known if config.matches(name)], known


def insert_lora(bound, config):
    """Puts adapters beside the layers that config.matches(name) chooses.

    Args:
        bound: BoundGraph. config: training.peft.LoraConfig: matches(name), rank_of(name),
        scaling_of(name), target_modules, lora_dropout.
    Returns:
        ([AdapterState], [LoraLayer]) in the order of the graph; the states are in bound.states.
    Raises:
        InputError: nothing matches; the names there are are told.
    """
    chosen, known = _chosen(bound, config)
    if not chosen and not config.modules_to_save:
        some = sorted({name.rsplit(".", 1)[-1] for name, _ in known})
        raise InputError(
            f"no layer matches {config.target_modules!r}",
            "target_modules",
            (
                f"Layers end in {', '.join(some[:30])}."
                if some
                else (
                    "The default means linear layers but the output's; name convolutions and"
                    " embeddings in target_modules."
                    if layers(bound)
                    else "The model has no layer that LoRA can be put beside."
                )
            ),
        )
    adapters, made_layers, b, seen, shared = [], [], bound.binder, set(), _uses(bound)
    scale = bound.state(SCALE, FLOAT, [1])
    adapters.append(AdapterState(SCALE, [1], ("fill", 1.0)))
    for name, n in chosen:
        if name in seen:
            raise UnsupportedOp(
                f"two layers are called '{name}'",
                n.where,
                "Choose the layers with other target_modules.",
            )
        seen.add(name)
        r, tail, (weight, turned) = config.rank_of(name), len(bound.nodes), _weight(n)
        if (
            shared.get(weight, 0) > 1
        ):  # tied: what is merged into it would be merged into the other layer, too
            weight = None
        y, kind = (
            n.outputs[0],
            (
                "embedding"
                if n.op in ("Gather", "GatherBlockQuantized")
                else "conv"
                if n.op == "Conv"
                else "linear"
            ),
        )

        def state(which, shape, initial):
            key = (
                f"{name}.lora_embedding_{which}"
                if kind == "embedding"
                else f"{name}.lora_{which}.weight"
            )
            adapters.append(AdapterState(key, shape, initial))
            return bound.state(key, FLOAT, shape)

        def first(
            fan_in,
        ):  # PEFT: kaiming_uniform_(a=sqrt(5)) = U(-1/sqrt(fan_in), 1/sqrt(fan_in)), or normal
            return (
                ("normal", 1.0 / r, len(adapters))
                if config.init_lora_weights == "gaussian"
                else ("uniform", 1.0 / math.sqrt(fan_in), len(adapters))
            )

        def second():  # zero, so that the model begins as it is
            return (
                ("fill", 0.0)
                if config.init_lora_weights
                else ("uniform", 1.0 / math.sqrt(r), len(adapters))
            )

        if kind == "embedding":
            rows, width = (
                n.inputs[0].shape if n.op == "Gather" else (n.inputs[0].shape[0], y.shape[-1])
            )
            low = b.op(
                "Gather",
                b.op(
                    "Transpose",
                    state(
                        "A",
                        [r, rows],
                        (
                            ("fill", 0.0)
                            if config.init_lora_weights
                            else ("normal", 1.0, len(adapters))
                        ),
                    ),
                    perm=[1, 0],
                ),
                n.inputs[1],
            )
            up = state(
                "B", [width, r], ("normal", 1.0, len(adapters))
            )  # PEFT: of embeddings A begins as zeros, B as random numbers
        elif kind == "conv":
            w = n.inputs[1].shape
            x = _dropped(b, config, n.inputs[0])
            low = b.op(
                "Conv",
                x,
                state("A", [r, *w[1:]], first(w[1] * w[2] * w[3])),
                **{
                    k: v
                    for k, v in n.attrs.items()
                    if k in ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
                },
            )
            up = state("B", [w[0], r, 1, 1], second())
        else:
            fan_in, out = _matrix(n)
            low = b.op(
                "MatMul",
                _dropped(b, config, n.inputs[0]),
                b.op("Transpose", state("A", [r, fan_in], first(fan_in)), perm=[1, 0]),
            )
            up = state("B", [out, r], second())
        a_name = adapters[-2].name
        x = n.inputs[1] if kind == "embedding" else n.inputs[0]
        made_layers.append(
            LoraLayer(
                name,
                kind,
                a_name,
                adapters[-1].name,
                config.scaling_of(name),
                weight,
                turned,
                _file_name(x),
                _file_name(y),
            )
        )
        low = b.op(
            "Mul",
            low,
            (
                scale
                if config.scaling_of(name) == 1.0
                else b.op("Mul", scale, b.constant(FLOAT, [1], [config.scaling_of(name)]))
            ),
        )
        added = (
            b.op("Conv", low, up)
            if kind == "conv"
            else b.op("MatMul", low, b.op("Transpose", up, perm=[1, 0]))
        )
        new = b.op("Add", y, added)
        last = bound.nodes[-1]
        bound.replace(y, new)
        last.inputs = [y, added]
        made = bound.nodes[tail:]
        del bound.nodes[tail:]
        at = next(i for i, m in enumerate(bound.nodes) if m is n) + 1
        bound.nodes[at:at] = made
    return adapters, made_layers


def _uses(bound):
    """{initializer: number of nodes that compute with it}, views of it not counted."""
    count = {}
    for n in bound.nodes:
        if n.op in _VIEWS and _fixed(n.inputs[0]):
            continue
        for v in n.inputs:
            while v is not None and v.producer is not None and v.producer.op in _VIEWS:
                v = v.producer.inputs[0]
            if v is not None and (v.tensor is not None or v.role == "state"):
                name = v.tensor.name if v.tensor is not None else v.name
                count[name] = count.get(name, 0) + 1
    return count


@dataclass
class Saved:
    """A parameter that is trained as a whole and kept in the adapter. parameter: the initializer.
    name: in PEFT's files. turned: whether it must be transposed for them.
    """

    parameter: str
    name: str
    turned: bool


def saved_parameters(bound, config):
    """What modules_to_save and bias of a LoraConfig mean, of a BoundGraph whose ops are recognised.

    Returns:
        [Saved]
    Raises:
        InputError: no module is called so, or it shares its weight with one that is not saved.
        UnsupportedOp: it is quantized.
    """
    found, known = {}, layers(bound)
    own = {
        p: p.rpartition(".")
        for p, t in bound.binder.graph.constants.items()
        if t.dtype in (FLOAT, FLOAT16) and len(t.shape) >= 1
    }
    weights = {}
    for name, n in known:
        weight, turned = _weight(n)
        weights.setdefault(weight, []).append((name, n, turned))
    for name, n in known:
        if not config.saves(name):
            continue
        weight, turned = _weight(n)
        if weight is None:
            raise UnsupportedOp(
                "its weight is quantized, so it cannot be trained as a whole",
                f"modules_to_save, module '{name}'",
                "Leave it out, or put an adapter beside it (target_modules).",
            )
        others = [m for m, _, _ in weights[weight] if not config.saves(m)]
        if others:
            raise InputError(
                f"'{name}' and '{others[0]}' share one weight",
                "modules_to_save",
                f"Name both ({name}, {others[0]}), or neither.",
            )
        linear = _kind(n) == "linear"
        for m, _, t in weights[weight]:
            found[f"{m}.weight"] = Saved(weight, f"{m}.weight", linear and not t)
    shared = {s.parameter for s in found.values()}
    for p, (module, _, _) in own.items():
        if p not in shared and module and config.saves(module):
            found[p] = Saved(p, p, False)
    for m in config.modules_to_save or ():
        if not any(config.saved_by(m, s.name.rpartition(".")[0]) for s in found.values()):
            some = sorted(
                {name.rsplit(".", 1)[-1] for name, _ in known}
                | {module.rsplit(".", 1)[-1] for module, _, _ in own.values() if module}
            )
            raise InputError(
                f"no module is called '{m}'",
                "modules_to_save",
                f"Modules end in {', '.join(some[:30])}.",
            )
    if config.bias != "none":
        adapted = {name for name, _ in _chosen(bound, config)[0]}
        for p, (module, _, last) in own.items():
            if last == "bias" and (config.bias == "all" or module in adapted):
                found.setdefault(p, Saved(p, p, False))
    return list(found.values())


def _behind(bound, node):
    """Outputs of a node and of what only shapes, casts, scales or shifts them."""
    values, ids = list(node.outputs[:1]), {id(node.outputs[0])}
    for n in bound.nodes[next(i for i, m in enumerate(bound.nodes) if m is node) + 1 :]:
        if n.op in (
            "Add",
            "Mul",
            "Div",
            "Tanh",
            "Cast",
            "Reshape",
            "Identity",
            "Slice",
            "Gather",
        ) and any(v is not None and id(v) in ids for v in n.inputs):
            values.append(n.outputs[0])
            ids.add(id(n.outputs[0]))
    return values


def _dropped(b, config, x):
    stream = b.random_stream() if config.lora_dropout else None
    return (
        x
        if stream is None
        else b.op(
            "Dropout",
            x,
            stream[0],
            domain="edgewise",
            ratio=float(config.lora_dropout),
            stream=stream[1],
        )
    )


__all__ = [
    "AdapterState",
    "LoraLayer",
    "Saved",
    "insert_lora",
    "layers",
    "module_name",
    "saved_parameters",
    "SCALE",
]
