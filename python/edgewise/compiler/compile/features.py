"""Decoders whose runs take features of pictures or sounds in place of embeddings of tokens.

Their plans have, besides `input_ids`, the inputs FEATURES, float32 [1, tokens, hidden], and
SELECTED, int64 [1, tokens, 1]: where it is not 0, the row of the features is the token's
embedding. A decoder that counts time, height and width (mRoPE) has an input POSITIONS, int64
[3, 1, tokens], too, since positions after a picture do not follow from the number of tokens. One in
which tokens see others that come after them has an input REACH, int64 [1, tokens]: how many tokens
of the sequence a token sees, and 0 where it sees itself and those before it.

A decoder that takes features of inner layers of the encoder as well (DeepStack, of Qwen3-VL) has
them in the same rows: FEATURES is then as wide as all of them. Exports have an input for each
layer, [batch, tokens, hidden], or one for all: [layers, batch, tokens, hidden], or [layers,
pictures' tokens, hidden] with a mask of these tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import UnsupportedOp
from ...logic.manifest.limits import FEATURES, POSITIONS, REACH, SELECTED
from ...logic.multimodal.prompt import Sees
from ..declare.dtypes import BOOL, FLOAT, FLOAT16, INT64, NAME
from ..ir import Graph, Info, Node, Tensor
from .selection import with_all_selected
from .states import is_past

INPUTS = (FEATURES, SELECTED, POSITIONS, REACH)
POSITION_IDS, TYPES = "position_ids", "token_type_ids"
# With more words after it (transformers 5: attention_mask.sliding_attention) that of some layers.
MASK = "attention_mask"
CAUSAL = ".causal"
"""End of the name of the input in place of a mask: the mask before REACH is applied."""


def with_features(graph: Graph, embeds: Info, source: str, config: Mapping[str, Any]) -> Graph:
    """A decoder that takes features.

    Args:
        graph: reads the embeddings of a run.
        embeds: what it reads: name, element type and shape.
        source: name of the tensor with the embeddings of all tokens.
        config: contents of config.json.

    Raises:
        UnsupportedOp: the embeddings are not numbers, or nobody knows how many a token has.
    """
    hidden = _hidden(embeds, config)
    if embeds.dtype not in (FLOAT, FLOAT16):
        raise UnsupportedOp(
            f"its element type is {NAME.get(embeds.dtype, embeds.dtype)}",
            f"input '{embeds.name}'",
            "Export the decoder with embeddings of float32 or float16.",
        )
    where = f"{SELECTED}/bool"
    nodes = [Node("Cast", [SELECTED], [where], {"to": BOOL}, name=where)]
    inner = _Inner(graph, embeds, hidden, config)
    if inner.mask is not None:
        graph = with_all_selected(graph, inner.mask.name)
    rows = inner.rows(nodes, 0)
    nodes.append(Node("Where", [where, rows, source], [embeds.name], name=f"{FEATURES}/embeds"))
    inner.add(nodes, where)
    inputs = [
        *(i for i in graph.inputs if i.name not in inner.names),
        Info(FEATURES, FLOAT, [1, "tokens", hidden * (1 + inner.layers)]),
        Info(SELECTED, INT64, [1, "tokens", 1]),
    ]
    positions = next((i for i in graph.input_names() if i.name == POSITION_IDS), None)
    if positions is not None and len(positions.shape or ()) == 3:
        inputs = [i for i in inputs if i.name != POSITION_IDS]
        inputs.append(Info(POSITIONS, INT64, [3, 1, "tokens"]))
        cast = Node("Cast", [POSITIONS], [POSITION_IDS], {"to": positions.dtype}, name=POSITION_IDS)
        nodes.append(cast)
    constants = {**graph.constants, **inner.constants}
    nodes = _sorted_in(graph, nodes, source)
    return replace(graph, nodes=nodes, inputs=inputs, constants=constants, values=None)


class _Inner:
    """Inputs of a decoder for features of inner layers of the encoder.

    Args:
        graph: the decoder.
        embeds: what it reads.
        hidden: numbers of an embedding.
        config: contents of config.json.

    Attributes:
        names: of the inputs, a mask of tokens among them.
        layers: how many layers there are.
        constants: that the nodes read.
    """

    def __init__(self, graph: Graph, embeds: Info, hidden: int, config: Mapping[str, Any]) -> None:
        self.embeds, self.hidden = embeds, hidden
        self.constants: dict[str, Tensor] = {}
        self.mask: Info | None = None
        infos = [i for i in graph.input_names() if i.name != embeds.name]
        self.inputs = [i for i in infos if _is_inner(i, hidden)]
        lone = self.inputs[0] if len(self.inputs) == 1 else None
        if lone is not None and len(lone.shape or ()) == 3:
            masks = [i for i in infos if i.dtype == BOOL and len(i.shape or ()) == 2]
            self.mask = next((i for i in masks if i.name != "attention_mask"), None)
        self.together = lone is not None and (self.mask is not None or len(lone.shape or ()) == 4)
        self.layers = len(self.inputs)
        if self.together:
            assert lone is not None and lone.shape is not None
            vision = config.get("vision_config")
            known = vision.get("deepstack_visual_indexes") if isinstance(vision, Mapping) else None
            first = lone.shape[0]
            self.layers = first if isinstance(first, int) else len(known or ())
            if not self.layers:
                raise UnsupportedOp(
                    f"its shape is {lone.shape}",
                    f"input '{lone.name}'",
                    "Put the model's config.json beside it, with deepstack_visual_indexes.",
                )
        self.names = {i.name for i in (*self.inputs, self.mask) if i is not None}

    def _constant(self, name: str, dtype: int, shape: list[int], numbers: list[Any]) -> str:
        self.constants[name] = Tensor.of(name, dtype, shape, numbers)
        return name

    def rows(self, nodes: list[Node], layer: int) -> str:
        """The features of a layer, the last one first, for each token."""
        name = FEATURES
        if self.layers:
            at = f"{FEATURES}/{layer}"
            ends = (layer * self.hidden, (layer + 1) * self.hidden)
            bounds = [
                self._constant(f"{at}/{i}", INT64, [1], [n]) for i, n in enumerate((*ends, 2))
            ]
            nodes.append(Node("Slice", [name, *bounds], [at], name=at))
            name = at
        if self.embeds.dtype == FLOAT:
            return name
        cast = f"{FEATURES}/{layer}/cast"
        nodes.append(Node("Cast", [name], [cast], {"to": self.embeds.dtype}, name=cast))
        return cast

    def add(self, nodes: list[Node], where: str) -> None:
        """Adds what computes the inputs: features, and zeros for tokens of text."""
        made = [f"{FEATURES}/{layer}/masked" for layer in range(1, self.layers + 1)]
        if not self.together:
            made = [i.name for i in self.inputs]
        nothing = self._constant(f"{FEATURES}/nothing", self.embeds.dtype, [1], [0.0])
        for layer, name in enumerate(made, 1):
            rows = self.rows(nodes, layer)
            nodes.append(Node("Where", [where, rows, nothing], [name], name=f"{name}/where"))
        if not self.together:
            return
        (target,) = self.inputs
        if self.mask is None:  # [layers, batch, tokens, hidden]
            op, more = "Unsqueeze", self._constant(f"{FEATURES}/first", INT64, [1], [0])
        else:  # of all tokens of all rows
            op, dims = "Reshape", [1, -1, self.hidden]
            more = self._constant(f"{FEATURES}/dims", INT64, [3], dims)
        for i, name in enumerate(made):
            made[i] = f"{name}/one"
            nodes.append(Node(op, [name, more], [made[i]], name=made[i]))
        if self.mask is not None:  # tokens of text have zeros
            size, value = f"{FEATURES}/size", Tensor.of("value", BOOL, [1], [True])
            nodes.append(Node("Shape", ["input_ids"], [size], name=size))
            mask = [self.mask.name]
            nodes.append(Node("ConstantOfShape", [size], mask, {"value": value}, name=mask[0]))
        joined = f"{target.name}/layers"
        nodes.append(Node("Concat", made, [target.name], {"axis": 0}, name=joined))


def _is_inner(info: Info, hidden: int) -> bool:
    """Whether an input has numbers as wide as an embedding for each token, and is no state."""
    shape = info.shape or []
    return (
        info.dtype in (FLOAT, FLOAT16)
        and len(shape) in (3, 4)
        and shape[-1] == hidden
        and not isinstance(shape[-2], int)
        and not is_past(info.name)
    )


def _sorted_in(graph: Graph, nodes: list[Node], source: str) -> list[Node]:
    """The nodes of a graph with further ones after the one that computes a tensor."""
    at = next(i for i, n in enumerate(graph.nodes) if source in n.outputs) + 1
    return [*graph.nodes[:at], *nodes, *graph.nodes[at:]]


def _hidden(embeds: Info, config: Mapping[str, Any]) -> int:
    """Numbers of a token's embedding."""
    size: Any = embeds.shape[-1] if embeds.shape else None
    if not isinstance(size, int):
        size = text_config(config).get("hidden_size")
    if type(size) is not int or size < 1:
        raise UnsupportedOp(
            f"its shape is {embeds.shape}",
            f"input '{embeds.name}'",
            "Put the model's config.json beside it, with hidden_size.",
        )
    return size


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of config.json that a language model of a larger model has: its own over the
    others.
    """
    found = dict(config)
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        inner = config.get(name)
        if isinstance(inner, Mapping):
            found |= text_config(inner)
    return found


def masks(inputs: Mapping[str, Info]) -> dict[str, Info]:
    """{name: Info} of the attention masks: one of all layers, or those of each kind of layers."""
    return {name: i for name, i in inputs.items() if name.split(".")[0] == MASK}


def sees(graph: Graph, prompts: bool) -> Sees | None:
    """Where tokens of a decoder see others that come after them.

    Args:
        graph: of a family in which they do.
        prompts: whether those of a prompt do, and not of a picture alone.

    Returns:
        None: nowhere, for the graph makes a mask of its own.
    """
    inputs = {i.name: i for i in graph.input_names()}
    found = masks(inputs).values()
    if prompts:
        return "prompt" if found else None
    if found and all(len(i.shape or ()) == 4 for i in found):
        return "pictures"
    return "start" if TYPES in inputs else None


def with_reach(graph: Graph, where: Sees) -> Graph:
    """A decoder that takes REACH, from which its masks or the types of its tokens are made.

    Args:
        graph: with the inputs of which `sees` spoke.
        where: what it returned.
    """
    inputs = {i.name: i for i in graph.input_names()}
    replaced = {TYPES: inputs[TYPES]} if where == "start" else masks(inputs)
    made = _Reach()
    for name, info in replaced.items():
        if where == "start":
            some = made.op("Greater", "some", REACH, made.number("zero", [], [0]))
            made.nodes.append(Node("Cast", [some], [TYPES], {"to": info.dtype}, name=TYPES))
        else:
            made.mask(name, info, where == "pictures" and "sliding" in name and _grows(graph, info))
    given = [replace(i, name=i.name + CAUSAL) for i in replaced.values() if i.name != TYPES]
    return replace(
        graph,
        nodes=[*made.nodes, *graph.nodes],
        inputs=[
            *(i for i in graph.inputs if i.name not in replaced),
            *given,
            Info(REACH, INT64, [1, "tokens"]),
        ],
        constants={**graph.constants, **{t.name: t for t in made.constants}},
        values=None,
    )


def _grows(graph: Graph, mask: Info) -> bool:
    """Whether the caches of a mask's layers grow: others have its last dimension."""
    states = [i for i in graph.input_names() if is_past(i.name)]
    return all((mask.shape or [None])[-1] not in (i.shape or ())[1:] for i in states)


