"""The graphs of models that hear, with inputs and outputs that are the same for all exporters:
encoders, predictors and joiners of NeMo, k2 (sherpa-onnx), GigaAM and transformers, by data types
and shapes, then by names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ModelError, UnsupportedOp
from ..declare.dtypes import BOOL, FLOAT, FLOAT16, INT32, INT64, NAME
from ..ir import Graph, Info, Node, Tensor

FLOATS = (FLOAT, FLOAT16)
WHOLE = (INT32, INT64)
MAX_DURATIONS = 32
BEST = 16  # tokens that a joiner gives

# Names of inputs and outputs; a program has some of them.
HIDDEN, COUNT, IDS = "hearing/hidden", "hearing/count", "hearing/ids"
FRAME, CONTEXT, PREDICTED = "hearing/frame", "hearing/context", "hearing/predicted"
TOKENS, SCORES, DURATIONS = "hearing/tokens", "hearing/scores", "hearing/durations"


def state(i: int) -> str:
    """The input that is a state."""
    return f"hearing/state{i}"


def following(i: int) -> str:
    """The output that replaces a state."""
    return f"hearing/next{i}"


class Rewriting:
    """A graph to which nodes are added before and after its own.

    Args:
        graph: the graph, which stays as it is.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.before: list[Node] = []
        self.after: list[Node] = []
        self.inputs: list[Info] = []
        self.outputs: list[Info] = []
        self.constants: dict[str, Tensor] = {}
        self.count = 0

    def numbers(self, values: Sequence[int], dtype: int = INT64) -> str:
        """A vector of integers."""
        name = f"hearing/numbers{len(self.constants)}"
        self.constants[name] = Tensor.of(name, dtype, [len(values)], values)
        return name

    def op(self, op: str, *inputs: str, output: str = "", **attrs: Any) -> str:
        """A node after those of the graph."""
        return self.ops(op, inputs, [output], **attrs)[0]

    def ops(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any
    ) -> list[str]:
        """A node with several outputs; names that are empty are made."""
        made = []
        for name in outputs:
            self.count += 1
            made.append(name or f"hearing/{op.lower()}{self.count}")
        self.after.append(Node(op, list(inputs), made, dict(attrs), name=made[0]))
        return made

    def reshaped(self, x: str, *shape: int, output: str = "") -> str:
        """A tensor in another shape."""
        return self.op("Reshape", x, self.numbers(shape), output=output)

    def take(self, name: str, info: Info, dtype: int, shape: Sequence[Any], inner: Any) -> None:
        """Makes an input of the graph one of another name, type and shape.

        Args:
            name, dtype, shape: of the new input.
            info: the graph's own.
            inner: shape that the graph wants.
        """
        self.inputs.append(Info(name, dtype, list(shape)))
        x = name
        if info.dtype not in (dtype, 0):
            x = f"{name}/cast"
            self.before.append(Node("Cast", [name], [x], {"to": info.dtype}, name=x))
        sizes = self.numbers(inner)
        self.before.append(Node("Reshape", [x, sizes], [info.name], {}, name=f"{name}/shape"))

    def fix(self, info: Info, values: Sequence[int]) -> None:
        """Makes an input of the graph a constant."""
        self.constants[info.name] = Tensor.of(info.name, info.dtype, [len(values)], values)

    def keep(self, info: Info) -> None:
        """Leaves an input as it is."""
        self.inputs.append(info)

    def give(self, name: str, dtype: int, shape: Sequence[Any]) -> None:
        """Declares an output."""
        self.outputs.append(Info(name, dtype, list(shape)))

    def float32(self, x: str, dtype: int) -> str:
        """A tensor as float32."""
        return x if dtype in (FLOAT, 0) else self.op("Cast", x, to=FLOAT)

    def made(self) -> Graph:
        """The new graph."""
        graph = self.graph
        return replace(
            graph,
            nodes=[*self.before, *graph.nodes, *self.after],
            constants={**graph.constants, **self.constants},
            inputs=[*self.inputs, *(i for i in graph.inputs if i.name in graph.constants)],
            outputs=self.outputs,
            values=None,
        )


def described(infos: Sequence[Info]) -> str:
    """Tensors in words: names, types and shapes."""
    return ", ".join(f"'{i.name}' {NAME.get(i.dtype, '?')} {i.shape}" for i in infos)[:300]


