"""`.edge` packages: the same tokens as the folder they were built from, weights once, and the
command that builds them.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from edgewise import cli
from edgewise.host.session.decoder import DecoderModel, open_package
from edgewise.onnx import BytesSource
from edgewise.package import Package
from zoo.zoo import causal_lms

LMS = causal_lms()
OWN = [m for m in LMS if m.name.startswith("models/")]


def greedy(lm, ids, count=24):
    sequence, out, new = lm.open(), [], ids
    for _ in range(count):
        new = [int(np.argmax(lm.logits(lm.forward(sequence, new))))]
        out += new
    lm.close(sequence)
    return out


@pytest.mark.parametrize("model", LMS, ids=repr)
def test_same_tokens(model, tmp_path):
    """From the file, from its package in memory, from the package as a file."""
    package = open_package(model.path, capacity=40)
    first = DecoderModel(package)
    want = greedy(first, [5, 3, 9])
    path = tmp_path / "model.edge"
    with open(path, "wb") as f:
        package.write(f)
    again = DecoderModel(str(path))
    assert again.vocab_size == first.vocab_size and again.max_length == 40
    assert greedy(again, [5, 3, 9]) == want
    # what the file holds: each weight once, and nothing else of the model
    manifest = again.package.manifest
    extents = [(w["offset"], w["bytes"]) for w in manifest["weights"]]
    assert (
        len({w["name"] for w in manifest["weights"]}) == len(extents)
        and sum(n for _, n in extents) <= manifest["files"]["weights"][1]
    )
    used = {
        s["name"] for p in manifest["decoder"]["plans"] for s in p["slots"] if s["kind"] == "weight"
    }
    assert used == {w["name"] for w in manifest["weights"]}
    assert str(model.root) not in path.read_bytes()[: 1 << 20].decode("latin1"), (
        "no path of this machine"
    )
    first.free()
    again.free()


def test_weights_are_shared_among_plans_and_mapped(tmp_path):
    """Three plans, one copy of the weights; natively the file itself is mapped."""
    path = tmp_path / "model.edge"
    with open(path, "wb") as f:
        open_package(OWN[0].path).write(f)
    lm = DecoderModel(str(path))
    assert len(lm.plans) == 3
    assert len(lm.store.weights) <= len(lm.weights)
    assert not any(owned for *_, owned in lm.store.weights.values()), (
        "64-byte aligned in the file: none was copied"
    )


def test_two_writes_are_the_same():
    a, b = io.BytesIO(), io.BytesIO()
    for out in (a, b):
        open_package(OWN[0].path).write(out)
    assert a.getvalue() == b.getvalue()
    again = io.BytesIO()
    Package.read(BytesSource(a.getvalue())).write(again)  # a package that was read can be written
    assert DecoderModel(Package.read(BytesSource(again.getvalue()))).vocab_size == 256


# ---- the command ----
def edgewise(*args):
    return subprocess.run(
        [sys.executable, "-m", "edgewise.cli", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=550,
    )


@pytest.fixture
def folder(tmp_path):
    """A model folder in Hugging Face layout."""
    folder = tmp_path / "model"
    (folder / "onnx").mkdir(parents=True)
    q4 = next(m for m in OWN if "q4_llama" in m.name)
    shutil.copy(q4.path, folder / "onnx" / "model_q4.onnx")
    (folder / "config.json").write_text(
        json.dumps({"model_type": "llama", "max_position_embeddings": 64})
    )
    return folder


def test_build_and_inspect(folder, tmp_path):
    r = edgewise("build", folder, "-o", tmp_path / "m.edge")
    assert r.returncode == 0 and not r.stderr, r.stderr
    assert re.fullmatch(
        r".*m\.edge: 0\.\d+ MB, up to 64 tokens, vocabulary 256, plans for 1, 16, 64 tokens at"
        r" once\n",
        r.stdout,
    ), r.stdout
    assert (
        json.loads(DecoderModel(str(tmp_path / "m.edge")).package.file("config.json"))["model_type"]
        == "llama"
    )
    assert greedy(DecoderModel(str(tmp_path / "m.edge")), [1, 2]) == greedy(
        DecoderModel(str(folder)), [1, 2]
    )
    r = edgewise("build", folder, "-o", tmp_path / "n.edge", "--dtype", "q4", "--max-length", "32")
    assert r.returncode == 0 and "up to 32 tokens" in r.stdout
    r = edgewise("build", folder, "-o", tmp_path / "h.edge", "--cache-dtype", "float16")
    whole, halves = (DecoderModel(str(tmp_path / name)) for name in ("m.edge", "h.edge"))
    assert (
        r.returncode == 0
        and halves.cache_dtype == "float16"
        and sum(c["bytes"] for c in whole.caches) == 2 * sum(c["bytes"] for c in halves.caches)
    )
    r = edgewise("inspect", folder / "onnx" / "model_q4.onnx")
    assert (
        r.returncode == 0
        and "input input_ids: int64" in r.stdout
        and "not supported: none" in r.stdout
    )


def test_errors_are_one_line(folder, tmp_path, capsys):
    """Status 1, one line that names what, where and the remedy, no traceback, and no incomplete
    file.
    """
    (tmp_path / "broken.onnx").write_bytes((folder / "onnx" / "model_q4.onnx").read_bytes()[:5000])
    (tmp_path / "broken.edge").write_bytes(b"EDGEWISE" + bytes(100))
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out.edge"
    cases = [
        ("build", tmp_path / "broken.onnx", "-o", out),
        ("build", tmp_path / "nothing", "-o", out),
        ("build", tmp_path / "empty", "-o", out),
        ("build", folder, "-o", out, "--dtype", "int9"),
        ("build", folder, "-o", out, "--max-length", "-3"),
        ("build", folder, "-o", tmp_path / "no" / "such" / "folder.edge"),
        ("build", folder, "-o", tmp_path / "empty"),
        ("generate", tmp_path / "broken.edge", "x"),
        ("generate", folder, "x"),
        ("inspect", tmp_path / "nothing.onnx"),
        ("inspect", tmp_path / "broken.onnx"),
        ("inspect", tmp_path),
    ]
    for args in cases:
        assert cli.main([str(a) for a in args]) == 1, args
        said = capsys.readouterr()
        assert re.fullmatch(r"edgewise: [^\n]{20,}\n", said.err), (args, said.err)
        assert "Traceback" not in said.err and str(tmp_path) in said.err + str(args)
    assert not out.exists() and not [f for f in os.listdir(tmp_path) if f.endswith(".part")]
    r = edgewise("build", tmp_path / "broken.onnx", "-o", out)
    assert r.returncode == 1 and r.stderr.count("\n") == 1 and not r.stdout
    r = edgewise("build", folder)
    assert r.returncode == 1 and "-o" in r.stderr and r.stderr.count("\n") == 1


def test_inspect_names_what_is_missing(tmp_path, capsys):
    from hostile.seeds import F, model, node, value

    (tmp_path / "m.onnx").write_bytes(
        model(
            [node("Relu", "x", "h"), node("Unheard", "h", "y")], [value("x")], [value("y", F, None)]
        )
    )
    assert cli.main(["inspect", str(tmp_path / "m.onnx")]) == 1
    assert "not supported: Unheard (1 nodes: 'y')" in capsys.readouterr().out
