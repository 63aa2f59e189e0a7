"""The manifest of an `.edge` package: its fields, their types and ranges.

The annotations are the schema: nodes.py reads them, both readers of packages check what they say
(checker.py), and `make gen` writes the types and the schema for the page (web/src/gen/schema.ts).
What follows from several fields is in rules.py. An integer has from 0 to MAX_SIZE unless a Range
says otherwise, tuple[...] is a JSON list of as many entries, and a TypedDict may have further
fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from ..multimodal.prompt import Sees
from .limits import (
    MAX_BATCH,
    MAX_CACHES,
    MAX_CAPACITY,
    MAX_DECLARED_RANK,
    MAX_DECODER_PLANS,
    MAX_INFERENCE_PLANS,
    MAX_KERNELS,
    MAX_LENGTH,
    MAX_LORA_RANK,
    MAX_METADATA_TEXT,
    MAX_PROGRAMS,
    MAX_RANK,
    MAX_REGISTERS,
    MAX_SIZE,
    MAX_VALUES,
    MAX_VOCABULARY,
    CacheDType,
    EncoderInput,
    Kind,
    ProgramTask,
    Run,
    StateKind,
    TargetName,
    Task,
)
from .nodes import NAME, RULED, Digits, Entries, Node, Range, Records, Units, add_record
from .processor import Processor

__all__ = [
    "Decoder",
    "Encoder",
    "Inference",
    "Manifest",
    "Seq2SeqDecoder",
    "ManifestSlot",
    "Weight",
]

Name = Annotated[str, NAME]
Shape = Annotated[list[int], Entries(0, MAX_RANK)]
MetadataText = Annotated[str, Units(MAX_METADATA_TEXT)]
Tokens = Annotated[int, Range(1, MAX_CAPACITY)]
Vocabulary = Annotated[int, Range(1, MAX_VOCABULARY)]
TokenId = Annotated[int, Range(0, MAX_VOCABULARY)]
Register = Annotated[int, Range(0, MAX_REGISTERS)]
JsonObject = Annotated[dict[str, Any], RULED]

Dim = int | list[int]
"""A dimension: a number, or [scale, add] or [scale, add, register], which is the value
scale * register + add, of register 0 if none is named."""
Dims = Annotated[list[Dim], RULED]


# ---- plans
class ManifestSlot(TypedDict):
    """A tensor that the host binds: see plan.plan.Slot."""

    name: Name
    kind: Kind
    dtype: Name
    shape: Shape
    bytes: int


class PlanFile(TypedDict):
    """A plan: the part of the package with its bytes, and its slots in their order."""

    file: Name
    slots: list[ManifestSlot]


class Cache(TypedDict):
    """Keys, values or another state of a sequence.

    `fixed`: it has the same shape in each run and holds what all tokens so far have left, such as
    the state of a recurrent layer. Without: it grows by each token. `rows`: the parts of a cache
    that grows, each with room for all tokens, such as heads, and the bytes of a token in a part.
    `sliding`: it holds the rows of the decoder's `window`, of the last tokens.
    """

    name: Name
    bytes: int
    fixed: NotRequired[bool]
    rows: NotRequired[tuple[int, int]]
    sliding: NotRequired[bool]


# ---- language models
class DecoderRegisters(TypedDict):
    """Numbers of the registers with the past length; the index of the token that the logits are of;
    the number of tokens that caches have room for (none: they have room for all); the number of
    tokens from `last` on that there are logits of (none: it is one); and of caches of a sliding
    window the rows before a run, the positions before these, and the rows that they have room for.
    """

    past: Annotated[int, Range(0, 0)]
    last: Annotated[int, Range(1, 1)]
    room: NotRequired[Annotated[int, Range(2, 2)]]
    rows: NotRequired[Annotated[int, Range(2, 3)]]
    held: NotRequired[Annotated[int, Range(3, 4)]]
    dropped: NotRequired[Annotated[int, Range(4, 5)]]
    window: NotRequired[Annotated[int, Range(5, 6)]]


class DecoderPlan(PlanFile):
    """A plan for so many tokens."""

    tokens: Tokens
    registers: DecoderRegisters


class SlidingWindow(TypedDict):
    """The window of layers whose caches hold the rows of the last tokens.

    `size`: positions that a token sees, with its own. `rows`: of such a cache.
    """

    size: Tokens
    rows: Tokens


class SavedParameter(TypedDict):
    """A weight that adapters replace.

    Fields:
        parameter: the weight.
        name: in PEFT's files.
        transposed: whether it is stored there as its transpose.
        shape: of the weight.
    """

    parameter: Name
    name: Name
    transposed: bool
    shape: Shape


class Decoder(TypedDict):
    """A language model.

    Fields:
        recompute: whether it has no cache, so that every run processes the whole sequence.
        padded: whether a run may hold fewer tokens than its plan is for; default: true.
        capacity: most tokens of a sequence.
        cache_dtype: element type of keys and values; default: float32.
        caches: of one sequence.
        window: of the caches that are `sliding`; none: there are none.
        lora: configuration of the adapters that its plans have.
        saved: weights that adapters replace as a whole (modules_to_save and bias).
        features: numbers of a row that may replace the embedding of a token; none: there is no
            such input.
        positions: whether its plans take positions of time, height and width.
        sees: where tokens see others that come after them; see multimodal.prompt.with_reach.
    """

    recompute: bool
    padded: NotRequired[bool]
    capacity: Tokens
    vocab_size: Vocabulary
    logits_type: Literal["float32"]
    cache_dtype: NotRequired[CacheDType]
    lora: NotRequired[JsonObject | None]
    saved: NotRequired[list[SavedParameter] | None]
    caches: Annotated[list[Cache], Entries(0, MAX_CACHES)]
    window: NotRequired[SlidingWindow]
    features: NotRequired[Vocabulary]
    positions: NotRequired[bool]
    sees: NotRequired[Sees]
    plans: Annotated[list[DecoderPlan], Entries(0, MAX_DECODER_PLANS)]


# ---- encoder-decoder models: docs/architecture/sessions.md
class Seq2SeqRegisters(TypedDict):
    """As DecoderRegisters; `source` has the positions of the encoder's output."""

    past: Annotated[int, Range(0, 0)]
    last: Annotated[int, Range(1, 1)]
    source: Annotated[int, Range(2, 2)]


