"""Training in a page: the loss falls as in Python, and the same seed gives the same run."""

import pytest

from ..conftest import MODEL
from ..loading import WATCH
from .harness import BATCH, LOAD, SEQUENCE, TEXT, train


# long: the script of a page and the checks of what it returns
def test_training_an_adapter_leaves_the_base_unchanged(visit, server, trainable):
    v = visit(server)
    v.run(WATCH)
    got = train(
        v,
        """
            const events = [],
              before = await greedy();
            const done = await ew.fineTune(p, arg.text, {
              epochs: 6,
              learning_rate: 5e-3,
              evaluation: 0.2,
              evaluate_every: 20,
              name: "robots",
              onStep: (e) => events.push(e),
            });
            const after = await greedy(),
              adapters = p.adapters;
            await p.setAdapter(null);
            const base = await greedy(),
              off = p.adapters;
            await p.setAdapter("robots");
            const again = await greedy();
            await p.setAdapter("robots", 0);
            const none = await greedy();
            await p.dispose();
            return {
              before,
              after,
              base,
              again,
              none,
              done,
              events,
              adapters,
              off,
              can: p.info.training,
              blocking,
            };
        """,
    )
    assert "error" not in got, got
    losses = got["done"]["losses"]
    assert len(losses) == got["done"]["total"] == len(got["events"]) > 20
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4]), losses
    evaluations = got["done"]["evaluations"]
    assert [e[0] for e in evaluations] == [
        0,
        *range(20, len(losses), 20),
        len(losses),
    ] and evaluations[-1][1] < evaluations[0][1]
    assert (
        got["after"] != got["before"] == got["base"] == got["none"] and got["again"] == got["after"]
    )
    assert (
        got["adapters"]
        == [
            {
                "name": "robots",
                "kind": "lora",
                "active": True,
                "scale": 1,
                "bytes": got["adapters"][0]["bytes"],
                "r": 4,
                "lora_alpha": 8,
            }
        ]
        and not got["off"][0]["active"]
    )
    last = got["events"][-1]
    assert (
        last["step"] == last["total"]
        and last["seconds_left"] == 0
        and last["tokens_per_second"] > 0
        and abs(last["epoch"] - 6) < 0.5
        and last["memory"]["engine"] > last["memory"]["activations"] > 0
    )
    assert got["can"] == [
        {
            "adapter": "lora",
            "batch": BATCH,
            "sequence": SEQUENCE,
            "learning_rate": got["can"][0]["learning_rate"],
            "optimizer": "AdamW",
            "r": 4,
            "lora_alpha": 8,
        }
    ]
    assert got["blocking"] == [], "the page's own thread computes"


def test_lora_and_optimizer_as_options(visit, server, trainable):
    v = visit(server)
    got = train(
        v,
        """
            const why = async (options) => {
              try {
                await ew.fineTune(p, arg.text, { max_steps: 1, ...options });
                return "none";
              } catch (e) {
                return e.name + " " + e.where;
              }
            };
            const one = await ew.fineTune(p, arg.text, {
              lora: { r: 2, lora_alpha: 4 },
              optimizer: { type: "adamw", lr: 1e-3 },
              max_steps: 2,
              name: "one",
            });
            const two = await ew.fineTune(p, arg.text, {
              adapter: "lora",
              r: 2,
              lora_alpha: 4,
              learning_rate: 1e-3,
              max_steps: 2,
              name: "two",
            });
            const wrong = [
              await why({ lora: false }),
              await why({ lora: { r: 2, target_modules: "x" } }),
              await why({ lora: false, adapter: "lora" }),
              await why({ optimizer: "SGD" }),
              await why({ optimizer: { type: "AdamW", eps: 1 } }),
            ];
            await p.dispose();
            return { one: one.losses, two: two.losses, wrong };
        """,
    )
    assert "error" not in got, got
    assert got["one"] == got["two"]
    assert [w.split()[0] for w in got["wrong"]] == ["InputError"] * 5 and [
        w.split(" ", 1)[1] for w in got["wrong"]
    ][1:] == [
        "options.lora.target_modules",
        "options.lora",
        "options.optimizer",
        "options.optimizer.eps",
    ]


