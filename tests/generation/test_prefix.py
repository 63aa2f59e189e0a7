"""Prefixes as files: each result is that of a model that has read them, bit for bit, and files of
other models, damaged ones and hostile ones are refused.
"""

import json
import random
import struct
from array import array
from hashlib import sha256
from pathlib import Path

import pytest
from edgewise import CausalLM, Trainer, pipeline
from edgewise.cli import main
from edgewise.compiler.compile import causal_lm
from edgewise.compiler.training.safetensors import load_safetensors, save_safetensors
from edgewise.errors import EdgewiseError, EngineError, InputError, ModelError, PackageError
from edgewise.logic.generation.prefix import PREFIX
from edgewise.logic.manifest.checker import Checker
from edgewise.logic.manifest.package import check_manifest
from edgewise.logic.manifest.schema import records
from tiers import slow_unless

from .test_kept import CAPACITY, LORA, answer, load, saved, text

PIECE = 128
FAST = [("q4", "int4"), ("fp32", None), ("hybrid", "int8"), ("windows", None)]


def opened(data):
    """({name: (dtype, shape, bytes)}, metadata) of a file."""
    tensors, metadata = load_safetensors(data)
    return {n: (t.dtype, tuple(t.shape), bytes(t.bytes())) for n, t in tensors.items()}, metadata


def closed(tensors, metadata):
    """A file with the checksum of its tensors."""
    lines = sorted(f"{n} {sha256(x[2]).hexdigest()}" for n, x in tensors.items())
    checksum = sha256("\n".join(lines).encode()).hexdigest()
    return save_safetensors(tensors, None, {**metadata, "sha256": checksum})


def prompts(r, prefix, vocab):
    return [prefix + text(r, vocab, most) for most in (1, 40, 200)]


@pytest.mark.parametrize(
    "kind, dtype",
    slow_unless(
        lambda kind, dtype: (kind, dtype) in FAST,
        [
            *((k, d) for k in ("q4", "fp32", "hybrid") for d in (None, "float16", "int8", "int4")),
            *(("windows", None), ("mixed", "float16")),
        ],
    ),
)
def test_results_are_those_without(tmp_path, kind, dtype):
    """With caches of all types, states that cannot be cut, several samplers, and a model that had
    other conversations before.
    """
    path, r = saved(tmp_path, kind), random.Random(5)
    plain, lm = (load(path, cache_bytes=b, cache_dtype=dtype) for b in (0, None))
    prefix = [r.randrange(1, plain.vocab_size) for _ in range(300)]
    data = plain.save_prefix(prefix)
    lm.save_prefix(prefix, tmp_path / "a.prefix")
    assert (tmp_path / "a.prefix").read_bytes() == data
    for prompt in prompts(r, prefix, lm.vocab_size):
        answer(lm, prompt, True, max_new_tokens=3)
        assert lm.save_prefix(prefix) == data  # after longer prompts, too
    other = load(path, cache_dtype=dtype)
    answer(other, text(r, other.vocab_size, 400), True, max_new_tokens=2)
    assert other.load_prefix(tmp_path / "a.prefix") == other.load_prefix(data) == 2 * PIECE
    for prompt in prompts(r, prefix, other.vocab_size):
        for fields in ({}, {"num_beams": 3}, {"do_sample": True, "seed": 3}):
            fields = {"max_new_tokens": 6, "do_sample": False, **fields}
            expected, got = (
                answer(plain, prompt, True, **fields),
                answer(other, prompt, True, **fields),
            )
            assert got[:2] == expected[:2]
            assert got[2] >= 2 * PIECE
    whole = plain.bytes_for(CAPACITY)
    whole += plain.marked_bytes(CAPACITY)
    assert len(data) < whole  # room that no token has taken is not in the file


