"""Checks of the plans of encoder-decoder models."""

from __future__ import annotations

from ..manifest_limits import CACHE_DTYPES, LIMITS, RUNS, SOURCES
from .checker import Checker, JsonObject
from .decoder import check_caches
from .files import Contents
from .slots import ManifestSlot, check_plan_file, check_slots

Caches = dict[str, int]
# {"input name" or "output name": (dtype, bytes; None: any number)}
Ends = dict[str, tuple[str, int | None]]


def check_seq2seq(c: Checker, manifest: JsonObject, contents: Contents) -> None:
    """Checks `encoder` and `decoder` of a package for a task of manifest_limits.SEQ2SEQ_TASKS."""
    decoder = c.read_object(manifest.get("decoder"), "decoder")
    c.read_integer(decoder.get("capacity"), "decoder.capacity", 2, LIMITS["MAX_CAPACITY"])
    c.read_integer(decoder.get("vocab_size"), "decoder.vocab_size", 1, LIMITS["MAX_VOCABULARY"])
    if decoder.get("logits_type") != "float32":
        c.fail("decoder.logits_type", "is not 'float32'")
    c.read_one_of(decoder.get("cache_dtype", CACHE_DTYPES[0]), "decoder.cache_dtype", CACHE_DTYPES)
    caches = check_caches(c, decoder, "caches")
    cross = check_caches(c, decoder, "cross")
    shared = next((name for name in cross if name in caches), None)
    if shared is not None:
        c.fail("decoder.cross", f"has '{shared}' as well")
    positions = _check_encoder(c, manifest, contents, cross)
    _check_plans(c, decoder, contents, {**caches, **cross}, positions)


def _check_plans(
    c: Checker, decoder: JsonObject, contents: Contents, caches: Caches, positions: int
) -> None:
    """Checks the decoder's plans. positions: of the longest output of the encoder."""
    capacity, vocabulary = decoder["capacity"], decoder["vocab_size"]
    kinds: list[tuple[str, int]] = []
    plans = c.read_list(decoder.get("plans"), "decoder.plans", LIMITS["MAX_DECODER_PLANS"])
    for i, entry in enumerate(plans):
        at = f"decoder.plans[{i}]"
        plan = c.read_object(entry, at)
        kind = c.read_one_of(plan.get("kind"), f"{at}.kind", RUNS)
        tokens = c.read_integer(plan.get("tokens"), f"{at}.tokens", 1, capacity)
        if kind == "step" and tokens != 1:
            c.fail(f"{at}.tokens", "is not 1")
        if (kind, tokens) in kinds:
            c.fail("decoder.plans", f"has two plans '{kind}' for {tokens} tokens")
        kinds.append((kind, tokens))
        ends: Ends = {"input input_ids": ("int64", 8 * tokens)}
        if kind == "align":
            ends["input rows"] = "float32", 4 * tokens
            ends["output alignment"] = "float32", 4 * tokens * positions
        else:
            ends["output logits"] = "float32", 4 * vocabulary
        check_plan_file(c, plan, at, contents)
        _check_registers(c, plan, at)
        slots = check_slots(c, plan.get("slots"), f"{at}.slots", contents)
        _check_slots(c, slots, at, caches, ends, positions if kind == "align" else 0)
    for wanted in (("step", 1), ("first", capacity)):
        if wanted not in kinds:
            c.fail("decoder.plans", f"has no plan '{wanted[0]}' for {wanted[1]} tokens")


def _check_encoder(c: Checker, manifest: JsonObject, contents: Contents, cross: Caches) -> int:
    """Checks the encoder's plans; returns the most positions of its output."""
    encoder = c.read_object(manifest.get("encoder"), "encoder")
    name = c.read_one_of(encoder.get("input"), "encoder.input", SOURCES)
    for field in ("masked", "fixed"):
        if not isinstance(encoder.get(field), bool):
            c.fail(f"encoder.{field}", "is neither true nor false")
    most = 0
    entries = c.read_list(encoder.get("plans"), "encoder.plans", LIMITS["MAX_DECODER_PLANS"])
    for i, value in enumerate(entries):
        at = f"encoder.plans[{i}]"
        entry = c.read_object(value, at)
        size = c.read_integer(entry.get("size"), f"{at}.size", 1, LIMITS["MAX_LENGTH"])
        positions = c.read_integer(entry.get("positions"), f"{at}.positions", 1, size)
        most = max(most, positions)
        ends: Ends = {
            f"input {name}": ("int64", 8 * size) if name == "input_ids" else ("float32", None),
            **({"input attention_mask": ("int64", 8 * size)} if encoder["masked"] else {}),
        }
        outside = name == "encoder_hidden_states"  # then a program is the encoder
        *run, keys = c.read_tuple(entry.get("plans"), f"{at}.plans", 1 if outside else 2)
        hidden = None
        if run:
            hidden = _check_part(c, run[0], f"{at}.plans[0]", contents, "output", ends)
        _check_part(c, keys, f"{at}.plans[{len(run)}]", contents, "input", {}, cross, hidden)
    if not most:
        c.fail("encoder.plans", "has no plan")
    return most


def _check_part(
    c: Checker,
    value: object,
    at: str,
    contents: Contents,
    kind: str,
    ends: Ends,
    caches: Caches | None = None,
    hidden: int | None = None,
) -> int:
    """Checks a plan that writes (`kind` is "output") or reads the encoder's output, of `hidden`
    bytes; returns these bytes.
    """
    plan = c.read_object(value, at)
    check_plan_file(c, plan, at, contents)
    slots = check_slots(c, plan.get("slots"), f"{at}.slots", contents)
    found = [slot for slot in slots if slot.kind == kind]
    if len(found) != 1 or found[0].dtype != "float32":
        c.fail(at, f"has not one {kind} of float32")
    nbytes = found[0].nbytes
    if hidden not in (None, nbytes):
        c.fail(found[0].path, f"has not the {hidden} bytes of the encoder's output")
    _check_slots(
        c, slots, at, caches or {}, {**ends, f"{kind} {found[0].name}": ("float32", nbytes)}, 0
    )
    return nbytes


def _check_registers(c: Checker, plan: JsonObject, at: str) -> None:
    registers = c.read_object(plan.get("registers"), f"{at}.registers")
    for number, name in enumerate(("past", "last", "source")):
        c.read_integer(registers.get(name), f"{at}.registers.{name}", number, number)
    if len(registers) != 3:
        c.fail(f"{at}.registers", "has registers other than 'past', 'last' and 'source'")


def _check_slots(
    c: Checker, slots: list[ManifestSlot], at: str, caches: Caches, ends: Ends, frames: int
) -> None:
    """Checks that a host can bind the slots.

    Args:
        c: the checker.
        slots: of a plan.
        at: the plan's position in the manifest.
        caches: that it may read or write.
        ends: inputs and outputs, all of which it has.
        frames: if not 0, there is also the input `frames`, of at least so many int64.
    """
    missing = set(ends) | ({"input frames"} if frames else set())
    for path, name, kind, dtype, _, nbytes in slots:
        if kind == "state":
            c.fail(path, "is a state, which such a plan cannot have")
        if kind == "cache" and caches.get(name) != nbytes:
            c.fail(
                path, f"is the cache '{name}' of {nbytes} bytes, which the decoder does not have"
            )
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
