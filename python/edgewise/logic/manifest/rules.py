"""Rules of manifests that follow from several fields: of files, weights, slots and plans.

They are for values that agree with the schema (schema.py); `Checker.check` comes first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..generation.sliding import rows_of
from .checker import Checker
from .limits import (
    FEATURES,
    MAX_DRAWN,
    MAX_FILE,
    MAX_LENGTH,
    MAX_SIZE,
    MAX_TEMPS,
    PIECE,
    POSITIONS,
    REACH,
    SELECTED,
    STATE_SIZES,
    TRAINING_PLANS,
    WEIGHT_FILES,
)
from .processor import MAX_SPEECH_TOKENS, Processor, SpeechFields
from .schema import (
    Cache,
    Decoder,
    DecoderPlan,
    DecoderRegisters,
    Encoder,
    Manifest,
    ManifestSlot,
    PlanFile,
    Seq2SeqDecoder,
    Seq2SeqPlan,
    State,
    TrainingPlan,
    TrainingProgram,
    Weight,
)

End = tuple[str, int | None]
"""dtype and bytes of an input or output; None: any number."""


@dataclass
class Contents:
    """What plans of the package may refer to.

    Attributes:
        files: (offset, bytes) of each part.
        weights: bytes of each weight.
        adapters: bytes of the adapters' states, which the decoder's plans read.
        computed: bytes of each computed slot; plans share their memory.
        own: whether the package is in a page's own storage, where weights may be in other files.
    """

    files: Mapping[str, tuple[int, int]]
    weights: dict[str, int] = field(default_factory=dict)
    adapters: dict[str, int] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)
    own: bool = False


# ---- files and weights
def check_files(c: Checker, manifest: Manifest, data_bytes: int | None) -> None:
    """Checks `files` and `sha256`. data_bytes: size of the data section; None: unknown."""
    end = 0
    spans: list[tuple[int, int, str]] = []
    for name, (offset, nbytes) in manifest["files"].items():
        most = MAX_SIZE if name == "weights" else MAX_FILE
        c.read_integer(nbytes, f"the size of file '{name}'", 0, most)
        if data_bytes is not None and offset + nbytes > data_bytes:
            c.fail(
                f"file '{name}'",
                f"has {nbytes} bytes at {offset} in the data, which has {data_bytes}",
                "The package is truncated or damaged: fetch it again.",
            )
        end = max(end, offset + nbytes)
        if nbytes:
            spans.append((offset, nbytes, name))
    if data_bytes is not None and data_bytes > -(-end // 64) * 64:
        c.fail("the data", f"ends at byte {end}, and {data_bytes - end} bytes follow it")
    # Files that overlap would let a short package request any amount of memory.
    reached = 0
    for offset, nbytes, name in sorted(spans):
        if offset < reached:
            c.fail(f"file '{name}'", "overlaps another one")
        reached = offset + nbytes
    for name in manifest["sha256"]:
        if name not in manifest["files"] or name == "weights":
            c.fail(f"sha256['{name}']", "refers to a missing file")
    for name in manifest["files"]:
        if name != "weights" and name not in manifest["sha256"]:
            c.fail("sha256", f"lacks the file '{name}'")


def check_weights(c: Checker, weights: Sequence[Weight], contents: Contents) -> None:
    """Checks `weights`, and adds them to the contents."""
    spans: dict[str, list[tuple[int, int, int]]] = {}
    for i, weight in enumerate(weights):
        at = f"weights[{i}]"
        name, file, nbytes = weight["name"], weight["file"], weight["bytes"]
        if file in contents.files:
            _check_inside(c, weight, at, contents.files[file][1])
            if nbytes:
                spans.setdefault(file, []).append((weight["offset"], nbytes, i))
        elif not contents.own or file in WEIGHT_FILES:
            c.fail(at, f"lies in the file '{file}', which is not in the package")
        if name in contents.weights:
            c.fail(at, f"has the duplicate name '{name}'")
        contents.weights[name] = nbytes
        if file == "weights" or "sums" in weight:
            c.read_tuple(weight.get("sums"), f"{at}.sums", -(-nbytes // PIECE))
        if nbytes % weight.get("experts", 1):
            c.fail(at, f"has {nbytes} bytes, which are no equal parts for its experts")
    for file_spans in spans.values():
        reached = 0
        for offset, nbytes, i in sorted(file_spans):
            if offset < reached:
                c.fail(f"weights[{i}]", "overlaps another one")
            reached = offset + nbytes


def _check_inside(c: Checker, weight: Weight, at: str, size: int) -> None:
    """Checks a weight in a part of the package, of so many bytes."""
    file, offset, nbytes = weight["file"], weight["offset"], weight["bytes"]
    if file not in WEIGHT_FILES:
        c.fail(at, f"lies in the file '{file}', which does not contain weights")
    if offset + nbytes > size:
        c.fail(at, f"has {nbytes} bytes at {offset} in the file '{file}', which has {size}")
    if "power" in weight:
        c.fail(at, "has a power, which only those outside of the package have")


# ---- slots
def check_plan(c: Checker, plan: PlanFile, at: str, contents: Contents) -> None:
    """Checks the file of a plan, and its slots."""
    check_plan_file(c, plan["file"], at, contents)
    check_slots(c, plan["slots"], f"{at}.slots", contents)


def check_plan_file(c: Checker, file: str, at: str, contents: Contents) -> None:
    """Checks that the file of a plan is in the package."""
    if file not in contents.files or file in WEIGHT_FILES:
        c.fail(f"{at}.file", f"is '{file}', which is not a plan in the package")


def check_slots(c: Checker, slots: Sequence[ManifestSlot], at: str, contents: Contents) -> None:
    """Checks the rules that hold for the slots of all plans; adds computed slots to `contents`."""
    names: set[str] = set()
    temps = 0
    for i, slot in enumerate(slots):
        key = f"{slot['kind']} {slot['name']}"
        if key in names:
            c.fail(f"{at}[{i}]", f"has the duplicate name '{slot['name']}'")
        names.add(key)
        _check_slot(c, slot, f"{at}[{i}]", contents)
        temps += slot["kind"] == "temp"
    if temps > MAX_TEMPS:
        c.fail(at, f"has {temps} slots of kind 'temp'")


def _check_slot(c: Checker, slot: ManifestSlot, path: str, contents: Contents) -> None:
    name, kind, nbytes = slot["name"], slot["kind"], slot["bytes"]
    if kind == "weight":
        if name not in contents.weights:
            c.fail(path, f"is the weight '{name}', which is not in the package")
        if contents.weights[name] != nbytes:
            there = contents.weights[name]
            c.fail(path, f"has {nbytes} bytes, the weight '{name}' has {there}")
    if kind == "state":
        check_size(c, slot["dtype"], slot["shape"], nbytes, path)
    if kind == "computed":
        if name in contents.weights:
            c.fail(path, f"has the same name as the weight '{name}'")
        there = contents.computed.setdefault(name, nbytes)
        if there != nbytes:
            c.fail(path, f"has {nbytes} bytes, but {there} in another plan")


def check_size(c: Checker, dtype: str, shape: Sequence[int], nbytes: int, path: str) -> None:
    """Checks the bytes of a state."""
    if dtype not in STATE_SIZES or math.prod(shape) * STATE_SIZES[dtype] != nbytes:
        dims = ", ".join(str(d) for d in shape)
        c.fail(path, f"has {nbytes} bytes, which do not match {dtype[:40]} [{dims}]")


# ---- language models
def caches_of(c: Checker, caches: Sequence[Cache], at: str) -> dict[str, int]:
    """Bytes of each cache."""
    found: dict[str, int] = {}
    for i, cache in enumerate(caches):
        if cache["name"] in found:
            c.fail(f"{at}[{i}]", f"has the duplicate name '{cache['name']}'")
        found[cache["name"]] = cache["bytes"]
    return found


def check_decoder(c: Checker, decoder: Decoder, contents: Contents) -> None:
    """Checks `decoder`, the part of a package of task "text-generation"."""
    for i, saved in enumerate(decoder.get("saved") or []):
        at = f"decoder.saved[{i}]"
        if saved["parameter"] not in contents.weights:
            c.fail(at, f"names the weight '{saved['parameter']}', which is not in the package")
        if saved["transposed"] and len(saved["shape"]) != 2:
            c.fail(at, "is the transpose of what is not a matrix")
    if decoder.get("lora") is not None:
        c.read_object(decoder["lora"], "decoder.lora")
    caches = caches_of(c, decoder["caches"], "decoder.caches")
    _check_rows(c, decoder)
    if decoder["recompute"] != (not caches):
        c.fail("decoder.recompute", "contradicts decoder.caches")
    tokens: list[int] = []
    for i, plan in enumerate(decoder["plans"]):
        at = f"decoder.plans[{i}]"
        c.read_integer(plan["tokens"], f"{at}.tokens", 1, decoder["capacity"])
        if plan["tokens"] in tokens:
            c.fail("decoder.plans", f"has two plans for {plan['tokens']} tokens")
        tokens.append(plan["tokens"])
        check_plan(c, plan, at, contents)
        room = plan["registers"].get("room")
        _check_registers(c, plan["registers"], decoder.get("window") is not None, f"{at}.registers")
        if (room is None) != (decoder["plans"][0]["registers"].get("room") is None):
            c.fail(f"{at}.registers", "differs from those of the other plans in 'room'")
        kinds: set[str] = set()
        inputs: set[str] = set()
        for s, slot in enumerate(plan["slots"]):
            kinds.add(slot["kind"])
            _check_decoder_slot(c, slot, f"{at}.slots[{s}]", contents, caches)
            _check_ends(c, slot, f"{at}.slots[{s}]", plan, decoder)
            if slot["kind"] == "input":
                inputs.add(slot["name"])
        if "input" not in kinds or "output" not in kinds:
            c.fail(at, "lacks the input 'input_ids' or the output 'logits'")
        for name in fed_bytes(decoder, plan["tokens"]):
            if name not in inputs:
                c.fail(at, f"lacks the input '{name}'")
    if not tokens:
        c.fail("decoder.plans", "has no plan")
    if decoder["recompute"] and max(tokens) != decoder["capacity"]:
        c.fail("decoder.plans", f"has no plan for {decoder['capacity']} tokens")


def _check_registers(c: Checker, registers: DecoderRegisters, sliding: bool, at: str) -> None:
    """Checks the numbers of registers. sliding: whether there are caches of a sliding window."""
    numbers = [registers.get(n) for n in ("room", "rows", "held", "dropped", "window")]
    given = [n for n in numbers if n is not None]
    if len(registers) != 2 + len(given) or given != list(range(2, 2 + len(given))):
        names = "'past', 'last', 'room', 'rows', 'held', 'dropped' and 'window'"
        c.fail(at, f"has registers other than {names}, or others in this order")
    if any((n is not None) != sliding for n in numbers[2:]) or sliding and numbers[0] is None:
        c.fail(at, "contradicts decoder.window")


def _check_rows(c: Checker, decoder: Decoder) -> None:
    """Checks the parts of caches that grow."""
    window = decoder.get("window")
    longest = max([plan["tokens"] for plan in decoder["plans"]], default=1)
    if window is not None and window["rows"] < rows_of(window["size"], longest):
        c.fail("decoder.window.rows", f"is less than {rows_of(window['size'], longest)}")
    growing = any(plan["registers"].get("room") is not None for plan in decoder["plans"])
    for i, cache in enumerate(decoder["caches"]):
        rows = cache.get("rows")
        at = f"decoder.caches[{i}].rows"
        if rows is None:
            if growing and not cache.get("fixed"):
                c.fail(at, "is missing: the plans have a register 'room'")
            continue
        if cache.get("fixed"):
            c.fail(at, "is of a state that does not grow")
        count = decoder["capacity"]
        if cache.get("sliding"):
            count = 0 if window is None else window["rows"]
        if rows[0] * rows[1] * count != cache["bytes"]:
            c.fail(at, f"does not give {cache['bytes']} bytes for {count} tokens")


def _check_decoder_slot(
    c: Checker, slot: ManifestSlot, path: str, contents: Contents, caches: dict[str, int]
) -> None:
    """Checks slots that are bound to adapters' states or to caches."""
    _check_adapter(c, slot, path, contents)
    name, kind, nbytes = slot["name"], slot["kind"], slot["bytes"]
    if kind == "cache" and caches.get(name) != nbytes:
        c.fail(path, f"is the cache '{name}' of {nbytes} bytes, which decoder.caches does not have")
    if kind == "computed" and name in caches:
        c.fail(path, f"has the same name as the cache '{name}'")


