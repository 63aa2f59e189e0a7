"""LoRA: a low-rank product beside each chosen layer (Hu et al. 2021; names and arithmetic as in
Hugging Face PEFT).

Inserted once the ops are recognised and before they are combined, in training and in generation
alike: y + (x A^T) B^T * scaling, with A [r, in] and B [out, r] as states. The base layer stays as
it is, quantized or not.

DoRA (Liu et al. 2024) multiplies each output of W + scaling B A by m / |its row|, with m [out] as a
state. The norms of the rows are constants for the gradient, as in PEFT; in generation they are
computed when adapters change, not in each run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import InputError, UnsupportedOp
from ...logic.native import meant
from ..declare.dtypes import FLOAT, FLOAT16, INT64, UINT8
from ..ir import BoundNode, Graph, Value
from .layers import (
    WEIGHTS,
    kind_of,
    layers,
    matrix_shape,
    module_name,
    names_of_weights,
    possible_names,
    stored_layers,
    stored_weight,
    uses_of_weights,
    weights_of_experts,
)

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
_NUMBERED = re.compile(r"^MatMul|^Gather|_?\d+$")  # ends of names that exporters count
_ROWS = 256  # of a quantized weight that are numbers at once
_MIN_SQUARE = 1e-30  # of a squared norm, so that nothing is divided by 0


class AdapterConfig(Protocol):
    """What inserting adapters needs of training.peft.LoraConfig."""

    target_modules: Any
    modules_to_save: Any
    bias: str
    lora_dropout: float
    init_lora_weights: Any
    use_dora: bool

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
        magnitude: of DoRA: name of the state with the norms of the rows; else None.
        bias: of DoRA: name of the vector that the layer's node adds, in the file; None without.
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
    magnitude: str | None = None
    bias: str | None = None


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
    bound: BoundGraph,
    config: AdapterConfig,
    weighed: bool = True,
    required: bool = True,
    norms: list[tuple[LoraLayer, Value, Value]] | None = None,
) -> tuple[list[AdapterState], list[LoraLayer]]:
    """Inserts adapters at the layers that a LoraConfig chooses.

    Args:
        bound: a graph whose ops are recognised.
        config: the LoraConfig.
        weighed: whether the state SCALE multiplies the adapters; training, where it is 1, saves
            that step of each layer.
        required: whether a layer must be chosen; a part of a model may have none.
        norms: of DoRA, gets (layer, the state with its magnitudes, the norms of its rows).

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
    if norms is not None:
        norms.extend(inserter.norms)
    return inserter.states, inserter.layers


def _chosen(
    bound: BoundGraph, config: AdapterConfig
) -> tuple[list[tuple[str, BoundNode]], list[tuple[str, BoundNode]]]:
    """([(name, node)] that get adapters, [(name, node)] that could)"""
    known = layers(bound)
    if _is_all_linear(config):
        # PEFT leaves the output layer out.
        outputs = {id(v) for v in bound.outputs.values()}
        known = [
            (name, n)
            for name, n in known
            if kind_of(n) == "linear" and not any(id(v) in outputs for v in _behind(bound, n))
        ]
    return [(name, n) for name, n in known if config.matches(name)], known


def _is_all_linear(config: AdapterConfig) -> bool:
    targets = config.target_modules
    return targets is None or isinstance(targets, str) and targets.lower() == "all-linear"


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


def check_targets(graph: Graph, config: AdapterConfig) -> None:
    """Checks early, from names alone, that target_modules may match a layer.

    Raises:
        InputError: no layer of the file can match.
    """
    targets = config.target_modules
    if targets is None or config.modules_to_save or graph.functions:
        return  # functions get names when they are inlined
    if isinstance(targets, str) and targets.lower() == "all-linear":
        return
    names, stacked = possible_names(graph), weights_of_experts(graph)
    arrays = {name for name in names if name in stacked or f"{name}.weight" in stacked}
    if not any(config.matches(name) for name in names - arrays):
        for name in sorted(arrays | stacked):
            if config.matches(name):
                raise InputError(
                    f"'{name}' has the weights of all experts, and LoRA is beside layers alone",
                    "target_modules",
                    "Choose layers of attention, or an export with a layer for each expert.",
                )
        ends = {name.rsplit(".", 1)[-1] for name in names_of_weights(graph)}
        raise _unmatched(config, sorted(e for e in ends if not _NUMBERED.search(e)))


