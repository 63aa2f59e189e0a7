"""Checks the manifest of an `.edge` package: everything that hosts rely on, before anything is
allocated.

web/src/worker/package/package.ts and web/src/worker/inference/manifest.ts do the same, rule by
rule: a package that one of the two readers accepts, the other accepts as well
(tests/hostile/test_readers.py runs both). The limits of both are those of manifest_limits.py.
Whether a package fits into a host's memory is not decided here.
"""

from __future__ import annotations

import json
import re
import struct
from math import isfinite, prod

from .element_types import ELEMENT_BITS
from .errors import PackageError
from .manifest_limits import (
    CACHE_DTYPES,
    FORMAT,
    KINDS,
    LIMITS,
    PIECE,
    STATE_KINDS,
    STATE_SIZES,
    TASKS,
    TRAINING_PLANS,
    WEIGHT_FILES,
    WRITABLE_KINDS,
)

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_REMEDY = (
    "The package is damaged or was made by another version: fetch it again, or build it again with"
    " `edgewise build`."
)


class Checker:
    """Reads JSON values; errors say where in the manifest something is wrong. where: the package's
    name.
    """

    def __init__(self, where: str):
        self.where = where

    def fail(self, path: str, what: str, remedy: str = _REMEDY):
        """Raises PackageError."""
        raise PackageError(f"{path[:300]} {what}", self.where, remedy)

    def object(self, value, path: str) -> dict:
        """A JSON object."""
        if not isinstance(value, dict):
            self.fail(path, "is not an object")
        return value

    def list(self, value, path: str, most: int = LIMITS["MAX_LIST"]) -> list:
        """A list of at most so many entries."""
        if not isinstance(value, list):
            self.fail(path, "is not a list")
        if len(value) > most:
            self.fail(path, f"has {len(value)} entries")
        return value

    def tuple(self, value, path: str, count: int) -> list:
        """A list of exactly so many entries."""
        if len(self.list(value, path)) != count:
            self.fail(path, f"has {len(value)} entries, not {count}")
        return value

    def text(self, value, path: str) -> str:
        """A name: not empty, not long, no half of a surrogate pair."""
        most = LIMITS["MAX_TEXT"]
        if (
            not isinstance(value, str)
            or not value
            or len(value) > most
            or _LONE_SURROGATE.search(value)
            or len(value) > most // 2
            and len(value.encode("utf-16-le")) > 2 * most
        ):
            self.fail(path, "is not a name")
        return value

    def one_of(self, value, path: str, among) -> str:
        """One of some names."""
        if self.text(value, path) not in among:
            self.fail(path, f"is '{value[:40]}'")
        return value

    def integer(self, value, path: str, low: int = 0, high: int = LIMITS["MAX_SIZE"]) -> int:
        """A whole number within limits."""
        if type(value) is not int:
            self.fail(path, "is not a whole number")
        if not low <= value <= high:
            self.fail(path, f"is {value}, not between {low} and {high}")
        return value

    def number(self, value, path: str) -> float:
        """A finite number."""
        if type(value) not in (int, float) or not isfinite(value):
            self.fail(path, "is not a number")
        return value

    def shape(self, value, path: str) -> list:
        """Dimensions of a tensor in a plan."""
        for i, d in enumerate(self.list(value, path, LIMITS["MAX_RANK"])):
            self.integer(d, f"{path}[{i}]")
        return value


def read_json(text: bytes):
    """The JSON value, numbers as JavaScript has them (1.0 is 1).

    Raises ValueError, also where lists and objects are nested too deeply.
    """

    def whole(digits):
        return int(digits) if len(digits) <= 17 else float(digits)

    def real(digits):
        x = float(digits)
        return int(x) if abs(x) < 1 << 53 and x.is_integer() else x

    def constant(name):
        raise ValueError(f"{name} is no JSON")

    try:
        value = json.loads(
            text.decode(), parse_int=whole, parse_float=real, parse_constant=constant
        )
    except RecursionError:
        raise ValueError("lists and objects are nested too deeply") from None
    level = [value]
    for _ in range(LIMITS["MAX_DEPTH"]):
        level = [
            x
            for one in level
            for x in (
                one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            )
        ]
        if not level:
            return value
    raise ValueError("lists and objects are nested too deeply")


