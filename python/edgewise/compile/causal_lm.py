"""Whole models to packages: what `edgewise build` and a page do once per model."""

from __future__ import annotations

import re
from dataclasses import asdict

from ..bind import RUN_SEED
from ..declare.dtypes import BOOL, FLOAT, FLOAT16, INT32, INT64, NAME
from ..declare.op import TooLong
from ..declare.symbolic import NotStatic, Sym
from ..errors import InputError, ModelError, UnsupportedOp
from ..ir import NeedsHost, NeedsValue, Tensor, Value
from ..json_text import parse_json
from ..manifest_limits import CACHE_DTYPES, FORMAT
from ..onnx import BytesSource, read_model
from ..onnx.dimensions import input_shapes
from ..ops.table import kernel_table
from ..package import Package
from ..passes.last_position import keep_position
from ..passes.lora import insert_lora, saved_parameters
from ..plan import compile_graph
from ..plan.notes import NOTES, add_notes

PAST, LAST = (
    0,
    1,
    # registers of a decoder's plans: tokens in the cache, and which of this run's tokens the logits
    # are of
)
CHUNKS = (1, 16, 128)  # tokens per run that plans are made for
RECOMPUTE_CHUNKS = (16, 64, 256, 1024)  # of models without a cache: the whole sequence in each run
DEFAULT_CAPACITY = 1024
MAX_CAPACITY = 1 << 24
MAX_TEXT = 1 << 28  # bytes of config.json, tokenizer.json and their like
CACHE_NAME = re.compile(r"(^|[._])past([._]|_key).*(key|value)|past_key_values[._]\d+[._]\d+")
CONSTANTS = "//constants"  # part of a package: no file of a model is called so
TEXT_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


def pick_model_file(names, dtype=None):
    """The .onnx file of a model folder, chosen by dtype suffix as transformers.js does.

    Args:
        names: file names, with folders. dtype: "fp32", "fp16", "int8", "uint8", "q8", "q4",
        "q4f16", "bnb4"; None: the only one, else fp32's, else the smallest suffix known.
    """
    models = sorted(n for n in names if n.endswith(".onnx"))
    if not models:
        raise InputError(
            "there is no .onnx file",
            ", ".join(sorted(names)[:10]) or "empty folder",
            "Give the exported model's folder.",
        )
    suffix = {"fp32": "", "q8": "_quantized"}.get(dtype, f"_{dtype}" if dtype else None)
    stems = ("model", "decoder_model_merged", "decoder_with_past_model", "decoder_model")
    if suffix is not None:
        for stem in stems:
            for n in models:
                if n.rsplit("/", 1)[-1] == f"{stem}{suffix}.onnx":
                    return n
        raise InputError(
            f"there is no model file for dtype '{dtype}'", ", ".join(models), "Choose one of these."
        )
    if len(models) == 1:
        return models[0]
    for stem in stems:
        for s in ("", "_q4", "_quantized", "_int8", "_uint8", "_q4f16", "_fp16", "_bnb4"):
            for n in models:
                if n.rsplit("/", 1)[-1] == f"{stem}{s}.onnx":
                    return n
    raise InputError(
        "it is not clear which .onnx file is the model",
        ", ".join(models),
        "Name the file, or pass dtype.",
    )


