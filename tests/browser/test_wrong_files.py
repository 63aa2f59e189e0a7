"""Invalid models, tokenizers, operators and options."""

import json
import shutil

from .conftest import MODEL
from .loading import error, load

# Invalid files


def test_invalid_files(visit, server, files):
    v = visit(server)
    shutil.copy(MODEL / "tokenizer.json", files / "tokenizer.json")
    (files / "page.edge").write_text("<!doctype html>not found")
    (files / "page.onnx").write_text("<!doctype html>not found")
    (files / "empty.edge").write_bytes(b"")
    (files / "empty.onnx").write_bytes(b"")
    error(load(v, "/files/page.edge"), "PackageError", "not an Edgewise package", "edgewise build")
    error(load(v, "/files/empty.edge"), "PackageError", "not an Edgewise package")
    error(load(v, "/files/page.onnx"), "ModelError", "page.onnx")
    error(load(v, "/files/empty.onnx"), "ModelError", "empty.onnx")
    for blobs, name, words in (
        ([["notes.txt", "hello"]], "InputError", "no .onnx and no .edge"),
        ([["a.onnx", "x"], ["b.onnx", "y"]], "InputError", "2 .onnx files"),
        ([["model.edge", "hello, I am no package"]], "PackageError", "not an Edgewise package"),
    ):
        error(
            v.run(
                "await ew.pipeline('text-generation', arg.map(([n, t]) => new File([t], n)))", blobs
            ),
            name,
            words,
        )


def test_broken_tokenizers(visit, server, package):
    v = visit(server)
    whole = json.loads((MODEL / "tokenizer.json").read_text())
    for text, words in (
        ('{"version": "1.0", "model"', "invalid JSON"),
        ("[]", "not a JSON object"),
        (json.dumps({**whole, "model": {"type": "Nonsense"}}), "not a valid tokenizer"),
        (None, "no tokenizer.json"),
    ):
        got = v.run(
            """
                const files = [
                  new File(
                    [await (await fetch("/demo/model/onnx/model_q4.onnx")).blob()],
                    "model.onnx",
                  ),
                  new File(
                    [await (await fetch("/demo/model/config.json")).blob()],
                    "config.json",
                  ),
                ];
                if (arg !== null) files.push(new File([arg], "tokenizer.json"));
                await ew.pipeline("text-generation", files);
            """,
            text,
        )
        error(got, "TokenizerError", words)


def test_an_unsupported_op(visit, server, files):
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["input_ids"], ["x"], name="/embed", to=TensorProto.FLOAT),
            helper.make_node(
                "Wiggle", ["x"], ["logits"], name="/layers.3/wiggle", domain="com.example"
            ),
        ],
        "g",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", 8])],
    )
    shutil.copy(MODEL / "tokenizer.json", files / "tokenizer.json")
    (files / "wiggle.onnx").write_bytes(
        helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)],
        ).SerializeToString()
    )
    v = visit(server)
    e = error(load(v, "/files/wiggle.onnx"), "UnsupportedOp", "Wiggle", "/layers.3/wiggle")
    assert e["remedy"]


def test_invalid_options(visit, server):
    v = visit(server)
    error(load(v, "/files/model.edge", threads=0), "InputError", "threads")
    error(load(v, "/files/model.edge", flavour="fast"), "InputError", "flavour")
    error(load(v, "/files/model.edge", dtype="q3"), "InputError", "dtype")
    error(load(v, "/files/model.edge", colour="red"), "InputError", "colour")
    error(v.run("await ew.pipeline('painting', '/files/model.edge')"), "InputError", "painting")
    got = v.run(
        """
            const p = await ew.pipeline("text-generation", "/files/model.edge");
            const out = [];
            for (const [input, fields] of arg) {
              try {
                await p(input, fields);
                out.push("fine");
              } catch (e) {
                out.push(`${e.name}: ${e.message}`);
              }
            }
            let cloned;
            try {
              await p("a", { logits_processor: () => 0 });
            } catch (e) {
              cloned = e.name;
            }
            const after = await p("Once", { max_new_tokens: 2 });
            await p.dispose();
            return { out, cloned, after };
        """,
        [
            ["a", {"penalty_alpha": 0.6, "top_k": 4}],
            ["a", {"no_such_field": 1}],
            ["a", {"temperature": -1, "do_sample": True}],
            [[], {}],
            [[{"role": "user", "content": "hi"}], {}],
            ["word " * 2000, {}],
        ],
    )
    assert [line.split(":")[0] for line in got["out"][:2]] == [
        "UnsupportedField",
        "UnsupportedField",
    ], got["out"]
    assert (
        all(line != "fine" for line in got["out"])
        and "TokenizerError" in got["out"][4]
        and "InputError" in got["out"][5]
    ), got["out"]
    assert got["cloned"] == "InputError" and got["after"]
