"""Packages of task "text-generation": decoder-only language models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from ...errors import InputError, ModelError, UnsupportedOp, memory_in_words
from ...logic.manifest.limits import CACHE_DTYPES, FEATURES, POSITIONS, ROOM_STEP, CacheDType
from ...logic.manifest.schema import Cache, Decoder, DecoderPlan, DecoderRegisters
from ..declare.dtypes import FLOAT, FLOAT16, INT8, UINT8
from ..declare.op import TooLong
from ..declare.symbolic import product
from ..ir import Graph, Info
from ..onnx import read_model
from ..onnx.source import Source
from ..package import Package
from ..plan import Plan, Slot
from ..targets import CPU, Target
from .caches import cached_as_halves, interface, static_rooms
from .decoder_plan import ROOM, DecoderCompiler, NoGrowth
from .features import fed_shapes
from .grouped import static_groups
from .join import join_embedding, takes_embeddings
from .mixtures import static_mixtures
from .model_file import (
    Dtype,
    find_embedding_file,
    missing_embedding,
    pick_model_file,
    read_config,
    read_texts,
)
from .tables import one_size
from .weights import add_plans, new_package

if TYPE_CHECKING:
    from ..passes.lora import AdapterConfig

MAX_TRIALS = 8  # capacities for which plans are made
CHUNKS = (1, 16, 128)  # tokens per run that plans are made for
# Of models without a cache: whole sequences in each run.
RECOMPUTE_CHUNKS = (16, 64, 256, 1024, 4096, 16384)
DEFAULT_CAPACITY = 1024  # where nothing says how many tokens the model takes
MAX_CAPACITY = 1 << 24
# Bytes of a buffer that a GPU binds.
BINDING_BYTES = 1 << 27
# Bytes that a sequence of few tokens may take since it can get longer, of values between steps, and
# of caches that do not grow. A longer one has to be asked for.
MAX_RESERVED, MAX_CACHED = 1 << 25, 1 << 28
# Element types of caches; uint8 has two numbers of 4 bits.
CACHE_CODES = {"float32": FLOAT, "float16": FLOAT16, "int8": INT8, "int4": UINT8}
# Fields of config.json, and of the model in genai_config.json, with the length of a sequence.
LENGTH_FIELDS = (
    *("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length"),
    *("seq_length", "context_length"),
)


def compile_package(
    files: Mapping[str, Source],
    dtype: Dtype = None,
    capacity: int | None = None,
    chunks: Sequence[int] = CHUNKS,
    model_file: str | None = None,
    lora: AdapterConfig | None = None,
    trainable: Sequence[str] = (),
    cache_dtype: str | None = None,
    target: Target = CPU,
    dtypes: Mapping[str, str] | None = None,
) -> Package:
    """Compiles a causal language model.

    Args:
        files: {file name: Source}: the .onnx file, its external data, and config.json,
            tokenizer.json and so on, as in a Hugging Face folder.
        dtype: which .onnx file, by suffix (pick_model_file); of each file by its name: that of
            `dtypes`, too.
        capacity, chunks, lora, trainable, cache_dtype, target: as of compile_causal_lm.
        model_file: which .onnx file, by name.
        dtypes: of the file that embeds token ids, by its name, see find_embedding_file.

    Returns:
        Package: plans as blobs; weights stay in their files until the package is written.

    Raises:
        As compile_causal_lm.
    """
    if isinstance(dtype, Mapping):
        dtypes = dtypes or dtype
    chosen = model_file or pick_model_file(files, dtype)
    graph = read_model(files[chosen])
    if takes_embeddings(graph):
        beside = find_embedding_file(files, chosen, dtypes)
        if beside is None:
            raise missing_embedding(chosen, dtypes)
        graph = join_embedding(read_model(files[beside]), graph)
    texts = read_texts(files)
    config = read_config(files)
    decoder, plans = compile_causal_lm(
        graph, config, capacity, chunks, lora, trainable, cache_dtype, target
    )
    package = new_package("text-generation", {"decoder": decoder}, texts, files, target)
    package.graph = graph
    add_plans(package, [(d["file"], plan) for plan, d in zip(plans, decoder["plans"])])
    return package


@memory_in_words
def compile_causal_lm(
    graph: Graph,
    config: Mapping[str, Any] | None = None,
    capacity: int | None = None,
    chunks: Sequence[int] = CHUNKS,
    lora: AdapterConfig | None = None,
    trainable: Sequence[str] = (),
    cache_dtype: str | None = None,
    target: Target = CPU,
) -> tuple[Decoder, list[Plan]]:
    """Plans for text generation with a cache that is written in place.

    Args:
        graph: a decoder-only language model with an input `input_ids` and an output `logits`;
            inputs of caches.INPUT_TYPES are understood, and others that outputs replace: states
            that grow with the sequence or have a fixed shape.
        config: the model's config.json.
        capacity: most tokens of a sequence; default: as many as the model takes by its
            configuration, or as have room where memory is reserved for all (MAX_RESERVED).
        chunks: numbers of tokens per run to make plans for; must contain 1 for a model with a
            cache.
        lora: training.peft.LoraConfig: layers that can get adapters at run time; None: none.
        trainable: names of weights that are states of the plans (float32), as a training session
            holds them.
        cache_dtype: stored type of keys and values: "float32", "float16", or "int8" or "int4": 8
            or 4 bits and a scale for every 32 numbers of a token and head. Default: float16 where
            the model declares its caches so, else float32.
        target: device that the plans are for.

    Returns:
        (decoder manifest, plans)

    Raises:
        InputError: an option has no sensible value.
        UnsupportedOp: an operator is missing, or the graph's use of the past cannot be turned into
            a cache.
    """
    # Adapters are for layers of the graph itself, not of its branches.
    branches = target.jumps and lora is None and not trainable
    graph = static_groups(static_mixtures(graph, branches))
    found = interface(graph)
    states = found.states
    _check_options(capacity, cache_dtype, target)
    cache_dtype = cache_dtype or ("float16" if cached_as_halves(graph) else "float32")
    code = CACHE_CODES[cache_dtype]
    model = DecoderCompiler(graph, found, config or {}, lora, trainable, code, target)
    room, plans = _fitting_plans(model, config or {}, capacity, chunks, _fixed_length(found.inputs))
    slots = {s.name: s for p in plans.values() for s in p.slots if s.kind == "cache"}
    decoder: Decoder = {
        "capacity": room,
        "vocab_size": model.vocab_size,
        "logits_type": "float32",
        "recompute": not states,
        "padded": model.padded,
        "cache_dtype": cast("CacheDType", cache_dtype),
        "caches": [
            Cache(name=n, bytes=s.nbytes, fixed=True)
            if n in model.whole
            else _growing(s, found.states[n].axis, room)
            for n, s in slots.items()
        ],
        "plans": [_describe(tokens, plan) for tokens, plan in plans.items()],
    }
    if any(cache.get("sliding") for cache in decoder["caches"]):
        decoder["window"] = model.windows[room]
    fed = fed_shapes(graph, 1)
    if FEATURES in fed:
        decoder["features"] = fed[FEATURES][-1]
        decoder["positions"] = POSITIONS in fed
    if lora is not None:
        decoder["lora"] = asdict(lora)  # type: ignore[call-overload]
        decoder["saved"] = [
            {
                "parameter": s.parameter,
                "name": s.name,
                "transposed": s.transposed,
                "shape": list(graph.constants[s.parameter].shape),
            }
            for s in model.saved
        ]
    return decoder, list(plans.values())


def _check_options(capacity: int | None, cache_dtype: str | None, target: Target) -> None:
    if capacity is not None and (type(capacity) is not int or not 0 < capacity <= MAX_CAPACITY):
        raise InputError(
            f"{capacity!r} is not a valid number of tokens",
            "capacity",
            f"Give one from 1 to {MAX_CAPACITY}.",
        )
    if cache_dtype is not None and cache_dtype not in CACHE_DTYPES:
        raise InputError(
            f"keys and values cannot be kept as {cache_dtype!r}",
            "cache_dtype",
            f"Give {' or '.join(CACHE_DTYPES)}.",
        )
    if cache_dtype in ("int8", "int4") and target is not CPU:
        raise InputError(
            f"keys and values are not kept as {cache_dtype} on the device '{target.name}'",
            "cache_dtype",
            "Give float16, or use the device 'cpu'.",
        )


def _fixed_length(inputs: Mapping[str, Info]) -> int | None:
    """The number of tokens of an export for so many tokens per run (mostly one), or None."""
    ids = inputs["input_ids"].shape
    if not ids or len(ids) != 2 or not isinstance(ids[1], int):
        return None
    if ids[1] < 1:
        raise ModelError(f"its shape is {ids}", "input 'input_ids'", "Export the model again.")
    return ids[1]


def _fitting_plans(
    model: DecoderCompiler,
    config: Mapping[str, Any],
    capacity: int | None,
    chunks: Sequence[int],
    fixed: int | None,
) -> tuple[int, dict[int, Plan]]:
    """(capacity, {tokens: Plan}) for as many tokens as the model has positions for."""
    room = capacity or context_length(config, model.graph)
    if fixed is not None and not model.found.states:
        room = min(room, fixed)
    rooms = static_rooms(model.found, config, room)
    held = max((n for d, n in rooms.items() if isinstance(d, int)), default=room)
    if held < room:  # of caches that have this size in the file
        if capacity is not None:
            raise _too_long(room, held)
        room = held
    cached = any(not s.fixed for s in model.found.states.values())
    model.grows = cached and room > max(ROOM_STEP, *chunks, fixed or 0)
    for _ in range(MAX_TRIALS):
        try:
            return room, _plans(model, room, chunks, fixed, capacity is not None)
        except TooLong as e:  # the model's own position table is shorter
            shorter = room - e.excess
            if capacity is not None or shorter < 1:
                raise _too_long(room, shorter) from None
            room = shorter
        except _TooLarge as e:
            room = e.fitting
        except _WithoutGrowth:
            model.grows = False
        except _WithoutSliding:
            model.slides = False
    raise ModelError(
        "its position tables are too short", model.graph.name or "model", "Give a capacity."
    )


def context_length(config: Mapping[str, Any], graph: Graph | None = None) -> int:
    """The tokens of a sequence of a model by its configuration.

    Args:
        config: the model's config.json; genai_config.json may be in "genai".
        graph: the model. Tables of LongRoPE are for sequences of one length: for those which the
            model was first trained with, unless another capacity is given.
    """
    genai = config.get("genai")
    parts = [config, config.get("text_config"), genai.get("model") if genai else None]
    first = graph is not None and one_size(graph, 1) is not graph
    names = ("original_max_position_embeddings", *LENGTH_FIELDS) if first else LENGTH_FIELDS
    for name in names:
        for part in parts:
            for fields in (part, part.get("rope_scaling")) if isinstance(part, Mapping) else ():
                n = fields.get(name) if isinstance(fields, Mapping) else None
                if type(n) is int and 0 < n <= MAX_CAPACITY:
                    return n
    return DEFAULT_CAPACITY


class _TooLarge(Exception):
    """So many tokens would reserve too much memory.

    Attributes:
        fitting: fewer tokens.
    """

    def __init__(self, fitting: int) -> None:
        self.fitting = fitting


class _WithoutGrowth(Exception):
    """Plans can be made only for caches with room for all tokens."""


class _WithoutSliding(Exception):
    """Plans take caches of a sliding window of different sizes."""


def _check_reserved(model: DecoderCompiler, plan: Plan, tokens: int, capacity: int) -> None:
    """Raises _TooLarge where a plan for a capacity that nobody asked for takes too much memory.

    Args:
        model: the model.
        plan: of it, for runs of `tokens` tokens.
        tokens, capacity: as of _plan.
    """
    if capacity <= DEFAULT_CAPACITY:
        return
    reserved, caches = plan.arena_bytes, [s.nbytes for s in plan.slots if s.kind == "cache"]
    if reserved > MAX_RESERVED and tokens < DEFAULT_CAPACITY:  # as far as it follows the capacity
        reserved -= model.compile(tokens, DEFAULT_CAPACITY).arena_bytes
    excess = reserved / MAX_RESERVED
    if not model.grows:
        excess = max(excess, sum(caches) / MAX_CACHED)
    if model.target.memory.several_arenas:  # a GPU, which binds a cache as a whole
        excess = max(excess, max(caches, default=0) / BINDING_BYTES)
    if excess > 1:
        fitting = DEFAULT_CAPACITY
        while 2 * fitting * excess <= capacity:
            fitting *= 2
        raise _TooLarge(fitting)


def _too_long(room: int, longest: int) -> InputError:
    return InputError(
        f"{room} tokens are more than the model has positions for ({longest})",
        "capacity",
        "Give a smaller one.",
    )


def _plans(
    model: DecoderCompiler, capacity: int, chunks: Sequence[int], fixed: int | None, wanted: bool
) -> dict[int, Plan]:
    """{tokens per run: Plan}

    Args:
        model: the model.
        capacity: most tokens of a sequence.
        chunks: tokens per run.
        fixed: tokens per run of an export for so many.
        wanted: whether the caller wants this capacity, whatever it takes.
    """
    if not model.found.states:
        chunks = (*(c for c in RECOMPUTE_CHUNKS if c < capacity), capacity)
    if fixed is not None:
        if fixed > capacity:
            raise InputError(
                f"the model takes {fixed} tokens at a time, which is more than {capacity}",
                "capacity",
                "Give a larger one.",
            )
        chunks = (fixed,)
    model.longest = min(max(chunks), capacity)
    plans: dict[int, Plan] = {}
    for tokens in sorted({min(c, capacity) for c in chunks}):
        try:
            plans[tokens] = _plan(model, tokens, capacity)
        except TooLong:
            raise
        except ModelError:
            # Some exports take runs up to a size that they were traced with.
            if 1 not in plans:
                raise
            plans |= _shorter(model, tokens, capacity, max(plans))
            break
        if not wanted:
            _check_reserved(model, plans[tokens], tokens, capacity)
    if fixed is not None and fixed > 1 and model.found.states and not model.padded:
        raise UnsupportedOp(
            f"it takes {fixed} tokens in each run, and its states take each of them",
            model.graph.name or "model",
            "Export the model for one token, or any number of tokens, in each run.",
        )
    caches = [{s.name: s.nbytes for s in p.slots if s.kind == "cache"} for p in plans.values()]
    if model.slides and capacity in model.windows and any(one != caches[0] for one in caches):
        raise _WithoutSliding
    return plans


def _plan(model: DecoderCompiler, tokens: int, capacity: int) -> Plan:
    """A plan. Raises _WithoutGrowth where there is one only if caches do not grow."""
    if not model.grows:
        return model.compile(tokens, capacity)
    try:
        return model.compile(tokens, capacity)
    except TooLong:
        raise
    except NoGrowth:
        raise _WithoutGrowth from None
    except (ModelError, UnsupportedOp):
        if model.slides and capacity in model.windows:
            raise _WithoutSliding from None
        model.grows = False
        model.compile(tokens, capacity)
        raise _WithoutGrowth from None


def _shorter(model: DecoderCompiler, tokens: int, capacity: int, least: int) -> dict[int, Plan]:
    """The plan for most tokens that are fewer than `tokens` and more than `least`, if any."""
    while (tokens := tokens // 2) > least:
        try:
            return {tokens: model.compile(tokens, capacity)}
        except ModelError:
            pass
    return {}


def _growing(slot: Slot, axis: int | None, capacity: int) -> Cache:
    """A cache that grows by each token.

    Args:
        slot: of the cache.
        axis: of the tokens.
        capacity: most tokens of a sequence.
    """
    assert axis is not None, slot.name
    outer, count = product(slot.shape[:axis]), slot.shape[axis]
    rows = outer, slot.nbytes // max(1, outer * count)
    cache = Cache(name=slot.name, bytes=slot.nbytes, rows=rows)
    if count < capacity:
        cache["sliding"] = True
    return cache


def _describe(tokens: int, plan: Plan) -> DecoderPlan:
    registers: DecoderRegisters = {"past": 0, "last": 1}
    if "room" in plan.registers:
        registers["room"] = ROOM
    if "rows" in plan.registers:
        registers["rows"] = plan.registers.index("rows")
    if "held" in plan.registers:
        first = plan.registers.index("held")
        registers["held"], registers["dropped"], registers["window"] = range(first, first + 3)
    return {
        "tokens": tokens,
        "file": f"plan/{tokens}",
        "registers": registers,
        "slots": [s.describe() for s in plan.slots],
    }