def compile_causal_lm(
    graph, config=None, capacity=None, chunks=CHUNKS, lora=None, trainable=(), cache_dtype=None
):
    """Plans for text generation with a cache that is written in place.

    Args:
        graph: Graph of a decoder-only language model with an input `input_ids` and an output
        `logits`; inputs `attention_mask`, `position_ids`,
            `past_key_values.*` and `use_cache_branch` are understood.
        config: the model's config.json. capacity: most tokens of a sequence (default: the model's
        own limit, at most 1024). chunks: numbers of tokens per run to make plans for; must contain
        1 for a model with a cache. lora: training.peft.LoraConfig: layers that adapters can be put
        beside at run time; None: none. trainable: names of weights that are states of the plans
        (float32), as a training session holds them. cache_dtype: what keys and values are kept as:
        "float32", or "float16", which takes half the memory. None: float16 where the model declares
        its caches so, else float32.
    Returns:
        (decoder manifest, [Plan])
    Raises:
        UnsupportedOp: an operator is missing, or the graph's use of the past cannot be turned into
        a cache.
    """
    config = config or {}
    inputs = {i.name: i for i in graph.input_names()}
    if "input_ids" not in inputs or not any(o.name == "logits" for o in graph.outputs):
        raise UnsupportedOp(
            f"inputs {', '.join(inputs)} and outputs"
            f" {', '.join(o.name for o in graph.outputs)[:200]} are not those of a decoder-only"
            " language model",
            graph.name or "model",
            "Text generation needs `input_ids` in and `logits` out; run other models with"
            " InferenceSession.",
        )
    if capacity is not None and (type(capacity) is not int or not 0 < capacity <= MAX_CAPACITY):
        raise InputError(
            f"{capacity!r} is no number of tokens",
            "capacity",
            f"Give one from 1 to {MAX_CAPACITY}.",
        )
    if cache_dtype is not None and cache_dtype not in CACHE_DTYPES:
        raise InputError(
            f"keys and values cannot be kept as {cache_dtype!r}",
            "cache_dtype",
            f"Give {' or '.join(CACHE_DTYPES)}.",
        )
    cache_dtype = cache_dtype or ("float16" if cached_as_halves(graph) else "float32")
    limit = next(
        (
            config[k]
            for k in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
            if type(config.get(k)) is int and config[k] > 0
        ),
        DEFAULT_CAPACITY,
    )
    for name, kinds in {
        "input_ids": (INT64,),
        "attention_mask": (INT64, INT32, BOOL, FLOAT),
        "position_ids": (INT64, INT32),
        "use_cache_branch": (BOOL,),
    }.items():
        if name in inputs and inputs[name].dtype not in kinds:
            raise UnsupportedOp(
                f"its element type is {NAME.get(inputs[name].dtype, inputs[name].dtype)}",
                f"input '{name}'",
                f"Text generation takes {' or '.join(NAME[k] for k in kinds)} there.",
            )
    caches = {}
    for name, info in inputs.items():
        if CACHE_NAME.search(name):
            caches[name] = cache_axis(info)
        elif name not in ("input_ids", "attention_mask", "position_ids", "use_cache_branch"):
            raise UnsupportedOp(
                f"it has an input '{name}' that text generation does not know",
                graph.name or "model",
                "Export the model for text generation, or run it with InferenceSession.",
            )
    ids = inputs["input_ids"].shape
    fixed = (
        ids[1] if ids and len(ids) == 2 and isinstance(ids[1], int) else None
    )  # an export for so many tokens at a time, mostly one
    if fixed is not None and fixed < 1:
        raise ModelError(f"its shape is {ids}", "input 'input_ids'", "Export the model again.")
    room = capacity or min(limit, DEFAULT_CAPACITY)
    if fixed is not None and not caches:
        room = min(room, fixed)
    for _ in range(4):
        try:
            plans, vocab, saved = _decoder_plans(
                graph,
                inputs,
                caches,
                chunks,
                fixed,
                room,
                lora,
                trainable,
                FLOAT16 if cache_dtype == "float16" else FLOAT,
            )
            break
        except TooLong as e:  # the model's own position table is shorter
            shorter = room - e.excess
            if capacity is not None or shorter < 1:
                raise InputError(
                    f"{room} tokens are more than the model has positions for ({shorter})",
                    "capacity",
                    "Give a smaller one.",
                ) from None
            room = shorter
    else:
        raise ModelError(
            "its position tables end where they should not",
            graph.name or "model",
            "Give a capacity.",
        )
    described = [
        {
            "tokens": tokens,
            "file": f"plan/{tokens}",
            "registers": {n: i for i, n in enumerate(plan.registers)},
            "slots": [s.describe() for s in plan.slots],
        }
        for tokens, plan in plans.items()
    ]
    cache_bytes = {}
    for plan in plans.values():
        cache_bytes |= {s.name: s.nbytes for s in plan.slots if s.kind == "cache"}
    decoder = {
        "capacity": room,
        "vocab_size": vocab,
        "logits_type": "float32",
        "recompute": not caches,
        "cache_dtype": cache_dtype,
        "caches": [{"name": n, "bytes": b} for n, b in cache_bytes.items()],
        "plans": described,
    }
    if lora is not None:
        decoder["lora"] = asdict(lora)
        decoder["saved"] = [
            {**asdict(s), "shape": list(graph.constants[s.parameter].shape)} for s in saved
        ]
    return decoder, list(plans.values())


