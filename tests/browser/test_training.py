"""Training in a page: it learns, says what it does, can be stopped at any moment, and goes on bit
for bit where it was.
"""

import base64
import io
import json
import os
import signal

import pytest

from .conftest import FLAGS, MODEL, Visit, edit_package
from .test_trouble import error

BATCH, SEQUENCE = 2, 32
TEXT = " ".join(
    f"The {a} robot number {i} had a {b} and gave it to the {c}."
    for i, (a, b, c) in enumerate(
        [
            ("old", "lamp", "cat"),
            ("small", "boat", "owl"),
            ("merry", "cake", "moon"),
            ("rusty", "hat", "queen"),
        ]
        * 6
    )
)


@pytest.fixture(scope="session")
def trainable(files):
    """The demo model with LoRA (with dropout, so that seeds matter) as /files/trainable.edge."""
    from edgewise.session.decoder import folder_files
    from edgewise.training.package import compile_training_package

    package = compile_training_package(
        folder_files(MODEL)[0],
        [
            {
                "name": "lora",
                "batch": BATCH,
                "sequence": SEQUENCE,
                "lora": {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1},
            }
        ],
    )
    (files / "model-in-parts").mkdir(exist_ok=True)
    out = io.BytesIO()
    package.write(out)
    (files / "trainable.edge").write_bytes(out.getvalue())
    return package


LOAD = """
    const p = await ew.pipeline("text-generation", "/files/trainable.edge", {
      flavour: "simd128",
      ...arg?.load,
    });
    const greedy = async () =>
      (await p("Once upon a time", { max_new_tokens: 16, do_sample: false }))[0].generated_text;
"""


def train(visit, body, **arg):
    got = visit.run(LOAD + body, {"text": TEXT, **arg})
    return got


def test_it_learns_and_the_base_stays(visit, server, trainable):
    v = visit(server)
    v.run(
        """
            window.long = [];
            new PerformanceObserver((list) =>
              long.push(...list.getEntries().map((e) => Math.round(e.duration))),
            ).observe({ type: "longtask" });
        """
    )
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
              long,
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
    assert got["long"] == [], "the page's thread was blocked"


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


def test_a_seed_is_a_run(visit, server, trainable):
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
    """The same texts, seed and options give the same losses, step by step: the same bits with the
    same kernels, the wasm engine's.
    """
    import edgewise
    from edgewise.training.package import default_lora
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


RUN = {
    "max_steps": 6,
    "seed": 3,
    "schedule": "linear",
    "checkpoint": {"name": "run 1", "every": 2},
    "gradient_accumulation_steps": 2,
}
WHOLE = (
    "const {checkpoint, ...o} = arg.o; const r = await ew.fineTune(p, arg.text, o); const text ="
    " await greedy(); await p.dispose(); return {losses: r.losses, text};"
)
BEGIN = (
    "window.steps = 0; void ew.fineTune(p, arg.text, {...arg.o, onStep: (e) => { window.steps ="
    " e.step; window.failed = e.checkpoint; }}).catch((e) => { window.failed = e.message; });"
    " return true;"
)
RESUME = """
    const events = [];
    const r = await ew.fineTune(p, arg.text, {
      ...arg.o,
      resume: true,
      onStep: (e) => events.push(e.step),
    });
    const text = await greedy();
    await p.dispose();
    return { losses: r.losses, events, text, kept: await ew.checkpoints() };
"""


def test_a_closed_tab_goes_on_bit_for_bit(visit, server, trainable):
    v = visit(server)
    whole = train(v, WHOLE, o=RUN)
    assert "error" not in whole and len(whole["losses"]) == 6, whole
    assert train(v, BEGIN, o=RUN) is True
    v.page.wait_for_function("window.steps >= 3")
    v.close()
    w = visit(server)
    again = train(w, RESUME, o=RUN)
    assert "error" not in again, again
    assert (
        again["losses"] == whole["losses"]
        and again["text"] == whole["text"]
        and again["events"][0] in (3, 5)
    )
    assert [(c["name"], c["step"], c["total"], c["program"]) for c in again["kept"]] == [
        ("run 1", 6, 6, "lora")
    ]
    # Once more: there is nothing left to do, and the adapter is there.
    done = train(w, RESUME, o=RUN)
    assert (
        done["losses"] == whole["losses"] and done["events"] == [] and done["text"] == whole["text"]
    )
    assert w.run(
        "await ew.clearCache(); const a = await ew.checkpoints(); await ew.deleteCheckpoint('run"
        " 1'); return [a.length, (await ew.checkpoints()).length]"
    ) == [1, 0]