def test_packages_that_do_not_tell_rows(tmp_path, monkeypatch):
    """Those of older versions, whose caches have room for all tokens: whole ones are saved."""
    monkeypatch.setattr(causal_lm, "ROOM_STEP", CAPACITY)
    path, r = saved(tmp_path, "fp32"), random.Random(6)
    plain, lm = load(path, cache_bytes=0), load(path)
    prefix = [r.randrange(1, 90) for _ in range(2 * PIECE)]
    for cache in lm.package.manifest["decoder"]["caches"]:
        del cache["rows"]
    data = lm.save_prefix(prefix)
    lm.clear_cache()
    assert lm.load_prefix(data) == 2 * PIECE
    prompt = [*prefix, 7]
    got = answer(lm, prompt, True, max_new_tokens=4)
    assert got[:2] == answer(plain, prompt, True, max_new_tokens=4)[:2] and got[2] == 2 * PIECE


@pytest.mark.parametrize("rows", [[1, 1], [0, 1], [2, -1], [2], "2", None])
def test_packages_with_wrong_rows(tmp_path, rows):
    lm = load(saved(tmp_path, "hybrid"))
    lm.package.save(str(tmp_path / "model.edge"))
    manifest = CausalLM(str(tmp_path / "model.edge")).package.manifest
    checker = Checker("package", records())
    check_manifest(checker, manifest)
    caches = manifest["decoder"]["caches"]
    assert [("rows" in c, c.get("fixed", False)) for c in caches].count((True, False)) == 2
    for cache in caches:
        wrong = json.loads(json.dumps(manifest))
        wrong["decoder"]["caches"][caches.index(cache)]["rows"] = rows
        with pytest.raises(PackageError, match="rows"):
            check_manifest(checker, wrong)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("window"),
        lambda d: d["window"].update(rows=d["window"]["rows"] - 1),
        lambda d: d["window"].update(size=200),
        lambda d: d["window"].update(size=0),
        lambda d: d["caches"][-1].pop("sliding"),
        lambda d: d["plans"][0]["registers"].pop("held"),
        lambda d: d["plans"][0]["registers"].update(held=4, dropped=3),
        lambda d: d["plans"][1]["registers"].update(window=9),
    ],
)
def test_packages_with_wrong_windows(tmp_path, change):
    load(saved(tmp_path, "windows")).package.save(str(tmp_path / "model.edge"))
    manifest = CausalLM(str(tmp_path / "model.edge")).package.manifest
    checker = Checker("package", records())
    check_manifest(checker, manifest)
    change(manifest["decoder"])
    with pytest.raises(PackageError, match="window|registers|rows"):
        check_manifest(checker, manifest)


def test_pipelines(tmp_path):
    """A text, token ids, and the file of a package in the model of its folder's package."""
    story = "Once upon a time there was a little dog. " * 20
    fields = {"max_new_tokens": 8, "do_sample": False}
    pipe, other = (pipeline("text-generation", "web/demo/model", capacity=600) for _ in "ab")
    data = pipe.save_prefix(story)
    assert pipe.save_prefix(story, tmp_path / "story") is None
    assert (tmp_path / "story").read_bytes() == data
    n = other.load_prefix(str(tmp_path / "story"))
    assert n == len(other.tokenizer.encode(story)) // PIECE * PIECE
    for more in ("The dog ran", "", "he"):
        assert other(story + more, **fields) == pipe(story + more, cache=False, **fields)
    got = answer(other.model, other.tokenizer.encode(story + "The"), True, max_new_tokens=1)
    assert got[2] >= n
    ids = other.tokenizer.encode(story)
    assert opened(pipe.save_prefix({"input_ids": ids}))[0]["ids"] == opened(data)[0]["ids"]
    pipe.model.package.save(str(tmp_path / "model.edge"))
    packaged = pipeline("text-generation", str(tmp_path / "model.edge"))
    assert packaged.load_prefix(data) == n


TEMPLATE = (
    "{% if tools %}{{ tools[0].function.name }}{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if messages[-1].role != 'user' and not add_generation_prompt %}END{% endif %}"
    "{% if messages[-1].role == 'system' %}{{ raise_exception('no user') }}{% endif %}"
)