def _decoder_plans(graph, inputs, caches, chunks, fixed, capacity, lora, trainable, cache_dtype):
    """-> ({tokens: Plan}, vocabulary, [lora.Saved])"""
    if not caches:
        chunks = tuple(c for c in RECOMPUTE_CHUNKS if c < capacity) + (capacity,)
    if fixed is not None:
        if fixed > capacity:
            raise InputError(
                f"the model takes {fixed} tokens at a time, which is more than {capacity}",
                "capacity",
                "Give a larger one.",
            )
        chunks = (fixed,)
    plans, vocab, saved = {}, 0, []
    for tokens in sorted({min(c, capacity) for c in chunks}):
        plans[tokens], vocab, saved = _decoder_plan(
            graph, inputs, caches, tokens, capacity, lora, trainable, cache_dtype
        )
    return plans, vocab, saved


def cached_as_halves(graph):
    """Whether a language model declares its keys and values as float16."""
    dtypes = {i.dtype for i in graph.input_names() if CACHE_NAME.search(i.name)}
    return dtypes == {FLOAT16}


def cache_axis(info):
    """Axis of the past length in a cache input, from its declared shape."""
    if not info.shape or len(info.shape) < 3:
        raise UnsupportedOp(
            f"its shape is {info.shape}",
            f"input '{info.name}'",
            "Export the model with past_key_values of shape [batch, heads, past, dim].",
        )
    free = [i for i, d in enumerate(info.shape) if not isinstance(d, int)]
    axis = 2 if len(info.shape) == 4 else next((i for i in free if i), None)
    if (
        len(info.shape) != 4
        or axis not in free
        or any(not isinstance(d, int) for i, d in enumerate(info.shape) if i not in (0, axis))
    ):
        if not (len(info.shape) == 4 and free and set(free) <= {0, 2, 3}):
            raise UnsupportedOp(
                f"its shape is {info.shape}",
                f"input '{info.name}'",
                "Export the model with past_key_values of shape [batch, heads, past, dim].",
            )
    return axis


def head_dim(graph, name, info):
    """Size of a cache's last dimension, from its declaration or its `present` output's."""
    if isinstance(info.shape[3], int):
        return info.shape[3]
    present = {o.name: o for o in graph.outputs}.get(name.replace("past_key_values", "present"))
    if present is not None and present.shape and isinstance(present.shape[-1], int):
        return present.shape[-1]
    for node in graph.nodes:
        if name in node.inputs and node.op == "GroupQueryAttention":
            return _gqa_head_dim(graph, node)
    raise UnsupportedOp(
        f"its shape is {info.shape}",
        f"input '{name}'",
        "Export the model with a fixed head dimension.",
    )


def _gqa_head_dim(graph, node):
    cos = graph.constants.get(node.inputs[7]) if len(node.inputs) > 7 else None
    if cos is not None:
        return 2 * cos.shape[1]
    raise UnsupportedOp(
        "its head dimension is not declared",
        node.where,
        "Export the model with a fixed head dimension.",
    )


