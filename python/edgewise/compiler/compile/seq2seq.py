"""Encoder-decoder models: Whisper, T5, BART, Marian and others, from the files of optimum.

Three kinds of plans share the weights and the caches of a sequence:

- `encoder/N`: the encoder for an input of N positions, and `cross/N`: the keys and values of cross
  attention from what it returns. They are caches that all sequences (beams) of one input share.
- `first/N`: the first N tokens of a sequence, by the branch of the decoder without a past.
- `step`: one more token, by the branch with a past. The number of tokens so far is a register.

`align/N` is `first/N` with the weights of cross attention, see compile/cross_attention.py.

The merged decoder's `If use_cache_branch` is decided here: each plan has one branch. Whether a
branch with a past masks the future of several tokens depends on the exporter, so it always runs on
one token; the branch without a past takes any number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ...errors import InputError, ModelError, UnsupportedOp
from ...logic.manifest.limits import CacheDType, EncoderInput
from ...logic.manifest.schema import EncoderPlans, Seq2SeqPipeline
from ..bind import Binder, BoundGraph
from ..declare.dtypes import FLOAT, FLOAT16, INT64, NAME
from ..declare.op import TooLong
from ..declare.symbolic import Sym
from ..ir import Graph, Info, Tensor, Value
from ..onnx.source import Source
from ..package import Package
from ..passes.lora import insert_lora
from ..plan import Plan, compile_graph
from ..plan.explain import GENERATION, explained
from ..targets import CPU, Target
from .caches import CACHE_NAME, cached_as_halves, head_dim
from .cross_attention import add_alignment
from .decoder_plan import keep_logits
from .half_weights import mark_half_weights
from .model_file import read_texts
from .seq2seq_files import (
    STATES,
    TARGET_FIELDS,
    described,
    json_of,
    mask_step,
    present_name,
    read_graphs,
    width,
    with_decoder,
)
from .seq2seq_files import alignment_heads as listed_heads
from .seq2seq_files import source_lengths as source_sizes
from .stand_in import in_order, stand_in
from .weights import add_plans, new_package

if TYPE_CHECKING:
    from ..passes.lora import AdapterConfig

# Registers of the decoder's plans: tokens in the cache, the token of the run that the logits are
# of, and positions of the encoder's output.
PAST, LAST, SOURCE = 0, 1, 2
FIRST_TOKENS = (4, 16, 64, 256)  # sizes of plans for the first tokens, besides the capacity
FLOATS = ("float32", "float16")  # types of keys and values
ALIGN_TOKENS = (64, 160)  # likewise of those with weights of cross attention
DEFAULT_CAPACITY = 512
# Inputs of encoders, with what is fed in the positions after the input.
ENCODER_INPUTS = (
    *("input_features", "input_values", "input_ids", "pixel_values", "inputs_embeds"),
    "attention_mask",
)


def compile_seq2seq(
    files: Mapping[str, Source],
    dtype: str | Mapping[str, str] | None = None,
    capacity: int | None = None,
    cache_dtype: str | None = None,
    target: Target = CPU,
    source_lengths: Sequence[int] | None = None,
    alignment_heads: Sequence[Sequence[int]] | None = None,
    graphs: Mapping[str, str] | None = None,
    task: str = "text2text-generation",
    halves: bool = True,
    lora: AdapterConfig | None = None,
) -> Package:
    """Compiles an encoder-decoder model.

    Args:
        files: {file name: Source} of a folder: encoder_model.onnx, and decoder_model_merged.onnx
            or decoder_model.onnx with decoder_with_past_model.onnx, config.json and others.
        dtype: suffix of the .onnx files, for all or {"encoder_model": ..., "decoder_model_merged":
            ...}; default: as of pick_model_file.
        capacity: most tokens of a sequence. Default: the model's limit, or 512.
        cache_dtype: "float32" or "float16", for keys and values. Default: as the model declares.
        target: device that the plans are for.
        source_lengths: positions to make plans for, of encoders that take any number; inputs are
            padded to the next one. Default: 16, 32, ... up to the model's limit.
        alignment_heads: [layer, head] of the weights of cross attention that can be computed.
            Default: generation_config.json's; none: those of the upper half of the layers, for
            Whisper.
        graphs: {"encoder_model": file name, ...}; default: by `dtype`.
        task: of the package.
        halves: store float32 weights of the decoder as float16 where that changes no number. Reads
            them all.
        lora: training.peft.LoraConfig: layers of the decoder that can get adapters at run time.

    Returns:
        Package: with `encoder` and `decoder` in its manifest, see docs/architecture/sessions.md.

    Raises:
        InputError: a file is missing, or an option has no sensible value.
        UnsupportedOp: an operator is missing, or the graphs are no encoder and decoder.
    """
    texts = read_texts(files)
    config = with_decoder(json_of(texts, "config.json"))
    model = read_graphs(files, dtype, graphs)
    if halves and target is CPU:
        mark_half_weights(model.first, model.step)
    if cache_dtype not in (None, *FLOATS):
        raise InputError(
            f"keys and values cannot be kept as {cache_dtype!r}",
            "cache_dtype",
            f"Give {' or '.join(FLOATS)}.",
        )
    cache_dtype = cache_dtype or ("float16" if cached_as_halves(model.step) else "float32")
    lengths, fixed = source_sizes(model.encoder, config, source_lengths)
    compiler = Seq2SeqCompiler(
        model.encoder,
        model.first,
        model.step,
        width(model.first, config),
        max(lengths.values()),
        fixed,
        FLOAT16 if cache_dtype == "float16" else FLOAT,
        target,
        crossing=model.cross,
        lora=lora,
    )
    compiler.mask_step = mask_step(config)
    if alignment_heads is None:
        alignment_heads = listed_heads(config, json_of(texts, "generation_config.json"))
    compiler.alignment_heads = [(int(layer), int(head)) for layer, head in alignment_heads]
    package = new_package(task, {}, texts, files, target)
    return _compile(compiler, package, config, capacity, lengths, cache_dtype)


def _compile(
    compiler: Seq2SeqCompiler,
    package: Package,
    config: Mapping[str, Any],
    capacity: int | None,
    lengths: Mapping[int, int],
    cache_dtype: str,
) -> Package:
    room, plans = _decoder_plans(compiler, config, capacity)
    encoder: list[EncoderPlans] = []
    parts = []
    for size, positions in lengths.items():
        made = [(f"cross/{size}", compiler.cross(positions))]
        if not compiler.outside:
            made.insert(0, (f"encoder/{size}", compiler.encode(size, positions)))
        parts += made
        encoder.append(
            {
                "size": size,
                "positions": positions,
                "plans": [
                    {"file": file, "slots": [s.describe() for s in plan.slots]}
                    for file, plan in made
                ],
            }
        )
    caches: dict[str, int] = {}
    for plan in (*plans.values(), *(plan for _, plan in parts)):
        caches |= {s.name: s.nbytes for s in plan.slots if s.kind == "cache"}
    manifest = cast("Seq2SeqPipeline", package.manifest)
    manifest["decoder"] = {
        "capacity": room,
        "vocab_size": compiler.vocab_size,
        "logits_type": "float32",
        "recompute": False,
        "cache_dtype": cast("CacheDType", cache_dtype),
        "caches": [{"name": n, "bytes": b} for n, b in caches.items() if not is_cross(n)],
        "cross": [{"name": n, "bytes": b} for n, b in caches.items() if is_cross(n)],
        "alignment_heads": len(compiler.alignment_heads),
        "plans": [described(file, plan) for file, plan in plans.items()],
    }
    if compiler.lora is not None:
        manifest["decoder"]["lora"] = asdict(compiler.lora)  # type: ignore[call-overload]
        package.graph = compiler.first  # which may be trained
    source = "encoder_hidden_states" if compiler.outside else compiler.encoder_input
    manifest["encoder"] = {
        "input": cast("EncoderInput", source),
        "masked": compiler.masked,
        "fixed": compiler.fixed,
        "plans": encoder,
    }
    add_plans(package, [*parts, *plans.items()])
    return package


def _decoder_plans(
    compiler: Seq2SeqCompiler, config: Mapping[str, Any], capacity: int | None
) -> tuple[int, dict[str, Plan]]:
    """(capacity, {part: Plan}) of the decoder, for as many tokens as it has positions for."""
    if capacity is not None and (type(capacity) is not int or capacity < 2):
        raise InputError(
            f"{capacity!r} is not a valid number of tokens", "capacity", "Give one from 2 on."
        )
    found = (config.get(k) for k in TARGET_FIELDS)
    room = capacity or next((n for n in found if type(n) is int and n > 1), DEFAULT_CAPACITY)
    for _ in range(4):
        try:
            sizes = sorted({*(n for n in FIRST_TOKENS if n < room), room})
            plans = {f"first/{n}": compiler.decode(n, room) for n in reversed(sizes)}
            plans["step"] = compiler.decode(None, room)
            if compiler.alignment_heads:
                sizes = sorted({*(n for n in ALIGN_TOKENS if n < room), room})
                plans |= {f"align/{n}": compiler.decode(n, room, True) for n in sizes}
            return room, plans
        except TooLong as e:  # the model's own position table is shorter
            shorter = room - e.excess
            if capacity is not None or shorter < 2:
                raise InputError(
                    f"{room} tokens are more than the decoder has positions for ({shorter})",
                    "capacity",
                    "Give a smaller one.",
                ) from None
            room = shorter
    raise ModelError("its position tables are too short", "decoder", "Give a capacity.")


def is_cross(name: str) -> bool:
    """Whether a cache holds keys or values of the encoder's output."""
    return ".encoder." in name


