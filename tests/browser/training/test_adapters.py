"""Adapters as files: save, load, merge into an .onnx file; invalid ones are rejected."""

import base64

import pytest

from ..conftest import MODEL
from .harness import BATCH, SEQUENCE, TEXT, train


# long: the script of a page and the checks of what it returns
def test_adapters_as_files(visit, server, trainable, tmp_path):
    """The page saves PEFT's layout, which Python reads. Loading it again gives the same adapter; in
    half precision nearly the same, and also with a lower rank.
    """
    np = pytest.importorskip("numpy")
    from edgewise.training.peft import load_adapter

    v = visit(server)
    got = train(
        v,
        """
            await ew.fineTune(p, arg.text, {
              max_steps: 8,
              learning_rate: 5e-3,
              r: 3,
              lora_alpha: 12,
              name: "low",
            });
            const low = await greedy();
            await ew.fineTune(p, arg.text, {
              max_steps: 8,
              learning_rate: 5e-3,
              seed: 8,
              name: "other",
            });
            const other = await greedy();
            const files = await p.saveAdapter("low");
            const info = await p.loadAdapter("back", files.reverse());
            await p.setAdapter("back");
            const back = await greedy();
            await p.renameAdapter("back", "again");
            await p.removeAdapter("low");
            await p.setAdapter("other");
            const still = await greedy();
            await p.keepAdapter("again");
            const names = p.adapters.map((a) => a.name);
            const data = Array.from(
              new Uint8Array(
                await files.find((f) => f.name === "adapter_model.safetensors").arrayBuffer(),
              ),
            );
            const config = await files.find((f) => f.name === "adapter_config.json").text();
            await p.dispose();
            return { low, other, back, still, info, names, data, config };
        """,
    )
    assert "error" not in got, str(got)[:900]
    assert (
        got["back"] == got["low"]
        and got["still"] == got["other"]
        and got["names"] == ["other", "again"]
    )
    assert (got["info"]["r"], got["info"]["lora_alpha"]) == (3, 12)
    (tmp_path / "adapter_model.safetensors").write_bytes(bytes(got["data"]))
    (tmp_path / "adapter_config.json").write_text(got["config"])
    adapter = load_adapter(tmp_path)
    assert adapter.config.r == 3 and adapter.config.lora_alpha == 12 and len(adapter.lora) == 42
    assert all(a.shape[0] == 3 == b.shape[1] for a, b in adapter.lora.values()) and any(
        np.frombuffer(b.bytes(), np.float32).any() for _, b in adapter.lora.values()
    )
    w = visit(server)
    kept = train(
        w,
        """
            const kept = await p.keptAdapters();
            const info = await p.loadAdapter("again");
            await p.setAdapter("again");
            const text = await greedy();
            await p.forgetAdapter("again");
            const none = await p.keptAdapters();
            let gone;
            try {
              await p.loadAdapter("again");
              gone = p.adapters.length;
            } catch (e) {
              gone = [e.name, e.message];
            }
            await p.dispose();
            return { kept: kept.map((k) => k.name), text, none: none.length, gone, info };
        """,
    )
    assert "error" not in kept, kept
    assert (
        kept["kept"] == ["again"]
        and kept["text"] == got["low"]
        and kept["none"] == 0
        and kept["gone"][0] == "InputError"
    )