def _decoder_plan(graph, inputs, caches, tokens, capacity, lora, trainable, cache_dtype):
    past = Sym(PAST, 1, 0, 0, capacity - tokens) if caches and capacity > tokens else 0
    last = Sym(LAST, 1, 0, 0, tokens - 1) if tokens > 1 else 0
    shapes = {"input_ids": [1, tokens]}
    roles, cache_shapes, known = {}, {}, {}
    for name, axis in caches.items():
        full = [d if isinstance(d, int) else 1 for d in inputs[name].shape]
        full[3] = head_dim(graph, name, inputs[name])
        full[axis] = capacity
        cache_shapes[name], roles[name] = full, "cache"
        shapes[name] = full[:axis] + [past] + full[axis + 1 :]
    if "use_cache_branch" in inputs:
        shapes["use_cache_branch"], known["use_cache_branch"] = [1], [True]
    computed = {}
    if "attention_mask" in inputs:
        dtype = inputs["attention_mask"].dtype
        one = Tensor.of("one", dtype, [1], [1])
        computed["attention_mask"] = lambda b: b.op(
            "ConstantOfShape",
            Value("mask_shape", INT64, [2], numbers=[1, past + tokens]),
            value=one,
        )
    if "position_ids" in inputs:

        def positions(builder):
            dtype = inputs["position_ids"].dtype
            ids = builder.op(
                "Range", *(Value("p", dtype, [], numbers=[x]) for x in (past, past + tokens, 1))
            )
            return builder.op("Unsqueeze", ids, builder.constant(INT64, [1], [0]))

        computed["position_ids"] = positions
    vocab, saved = [], []

    def transform(bound):
        logits = bound.outputs["logits"]
        if logits.rank != 3 or not isinstance(logits.shape[2], int):
            raise UnsupportedOp(
                f"its logits have the shape {logits.shape}",
                "output 'logits'",
                "Export the model for text generation: logits are [batch, sequence, vocabulary].",
            )
        vocab.append(logits.shape[2])
        if logits.shape[1] == tokens and tokens > 1:
            keep_position(bound, "logits", 1, last)
        if lora is not None:
            if lora.modules_to_save or lora.bias != "none":
                saved.extend(saved_parameters(bound, lora))
            insert_lora(bound, lora)

    registers = [("past", 0, capacity - tokens), ("last", 0, tokens - 1)]
    try:
        plan, bound = compile_graph(
            graph,
            shapes,
            None,
            known,
            roles,
            ["logits"],
            cache_shapes,
            registers,
            transform,
            computed,
            float_outputs=True,
            trainable=trainable,
            cache_dtype=cache_dtype,
        )
    except NotStatic as e:
        raise UnsupportedOp(
            f"its use of the past cannot be turned into an in-place cache ({e})",
            graph.name or "model",
            "Run it with InferenceSession, or export it with another exporter.",
        ) from None
    except NeedsValue as e:
        raise UnsupportedOp(
            "a shape depends on the tokens themselves",
            f"value '{e.value.name}'",
            "Run the model with InferenceSession.",
        ) from None
    except NeedsHost as e:
        raise UnsupportedOp(
            "no plan does what it does; a session does it between plans",
            str(e) or graph.name or "model",
            "Run the model with InferenceSession.",
        ) from None
    return plan, vocab[0], saved


def compile_package(
    files,
    dtype=None,
    capacity=None,
    chunks=CHUNKS,
    model_file=None,
    lora=None,
    trainable=(),
    cache_dtype=None,
):
    """Compiles a causal language model.

    Args:
        files: {file name: Source}: the .onnx file, its external data, and config.json,
        tokenizer.json and so on, as in a Hugging Face folder. dtype, model_file: which .onnx file.
        capacity: most tokens of a sequence. lora, trainable, cache_dtype: as compile_causal_lm's.
    Returns:
        Package: plans as blobs; weights stay in their files until the package is written.
    """
    name = model_file or pick_model_file(files, dtype)
    graph = read_model(files[name])
    texts = {}
    for f in TEXT_FILES:
        path = next((p for p in files if p.rsplit("/", 1)[-1] == f), None)
        if path is not None:
            if files[path].size > MAX_TEXT:
                raise ModelError(
                    f"it has {files[path].size} bytes",
                    path,
                    "That is no configuration or tokenizer; fetch it again.",
                )
            texts[f] = files[path].read_all(MAX_TEXT)
    config = parse_json(texts["config.json"], "config.json") if "config.json" in texts else {}
    decoder, plans = compile_causal_lm(
        graph,
        config if isinstance(config, dict) else {},
        capacity,
        chunks,
        lora,
        trainable,
        cache_dtype,
    )
    package = Package(
        {
            "format": FORMAT,
            "table_hash": kernel_table().hash,
            "task": "text-generation",
            "files": {},
            "weights": [],
            "decoder": decoder,
        },
        dict(texts),
        dict(files),
    )
    package.graph = graph
    add_plans(package, [(d["file"], plan) for plan, d in zip(plans, decoder["plans"])])
    return package