def check_format(manifest, where: str) -> None:
    """Raises PackageError where a JSON value is no manifest, or one of another version."""
    c = Checker(where)
    found = c.object(manifest, "the manifest").get("format")
    if type(found) is not int or found != FORMAT:
        c.fail(
            "its format",
            f"is {json.dumps(found)[:40]}, this version of Edgewise reads {FORMAT}",
            "Build it again with this version: `edgewise build`.",
        )


def check_manifest(
    manifest: dict, where: str, data_bytes: int | None = None, beside: bool = False
) -> None:
    """Checks a manifest as `read_json` gives it.

    Args:
        where: the package's name, for errors. data_bytes: how many bytes follow the manifest and
        its padding; None: not known. beside: weights may lie in files that are not in the package,
        as in what a page compiled for itself.
    Raises:
        PackageError: what is wrong, and where in the manifest.
    """
    check_format(manifest, where)
    c = Checker(where)
    c.integer(manifest.get("table_hash"), "table_hash", 0, 0xFFFFFFFF)
    task = c.one_of(manifest.get("task"), "task", TASKS)
    for k in c.list(manifest.get("kernels", []), "kernels", LIMITS["MAX_KERNELS"]):
        c.text(k, "kernels")
    files = _check_files(c, manifest, data_bytes)
    weights = _check_weights(c, manifest, files, beside)
    named: dict[str, int] = {}  # bytes of each computed slot: plans share their memory
    adapters = _check_training(c, manifest.get("training", ...), files, weights, named)
    if task == "inference":
        _check_inference(c, manifest.get("inference"), files, weights, named)
    else:
        _check_decoder(c, manifest.get("decoder"), files, weights, adapters, named)