def _check_adapter(c: Checker, slot: ManifestSlot, path: str, contents: Contents) -> None:
    """Checks a state of a plan that generates."""
    name, kind, nbytes = slot["name"], slot["kind"], slot["bytes"]
    if kind == "state" and name in contents.weights:
        c.fail(path, f"has the same name as the weight '{name}'")
    if kind == "state" and contents.adapters.get(name) != nbytes:
        c.fail(path, f"is the state '{name}' of {nbytes} bytes, which no adapter in 'training' has")


def fed_bytes(decoder: Decoder, tokens: int) -> dict[str, End]:
    """The inputs of a decoder's plan for so many tokens: element type and bytes of each."""
    found: dict[str, End] = {"input_ids": ("int64", 8 * tokens)}
    hidden = decoder.get("features")
    if hidden is not None:
        found[FEATURES] = ("float32", 4 * tokens * hidden)
        found[SELECTED] = ("int64", 8 * tokens)
    if decoder.get("positions"):
        found[POSITIONS] = ("int64", 24 * tokens)
    if decoder.get("sees"):
        found[REACH] = ("int64", 8 * tokens)
    return found


def _check_ends(
    c: Checker, slot: ManifestSlot, path: str, plan: DecoderPlan, decoder: Decoder
) -> None:
    """Checks an input or the output of a plan."""
    tokens, vocabulary = plan["tokens"], decoder["vocab_size"]
    if slot["kind"] == "input":
        wanted = fed_bytes(decoder, tokens).get(slot["name"])
        if wanted is None or slot["dtype"] != wanted[0] or slot["bytes"] != wanted[1]:
            c.fail(path, f"is not the one input 'input_ids', int64 [1, {tokens}]")
    rows = tokens if "rows" in plan["registers"] else 1
    if slot["kind"] == "output" and not _is(slot, "logits", "float32", 4 * rows * vocabulary):
        c.fail(path, f"is not the one output 'logits', float32 [{rows}, {vocabulary}]")


