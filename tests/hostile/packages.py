"""Builds `.edge` packages and plans by hand with correct checksums: packages that an attacker may
write, but no compiler.
"""

import hashlib
import json
import struct
from pathlib import Path

from edgewise.compiler.ops.table import kernel_table
from edgewise.compiler.package import Package
from edgewise.compiler.plan.plan import HEADER, NONE, OPERAND, REGISTER, STEP, WRITABLE
from edgewise.compiler.sums import source_sums
from edgewise.host.session.open import folder_files
from edgewise.logic.manifest.limits import FORMAT
from edgewise.logic.manifest.package import MAGIC, signed
from edgewise.onnx import BytesSource
from edgewise.task_package import compile_task


def split(package: bytes) -> tuple[dict, bytes]:
    """Returns the manifest and the data of a package."""
    length = struct.unpack("<Q", package[8:16])[0]
    return json.loads(package[16 : 16 + length]), package[-(-(16 + length) // 64) * 64 :]


def places(x, path: tuple = ()):
    """Paths of all values in a JSON value as tuples of keys and indices; of lists, the first two
    items and the last.
    """
    yield path
    if isinstance(x, dict):
        for k in x:
            yield from places(x[k], (*path, k))
    elif isinstance(x, list):
        for i in sorted({0, 1, len(x) - 1} & set(range(len(x)))):
            yield from places(x[i], (*path, i))


def joined(manifest, data: bytes) -> bytes:
    """A package of a manifest and data. Instead of a manifest, bytes or any JSON value can be
    given.

    The checksum of the manifest is correct.
    """
    if isinstance(manifest, dict):
        manifest = {
            "manifest_sha256": "0" * 64,
            **{k: v for k, v in manifest.items() if k != "manifest_sha256"},
        }
        manifest = signed(json.dumps(manifest, separators=(",", ":")).encode())
    elif not isinstance(manifest, bytes):
        manifest = json.dumps(manifest).encode()
    head = MAGIC + struct.pack("<Q", len(manifest)) + manifest
    return head + bytes(-len(head) % 64) + data


def with_sums(manifest: dict, data: bytes) -> dict:
    """The manifest with correct checksums of all files and weights that lie within the data."""
    files = manifest["files"]
    manifest = {
        **manifest,
        "sha256": {
            name: hashlib.sha256(data[at : at + size]).hexdigest()
            for name, (at, size) in files.items()
            if name != "weights"
        },
    }
    if "weights" in files:
        source = BytesSource(data[files["weights"][0] :])
        manifest["weights"] = [
            {**w, "sums": source_sums(source, w["offset"], w["bytes"])} for w in manifest["weights"]
        ]
    return manifest


def step(kernel: str, params: dict, operands: list) -> bytes:
    """A step of a plan.

    operands: (buffer, offset) or None; buffer: 0 is the arena, 1 the constants, 2 and above are
    slots.
    """
    declared, body = next(k for k in kernel_table().kernels if k.name == kernel), bytearray()
    for name, kind in declared.params.items():
        value = params.get(name, 0)
        for x in value if isinstance(value, (list, tuple)) else [value]:
            body += struct.pack("<f" if kind == "f32" else "<i", x)
    size = len(body)
    body += bytes(-size % 8)
    for operand in operands:
        body += (
            OPERAND.pack(NONE, 0, 0, 0)
            if operand is None
            else OPERAND.pack(operand[0], 0, operand[1], 0)
        )
    return STEP.pack(declared.id, len(operands), 0, 0, size, STEP.size + len(body)) + bytes(body)


def plan(
    slots: list,
    steps: list,
    init: list = (),
    arena: int = 0,
    constants: bytes = b"",
    most: int = 1 << 20,
) -> bytes:
    """The bytes of a plan with the two registers of a decoder. slots: [(bytes, writable)]."""
    out, places = bytearray(HEADER.size), []
    for part in (
        REGISTER.pack(0, most, *[0] * 7) * 2,
        b"".join(struct.pack("<QII", n, WRITABLE if w else 0, 0) for n, w in slots),
        constants,
        b"".join([*init, *steps]),
    ):
        out += bytes(-len(out) % 16)
        places.append(len(out))
        out += part
    registers, table, const, first = places
    HEADER.pack_into(
        out,
        0,
        b"EDGEPLN3",
        kernel_table().hash,
        2,
        len(slots),
        len(init),
        len(steps),
        0,
        arena,
        registers,
        table,
        const,
        len(constants),
        first,
        len(out),
    )
    return bytes(out)


def slot(name: str, kind: str, nbytes: int, dtype: str = "uint8") -> dict:
    """A slot as in a manifest."""
    return {
        "name": name,
        "kind": kind,
        "dtype": dtype,
        "shape": [nbytes // {"int64": 8, "float32": 4, "uint8": 1}[dtype]],
        "bytes": nbytes,
    }


def decoder(
    plans: list,
    vocabulary: int = 16,
    caches: list = (),
    weights: dict | None = None,
    capacity: int | None = None,
    extra: dict | None = None,
) -> bytes:
    """A package of task "text-generation".

    plans: [(tokens, bytes, slots)]. weights: {name: bytes}. extra: further fields of the manifest.
    """
    files, data = {}, bytearray()

    def add(name, content):
        files[name] = [len(data), len(content)]
        data.extend(content + bytes(-len(content) % 64))

    for tokens, content, _ in plans:
        add(f"plan/{tokens}", content)
    table, blob = [], bytearray()
    for name, content in (weights or {}).items():
        table.append({"name": name, "file": "weights", "offset": len(blob), "bytes": len(content)})
        blob += content + bytes(-len(content) % 64)
    add("weights", bytes(blob))
    described = [
        {
            "tokens": tokens,
            "file": f"plan/{tokens}",
            "registers": {"past": 0, "last": 1},
            "slots": slots,
        }
        for tokens, _, slots in plans
    ]
    manifest = {
        "format": FORMAT,
        "table_hash": kernel_table().hash,
        "task": "text-generation",
        "kernels": [],
        "files": files,
        "weights": table,
        "decoder": {
            "capacity": capacity or max(p[0] for p in plans),
            "vocab_size": vocabulary,
            "logits_type": "float32",
            "recompute": not caches,
            "caches": list(caches),
            "plans": described,
        },
        **(extra or {}),
    }
    return joined(with_sums(manifest, bytes(data)), bytes(data))


def feeds(tokens: int, vocabulary: int = 16) -> list:
    """The slots that each plan of a decoder has: token ids and logits."""
    return [
        slot("input_ids", "input", 8 * tokens, "int64"),
        slot("logits", "output", 4 * vocabulary, "float32"),
    ]


def tasks() -> dict[str, Package]:
    """Packages of pipelines: `task`, and a tiny T5."""
    folder = Path(__file__).parent.parent / "seq2seq" / "models" / "t5"
    t5 = compile_task(folder_files(folder)[0], "translation", max_length=8)
    return {"task": task(), "seq2seq": t5}


def task() -> Package:
    """A package of task "feature-extraction": one program, whose plan is for a range of lengths."""
    from .seeds import F, I, _rand, c, model, node, value

    graph = model(
        [node("Gather", "table input_ids", "e"), node("MatMul", "e w", "last_hidden_state")],
        [value("input_ids", I, ("b", "s"))],
        [value("last_hidden_state", F, ("b", "s", 4))],
        [c("table", _rand(8, 16)), c("w", _rand(16, 4))],
    )
    files = {"model.onnx": graph, "config.json": b"{}", "tokenizer.json": b"{}"}
    sources = {name: BytesSource(data, name) for name, data in files.items()}
    return compile_task(sources, "feature-extraction", max_length=16)