def _check_files(c: Checker, manifest: dict, data_bytes: int | None) -> dict:
    files, end = {}, 0
    for name, pair in c.object(manifest.get("files"), "files").items():
        c.text(name, "the name of a file")
        offset, nbytes = c.tuple(pair, f"files['{name}']", 2)
        c.integer(offset, f"the offset of file '{name}'")
        c.integer(
            nbytes,
            f"the size of file '{name}'",
            0,
            LIMITS["MAX_SIZE" if name == "weights" else "MAX_FILE"],
        )
        if data_bytes is not None and offset + nbytes > data_bytes:
            c.fail(
                f"file '{name}'",
                f"in it ends at byte {offset + nbytes} of the data, which has {data_bytes}",
                "The package is cut off or damaged: fetch it again.",
            )
        files[name], end = (offset, nbytes), max(end, offset + nbytes)
    if data_bytes is not None and data_bytes > -(-end // 64) * 64:
        c.fail("the data", f"ends at byte {end}, and {data_bytes - end} bytes follow it")
    reached = 0  # a short package must not ask for any amount of memory by parts that share bytes
    for offset, nbytes, name in sorted(
        (offset, nbytes, name) for name, (offset, nbytes) in files.items() if nbytes
    ):
        if offset < reached:
            c.fail(f"file '{name}'", "overlaps another one")
        reached = offset + nbytes
    sums = c.object(manifest.get("sha256"), "sha256")
    for name, digest in sums.items():
        if name not in files or name == "weights":
            c.fail(f"sha256['{name}']", "is of a file that is not there")
        if not re.fullmatch("[0-9a-f]{64}", c.text(digest, f"sha256['{name}']")):
            c.fail(f"sha256['{name}']", "is not a SHA-256")
    missing = next((name for name in files if name != "weights" and name not in sums), None)
    if missing is not None:
        c.fail("sha256", f"lacks the file '{missing}'")
    return files


def _check_weights(c: Checker, manifest: dict, files: dict, beside: bool) -> dict:
    """{name: bytes}"""
    weights: dict[str, int] = {}
    spans: dict[str, list] = {}
    for i, w in enumerate(c.list(manifest.get("weights"), "weights")):
        at = f"weights[{i}]"
        w = c.object(w, at)
        name, file = c.text(w.get("name"), f"{at}.name"), c.text(w.get("file"), f"{at}.file")
        offset, nbytes = (
            c.integer(w.get("offset"), f"{at}.offset"),
            c.integer(w.get("bytes"), f"{at}.bytes"),
        )
        if file not in files and (not beside or file in WEIGHT_FILES):
            c.fail(at, f"lies in the file '{file}', which is not in the package")
        if file in files:
            if file not in WEIGHT_FILES:
                c.fail(at, f"lies in the file '{file}', which is not one of weights")
            if offset + nbytes > files[file][1]:
                c.fail(
                    at,
                    f"ends at byte {offset + nbytes} of the file '{file}', which has"
                    f" {files[file][1]}",
                )
            if nbytes:
                spans.setdefault(file, []).append((offset, nbytes, i))
        if name in weights:
            c.fail(at, f"has the name '{name}' of another one")
        weights[name] = nbytes
        if file == "weights" or "sums" in w:
            for s in c.tuple(w.get("sums"), f"{at}.sums", -(-nbytes // PIECE)):
                if not re.fullmatch("[0-9a-f]{16}", c.text(s, f"{at}.sums")):
                    c.fail(f"{at}.sums", "is not a list of sums")
    for of in spans.values():
        reached = 0
        for offset, nbytes, i in sorted(of):
            if offset < reached:
                c.fail(f"weights[{i}]", "overlaps another one")
            reached = offset + nbytes
    return weights


def _check_slots(c: Checker, slots, at: str, weights: dict, named: dict) -> list:
    """The fields that all slots have. named: bytes of computed slots so far."""
    names = set()
    for i, s in enumerate(c.list(slots, at)):
        path = f"{at}[{i}]"
        s = c.object(s, path)
        name, kind = (
            c.text(s.get("name"), f"{path}.name"),
            c.one_of(s.get("kind"), f"{path}.kind", KINDS),
        )
        c.text(s.get("dtype"), f"{path}.dtype")
        c.shape(s.get("shape"), f"{path}.shape")
        nbytes = c.integer(s.get("bytes"), f"{path}.bytes")
        if (kind, name) in names:
            c.fail(path, f"has the name '{name}' of another slot of the plan")
        names.add((kind, name))
        if kind == "weight":
            if name not in weights:
                c.fail(path, f"is the weight '{name}', which is not in the package")
            if weights[name] != nbytes:
                c.fail(path, f"has {nbytes} bytes, the weight '{name}' has {weights[name]}")
        if kind == "state" and STATE_SIZES.get(s["dtype"], -1) * prod(s["shape"]) != nbytes:
            c.fail(
                path, f"has {nbytes} bytes, which are not those of {s['dtype'][:40]} {s['shape']}"
            )
        if kind == "computed":
            if name in weights:
                c.fail(path, f"has the name of the weight '{name}'")
            if named.setdefault(name, nbytes) != nbytes:
                c.fail(path, f"has {nbytes} bytes, but {named[name]} in another plan")
    return slots


def _plan_file(c: Checker, plan: dict, at: str, files: dict) -> str:
    file = c.text(plan.get("file"), f"{at}.file")
    if file not in files or file in WEIGHT_FILES:
        c.fail(f"{at}.file", f"is '{file}', which is no plan in the package")
    return file


def _check_decoder(c: Checker, d, files: dict, weights: dict, adapters: dict, named: dict) -> None:
    d = c.object(d, "decoder")
    capacity = c.integer(d.get("capacity"), "decoder.capacity", 1, LIMITS["MAX_CAPACITY"])
    vocabulary = c.integer(d.get("vocab_size"), "decoder.vocab_size", 1, LIMITS["MAX_VOCABULARY"])
    recompute = d.get("recompute")
    if not isinstance(recompute, bool):
        c.fail("decoder.recompute", "is neither true nor false")
    if d.get("logits_type") != "float32":
        c.fail("decoder.logits_type", "is not 'float32'")
    c.one_of(d.get("cache_dtype", CACHE_DTYPES[0]), "decoder.cache_dtype", CACHE_DTYPES)
    if d.get("lora") is not None:
        c.object(d["lora"], "decoder.lora")
    if d.get("saved") is not None and c.list(d["saved"], "decoder.saved"):
        c.fail("decoder.saved", "is not empty: packages hold adapters alone")
    caches = {}
    for i, cache in enumerate(c.list(d.get("caches"), "decoder.caches", LIMITS["MAX_CACHES"])):
        name = c.text(
            c.object(cache, f"decoder.caches[{i}]").get("name"), f"decoder.caches[{i}].name"
        )
        if name in caches:
            c.fail(f"decoder.caches[{i}]", f"has the name '{name}' of another one")
        caches[name] = c.integer(cache.get("bytes"), f"decoder.caches[{i}].bytes")
    if recompute != (not caches):
        c.fail("decoder.recompute", "says otherwise whether there are caches")
    tokens_of = []
    for p, plan in enumerate(c.list(d.get("plans"), "decoder.plans", LIMITS["MAX_DECODER_PLANS"])):
        at = f"decoder.plans[{p}]"
        plan = c.object(plan, at)
        tokens = c.integer(plan.get("tokens"), f"{at}.tokens", 1, capacity)
        tokens_of.append(tokens)
        _plan_file(c, plan, at, files)
        registers = c.object(plan.get("registers"), f"{at}.registers")
        for name, number in (("past", 0), ("last", 1)):
            c.integer(registers.get(name), f"{at}.registers.{name}", number, number)
        if len(registers) != 2:
            c.fail(f"{at}.registers", "has others than 'past' and 'last'")
        slots = _check_slots(c, plan.get("slots"), f"{at}.slots", weights, named)
        for i, s in enumerate(slots):
            path, name, kind, nbytes = f"{at}.slots[{i}]", s["name"], s["kind"], s["bytes"]
            if kind == "state" and name in weights:
                c.fail(path, f"has the name of the weight '{name}'")
            if kind == "state" and adapters.get(name) != nbytes:
                c.fail(
                    path,
                    f"is the state '{name}' of {nbytes} bytes, which no adapter in 'training' has",
                )
            if kind == "cache" and caches.get(name) != nbytes:
                c.fail(
                    path,
                    f"is the cache '{name}' of {nbytes} bytes, which decoder.caches does not have",
                )
            if kind == "computed" and name in caches:
                c.fail(path, f"has the name of the cache '{name}'")
            if kind == "input" and (name, s["dtype"], nbytes) != ("input_ids", "int64", 8 * tokens):
                c.fail(path, f"is not the one input 'input_ids', int64 [1, {tokens}]")
            if kind == "output" and (name, s["dtype"], nbytes) != (
                "logits",
                "float32",
                4 * vocabulary,
            ):
                c.fail(path, f"is not the one output 'logits', float32 [1, {vocabulary}]")
        kinds = {s["kind"] for s in slots}
        if "input" not in kinds or "output" not in kinds:
            c.fail(at, "lacks the input 'input_ids' or the output 'logits'")
    if not tokens_of:
        c.fail("decoder.plans", "has no plan")
    if len(set(tokens_of)) != len(tokens_of):
        c.fail("decoder.plans", "has two plans for as many tokens")
    if recompute and max(tokens_of) != capacity:
        c.fail("decoder.plans", "has no plan for as many tokens as a sequence may have")


def _check_inference(c: Checker, d, files: dict, weights: dict, named: dict) -> None:
    d = c.object(d, "inference")
    declared = set()
    for of in ("inputs", "outputs"):
        for i, v in enumerate(c.list(d.get(of), f"inference.{of}", LIMITS["MAX_VALUES"])):
            path = f"inference.{of}[{i}]"
            v = c.object(v, path)
            for field in ("name", "type", "dtype"):
                c.text(v.get(field), f"{path}.{field}")
            if of == "inputs":
                declared.add(v["name"])
            if v.get("shape") is not None:
                for k, dim in enumerate(
                    c.list(v["shape"], f"{path}.shape", LIMITS["MAX_DECLARED_RANK"])
                ):
                    if dim is not None and not isinstance(dim, str):
                        c.integer(dim, f"{path}.shape[{k}]", -1)
    if d.get("programs"):
        c.fail("inference.programs", "are there, as only in a page's own storage")
    for i, plan in enumerate(
        c.list(d.get("plans"), "inference.plans", LIMITS["MAX_INFERENCE_PLANS"])
    ):
        at = f"inference.plans[{i}]"
        inputs = check_plan(c, plan, at, files, weights, named)
        for name in inputs:
            if name not in declared:
                c.fail(f"{at}.inputs", f"has '{name}', which is no input of the model")


def _check_register(c: Checker, plan: dict, at: str) -> tuple[int, int] | None:
    """The range of the register that dimensions of a plan follow; None where they are fixed."""
    if "register" not in plan:
        return None
    path = f"{at}.register"
    low, high = c.tuple(plan["register"], path, 2)
    c.integer(low, f"{path}[0]", 0, LIMITS["MAX_LENGTH"])
    c.integer(high, f"{path}[1]", low, LIMITS["MAX_LENGTH"])
    return low, high


def _check_lengths(c: Checker, value, path: str, register: tuple[int, int] | None) -> list:
    """Checks a shape whose dimensions may be [scale, add], linear expressions of the register;
    returns it at the register's highest value, where such a dimension is largest.
    """
    shape = []
    for i, d in enumerate(c.list(value, path, LIMITS["MAX_RANK"])):
        at = f"{path}[{i}]"
        if register is None or not isinstance(d, list):
            shape.append(c.integer(d, at))
            continue
        scale, add = c.tuple(d, at, 2)
        c.integer(scale, f"{at}[0]", 1, LIMITS["MAX_LENGTH"])
        c.integer(add, f"{at}[1]", -LIMITS["MAX_LENGTH"], LIMITS["MAX_LENGTH"])
        if scale * register[0] + add < 0:
            c.fail(at, "is negative at the register's lowest value")
        shape.append(scale * register[1] + add)
    return shape


def check_plan(c: Checker, plan, at: str, files: dict, weights: dict, named: dict) -> dict:
    """Checks one plan of a package of task "inference"; returns {input: (dtype, largest shape)}."""
    plan = c.object(plan, at)
    _plan_file(c, plan, at, files)
    slots = _check_slots(c, plan.get("slots"), f"{at}.slots", weights, named)
    for i, s in enumerate(slots):
        if s["kind"] in ("cache", "state"):
            c.fail(f"{at}.slots[{i}]", f"is a {s['kind']}, which such a plan has not")
    register, inputs = _check_register(c, plan, at), {}
    for name, entry in c.object(plan.get("inputs"), f"{at}.inputs").items():
        c.text(name, f"the name in {at}.inputs")
        dtype, shape = c.tuple(entry, f"{at}.inputs['{name}']", 2)
        c.text(dtype, f"{at}.inputs['{name}'][0]")
        inputs[name] = dtype, _check_lengths(c, shape, f"{at}.inputs['{name}'][1]", register)
    if register is not None and [1, 0] not in [d for _, s in plan["inputs"].values() for d in s]:
        c.fail(f"{at}.register", "is the size of no dimension of an input")
    given = {s["name"]: s["bytes"] for s in slots if s["kind"] == "input"}
    seed = c.text(plan["seed"], f"{at}.seed") if "seed" in plan else None
    if seed is not None and (seed in inputs or given.get(seed) != 8):
        c.fail(f"{at}.seed", f"is '{seed}', which is no input slot of 8 bytes of its own")
    for s in slots:
        if s["kind"] == "input" and s["name"] != seed:
            if s["name"] not in inputs:
                c.fail(at, f"has a slot for an input '{s['name']}', which its inputs lack")
            if s["bytes"] != _tensor_bytes(*inputs[s["name"]], s["bytes"]):
                c.fail(
                    at,
                    f"has a slot of {s['bytes']} bytes for its input '{s['name']}', which has"
                    " another size",
                )
    places = {s["name"]: s["bytes"] for s in slots if s["kind"] == "output"}
    for name, entry in c.object(plan.get("outputs"), f"{at}.outputs").items():
        path = f"{at}.outputs['{name}']"
        c.text(name, f"the name in {at}.outputs")
        slot, dtype, shape, nbytes = c.tuple(entry, path, 4)
        c.text(slot, f"{path}[0]")
        c.text(dtype, f"{path}[1]")
        shape = _check_lengths(c, shape, f"{path}[2]", register)
        if places.get(slot, -1) < c.integer(nbytes, f"{path}[3]"):
            c.fail(path, f"lies in the slot '{slot}', which is missing or too short")
        if nbytes != _tensor_bytes(dtype, shape, nbytes):
            c.fail(path, f"has {nbytes} bytes, which are not those of {dtype[:40]} {shape}")
    for name, given_as in c.object(plan.get("passed", {}), f"{at}.passed").items():
        c.text(name, f"the name in {at}.passed")
        if c.text(given_as, f"{at}.passed['{name}']") not in inputs:
            c.fail(f"{at}.passed['{name}']", f"is '{given_as}', which is no input")
        if name in plan["outputs"]:
            c.fail(f"{at}.passed['{name}']", "is computed as well")
    for field in ("part", "known", "numbers"):
        if plan.get(field):
            c.fail(f"{at}.{field}", "is there, as only in a page's own storage")
    return inputs


def _tensor_bytes(dtype: str, shape: list, unknown: int) -> int:
    return -(-prod(shape) * ELEMENT_BITS[dtype] // 8) if dtype in ELEMENT_BITS else unknown


def _check_training(c: Checker, programs, files: dict, weights: dict, named: dict) -> dict:
    """{name: bytes} of the states of adapters, which the decoder's plans may read. programs: ...
    where there are none.
    """
    adapters: dict[str, int] = {}
    names: set = set()
    if programs is ...:
        return adapters
    for p, program in enumerate(c.list(programs, "training", LIMITS["MAX_PROGRAMS"])):
        at = f"training[{p}]"
        program = c.object(program, at)
        name = c.text(program.get("name"), f"{at}.name")
        if name in names:
            c.fail(at, f"has the name '{name}' of another one")
        names.add(name)
        if program.get("task") != "causal_lm":
            c.fail(f"{at}.task", "is not 'causal_lm'")
        batch = c.integer(program.get("batch"), f"{at}.batch", 1, LIMITS["MAX_BATCH"])
        sequence = c.integer(program.get("sequence"), f"{at}.sequence", 2, LIMITS["MAX_CAPACITY"])
        states = _check_states(c, program.get("states"), f"{at}.states", weights)
        plans = c.object(program.get("plans"), f"{at}.plans")
        for kind, wanted in TRAINING_PLANS.items():
            path = f"{at}.plans.{kind}"
            plan = c.object(plans.get(kind), path)
            _plan_file(c, plan, path, files)
            c.integer(plan.get("arena_bytes"), f"{path}.arena_bytes")
            slots = _check_slots(c, plan.get("slots"), f"{path}.slots", weights, named)
            _check_training_slots(c, slots, path, states, 8 * batch * sequence)
            have = {s["name"] for s in slots if s["kind"] in ("input", "output")}
            missing = next((n for n in wanted if n not in have), None)
            if missing is not None:
                c.fail(path, f"lacks '{missing}'")
        optimizer = c.object(program.get("optimizer"), f"{at}.optimizer")
        c.text(optimizer.get("type"), f"{at}.optimizer.type")
        c.number(optimizer.get("lr"), f"{at}.optimizer.lr")
        if program.get("lora") is not None:
            lora = c.object(program["lora"], f"{at}.lora")
            c.integer(lora.get("r"), f"{at}.lora.r", 1, LIMITS["MAX_LORA_RANK"])
            c.number(lora.get("lora_alpha"), f"{at}.lora.lora_alpha")
        for field in ("pad_token_id", "eos_token_id"):
            if program.get(field) is not None:
                c.integer(program[field], f"{at}.{field}", 0, LIMITS["MAX_VOCABULARY"])
        if program.get("max_grad_norm") is not None:
            c.number(program["max_grad_norm"], f"{at}.max_grad_norm")
        for state, (kind, nbytes) in states.items():
            if kind == "adapter":
                if state in adapters:
                    c.fail(f"training '{name}'", f"has the adapter '{state}' of another program")
                adapters[state] = nbytes
    return adapters


def _check_states(c: Checker, states, at: str, weights: dict) -> dict:
    """{name: (kind, bytes)}"""
    found = {}
    for i, s in enumerate(c.list(states, at)):
        path = f"{at}[{i}]"
        s = c.object(s, path)
        name, kind = (
            c.text(s.get("name"), f"{path}.name"),
            c.one_of(s.get("kind"), f"{path}.kind", STATE_KINDS),
        )
        dtype, shape = (
            c.text(s.get("dtype"), f"{path}.dtype"),
            c.shape(s.get("shape"), f"{path}.shape"),
        )
        nbytes = c.integer(s.get("bytes"), f"{path}.bytes")
        if dtype not in STATE_SIZES or prod(shape) * STATE_SIZES[dtype] != nbytes:
            c.fail(path, f"has {nbytes} bytes, which are not those of {dtype[:40]} {shape}")
        how = c.list(s.get("initial"), f"{path}.initial", 3)
        first = how[0] if how and isinstance(how[0], str) else None
        how = how + [None] * (3 - len(how))
        if first == "constant":
            if c.text(how[1], f"{path}.initial[1]") not in weights:
                c.fail(path, f"begins as the weight '{how[1]}', which is not in the package")
        elif first in ("fill", "uniform", "normal"):
            c.number(how[1], f"{path}.initial[1]")
            if first != "fill":
                c.integer(how[2], f"{path}.initial[2]", 0, LIMITS["MAX_DRAWN"])
        else:
            c.fail(f"{path}.initial", "is none of 'constant', 'fill', 'uniform' and 'normal'")
        if name in found:
            c.fail(path, f"has the name '{name}' of another one")
        found[name] = kind, nbytes
    return found


def _check_training_slots(c: Checker, slots: list, at: str, states: dict, ids: int) -> None:
    inputs = {
        "input_ids": ("int64", ids),
        "labels": ("int64", ids),
        "learning_rate": ("float32", 4),
        "gradient_scale": ("float32", 4),
        "seed": ("int64", 8),
    }
    for i, s in enumerate(slots):
        path, name, kind, nbytes = f"{at}.slots[{i}]", s["name"], s["kind"], s["bytes"]
        if kind == "state" and states.get(name, ("", -1))[1] != nbytes:
            c.fail(
                path,
                f"is the state '{name}' of {nbytes} bytes, which the program's states do not have",
            )
        if kind == "cache":
            c.fail(path, "is a cache, which training has not")
        if kind == "input" and (s["dtype"], nbytes) != inputs.get(name):
            c.fail(
                path,
                f"is an input '{name}' ({s['dtype'][:40]}, {nbytes} bytes) that training does not"
                " feed",
            )
        if kind == "output" and (name, s["dtype"], nbytes) != ("loss", "float32", 4):
            c.fail(path, "is not the one output 'loss', float32")


def plans_of(manifest: dict):
    """(file, slots) of every plan of a manifest that has been checked."""
    for part in ("decoder", "inference"):
        if part == ("inference" if manifest["task"] == "inference" else "decoder"):
            for plan in manifest[part]["plans"]:
                yield plan["file"], plan["slots"]
    for program in manifest.get("training", ()):
        for kind in TRAINING_PLANS:
            yield program["plans"][kind]["file"], program["plans"][kind]["slots"]


def check_slot_table(data: bytes, slots: list, where: str, file: str) -> None:
    """Compares the slots that a manifest describes with those in the plan's bytes (plan/plan.py):
    as many, of the same sizes, and none writable that several plans or sequences read. Raises
    PackageError.
    """
    c = Checker(where)
    header = struct.Struct("<8sIIIIIIQQQ")
    if len(data) < header.size or not data.startswith(b"EDGEPLN1"):
        c.fail(f"file '{file}'", "in it is no plan")
    count, at = header.unpack_from(data)[3], header.unpack_from(data)[9]
    if count != len(slots) or at + 16 * count > len(data):
        c.fail(f"file '{file}'", f"in it has {count} slots, the manifest describes {len(slots)}")
    for i, s in enumerate(slots):
        nbytes, flags = struct.unpack_from("<QI", data, at + 16 * i)
        if nbytes != s["bytes"]:
            c.fail(
                f"slot '{s['name'][:100]}' of '{file}'",
                f"has {nbytes} bytes, the manifest says {s['bytes']}",
            )
        if flags & 1 and s["kind"] not in WRITABLE_KINDS:
            c.fail(
                f"slot '{s['name'][:100]}' of '{file}'",
                f"can be written, though it is of the kind '{s['kind']}'",
            )