def test_a_killed_browser_goes_on_bit_for_bit(playwright, built, server, trainable, tmp_path):
    def launch():
        return playwright.chromium.launch_persistent_context(
            tmp_path, executable_path="/usr/bin/chromium", args=FLAGS
        )

    context = launch()
    v = Visit(context, server + "/files/blank.html").start()
    whole = train(v, WHOLE, o=RUN)
    assert "error" not in whole, whole
    train(v, BEGIN, o=RUN)
    v.page.wait_for_function("window.steps >= 3")
    pid = (
        next(
            p["id"]
            for p in context.browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")[
                "processInfo"
            ]
            if p["type"] == "browser"
        )
        if context.browser
        else None
    )
    if pid is None:
        pid = int(os.readlink(tmp_path / "SingletonLock").rsplit("-", 1)[1])
    os.kill(pid, signal.SIGKILL)
    try:
        context.close()
    except Exception:
        pass
    (tmp_path / "SingletonLock").unlink(missing_ok=True)
    context = launch()
    try:
        w = Visit(context, server + "/files/blank.html").start()
        again = train(w, RESUME, o=RUN)
        assert "error" not in again, again
        assert (
            again["losses"] == whole["losses"]
            and again["text"] == whole["text"]
            and again["events"][0] in (3, 5)
        )
    finally:
        context.close()


DAMAGE = """
    const dir = await (
      await (await navigator.storage.getDirectory()).getDirectoryHandle("edgewise")
    ).getDirectoryHandle("checkpoints");
    for (const side of arg.sides) {
      const file = await dir.getFileHandle(`run 1.${side}.safetensors`);
      let bytes = new Uint8Array(await (await file.getFile()).arrayBuffer());
      if (arg.how === "cut") bytes = bytes.slice(0, bytes.length - 100);
      else bytes[arg.how === "header" ? 100 : bytes.length - 5000] ^= 1;
      const out = await file.createWritable();
      await out.write(bytes);
      await out.close();
    }
"""


@pytest.mark.parametrize("how", ["flip", "cut", "header"])
def test_a_damaged_checkpoint_is_not_used(visit, server, trainable, how):
    v = visit(server)
    whole = train(v, WHOLE, o=RUN)
    train(v, RESUME, o=RUN)
    v.run(DAMAGE, {"sides": ["a"], "how": how})  # saves of steps 2, 4 and 6 went to a, b and a
    again = train(v, RESUME, o=RUN)
    assert again["events"] == [5, 6] and again["losses"] == whole["losses"], again
    v.run(DAMAGE, {"sides": ["a", "b"], "how": how})
    anew = train(v, RESUME, o=RUN)
    assert anew["events"] == [1, 2, 3, 4, 5, 6] and anew["losses"] == whole["losses"]


def test_checkpoints_of_other_runs_are_refused(visit, server, trainable):
    v = visit(server)
    train(v, RESUME, o=RUN)
    for change in ({"seed": 4}, {"learning_rate": 0.5}, {"max_steps": 7}):
        error(
            train(v, RESUME, o={**RUN, **change}),
            "InputError",
            next(iter(change)) if "max_steps" not in change else "total",
            "run 1",
        )
    error(
        train(v, RESUME.replace("arg.text", "arg.text + ' And more.'"), o=RUN),
        "InputError",
        "other texts",
    )
    error(train(v, RESUME, o={**RUN, "checkpoint": "../x"}), "InputError", "no name")
    assert (
        train(
            v,
            "const r = await ew.fineTune(p, arg.text, arg.o); return r.step",
            o={**RUN, "seed": 4},
        )
        == 6
    ), "without resume it begins anew"


def test_full_storage_is_said_and_loses_nothing(visit, server, context, trainable):
    v = visit(server)
    first = train(v, RESUME, o={**RUN, "max_steps": 2})
    assert first["kept"][0]["step"] == 2
    client = context.new_cdp_session(v.page)
    client.send("Storage.overrideQuotaForOrigin", {"origin": server, "quotaSize": 1000})
    got = train(
        v,
        """
            const events = [];
            const t = await ew.Trainer.create(p, arg.text, {
              ...arg.o,
              onStep: (e) => events.push(e),
            });
            const r = await t.run();
            let saved;
            try {
              saved = await t.save();
            } catch (e) {
              saved = [e.name, e.message];
            }
            await t.close();
            let kept;
            try {
              kept = await p.keepAdapter(r.adapter);
            } catch (e) {
              kept = [e.name, e.message];
            }
            const text = await greedy();
            await p.dispose();
            return {
              r,
              saved,
              kept,
              text,
              words: events.map((e) => e.checkpoint ?? null),
              there: await ew.checkpoints(),
            };
        """,
        o=RUN,
    )
    assert "error" not in got, got
    assert (
        got["r"]["step"] == 6
        and [bool(w) for w in got["words"]] == [False, True] * 3
        and "full" in got["words"][1]
        and "full" in got["r"]["checkpoint_error"]
    )
    assert (
        got["saved"][0] == "StorageError"
        and got["kept"][0] == "StorageError"
        and "still in use" in got["kept"][1]
    )
    assert got["there"] and got["there"][0]["step"] == 2, "the save before is still there"
    client.send("Storage.overrideQuotaForOrigin", {"origin": server})
    whole = train(v, RESUME, o=RUN | {"max_steps": 2})
    assert whole["events"] == [] and whole["losses"] == first["losses"]