def test_chats():
    """The tokens that all chats have which begin so, although the template refuses chats without a
    question, and ends others in another way.
    """
    pipe = pipeline("text-generation", "web/demo/model", capacity=900)
    pipe.tokenizer.chat_template = TEMPLATE
    start = [{"role": "system", "content": "The dog is old and the sea is calm. " * 20}]
    data = pipe.save_prefix(start)
    [count] = opened(data)[0]["ids"][1]
    pipe.clear_cache()
    assert pipe.load_prefix(data) == count
    chat = [*start, {"role": "user", "content": "Where is the boat?"}]
    fields = {"max_new_tokens": 8, "do_sample": False}
    before = [len(e.ids) for e in pipe.model.kept.entries]
    assert pipe(chat, **fields) == pipe(chat, cache=False, **fields)
    assert before == [count]
    asked = pipe.save_prefix([*chat, {"role": "assistant", "content": "At sea. " * 60}])
    assert opened(asked)[0]["ids"][1][0] > count


def test_adapters(tmp_path):
    """The states of an adapter are loaded with the same values of it, under any name."""
    path, r = saved(tmp_path, "fp32"), random.Random(3)
    for i, name in enumerate("ab"):
        trainer = Trainer(
            path, adapters=LORA, batch_size=2, sequence_length=16, learning_rate=2e-2, seed=i
        )
        trainer.fit([text(r, 90, 160)] * 2, progress=False)
        trainer.save_adapter(tmp_path / name)
        trainer.free()
    lm, other = load(path, lora=LORA), load(path, lora=LORA)
    prefix = text(r, 90, 1) * 200
    files = {None: lm.save_prefix(prefix)}
    for name in "ab":
        lm.load_adapter(tmp_path / name, name)
        other.load_adapter(tmp_path / name, "my " + name)
        lm.set_adapter(name)
        files[name] = lm.save_prefix(prefix)
    lm.set_adapter("a", 0.5)
    files["half"] = lm.save_prefix(prefix)
    for active, scale, fitting in (
        (None, 1, None),
        ("a", 1, "a"),
        ("b", 1, "b"),
        ("a", 0.5, "half"),
    ):
        other.set_adapter(active and "my " + active, scale)
        lm.set_adapter(active, scale)
        other.clear_cache()
        for name, data in files.items():
            if name != fitting:
                with pytest.raises(InputError, match="another adapter"):
                    other.load_prefix(data)
        assert other.load_prefix(files[fitting]) == PIECE
        got = answer(other, prefix, True, max_new_tokens=4)
        assert got[:2] == answer(lm, prefix, False, max_new_tokens=4)[:2] and got[2] == PIECE


def test_models_of_a_training_session(tmp_path):
    """Adapters that learn: a file from before is refused."""
    path, r = saved(tmp_path, "fp32"), random.Random(4)
    trainer = Trainer(path, adapters=LORA, batch_size=2, sequence_length=16, learning_rate=2e-2)
    lm, prefix = trainer.language_model(), text(r, 90, 1) * 200
    before = lm.save_prefix(prefix)
    assert lm.load_prefix(before) == PIECE
    trainer.fit([text(r, 90, 160)], progress=False)
    with pytest.raises(InputError, match="another adapter"):
        lm.load_prefix(before)
    trainer.free()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """(path of a model, the model, a file of it)"""
    path = saved(tmp_path_factory.mktemp("prefix"), "hybrid")
    lm = CausalLM(path, capacity=300)
    return path, lm, lm.save_prefix([1 + i % 60 for i in range(PIECE)])


def test_other_models(small, tmp_path):
    path, lm, data = small
    for options in ({"capacity": 301}, {"capacity": 300, "cache_dtype": "float16"}):
        with pytest.raises(InputError, match="another model|cache_dtype"):
            CausalLM(path, **options).load_prefix(data)
    other = bytearray(path.read_bytes())
    weights = lm.package.manifest["weights"]
    at = max(weights, key=lambda w: w["bytes"])["offset"]
    other[at] ^= 1  # a bit of a weight
    (tmp_path / "other.onnx").write_bytes(other)
    with pytest.raises(InputError, match="another model"):
        CausalLM(tmp_path / "other.onnx", capacity=300).load_prefix(data)