def _is(slot: ManifestSlot, name: str, dtype: str, nbytes: int) -> bool:
    return slot["name"] == name and slot["dtype"] == dtype and slot["bytes"] == nbytes


# ---- encoder-decoder models
def check_seq2seq(
    c: Checker, encoder: Encoder, decoder: Seq2SeqDecoder, contents: Contents
) -> None:
    """Checks `encoder` and `decoder` of a package for a task of limits.SEQ2SEQ_TASKS."""
    caches = caches_of(c, decoder["caches"], "decoder.caches")
    cross = caches_of(c, decoder["cross"], "decoder.cross")
    for name in cross:
        if name in caches:
            c.fail("decoder.cross", f"has '{name}' as well")
    positions = _check_encoder(c, encoder, contents, cross)
    capacity = decoder["capacity"]
    kinds: set[str] = set()
    for i, plan in enumerate(decoder["plans"]):
        at = f"decoder.plans[{i}]"
        kind, tokens = plan["kind"], plan["tokens"]
        c.read_integer(tokens, f"{at}.tokens", 1, capacity)
        if kind == "step" and tokens != 1:
            c.fail(f"{at}.tokens", "is not 1")
        if f"{kind} {tokens}" in kinds:
            c.fail("decoder.plans", f"has two plans '{kind}' for {tokens} tokens")
        kinds.add(f"{kind} {tokens}")
        if len(plan["registers"]) != 3:
            c.fail(f"{at}.registers", "has registers other than 'past', 'last' and 'source'")
        check_plan(c, plan, at, contents)
        ends = _ends_of(plan, decoder["vocab_size"], positions)
        frames = positions if kind == "align" else 0
        _check_bound(c, plan["slots"], at, {**caches, **cross}, ends, frames, contents)
    for wanted, count in (("step", 1), ("first", capacity)):
        if f"{wanted} {count}" not in kinds:
            c.fail("decoder.plans", f"has no plan '{wanted}' for {count} tokens")


