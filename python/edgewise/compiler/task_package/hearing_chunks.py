"""Encoders for streams as encoders of whole recordings: those of k2, and the cache-aware ones of
NeMo, take a chunk of frames and states, and give frames of the output and the states that follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import ModelError
from ...logic.speech.enhancement import plain_name
from ..bind import bind
from ..declare.dtypes import FLOAT, INT64
from ..ir import Graph, Info, Node, Tensor
from . import hearing_graphs as hear

SILENCE = math.log(2.0**-23)  # the logarithm of the least energy of a filter (Kaldi's)
NEMO_SILENCE = math.log(2.0**-24)
SUBSAMPLING = 4
P = "chunks/"  # of the names of tensors
TURNED = 8  # of models whose features are [1, filters, frames]
FILTERS = (64, 80, 128)


def whole_encoder(graph: Graph) -> Graph:
    """The encoder with the input [1, frames, filters] and the output [1, frames, width], or both
    turned as the graph has them: chunks that begin every so many frames, after the states of the
    one before, at first zeros. Silence follows the frames. A graph without states is returned as
    it is.

    Raises:
        ModelError: the sizes of chunks or states are not known.
    """
    inputs, given = graph.input_names(), {o.name: o for o in graph.outputs}
    after = _paired(inputs, graph.outputs)
    states = [i for i in inputs if i.name in after]
    features = [i for i in inputs if i.name not in after and hear.rank(i) == 3]
    lengths = [i for i in inputs if i.name not in after and i not in features]
    if not states or len(features) != 1 or len(lengths) > 1:
        return graph
    if any(hear.rank(i) != 1 or i.dtype not in hear.WHOLE for i in lengths):
        return graph
    (x,) = features
    about = graph.about.custom_metadata_map
    turned = _turned(x, about)
    size = hear.size(x, 2 if turned else 1) or _whole(about, "T") or _whole(about, "window_size")
    mels = hear.size(x, 1 if turned else 2) or _whole(about, "feat_dim")
    shapes = [[d if isinstance(d, int) and d > 0 else 1 for d in i.shape or []] for i in states]
    if not size or not mels or not all(shapes):
        raise ModelError(
            f"its inputs are {hear.described(inputs)}",
            "the encoder",
            "Export it again with the numbers of frames and filters of a chunk, and sizes of its"
            " states.",
        )
    hidden = next((o for name, o in given.items() if name not in after.values()), None)
    if hidden is None:
        return graph
    made = bind(
        replace(graph, nodes=[*graph.nodes]),  # binding moves nodes that are constants
        {
            x.name: [1, mels, size] if turned else [1, size, mels],
            **{i.name: s for i, s in zip(states, shapes)},
            **{i.name: [1] for i in lengths},
        },
        {i.name: i.dtype for i in inputs},
        {i.name: [size] for i in lengths},
        outputs=[hidden.name],
    )
    dims = [int(d) for d in made.outputs[hidden.name].shape]
    over = turned and _is_width(dims[1], dims[2], shapes)  # [1, width, frames]
    frames, width = (dims[2], dims[1]) if over else (dims[1], dims[2])
    by = _whole(about, "subsampling_factor") or (TURNED if turned else SUBSAMPLING)
    step = _whole(about, "decode_chunk_len") or _whole(about, "chunk_shift") or frames * by
    if not 0 < step <= size:
        raise ModelError(
            f"its chunks have {size} frames, of which it goes on by {step}",
            "the encoder",
            "Export it again.",
        )
    following = [replace(given[after[i.name]], shape=s) for i, s in zip(states, shapes)]
    chunks = Chunks(x, lengths, hidden, size, step, mels, width, turned, over)
    return _scanned(graph, chunks, states, following)


@dataclass(frozen=True)
class Chunks:
    """How an encoder takes and gives chunks.

    Attributes:
        x, lengths, hidden: inputs of the features and of their number, and the output.
        size, step: frames of a chunk, and from chunk to chunk.
        mels, width: numbers of a frame of features, and of the output.
        turned, over: whether the features are [1, filters, frames], the output [1, width, frames].
    """

    x: Info
    lengths: list[Info]
    hidden: Info
    size: int
    step: int
    mels: int
    width: int
    turned: bool
    over: bool


def _paired(inputs: Sequence[Info], outputs: Sequence[Info]) -> dict[str, str]:
    """{state: the output that replaces it}: of its type and rank, and its name but for a word that
    marks what is new (new_x, x_next, cache_next_len).
    """
    left = {o.name: o for o in outputs}
    found: dict[str, str] = {}
    for info in inputs:
        for name, o in left.items():
            same = o.dtype in (0, info.dtype) and (not o.shape or hear.rank(o) == hear.rank(info))
            if same and name != info.name and plain_name(name) == plain_name(info.name):
                found[info.name] = name
                del left[name]
                break
    return found


def _turned(x: Info, about: Mapping[str, str]) -> bool:
    """Whether features are [1, filters, frames]."""
    first, last = hear.size(x, 1), hear.size(x, 2)
    mels = _whole(about, "feat_dim")
    if mels and (first == mels) != (last == mels):
        return first == mels
    if first and last:  # both are known: there are 80 or 128 filters
        return first in FILTERS and last not in FILTERS
    return first is not None and last is None and x.name not in ("x", "speech")


def _is_width(first: int, last: int, shapes: Sequence[Sequence[int]]) -> bool:
    """Whether the first of two sizes is the width, which states have, too."""
    sizes = {d for shape in shapes for d in shape[1:]}
    return first in sizes if (first in sizes) != (last in sizes) else first > last


def _whole(about: Mapping[str, str], name: str) -> int:
    """A number of the metadata; 0: there is none."""
    value = about.get(name, "")
    return int(value) if value.isdecimal() else 0


class _Constants(dict[str, Tensor]):
    """The constants that nodes around the encoder read."""

    def whole(self, name: str, *values: int, shape: Sequence[int] | None = None) -> str:
        """Adds integers, by default a vector."""
        dims = [len(values)] if shape is None else shape
        return self.add(Tensor.of(P + name, INT64, dims, values))

    def add(self, tensor: Tensor) -> str:
        """Adds a tensor. Returns its name."""
        self[tensor.name] = tensor
        return tensor.name


def _chunks(constants: _Constants, of: Chunks) -> list[Node]:
    """The nodes from features to P + "parts" [chunks, size, filters]."""
    whole, mels, size, step = constants.whole, of.mels, of.size, of.step
    quiet = NEMO_SILENCE if of.turned else SILENCE
    silence = constants.add(Tensor.of(P + "silence", of.x.dtype, [], [quiet]))
    by, zero, x = whole("step", step), whole("0", 0), P + "x" if of.turned else of.x.name
    return [
        *([Node("Transpose", [of.x.name], [x], {"perm": [0, 2, 1]})] if of.turned else ()),
        Node("Shape", [x], [P + "shape"]),
        Node("Slice", [P + "shape", whole("1", 1), whole("2", 2)], [P + "frames"]),
        *(_silenced(constants, of, x, silence) if of.lengths else ()),
        Node("Add", [P + "frames", whole("more", step - 1)], [P + "up"]),
        Node("Div", [P + "up", by], [P + "count"]),
        Node("Mul", [P + "count", by], [P + "steps"]),
        Node("Add", [P + "steps", whole("rest", size - step)], [P + "total"]),
        Node("Sub", [P + "total", P + "frames"], [P + "after"]),
        Node("Concat", [whole("before", 0, 0, 0, 0), P + "after", zero], [P + "pads"], {"axis": 0}),
        Node("Pad", [P + "heard" if of.lengths else x, P + "pads", silence], [P + "padded"]),
        Node("Reshape", [P + "count", whole("scalar", shape=[0])], [P + "n"]),
        Node(
            "Range",
            [whole("first", 0, shape=[]), P + "n", whole("next", 1, shape=[])],
            [P + "places"],
        ),
        Node("Mul", [P + "places", by], [P + "starts"]),
        Node("Reshape", [P + "starts", whole("column", -1, 1)], [P + "rows"]),
        Node("Add", [P + "rows", whole("offsets", *range(size))], [P + "indices"]),
        Node("Gather", [P + "padded", P + "indices"], [P + "gathered"], {"axis": 1}),
        Node("Reshape", [P + "gathered", whole("sizes", -1, size, mels)], [P + "parts"]),
    ]


def _silenced(constants: _Constants, of: Chunks, x: str, silence: str) -> list[Node]:
    """The nodes from features to P + "heard": silence in the place of frames after the sound."""
    whole, (length,) = constants.whole, of.lengths
    ends = [whole("zero", 0, shape=[]), P + "rows of x", whole("one", 1, shape=[])]
    return [
        Node("Reshape", [P + "frames", whole("no dims", shape=[0])], [P + "rows of x"]),
        Node("Range", ends, [P + "frame"]),
        Node("Cast", [P + length.name], [P + "heard frames"], {"to": INT64}),
        Node("Less", [P + "frame", P + "heard frames"], [P + "of sound"]),
        Node("Reshape", [P + "of sound", whole("wide", 1, -1, 1)], [P + "is sound"]),
        Node("Where", [P + "is sound", x, silence], [P + "heard"]),
    ]


def _scanned(graph: Graph, of: Chunks, states: Sequence[Info], following: Sequence[Info]) -> Graph:
    """A graph that scans chunks.

    Args:
        states: inputs of the encoder.
        following: the outputs that replace them, with their shapes.
    """
    constants, x, hidden = _Constants(), of.x, of.hidden
    zeros = [
        constants.add(
            Tensor.of(f"{P}first/{i.name}", i.dtype, s.shape or [], [0] * math.prod(s.shape or []))
        )
        for i, s in zip(states, following)
    ]
    inner, rows = (
        constants.whole("inner", 1, of.size, of.mels),
        constants.whole("out", -1, of.width),
    )
    taken = P + "taken" if of.turned else x.name
    made = P + "turned" if of.over else hidden.name
    body = replace(
        graph,
        name="chunk",
        nodes=[
            Node("Reshape", [P + "chunk", inner], [taken]),
            *([Node("Transpose", [taken], [x.name], {"perm": [0, 2, 1]})] if of.turned else ()),
            *graph.nodes,
            *([Node("Transpose", [hidden.name], [made], {"perm": [0, 2, 1]})] if of.over else ()),
            Node("Reshape", [made, rows], [P + "chunk/hidden"]),
        ],
        inputs=[*states, Info(P + "chunk", x.dtype, [of.size, of.mels])],
        outputs=[*following, Info(P + "chunk/hidden", hidden.dtype, None)],
        constants={},
        opsets={},
        functions={},
        values=None,
    )
    after = [f"{P}last/{i.name}" for i in states]
    attrs = {"body": body, "num_scan_inputs": 1}
    whole = [P + "hidden", constants.whole("all", 1, -1, of.width)]
    ends = [P + "all/rows" if of.over else P + "all/hidden"]
    nodes = [
        *_chunks(constants, of),
        Node("Scan", [*zeros, P + "parts"], [*after, P + "hidden"], attrs, name="chunks"),
        Node("Reshape", whole, ends),
        *([Node("Transpose", ends, [P + "all/hidden"], {"perm": [0, 2, 1]})] if of.over else ()),
    ]
    dims: list[int | str | None] = [1, "frames", of.mels]
    out: list[int | str | None] = [1, "rows", of.width]
    for i in of.lengths:  # all frames of a chunk are heard
        constants.add(Tensor.of(i.name, i.dtype, [1], [of.size]))
    return replace(
        graph,
        nodes=nodes,
        inputs=[
            Info(x.name, x.dtype, [1, of.mels, "frames"] if of.turned else dims),
            *(Info(P + i.name, i.dtype, [1]) for i in of.lengths),
        ],
        outputs=[
            Info(P + "all/hidden", hidden.dtype or FLOAT, [1, of.width, "rows"] if of.over else out)
        ],
        constants={**graph.constants, **constants},
        value_info={},
        values=None,
    )