# ---- plans
@dataclass
class Seq2SeqCompiler:
    """What all plans of a model share.

    Attributes:
        encoder: its graph.
        first, step: graphs of the decoder with and without a past; the same one where it is merged.
        width: elements of one position of the encoder's output.
        source: most positions of the encoder's output.
        fixed: whether there always are so many.
        cache_dtype: ONNX code of what keys and values are stored as.
        target: device that the plans are for.
        alignment_heads: (layer, head) of the weights that `align` plans compute.
        mask_step: elements of encoder_attention_mask of a position; Moonshine's has one per sample.
        vocab_size: found when a plan of the decoder is compiled.
        crossing: graph of the keys and values of cross attention; None: `first`.
        lora: layers of the decoder that get adapters; None: none.
    """

    encoder: Graph
    first: Graph
    step: Graph
    width: int
    source: int
    fixed: bool
    cache_dtype: int
    target: Target
    alignment_heads: list[tuple[int, int]] = field(default_factory=list)
    mask_step: int = 1
    vocab_size: int = 0
    crossing: Graph | None = None
    lora: AdapterConfig | None = None

    def __post_init__(self) -> None:
        inputs = {i.name: i for i in self.encoder.input_names()}
        self.masked = "attention_mask" in inputs
        unknown = [n for n in inputs if n not in ENCODER_INPUTS]
        if unknown:
            raise UnsupportedOp(
                f"its encoder has an input '{unknown[0]}'",
                self.encoder.name or "encoder",
                "Run the model with InferenceSession.",
            )
        self.encoder_input = next(n for n in inputs if n != "attention_mask")
        # Convolutions have no plans for ranges of lengths: an InferenceSession runs the encoder.
        # Those of pictures are run by it for any size.
        self.outside = self.encoder_input in ("input_values", "pixel_values", "inputs_embeds")
        self.caches = {i.name: i for i in self.step.input_names() if CACHE_NAME.search(i.name)}
        if not any(map(is_cross, self.caches)):
            raise UnsupportedOp(
                "its decoder has no inputs past_key_values.N.encoder.key",
                self.step.name or "decoder",
                "Export the model with past keys and values (optimum-cli's default for text"
                " generation).",
            )

    # ---- encoder
    def encode(self, size: int, positions: int) -> Plan:
        """The encoder's plan. size: of its input's last dimension; positions: of its output."""
        shapes = {}
        for info in self.encoder.input_names():
            shape = [d if isinstance(d, int) else 1 for d in info.shape or (1, size)]
            shapes[info.name] = [1, *shape[1:-1], size]
            if info.name == "input_features":
                shapes[info.name] = [1, self._bins(info), size]
        output = self.encoder.outputs[0].name
        with explained(GENERATION, self.encoder.name or "encoder"):
            plan, bound = compile_graph(
                self.encoder, shapes, outputs=[output], float_outputs=True, target=self.target
            )
        found = list(bound.outputs[output].shape)
        if found != [1, positions, self.width]:
            raise UnsupportedOp(
                f"the encoder returns {found} for {size} positions",
                f"output '{output}'",
                f"[1, {positions}, {self.width}] is expected by the decoder and config.json.",
            )
        return plan

    def _bins(self, info: Info) -> int:
        """Number of mel bins of the input_features."""
        if info.shape and isinstance(info.shape[1], int):
            return info.shape[1]
        weight = next(
            t for t in self.encoder.constants.values() if len(t.shape) == 3 and t.shape[-1] == 3
        )
        return weight.shape[1]

    def cross(self, positions: int) -> Plan:
        """The plan from the encoder's output to the keys and values of cross attention."""
        names = [n for n in self.caches if is_cross(n)]

        def keep(bound: BoundGraph) -> None:
            for name in names:
                value = bound.outputs[present_name(name)]
                cache = self._cache(bound, name, 0)
                bound.outputs[present_name(name)] = bound.binder.op("Concat", cache, value, axis=2)

        plan, _ = self._compile(
            self.crossing or self.first,
            1,
            positions,
            False,
            0,
            [present_name(n) for n in names],
            keep,
        )
        return plan

    # ---- decoder
    def decode(self, tokens: int | None, capacity: int, align: bool = False) -> Plan:
        """A plan of the decoder.

        Args:
            tokens: number of tokens at the beginning of a sequence; None: one token after others.
            capacity: most tokens of a sequence.
            align: add the output `cross_attention`.
        """
        self.capacity = capacity
        source: Any = self.source if self.fixed else Sym(SOURCE, 1, 0, 1, self.source)
        if tokens is None:
            past = Sym(PAST, 1, 0, 0, capacity - 1)
            return self._compile(
                self.step, 1, source, True, past, ["logits"], None, self._one_position(1)
            )[0]
        names = [name for name in self.caches if name != STATES]

        def cut(bound: BoundGraph) -> None:
            for name in names:
                value, length = bound.outputs.pop(present_name(name)), 0
                if is_cross(name):
                    stand_in(bound, value, self._cache(bound, name, source), None)
                else:
                    cache = self._cache(bound, name, length)
                    whole = bound.binder.op("Concat", cache, value, axis=2)
                    stand_in(bound, value, whole, whole.producer)
            bound.nodes = in_order(bound.nodes)
            bound.prune()
            hidden = bound.inputs.get("encoder_hidden_states")
            if any(v is hidden for n in bound.nodes for v in n.inputs if v is not None):
                raise UnsupportedOp(
                    "its keys and values of cross attention are not what it attends to",
                    self.first.name or "decoder",
                    "Export the model with optimum-cli.",
                )

        outputs = ["logits", *map(present_name, names)]
        last = Sym(LAST, 1, 0, 0, tokens - 1) if tokens > 1 else 0
        one = self._one_position(tokens, last)

        def change(bound: BoundGraph) -> None:
            if align:
                add_alignment(bound, self.alignment_heads, tokens)
                del bound.outputs["logits"]
                bound.prune()
            else:
                one(bound)

        return self._compile(self.first, tokens, source, False, 0, outputs, cut, change)[0]

    def _one_position(self, tokens: int, last: Any = 0) -> Callable[[BoundGraph], None]:
        """A change that keeps the logits of one position."""

        def change(bound: BoundGraph) -> None:
            self.vocab_size = keep_logits(bound, tokens, last)

        return change

    def _compile(
        self,
        graph: Graph,
        tokens: int,
        source: Any,
        with_past: bool,
        past: Any,
        outputs: Sequence[str],
        prepare: Callable[[BoundGraph], None] | None,
        transform: Callable[[BoundGraph], None] | None = None,
    ) -> tuple[Plan, BoundGraph]:
        inputs = {i.name: i for i in graph.input_names()}
        shapes: dict[str, list[Any]] = {
            "input_ids": [1, tokens],
            "encoder_hidden_states": [1, source, self.width],
        }
        known: dict[str, list[Any]] = {}
        if "use_cache_branch" in inputs:
            shapes["use_cache_branch"], known["use_cache_branch"] = [1], [with_past]
        for name in self.caches:
            shapes[name] = self._shape(name, source if is_cross(name) else past)
        room = getattr(self, "capacity", 1)

        def change(bound: BoundGraph) -> None:
            if transform is not None:
                transform(bound)
            if self.lora is not None:
                insert_lora(bound, self.lora, required=False)

        with explained(GENERATION, graph.name or "decoder"):
            return compile_graph(
                graph,
                {n: s for n, s in shapes.items() if n in inputs},
                None,
                known,
                roles=dict.fromkeys(self.caches, "cache"),
                outputs=list(outputs),
                cache_shapes={
                    n: self._shape(n, self.source if is_cross(n) else room) for n in self.caches
                },
                cache_dtype=self.cache_dtype,
                registers=[
                    ("past", 0, room - 1 if with_past else 0),
                    ("last", 0, tokens - 1),
                    ("source", 1, self.source),
                ],
                prepare=prepare,
                transform=change,
                computed=self._computed(inputs, past, tokens, source),
                float_outputs=True,
                target=self.target,
            )

    def _shape(self, name: str, length: Any) -> list[Any]:
        """The shape of a cache with `length` positions."""
        info = self.caches[name]
        if not info.shape or len(info.shape) != 4 or not isinstance(info.shape[1], int):
            raise UnsupportedOp(
                f"its shape is {info.shape}",
                f"input '{name}'",
                "Export the model with past_key_values of shape [batch, heads, past, dim].",
            )
        return [1, info.shape[1], length, head_dim(self.step, name, info)]

    def _cache(self, bound: BoundGraph, name: str, length: Any) -> Value:
        """A cache as an input of a bound graph, with `length` positions."""
        value = bound.inputs.get(name)
        shape = self._shape(name, length)
        if value is None or list(value.shape) != shape:
            value = Value(name, FLOAT, shape, role="cache")
            bound.inputs[name] = value
        return value

    def _computed(
        self, inputs: Mapping[str, Info], past: Any, tokens: int, source: Any
    ) -> dict[str, Callable[[Binder], Value]]:
        """Inputs that the plan computes itself: masks of ones, and positions from `past` on."""

        def ones(name: str, length: Any) -> Callable[[Binder], Value]:
            def make(binder: Binder) -> Value:
                one = Tensor.of("one", inputs[name].dtype, [1], [1])
                shape = Value("mask_shape", INT64, [2], numbers=[1, length])
                return binder.op("ConstantOfShape", shape, value=one)

            return make

        def positions(name: str) -> Callable[[Binder], Value]:
            def make(binder: Binder) -> Value:
                dtype = inputs[name].dtype
                ends = [Value("p", dtype, [], numbers=[x]) for x in (past, past + tokens, 1)]
                ids = binder.op("Range", *ends)
                if len(inputs[name].shape or ()) < 2:
                    return ids
                return binder.op("Unsqueeze", ids, binder.constant(INT64, [1], [0]))

            return make

        make: dict[str, Callable[[Binder], Value]] = {}
        for name, info in inputs.items():
            if name == "encoder_attention_mask":
                make[name] = ones(name, source * self.mask_step)
            elif name in ("attention_mask", "decoder_attention_mask"):
                make[name] = ones(name, past + tokens)
            elif name in ("position_ids", "decoder_position_ids", "cache_position"):
                make[name] = positions(name)
            elif name not in ("input_ids", "encoder_hidden_states", "use_cache_branch") and (
                name not in self.caches
            ):
                raise UnsupportedOp(
                    f"it has an input '{name}' of {NAME.get(info.dtype, info.dtype)} that"
                    " generation does not know",
                    "decoder",
                    "Export the model for generation, or run it with InferenceSession.",
                )
        return make


__all__ = ["Seq2SeqCompiler", "compile_seq2seq", "is_cross", "present_name"]
