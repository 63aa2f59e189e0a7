"""Smaller engines: kernels removed from a .wasm (edgewise.compiler.shake), `edgewise build
--engine`, and the error of an engine that lacks a kernel.
"""

import random
import shutil
import subprocess

import edgewise
import numpy as np
import pytest
from edgewise import cli
from edgewise.compiler.ops.table import kernel_table, variants
from edgewise.compiler.shake import kernels_of, shake
from edgewise.errors import EdgewiseError, EngineError
from edgewise.host.session.decoder import DecoderModel, open_package
from onnx import TensorProto, helper
from tiers import slow_unless

from engines.node_engine import ROOT, NodeEngine

ENGINES = ROOT / "web/dist/engine"
FLAVOURS = ["simd128", "relaxed-threads"]
# Of many cases `make test` takes one part.
PARTS = 8
of_parts = pytest.mark.parametrize("part", slow_unless(lambda part: part == 0, range(PARTS)))


def model(*nodes):
    """x [n, 8] through the nodes, a -> b -> ..., to y."""
    names = ["x", *"abcdefg"[: len(nodes) - 1], "y"]
    g = helper.make_graph(
        [helper.make_node(op, [i], [o]) for op, i, o in zip(nodes, names, names[1:])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(
        g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()


X = np.random.default_rng(1).standard_normal((300, 8), np.float32)


@pytest.fixture(params=FLAVOURS)
def flavour(request):
    return request.param


@pytest.fixture
def full(flavour):
    return (ENGINES / f"edgewise-{flavour}-full.wasm").read_bytes()


def test_base_and_full(flavour, full):
    every = [k.name for k in kernel_table().kernels]
    assert kernels_of(full) == every
    base = (ENGINES / f"edgewise-{flavour}.wasm").read_bytes()
    assert kernels_of(base) == [k.name for k in kernel_table().kernels if not k.c.rare]
    assert (
        kernels_of(shake(full, every)) == every and abs(len(shake(full, every)) - len(full)) < 1000
    )
    assert b"ew_resize_open" in full and b"ew_resample_open" in full
    for small in (base, shake(full, every, media=False)):
        assert b"ew_resize" not in small and b"ew_resample" not in small


def test_the_rest_works(flavour, full, tmp_path):
    """Remaining kernels give the same results, threads included; a plan with a removed kernel is
    refused by name, and the engine still works.
    """
    small = tmp_path / "small.wasm"
    small.write_bytes(shake(full, ["unary", "softmax", "copy"]))
    assert len(small.read_bytes()) < len(full) / 2
    engine = NodeEngine(flavour, path=small)
    try:
        session = edgewise.InferenceSession(model("Tanh", "Softmax"), engine=engine)
        for x in (X, X[:1], X):
            e = np.exp(np.tanh(x))
            np.testing.assert_allclose(
                session.run(None, {"x": x})[0], e / e.sum(-1, keepdims=True), rtol=1e-5
            )
        with pytest.raises(
            EngineError,
            match="kernel cumsum, which this engine was built without.*full engine.*edgewise build",
        ):
            g = helper.make_graph(
                [helper.make_node("CumSum", ["x", "axis"], ["y"])],
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                [helper.make_tensor("axis", TensorProto.INT64, [], [1])],
            )
            edgewise.InferenceSession(
                helper.make_model(
                    g, opset_imports=[helper.make_opsetid("", 17)]
                ).SerializeToString(),
                engine=engine,
            ).run(None, {"x": X})
        assert np.isfinite(session.run(None, {"x": X})[0]).all()
        session.free()
    finally:
        engine.close()


def invalid(folder):
    """The first .wasm of a folder that Node does not take, or ""."""
    check = (
        "const fs = require('fs'); for (const f of fs.readdirSync('.')) if"
        " (!WebAssembly.validate(fs.readFileSync(f))) { console.log(f); process.exit(1); }"
    )
    return subprocess.run(
        ["node", "--experimental-wasm-relaxed-simd", "-e", check],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@of_parts
def test_every_kernel_alone(flavour, full, tmp_path, part):
    """Whatever stays, what is left is a valid module with exactly that; a tenth of the kernels for
    the flavour that has fewer kinds of instructions.
    """
    every = kernels_of(full)
    for kernel in (every if flavour == "relaxed-threads" else every[::10])[part::PARTS]:
        one = shake(full, [kernel])
        assert kernels_of(one) == [kernel]
        (tmp_path / f"{kernel}.wasm").write_bytes(one)
    assert invalid(tmp_path) == ""


@of_parts
def test_damaged(full, part):
    """Bytes that are not an engine, or one with a few bytes changed, cut or repeated: an error in
    words, or a module.
    """
    for data in (
        b"",
        b"\0asm",
        b"\0asm\1\0\0\0",
        b"\0asm\2\0\0\0" + full[8:],
        full[:-1],
        full[:1000],
        bytes(1000),
        b"PK\3\4" * 100,
        full + b"\12\2\0\0",
        full.replace(b"EDGEWISE KERNELS", b"EDGEWISE KERNEL!"),
    ):
        with pytest.raises(EngineError):
            shake(data, ["unary"], "some.wasm")
    with pytest.raises(EngineError, match="no kernel 'nonsense'"):
        shake(full, ["unary", "nonsense"])
    with pytest.raises(EngineError, match="no kernel 'where'.*full"):
        shake(shake(full, ["unary"]), ["where"])
    rng = random.Random(part)
    for _ in range(12):
        data = bytearray(full)
        for _ in range(rng.choice((1, 3, 20))):
            at = rng.randrange(rng.choice((2000, len(data))))
            data[at] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        if rng.random() < 0.2:
            at = rng.randrange(len(data))
            del data[at : at + rng.choice((1, 1000))]
        try:
            assert isinstance(shake(data, ["unary"]), bytes)
        except EdgewiseError as e:
            assert e.what and e.remedy


DEMO = ROOT / "web/demo/model"


def test_build_for_the_demo(flavour, tmp_path, capsys):
    """The engine for one language model generates the same text as the native one, and refuses the
    plans of another model with an error.
    """
    out = tmp_path / "engine.wasm"
    assert cli.main(["build", str(DEMO), "--engine", str(out), "--flavour", flavour]) == 0
    said = capsys.readouterr().out
    assert "kernels: attention, " in said and "kB as deflate" in said
    # 13 kB of them in relaxed read caches of 8 and 4 bits, which the kernel of attention contains,
    # and 9 kB share keys and values among queries of a head
    assert out.stat().st_size <= {"simd128": 154_000, "relaxed-threads": 160_000}[flavour]
    ids = [5, 60, 700, 8, 9] * 5
    wanted = DecoderModel(DEMO)
    engine = NodeEngine(flavour, path=out)
    try:
        got = DecoderModel(DEMO, engine=engine)
        a, b = wanted.open(), got.open()
        for part in (ids, [17], [18, 19]):
            np.testing.assert_allclose(
                got.logits(got.forward(b, part)), wanted.logits(wanted.forward(a, part)), atol=2e-3
            )
        with pytest.raises(EngineError, match="softmax, which this engine was built without"):
            edgewise.InferenceSession(model("Softmax"), engine=engine).run(None, {"x": X})
        got.free()
    finally:
        engine.close()
        wanted.free()


def test_build_for_other_models(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(model("Tanh", "Softmax", "Round"))
    assert (
        cli.main(
            ["build", str(path), "--engine", str(tmp_path / "e"), "--dims", "n=1", "--dims", "n=9"]
        )
        == 0
    )
    assert sorted(p.name for p in (tmp_path / "e").iterdir()) == [
        "edgewise-relaxed-threads.wasm",
        "edgewise-simd128-threads.wasm",
        "edgewise-simd128.wasm",
    ]
    assert capsys.readouterr().out.startswith("2 kernels: softmax, unary\n")
    # the npm package has no engine simd128: it is made of simd128-threads
    (tmp_path / "npm").mkdir()
    for name in ("relaxed-threads", "simd128-threads"):
        shutil.copy(ENGINES / f"edgewise-{name}-full.wasm", tmp_path / "npm")
    again = ["build", str(path), "--engine", str(tmp_path / "n"), "--from", str(tmp_path / "npm")]
    assert cli.main([*again, "--dims", "n=1", "--dims", "n=9"]) == 0
    for name in ("edgewise-simd128.wasm", "edgewise-simd128-threads.wasm"):
        assert (tmp_path / "n" / name).read_bytes() == (tmp_path / "e" / name).read_bytes()
    capsys.readouterr()
    for arguments, words in (
        (["--dims", "m=1"], "has a dimension 'm'"),
        ([], "do not match a decoder-only language model"),
        (["--dims", "n=1", "--from", str(tmp_path)], "no edgewise-simd128-full.wasm"),
    ):
        assert cli.main(["build", str(path), "--engine", str(tmp_path / "f.wasm"), *arguments]) == 1
        assert words in capsys.readouterr().err
    assert cli.main(["build", str(path)]) == 1 and "neither" in capsys.readouterr().err
    assert (
        cli.main(["build", str(path), str(path), "-o", "y.edge"]) == 1
        and "more than one model" in capsys.readouterr().err
    )


@pytest.mark.parametrize("room", ["see", "morse", "draw"])
def test_build_for_pipelines(room, tmp_path, capsys):
    """The engine for the package of a pipeline has all kernels that the package says it needs, and
    resamples pictures and sound.
    """
    path = ROOT / f"web/dist/demo/{room}.edge"
    needed = open_package(path).manifest["kernels"]
    out = tmp_path / "engine.wasm"
    assert cli.main(["build", str(path), "--engine", str(out)]) == 0
    assert capsys.readouterr().out.startswith(f"{len(needed)} kernels: {', '.join(needed)}\n")
    small = out.read_bytes()
    assert b"ew_resize_open" in small and b"ew_resample_open" in small


def test_values_of_parameters(flavour, tmp_path, capsys):
    """Only the code for the parameter values of the given models remains; it gives the same
    results, and other values are refused with an error.
    """
    mine, small, all_of_it = tmp_path / "m.onnx", tmp_path / "small.wasm", tmp_path / "all.wasm"
    mine.write_bytes(model("Tanh", "Erf", "Neg"))
    assert (
        cli.main(
            ["build", str(mine), "--engine", str(small), "--flavour", flavour, "--dims", "n=3"]
        )
        == 0
    )
    full = (ENGINES / f"edgewise-{flavour}-full.wasm").read_bytes()
    all_of_it.write_bytes(shake(full, ["unary"]))
    assert small.stat().st_size < all_of_it.stat().st_size - 15_000
    engine = NodeEngine(flavour, path=small)
    try:

        def run(nodes, on):
            session = edgewise.InferenceSession(model(*nodes), engine=on)
            try:
                return session.run(None, {"x": X})[0]
            finally:
                session.free()

        other = NodeEngine(flavour)
        try:
            for nodes in (("Tanh", "Erf", "Neg"), ("Erf",), ("Neg", "Tanh")):
                assert np.array_equal(run(nodes, engine), run(nodes, other))
        finally:
            other.close()
        for op in ("Sin", "Abs", "Exp", "Sigmoid"):
            with pytest.raises(
                EngineError,
                match=(
                    r"kernel unary with the value \d+ of a parameter, which this engine was built"
                    r" without"
                ),
            ):
                run((op,), engine)
        assert np.isfinite(run(("Tanh",), engine)).all()
    finally:
        engine.close()


def everything():
    """Every value of every parameter that kernels have code of their own for, one after the other,
    alone.
    """
    for k, parameter, _ in variants():
        for value in range(48):
            yield k, parameter, value


@of_parts
def test_every_value_alone(flavour, full, tmp_path, part):
    """Whatever values stay, what is left is valid: every 23rd, other ones for each flavour."""
    for i, (k, parameter, value) in enumerate(everything()):
        if i % (46 * PARTS) == 46 * part + 23 * FLAVOURS.index(flavour):
            (tmp_path / f"{k.name}-{parameter}-{value}.wasm").write_bytes(
                shake(
                    full,
                    [k.name],
                    values={(k.name, p): {value} if p == parameter else None for p in k.c.variants},
                )
            )
    assert invalid(tmp_path) == ""