def test_storage_that_is_denied(visit, server, trainable):
    v = visit(server, start=False)
    v.page.context.add_init_script("")
    got = v.page.evaluate(
        f"""async () => {{
        const ew = await import('/edgewise.js');
        const source = await (await fetch('/worker.js')).text();
        const denied = `Object.defineProperty(StorageManager.prototype, 'getDirectory', {{
          value: () => Promise.reject(new DOMException('denied', 'SecurityError')) }});`;
        const blob = new Blob([denied + source], {{type: 'text/javascript'}});
        ew.env.workerUrl = URL.createObjectURL(blob);
        const options = {{flavour: 'simd128'}};
        const p = await ew.pipeline('text-generation', '/files/trainable.edge', options);
        const words = [];
        const checkpoint = {{name: 'x', every: 1}}, onStep = (e) => words.push(e.checkpoint);
        const r = await ew.fineTune(p, {json.dumps(TEXT)}, {{max_steps: 2, checkpoint, onStep}});
        await p.dispose();
        return {{step: r.step, words}};
    }}"""
    )
    assert got["step"] == 2 and all("may not keep files" in w for w in got["words"]), got


def test_pause_generate_go_on_abort(visit, server, trainable):
    v = visit(server)
    got = train(
        v,
        """
            const steps = [],
              stop = new AbortController();
            const t = await ew.Trainer.create(p, arg.text, {
              max_steps: 400,
              seed: 1,
              signal: stop.signal,
              onStep: (e) => steps.push(e.step),
            });
            const first = await t.step();
            const running = t.run();
            running.catch(() => undefined);
            while (steps.length < 3) await new Promise((r) => setTimeout(r, 5));
            await t.pause();
            const during = await greedy();
            const at = steps.length;
            await new Promise((r) => setTimeout(r, 400));
            const still = steps.length - at;
            await p.setAdapter(null);
            const base = await greedy(); // another adapter meanwhile: the run finds its own again
            let second;
            try {
              second = await ew.Trainer.create(p, arg.text);
            } catch (e) {
              second = e.message;
            }
            await t.resume();
            while (steps.length < at + 3) await new Promise((r) => setTimeout(r, 5));
            const beside = await greedy(); // while it trains
            stop.abort();
            let end;
            try {
              end = await running;
            } catch (e) {
              end = e.name;
            }
            const result = await t.result();
            await t.close();
            const losses = result.losses.length;
            const adapters = p.adapters;
            let gone;
            try {
              gone = await t.step();
            } catch (e) {
              gone = e.message;
            }
            await p.dispose();
            return {
              first,
              during,
              still,
              base,
              second,
              end,
              losses,
              steps,
              adapters,
              gone,
              beside,
            };
        """,
    )
    assert "error" not in got, got
    assert (
        got["first"]["step"] == 1
        and got["steps"][:2] == [1, 2]
        and got["still"] <= 1
        and got["end"] == "Aborted"
    )
    assert (
        got["during"]
        and got["beside"]
        and "already" in got["second"]
        and "nothing is being trained" in got["gone"]
    )
    assert got["losses"] >= len(got["steps"]) and got["adapters"][0]["active"]


def test_pausing_and_switching_change_nothing(visit, server, trainable):
    v = visit(server)
    got = train(
        v,
        """
            const whole = (await ew.fineTune(p, arg.text, { max_steps: 4, seed: 2, name: "x" }))
              .losses;
            const t = await ew.Trainer.create(p, arg.text, {
              max_steps: 4,
              seed: 2,
              name: "y",
              evaluation: undefined,
            });
            const losses = [];
            for (let i = 0; i < 4; i++) {
              losses.push((await t.step()).loss);
              await p.setAdapter("x");
              await greedy();
              await p.setAdapter("y", 0.3);
              await greedy();
              if (i % 2) await p.setAdapter(null);
            }
            await t.close();
            await p.setAdapter("x");
            const x = await greedy();
            await p.setAdapter("y");
            const y = await greedy();
            const files = await Promise.all(
              ["x", "y"].map(
                async (n) => new Uint8Array(await (await p.saveAdapter(n))[0].arrayBuffer()),
              ),
            );
            await p.dispose();
            return {
              whole,
              losses,
              x,
              y,
              same:
                files[0].length === files[1].length &&
                files[0].every((b, i) => b === files[1][i]),
            };
        """,
    )
    assert "error" not in got, got
    assert got["losses"] == got["whole"] and got["x"] == got["y"] and got["same"]