def test_what_cannot_be_saved_or_kept(small, tmp_path):
    path, lm, data = small
    with pytest.raises(InputError, match="whole pieces of 128"):
        lm.save_prefix([1] * (PIECE - 1))
    with pytest.raises(InputError, match="at most 300"):
        lm.save_prefix([1] * 301)
    with pytest.raises(InputError, match="vocabulary"):
        lm.save_prefix([10_000] * PIECE)
    with pytest.raises(InputError, match="keeps no states"):
        CausalLM(path, capacity=300, cache_bytes=0).load_prefix(data)
    with pytest.raises(InputError, match="cache_bytes"):
        CausalLM(path, capacity=300, cache_bytes=1000).load_prefix(data)
    with pytest.raises(InputError, match="cannot open it"):
        lm.load_prefix(tmp_path / "none")
    pipe = pipeline("text-generation", "web/demo/model")
    for wrong in (["a", "b"], [], 5):
        with pytest.raises(InputError):
            pipe.save_prefix(wrong)


def tampered(data):
    """Files that are whole, but not what they say."""
    tensors, metadata = opened(data)
    other = dict(metadata)
    for field in ("format", "version", "engine", "model", "cache_dtype", "adapter", "sha256"):
        yield save_safetensors(tensors, None, {**other, field: "x"})
        yield save_safetensors(tensors, None, {k: v for k, v in other.items() if k != field})
    for name, (dtype, shape, content) in tensors.items():
        yield closed({k: v for k, v in tensors.items() if k != name}, metadata)
        yield closed({**tensors, name: (dtype, (*shape, 1), content)}, metadata)
        yield closed({**tensors, name: ("int8", (len(content),), content)}, metadata)
        yield closed({**tensors, name: (dtype, (0, *shape[1:]), b"")}, metadata)
        yield save_safetensors(
            {**tensors, name: (dtype, shape, content[:-1] + bytes([content[-1] ^ 1]))},
            None,
            metadata,
        )
    yield closed({**tensors, "more": ("uint8", (1,), b"a")}, metadata)
    for ids in ([-1], [61], [2**31 - 1]):
        wrong = array("i", ids + [1] * (PIECE - 1)).tobytes()
        yield closed({**tensors, "ids": ("int32", (PIECE,), wrong)}, metadata)
    for count in (0, 1, PIECE - 1, PIECE + 1, 2 * PIECE, 3 * PIECE):
        given = ("int32", (count,), bytes(4 * count))
        yield closed({**tensors, "ids": given}, metadata)


def test_hostile_files(small):
    _, lm, data = small
    lm.clear_cache()
    wrong = list(tampered(data))
    assert len(wrong) > 40
    for one in wrong:
        with pytest.raises((ModelError, InputError)):
            lm.load_prefix(one)
    assert not lm.kept.entries and not lm.sequences


def test_more_tokens_than_a_sequence_has(small):
    """Of the right shapes."""
    _, lm, data = small
    tensors, metadata = opened(data)
    large = {}
    for name, (dtype, shape, content) in tensors.items():
        if name == "ids" or len(shape) == 3:
            axis = 0 if name == "ids" else 1
            shape = tuple(3 * n if i == axis else n for i, n in enumerate(shape))
            content = bytes(3 * len(content))
        large[name] = (dtype, shape, content)
    with pytest.raises(ModelError, match="384 tokens, a sequence at most 300"):
        lm.load_prefix(closed(large, metadata))


def mutations(data, count, seed=0):
    """Files with random damage."""
    r = random.Random(seed)
    header = struct.unpack("<Q", data[:8])[0] + 8
    for _ in range(count):
        wrong, at = bytearray(data), r.randrange(r.choice([8, header, len(data)]))
        deed = r.choice(["bit", "byte", "cut", "insert", "swap", "zeros", "number"])
        if deed == "bit":
            wrong[at] ^= 1 << r.randrange(8)
        elif deed == "byte":
            wrong[at] = r.randrange(256)
        elif deed == "cut":
            del wrong[at : at + r.choice([1, 8, len(data)])]
        elif deed == "insert":
            wrong[at:at] = r.randbytes(r.choice([1, 8, 100]))
        elif deed == "swap":
            wrong[at : at + 16] = wrong[at : at + 16][::-1]
        elif deed == "zeros":
            wrong[at : at + 64] = bytes(len(wrong[at : at + 64]))
        else:
            entries = json.loads(data[8:header])
            entry = r.choice([e for n, e in entries.items() if n != "__metadata__"])
            part = r.choice([entry["shape"], entry["data_offsets"]])
            part[r.randrange(len(part))] = r.choice([0, -1, 1, 2**31, 2**53, 1.5, "1", None])
            changed = json.dumps(entries).encode()
            wrong = struct.pack("<Q", len(changed)) + changed + data[header:]
        yield bytes(wrong)