def _no_match(
    bound: BoundGraph, config: AdapterConfig, known: Iterable[tuple[str, BoundNode]]
) -> InputError:
    some = sorted({name.rsplit(".", 1)[-1] for name, _ in known})
    if some:
        return _unmatched(config, some)
    remedy = "The model has no layer that LoRA can be put beside."
    if layers(bound):
        remedy = (
            "The default means linear layers but the output's; name convolutions and embeddings in"
            " target_modules."
        )
    return InputError(f"no layer matches {config.target_modules!r}", "target_modules", remedy)


def _unmatched(config: AdapterConfig, ends: list[str]) -> InputError:
    targets, there = config.target_modules, f"Layers end in {', '.join(ends[:30])}."
    if not ends:
        there = "The file does not name its layers; export it with the names of its modules."
    if not isinstance(targets, str):
        near = (meant(target, ends, "") for target in targets)
        there = " ".join([*filter(None, near), there])
    return InputError(f"no layer matches {targets!r}", "target_modules", there)


def check_dora(graph: Graph, config: AdapterConfig) -> None:
    """Raises UnsupportedOp where DoRA is asked for layers that it is not for, before anything is
    compiled.
    """
    if not config.use_dora or _is_all_linear(config):
        return
    for name, n in stored_layers(graph):
        if name and config.matches(name):
            raise _not_linear(name, WEIGHTS[n.op].kind, n.where)


def _not_linear(name: str, kind: str, where: str) -> UnsupportedOp:
    return UnsupportedOp(
        f"DoRA is for linear layers, '{name}' is {_A[kind]}",
        where,
        "Leave it out of target_modules, or train it without use_dora.",
    )