def test_adapters_as_files(visit, server, trainable, tmp_path):
    """What the page saves is PEFT's layout, which Python reads; and it comes back the same, in half
    precision nearly so, and with a lower rank.
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
    assert "error" not in got, got
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


@pytest.fixture(scope="session")
def both(files, trainable):
    """The demo model with LoRA and with training of all its parameters (those that are not
    quantized).
    """
    from edgewise.session.decoder import folder_files
    from edgewise.training.package import compile_training_package

    sizes = {"batch": BATCH, "sequence": SEQUENCE}
    with open(files / "both.edge", "wb") as f:
        compile_training_package(
            folder_files(MODEL)[0],
            [
                {"name": "lora", "lora": {"r": 4, "lora_alpha": 8}, **sizes},
                {"name": "full", **sizes},
            ],
        ).write(f)


def test_all_parameters(visit, server, both):
    """Generation uses the trained copies and what follows from them; they change places with
    adapters and with the model as it was.
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
              dora: [weights, conf({ use_dora: true })],
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
    assert "error" not in got, got
    assert got["same"] and got["names"] == ["good"]
    for name, result in got["out"].items():
        assert result[1] is True and result[0] in (
            "ModelError",
            "InputError",
            "UnsupportedField",
        ), (name, result)


def test_wrong_wishes(visit, server, trainable):
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
    for options, word in (
        ({"epoch": 3}, "epoch"),
        ({"epochs": -1}, "epochs"),
        ({"max_steps": 0.5}, "max_steps"),
        ({"learning_rate": -1}, "learning_rate"),
        ({"schedule": "step"}, "schedule"),
        ({"adapter": "full"}, "lora"),
        ({"adapter": "dora"}, "lora"),
        ({"r": 5}, "room for 4"),
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
        e = error(train(v, "return await ew.fineTune(p, arg.text, arg.o)", o=options), "InputError")
        assert word in e["message"], (options, e["message"])
    for texts in ("", [], [1], None, {"a": 1}):
        error(train(v, "return await ew.fineTune(p, arg.texts)", texts=texts), "InputError", "text")
    # After all that a model still writes and learns.
    got = train(
        v,
        """
            for (const o of [{ r: 99 }, { evaluation: 2 }])
              await ew.fineTune(p, arg.text, o).catch(() => undefined);
            const a = await greedy();
            const r = await ew.fineTune(p, arg.text, { max_steps: 1 });
            await p.dispose();
            return [a, r.step];
        """,
    )
    assert got[1] == 1


def test_the_loss_explodes(visit, server, trainable):
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
    """Plans that are not those that the manifest describes: refused before anything runs."""
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


def test_compiled_here_with_training(visit, server):
    v = visit(server)
    got = v.run(
        """
            const p = await ew.pipeline("text-generation", "/demo/model/", {
              dtype: "q4",
              training: { batch_size: 2, sequence_length: 32, r: 2 },
            });
            const r = await ew.fineTune(p, arg, { max_steps: 2 });
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
              training: { batch_size: 2, sequence_length: 32, r: 2 },
            });
            await again.dispose();
            return {
              losses: r.losses,
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
        and got["plain"] == []
        and got["two"] == ["full", "lora"]
        and got["from"] == "cache"
    )


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
    assert "error" not in got, got
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


def test_the_demo_learns(visit, server, files, trainable):
    v = visit(server, "/?write=0&model=/files/trainable.edge", start=False)
    page = v.page
    page.wait_for_function("!document.querySelector('#generate').disabled")
    assert page.locator("#teach").is_disabled()
    page.click("#sample")
    page.click("#teach-form summary")
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
    # The next visit has it; a lesson that was interrupted goes on.
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
    page.fill("#steps", "400")
    page.click("#teach")
    page.wait_for_function("Number(document.body.dataset.step) >= 22")
    w.close()
    x = visit(server, "/?write=0&model=/files/trainable.edge", start=False)
    page = x.page
    page.wait_for_selector("#interrupted:visible")
    assert "of 400" in page.inner_text("#interrupted")
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
