"""LoRA: a low-rank product beside each chosen layer (Hu et al. 2021; names and arithmetic as in
Hugging Face PEFT).

Inserted once the ops are recognised and before they are combined, in training and in generation
alike: y + (x A^T) B^T * scaling, with A [r, in] and B [out, r] as states. The base layer stays as
it is, quantized or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import InputError, UnsupportedOp
from ..declare.dtypes import FLOAT, FLOAT16
from ..ir import BoundNode, Value
from .layers import kind_of, layers, matrix_shape, module_name, stored_weight, uses_of_weights

if TYPE_CHECKING:
    from ..bind import Binder, BoundGraph

MS = "com.microsoft"

# float32 [1]: 1 while training; generation sets it to weigh adapters or to switch them off
SCALE = "adapter/scale"
# How a state begins, as State.initial of training.program.
Initial = tuple[Any, ...]
# Nodes after a layer that leave its output the output of the model.
_OUTPUT_OPS = ("Add", "Mul", "Div", "Tanh", "Cast", "Reshape", "Identity", "Slice", "Gather")
_WINDOW = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")


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

    def saved_by(self, entry: str, name: str) -> bool:
        """Whether an entry of modules_to_save names a module."""


@dataclass
class AdapterState:
    """A state of an adapter.

    Attributes:
        name: in PEFT's files, without prefix.
        shape: dimensions.
        initial: how it begins (State.initial of training.program).
    """

    name: str
    shape: list[int]
    initial: Initial


@dataclass
class LoraLayer:
    """A layer with an adapter, as its export needs it.

    Attributes:
        name: of the module.
        kind: "linear", "conv" or "embedding".
        a, b: names of its states.
        scaling: factor of B A.
        weight: the initializer that it multiplies with; None where that is quantized, made by
            nodes, or shared with another layer.
        transposed: whether the initializer is stored as [out, in].
        x, y: names of its input and output in the file.
    """

    name: str
    kind: str
    a: str
    b: str
    scaling: float
    weight: str | None
    transposed: bool
    x: str
    y: str


@dataclass
class SavedParameter:
    """A parameter that is trained as a whole and stored in the adapter.

    Attributes:
        parameter: the initializer.
        name: in PEFT's files.
        transposed: whether it has to be transposed for them.
    """

    parameter: str
    name: str
    transposed: bool


# ---- insertion
def insert_lora(
    bound: BoundGraph, config: AdapterConfig, weighed: bool = True, required: bool = True
) -> tuple[list[AdapterState], list[LoraLayer]]:
    """Inserts adapters at the layers that a LoraConfig chooses.

    Args:
        bound: a graph whose ops are recognised.
        config: the LoraConfig.
        weighed: whether the state SCALE multiplies the adapters; training, where it is 1, saves
            that step of each layer.
        required: whether a layer must be chosen; a part of a model may have none.

    Returns:
        (states, layers) in the order of the graph; the states are in bound.states.

    Raises:
        InputError: no layer is chosen; the message lists the names of layers.
        UnsupportedOp: two chosen layers have the same name.
    """
    chosen, known = _chosen(bound, config)
    if not chosen and not required:
        return [], []
    if not chosen and not config.modules_to_save:
        raise _no_match(bound, config, known)
    inserter = _Inserter(bound, config, weighed)
    seen: set[str] = set()
    for name, n in chosen:
        if name in seen:
            raise UnsupportedOp(
                f"two layers are named '{name}'",
                n.where,
                "Choose the layers with other target_modules.",
            )
        seen.add(name)
        inserter.insert(name, n)
    return inserter.states, inserter.layers


def _chosen(
    bound: BoundGraph, config: AdapterConfig
) -> tuple[list[tuple[str, BoundNode]], list[tuple[str, BoundNode]]]:
    """([(name, node)] that get adapters, [(name, node)] that could)"""
    known = layers(bound)
    targets = config.target_modules
    if targets is None or isinstance(targets, str) and targets.lower() == "all-linear":
        # PEFT leaves the output layer out.
        outputs = {id(v) for v in bound.outputs.values()}
        known = [
            (name, n)
            for name, n in known
            if kind_of(n) == "linear" and not any(id(v) in outputs for v in _behind(bound, n))
        ]
    return [(name, n) for name, n in known if config.matches(name)], known


def _behind(bound: BoundGraph, node: BoundNode) -> list[Value]:
    """Outputs of a node and of nodes that only reshape, cast, scale or shift them."""
    values: list[Value] = list(node.outputs[:1])
    ids = {id(node.outputs[0])}
    at = next(i for i, m in enumerate(bound.nodes) if m is node)
    for n in bound.nodes[at + 1 :]:
        if n.op in _OUTPUT_OPS and any(v is not None and id(v) in ids for v in n.inputs):
            values.append(n.outputs[0])
            ids.add(id(n.outputs[0]))
    return values


def _no_match(
    bound: BoundGraph, config: AdapterConfig, known: Iterable[tuple[str, BoundNode]]
) -> InputError:
    some = sorted({name.rsplit(".", 1)[-1] for name, _ in known})
    if some:
        remedy = f"Layers end in {', '.join(some[:30])}."
    elif layers(bound):
        remedy = (
            "The default means linear layers but the output's; name convolutions and embeddings in"
            " target_modules."
        )
    else:
        remedy = "The model has no layer that LoRA can be put beside."
    return InputError(f"no layer matches {config.target_modules!r}", "target_modules", remedy)


class _Inserter:
    """Inserts adapters one by one, and collects what they consist of."""

    def __init__(self, bound: BoundGraph, config: AdapterConfig, weighed: bool) -> None:
        self.bound, self.config = bound, config
        self.states = [AdapterState(SCALE, [1], ("fill", 1.0))]
        self.layers: list[LoraLayer] = []
        self._scale = bound.state(SCALE, FLOAT, [1]) if weighed else None
        self._uses = uses_of_weights(bound)

    def insert(self, name: str, n: BoundNode) -> None:
        """Adds an adapter to the output of a layer."""
        bound, binder = self.bound, self.bound.binder
        tail, kind, y = len(bound.nodes), kind_of(n), n.outputs[0]
        weight, stored_by_rows = stored_weight(n)
        if weight is not None and self._uses.get(weight, 0) > 1:
            weight = None  # merging the adapter into a tied weight would change the other layer
        make = {"embedding": self._embedding, "conv": self._convolution}.get(kind, self._linear)
        low, up = make(name, n)
        scaling = self.config.scaling_of(name)
        x = n.inputs[1] if kind == "embedding" else n.inputs[0]
        a, b = (s.name for s in self.states[-2:])
        self.layers.append(
            LoraLayer(name, kind, a, b, scaling, weight, stored_by_rows, file_name(x), file_name(y))
        )
        alpha, factor = 1.0, self._scale
        if factor is None and kind != "conv":
            alpha = scaling  # the product scales
        elif scaling != 1.0:
            constant = binder.constant(FLOAT, [1], [scaling])
            factor = binder.op("Mul", factor, constant) if factor is not None else constant
        if factor is not None:
            low = binder.op("Mul", low, factor)
        if kind == "conv":
            added = binder.op("Conv", low, up)
        elif alpha != 1.0:
            added = binder.op("FusedMatMul", low, up, domain=MS, transB=1, alpha=alpha)
        else:
            added = binder.op("MatMul", low, binder.op("Transpose", up, perm=[1, 0]))
        new = binder.op("Add", y, added)
        last = bound.nodes[-1]
        bound.replace(y, new)
        last.inputs = [y, added]
        # The new nodes follow the layer directly.
        made = bound.nodes[tail:]
        del bound.nodes[tail:]
        at = next(i for i, m in enumerate(bound.nodes) if m is n) + 1
        bound.nodes[at:at] = made

    # ---- (x A^T, B) of each kind of layer
    def _linear(self, name: str, n: BoundNode) -> tuple[Value, Value]:
        shape = matrix_shape(n)
        assert shape is not None
        fan_in, out = shape
        rank, binder = self.config.rank_of(name), self.bound.binder
        x = _dropped(binder, self.config, n.inputs[0])
        a = self._state(f"{name}.lora_A.weight", [rank, fan_in], self._initial_a(rank, fan_in))
        low = binder.op("MatMul", x, binder.op("Transpose", a, perm=[1, 0]))
        return low, self._state(f"{name}.lora_B.weight", [out, rank], self._initial_b(rank))

    def _convolution(self, name: str, n: BoundNode) -> tuple[Value, Value]:
        shape, rank = n.inputs[1].shape, self.config.rank_of(name)
        x = _dropped(self.bound.binder, self.config, n.inputs[0])
        initial = self._initial_a(rank, shape[1] * shape[2] * shape[3])
        a = self._state(f"{name}.lora_A.weight", [rank, *shape[1:]], initial)
        window = {k: v for k, v in n.attrs.items() if k in _WINDOW}
        low = self.bound.binder.op("Conv", x, a, **window)
        b = self._state(f"{name}.lora_B.weight", [shape[0], rank, 1, 1], self._initial_b(rank))
        return low, b

    def _embedding(self, name: str, n: BoundNode) -> tuple[Value, Value]:
        """As PEFT: A begins as zeros, B as random numbers."""
        table, ids = n.inputs[:2]
        rows, width = table.shape[0], n.outputs[0].shape[-1]
        if n.op == "Gather":
            width = table.shape[1]
        rank, binder = self.config.rank_of(name), self.bound.binder
        zeros = self.config.init_lora_weights
        initial = ("fill", 0.0) if zeros else ("normal", 1.0, len(self.states))
        a = self._state(f"{name}.lora_embedding_A", [rank, rows], initial)
        low = binder.op("Gather", binder.op("Transpose", a, perm=[1, 0]), ids)
        random = ("normal", 1.0, len(self.states))
        return low, self._state(f"{name}.lora_embedding_B", [width, rank], random)

    def _state(self, name: str, shape: list[int], initial: Initial) -> Value:
        self.states.append(AdapterState(name, shape, initial))
        return self.bound.state(name, FLOAT, shape)

    def _initial_a(self, rank: int, fan_in: int) -> Initial:
        """As PEFT: kaiming_uniform_(a=sqrt(5)) = U(-1/sqrt(fan_in), 1/sqrt(fan_in)), or normal."""
        if self.config.init_lora_weights == "gaussian":
            return "normal", 1.0 / rank, len(self.states)
        return "uniform", 1.0 / math.sqrt(fan_in), len(self.states)

    def _initial_b(self, rank: int) -> Initial:
        """Zeros, so that the model begins unchanged."""
        if self.config.init_lora_weights:
            return "fill", 0.0
        return "uniform", 1.0 / math.sqrt(rank), len(self.states)


def _dropped(binder: Binder, config: AdapterConfig, x: Value) -> Value:
    """An adapter's input after its dropout."""
    stream = binder.random_stream() if config.lora_dropout else None
    if stream is None:
        return x
    seed, number = stream
    ratio = float(config.lora_dropout)
    return binder.op("Dropout", x, seed, domain="edgewise", ratio=ratio, stream=number)