class Seq2SeqPlan(PlanFile):
    """A plan of the decoder."""

    kind: Run
    tokens: Tokens
    registers: Seq2SeqRegisters


class Seq2SeqDecoder(TypedDict):
    """The decoder.

    Fields:
        caches: of a sequence.
        cross: caches of an input, which its sequences share.
        alignment_heads: how many heads' weights the plans "align" give.
        lora: configuration of the adapters that the plans have.
    """

    recompute: NotRequired[bool]
    capacity: Annotated[int, Range(2, MAX_CAPACITY)]
    vocab_size: Vocabulary
    logits_type: Literal["float32"]
    cache_dtype: NotRequired[CacheDType]
    caches: Annotated[list[Cache], Entries(0, MAX_CACHES)]
    cross: Annotated[list[Cache], Entries(0, MAX_CACHES)]
    alignment_heads: NotRequired[int]
    lora: NotRequired[JsonObject | None]
    plans: Annotated[list[Seq2SeqPlan], Entries(0, MAX_DECODER_PLANS)]


class EncoderPlans(TypedDict):
    """For inputs of up to `size`.

    Fields:
        positions: of the encoder's output.
        plans: the encoder, unless a program is the encoder; keys and values of what it returns.
    """

    size: Annotated[int, Range(1, MAX_LENGTH)]
    positions: Annotated[int, Range(1, MAX_LENGTH)]
    plans: list[PlanFile]


class Encoder(TypedDict):
    """The encoder.

    Fields:
        masked: whether it has an input attention_mask.
        fixed: whether all inputs have the same size.
    """

    input: EncoderInput
    masked: bool
    fixed: bool
    plans: Annotated[list[EncoderPlans], Entries(0, MAX_DECODER_PLANS)]


# ---- training
class TrainingPlan(PlanFile):
    """A plan of a training program."""

    arena_bytes: int


class TrainingPlans(TypedDict):
    """Those of training.program.PLANS."""

    train: TrainingPlan
    accumulate: TrainingPlan
    update: TrainingPlan
    evaluate: TrainingPlan
    initialize: TrainingPlan
    magnitudes: NotRequired[TrainingPlan]
    swap: NotRequired[TrainingPlan]