def rank(info: Info) -> int:
    """The number of dimensions; -1: not declared."""
    return -1 if info.shape is None else len(info.shape)


def size(info: Info, axis: int) -> int | None:
    """A dimension that the file fixes; None: there is none."""
    if info.shape is None or axis >= len(info.shape):
        return None
    found = info.shape[axis]
    return found if isinstance(found, int) and found > 0 else None


@dataclass(frozen=True)
class Encoder:
    """The inputs and outputs of an encoder.

    Attributes:
        features: input of features or samples.
        length, mask: inputs of the number of frames, or of which are of the sound, or None.
        hidden: output.
        count: output of the number of frames, or of which frames are of the sound.
    """

    graph: Graph
    features: Info
    length: Info | None
    mask: Info | None
    hidden: Info
    count: Info | None


def encoder_of(graph: Graph, name: str) -> Encoder:
    """Finds the inputs and outputs of an encoder. name: for errors.

    Raises:
        UnsupportedOp: it has others.
    """
    features: Info | None = None
    length: Info | None = None
    mask: Info | None = None
    others: list[Info] = []
    for info in graph.input_names():
        if info.dtype in FLOATS and rank(info) in (2, 3) and "mask" not in info.name:
            if features is not None:
                others.append(info)
            features = features or info
        elif info.dtype in WHOLE and rank(info) == 1 and length is None:
            length = info
        elif rank(info) == 2 and mask is None and info.dtype in (BOOL, *WHOLE, FLOAT):
            mask = info
        else:
            others.append(info)
    if features is None or others:
        raise UnsupportedOp(
            f"its inputs are {described(graph.input_names())}",
            name,
            "An encoder takes features [1, filters, frames] or [1, frames, filters] or samples, "
            "and their number or a mask. Exports with caches for streams need outputs named as"
            " the states, after new_ or next_: give the one for whole recordings.",
        )
    hidden = next((o for o in graph.outputs if o.dtype in FLOATS and rank(o) in (-1, 3)), None)
    if hidden is None:
        hidden = next((o for o in graph.outputs if o.dtype in (*FLOATS, 0)), None)
    if hidden is None:
        raise UnsupportedOp(
            f"its outputs are {described(graph.outputs)}", name, "An encoder gives [1, frames, n]."
        )
    rest = [o for o in graph.outputs if o.name != hidden.name]
    count = next((o for o in rest if o.dtype in (*WHOLE, BOOL)), None)
    return Encoder(graph, features, length, mask, hidden, count)


def is_turned(first: Info, second: Info | None = None) -> bool | None:
    """Whether the width is before the frames in a shape [1, width, frames]; None: not known.

    Args:
        first: as the file declares it.
        second: the input of another graph that gets it, for one frame.
    """
    if second is not None and rank(second) == 3:
        middle, last = size(second, 1), size(second, 2)
        if (middle or 0) > 1 and last in (None, 1):
            return True
        if (last or 0) > 1 and middle in (None, 1):
            return False
    if rank(first) == 3:
        middle, last = size(first, 1), size(first, 2)
        if middle is not None and last is None:
            return True
        if last is not None and middle is None:
            return False
    return None


def counted(r: Rewriting, encoder: Encoder, subsampling: int, rows: str) -> None:
    """Adds the output of the number of frames that are of the sound.

    Args:
        subsampling: frames of features for a frame of the output, where the model does not say.
        rows: the output [frames, ...].
    """
    if encoder.count is not None and rank(encoder.count) == 1:
        found = r.op("Cast", encoder.count.name, to=INT64)
    elif encoder.count is not None:
        found = r.op("ReduceSum", r.op("Cast", encoder.count.name, to=INT64), keepdims=0)
    elif encoder.length is not None or encoder.mask is not None:
        if encoder.length is not None:
            found = r.op("Cast", encoder.length.name, to=INT64)
        else:
            assert encoder.mask is not None
            found = r.op("ReduceSum", r.op("Cast", encoder.mask.name, to=INT64), keepdims=0)
        one, by = r.numbers([1]), r.numbers([subsampling])
        found = r.op("Add", r.op("Div", r.op("Sub", found, one), by), one)
    else:
        shape = r.op("Shape", rows)
        found = r.op("Gather", shape, r.numbers([0]))
    most = r.op("Gather", r.op("Shape", rows), r.numbers([0]))
    r.op("Min", r.reshaped(found, 1), most, output=COUNT)
    r.give(COUNT, INT64, [1])