def _ends_of(plan: Seq2SeqPlan, vocabulary: int, positions: int) -> dict[str, End]:
    """Inputs and outputs of a decoder's plan."""
    tokens = plan["tokens"]
    ends: dict[str, End] = {"input input_ids": ("int64", 8 * tokens)}
    if plan["kind"] == "align":
        ends["input rows"] = ("float32", 4 * tokens)
        ends["output alignment"] = ("float32", 4 * tokens * positions)
    else:
        ends["output logits"] = ("float32", 4 * vocabulary)
    return ends


def _check_encoder(c: Checker, encoder: Encoder, contents: Contents, cross: dict[str, int]) -> int:
    """Checks the encoder's plans; returns the most positions of its output."""
    most = 0
    name = encoder["input"]
    count = 1 if name == "encoder_hidden_states" else 2  # 1: a program is the encoder
    for i, entry in enumerate(encoder["plans"]):
        at = f"encoder.plans[{i}]"
        size = entry["size"]
        most = max(most, c.read_integer(entry["positions"], f"{at}.positions", 1, size))
        c.read_tuple(entry["plans"], f"{at}.plans", count)
        ends: dict[str, End] = {}
        ends[f"input {name}"] = ("int64", 8 * size) if name == "input_ids" else ("float32", None)
        if encoder["masked"]:
            ends["input attention_mask"] = ("int64", 8 * size)
        hidden: int | None = None
        for k, plan in enumerate(entry["plans"]):
            last = k == count - 1
            path = f"{at}.plans[{k}]"
            check_plan(c, plan, path, contents)
            end, nbytes = _hidden(c, plan, path, "input" if last else "output", hidden)
            hidden = nbytes
            own: dict[str, End] = {} if last else ends
            allowed = {**own, end: ("float32", nbytes)}
            held = cross if last else {}
            _check_bound(c, plan["slots"], path, held, allowed, 0, contents)
    if not most:
        c.fail("encoder.plans", "has no plan")
    return most