class _Reach:
    """The nodes that apply REACH."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: list[Tensor] = []

    def number(self, name: str, shape: list[int], values: list[Any], dtype: int = INT64) -> str:
        """A constant."""
        self.constants.append(Tensor.of(f"{REACH}/{name}", dtype, shape, values))
        return f"{REACH}/{name}"

    def op(self, kind: str, name: str, *of: str, **attrs: Any) -> str:
        """A node of one output."""
        name = f"{REACH}/{name}"
        self.nodes.append(Node(kind, list(of), [name], attrs, name=name))
        return name

    def _later(self, name: str, size: str, columns: str) -> str:
        """Which columns of a mask are of tokens after that of the row."""
        one = self.number("one", [], [1])
        count = self.op("Gather", f"{name}/count", self.op("Shape", f"{name}/run", REACH), one)
        total = self.op("Squeeze", f"{name}/all", size)
        own = self.op(
            "Range", f"{name}/own", self.op("Sub", f"{name}/past", total, count), total, one
        )
        axis = self.number(f"{name}/column", [1], [1])
        return self.op(
            "Greater", f"{name}/after", columns, self.op("Unsqueeze", f"{name}/each", own, axis)
        )

    def mask(self, name: str, info: Info, after: bool) -> None:
        """Makes a mask of the one that the plan computes.

        Args:
            name, info: of the mask.
            after: whether REACH is of later tokens alone: of those before, the window decides.
        """
        rank, given = len(info.shape or ()), name + CAUSAL
        zero, one = self.number("zero", [], [0]), self.number("one", [], [1])
        last = self.number(f"{name}/axis", [1], [rank - 1])
        size = self.op("Gather", f"{name}/size", self.op("Shape", f"{name}/shape", given), last)
        columns = self.op(
            "Range", f"{name}/columns", zero, self.op("Squeeze", f"{name}/total", size), one
        )
        if rank == 4:
            allowed = 0.0 if info.dtype in (FLOAT, FLOAT16) else 1
            rows = self.op(
                "Unsqueeze", f"{name}/rows", REACH, self.number(f"{name}/axes", [2], [1, 3])
            )
            where = self.op("Less", f"{name}/seen", columns, rows)
            if after:
                where = self.op("And", f"{name}/later", where, self._later(name, size, columns))
            value = self.number(f"{name}/yes", [], [allowed], info.dtype)
        else:  # whose graph lets all see all, also what fills up a run
            most = self.op("ReduceMax", f"{name}/most", REACH, keepdims=0)
            some = self.op("Greater", f"{name}/some", most, zero)
            unread = self.op("GreaterOrEqual", f"{name}/after", columns, most)
            where = self.op("And", f"{name}/beyond", some, unread)
            value = self.number(f"{name}/no", [], [0], info.dtype)
        self.nodes.append(Node("Where", [where, value, given], [name], name=name))


def fed_shapes(graph: Graph, tokens: int) -> dict[str, list[int]]:
    """{input: shape} of those that the host gives besides ids, for runs of `tokens` tokens."""
    return {
        i.name: [d if isinstance(d, int) else tokens for d in i.shape or ()]
        for i in graph.input_names()
        if i.name in INPUTS
    }


def fed_rows(graph: Graph, rows: int, tokens: int) -> dict[str, list[int]]:
    """{input: shape} as fed_shapes, for `rows` sequences of `tokens` tokens."""
    shapes = fed_shapes(graph, tokens)
    for name, shape in shapes.items():
        shape[1 if name == POSITIONS else 0] = rows
    return shapes