def encoder_graph(encoder: Encoder, turned: bool, subsampling: int, ctc: bool) -> Graph:
    """The encoder with the outputs HIDDEN [frames, width], or of CTC IDS [frames], and COUNT [1].

    Args:
        turned: whether its output is [1, width, frames].
        subsampling: see `counted`.
        ctc: whether the output has the scores of tokens.
    """
    r = Rewriting(encoder.graph)
    for info in encoder.graph.input_names():
        r.keep(info)
    x = r.float32(encoder.hidden.name, encoder.hidden.dtype)
    if turned:
        x = r.op("Transpose", x, perm=[0, 2, 1])
    if ctc:
        ids = r.op("ArgMax", x, axis=2, keepdims=0)
        rows = r.reshaped(ids, -1, output=IDS)
        r.give(IDS, INT64, ["frames"])
    else:
        shape = r.op("Slice", r.op("Shape", x), r.numbers([1]), r.numbers([3]))
        rows = r.op("Reshape", x, shape, output=HIDDEN)
        r.give(HIDDEN, FLOAT, ["frames", "width"])
    counted(r, encoder, subsampling, rows)
    return r.made()


@dataclass(frozen=True)
class Predictor:
    """The inputs and outputs of a predictor, which may have the joiner in it.

    Attributes:
        tokens: input.
        lengths: inputs of the number of tokens.
        frame: input of a frame of the encoder, where the joiner is in it.
        states, following: inputs, and the outputs that replace them.
        out: output of scores, or of what a joiner gets.
    """

    graph: Graph
    tokens: Info
    lengths: list[Info]
    frame: Info | None
    states: list[Info]
    following: list[Info]
    out: Info

    @property
    def shapes(self) -> list[list[int]]:
        """Of the states, for one sequence."""
        return [_state_shape(info) for info in self.states]


def predictor_of(graph: Graph, joint: bool, name: str) -> Predictor:
    """Finds the inputs and outputs of a predictor.

    Args:
        joint: whether the joiner is in it.
        name: for errors.

    Raises:
        UnsupportedOp: it has others. ModelError: a state has no shape, or its output another one.
    """
    inputs = graph.input_names()
    whole = [i for i in inputs if i.dtype in WHOLE]
    floats = [i for i in inputs if i.dtype in FLOATS]
    tokens = next((i for i in whole if rank(i) == 2), None) or next(iter(whole), None)
    outs = [o for o in graph.outputs if o.dtype in (*FLOATS, 0)]
    frame: Info | None = None
    if joint:
        frame = next((i for i in floats if "enc" in i.name.lower()), None) or next(
            iter(floats), None
        )
        floats = [i for i in floats if i is not frame]
    fits = len(outs) == len(floats) + 1 and len(whole) + len(floats) + bool(frame) == len(inputs)
    if tokens is None or not fits or (joint and frame is None):
        raise UnsupportedOp(
            f"its inputs are {described(inputs)}, its outputs {described(graph.outputs)}",
            name,
            "A predictor takes tokens and states, and gives as many states.",
        )
    found = Predictor(
        graph, tokens, [i for i in whole if i is not tokens], frame, floats, outs[1:], outs[0]
    )
    for before, after in zip(found.states, found.following):
        wanted, given = _state_shape(before), after.shape
        if given is not None and len(given) == len(wanted):
            known = [d if isinstance(d, int) and d > 0 else w for d, w in zip(given, wanted)]
            if known == wanted:
                continue
        if given is not None:
            raise ModelError(
                f"the state '{before.name}' has the shape {before.shape}, and '{after.name}', which"
                f" replaces it, {after.shape}",
                name,
                "Export the model again.",
            )
    return found