def _hidden(
    c: Checker, plan: PlanFile, path: str, kind: str, hidden: int | None
) -> tuple[str, int]:
    """The slot that is the encoder's output, and its bytes.

    Args:
        kind: "output" of the encoder, or "input".
        hidden: bytes of the encoder's output; None: not known yet.
    """
    found = [(i, slot) for i, slot in enumerate(plan["slots"]) if slot["kind"] == kind]
    if len(found) != 1 or found[0][1]["dtype"] != "float32":
        c.fail(path, f"has not one {kind} of float32")
    i, slot = found[0]
    if hidden is not None and hidden != slot["bytes"]:
        c.fail(f"{path}.slots[{i}]", f"has not the {hidden} bytes of the encoder's output")
    return f"{kind} {slot['name']}", slot["bytes"]


def _check_bound(
    c: Checker,
    slots: Sequence[ManifestSlot],
    at: str,
    caches: dict[str, int],
    ends: dict[str, End],
    frames: int,
    contents: Contents,
) -> None:
    """Checks that a host can bind the slots of a plan.

    Args:
        c: the checker.
        slots: of a plan.
        at: the plan's position in the manifest.
        caches: that it may read or write.
        ends: inputs and outputs, all of which it has.
        frames: if not 0, there is also the input `frames`, of at least so many int64.
        contents: of the package, with its adapters.
    """
    missing = {*ends, "input frames"} if frames else {*ends}
    for i, slot in enumerate(slots):
        path = f"{at}.slots[{i}]"
        name, kind, dtype, nbytes = slot["name"], slot["kind"], slot["dtype"], slot["bytes"]
        _check_adapter(c, slot, path, contents)
        if kind == "cache" and caches.get(name) != nbytes:
            there = f"is the cache '{name}' of {nbytes} bytes"
            c.fail(path, f"{there}, which the decoder does not have")
        if kind == "computed" and name in caches:
            c.fail(path, f"has the same name as the cache '{name}'")
        if kind not in ("input", "output"):
            continue
        end = f"{kind} {name}"
        missing.discard(end)
        if frames and end == "input frames":
            if dtype != "int64" or nbytes % 8 or nbytes < 8 * frames:
                c.fail(path, f"is not int64 of at least {frames}")
            continue
        want = ends.get(end)
        if want is None or dtype != want[0] or want[1] not in (None, nbytes):
            c.fail(path, f"is the {end}, {dtype[:40]} of {nbytes} bytes, which no host knows")
    if missing:
        c.fail(at, f"lacks the {min(missing)}")


