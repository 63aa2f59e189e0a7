"""States of language models: inputs that the graph replaces by an output in each run.

A state that grows holds one entry per token along one axis (keys and values of attention). A fixed
one has the same shape in each run (convolution, recurrent, SSM, shift states). Inputs are paired
with outputs by the names that exporters give, where these leave no choice, else by shapes and the
flow of data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import UnsupportedOp
from ..declare.dtypes import NAME
from ..ir import Graph, Info, Node

# Inputs of operators that hold a state, with the output that replaces it.
STATES_OF_OPS: Mapping[str, Mapping[int, int]] = {
    "GroupQueryAttention": {3: 1, 4: 2},
    "MultiHeadAttention": {6: 1, 7: 2},
    "DecoderMaskedMultiHeadAttention": {5: 1, 6: 2},
    "SparseAttention": {3: 1, 4: 2},
    "DynamicSparseAttention": {3: 1, 4: 2},
    "Attention": {4: 1, 5: 2},  # of ai.onnx; com.microsoft's has one input for both
    "LinearAttention": {3: 1},
    "CausalConvWithState": {3: 1},
}
MAX_DISTANCE = 64  # nodes between a state's output and its input
FAR = 2 * MAX_DISTANCE + 1  # beyond all distances: no data leads from the one to the other
# Words of names that tell inputs from outputs.
_WORDS = re.compile(r"past_key_values|present_key_values|past|present|input|output|new|next|cache")
_LETTER = re.compile(r"[a-z]")  # names of numbers alone are places, which do not tell states apart
_PASTS = re.compile(r"past|cache|prev", re.IGNORECASE)


def is_past(name: str) -> bool:
    """Whether an input has the name of a state."""
    return _PASTS.search(name) is not None


@dataclass(frozen=True)
class StateInput:
    """An input and the output that replaces it.

    Attributes:
        name, output: of the tensors.
        info: as the input is declared.
        axis: along which it grows by the tokens of a run; None: its shape is fixed.
    """

    name: str
    output: str
    info: Info
    axis: int | None

    @property
    def fixed(self) -> bool:
        """Whether its shape is the same in each run."""
        return self.axis is None


def find_states(graph: Graph, names: Iterable[str]) -> dict[str, StateInput]:
    """Pairs inputs with the outputs that replace them.

    Args:
        graph: a decoder.
        names: of its inputs that may be states.

    Returns:
        {input name: StateInput}, in the order of the graph's inputs

    Raises:
        UnsupportedOp: an input is replaced by no output, or by a longer one.
    """
    wanted = set(names)
    inputs = [i for i in graph.input_names() if i.name in wanted]
    outputs = {o.name: o for o in graph.outputs}
    found = _paired(graph, inputs)
    missing = next((i for i in inputs if i.name not in found), None)
    if missing is not None:
        raise _unpaired(graph, missing, {name: own for own, name in found.items()})
    return {
        i.name: StateInput(i.name, found[i.name], i, _growing_axis(i, outputs[found[i.name]]))
        for i in inputs
    }


def _paired(graph: Graph, inputs: Sequence[Info]) -> dict[str, str]:
    """{input: output that replaces it} of those that have one."""
    near = _Near(graph, {i.name for i in inputs})
    count = Counter(_bare(i.name) for i in inputs)
    count.update(_bare(o.name) for o in graph.outputs)
    pairs = []
    for place, output in enumerate(graph.outputs):
        distances = near.of(output.name) if output.name != "logits" else {}
        for k, info in enumerate(inputs):
            if not _fits(info, output):
                continue
            distance = distances.get(info.name, FAR)
            bare = _bare(info.name)
            alike = bare == _bare(output.name)
            named = alike and _LETTER.search(bare) is not None and count[bare] == 2
            if alike or distance < FAR or _same_shape(info, output):
                loose = _loose(info, output)
                pairs.append((not named, loose, distance, not alike, abs(place - k), k, place))
    found: dict[int, int] = {}
    unnamed: dict[object, list[int]] = {}
    blind: set[object] = set()  # kinds with a pair that no data connects
    for other, _, distance, *_, k, place in sorted(pairs):
        if k not in found and place not in found.values():
            found[k] = place
            if other and distance >= MAX_DISTANCE:
                kind: object = (inputs[k].dtype, tuple(inputs[k].shape or ()))
                unnamed.setdefault(kind, []).append(k)
                blind.update({kind} if distance == FAR else ())
    for kind in blind:
        # The last token's row, for one: data leads through layers to the state of another one.
        # Files list states in one order.
        ordered = sorted(unnamed[kind])
        found.update(zip(ordered, sorted(found[k] for k in ordered)))
    return {inputs[k].name: graph.outputs[place].name for k, place in found.items()}


def _unpaired(graph: Graph, missing: Info, replaced: Mapping[str, str]) -> UnsupportedOp:
    """The error for an input that no output replaces.

    Args:
        replaced: {output: input} of those that are paired.
    """
    alike = next((o for o in graph.outputs if _bare(o.name) == _bare(missing.name)), None)
    more = ""
    if alike is not None and alike.name in replaced:
        more = f": '{alike.name}' replaces '{replaced[alike.name]}'"
    elif alike is not None:
        more = f": '{alike.name}' is {_kind(alike)}{_shape(alike)}"
    return UnsupportedOp(
        f"it has an input '{missing.name}' of {_kind(missing)}{_shape(missing)} that text"
        f" generation does not know, and that no output replaces{more}",
        graph.name or "model",
        "Export the model for text generation, or run it with InferenceSession.",
    )


def _kind(info: Info) -> str:
    return str(NAME.get(info.dtype, info.dtype))


def _shape(info: Info) -> str:
    return f"[{', '.join(map(str, info.shape or ('?',)))}]"


def _bare(name: str) -> str:
    """A name without the words that tell a state from its new value."""
    return re.sub(r"[^a-z0-9]+", ".", _WORDS.sub("", name.lower())).strip(".")


def _fits(info: Info, output: Info) -> bool:
    """Whether an output can replace an input, as far as both are declared."""
    if info.dtype not in (output.dtype, 0) and output.dtype:
        return False
    if info.shape is None or output.shape is None:
        return True
    if len(info.shape) != len(output.shape):
        return False
    both = [(a, b) for a, b in zip(info.shape, output.shape) if isinstance(a, int)]
    return sum(isinstance(b, int) and a != b for a, b in both) == 0


def _loose(info: Info, output: Info) -> int:
    """How many sizes the input declares, and the output leaves open, besides the batch."""
    both = list(zip(info.shape or (), output.shape or ()))[1:]
    return sum(isinstance(a, int) and not isinstance(b, int) for a, b in both)


def _same_shape(info: Info, output: Info) -> bool:
    """Whether both declare the same shape, of numbers but for the batch: a state that does not
    depend on what it was, such as the last token's embedding.
    """
    shape, new = info.shape or [], output.shape or []
    return len(shape) > 1 and all(isinstance(d, int) for d in shape[1:]) and shape[1:] == new[1:]


def _growing_axis(info: Info, output: Info) -> int | None:
    """The axis along which a state grows, from the declared shapes of both; None: its shape is
    fixed.

    Raises:
        UnsupportedOp: several axes change, or one that has a fixed size.
    """
    shape, new = info.shape or (), output.shape or ()
    if any(isinstance(d, int) and "+" in str(n) for d, n in zip(shape, new)):
        raise UnsupportedOp(
            f"its shape is {_shape(info)} from the first token on, that of its output"
            f" '{output.name}' {_shape(output)}",
            f"input '{info.name}'",
            "Export the model with dynamic sizes of its states, which begin empty.",
        )
    free = [i for i, d in enumerate(shape) if not isinstance(d, int) and i > 0]
    changed = [i for i in free if not new or shape[i] != new[i]]
    if not new and len(shape) == 4 and 2 in free:  # optimum's layout
        changed = [2]
    if len(changed) > 1:
        changed = [i for i in changed if _PASTS.search(str(shape[i]))] or changed
    if len(changed) > 1:
        raise UnsupportedOp(
            f"its shape is {_shape(info)}, that of its output '{output.name}' {_shape(output)}",
            f"input '{info.name}'",
            "Export the model with one axis that grows, as [batch, heads, past, dim].",
        )
    return changed[0] if changed else None


class _Near:
    """Which inputs are nearest to an output, in nodes."""

    def __init__(self, graph: Graph, inputs: set[str]) -> None:
        self.inputs = inputs
        self.by_output: dict[str, tuple[Node, int]] = {
            o: (n, k) for n in graph.nodes for k, o in enumerate(n.outputs) if o
        }
        self.constants = set(graph.constants)
        for node in graph.nodes:
            if all(n in self.constants for n in node.inputs if n):
                self.constants.update(node.outputs)

    def of(self, name: str) -> dict[str, int]:
        """{input: nodes on the way to it}: those that are met first, without a product with weights
        on the way if there are such; else MAX_DISTANCE more.
        """
        found = self._met(name, False)
        if found:
            return found
        return {n: distance + MAX_DISTANCE for n, distance in self._met(name, True).items()}

    def _met(self, name: str, weights: bool) -> dict[str, int]:
        seen, layer = {name}, [name]
        for distance in range(MAX_DISTANCE):
            found = [n for n in layer if n in self.inputs]
            if found:
                return dict.fromkeys(found, distance)
            layer = [n for n in self._before(layer, weights) if n not in seen]
            seen.update(layer)
            if not layer:
                break
        return {}

    def _before(self, names: Sequence[str], weights: bool) -> list[str]:
        """What the nodes that compute tensors read.

        Args:
            weights: whether products with weights count.
        """
        out: dict[str, None] = {}
        for name in names:
            node, k = self.by_output.get(name, (None, 0))
            if node is None or not weights and self._weighs(node):
                continue
            states = STATES_OF_OPS.get(node.op, {})
            own = [i for i, o in states.items() if o == k and i < len(node.inputs)]
            read = [node.inputs[i] for i in own if node.inputs[i]]
            if not read:
                read = [n for n in node.inputs if n]
                read += [n for g in node.subgraphs() for m in g.every_node() for n in m.inputs if n]
            out.update(dict.fromkeys(read))
        return list(out)

    def _weighs(self, node: Node) -> bool:
        product = "MatMul" in node.op or node.op in ("Gemm", "Conv")
        return product and any(n in self.constants for n in node.inputs)