def _state_shape(info: Info) -> list[int]:
    """The shape of a state for one sequence: what is not fixed is 1."""
    dims = list(info.shape or [])
    shape = [d if isinstance(d, int) and d > 0 else 1 for d in dims]
    if len(shape) < 2 or not isinstance(dims[-1], int) or max(shape) > 1 << 20:
        raise ModelError(
            f"the state '{info.name}' has the shape {info.shape}",
            info.name,
            "Export the model again with sizes of its states.",
        )
    return shape


def frame_shape(info: Info, turned: bool, width: int = -1) -> list[int]:
    """The shape in which a graph takes a vector of `width` numbers."""
    return [width if d < 0 else d for d in _frame_shape(info, turned)]


def _frame_shape(info: Info, turned: bool) -> list[int]:
    if rank(info) == 2:
        return [1, -1]
    if rank(info) == 1:
        return [-1]
    if rank(info) == 4:
        return [1, 1, 1, -1]
    middle = is_turned(info, info)
    return [1, -1, 1] if (turned if middle is None else middle) else [1, 1, -1]


def predictor_graph(
    predictor: Predictor, context: int, turned: bool, tokens: int, durations: int
) -> Graph:
    """The predictor with the inputs CONTEXT [1, context] and states, and the outputs PREDICTED
    [1, n], or where the joiner is in it as of `scored`, and states.

    Args:
        turned: whether the encoder's output is [1, width, frames].
        tokens: number of tokens, the blank included.
        durations: number of durations.
    """
    r = Rewriting(predictor.graph)
    inner = [1, context] if rank(predictor.tokens) != 1 else [context]
    r.take(CONTEXT, predictor.tokens, INT64, [1, context], inner)
    for info in predictor.lengths:
        r.fix(info, [1])
    for i, (info, shape) in enumerate(zip(predictor.states, predictor.shapes)):
        r.take(state(i), info, FLOAT, shape, shape)
    if predictor.frame is None:
        found = r.float32(predictor.out.name, predictor.out.dtype)
        r.reshaped(found, 1, -1, output=PREDICTED)
        r.give(PREDICTED, FLOAT, [1, "width"])
    else:
        r.take(FRAME, predictor.frame, FLOAT, [1, "width"], _frame_shape(predictor.frame, turned))
        _scored(r, predictor.out, tokens, durations)
    for i, (info, shape) in enumerate(zip(predictor.following, predictor.shapes)):
        r.reshaped(r.float32(info.name, info.dtype), *shape, output=following(i))
        r.give(following(i), FLOAT, shape)
    return r.made()


def joiner_graph(graph: Graph, turned: bool, tokens: int, durations: int) -> Graph:
    """The joiner with the inputs FRAME [1, width] and PREDICTED [1, n], and outputs as of
    `_scored`. Args as of `predictor_graph`.
    """
    first, second = joined(graph)
    r = Rewriting(graph)
    r.take(FRAME, first, FLOAT, [1, "width"], _frame_shape(first, turned))
    r.take(PREDICTED, second, FLOAT, [1, "width of tokens"], _frame_shape(second, turned))
    _scored(r, graph.outputs[0], tokens, durations)
    return r.made()


def joined(graph: Graph) -> tuple[Info, Info]:
    """The inputs of a joiner: of a frame, and of the predictor's output. Raises UnsupportedOp."""
    inputs = graph.input_names()
    if len(inputs) != 2 or any(i.dtype not in FLOATS for i in inputs) or not graph.outputs:
        raise UnsupportedOp(
            f"its inputs are {described(inputs)}",
            graph.name or "joiner",
            "A joiner takes two vectors.",
        )
    first = next((i for i in inputs if "enc" in i.name.lower()), inputs[0])
    return first, next(i for i in inputs if i is not first)


@dataclass(frozen=True)
class Decoder:
    """The inputs and outputs of a decoder that gets a prompt.

    Attributes:
        tokens, hidden, mask, memory: inputs: tokens, the encoder's output, which of its frames are
            of the sound, and what was computed of the tokens before.
        following: output that replaces the memory.
        out: output of scores.
    """

    graph: Graph
    tokens: Info
    hidden: Info
    mask: Info
    memory: Info
    following: Info
    out: Info