class State(TypedDict):
    """A tensor that persists between runs.

    Fields:
        initial: its first value: ["constant", weight], ["fill", number], or ["uniform" or
            "normal", scale, stream of random numbers].
    """

    name: Name
    kind: StateKind
    dtype: Name
    shape: Shape
    bytes: int
    initial: Annotated[list[Any], RULED]


class LoraFields(TypedDict):
    """Fields of PEFT's adapter_config.json."""

    r: Annotated[int, Range(1, MAX_LORA_RANK)]
    lora_alpha: float
    use_rslora: NotRequired[bool]
    use_dora: NotRequired[bool]


class OptimizerFields(TypedDict):
    """See training.optimizers."""

    type: Name
    lr: float


class TrainingProgram(TypedDict):
    """A way to train the model, with batches of `batch` x `sequence` tokens.

    Fields:
        lora: null if all parameters are trained.
        max_grad_norm: null: no clipping.
        gradient_accumulation_steps: batches of an update, where none are given; default 1.
        source: of the decoder of an encoder: positions of the encoder's output in a row.
        router_aux_loss_coef: of mixtures of experts: factor of the loss that balances them.
        packing: whether rows have several documents.
        top_k: tokens that a teacher tells of each one.
    """

    name: Name
    task: Literal["causal_lm"]
    batch: Annotated[int, Range(1, MAX_BATCH)]
    sequence: Annotated[int, Range(2, MAX_CAPACITY)]
    states: list[State]
    plans: TrainingPlans
    optimizer: OptimizerFields
    lora: NotRequired[LoraFields | None]
    pad_token_id: NotRequired[TokenId | None]
    eos_token_id: NotRequired[TokenId | None]
    max_grad_norm: NotRequired[float | None]
    gradient_accumulation_steps: NotRequired[Annotated[int, Range(1, MAX_BATCH)]]
    source: NotRequired[Annotated[int, Range(1, MAX_LENGTH)]]
    router_aux_loss_coef: NotRequired[float]
    packing: NotRequired[bool]
    top_k: NotRequired[Annotated[int, Range(1, MAX_VOCABULARY)]]


# ---- any model
class DeclaredValue(TypedDict):
    """An input or output as the model declares it.

    Fields:
        type: "tensor", "sequence", "optional" or "map".
        shape: sizes, names of free dimensions, null for unknown ones; null: unknown rank.
        elem: of a sequence or an optional: an element; of a map: a value.
        key: of a map: type of its keys.
    """

    name: Name
    type: Name
    dtype: Name
    shape: NotRequired[
        Annotated[
            list[Annotated[int, Range(-1, MAX_SIZE)] | str | None], Entries(0, MAX_DECLARED_RANK)
        ]
        | None
    ]
    elem: NotRequired[DeclaredValue]
    key: NotRequired[Name]


class Metadata(TypedDict, total=False):
    """See model_metadata.ModelMetadata. `version` is a text, since it may exceed 2^53."""

    producer_name: NotRequired[MetadataText]
    graph_name: NotRequired[MetadataText]
    domain: NotRequired[MetadataText]
    description: NotRequired[MetadataText]
    graph_description: NotRequired[MetadataText]
    version: NotRequired[MetadataText]
    custom_metadata_map: NotRequired[Mapping[str, MetadataText]]


class InferencePlan(TypedDict):
    """A plan for inputs of fixed shapes, or of shapes that follow registers.

    Fields:
        register: lowest and highest value of register 0, which dimensions follow.
        registers: of registers 1, 2, ...: the same, or the numbers of a declare.registers.Rule.
        inputs: dtype and shape of each.
        outputs: of each its output slot, dtype, shape and bytes; slots have room for the largest.
        passed: outputs that are inputs: the host returns what was fed.
        seed: input slot, int64 [1], that gets another seed before each run.
        part, known, beyond, numbers: only in a page's own storage
            (web/src/worker/inference/manifest.ts), where `file` may be missing.
    """

    file: NotRequired[Name]
    slots: list[ManifestSlot]
    register: NotRequired[Annotated[tuple[int, int], RULED]]
    registers: NotRequired[Annotated[list[list[int]], RULED]]
    inputs: Mapping[Name, tuple[Name, Dims]]
    outputs: Mapping[Name, tuple[Name, Name, Dims, int]]
    passed: NotRequired[Mapping[Name, Name]]
    seed: NotRequired[Name]
    part: NotRequired[Name]
    known: NotRequired[JsonObject]
    beyond: NotRequired[Annotated[list[Any], RULED]]
    numbers: NotRequired[JsonObject]