class _Inserter:
    """Inserts adapters one by one, and collects what they consist of."""

    def __init__(self, bound: BoundGraph, config: AdapterConfig, weighed: bool) -> None:
        self.bound, self.config = bound, config
        self.states = [AdapterState(SCALE, [1], ("fill", 1.0))]
        self.layers: list[LoraLayer] = []
        self._scale = bound.state(SCALE, FLOAT, [1]) if weighed else None
        self.norms: list[tuple[LoraLayer, Value, Value]] = []
        self._uses = uses_of_weights(bound)

    def insert(self, name: str, n: BoundNode) -> None:
        """Adds an adapter to the output of a layer."""
        bound = self.bound
        tail, kind, y = len(bound.nodes), kind_of(n), n.outputs[0]
        if self.config.use_dora and kind != "linear":
            raise _not_linear(name, kind, n.where)
        weight, stored_by_rows = stored_weight(n)
        if weight is not None and self._uses.get(weight, 0) > 1:
            weight = None  # merging the adapter into a tied weight would change the other layer
        make = {"embedding": self._embedding, "conv": self._convolution}.get(kind, self._linear)
        low, up = make(name, n)
        scaling = self.config.scaling_of(name)
        x = n.inputs[1] if kind == "embedding" else n.inputs[0]
        a, b = (s.name for s in self.states[-2:])
        layer = LoraLayer(
            name, kind, a, b, scaling, weight, stored_by_rows, file_name(x), file_name(y)
        )
        self.layers.append(layer)
        if self.config.use_dora:
            new = self._decomposed(layer, n, low, up)
            if self._scale is not None:
                self._once(tail)
        else:
            new = bound.binder.op("Add", y, self._added(kind, low, up, scaling))
        bound.replace(y, new)
        # The new nodes follow the layer directly, and read what it computes.
        made = bound.nodes[tail:]
        for m in made:
            m.inputs = [y if v is new else v for v in m.inputs]
        del bound.nodes[tail:]
        at = next(i for i, m in enumerate(bound.nodes) if m is n) + 1
        bound.nodes[at:at] = made

    def _added(self, kind: str, low: Value, up: Value, scaling: float) -> Value:
        """The output of an adapter."""
        binder = self.bound.binder
        alpha, factor = 1.0, self._scale
        if kind != "conv":
            alpha = scaling  # the product scales
        elif scaling != 1.0:
            constant = binder.constant(FLOAT, [1], [scaling])
            factor = binder.op("Mul", factor, constant) if factor is not None else constant
        if factor is not None:
            low = binder.op("Mul", low, factor)
        if kind == "conv":
            return binder.op("Conv", low, up)
        return self._product(low, up, alpha)

    def _product(self, low: Value, up: Value, alpha: float) -> Value:
        """alpha low up^T"""
        binder = self.bound.binder
        if alpha != 1.0:
            return binder.op("FusedMatMul", low, up, domain=MS, transB=1, alpha=alpha)
        return binder.op("MatMul", low, binder.op("Transpose", up, perm=[1, 0]))

    # ---- DoRA
    def _decomposed(self, layer: LoraLayer, n: BoundNode, low: Value, up: Value) -> Value:
        """b + gain ((y - b) + scaling low up^T), where gain is m / norm, y the output of a layer
        and b its bias. With dropout the first y stands beside (gain - 1) times that of the input
        after it.
        """
        binder, y = self.bound.binder, n.outputs[0]
        bias = _bias_of(n)
        layer.magnitude = f"{layer.name}.lora_magnitude_vector"
        layer.bias = None if bias is None else file_name(bias)
        m = self._state(layer.magnitude, [up.shape[0]], ("fill", 0.0))
        norm = self._norm(layer, n)
        self.norms.append((layer, m, norm))
        one = binder.constant(FLOAT, [1], [1.0])
        if self._scale is None:
            gain = binder.op("Div", m, binder.op("StopGradient", norm, domain="edgewise"))
        else:  # 0 where an adapter has nothing of a layer
            none = binder.op("Equal", m, binder.constant(FLOAT, [1], [0.0]))
            gain = binder.op("Where", none, one, binder.op("Div", m, norm))
        product = self._product(low, up, layer.scaling)
        dropped = low.producer.inputs[0] if low.producer is not None else n.inputs[0]
        if self._scale is None and dropped is n.inputs[0]:
            plain = y if bias is None else binder.op("Sub", y, bias)
            whole = binder.op("Mul", binder.op("Add", plain, product), gain)
            return whole if bias is None else binder.op("Add", whole, bias)
        plain = y if bias is None else binder.op("Sub", y, bias)
        if dropped is not n.inputs[0]:
            plain = self._again(n, dropped)
        more = binder.op("Mul", plain, binder.op("Sub", gain, one))
        added = binder.op("Add", more, binder.op("Mul", product, gain))
        if self._scale is not None:
            added = binder.op("Mul", added, self._scale)
        return binder.op("Add", y, added)

    def _once(self, first: int) -> None:
        """Lets the nodes from here on that depend on states alone run when adapters have changed,
        not in each run.
        """
        for m in self.bound.nodes[first:]:
            if all(v is None or v.fixed for v in m.inputs):
                for v in m.outputs:
                    v.constant = True

    def _again(self, n: BoundNode, x: Value, **changed: Any) -> Value:
        """The product of a layer with another input, without its bias."""
        inputs, place = [x, *n.inputs[1:]], _BIAS.get(n.op)
        if place is not None:
            inputs[place : place + 1] = []
        while inputs and inputs[-1] is None:
            inputs.pop()
        attrs = {**n.attrs, **changed}
        return self.bound.binder.op(n.op, *inputs, domain=n.domain, **attrs)

    def _norm(self, layer: LoraLayer, n: BoundNode) -> Value:
        """|W + scaling B A| of each row, float32 [out]: of |W|^2, which is computed once, W A^T,
        which the layer computes from A, and A A^T. No quantized weight is expanded.
        """
        binder = self.bound.binder
        a, b = (self.bound.states[name] for name in (layer.a, layer.b))
        exact = {"accuracy_level": 1} if n.op == "MatMulNBits" else {}
        crossed = binder.op("Transpose", self._again(n, a, **exact), perm=[1, 0])
        gram = binder.op("MatMul", a, binder.op("Transpose", a, perm=[1, 0]))
        two = binder.constant(FLOAT, [1], [2.0 * layer.scaling])
        square = binder.constant(FLOAT, [1], [layer.scaling**2])
        inner = binder.op(
            "Add",
            binder.op("Mul", crossed, two),
            binder.op("Mul", binder.op("MatMul", b, gram), square),
        )
        axis = binder.ints([1])
        change = binder.op("ReduceSum", binder.op("Mul", b, inner), axis, keepdims=0)
        squares = binder.op("Add", self._squares(layer, n), change)
        least = binder.constant(FLOAT, [1], [_MIN_SQUARE])
        return binder.op("Sqrt", binder.op("Max", squares, least))

    def _squares(self, layer: LoraLayer, n: BoundNode) -> Value:
        """|W|^2 of each row, float32 [out]."""
        binder = self.bound.binder
        if n.op == "MatMulNBits" and _is_plain(n):
            return self._squares_of_bits(n)
        if n.op not in ("MatMul", "Gemm", "FusedMatMul"):
            raise UnsupportedOp(
                f"DoRA needs the norms of its weight, which are not computed of {n.op} of this"
                " kind",
                f"layer '{layer.name}'",
                "Train LoRA (without use_dora), or take the model's float file or the one with"
                " 4-bit weights.",
            )
        axis = binder.ints([1 if n.attr("transB", 0) else 0])
        found = binder.op("ReduceSumSquare", n.inputs[1], axis, keepdims=0)
        alpha = float(n.attr("alpha", 1.0))
        if alpha == 1.0:
            return found
        return binder.op("Mul", found, binder.constant(FLOAT, [1], [alpha * alpha]))

    def _squares_of_bits(self, n: BoundNode) -> Value:
        """_squares of MatMulNBits, of some rows at a time."""
        binder = self.bound.binder
        out, width, bits = n.attr("N"), n.attr("K"), n.attr("bits", 4)
        blocks = -(-width // n.attr("block_size"))
        zeros = n.input(3)
        stored = [
            (n.inputs[1], n.inputs[1].shape[-1] * blocks),
            (n.inputs[2], blocks),
            (zeros, -(-blocks * bits // 8)),
        ]
        table, scales, zeros = (
            v and binder.op("Reshape", v, binder.constant(INT64, [2], [out, columns]))
            for v, columns in stored
        )
        squares = []
        for first in range(0, out, _ROWS):
            some = list(range(first, min(first + _ROWS, out)))
            rows = binder.op(
                "GatherBlockQuantized",
                *(table, binder.ints(some), scales, *([zeros] if zeros is not None else [])),
                domain=MS,
                bits=bits,
                block_size=n.attr("block_size"),
                gather_axis=0,
                quantize_axis=1,
            )
            if rows.shape[1] != width:
                ends = [binder.ints([x]) for x in (0, width, 1)]
                rows = binder.op("Slice", rows, *ends)
            squares.append(binder.op("ReduceSumSquare", rows, binder.ints([1]), keepdims=0))
        return binder.op("Concat", *squares, axis=0) if len(squares) > 1 else squares[0]

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


# Inputs of nodes that are added to their products.
_BIAS = {"Gemm": 2, "MatMulNBits": 5}
_A = {"conv": "a convolution", "embedding": "an embedding"}


def _bias_of(n: BoundNode) -> Value | None:
    """What a layer's node adds to its product; None where it adds nothing.

    Raises:
        UnsupportedOp: it adds a multiple of it.
    """
    place = _BIAS.get(n.op)
    bias = None if place is None else n.input(place)
    if bias is not None and n.attr("beta", 1.0) != 1.0:
        raise UnsupportedOp(
            "its bias is scaled by the node", n.where, "Leave it out of target_modules."
        )
    return bias


def _is_plain(n: BoundNode) -> bool:
    """Whether a MatMulNBits has zero points as integers, and blocks in order."""
    zeros = n.input(3)
    whole = zeros is None or zeros.dtype == UINT8
    return whole and n.attr("bits", 4) in (2, 4, 8) and not n.has(4)


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