# long: the script of a page and the checks of what it returns
def test_wrong_adapters_are_refused(visit, server, trainable):
    v = visit(server)
    got = train(
        v,
        """
            await ew.fineTune(p, arg.text, { max_steps: 2, name: "good" });
            const text = await greedy();
            const [weights, config] = await p.saveAdapter("good");
            const bytes = new Uint8Array(await weights.arrayBuffer());
            const json = JSON.parse(await config.text());
            const file = (b, name = "adapter_model.safetensors") => new File([b], name);
            const conf = (change) =>
              file(JSON.stringify({ ...json, ...change }), "adapter_config.json");
            const renamed = new TextEncoder().encode(
              new TextDecoder("latin1")
                .decode(bytes)
                .slice(8, 9000)
                .replaceAll("layers.0", "layers.9"),
            );
            const other = bytes.slice();
            other.set(renamed, 8);
            const tries = {
              cut: [file(bytes.slice(0, bytes.length - 4)), config],
              empty: [file(""), config],
              text: [file("Dear page, I am no adapter."), config],
              noconfig: [weights],
              noweights: [config],
              none: [],
              other: [file(other), config],
              json: [weights, file("{", "adapter_config.json")],
              kind: [weights, conf({ peft_type: "IA3" })],
              dora: [weights, conf({ use_qalora: true })],
              rank: [weights, conf({ r: 64 })],
              nan: [file(bytes.slice().fill(0xff, bytes.length - 400)), config],
              lowrank: [weights, conf({ r: 2 })],
              alpha: [weights, conf({ lora_alpha: "much" })],
            };
            const out = {};
            for (const [name, files] of Object.entries(tries)) {
              try {
                await p.loadAdapter("bad", files);
                out[name] = "loaded";
              } catch (e) {
                out[name] = [e.name, e instanceof ew.EdgewiseError, e.message];
              }
            }
            for (const call of [
              () => p.setAdapter("nobody"),
              () => p.setAdapter("good", NaN),
              () => p.saveAdapter("nobody"),
              () => p.renameAdapter("good", "a/b"),
              () => p.removeAdapter("nobody"),
              () => p.keepAdapter("nobody"),
            ]) {
              try {
                await call();
                out[String(call)] = "done";
              } catch (e) {
                out[String(call)] = [e.name, e instanceof ew.EdgewiseError, e.message];
              }
            }
            const same = (await greedy()) === text;
            await p.dispose();
            return { out, same, names: p.adapters.map((a) => a.name) };
        """,
    )
    assert "error" not in got, str(got)[:900]
    assert got["same"] and got["names"] == ["good"]
    for name, result in got["out"].items():
        assert result[1] is True and result[0] in (
            "ModelError",
            "InputError",
            "UnsupportedField",
        ), (name, result)


MERGE = """
    await ew.fineTune(p, arg.text, { max_steps: 6, learning_rate: 5e-3, r: 3 });
    const text = await greedy();
    const file = await p.mergedOnnx("adapter", "/demo/model/onnx/model_q4.onnx");
    let nothing;
    try {
      await p.mergedOnnx("adapter");
    } catch (e) {
      nothing = [e.name, e.message];
    }
    await p.dispose();
    const names = [
      "config.json",
      "generation_config.json",
      "tokenizer.json",
      "tokenizer_config.json",
    ];
    const files = await Promise.all(
      names.map(async (n) => new File([await (await fetch("/demo/model/" + n)).blob()], n)),
    );
    const q = await ew.pipeline("text-generation", [file, ...files], { flavour: "simd128" });
    const again = (await q("Once upon a time", { max_new_tokens: 16, do_sample: false }))[0]
      .generated_text;
    await q.dispose();
    return {
      text,
      again,
      nothing,
      size: file.size,
      name: file.name,
      data: btoa(
        Array.from(new Uint8Array(await file.arrayBuffer()), (b) => String.fromCharCode(b)).join(
          "",
        ),
      ),
    };
"""


def test_an_adapter_merged_into_the_onnx_file(visit, server, trainable):
    v = visit(server)
    got = train(v, MERGE)
    assert "error" not in got, str(got)[:900]
    assert (
        got["name"] == "model.onnx"
        and got["text"] == got["again"]
        and got["nothing"][0] == "InputError"
        and "built from" in got["nothing"][1]
    )
    onnxruntime = pytest.importorskip("onnxruntime")
    names = {
        i.name for i in onnxruntime.InferenceSession(base64.b64decode(got["data"])).get_inputs()
    }
    assert "input_ids" in names


