"""Invalid options, losses that are not finite, damaged plans, and models compiled in the page."""

from ..conftest import edit_package
from ..loading import error
from .harness import TEXT, train


def test_invalid_options(visit, server, trainable):
    v = visit(server)
    error(
        v.run(
            "const p = await ew.pipeline('text-generation', '/files/model.edge'); return await"
            " ew.fineTune(p, arg)",
            TEXT,
        ),
        "InputError",
        "compiled without training",
    )
    error(v.run("return await ew.fineTune({}, arg)", TEXT), "InputError", "pipeline")
    train(v, "Object.assign(window, { p, greedy });")
    for options, word in (
        ({"epoch": 3}, "epoch"),
        ({"epochs": -1}, "epochs"),
        ({"max_steps": 0.5}, "max_steps"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"schedule": "step"}, "schedule"),
        ({"adapter": "full"}, "lora"),
        ({"adapter": "dora"}, "lora"),
        ({"r": 5}, "ranks up to 4"),
        ({"r": 0}, "r is 0"),
        ({"lora_alpha": -1}, "lora_alpha"),
        ({"seed": -1}, "seed"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps"),
        ({"evaluation": 1.5}, "evaluation"),
        ({"evaluation": [1]}, "evaluation"),
        ({"evaluation": ""}, "evaluation"),
        ({"name": "a/b"}, "name"),
        ({"resume": True}, "resume"),
        ({"checkpoint": {"name": "x", "every": 0}}, "every"),
        ({"warmup_steps": -1}, "warmup_steps"),
    ):
        got = v.run("return await ew.fineTune(p, arg[0], arg[1])", [TEXT, options])
        e = error(got, "InputError")
        assert word in e["message"], (options, e["message"])
    for texts in ("", [], [1], None, {"a": 1}):
        error(v.run("return await ew.fineTune(p, arg)", texts), "InputError", "text")
    # After all these errors the model still generates and trains.
    got = v.run(
        """
            const a = await greedy();
            const r = await ew.fineTune(p, arg, { max_steps: 1 });
            await p.dispose();
            return [a, r.step];
        """,
        TEXT,
    )
    assert got[1] == 1


def test_the_loss_is_not_finite(visit, server, trainable):
    v = visit(server)
    got = train(
        v,
        """
            const before = await greedy();
            const e = await ew
              .fineTune(p, arg.text, { max_steps: 60, learning_rate: 1e30 })
              .catch((e) => e);
            const adapters = p.adapters.length,
              after = await greedy();
            const r = await ew.fineTune(p, arg.text, { max_steps: 2 });
            await p.dispose();
            return { e: [e.name, e.message], adapters, same: before === after, step: r.step };
        """,
    )
    assert "error" not in got, got
    assert (
        got["e"][0] == "EngineError"
        and "learning_rate" in got["e"][1]
        and got["adapters"] == 0
        and got["same"]
        and got["step"] == 2
    ), got


def test_damaged_training_plans(visit, server, files, package, trainable):
    """Plans that differ from their description in the manifest are rejected before anything
    runs.
    """
    data = (files / "trainable.edge").read_bytes()

    def swap(m):
        plans = m["training"][0]["plans"]
        plans["train"]["file"], plans["update"]["file"] = (
            plans["update"]["file"],
            plans["train"]["file"],
        )

    (files / "swapped.edge").write_bytes(edit_package(data, swap))
    v = visit(server)
    got = v.run(
        "const e = await ew.pipeline('text-generation', '/files/swapped.edge').catch((e) => e);"
        " return [e.name, e.what]"
    )
    assert got[0] == "PackageError" and "the manifest describes" in got[1], got


def test_compiled_in_the_page_with_training(visit, server):
    v = visit(server)
    got = v.run(
        """
            const p = await ew.pipeline("text-generation", "/demo/model/", {
              dtype: "q4",
              training: { batch_size: 8, sequence_length: 32, r: 2, fit: "auto", memory: 7e6 },
            });
            const r = await ew.fineTune(p, arg, { max_steps: 2 });
            const fitted = await ew.Trainer.estimate(p, arg, { measure: false });
            await p.dispose();
            const q = await ew.pipeline("text-generation", "/demo/model/", { dtype: "q4" });
            await q.dispose();
            const two = await ew.pipeline("text-generation", "/demo/model/", {
              dtype: "q4",
              training: {
                adapter: ["full", "lora"],
                batch_size: 1,
                sequence_length: 16,
                max_grad_norm: null,
              },
            });
            await ew.fineTune(two, arg, { adapter: "full", max_steps: 1 });
            await two.dispose();
            const again = await ew.pipeline("text-generation", "/demo/model/", {
              dtype: "q4",
              training: { batch_size: 8, sequence_length: 32, r: 2, fit: "auto", memory: 7e6 },
            });
            await again.dispose();
            return {
              losses: r.losses,
              batch: [
                fitted.batch,
                fitted.gradient_accumulation_steps,
                fitted.batch * fitted.gradient_accumulation_steps,
              ],
              can: p.info.training,
              plain: q.info.training,
              two: two.info.training.map((t) => t.adapter),
              from: again.info.origin,
              ms: p.info.ms.compile,
            };
        """,
        TEXT,
    )
    assert "error" not in got, got
    assert (
        len(got["losses"]) == 2
        and got["can"][0]["r"] == 2
        and got["batch"] == [2, 4, 8]
        and got["plain"] == []
        and got["two"] == ["full", "lora"]
        and got["from"] == "cache"
    )