# ---- training
STATES = "encoder_hidden_states"
"""The input of a decoder's training that is the output of the encoder."""


def check_training(
    c: Checker, programs: Sequence[TrainingProgram], decoder: Decoder | None, contents: Contents
) -> None:
    """Checks `training`; adds the programs' adapters to `contents`. decoder: of a language model,
    whose inputs its programs have.
    """
    names: set[str] = set()
    for i, program in enumerate(programs):
        at = f"training[{i}]"
        if program["name"] in names:
            c.fail(at, f"has the duplicate name '{program['name']}'")
        names.add(program["name"])
        states = _check_states(c, program["states"], f"{at}.states", contents)
        tokens = program["batch"] * program["sequence"]
        fed: dict[str, End] = {} if decoder is None else fed_bytes(decoder, tokens)
        for kind, required in TRAINING_PLANS.items():
            plan = program["plans"].get(kind)
            if plan is None:  # of those that need not be there
                continue
            path = f"{at}.plans.{kind}"
            _check_training_plan(c, plan, path, required, program, fed, states, contents)
        for state in program["states"]:
            if state["kind"] == "adapter":
                if state["name"] in contents.adapters:
                    c.fail(
                        f"training '{program['name']}'",
                        f"has the adapter '{state['name']}' of another program",
                    )
                contents.adapters[state["name"]] = state["bytes"]


def _check_states(
    c: Checker, states: Sequence[State], at: str, contents: Contents
) -> dict[str, int]:
    """Bytes of each state."""
    found: dict[str, int] = {}
    for i, state in enumerate(states):
        path = f"{at}[{i}]"
        check_size(c, state["dtype"], state["shape"], state["bytes"], path)
        _check_initial(c, state, path, contents)
        if state["name"] in found:
            c.fail(path, f"has the duplicate name '{state['name']}'")
        found[state["name"]] = state["bytes"]
    return found


def _check_initial(c: Checker, state: State, path: str, contents: Contents) -> None:
    """Checks ["constant", weight], ["fill", value], or [distribution, scale, stream]."""
    at = f"{path}.initial"
    entries = c.read_list(state["initial"], at, 3)
    method, first, second = [*entries, None, None, None][:3]
    if method == "constant":
        name = c.read_name(first, f"{at}[1]")
        if name not in contents.weights:
            c.fail(path, f"is initialized from the weight '{name}', which is not in the package")
    elif method in ("fill", "uniform", "normal"):
        c.read_number(first, f"{at}[1]")
        if method != "fill":
            c.read_integer(second, f"{at}[2]", 0, MAX_DRAWN)
    else:
        c.fail(at, "is not one of 'constant', 'fill', 'uniform' and 'normal'")


