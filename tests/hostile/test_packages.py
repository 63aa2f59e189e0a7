"""Packages and tokenizer files with invalid contents cause a PackageError or TokenizerError with
the position, before a large allocation.
"""

import copy
import io
import json
import random
import shutil
import struct

import pytest
from edgewise.errors import EdgewiseError, OutOfMemory, PackageError, PlanError, TokenizerError
from edgewise.host.session.decoder import DecoderModel, open_package
from edgewise.onnx import BytesSource
from edgewise.package import Package
from tiers import ALL

from .packages import joined, places, split
from .seeds import ROOT

Q4 = ROOT / "zoo" / "models" / "q4_llama" / "model.onnx"


@pytest.fixture(scope="module")
def package():
    out = io.BytesIO()
    open_package(Q4, capacity=24).write(out)
    return out.getvalue()


@pytest.fixture(scope="module")
def want(package):
    return play(package)


def play(data):
    """Opens a package and runs two steps."""
    lm = DecoderModel(Package.read(BytesSource(data, "model.edge")))
    try:
        s = lm.open()
        first = lm.logits(lm.forward(s, [1, 2, 3]))
        return first, lm.logits(lm.forward(s, [4]))
    finally:
        lm.free()


def same(got, want):
    """Equal except for rounding, since other plans may be chosen."""
    return all(abs(a - b) < 1e-3 for g, w in zip(got, want) for a, b in zip(g, w))


def edited(manifest, path, value):
    if not path:
        return value
    manifest = copy.deepcopy(manifest)
    at = manifest
    for k in path[:-1]:
        at = at[k]
    if value is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return manifest


def test_every_field(package, want, refusal):
    """Each field is removed, or replaced by values of other types and impossible sizes.

    Packages that are still accepted give the same result.
    """
    manifest, data = split(package)
    values = [
        ...,
        None,
        True,
        0,
        -1,
        1,
        1 << 39,
        1 << 70,
        1.5,
        "",
        "x",
        [],
        [1, 2],
        {},
        {"a": 1},
        "weights",
        "plan/1",
    ]
    refused = taken = 0
    everywhere = list(places(manifest))
    rng = random.Random(5)
    assert len(everywhere) > 100
    for path in everywhere:
        for value in values if len(path) < 4 else rng.sample(values, 6 if ALL else 3):
            if path == () and value is ...:
                continue
            # a damaged size may exceed the memory, which is an OutOfMemory
            got = refusal(
                lambda: play(joined(edited(manifest, path, value), data)),
                (PackageError, PlanError, OutOfMemory),
                may_work=True,
            )
            if isinstance(got, EdgewiseError):
                refused += 1
                assert isinstance(got, (PackageError, PlanError, OutOfMemory)), (path, value, got)
            else:
                taken += 1
                if (
                    path[:2] not in (("files", "weights"), ("weights", 0), ("weights", 1))
                    and path[0] != "weights"
                ):  # with a matching checksum, another position of a weight is valid
                    assert same(got, want), (path, value)
    refusal.still_works()
    assert refused > 2 * taken, (refused, taken)


def test_truncated(package, refused):
    length = struct.unpack("<Q", package[8:16])[0]
    for n in [
        *range(80),
        *range(80, len(package), 4093),
        15 + length,
        16 + length,
        len(package) - 64,
    ]:
        refused(lambda: play(package[:n]), PackageError)


def test_flipped_bits_outside_the_weights(package, want, refused):
    """A flipped bit in the header, the manifest, the small files or the plans is refused or has no
    effect.
    """
    manifest, data = split(package)
    start, rng = len(package) - len(data), random.Random(3)
    end = start + manifest["files"]["weights"][0]
    for _ in range(250):
        at = rng.choice((rng.randrange(start), rng.randrange(start, end)))
        broken = bytearray(package)
        broken[at] ^= 1 << rng.randrange(8)
        got = refused(lambda: play(bytes(broken)), may_work=True)
        assert isinstance(got, (PackageError, PlanError, OutOfMemory)) or same(got, want), (at, got)


def test_broken_plans(package, refused):
    """Invalid plans with correct checksums: the engine's loader refuses them, or they stay within
    its memory.
    """
    import hashlib

    manifest, data = split(package)
    rng = random.Random(4)
    for _ in range(200):
        name = rng.choice(["plan/1", "plan/16"])
        offset, size = manifest["files"][name]
        plan = bytearray(data[offset : offset + size])
        for _ in range(rng.choice((1, 2, 8))):
            plan[rng.randrange(size)] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        m = copy.deepcopy(manifest)
        m["sha256"][name] = hashlib.sha256(plan).hexdigest()
        got = refused(
            lambda: play(joined(m, data[:offset] + bytes(plan) + data[offset + size :])),
            may_work=True,
        )
        assert isinstance(got, (EdgewiseError, tuple))