def describe_values(infos):
    """Inputs or outputs of a graph for a manifest: [{name, type, dtype, shape}]; shape: sizes,
    names of free dimensions, null; null: unknown rank.
    """
    return [_describe_value(i) for i in infos]


def _describe_value(info):
    """Of what is no tensor also `elem` (of a sequence's or optional's element, a map's values) and
    a map's `key` type.
    """
    shape = (
        None
        if info.shape is None
        else [d if isinstance(d, (int, str)) else None for d in info.shape]
    )
    described = {
        "name": info.name or "element",
        "type": info.kind,
        "dtype": NAME.get(info.dtype, str(info.dtype)),
        "shape": shape,
    }
    if info.elem is not None:
        described["elem"] = _describe_value(info.elem)
    if info.kind == "map":
        described["key"] = NAME.get(info.key_type, str(info.key_type))
    return described


def inference_package(graph, files):
    """A package of task "inference" without plans yet. files: {file name: Source} of the
    model's.
    """
    inference = {
        "inputs": describe_values(graph.input_names()),
        "outputs": describe_values(graph.outputs),
        "plans": [],
    }
    package = Package(
        {
            "format": FORMAT,
            "table_hash": kernel_table().hash,
            "task": "inference",
            "files": {},
            "weights": [],
            "inference": inference,
        },
        {},
        dict(files),
    )
    package.graph = graph
    return package


def add_inference_plan(package, graph, shapes, dtypes, outputs=None, known=None, file=None):
    """Compiles a graph for inputs of these shapes ({name: [int]}) and element types ({name: ONNX
    code}), and puts the plan into the package and its manifest.

    file: name of the part (default: by the number of plans so far).

    Returns the plan's description: {file, inputs: {name: [type, shape]}, outputs: {name: [slot,
    type, shape, bytes]}, slots}, and where they are not empty passed: {name of an output: name of
    the input that it is}: the plan does not compute it, the host gives back what was fed (a
    decoder's cross attention caches); seed: name of an input slot, int64 [1], in which the host
    puts another seed before each run, for random numbers. Raises ir.NeedsValue where a shape
    depends on data.
    """
    names, passed = list(outputs or (o.name for o in graph.outputs)), {}
    plan, bound = compile_graph(
        graph,
        shapes,
        dtypes,
        known,
        outputs=names,
        transform=lambda bound: passed.update(bound.take_passed()),
        run_seed=True,
    )
    names = [n for n in names if n not in passed]
    described = describe_plan(package, plan, bound, names, shapes, dtypes, file)
    if passed:
        described["passed"] = passed
    return described


def described_shape(shape):
    """A shape for a manifest: dimensions that follow a register are [scale, add]."""
    return [[d.scale, d.add] if isinstance(d, Sym) else d for d in shape]


def describe_plan(package, plan, bound, names, shapes, dtypes, file=None):
    """Puts a plan into a package and its manifest. names: the outputs that it computes.

    The others as in add_inference_plan.
    """
    plans = package.manifest["inference"]["plans"]
    file = file or f"plan/{len(plans)}"
    add_plans(package, [(file, plan)])
    slots = {s.name: s.nbytes for s in plan.slots if s.kind == "output"}
    out = {}
    for name in names:
        slot, value = name if name in slots else name + "~output", bound.outputs[name]
        out[name] = [slot, NAME[value.dtype], described_shape(value.shape), slots[slot]]
    described = {
        "file": file,
        "inputs": {n: [NAME[dtypes[n]], described_shape(shapes[n])] for n in shapes},
        "outputs": out,
        "slots": [s.describe() for s in plan.slots],
    }
    if any(s.kind == "input" and s.name == RUN_SEED for s in plan.slots):
        described["seed"] = RUN_SEED
    plans.append(described)
    return described