def file_name(v: Value) -> str:
    """Name of a tensor in the file, before casts that binding added."""
    while "~" in v.name and v.producer is not None and v.producer.op in ("Cast", "Identity"):
        v = v.producer.inputs[0]
    return v.name


# ---- parameters that are trained as a whole
def saved_parameters(bound: BoundGraph, config: AdapterConfig) -> list[SavedParameter]:
    """The parameters that modules_to_save and bias of a LoraConfig mean.

    Args:
        bound: a graph whose ops are recognised.
        config: the LoraConfig.

    Raises:
        InputError: there is no such module, or it shares its weight with one that is not saved.
        UnsupportedOp: its weight is quantized.
    """
    known = layers(bound)
    found = _saved_weights(known, config)
    # {parameter: (module, ".", name within the module)}
    own = {
        p: p.rpartition(".")
        for p, t in bound.binder.graph.constants.items()
        if t.dtype in (FLOAT, FLOAT16) and len(t.shape) >= 1
    }
    shared = {s.parameter for s in found.values()}
    for p, (module, _, _) in own.items():
        if p not in shared and module and config.saves(module):
            found[p] = SavedParameter(p, p, False)
    for m in config.modules_to_save or ():
        if not any(config.saved_by(m, s.name.rpartition(".")[0]) for s in found.values()):
            some = sorted(
                {name.rsplit(".", 1)[-1] for name, _ in known}
                | {module.rsplit(".", 1)[-1] for module, _, _ in own.values() if module}
            )
            raise InputError(
                f"no module is named '{m}'",
                "modules_to_save",
                f"Modules end in {', '.join(some[:30])}.",
            )
    if config.bias != "none":
        adapted = {name for name, _ in _chosen(bound, config)[0]}
        for p, (module, _, last) in own.items():
            if last == "bias" and (config.bias == "all" or module in adapted):
                found.setdefault(p, SavedParameter(p, p, False))
    return list(found.values())