def test_the_same_seed_gives_the_same_run(visit, server, trainable):
    v = visit(server)
    got = train(
        v,
        """
            const losses = async (o) =>
              (await ew.fineTune(p, arg.text, { max_steps: 4, ...o })).losses;
            const out = {
              a: await losses({ seed: 5 }),
              b: await losses({ seed: 5 }),
              c: await losses({ seed: 6 }),
              two: await losses({ seed: 5, gradient_accumulation_steps: 2 }),
              r: await losses({ seed: 5, r: 2 }),
              schedule: await losses({ seed: 5, schedule: "cosine", warmup_steps: 2 }),
            };
            await p.dispose();
            return out;
        """,
    )
    assert "error" not in got, got
    assert got["a"] == got["b"] != got["c"] and got["a"][0] != got["c"][0]
    assert (
        got["schedule"][0] == got["a"][0] == got["schedule"][0]
        and got["schedule"][2:] != got["a"][2:]
    )
    assert got["two"] != got["a"] and got["r"][0] == got["a"][0] and got["r"] != got["a"]


def test_the_same_run_in_python_and_in_a_page(visit, server, trainable):
    """The same texts, seed and options give the same losses step by step: bit-identical with the
    kernels of the wasm engine.
    """
    import edgewise
    from edgewise.compiler.training.package import default_lora
    from engines.node_engine import NodeEngine

    texts = [TEXT[:700], TEXT[700:], ""]
    options = {"epochs": 3.5, "evaluation": 0.2}
    settings = {
        "gradient_accumulation_steps": 2,
        "schedule": "cosine",
        "warmup_steps": 2,
        "seed": 9,
    }

    def python(engine, **fields):
        trainer = edgewise.Trainer(
            str(MODEL),
            adapters=default_lora(r=4, lora_alpha=8, lora_dropout=0.1),
            batch_size=BATCH,
            sequence_length=SEQUENCE,
            engine=engine,
            **settings,
        )
        history = trainer.fit(texts, **{**options, **fields}, progress=False)
        trainer.free()
        return history.losses, history.evaluations[-1][1]

    engine = NodeEngine("simd128")
    try:
        losses, evaluation = python(engine)
    finally:
        engine.close()
    native, native_evaluation = python(None)
    v = visit(server)
    there = train(
        v,
        """
            const run = async (o) => {
              const r = await ew.fineTune(p, arg.texts, o);
              return [r.losses, r.evaluations.at(-1)[1]];
            };
            const out = await run({ ...arg.options, ...arg.settings });
            await p.dispose();
            return out;
        """,
        texts=texts,
        options=options,
        settings=settings,
    )
    assert "error" not in there, there
    assert len(losses) > 8
    assert there[0] == losses
    assert there[1] == pytest.approx(evaluation, rel=1e-12)
    # Other instructions add in another order.
    assert native == pytest.approx(losses, rel=1e-5)
    assert native_evaluation == pytest.approx(evaluation, rel=1e-5)


@pytest.fixture(scope="session")
def both(files, trainable):
    """The demo's model with LoRA, and with all parameters trained except quantized ones."""
    from edgewise.compiler.training.package import compile_training_package
    from edgewise.host.session.open import folder_files

    sizes = {"batch": BATCH, "sequence": SEQUENCE}
    with open(files / "both.edge", "wb") as f:
        compile_training_package(
            folder_files(MODEL)[0],
            [
                {"name": "lora", "lora": {"r": 4, "lora_alpha": 8}, **sizes},
                {"name": "full", **sizes},
            ],
        ).write(f)