class Inference(TypedDict):
    """A model of any kind. programs, overridable: only in a page's own storage."""

    inputs: Annotated[list[DeclaredValue], Entries(0, MAX_VALUES)]
    outputs: Annotated[list[DeclaredValue], Entries(0, MAX_VALUES)]
    overridable: NotRequired[Annotated[list[DeclaredValue], Entries(0, MAX_VALUES)]]
    metadata: NotRequired[Metadata]
    plans: Annotated[list[InferencePlan], Entries(0, MAX_INFERENCE_PLANS)]
    programs: NotRequired[Annotated[list[Any], RULED]]


# ---- packages
class Weight(TypedDict):
    """Where a weight is.

    Fields:
        file: a part of the package, or a file of the model beside it.
        sums: checksums of its pieces (sums.py).
        power: if given, the file has float32 numbers w, twice as many bytes, and the weight is
            float16 numbers of w * 2^power; only of weights outside of the package.
        experts: if given, it consists of so many equal parts, and all plans read it in products of
            experts alone, which need a part at a time.
    """

    name: Name
    file: Name
    offset: int
    bytes: int
    sums: NotRequired[list[Annotated[str, Digits(16, "a sum")]]]
    power: NotRequired[Annotated[int, Range(-112, 112)]]
    experts: NotRequired[Annotated[int, Range(1, MAX_SIZE)]]


class Head(TypedDict):
    """What every package has.

    Fields:
        format: limits.FORMAT.
        table_hash: checksum of the table of kernels that it was built for.
        target: the device that its plans are for; default: cpu.
        kernels: names of those that its plans use.
        files: offset and bytes of each part, from the beginning of the data.
        sha256: of the parts but "weights".
        cache: of a package in a page's own storage: what the compiler read.
    """

    format: Annotated[int, RULED]
    table_hash: Annotated[int, Range(0, 0xFFFFFFFF)]
    target: NotRequired[TargetName]
    kernels: NotRequired[Annotated[list[Name], Entries(0, MAX_KERNELS)]]
    files: Mapping[Name, tuple[int, int]]
    sha256: Mapping[str, Annotated[str, Digits(64, "a SHA-256")]]
    weights: list[Weight]
    training: NotRequired[Annotated[list[TrainingProgram], Entries(0, MAX_PROGRAMS)]]
    cache: NotRequired[JsonObject]


class TextGeneration(Head):
    """Of a language model."""

    task: Literal["text-generation"]
    decoder: Decoder


class AnyModel(Head):
    """Of any model."""

    task: Literal["inference"]
    inference: Inference


class Pipeline(Head):
    """Of a pipeline: its graphs by name, and what it does with its inputs before."""

    task: ProgramTask
    programs: Mapping[Name, Inference]
    processor: NotRequired[Processor]


class Seq2SeqPipeline(Pipeline):
    """Of a pipeline that generates text with an encoder."""

    encoder: Encoder
    decoder: Seq2SeqDecoder


class MultimodalPipeline(Pipeline):
    """Of a pipeline with a language model that takes features of pictures or sounds."""

    decoder: Decoder


class Manifest(Head):
    """Of any package: which fields it has depends on `task`."""

    task: Task
    decoder: NotRequired[Decoder]
    inference: NotRequired[Inference]
    programs: NotRequired[Mapping[Name, Inference]]
    processor: NotRequired[Processor]
    encoder: NotRequired[Encoder]


@cache
def records() -> Records:
    """The schema as data: fields of each record."""
    found: dict[str, dict[str, Node]] = {}
    for record in (TextGeneration, AnyModel, Pipeline, Seq2SeqPipeline, MultimodalPipeline):
        add_record(record, found)
    return found