def decoder_of(graph: Graph) -> Decoder:
    """Finds the inputs and outputs of a decoder. Raises UnsupportedOp: it has others."""
    inputs = graph.input_names()
    whole = [i for i in inputs if i.dtype in WHOLE and "mask" not in i.name]
    masks = [i for i in inputs if "mask" in i.name and rank(i) == 2]
    floats = [i for i in inputs if i.dtype in FLOATS and i not in masks]
    hidden, memory = ([i for i in floats if rank(i) == n] for n in (3, 4))
    outs = [o for o in graph.outputs if o.dtype in (*FLOATS, 0)]
    sizes = [len(part) for part in (whole, masks, hidden, memory)]
    if sizes != [1] * 4 or len(inputs) != 4 or len(outs) != 2 or not size(memory[0], 3):
        raise UnsupportedOp(
            f"its inputs are {described(inputs)}",
            "the decoder",
            "The decoder of Canary takes tokens, what is encoded, its mask, and what was computed"
            " of the tokens before [layers, 1, tokens, width].",
        )
    return Decoder(graph, whole[0], hidden[0], masks[0], memory[0], outs[1], outs[0])


def decoder_graph(decoder: Decoder, tokens: int) -> Graph:
    """The decoder with the inputs CONTEXT [1, n], HIDDEN [frames, width], COUNT [1] and one state
    [layers, 1, past, width], and outputs as of `_scored` after the last token, and the state.

    Args:
        tokens: number of tokens.
    """
    r = Rewriting(decoder.graph)
    shape = decoder.memory.shape or []
    r.take(CONTEXT, decoder.tokens, INT64, [1, "n"], [1, -1])
    width = size(decoder.hidden, 2) or shape[3]
    r.take(HIDDEN, decoder.hidden, FLOAT, ["frames", width], [1, -1, width])
    r.inputs.append(Info(COUNT, INT64, [1]))
    r.inputs.append(Info(state(0), FLOAT, [shape[0], 1, "past", shape[3]]))
    after, r.after = r.after, []  # these are before the graph's own
    sizes = r.op("Gather", r.op("Shape", HIDDEN), r.numbers([0]))
    zero, one = (r.op("Squeeze", r.numbers([n])) for n in (0, 1))
    places = r.op("Range", zero, r.op("Squeeze", sizes), one)
    inside = r.op("Cast", r.op("Less", places, COUNT), to=decoder.mask.dtype)
    r.reshaped(inside, 1, -1, output=decoder.mask.name)
    r.op("Cast", state(0), to=decoder.memory.dtype, output=decoder.memory.name)
    r.before, r.after = [*r.before, *r.after], after
    rows = r.float32(decoder.out.name, decoder.out.dtype)
    if rank(decoder.out) in (-1, 3):
        rows = r.op("Slice", rows, r.numbers([-1]), r.numbers([1 << 62]), r.numbers([1]))
    last = replace(decoder.out, name=rows, dtype=FLOAT)
    _scored(r, last, tokens, 0)
    found = r.float32(decoder.following.name, decoder.following.dtype)
    r.op("Identity", found, output=following(0))
    r.give(following(0), FLOAT, [shape[0], 1, "tokens", shape[3]])
    return r.made()


def _scored(r: Rewriting, out: Info, tokens: int, durations: int) -> None:
    """Adds the outputs TOKENS and SCORES [BEST] of the likeliest tokens, and where there are
    durations DURATIONS [n]: logarithms of probabilities.
    """
    flat = r.reshaped(r.float32(out.name, out.dtype), 1, -1)
    axis = r.numbers([1])
    words = r.op("Slice", flat, r.numbers([0]), r.numbers([tokens]), axis)
    best = min(BEST, tokens)
    _, at = r.ops("TopK", [words, r.numbers([best])], ["", ""], axis=1, largest=1, sorted=1)
    r.reshaped(at, best, output=TOKENS)
    indices = r.reshaped(at, best)
    scores = r.op("Gather", r.op("LogSoftmax", words, axis=1), indices, axis=1)
    r.reshaped(scores, best, output=SCORES)
    r.give(TOKENS, INT64, [best])
    r.give(SCORES, FLOAT, [best])
    if durations:
        rest = r.op("Slice", flat, r.numbers([tokens]), r.numbers([tokens + durations]), axis)
        r.reshaped(r.op("LogSoftmax", rest, axis=1), durations, output=DURATIONS)
        r.give(DURATIONS, FLOAT, [durations])