def compile_inference(files, dims=({},), model_file=None):
    """Compiles any model ahead of time, for pages that run it without Python.

    Args:
        files: {file name: Source}: the .onnx file and its external data. dims: one table {name of a
        free dimension: size} for each plan to make (dimensions.py). model_file: which .onnx file
        (default: the only one).
    Returns:
        Package of task "inference".
    Raises:
        InputError: a dimension has no size. UnsupportedOp: an operator is missing, or a shape
        depends on data.
    """
    graph = read_model(files[model_file or pick_model_file(files)])
    package = inference_package(graph, files)
    other = next((i for i in graph.input_names() if i.kind != "tensor"), None)
    if other is not None:
        raise InputError(
            f"it is a {other.kind}",
            f"input '{other.name}'",
            "Such a model can only be run by Python.",
        )
    for sizes in dims:
        shapes, needs = input_shapes(graph, sizes)
        if needs:
            raise InputError(
                f"it depends on {', '.join(needs)}",
                graph.name or "model",
                "Give sizes: --dims"
                f" {','.join(n + '=1' for n in needs if ' ' not in n) or 'NAME=SIZE'}",
            )
        try:
            add_inference_plan(
                package, graph, shapes, {i.name: i.dtype for i in graph.input_names()}
            )
        except (NeedsHost, NeedsValue, NotStatic) as e:
            raise UnsupportedOp(
                f"what it computes depends on data ({e}): no plan does that alone",
                graph.name or "model",
                "Give the page the .onnx file: Python runs it there.",
            ) from None
    return package


def add_plans(package, plans):
    """Puts plans into a package: [(file name, Plan)], and into its manifest where their weights
    lie.
    """
    package.blobs[NOTES] = add_notes(
        package.blobs.get(NOTES), {file: plan.notes for file, plan in plans}
    )
    paths = {id(s): n for n, s in package.sources.items()}
    weights = {w["name"]: w for w in package.manifest["weights"]}
    small = bytearray(package.blobs.get(CONSTANTS, b""))
    for file, plan in plans:
        package.blobs[file] = plan.data
        package.labels[file] = plan.labels
        package.manifest["kernels"] = sorted(
            {*package.manifest.get("kernels", ()), *plan.kernels}
        )  # by it a page knows whether its engine will do
        for slot in plan.slots:
            if slot.kind == "weight" and slot.name not in weights:
                t = slot.tensor
                if t.source is None:  # a constant the graph itself spells out
                    weights[slot.name] = {
                        "name": slot.name,
                        "file": CONSTANTS,
                        "offset": len(small),
                        "bytes": slot.nbytes,
                    }
                    small += t.data + bytes(-len(t.data) % 64)
                    continue
                weights[slot.name] = _weight_entry(package, paths, slot.name, t, slot.nbytes)
    if small:
        package.blobs[CONSTANTS] = bytes(small)
        package.sources[CONSTANTS] = BytesSource(small, CONSTANTS)
    package.manifest["weights"] = list(weights.values())


def add_weight(package, tensor):
    """Puts a tensor of one of the model's files into the manifest as a weight, under its own
    name.
    """
    weights = package.manifest["weights"]
    if all(w["name"] != tensor.name for w in weights):
        paths = {id(s): n for n, s in package.sources.items()}
        weights.append(_weight_entry(package, paths, tensor.name, tensor, tensor.nbytes))


def _weight_entry(package, paths, name, t, nbytes):
    path = paths.get(id(t.source)) or t.source.name
    known = package.sources.setdefault(path, t.source)
    if known is not t.source and getattr(known, "path", known) != getattr(
        t.source, "path", t.source
    ):
        raise ModelError("two files have this name", path, "Rename one of them.")
    return {"name": name, "file": path, "offset": t.offset, "bytes": nbytes}
