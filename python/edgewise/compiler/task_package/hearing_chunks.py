"""Encoders for streams as encoders of whole recordings: k2's, as sherpa-onnx has them, take a chunk
of frames and states, and give frames of the output and the states that follow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...errors import ModelError
from ..bind import bind
from ..declare.dtypes import FLOAT, INT64
from ..ir import Graph, Info, Node, Tensor
from . import hearing_graphs as hear

SILENCE = math.log(2.0**-23)  # the logarithm of the least energy of a filter (Kaldi's)
SUBSAMPLING = 4
P = "chunks/"  # of the names of tensors
NEW = ("new_", "next_")  # the output that replaces the state NAME is one of them and NAME


def whole_encoder(graph: Graph) -> Graph:
    """The encoder with the input [1, frames, filters] and the output [1, frames, width]: chunks
    that begin every so many frames, after the states of the one before, at first zeros. Silence
    follows the frames. A graph without states is returned as it is.

    Raises:
        ModelError: the sizes of chunks or states are not known.
    """
    inputs, given = graph.input_names(), {o.name: o for o in graph.outputs}
    after = {i.name: new + i.name for i in inputs for new in NEW if new + i.name in given}
    states = [i for i in inputs if i.name in after]
    features = [i for i in inputs if i.name not in after]
    if not states or len(features) != 1 or hear.rank(features[0]) != 3:
        return graph
    (x,) = features
    about = graph.about.custom_metadata_map
    size, mels = hear.size(x, 1) or _whole(about, "T"), hear.size(x, 2)
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
        {x.name: [1, size, mels], **{i.name: s for i, s in zip(states, shapes)}},
        {i.name: i.dtype for i in inputs},
        outputs=[hidden.name],
    )
    _, frames, width = made.outputs[hidden.name].shape
    step = _whole(about, "decode_chunk_len") or int(frames) * SUBSAMPLING
    if not 0 < step <= size:
        raise ModelError(
            f"its chunks have {size} frames, of which it goes on by {step}",
            "the encoder",
            "Export it again.",
        )
    following = [replace(given[after[i.name]], shape=s) for i, s in zip(states, shapes)]
    return _scanned(graph, x, states, following, hidden, (size, step, int(width)))


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


def _chunks(constants: _Constants, x: Info, size: int, step: int) -> list[Node]:
    """The nodes from features [1, frames, filters] to P + "parts" [chunks, size, filters]."""
    whole, mels = constants.whole, hear.size(x, 2) or 0
    silence = constants.add(Tensor.of(P + "silence", x.dtype, [], [SILENCE]))
    by, zero = whole("step", step), whole("0", 0)
    return [
        Node("Shape", [x.name], [P + "shape"]),
        Node("Slice", [P + "shape", whole("1", 1), whole("2", 2)], [P + "frames"]),
        Node("Add", [P + "frames", whole("more", step - 1)], [P + "up"]),
        Node("Div", [P + "up", by], [P + "count"]),
        Node("Mul", [P + "count", by], [P + "steps"]),
        Node("Add", [P + "steps", whole("rest", size - step)], [P + "total"]),
        Node("Sub", [P + "total", P + "frames"], [P + "after"]),
        Node("Concat", [whole("before", 0, 0, 0, 0), P + "after", zero], [P + "pads"], {"axis": 0}),
        Node("Pad", [x.name, P + "pads", silence], [P + "padded"]),
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


def _scanned(
    graph: Graph,
    x: Info,
    states: Sequence[Info],
    following: Sequence[Info],
    hidden: Info,
    sizes: tuple[int, int, int],
) -> Graph:
    """A graph that scans chunks.

    Args:
        x, states, hidden: inputs and the output of the encoder.
        following: the outputs that replace states, with the shapes of these.
        sizes: frames of a chunk, from chunk to chunk, and the width.
    """
    size, step, width = sizes
    mels, constants = hear.size(x, 2) or 0, _Constants()
    zeros = [
        constants.add(
            Tensor.of(f"{P}first/{i.name}", i.dtype, s.shape or [], [0] * math.prod(s.shape or []))
        )
        for i, s in zip(states, following)
    ]
    inner, rows = constants.whole("inner", 1, size, mels), constants.whole("out", -1, width)
    body = replace(
        graph,
        name="chunk",
        nodes=[
            Node("Reshape", [P + "chunk", inner], [x.name]),
            *graph.nodes,
            Node("Reshape", [hidden.name, rows], [P + "chunk/hidden"]),
        ],
        inputs=[*states, Info(P + "chunk", x.dtype, [size, mels])],
        outputs=[*following, Info(P + "chunk/hidden", hidden.dtype, None)],
        constants={},
        opsets={},
        functions={},
        values=None,
    )
    after = [f"{P}last/{i.name}" for i in states]
    attrs = {"body": body, "num_scan_inputs": 1}
    nodes = [
        *_chunks(constants, x, size, step),
        Node("Scan", [*zeros, P + "parts"], [*after, P + "hidden"], attrs, name="chunks"),
        Node("Reshape", [P + "hidden", constants.whole("all", 1, -1, width)], [P + "all/hidden"]),
    ]
    return replace(
        graph,
        nodes=nodes,
        inputs=[Info(x.name, x.dtype, [1, "frames", mels])],
        outputs=[Info(P + "all/hidden", hidden.dtype or FLOAT, [1, "rows", width])],
        constants={**graph.constants, **constants},
        value_info={},
        values=None,
    )