def test_files_that_are_not_packages(refused):
    huge = b"EDGEWISE" + struct.pack("<Q", 1 << 60)
    for data in (
        b"",
        b"EDGEWISE",
        b"EDGEWISE" + bytes(8),
        huge,
        huge + bytes(100),
        b"EDGEWISE" + struct.pack("<Q", 5) + b"{}{}{" + bytes(64),
        joined(b"[" * 100_000, b""),
        joined(b"\xff\xfe", b""),
        joined(b'{"format": 1}', b""),
        joined(b"null", b""),
        joined(b'{"format": ' + b"9" * 6000 + b"}", b""),
        b"PK\3\4" * 100,
    ):
        refused(lambda: play(data), PackageError)
    refused(lambda: DecoderModel("/no/such/thing.edge"))
    refused(lambda: DecoderModel("/no/such/folder"))
    refused(lambda: DecoderModel(7))
    refused(lambda: DecoderModel("a\0b"))
    refused(lambda: DecoderModel("a\0b.edge"))


def test_another_version(package, refused):
    manifest, data = split(package)
    e = refused(
        lambda: play(joined({**manifest, "table_hash": manifest["table_hash"] ^ 1}, data)),
        PackageError,
        "another version",
    )
    assert "Build it again" in e.remedy
    refused(lambda: play(joined({**manifest, "format": 3}, data)), PackageError, "reads 2")


@pytest.mark.parametrize(
    "name, content",
    [
        ("config.json", b"{"),
        ("config.json", b"[1]"),
        ("config.json", b"\xff"),
        ("config.json", b"[" * 100_000),
        ("generation_config.json", b"{"),
        ("generation_config.json", b"3"),
    ],
)
def test_broken_configuration(tmp_path, name, content, refused):
    shutil.copy(Q4, tmp_path)
    (tmp_path / name).write_bytes(content)
    e = refused(lambda: DecoderModel(str(tmp_path)))
    assert name in str(e)


def test_folders(tmp_path, refused):
    refused(lambda: DecoderModel(str(tmp_path)), match="no .onnx file")
    (tmp_path / "a.onnx").write_bytes(b"")
    refused(lambda: DecoderModel(str(tmp_path)), match="a.onnx")
    (tmp_path / "b.onnx").write_bytes(b"")
    refused(lambda: DecoderModel(str(tmp_path)), match="not clear")
    refused(lambda: DecoderModel(str(tmp_path), dtype="q4"), match="dtype 'q4'")
    refused(lambda: DecoderModel(str(tmp_path), dtype=3))


# ---- tokenizers ----
@pytest.fixture(scope="module")
def tokenizer_json():
    """A small tokenizer of common components."""
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [
                {
                    "id": 0,
                    "content": "<s>",
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": True,
                }
            ],
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {
                "type": "ByteLevel",
                "add_prefix_space": False,
                "trim_offsets": True,
                "use_regex": True,
            },
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "<s>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
            },
            "decoder": {
                "type": "ByteLevel",
                "add_prefix_space": True,
                "trim_offsets": True,
                "use_regex": True,
            },
            "model": {
                "type": "BPE",
                "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 3},
                "merges": ["a b"],
            },
        }
    )


def test_broken_tokenizers(tokenizer_json, refused):
    pytest.importorskip("tokenizers")
    from edgewise.text.tokenizer import Tokenizer

    files = {
        "tokenizer.json": tokenizer_json.encode(),
        "tokenizer_config.json": b'{"eos_token": "<s>", "chat_template": "{{ messages }}"}',
    }

    def load(**changed):
        table = {**files, **{k.replace("__", "."): v for k, v in changed.items()}}
        t = Tokenizer.from_files(table.get, "model")
        return t.decode(t.encode("abba"))

    assert "ab" in load()
    for n in range(0, len(tokenizer_json), 16):
        refused(lambda: load(tokenizer__json=tokenizer_json.encode()[:n]), TokenizerError)
    rng, value = random.Random(6), json.loads(tokenizer_json)
    for path in places(value):
        for new in rng.sample([..., None, True, -1, 1 << 40, "x", [], {}, [1], {"type": "BPE"}], 4):
            if path or new is not ...:
                refused(
                    lambda: load(tokenizer__json=json.dumps(edited(value, path, new)).encode()),
                    TokenizerError,
                    may_work=True,
                )
    for config in (
        b"{",
        b"[]",
        b"3",
        b'{"eos_token": 3}',
        b'{"eos_token": []}',
        b'{"eos_token": {"content": 5}}',
        b'{"bos_token": "nowhere", "tokenizer_class": "LlamaTokenizer", "add_bos_token": true}',
        b'{"chat_template": 3}',
        b'{"chat_template": [3]}',
        b'{"chat_template": [{"name": 1}]}',
        b'{"tokenizer_class": []}',
        b'{"model_max_length": "x"}',
        b'{"clean_up_tokenization_spaces": []}',
    ):
        refused(lambda: load(tokenizer_config__json=config), TokenizerError, may_work=True)