def test_training_starts_from_an_adapter(visit, server, trainable):
    """Without a learning rate the result is the adapter; its rank is the adapter's."""
    got = train(
        visit(server),
        """
            const o = { max_steps: 6, learning_rate: 5e-3, r: 3, lora_alpha: 12, name: "first" };
            const { losses } = await ew.fineTune(p, arg.text, o);
            const first = await greedy();
            await p.setAdapter(null);
            const still = { max_steps: 1, learning_rate: 0, initial: "first", name: "same" };
            await ew.fineTune(p, arg.text, still);
            const same = await greedy();
            const more = { max_steps: 6, learning_rate: 5e-3, initial: "first", name: "more" };
            const second = (await ew.fineTune(p, arg.text, more)).losses;
            const refused = await ew
              .fineTune(p, arg.text, { ...more, r: 2 })
              .catch((e) => e.message);
            const info = p.adapters.find((a) => a.name === "same");
            const active = p.adapters.find((a) => a.active).name;
            await p.dispose();
            return { first, same, losses, second, refused, info, active };
        """,
    )
    assert "error" not in got, str(got)[:900]
    assert got["same"] == got["first"]
    assert (got["info"]["r"], got["info"]["lora_alpha"]) == (3, 12)
    assert got["second"][0] < got["losses"][0]
    assert "another kind, rank or scaling" in got["refused"] and got["active"] == "more"


def test_a_run_has_the_scaling_that_it_was_given(visit, server, trainable):
    """Rank and lora_alpha of a run, not those of the package, decide what it learns: as a Trainer
    that has them.
    """
    import edgewise
    from edgewise.compiler.training.package import default_lora

    adapters, options = {"r": 4, "lora_alpha": 40}, {"max_steps": 6, "learning_rate": 5e-3}
    got = train(
        visit(server),
        """
            const { losses } = await ew.fineTune(p, arg.text, { ...arg.options, ...arg.adapters });
            const plain = (await ew.fineTune(p, arg.text, arg.options)).losses;
            await p.dispose();
            return { losses, plain };
        """,
        adapters=adapters,
        options=options,
    )
    assert "error" not in got, str(got)[:900]
    learning_rate = options.pop("learning_rate")
    trainer = edgewise.Trainer(
        str(MODEL),
        adapters=default_lora(**adapters, lora_dropout=0.1),
        batch_size=BATCH,
        sequence_length=SEQUENCE,
        learning_rate=learning_rate,
    )
    expected = trainer.fit(TEXT, **options, progress=False).losses
    assert got["losses"] == pytest.approx(expected, rel=1e-4)
    assert abs(got["losses"][-1] - got["plain"][-1]) > 0.01


def test_an_optimizer_goes_on_in_another_run(visit, server, trainable):
    """From its state, bit for bit: the first loss is that of a new one, the next is not."""
    got = train(
        visit(server),
        """
    const losses = {};
    const run = async (name, o) => {
      const options = { adapter: "lora", name, learning_rate: 1e-2, max_steps: 2, ...o };
      const t = await ew.Trainer.create(p, "An old robot sang.", options);
      const given = await t.optimizerState();
      losses[name] = (await t.run()).losses;
      const state = await t.optimizerState();
      await t.close();
      return { given: String(given), state };
    };
    const { state } = await run("first", {});
    const { given } = await run("second", { initial: "first", optimizer_state: state });
    await run("new", { initial: "first" });
    const wrong = await run("wrong", { optimizer_state: state.slice(1) }).catch((e) => e.where);
    const names = p.adapters.map((a) => a.name);
    await p.dispose();
    return { losses, wrong, names, same: given === String(state) };
    """,
    )
    assert "error" not in got, got["error"]
    (before, after), (first, other) = got["losses"]["second"], got["losses"]["new"]
    assert got["same"] and before == first and after != other
    assert got["wrong"] == "options.optimizer_state" and "wrong" not in got["names"]