def _check_training_plan(
    c: Checker,
    plan: TrainingPlan,
    at: str,
    required: Sequence[str],
    program: TrainingProgram,
    fed: dict[str, End],
    states: dict[str, int],
    contents: Contents,
) -> None:
    """Checks a plan of a program.

    Args:
        required: inputs and outputs that it has.
        fed: further inputs that it may have.
    """
    check_plan(c, plan, at, contents)
    ids = 8 * program["batch"] * program["sequence"]
    inputs: dict[str, End] = {
        **fed,
        "input_ids": ("int64", ids),
        "labels": ("int64", ids),
        "token_weights": ("float32", ids // 2),
        "learning_rate": ("float32", 4),
        "gradient_scale": ("float32", 4),
        "seed": ("int64", 8),
    }
    told = program.get("top_k") or 0
    if told:
        inputs["teacher_ids"] = ("int64", ids * told)
        inputs["teacher_log_probs"] = ("float32", ids * told // 2)
    source = program.get("source")
    hidden = [s["bytes"] for s in plan["slots"] if s["name"] == STATES and s["kind"] == "input"]
    if source is not None and hidden:
        row = 4 * program["batch"] * source
        if hidden[0] % row:
            c.fail(at, f"has no {source} positions in the {hidden[0]} bytes of '{STATES}'")
        inputs[STATES] = ("float32", hidden[0])
        inputs["encoder_attention_mask"] = ("int64", 2 * row)
    needed = [*required, STATES] if source is not None and "labels" in required else required
    present: set[str] = set()
    for i, slot in enumerate(plan["slots"]):
        path = f"{at}.slots[{i}]"
        name, kind, dtype, nbytes = slot["name"], slot["kind"], slot["dtype"], slot["bytes"]
        if kind == "state" and states.get(name) != nbytes:
            where = f"{at.partition('.plans.')[0]}.states"
            c.fail(path, f"is the state '{name}' of {nbytes} bytes, which {where} does not have")
        if kind == "cache":
            c.fail(path, "is a cache, which training does not have")
        if kind == "input" and inputs.get(name) != (dtype, nbytes):
            what = f"is an input '{name}' ({dtype[:40]}, {nbytes} bytes)"
            c.fail(path, f"{what} that training does not feed")
        losses = at.endswith(".evaluate") and _is(slot, "token_losses", "float32", ids // 2)
        if kind == "output" and not losses and not _is(slot, "loss", "float32", 4):
            c.fail(path, "is not the one output 'loss', float32")
        if kind in ("input", "output"):
            present.add(name)
    for name in needed:
        if name not in present:
            c.fail(at, f"lacks '{name}'")


# ---- processors
def check_processor(c: Checker, processor: Processor) -> None:
    """Checks `processor` of a manifest."""
    if "speech" in processor:
        _check_speech(c, processor["speech"], "processor.speech")


def _check_speech(c: Checker, speech: SpeechFields, at: str) -> None:
    c.read_integer(speech["most"], f"{at}.most", speech["least"], MAX_SPEECH_TOKENS)
    if "length" in speech:
        low, high = c.read_tuple(speech.get("frames"), f"{at}.frames", 2)
        c.read_integer(low, f"{at}.frames[0]", 0, MAX_LENGTH)
        c.read_integer(high, f"{at}.frames[1]", low, MAX_LENGTH)
    path = f"{at}.vocabulary"
    lists = speech["type"] == "piper"
    vocabulary = c.read_object(speech["vocabulary"], path)
    for unit, ids in vocabulary.items():
        for number in c.read_list(ids, f"{path}['{unit}']") if lists else [ids]:
            c.read_integer(number, f"{path}['{unit}']", -(1 << 31), 1 << 31)
    for mark in "^_$" if lists else "":
        if mark not in vocabulary:
            c.fail(path, f"has no '{mark}'")