def test_mutations(small):
    """Random damage of a file: it is refused, or what is loaded is what it was."""
    _, lm, data = small
    tensors, refused = opened(data)[0], 0
    for wrong in mutations(data, 400):
        lm.clear_cache()
        try:
            lm.load_prefix(wrong)
        except EdgewiseError:
            refused += 1
            assert not lm.kept.entries
        else:
            assert opened(wrong)[0] == tensors
    assert refused > 300
    assert len(lm.sequences) == len(lm.kept.entries)


def test_numbers_that_are_not_finite(small):
    """States may have them, as those that a model computes may: the answer is refused, in words."""
    _, lm, data = small
    tensors, metadata = opened(data)
    nan = struct.pack("<f", float("nan"))
    for name, (dtype, shape, content) in tensors.items():
        if name != "ids":
            tensors[name] = (dtype, shape, nan * (len(content) // 4))
    lm.clear_cache()
    assert lm.load_prefix(closed(tensors, metadata)) == PIECE
    prompt = [1 + i % 60 for i in range(PIECE + 5)]
    with pytest.raises(EngineError, match="NaN or infinity"):
        answer(lm, prompt, True, max_new_tokens=3, do_sample=False)
    lm.clear_cache()
    plain = answer(lm, prompt, False, max_new_tokens=3, do_sample=False)
    assert answer(lm, prompt, True, max_new_tokens=3, do_sample=False)[:2] == plain[:2]


DEMO = Path(__file__).parents[2] / "web" / "demo" / "model"


def test_packages_with_a_prefix(tmp_path, capsys):
    """`edgewise build --prefix`: the first call does not read it; packages are built from it again,
    and a prefix of another model in a package is refused.
    """
    story, built = "Once upon a time there was a little dog. " * 20, tmp_path / "built.edge"
    given = tmp_path / "chat.json"
    given.write_text(json.dumps(story))
    assert not main(["build", str(DEMO), "--dtype=q4", f"-o{built}", f"--prefix={given}"])
    pipe, plain = pipeline("text-generation", built), pipeline("text-generation", DEMO, dtype="q4")
    fields = {"max_new_tokens": 8, "do_sample": False, "return_dict_in_generate": True}
    assert pipe.model.kept.bytes() > 0
    assert pipe(story + "It", **fields) == plain(story + "It", **fields)
    ids = pipe.tokenizer.encode(story)
    assert answer(CausalLM(built), ids, True, max_new_tokens=1)[2] >= PIECE
    assert CausalLM(built, cache_bytes=0).kept is None
    again = tmp_path / "again.edge"
    assert not main(["build", str(built), f"-o{again}", f"--prefix={given}"])
    assert again.read_bytes() == built.read_bytes()
    other = CausalLM(DEMO, dtype="q4", cache_dtype="float16")
    package = CausalLM(built).package
    package.blobs = {name: package.file(name) for name in package.manifest["files"]}
    del package.blobs["weights"]
    package.blobs[PREFIX] = other.save_prefix(ids)
    package.save(again)
    with pytest.raises(InputError, match="kept as 'float16'"):
        CausalLM(again)
    for wrong in ("[]", '{"tools": []}', "7", "{"):
        given.write_text(wrong)
        assert main(["build", str(DEMO), "--dtype=q4", f"-o{built}", f"--prefix={given}"])
    assert "chat.json: it has no messages" in capsys.readouterr().err