def _saved_weights(
    known: Sequence[tuple[str, BoundNode]], config: AdapterConfig
) -> dict[str, SavedParameter]:
    """{name in PEFT's files: SavedParameter} of layers that modules_to_save names."""
    found: dict[str, SavedParameter] = {}
    # {initializer: [(layer, whether it is stored as [out, in])]}
    sharing: dict[str | None, list[tuple[str, bool]]] = {}
    for name, n in known:
        weight, by_rows = stored_weight(n)
        sharing.setdefault(weight, []).append((name, by_rows))
    for name, n in known:
        if not config.saves(name):
            continue
        weight, _ = stored_weight(n)
        if weight is None:
            raise UnsupportedOp(
                "its weight is quantized, so it cannot be trained as a whole",
                f"modules_to_save, module '{name}'",
                "Leave it out, or put an adapter beside it (target_modules).",
            )
        others = [m for m, _ in sharing[weight] if not config.saves(m)]
        if others:
            raise InputError(
                f"'{name}' and '{others[0]}' share one weight",
                "modules_to_save",
                f"Name both ({name}, {others[0]}), or neither.",
            )
        linear = kind_of(n) == "linear"
        for m, by_rows in sharing[weight]:
            found[f"{m}.weight"] = SavedParameter(weight, f"{m}.weight", linear and not by_rows)
    return found


__all__ = [
    "SCALE",
    "AdapterConfig",
    "AdapterState",
    "LoraLayer",
    "SavedParameter",
    "insert_lora",
    "layers",
    "module_name",
    "saved_parameters",
]