# long: the script of a page and the checks of what it returns
def test_training_all_parameters(visit, server, both):
    """Generation uses the trained parameters and the values computed from them; the page can switch
    between them, adapters and the original model.
    """
    v = visit(server)
    got = v.run(
        LOAD.replace("trainable", "both")
        + """
            const o = { adapter: "full", learning_rate: 0.03, seed: 3 };
            const base = await greedy();
            const f = await ew.fineTune(p, arg.text, { ...o, max_steps: 12, name: "f" }),
              full = await greedy();
            await ew.fineTune(p, arg.text, {
              adapter: "lora",
              learning_rate: 0.01,
              max_steps: 12,
              name: "l",
            });
            const lora = await greedy();
            const same = [];
            const is = async (name, text) => {
              await p.setAdapter(name);
              same.push((await greedy()) === text);
            };
            await is("f", full);
            await is(null, base);
            await is("l", lora);
            await is("f", full);
            await p.loadAdapter("g", await p.saveAdapter("f"));
            await is("g", full);
            await is("l", lora);
            await is("f", full);
            const t = await ew.Trainer.create(p, arg.text, { ...o, max_steps: 12, name: "h" });
            const losses = [];
            for (let i = 0; i < 12; i++) {
              losses.push((await t.step()).loss);
              if (i === 3) await is("l", lora);
              if (i === 6) await is("f", full);
              if (i === 9) await is(null, base);
            }
            await is("h", full);
            let scaled;
            try {
              await p.setAdapter("h", 0.5);
            } catch (e) {
              scaled = e.name;
            }
            await t.close();
            await is("h", full);
            await is("l", lora);
            await p.removeAdapter("f");
            await is("h", full);
            await is(null, base);
            const kinds = p.adapters.map((a) => [a.name, a.kind]);
            await p.dispose();
            return { base, full, lora, same, losses, first: f.losses, scaled, kinds };
        """,
        {"text": TEXT},
    )
    assert "error" not in got, got
    assert (
        len({got["base"], got["full"], got["lora"]}) == 3
        and all(got["same"])
        and got["losses"] == got["first"]
        and got["scaled"] == "InputError"
    )
    assert (
        got["kinds"] == [["l", "lora"], ["g", "full"], ["h", "full"]]
        and got["first"][-1] < got["first"][0]
    )


def check_preview(page):
    """The demo shows what the model will see of the text."""
    page.click("#seen summary")
    page.wait_for_selector("#seen-view mark")
    sample = page.input_value("#lesson")
    for row in page.eval_on_selector_all("#seen-view mark", "all => all.map((x) => x.textContent)"):
        assert len(row) > 20 and row.strip().split("\n")[0] in sample


def test_the_demo_trains(visit, server, files, trainable):
    v = visit(server, "/?write=0&model=/files/trainable.edge", start=False)
    page = v.page
    page.wait_for_function("!document.querySelector('#generate').disabled")
    assert page.locator("#teach").is_disabled()
    page.click("#sample")
    page.click("#teach-form summary")
    check_preview(page)
    page.fill("#steps", "6")
    page.click("#teach")
    page.wait_for_function("document.body.dataset.compared === '1'")
    assert (
        "6 steps" in page.inner_text("#learn-words")
        and page.locator("#chart polyline").count() == 1
        and page.locator("#error").is_hidden()
        and page.locator("#teach-error").is_hidden()
    )
    before, after = page.inner_text("#before"), page.inner_text("#after")
    assert before.startswith("Once upon a time") and after.startswith("Once upon a time")
    assert page.input_value("#adapters input[type=text]") == "Telegrams"
    page.fill("#adapters input[type=text]", "Wires")
    page.press("#adapters input[type=text]", "Enter")
    page.wait_for_function("document.querySelector('#after-name').textContent === 'Wires'")
    with page.expect_download() as download:
        page.click("#adapters >> text=Download")
    assert download.value.suggested_filename.endswith((".safetensors", ".json"))
    v.close()
    # The next visit has the result; an interrupted lesson continues.
    w = visit(server, "/?write=0&model=/files/trainable.edge", start=False)
    page = w.page
    page.wait_for_function("!document.querySelector('#generate').disabled")
    page.wait_for_selector("#adapters input[type=text]")
    assert page.input_value("#adapters input[type=text]") == "Wires"
    page.check("#adapters li:nth-child(2) input[type=radio]")
    page.wait_for_function("document.body.dataset.compared === '1'")
    assert page.inner_text("#after") == after
    page.fill("#lesson", TEXT)
    page.click("#teach-form summary")
    page.fill("#steps", "4000")
    page.click("#teach")
    page.wait_for_function("Number(document.body.dataset.step) >= 22")
    w.close()
    x = visit(server, "/?write=0&model=/files/trainable.edge", start=False)
    page = x.page
    page.wait_for_selector("#interrupted:visible")
    assert "of 4000" in page.inner_text("#interrupted")
    page.click("#go-on")
    page.wait_for_function("Number(document.body.dataset.step) >= 21")
    page.click("#pause")
    page.wait_for_function("document.querySelector('#learn-words').textContent === 'Paused'")
    page.click("#pause")
    page.click("#end")
    page.wait_for_function("document.body.dataset.compared === '1'")
    assert (
        "Ended early" in page.inner_text("#learn-words")
        and page.locator("#error").is_hidden()
        and page.locator("#teach-error").is_hidden()
    )
    assert page.locator("#adapters li").count() == 3


