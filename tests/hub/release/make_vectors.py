"""Makes tests/conformance/releases/versions.json: deltas, manifests, rollouts, and a repository
with three versions of an adapter. The keys are random, so it is made by hand:

    PYTHONPATH=python .build/venv-release/bin/python -m tests.hub.release.make_vectors
"""

import base64
import copy
import hashlib
import json
import os
import tempfile
from pathlib import Path

from . import environment  # noqa: F401  isort: skip
import numpy as np
from edgewise.extras.release.codec import CODECS, approximate, decode, encode
from edgewise.extras.release.errors import ReleaseError
from edgewise.extras.release.keys import Keys
from edgewise.extras.release.manifest import Manifest, parse, selected
from edgewise.extras.release.metadata import DAYS
from edgewise.extras.release.repository import Repository

PATH = Path(__file__).parents[2] / "conformance" / "releases" / "versions.json"
LONG = dict.fromkeys(DAYS, 36_500.0)
DIGEST = "ab" * 32
TYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "<i1", "U8": "<u1"}


def text(data):
    return base64.b64encode(data).decode()


def numbers(rng, codec, count=200):
    """Two versions of numbers, with the ones that are hard among them."""
    dtype = {"float32": "<f4", "float32-q4": "<f4", "float16": "<f2"}.get(codec, "<u1")
    old = rng.normal(0, 0.05, count)
    if dtype == "<u1":
        old = rng.integers(0, 256, count)
        return old.astype("u1").tobytes(), (old + rng.integers(-9, 9, count)).astype("u1").tobytes()
    new = old + rng.normal(0, 1e-3, count)
    hard = [0.0, -0.0, 1.0, -1.0, 6e-8, -6e-8, 65504.0, 1e-30]
    old[:8], new[:8] = hard, hard[::-1]
    if codec != "float32-q4":
        old[8:12], new[8:12] = [np.inf, -np.inf, np.nan, 1], [np.nan, np.inf, 0, -np.inf]
    with np.errstate(over="ignore"):
        return old.astype(dtype).tobytes(), new.astype(dtype).tobytes()


def codec_vectors():
    rng = np.random.default_rng(1)
    found = []
    for codec in CODECS:
        old, new = numbers(rng, codec)
        if codec == "float32-q4":
            delta, new = approximate(old, new)
        else:
            delta = encode(codec, old, new)
        assert decode(codec, old, delta) == new
        found.append({"codec": codec, "base": text(old), "new": text(new), "delta": text(delta)})
    for codec, dtype in (("float16", "<f2"), ("float32", "<f4")):  # with predicted changes
        old = rng.normal(0, 0.1, (64, 64))
        change = np.outer(rng.normal(0, 1, 64), rng.normal(0, 0.02, 64))
        old, new = (x.astype(dtype).reshape(-1)[7:].tobytes() for x in (old, old + change))
        delta = encode(codec, old, new, (64, 7))
        assert delta[0] > 0 and decode(codec, old, delta) == new
        found.append({"codec": codec, "base": text(old), "new": text(new), "delta": text(delta)})
    return found


MANIFEST = {
    "format": "edgewise.release.1",
    "name": "letters",
    "version": 3,
    "kind": "package",
    "fraction": 0.5,
    "bytes": 30,
    "sha256": DIGEST,
    "files": [{"name": "a.edge", "bytes": 10}, {"name": "b.json", "bytes": 20}],
    "chunks": [
        {
            "bytes": 25,
            "sha256": DIGEST,
            "file": {"bytes": 20, "sha256": "cd" * 32},
            "deltas": [{"from": "ef" * 32, "codec": "int8", "bytes": 9, "sha256": DIGEST}],
        },
        {"bytes": 5, "sha256": DIGEST, "file": {"bytes": 5, "sha256": DIGEST}},
    ],
    "earlier": [{"version": 2, "sha256": DIGEST, "manifest": {"bytes": 9, "sha256": DIGEST}}],
    "fallback": 2,
}
MUTATIONS = [
    ("", []),
    ("format", "edgewise.release.2"),
    ("name", "../letters"),
    ("name", ""),
    ("version", 0),
    ("version", 1.5),
    ("version", 2**53),
    ("version", 2),
    ("kind", "program"),
    ("fraction", 1.5),
    ("fraction", "1"),
    ("bytes", 31),
    ("bytes", 2**60),
    ("sha256", DIGEST[:-1]),
    ("sha256", DIGEST.upper()),
    ("files", {}),
    ("files", MANIFEST["files"] * 9),
    ("files.0.name", "../a.edge"),
    ("files.0.name", "/etc/passwd"),
    ("files.0.name", "..\\a"),
    ("files.1.name", "a.edge"),
    ("files.0.bytes", -10),
    ("files.0.bytes", 11),
    ("chunks", []),
    ("chunks", [[]]),
    ("chunks.0.bytes", 0),
    ("chunks.0.bytes", (1 << 20) + 1),
    ("chunks.0.bytes", 24),
    ("chunks.0.file", None),
    ("chunks.0.file.bytes", 1 << 30),
    ("chunks.0.file.bytes", 2 * 25 + 1025),
    ("chunks.0.file.sha256", "../" * 21 + "a"),
    ("chunks.1.file.bytes", 6),
    ("chunks.0.deltas", MANIFEST["chunks"][0]["deltas"] * 17),
    ("chunks.0.deltas", None),
    ("chunks.0.deltas.0.codec", "zip"),
    ("chunks.0.deltas.0.codec", ["int8"]),
    ("chunks.0.deltas.0.from", 7),
    ("chunks.0.deltas.0.bytes", True),
    ("earlier.0.version", 3),
    ("earlier", MANIFEST["earlier"] * 2),
    ("earlier.0.manifest.bytes", 1 << 25),
    ("fallback", 1),
    ("fallback", -1),
]