def test_an_estimate_tells_memory_and_time_and_changes_nothing(visit, server, trainable):
    got = train(
        visit(server),
        """
            const options = { max_steps: 3, gradient_accumulation_steps: 3, seed: 1 };
            await ew.fineTune(p, arg.text, { max_steps: 2, name: "mine" });
            const before = await greedy();
            const estimate = await ew.Trainer.estimate(p, arg.text, options);
            const only = await ew.Trainer.estimate(p, arg.text, { ...options, measure: false });
            const again = await ew.Trainer.estimate(p, arg.text, options);
            const after = await greedy(),
              adapters = p.adapters.map((a) => [a.name, a.active]);
            const trainer = await ew.Trainer.create(p, arg.text, options);
            const busy = await ew.Trainer.estimate(p, arg.text).catch((e) => e.what);
            const { memory } = await trainer.step();
            await trainer.run();
            const { losses } = await trainer.result();
            await trainer.close();
            await p.setAdapter(null);
            const plain = await ew.fineTune(p, arg.text, options);
            const wrong = await ew.Trainer.estimate(p, "", options).catch((e) => e.name);
            await p.dispose();
            const flavour = "relaxed-threads-64";
            const wide = await ew.pipeline("text-generation", "/files/trainable.edge", { flavour });
            const more = await ew.Trainer.estimate(wide, arg.text, { measure: false });
            await wide.dispose();
            return {
              before,
              after,
              adapters,
              estimate,
              again: again.available,
              more: more.available,
              only,
              busy,
              memory,
              losses,
              plain,
              wrong,
            };
        """,
    )
    assert "error" not in got, got
    assert got["before"] == got["after"] and got["adapters"] == [["mine", True]]
    estimate = got["estimate"]
    assert estimate["fits"] and estimate["change"] is None and estimate["total"] == 3
    assert estimate["seconds_per_step"] > 0
    assert estimate["seconds"] == pytest.approx(3 * estimate["seconds_per_step"])
    assert "seconds" not in got["only"] and got["only"]["memory"] == estimate["memory"]
    memory, parts = got["memory"], estimate["memory"]
    assert parts["states"] == memory["states"] and parts["activations"] > memory["activations"]
    assert parts["total"] == sum(v for k, v in parts.items() if k != "total")
    assert parts["total"] < estimate["available"] < 2**32 and got["again"] == estimate["available"]
    assert 12 * 2**30 < got["more"] - estimate["available"] < 13 * 2**30  # of 16 GB instead of 4
    assert got["losses"] == got["plain"]["losses"]
    assert "another training run" in got["busy"] and got["wrong"] == "InputError"