def mutated(path, value):
    root = {"root": copy.deepcopy(MANIFEST)}
    at, keys = root, ["root", *(path.split(".") if path else [])]
    for key in keys[:-1]:
        at = at[int(key) if key.isdigit() else key]
    at[int(keys[-1]) if keys[-1].isdigit() else keys[-1]] = value
    return json.dumps(root["root"])


def refusal(data):
    try:
        parse(data.encode(), "it")
    except ReleaseError as e:
        return e.what
    raise AssertionError(f"accepted: {data}")


def manifest_vectors():
    parse(json.dumps(MANIFEST).encode(), "it")
    return [{"path": p, "value": v, "what": refusal(mutated(p, v))} for p, v in MUTATIONS]


def rollout_vectors():
    found = []
    for i in range(12):
        device, fraction = hashlib.sha256(bytes([i])).hexdigest()[:32], (0, 0.25, 0.5, 1)[i % 4]
        manifest = Manifest("letters", 7, "package", 0, "", [], [], fraction=fraction)
        found.append(
            {"device": device, "fraction": fraction, "selected": selected(device, manifest)}
        )
    return found


def write_adapter(folder, rng, step):
    """The same adapter after some steps; its last tensor never changes."""
    os.makedirs(folder, exist_ok=True)
    header, data = {}, b""
    for i, (kind, dtype) in enumerate(TYPES.items()):
        size = np.dtype(dtype).itemsize
        values = rng.normal(0, 0.05, 300).astype("f4")
        values += np.random.default_rng(step).normal(0, 1e-4 * step, 300).astype("f4")
        if kind == "BF16":
            part = (values.view("<u4") >> 16).astype("<u2").tobytes()
        elif size == 1:
            part = (values * 1e3).astype(dtype).tobytes()
        else:
            part = values.astype(dtype).tobytes()
        header[f"t{i}"] = {
            "dtype": kind,
            "shape": [300],
            "data_offsets": [len(data), len(data) + len(part)],
        }
        data += part
    same = rng.normal(0, 1, 500).astype("<f4").tobytes()
    header["same"] = {
        "dtype": "F32",
        "shape": [500],
        "data_offsets": [len(data), len(data) + len(same)],
    }
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(f"{folder}/adapter_model.safetensors", "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head + data + same)
    with open(f"{folder}/adapter_config.json", "w") as file:
        json.dump({"peft_type": "LORA", "r": 8, "step": step}, file)


def content_of(folder):
    return b"".join(
        Path(folder, n).read_bytes() for n in ("adapter_config.json", "adapter_model.safetensors")
    )


def repository_vectors():
    """States of a repository after versions 1, 2 and 3; version 3 is for nobody."""
    states, contents, seen = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        repository, keys = Repository(f"{folder}/repository"), Keys(f"{folder}/keys")
        repository.metadata.create(keys, "ed25519", 2, 2, LONG)
        for step in (1, 2, 3):
            write_adapter(f"{folder}/adapter", np.random.default_rng(3), step)
            fraction = 0 if step == 3 else 1
            repository.add(f"{folder}/adapter", "letters", fraction)
            repository.publish(keys, LONG)
            contents.append(text(content_of(f"{folder}/adapter")))
            files = {
                str(p.relative_to(repository.folder)): text(p.read_bytes())
                for p in sorted(Path(repository.folder).rglob("*"))
                if p.is_file()
            }
            states.append({n: t for n, t in files.items() if seen.get(n) != t})
            seen = files
        root = Path(repository.folder, "metadata/1.root.json").read_text()
    return {"root": root, "states": states, "contents": contents}


def make():
    return {
        "codec": codec_vectors(),
        "manifest": MANIFEST,
        "manifests": manifest_vectors(),
        "rollout": rollout_vectors(),
        "repository": repository_vectors(),
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(make(), indent=1) + "\n")
